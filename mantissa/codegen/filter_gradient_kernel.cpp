#include "mantissa/codegen/filter_gradient_kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "mantissa/base/whole_units.h"

namespace mantissa::inline v0::codegen {

namespace {

/// A warp has 16 channels and 32 filters of each tap, 16 sums a thread: 144 of a thread's 255 registers. The
/// operands of all taps take 36.
constexpr std::int64_t max_taps = 9;
/// Static shared memory of a block.
constexpr std::int64_t shared_bytes = 48 * 1024;
/// Places of a product.
constexpr std::int64_t at_once = 16;

/// Whether the pixels of two lines are one row of taps more than the pixels of one, and no line is left over.
bool takes_two_lines(const FilterGradientKernel& kernel) {
    const ConvolutionAxis& axis = kernel.of.vertical;
    return kernel.tap_rows() > 1 && axis.stride == 1 && axis.dilation == 1 && axis.output % 2 == 0;
}

}  // namespace

std::int64_t FilterGradientKernel::pitch() const {
    const ConvolutionAxis& axis = of.horizontal;
    const std::int64_t last = axis.image_place(axis.output - 1, axis.filter - 1);
    // Pixels before a line are the pixels behind the line before it.
    const std::int64_t pixels = std::max(axis.image + axis.before, last + 1);
    return std::max(axis.output, ceil_div(pixels, axis.stride));
}

/// 16 more than a row has, so that eight rows lie in banks of their own.
std::int64_t FilterGradientKernel::row_bytes() const {
    return 2 * std::max(channel_tile(), filter_tile()) + 16;
}

std::int64_t FilterGradientKernel::tap_rows() const {
    std::int64_t rows = std::max<std::int64_t>(1, max_taps / of.horizontal.filter);
    while (of.vertical.filter % rows != 0) --rows;
    return rows;
}

/// As many places as fit. Two lines read x less often; a third buffer gives memory twice as long to answer.
FilterGradientStage FilterGradientKernel::stage() const {
    const ConvolutionAxis& axis = of.horizontal;
    for (std::int64_t places = 64; places >= at_once * shares(); places /= 2)
        for (const std::int64_t lines : {2, 1}) {
            if (lines == 2 && (!takes_two_lines(*this) || places < 2 * at_once)) continue;
            FilterGradientStage made{.places = places, .lines = lines, .pixel_rows = tap_rows() + lines - 1};
            made.pixels = (made.columns() - 1) * axis.stride + (axis.filter - 1) * axis.dilation + 1;
            made.buffers = std::min<std::int64_t>(3, shared_bytes / (made.rows() * row_bytes()));
            if (made.buffers >= 2) return made;
        }
    return {};
}

std::int64_t FilterGradientKernel::stages() const {
    const FilterGradientStage of_block = stage();
    return ceil_div(lines() / of_block.lines * pitch(), of_block.columns());
}
std::int64_t FilterGradientKernel::stages_of_part() const { return ceil_div(stages(), parts); }
std::int64_t FilterGradientKernel::channel_tiles() const { return ceil_div(of.channels, channel_tile()); }
std::int64_t FilterGradientKernel::filter_tiles() const { return ceil_div(of.filters, filter_tile()); }

std::string text_of(const FilterGradientKernel& kernel) {
    const auto text_of_axis = [](const ConvolutionAxis& axis) {
        return fmt::format("{} to {} by {} every {} apart {} from {}", axis.image, axis.output, axis.filter,
                           axis.stride, axis.dilation, axis.before);
    };
    const Convolution& of = kernel.of;
    return fmt::format(
        "gradient to the filter of {} images, rows {}, columns {}, {} channels, {} filters, {}, "
        "in {} parts",
        of.images, text_of_axis(of.vertical), text_of_axis(of.horizontal), of.channels, of.filters,
        name_of(kernel.dtype), kernel.parts);
}

std::string refuse_filter_gradient(const FilterGradientKernel& kernel) {
    const Convolution& of = kernel.of;
    if (of.groups != 1) return fmt::format("it takes one group, got {}", of.groups);
    if (of.channels % FilterGradientKernel::moved != 0 || of.filters % FilterGradientKernel::moved != 0)
        return fmt::format("it moves channels and filters by 8, got {} and {}", of.channels, of.filters);
    if (of.horizontal.filter > max_taps)
        return fmt::format("it keeps the sums of {} taps of a row at most, got {}", max_taps,
                           of.horizontal.filter);
    if (kernel.stage().places == 0)
        return fmt::format("the pixels of {} windows do not fit shared memory", at_once * kernel.shares());
    // Places and pixels are counted in 32 bits, with a stage beyond the last.
    const std::int64_t pixels = of.images * of.vertical.image * of.horizontal.image;
    if (std::max(pixels, (kernel.lines() + 2) * kernel.pitch() * of.horizontal.stride) >
        std::numeric_limits<std::int32_t>::max())
        return "its images are too large to be counted in 32 bits";
    const double multiplied =
        static_cast<double>(kernel.pitch() * kernel.channel_tiles() * kernel.channel_tile() *
                            kernel.filter_tiles() * kernel.filter_tile());
    const double asked = static_cast<double>(of.horizontal.output * of.channels * of.filters);
    if (multiplied > 2 * asked)
        return fmt::format(
            "tiles and lines filled up with zeros make {:.2g} times the products, and TF32 "
            "takes twice as long",
            multiplied / asked);
    return "";
}

}  // namespace mantissa::codegen
