#include "mantissa/device/cpu/kernels/contraction_parts.h"

#include <numeric>

#include "mantissa/base/error.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/graph/convolution.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// One operand of a batch of matrices, stored densely.
MatrixLayout dense_layout(const Type& type, bool transposed) {
    const std::int64_t matrix = type.shape[-1] * type.shape[-2];
    return {.dtype = type.dtype,
            .transpose = transposed ? Transpose::yes : Transpose::no,
            .leading = type.shape[-1],
            .batch_stride = {0, matrix},
            .codes = type.layout};
}

ContractionPart matmul_part(const Problem& problem) {
    const Type &a = problem.inputs[0], &y = problem.outputs[0];
    const bool transpose_a = problem.attributes.flag("transpose_a");
    ContractionProblem contraction{.m = y.shape[-2], .n = y.shape[-1], .k = a.shape[transpose_a ? -2 : -1]};
    for (int axis = 0; axis < y.shape.rank() - 2; ++axis) contraction.batch[1] *= y.shape[axis];
    contraction.a = dense_layout(a, transpose_a);
    contraction.b = dense_layout(problem.inputs[1], problem.attributes.flag("transpose_b"));
    contraction.out = dense_layout(y, false);
    return {.problem = contraction};
}

/// Rows of `channels` channels of images [N, H, W, `pitch`] that the axes' steps pick. They are read in
/// place, but gathered where more than one pixel makes a row, or pixels are left out.
MatrixLayout image_layout(DType dtype, const ConvolutionAxis& vertical, const ConvolutionAxis& horizontal,
                          std::int64_t channels, std::int64_t pitch) {
    MatrixLayout layout{.dtype = dtype, .leading = pitch};
    const auto is_whole = [](const ConvolutionAxis& axis) {
        return axis.filter == 1 && axis.stride == 1 && axis.before == 0 && axis.output == axis.image;
    };
    if (is_whole(vertical) && is_whole(horizontal)) return layout;
    layout.window = {.vertical = vertical,
                     .horizontal = horizontal,
                     .channels = channels,
                     .row_pitch = horizontal.image * pitch,
                     .pixel_pitch = pitch,
                     .image_pitch = vertical.image * horizontal.image * pitch};
    return layout;
}

/// The layout of x as the outputs meet it.
MatrixLayout x_layout(const Convolution& of, DType dtype) {
    return image_layout(dtype, of.vertical, of.horizontal, of.group_channels(), of.channels);
}

ContractionPart forward_part(const Problem& problem, const Convolution& of) {
    ContractionPart part{.problem = {.m = of.images * of.vertical.output * of.horizontal.output,
                                     .n = of.group_filters(),
                                     .k = of.depth()},
                         .repeats = of.groups,
                         .step_of_a = of.group_channels(),
                         .step_of_b = of.group_filters(),
                         .step_of_out = of.group_filters(),
                         .step_of_bias = of.group_filters()};
    part.problem.a = x_layout(of, problem.inputs[0].dtype);
    part.problem.b = {.dtype = problem.inputs[1].dtype, .leading = of.filters};
    part.problem.out = {.dtype = problem.outputs[0].dtype, .leading = of.filters};
    return part;
}

ContractionPart filter_gradient_part(const Problem& problem, const Convolution& of) {
    ContractionPart part{.problem = {.m = of.depth(),
                                     .n = of.group_filters(),
                                     .k = of.images * of.vertical.output * of.horizontal.output},
                         .repeats = of.groups,
                         .step_of_a = of.group_channels(),
                         .step_of_b = of.group_filters(),
                         .step_of_out = of.group_filters()};
    part.problem.a = x_layout(of, problem.inputs[0].dtype);
    part.problem.a.transpose = Transpose::yes;
    part.problem.b = {.dtype = problem.inputs[1].dtype, .leading = of.filters};
    part.problem.out = {.dtype = problem.outputs[0].dtype, .leading = of.filters};
    return part;
}

/// The pixels of x, along one axis, whose distance from `first` is a multiple of the stride: all of them meet
/// the same elements of the filter.
struct Phase {
    Phase(const ConvolutionAxis& axis, std::int64_t first_pixel) : first(first_pixel) {
        pixels = ceil_div(axis.image - first, axis.stride);
        tap_step = axis.stride / std::gcd(axis.stride, axis.dilation);
        while (tap < tap_step && (first + axis.before - tap * axis.dilation) % axis.stride != 0) ++tap;
        if (tap < tap_step && tap < axis.filter) taps = (axis.filter - 1 - tap) / tap_step + 1;
        // Pixel first + i stride meets, by element tap + q tap_step, output i + begin + q step.
        begin = (first + axis.before - tap * axis.dilation) / axis.stride;
        step = -(tap_step * axis.dilation / axis.stride);
    }

