#include "mantissa/codegen/depthwise_kernel.h"

#include <fmt/format.h>

#include <algorithm>

#include "mantissa/base/whole_units.h"

namespace mantissa::inline v0::codegen {

namespace {

/// Columns of a thread. More of them share their reads, but need registers: two channels of eight have 16
/// sums.
constexpr std::int64_t most_columns = 8;
/// Taps of a filter's gradient that a thread has: two channels have 16 sums.
constexpr std::int64_t most_taps = 8;
/// Taps that are put into the code one by one.
constexpr std::int64_t widest_window = 64;
constexpr std::int64_t most_rows_of_strip = 32;
/// Threads of a filter's gradient that keep any GPU busy: four turns of 148 multiprocessors, which hold 1,024
/// of them. The number is no card's own, so the order of sums is the same on every card.
constexpr std::int64_t enough_threads = 4 * 148 * 1024;
/// Pixels that are added up one after the other: their roundings are at most 2^-13 of them.
constexpr std::int64_t most_pixels = 2048;
/// Threads along the channels, so that a warp reads 128 bytes that lie side by side.
constexpr std::int64_t warp = 32;

/// Instructions of a thread for all columns of a row, by one row of the filter.
std::int64_t instructions(const DepthwiseKernel& kernel) {
    const std::int64_t of_word = 1 + kernel.channels;  // to load and to widen it
    std::int64_t products = 0;
    for (std::int64_t column = 0; column < kernel.columns; ++column)
        for (std::int64_t tap = 0; tap < kernel.taps; ++tap)
            products += kernel.met(column, tap) ? kernel.channels : 0;
    const std::int64_t others =
        kernel.makes(ConvolutionResult::gradient_of_filter) ? kernel.columns : kernel.taps;
    return kernel.column_steps() *
           (products + of_word * (static_cast<std::int64_t>(kernel.all_met().size()) + others));
}

void choose_columns(DepthwiseKernel& kernel) {
    const std::int64_t least =
        kernel.makes(ConvolutionResult::gradient_of_images) ? kernel.of().horizontal.stride : 1;
    kernel.columns = least;
    DepthwiseKernel other = kernel;
    for (other.columns += least; other.columns <= std::min(most_columns, kernel.columns_of_all());
         other.columns += least)
        if (instructions(other) <= instructions(kernel)) kernel.columns = other.columns;
}

/// The size of equal pieces of at most `most` each.
std::int64_t even_pieces(std::int64_t all, std::int64_t most) { return ceil_div(all, ceil_div(all, most)); }

}  // namespace

std::int64_t DepthwiseKernel::columns_of_all() const {
    return makes(ConvolutionResult::gradient_of_images) ? of().horizontal.image : of().horizontal.output;
}

std::int64_t DepthwiseKernel::column_steps() const { return ceil_div(columns_of_all(), columns); }

std::int64_t DepthwiseKernel::step_of_met() const {
    const std::int64_t stride = of().horizontal.stride;
    return makes(ConvolutionResult::gradient_of_images) ? columns / stride : columns * stride;
}

std::optional<std::int64_t> DepthwiseKernel::met(std::int64_t column, std::int64_t tap) const {
    const ConvolutionAxis& axis = of().horizontal;
    if (!makes(ConvolutionResult::gradient_of_images)) return axis.image_place(column, tap);
    const std::int64_t steps = column + axis.before - tap * axis.dilation;
    if (steps % axis.stride != 0) return {};
    return steps / axis.stride;
}

std::set<std::int64_t> DepthwiseKernel::all_met() const {
    std::set<std::int64_t> all;
    for (std::int64_t column = 0; column < columns; ++column)
        for (std::int64_t tap = 0; tap < taps; ++tap)
            if (const auto place = met(column, tap)) all.insert(*place);
    return all;
}

std::int64_t DepthwiseKernel::pieces_of_row() const { return ceil_div(of().horizontal.filter, taps); }

std::int64_t DepthwiseKernel::strips_of_column() const {
    return ceil_div(of().vertical.output, rows_of_strip);
}

std::int64_t DepthwiseKernel::strips() const { return of().images * column_steps() * strips_of_column(); }

std::int64_t DepthwiseKernel::parts() const { return ceil_div(strips(), strips_of_part); }

std::int64_t DepthwiseKernel::threads() const {
    if (makes(ConvolutionResult::gradient_of_filter))
        return parts() * of().vertical.filter * pieces_of_row() * threads_across();
    const bool forward = makes(ConvolutionResult::output);
    const std::int64_t rows = forward ? of().vertical.output : of().vertical.image;
    return of().images * rows * column_steps() * threads_across();
}

std::string text_of(const DepthwiseKernel& kernel) {
    return fmt::format(
        "depthwise {}, {} channels a thread, {} threads beside one another, {} columns, {} taps, strips "
        "of {} rows, {} a part",
        text_of(kernel.convolution), kernel.channels, kernel.side_by_side, kernel.columns, kernel.taps,
        kernel.rows_of_strip, kernel.strips_of_part);
}

std::string refuse_depthwise(const ConvolutionKernel& convolution) {
    const Convolution& of = convolution.of;
    if (of.group_channels() != 1 || of.filters != of.channels)
        return fmt::format("it has {} channels and {} filters in {} groups, not one of each in a group",
                           of.channels, of.filters, of.groups);
    if (of.x_shape().elements() == 0 || of.y_shape().elements() == 0 || of.filter_shape().elements() == 0)
        return "its tensors are empty";
    const ConvolutionAxis& axis = of.horizontal;
    if (axis.filter > widest_window)
        return fmt::format("its window is {} columns wide, of at most {}", axis.filter, widest_window);
    if (convolution.makes == ConvolutionResult::gradient_of_images && axis.stride > most_columns)
        return fmt::format("its stride is {} columns, of at most {}", axis.stride, most_columns);
    return "";
}

DepthwiseKernel depthwise_kernel(const ConvolutionKernel& convolution, bool askew) {
    const Convolution& of = convolution.of;
    DepthwiseKernel kernel{.convolution = convolution};
    if (!askew && size_of(convolution.from) == 2 && of.channels % 2 == 0) kernel.channels = 2;
    kernel.side_by_side = kernel.threads_across();
    for (const std::int64_t threads : {warp / 2, warp})
        if (kernel.threads_across() % threads == 0) kernel.side_by_side = threads;
    const bool of_filter = kernel.makes(ConvolutionResult::gradient_of_filter);
    kernel.taps = of_filter ? even_pieces(of.horizontal.filter, most_taps) : of.horizontal.filter;
    choose_columns(kernel);
    if (!of_filter) return kernel;
    kernel.rows_of_strip = even_pieces(of.vertical.output, most_rows_of_strip);
    const std::int64_t of_part = of.vertical.filter * kernel.pieces_of_row() * kernel.threads_across();
    const std::int64_t parts = std::max<std::int64_t>(1, enough_threads / of_part),
                       accurate = std::max<std::int64_t>(1, most_pixels / kernel.pixels_of_strip());
    kernel.strips_of_part = std::min(ceil_div(kernel.strips(), parts), accurate);
    return kernel;
}

}  // namespace mantissa::codegen
