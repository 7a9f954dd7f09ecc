#include "mantissa/device/cpu/contraction/tiles_in_place.h"

#include <algorithm>
#include <array>
#include <new>

#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/contraction/window.h"

namespace mantissa::inline v0::on_cpu {

namespace {

constexpr std::int64_t panel_rows = 32, tile_rows = 16, step_depth = 32;
constexpr std::int64_t tile_bytes = tile_rows * step_depth * 2, step_bytes = 2 * tile_bytes;

// Copying 32 pixels takes some 130 cycles for 32 of the depth, and their products 64 for each 32 columns.
// Rows that lie apart cost tiles up to a sixth of the products' time.
constexpr std::int64_t max_columns_in_place = 128;

alignas(64) constexpr std::array<std::byte, 64> row_of_zeros{};

}  // namespace

/// An element of the window, from the first one.
struct TilesInPlace::Tap {
    std::int64_t down, across, element;
};

/// Sixteen rows of a: the first pixel of the first row's window, perhaps outside of the image.
struct TilesInPlace::Half {
    std::int64_t row, column, element;
    bool neighbours;  ///< whether they are neighbours in one row of an image
};

std::optional<TilesInPlace> TilesInPlace::of(const ContractionProblem& problem,
                                             const ContractionKernels& kernels) {
    const MatrixLayout& a = problem.a;
    if (!kernels.interleaves() || kernels.conversion.convert || a.dtype != DType::bf16 || !a.window ||
        a.transpose == Transpose::yes || a.mapped || a.window->channels % step_depth != 0 ||
        a.window->horizontal.output < tile_rows || problem.n > max_columns_in_place)
        return std::nullopt;
    return TilesInPlace(problem, kernels);
}

TilesInPlace::TilesInPlace(const ContractionProblem& problem, const ContractionKernels& kernels)
    : window_(*problem.a.window),
      gather_(kernels.gather),
      images_(elements_of(*problem.a.window, problem.m)) {}

std::size_t TilesInPlace::bytes(std::int64_t rows, std::int64_t depth) const {
    const std::int64_t panels = ceil_div(rows, panel_rows);
    return static_cast<std::size_t>(panels * (align_up(depth, step_depth) / step_depth * step_bytes +
                                              max_runs(depth) * static_cast<std::int64_t>(sizeof(TileRun))));
}

TilesInPlace::Half TilesInPlace::half_of(PanelRange rows) const {
    const std::int64_t row = rows.begin;
    const ConvolutionAxis &down = window_.vertical, &across = window_.horizontal;
    const std::int64_t j = row % across.output;
    const std::int64_t h = down.image_place(row / across.output % down.output, 0);
    const std::int64_t w = across.image_place(j, 0);
    return {.row = h,
            .column = w,
            .element = row / window_.rows_of_image() * window_.image_pitch + h * window_.row_pitch +
                       w * window_.pixel_pitch,
            .neighbours = j + tile_rows <= across.output && rows.size == tile_rows};
}

bool TilesInPlace::place(const Half& half, const Tap& tap, const std::byte* images, TileRun& run,
                         int index) const {
    const std::int64_t row = half.row + tap.down, first = half.column + tap.across;
    const std::int64_t last = first + (tile_rows - 1) * window_.horizontal.stride;
    const std::int64_t width = window_.horizontal.image;
    if (row < 0 || row >= window_.vertical.image || last < 0 || first >= width) {
        run.rows[index] = row_of_zeros.data();
        run.stride[index] = run.step[index] = 0;
        return true;
    }
    if (first < 0 || last >= width) return false;
    run.rows[index] = images + (half.element + tap.element) * 2;
    run.stride[index] = window_.horizontal.stride * window_.pixel_pitch * 2;
    run.step[index] = step_depth * 2;
    return true;
}

void TilesInPlace::copy(const std::byte* images, PanelRange rows, PanelRange depth, std::byte* to) const {
    gather(window_, {images, 2, gather_}, rows, depth, {to, step_depth, step_depth, step_bytes / 2});
}

TilesInPlace::Runs TilesInPlace::write(const std::byte* images, PanelRange rows, PanelRange depth,
                                       std::byte* memory) const {
    const ConvolutionAxis &down = window_.vertical, &across = window_.horizontal;
    const std::int64_t panels = ceil_div(rows.size, panel_rows);
    const std::int64_t panel_bytes = depth.size / step_depth * step_bytes;
    auto* const first = reinterpret_cast<TileRun*>(memory + panels * panel_bytes);
    TileRun* run = first;
    for (std::int64_t panel = 0; panel < panels; ++panel, memory += panel_bytes) {
        const auto rows_of = [&](std::int64_t half) {
            const PanelRange mine = part_of(rows.size, tile_rows, 2 * panel + half);
            return PanelRange{rows.begin + mine.begin, mine.size};
        };
        const Half halves[] = {half_of(rows_of(0)), half_of(rows_of(1))};
        for (std::int64_t half = 0; half < 2; ++half)
            if (!halves[half].neighbours) copy(images, rows_of(half), depth, memory + half * tile_bytes);
        std::int64_t k = depth.begin, tap = k / window_.channels, channel = k % window_.channels;
        for (const std::int64_t end = depth.begin + depth.size; k < end; ++run, ++tap, channel = 0) {
            const std::int64_t length = std::min(window_.channels - channel, end - k);
            const std::int64_t r = tap / across.filter * down.dilation;
            const std::int64_t s = tap % across.filter * across.dilation;
            const Tap here{r, s, r * window_.row_pitch + s * window_.pixel_pitch + channel};
            new (run) TileRun{.steps = length / step_depth};
            for (int half = 0; half < 2; ++half) {
                const bool neighbours = halves[half].neighbours;
                std::byte* const copied =
                    memory + (k - depth.begin) / step_depth * step_bytes + half * tile_bytes;
                if (neighbours && place(halves[half], here, images, *run, half)) continue;
                run->rows[half] = copied;
                run->stride[half] = step_depth * 2;
                run->step[half] = step_bytes;
                if (neighbours) copy(images, rows_of(half), {k, length}, copied);
            }
            k += length;
        }
    }
    return {first, panels == 0 ? 0 : (run - first) / panels};
}

TilesInPlace::Pixels TilesInPlace::pixels_of(const std::byte* images, PanelRange rows) const {
    const ConvolutionAxis &down = window_.vertical, &across = window_.horizontal;
    const std::int64_t reach = (down.filter - 1) * down.dilation * window_.row_pitch +
                               (across.filter - 1) * across.dilation * window_.pixel_pitch;
    const std::int64_t first = half_of(rows).element + std::min<std::int64_t>(0, reach);
    const std::int64_t last =
        half_of({rows.begin + rows.size - 1, 1}).element + std::max<std::int64_t>(0, reach);
    const std::int64_t begin = std::clamp<std::int64_t>(first, 0, images_);
    const std::int64_t end = std::clamp<std::int64_t>(last + window_.channels, begin, images_);
    return {images + begin * 2, (end - begin) * 2};
}

}  // namespace mantissa::on_cpu
