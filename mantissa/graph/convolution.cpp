#include "mantissa/graph/convolution.h"

#include <array>
#include <string_view>

#include "mantissa/graph/ops/rules.h"

namespace mantissa::inline v0 {

namespace {

using rules::expect;

/// The attribute as so many numbers, each at least `least`.
template <std::size_t count>
std::array<std::int64_t, count> numbers(const Attributes& attributes, const char* name, std::int64_t least) {
    const std::vector<std::int64_t>& list = attributes.list(name);
    expect(list.size() == count, "{} must be {} numbers, got {}", name, count, list.size());
    std::array<std::int64_t, count> out{};
    for (std::size_t i = 0; i < count; ++i) {
        expect(list[i] >= least && list[i] < (std::int64_t{1} << 31), "{} must be {} or more, got {}", name,
               least, list[i]);
        out[i] = list[i];
    }
    return out;
}

void read_axes(Convolution& out, const Attributes& attributes) {
    const auto stride = numbers<2>(attributes, "stride", 1), dilation = numbers<2>(attributes, "dilation", 1);
    const auto padding = numbers<4>(attributes, "padding", 0);
    ConvolutionAxis* const axes[] = {&out.vertical, &out.horizontal};
    for (std::size_t i = 0; i < 2; ++i) {
        axes[i]->stride = stride[i];
        axes[i]->dilation = dilation[i];
        axes[i]->before = padding[2 * i];
        axes[i]->behind = padding[2 * i + 1];
    }
    out.groups = attributes.integer("groups");
}

/// Outputs along an axis whose image and filter are known.
std::int64_t output_of(const ConvolutionAxis& axis) {
    const std::int64_t padded = axis.image + axis.before + axis.behind;
    const std::int64_t covered = (axis.filter - 1) * axis.dilation + 1;
    expect(covered <= padded, "a filter that covers {} does not fit an image of {} with its padding", covered,
           padded);
    return (padded - covered) / axis.stride + 1;
}

void expect_images(const Type& type, std::string_view name) {
    expect(is_floating(type.dtype) && type.shape.rank() == 4,
           "{} must be floating-point images [N, H, W, channels], got {}", name, type.text());
    for (const std::int64_t extent : type.shape.extents())
        expect(extent > 0, "{} has an axis without elements: {}", name, type.text());
}

void read_image(Convolution& out, const Type& x) {
    expect_images(x, "x");
    out.images = x.shape[0];
    out.vertical.image = x.shape[1];
    out.horizontal.image = x.shape[2];
    out.channels = x.shape[3];
}

void read_filter(Convolution& out, const Type& filter) {
    expect(is_floating(filter.dtype) && filter.shape.rank() == 4 && filter.shape.elements() > 0,
           "the filter must be [R, S, channels / groups, filters], got {}", filter.text());
    out.vertical.filter = filter.shape[0];
    out.horizontal.filter = filter.shape[1];
    out.filters = filter.shape[3];
}

/// The type that dy must have, once the outputs are known.
void expect_outputs(const Convolution& convolution, const Type& dy) {
    expect_images(dy, "dy");
    expect(dy.shape == convolution.y_shape(), "dy must have shape {}, got {}", convolution.y_shape().text(),
           dy.text());
}

void expect_groups(const Convolution& out) {
    expect(out.groups >= 1 && out.channels % out.groups == 0 && out.filters % out.groups == 0,
           "groups must divide channels and filters, got {} for {} and {}", out.groups, out.channels,
           out.filters);
}

}  // namespace

Convolution convolution_of(std::span<const Type> inputs, const Attributes& attributes) {
    Convolution out;
    read_axes(out, attributes);
    const bool of_input = attributes.has("extents"), of_filter = attributes.has("window");
    if (of_input) {
        expect_images(inputs[0], "dy");
        read_filter(out, inputs[1]);
        out.images = inputs[0].shape[0];
        out.channels = inputs[1].shape[2] * out.groups;
        const auto extents = numbers<2>(attributes, "extents", 1);
        out.vertical.image = extents[0];
        out.horizontal.image = extents[1];
    } else {
        read_image(out, inputs[0]);
        if (of_filter) {
            expect_images(inputs[1], "dy");
            const auto window = numbers<2>(attributes, "window", 1);
            out.vertical.filter = window[0];
            out.horizontal.filter = window[1];
            out.filters = inputs[1].shape[3];
        } else {
            read_filter(out, inputs[1]);
        }
    }
    expect_groups(out);
    if (!of_input && !of_filter)
        expect(inputs[1].shape == out.filter_shape(), "the filter must have shape {}, got {}",
               out.filter_shape().text(), inputs[1].text());
    out.vertical.output = output_of(out.vertical);
    out.horizontal.output = output_of(out.horizontal);
    if (of_input) expect_outputs(out, inputs[0]);
    if (of_filter) expect_outputs(out, inputs[1]);
    return out;
}

}  // namespace mantissa