    std::int64_t first, pixels;
    std::int64_t tap = 0, tap_step = 1, taps = 0;
    std::int64_t begin, step;
};

/// The layout of dy as the pixels of a phase meet it.
MatrixLayout dy_layout(const Convolution& of, const Phase& down, const Phase& across, DType dtype) {
    const auto axis = [](const ConvolutionAxis& along, const Phase& phase) {
        return ConvolutionAxis{.image = along.output,
                               .output = phase.pixels,
                               .filter = phase.taps,
                               .dilation = phase.step,
                               .before = -phase.begin};
    };
    return image_layout(dtype, axis(of.vertical, down), axis(of.horizontal, across), of.group_filters(),
                        of.filters);
}

/// The filter's elements of a phase with the channels as rows: if there is one element, a matrix in place.
MatrixLayout filter_layout(const Convolution& of, const Phase& down, const Phase& across, DType dtype) {
    MatrixLayout layout{.dtype = dtype, .transpose = Transpose::yes, .leading = of.filters};
    if (of.vertical.filter == 1 && of.horizontal.filter == 1) return layout;
    const auto axis = [](const ConvolutionAxis& along, const Phase& phase) {
        return ConvolutionAxis{.image = along.filter,
                               .output = 1,
                               .filter = phase.taps,
                               .dilation = phase.tap_step,
                               .before = -phase.tap};
    };
    const std::int64_t tap = of.group_channels() * of.filters;
    layout.window = {.vertical = axis(of.vertical, down),
                     .horizontal = axis(of.horizontal, across),
                     .channels = of.group_filters(),
                     .row_pitch = of.horizontal.filter * tap,
                     .pixel_pitch = tap,
                     .image_pitch = of.filters};
    return layout;
}

ContractionPart input_gradient_part(const Problem& problem, const Convolution& of, const Phase& down,
                                    const Phase& across) {
    const std::int64_t taps = down.taps * across.taps;
    ContractionPart part{.problem = {.m = of.images * down.pixels * across.pixels,
                                     .n = of.group_channels(),
                                     .k = taps * of.group_filters()},
                         .repeats = of.groups,
                         .step_of_a = of.group_filters(),
                         .step_of_b = of.group_filters(),
                         .step_of_out = of.group_channels()};
    const DType dtype = problem.inputs[0].dtype;
    // Where a phase meets nothing of the filter, its sums are zeros.
    part.problem.a = taps == 0 ? MatrixLayout{.dtype = dtype} : dy_layout(of, down, across, dtype);
    part.problem.b = taps == 0 ? MatrixLayout{.dtype = dtype, .transpose = Transpose::yes}
                               : filter_layout(of, down, across, dtype);
    part.problem.out = {.dtype = problem.outputs[0].dtype, .leading = of.channels};
    const auto pixels = [](const ConvolutionAxis& along, const Phase& phase) {
        return ConvolutionAxis{
            .image = along.image, .output = phase.pixels, .stride = along.stride, .before = -phase.first};
    };
    if (of.vertical.stride > 1 || of.horizontal.stride > 1)
        part.rows = {.vertical = pixels(of.vertical, down), .horizontal = pixels(of.horizontal, across)};
    return part;
}

std::vector<ContractionPart> input_gradient_parts(const Problem& problem, const Convolution& of) {
    std::vector<ContractionPart> parts;
    for (std::int64_t i = 0; i < std::min(of.vertical.stride, of.vertical.image); ++i)
        for (std::int64_t j = 0; j < std::min(of.horizontal.stride, of.horizontal.image); ++j)
            parts.push_back(input_gradient_part(problem, of, Phase(of.vertical, i), Phase(of.horizontal, j)));
    return parts;
}

std::vector<ContractionPart> parts_without_bias(const Problem& problem) {
    if (problem.op.name == "matmul") return {matmul_part(problem)};
    const Convolution of = convolution_of(problem.inputs, problem.attributes);
    if (problem.op.name == "conv2d") return {forward_part(problem, of)};
    if (problem.op.name == "conv2d_filter_gradient") return {filter_gradient_part(problem, of)};
    if (problem.op.name == "conv2d_input_gradient") return input_gradient_parts(problem, of);
    throw InternalError("no contraction of this room: " + std::string(problem.op.name));
}

}  // namespace

std::vector<ContractionPart> contraction_parts(const Problem& problem) {
    std::vector<ContractionPart> parts = parts_without_bias(problem);
    for (ContractionPart& part : parts) {
        if (problem.inputs.size() < 3) continue;
        part.problem.epilogue.bias = true;
        part.problem.epilogue.bias_dtype = problem.inputs[2].dtype;
    }
    return parts;
}

}  // namespace mantissa::on_cpu
