#include "mantissa/device/cpu/contraction/in_place.h"

#include <algorithm>
#include <array>
#include <new>

#include "mantissa/base/error.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/contraction/blocking.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// With fewer channels a run is a few steps, and its addresses cost as much as its products.
constexpr std::int64_t min_channels = 16;

/// Zeros that are read for rows outside of the image, and for rows that fill up a tile.
constexpr std::int64_t max_run_bytes = 4096;
alignas(64) constexpr std::array<std::byte, max_run_bytes> zeros{};

/// Largest height of the tiles of all kernels that read in place.
constexpr std::int64_t max_height = 8;

/// The word of a panel in elements: one of FP32, two of BF16.
std::int64_t word_of(const ContractionKernels& kernels) { return 4 / kernels.element_bytes; }

/// Whether a is gathered, with elements that are multiplied as they are stored.
bool is_as_stored(const MatrixLayout& a, const ContractionKernels& kernels) {
    return a.window && !a.mapped && !kernels.conversion.convert &&
           static_cast<std::int64_t>(size_of(a.dtype)) == kernels.element_bytes;
}

}  // namespace

bool reads_a_in_place(const ContractionProblem& problem, const ContractionKernels& kernels) {
    const MatrixLayout& a = problem.a;
    return kernels.multiply_in_place && a.transpose == Transpose::no && is_as_stored(a, kernels) &&
           kernels.height <= max_height && a.window->channels >= min_channels &&
           a.window->channels % word_of(kernels) == 0;
}

bool reads_a_across(const ContractionProblem& problem, const ContractionKernels& kernels) {
    if (ImagePairs::of(problem, kernels)) return true;
    const MatrixLayout& a = problem.a;
    return kernels.multiply_across && word_of(kernels) == 1 && a.transpose == Transpose::yes &&
           is_as_stored(a, kernels) && a.window->channels % kernels.height == 0;
}

RowsInPlace::RowsInPlace(const ContractionProblem& problem, const ContractionKernels& kernels)
    : window_(problem.a.window.value_or(ImageWindow{})),
      height_(kernels.height),
      element_bytes_(static_cast<std::int64_t>(size_of(problem.a.dtype))) {
    check(kernels.padded(depth_of_chunks(problem.k, kernels)) * element_bytes_ <= max_run_bytes,
          "a run in place is no longer than the zeros that stand for one outside of the image");
}

std::size_t RowsInPlace::bytes(std::int64_t rows, std::int64_t depth) const {
    const std::int64_t run = static_cast<std::int64_t>(sizeof(RunInPlace)) + height_ * 8;
    return static_cast<std::size_t>(ceil_div(rows, height_) * max_runs(depth) * run);
}

/// The first pixel of a row's window, perhaps outside of the image, and its place.
struct RowsInPlace::Corner {
    std::int64_t row, column, element;
    bool exists;
};

void RowsInPlace::find_corners(std::int64_t first, std::int64_t count, Corner* corners) const {
    const ConvolutionAxis &down = window_.vertical, &across = window_.horizontal;
    for (std::int64_t i = 0; i < height_; ++i) {
        const std::int64_t row = first + i, h = down.image_place(row / across.output % down.output, 0);
        const std::int64_t w = across.image_place(row % across.output, 0);
        corners[i] = {h, w,
                      row / window_.rows_of_image() * window_.image_pitch + h * window_.row_pitch +
                          w * window_.pixel_pitch,
                      i < count};
    }
}

RowsInPlace::Runs RowsInPlace::write(const std::byte* images, PanelRange rows, PanelRange depth,
                                     std::byte* memory) const {
    const ConvolutionAxis &down = window_.vertical, &across = window_.horizontal;
    const std::int64_t tiles = ceil_div(rows.size, height_), most = tiles * max_runs(depth.size);
    auto* run = reinterpret_cast<RunInPlace*>(memory);
    auto* address = reinterpret_cast<const std::byte**>(run + most);
    Corner corners[max_height];
    for (std::int64_t line = 0; line < rows.size; line += height_) {
        find_corners(rows.begin + line, rows.size - line, corners);
        std::int64_t k = depth.begin, tap = k / window_.channels, channel = k % window_.channels;
        for (const std::int64_t end = depth.begin + depth.size; k < end; ++run, ++tap, channel = 0) {
            const std::int64_t h = tap / across.filter * down.dilation,
                               w = tap % across.filter * across.dilation;
            const std::int64_t length = std::min(window_.channels - channel, end - k);
            *new (run) RunInPlace = {.rows = address, .depth = length};
            const std::int64_t from_corner = h * window_.row_pitch + w * window_.pixel_pitch + channel;
            for (std::int64_t i = 0; i < height_; ++i) {
                const Corner& corner = corners[i];
                const auto pixel_row = static_cast<std::uint64_t>(corner.row + h);
                const auto pixel = static_cast<std::uint64_t>(corner.column + w);
                // Negative numbers are too large, too, as unsigned ones.
                const bool inside = corner.exists && pixel_row < static_cast<std::uint64_t>(down.image) &&
                                    pixel < static_cast<std::uint64_t>(across.image);
                *address++ = inside ? images + (corner.element + from_corner) * element_bytes_ : zeros.data();
            }
            k += length;
        }
    }
    const auto* const first = reinterpret_cast<const RunInPlace*>(memory);
    return {first, tiles == 0 ? 0 : (run - first) / tiles};
}

