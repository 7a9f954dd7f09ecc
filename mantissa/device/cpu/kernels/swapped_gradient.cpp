#include "mantissa/device/cpu/kernels/swapped_gradient.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/contraction/pixel_words.h"
#include "mantissa/device/cpu/rows/rows.h"

namespace mantissa::inline v0::on_cpu {

namespace {

constexpr std::int64_t columns_of_item = 256;

// The zeros around an image cost products with all filters, where gathering a number for a tap takes as long
// as tiles multiply it by some fifty. So zeros, as a share of the image, times filters are at most that, less
// the time for turning the sums.
constexpr std::int64_t max_filters_of_zeros = 40;

/// Operands swapped, and the depth with zeros between rows and between images, where a meets none.
std::optional<ContractionProblem> swapped_problem(const ContractionProblem& problem) {
    const MatrixLayout &a = problem.a, &b = problem.b;
    const bool only_sums = problem.entries() == 1 && problem.store == Store::overwrite &&
                           !problem.epilogue.bias && !problem.custom_epilogue;
    if (!only_sums || !a.window || a.transpose == Transpose::no || b.window ||
        b.transpose == Transpose::yes || problem.out.dtype != DType::f32)
        return std::nullopt;
    const ImageWindow& x = *a.window;
    const ConvolutionAxis &down = x.vertical, &across = x.horizontal;
    if (down.filter * across.filter == 1) return std::nullopt;
    const std::int64_t rows = outputs_with_zeros(down), columns = outputs_with_zeros(across);
    const std::int64_t zeros = rows * columns - x.rows_of_image();
    if (zeros * problem.n > max_filters_of_zeros * x.rows_of_image()) return std::nullopt;
    ContractionProblem swapped{.m = problem.n,
                               .n = problem.m,
                               .k = problem.k / x.rows_of_image() * rows * columns,
                               .a = b,
                               .b = a,
                               .out = {.leading = problem.m},
                               .multiply = problem.multiply,
                               .threads = problem.threads};
    swapped.a.transpose = Transpose::yes;
    swapped.a.window = {.vertical = {.image = down.output, .output = rows, .filter = 1},
                        .horizontal = {.image = across.output, .output = columns, .filter = 1},
                        .channels = problem.n,
                        .row_pitch = across.output * b.leading,
                        .pixel_pitch = b.leading,
                        .image_pitch = x.rows_of_image() * b.leading};
    swapped.b.transpose = Transpose::no;
    swapped.b.window->vertical.output = rows;
    swapped.b.window->horizontal.output = columns;
    return swapped;
}

}  // namespace

std::optional<SwappedGradient> SwappedGradient::of(const PreparedContraction& whole, Isa isa) {
    const std::optional<ContractionProblem> swapped = swapped_problem(whole.problem);
    if (!swapped || !PixelWords::of(*swapped, whole.kernels)) return std::nullopt;
    return SwappedGradient(whole, *swapped, isa);
}

SwappedGradient::SwappedGradient(const PreparedContraction& whole, const ContractionProblem& swapped, Isa isa)
    : whole_(whole),
      swapped_(prepare_contraction(swapped, whole.kernels)),
      shares_(DepthShares::of(swapped_)),
      isa_(isa) {}

std::size_t SwappedGradient::bytes_of_sums() const {
    return static_cast<std::size_t>(in_lines(swapped_.problem.sums() * 4));
}

std::size_t SwappedGradient::workspace_bytes(int threads) const {
    const std::size_t swapped =
        shares_ ? shares_->workspace_bytes(threads) : swapped_.workspace_bytes(threads);
    return std::max(whole_.workspace_bytes(threads), bytes_of_sums() + swapped);
}

void SwappedGradient::run(const ContractionArguments& arguments, std::span<std::byte> workspace,
                          ThreadPool& pool) const {
    auto* const sums = reinterpret_cast<float*>(workspace.data());
    const ContractionArguments swapped{.a = arguments.b, .b = arguments.a, .out = sums};
    const std::span<std::byte> rest = workspace.subspan(bytes_of_sums());
    if (shares_)
        shares_->run(swapped, rest, pool);
    else
        contract(swapped_, swapped, rest, pool);
    // A zero between rows times an infinite pixel is NaN, and no product of the gradient may be that.
    if (write(sums, arguments.out, pool)) contract(whole_, arguments, workspace, pool);
}

bool SwappedGradient::write(const float* sums, void* out, ThreadPool& pool) const {
    const std::int64_t filters = swapped_.problem.m, columns = swapped_.problem.n;
    const std::int64_t leading = whole_.problem.out.leading;
    std::atomic<bool> nan = false;
    pool.for_each_block(ceil_div(columns, columns_of_item), [&](std::int64_t item, int) {
        const PanelRange mine = part_of(columns, columns_of_item, item);
        row_kernels(isa_).transpose({.source = sums + mine.begin,
                                     .target = static_cast<float*>(out) + mine.begin * leading,
                                     .rows = filters,
                                     .columns = mine.size,
                                     .source_stride = columns,
                                     .target_stride = leading},
                                    Stores::plain);
        std::int32_t nans = 0;
        for (std::int64_t row = 0; row < filters; ++row)
            for (std::int64_t column = 0; column < mine.size; ++column)
                nans += std::isnan(sums[row * columns + mine.begin + column]);
        if (nans > 0) nan = true;
    });
    return nan;
}

}  // namespace mantissa::on_cpu
