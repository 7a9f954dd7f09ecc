#include "mantissa/codegen/image_kernel.h"

#include <fmt/format.h>

namespace mantissa::inline v0::codegen {

namespace {

std::string text_of_spans(const std::vector<PoolSpan>& spans) {
    std::string text;
    for (const PoolSpan& span : spans)
        text += fmt::format(" {}:{}-{}/{}", span.start, span.first, span.last, span.count);
    return text;
}

}  // namespace

std::int64_t PoolKernel::results() const {
    const auto elements = [&](const auto& rows, const auto& columns) {
        return images * channels * static_cast<std::int64_t>(rows.size() * columns.size());
    };
    return is_gradient() ? elements(row_outputs, column_outputs) : elements(row_spans, column_spans);
}

std::int64_t ConvolutionKernel::results() const {
    return (makes == ConvolutionResult::output               ? of.y_shape()
            : makes == ConvolutionResult::gradient_of_images ? of.x_shape()
                                                             : of.filter_shape())
        .elements();
}

std::string text_of(const ConvolutionKernel& kernel) {
    constexpr const char* names[] = {"convolution", "gradient to the images", "gradient to the filter"};
    const auto text_of_axis = [](const ConvolutionAxis& axis) {
        return fmt::format("{} to {} by {} every {} apart {} from {} to {}", axis.image, axis.output,
                           axis.filter, axis.stride, axis.dilation, axis.before, axis.behind);
    };
    const Convolution& of = kernel.of;
    return fmt::format(
        "{} of {} images, rows {}, columns {}, {} channels, {} filters, {} groups, {}{} to {}{}",
        names[static_cast<std::size_t>(kernel.makes)], of.images, text_of_axis(of.vertical),
        text_of_axis(of.horizontal), of.channels, of.filters, of.groups, name_of(kernel.from),
        kernel.tf32 ? " as tf32" : "", name_of(kernel.to),
        kernel.bias ? fmt::format(" with a bias of {}", name_of(*kernel.bias)) : "");
}

std::string text_of(const PoolKernel& kernel) {
    constexpr const char* names[] = {"maxima", "averages", "gradient of maxima", "gradient of averages"};
    return fmt::format("{} of {} images, {} x {} x {} {}, rows{}, columns{}, windows {} wide",
                       names[static_cast<std::size_t>(kernel.makes)], kernel.images,
                       kernel.row_outputs.size(), kernel.column_outputs.size(), kernel.channels,
                       name_of(kernel.dtype), text_of_spans(kernel.row_spans),
                       text_of_spans(kernel.column_spans), kernel.window_columns);
}

}  // namespace mantissa::codegen