ChannelsInPlace::ChannelsInPlace(const ContractionProblem& problem, const ContractionKernels& kernels)
    : pairs_(ImagePairs::of(problem, kernels)),
      window_(pairs_ ? pairs_->window() : problem.a.window.value_or(ImageWindow{})),
      image_rows_(pairs_ ? pairs_->image_rows() : PanelRange{0, window_.vertical.image}),
      depth_of_word_(word_of(kernels)),
      channels_of_tile_(kernels.height) {
    if (pairs_) {
        row_bytes_ = pairs_->row_bytes();
        image_bytes_ = image_rows_.size * row_bytes_;
        pixel_bytes_ = channels_of_tile_ * 4;
        tile_bytes_ = pairs_->block_bytes();
    } else {
        row_bytes_ = window_.row_pitch * 4;
        image_bytes_ = window_.image_pitch * 4;
        pixel_bytes_ = window_.pixel_pitch * 4;
        tile_bytes_ = channels_of_tile_ * 4;
    }
}

std::size_t ChannelsInPlace::bytes(std::int64_t rows, std::int64_t depth) const {
    const std::int64_t taps = rows / window_.channels + 2;
    return static_cast<std::size_t>(taps * max_runs(depth / depth_of_word_)) * sizeof(StepsInPlace);
}

StepsInPlace ChannelsInPlace::steps_of(std::int64_t tap, std::int64_t output_row, std::int64_t first,
                                       std::int64_t count) const {
    const ConvolutionAxis &down = window_.vertical, &across = window_.horizontal;
    const std::int64_t h =
        down.image_place(output_row % down.output, tap / across.filter) - image_rows_.begin;
    if (h < 0 || h >= image_rows_.size) return {};
    // Pixel j stride + offset lies within the image from the first j on, and up to the last.
    const std::int64_t offset = across.image_place(0, tap % across.filter);
    const std::int64_t inside = offset < 0 ? ceil_div(-offset, across.stride) : 0;
    const std::int64_t outside =
        offset < across.image ? ceil_div(across.image - offset, across.stride) : inside;
    const std::int64_t begin = std::max(first, inside), end = std::min(first + count, outside);
    if (begin >= end) return {};
    return {.first = output_row / down.output * image_bytes_ + h * row_bytes_ +
                     (begin * across.stride + offset) * pixel_bytes_,
            .begin = begin - first,
            .count = end - begin};
}

ChannelsInPlace::Steps ChannelsInPlace::write(const std::byte* images, PanelRange rows, PanelRange depth,
                                              std::byte* memory) const {
    const std::int64_t pixels = window_.horizontal.output;
    auto* const first = reinterpret_cast<StepsInPlace*>(memory);
    StepsInPlace* next = first;
    const std::int64_t first_tap = rows.begin / window_.channels;
    const std::int64_t taps =
        rows.size == 0 ? 0 : (rows.begin + rows.size - 1) / window_.channels + 1 - first_tap;
    const std::int64_t begin = depth.begin / depth_of_word_, words = ceil_div(depth.size, depth_of_word_);
    const std::int64_t before_chunk = pairs_ ? pairs_->rows_of(depth).begin * row_bytes_ : 0;
    for (std::int64_t tap = first_tap; tap < first_tap + taps; ++tap)
        for (std::int64_t k = begin, end = begin + words; k < end;) {
            const std::int64_t count = std::min(pixels - k % pixels, end - k);
            StepsInPlace* const steps =
                new (next++) StepsInPlace(steps_of(tap, k / pixels, k % pixels, count));
            steps->first -= before_chunk;
            steps->begin += k - begin;
            k += count;
        }
    return {.first = first,
            .count = taps == 0 ? 0 : (next - first) / taps,
            .first_row = rows.begin,
            .images = images};
}

void ChannelsInPlace::place(const Steps& steps, std::int64_t row, Tile& tile) const {
    const std::int64_t first_tap = steps.first_row / window_.channels, line = steps.first_row + row;
    tile.a = steps.images + line % window_.channels / channels_of_tile_ * tile_bytes_;
    tile.steps = steps.first + (line / window_.channels - first_tap) * steps.count;
    tile.step_bytes = window_.horizontal.stride * pixel_bytes_;
    tile.run_count = steps.count;
}

}  // namespace mantissa::on_cpu
