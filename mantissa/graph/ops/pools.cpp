// Pools over images [N, H, W, C] and their gradients. Primitives: their meaning is in reference_pools.cpp.
#include "mantissa/graph/call.h"
#include "mantissa/graph/ops/rules.h"
#include "mantissa/graph/pooling.h"

namespace mantissa::inline v0 {

namespace {

using namespace rules;

/// The count that the output of max_pool2d can hold, which tells elements of a window apart.
constexpr std::int64_t max_in_window = 256;

void expect_image(const OpCall& call) {
    const Type& x = call.inputs[0];
    expect_floating(call, 0);
    expect(x.shape.rank() == 4, "a pool takes images [N, H, W, C], got {}", x.text());
    expect(x.shape[1] > 0 && x.shape[2] > 0, "an image must have one pixel or more, got {}", x.text());
}

/// Each window has an element inside the image, so that a maximum or an average is always one of something.
void expect_windows(const OpCall& call, const Shape& image) {
    const auto &window = call.attributes.list("window"), &stride = call.attributes.list("stride"),
               &padding = call.attributes.list("padding");
    for (std::size_t axis : {0u, 1u}) {
        const std::int64_t before = padding[2 * axis], after = padding[2 * axis + 1];
        const std::int64_t extent = image[static_cast<int>(axis) + 1];
        expect(window[axis] >= 1 && window[axis] < (std::int64_t{1} << 31) && stride[axis] >= 1,
               "window and stride must be 1 or more, got {} and {}", Shape(window).text(),
               Shape(stride).text());
        expect(before >= 0 && after >= 0 && before < window[axis] && after < window[axis],
               "padding must be 0 or more and less than the window {}, got {} (top, bottom, left, right)",
               Shape(window).text(), Shape(padding).text());
        expect(window[axis] <= extent + before + after, "a window {} does not fit into {} with padding {}",
               Shape(window).text(), image.text(), Shape(padding).text());
    }
}

void expect_parts(const OpCall& call) {
    const auto& extents = call.attributes.list("extents");
    expect(extents[0] >= 1 && extents[1] >= 1, "extents must be 1 or more, got {}", Shape(extents).text());
}

/// The shape of a pool's outputs.
Shape pooled(const Attributes& attributes, const Shape& image) {
    Shape shape = image;
    for (int axis : {0, 1})
        shape[axis + 1] = static_cast<std::int64_t>(pool_spans(attributes, axis, image[axis + 1]).size());
    return shape;
}

std::vector<Type> max_pool_types(const OpCall& call) {
    const Type& x = call.inputs[0];
    expect_image(call);
    expect_windows(call, x.shape);
    const auto& window = call.attributes.list("window");
    expect(window[0] * window[1] <= max_in_window, "a window has up to {} elements, {} has {}", max_in_window,
           Shape(window).text(), window[0] * window[1]);
    const Shape shape = pooled(call.attributes, x.shape);
    return {{x.dtype, shape}, {DType::u8, shape}};
}

std::vector<Type> average_pool_types(const OpCall& call) {
    expect_image(call);
    expect_windows(call, call.inputs[0].shape);
    return {{call.inputs[0].dtype, pooled(call.attributes, call.inputs[0].shape)}};
}

std::vector<Type> adaptive_pool_types(const OpCall& call) {
    expect_image(call);
    expect_parts(call);
    return {{call.inputs[0].dtype, pooled(call.attributes, call.inputs[0].shape)}};
}

/// A gradient's attributes are the pool's and the extents of the image that was pooled.
Attributes with_image(const GradientCall& c) {
    const Shape& x = c.inputs[0].shape();
    return c.attributes.with("image", std::vector<std::int64_t>{x[1], x[2]});
}

/// The image's type, of a gradient dy [N, P, Q, C] that fits its pool.
Type image_of(const OpCall& call) {
    expect_image(call);
    Shape image = call.inputs[0].shape;
    for (int axis : {0, 1}) image[axis + 1] = call.attributes.list("image")[axis];
    if (call.attributes.has("window"))
        expect_windows(call, image);
    else
        expect_parts(call);
    expect_shape(call, 0, pooled(call.attributes, image));
    return {call.inputs[0].dtype, image};
}

std::vector<Type> average_pool_grad_types(const OpCall& call) { return {image_of(call)}; }

/// dy, which element of its window each maximum was -> dx.
std::vector<Type> max_pool_grad_types(const OpCall& call) {
    expect_dtype(call, 1, DType::u8);
    expect_shape(call, 1, call.inputs[0].shape);
    return {image_of(call)};
}

std::vector<Tensor> max_pool_gradient(const GradientCall& c) {
    return {call1("max_pool2d_grad", {c.cotangents[0], c.outputs[1]}, with_image(c))};
}
std::vector<Tensor> average_pool_gradient(const GradientCall& c) {
    return {call1("average_pool2d_grad", {c.cotangents[0]}, with_image(c))};
}
std::vector<Tensor> adaptive_pool_gradient(const GradientCall& c) {
    return {call1("adaptive_average_pool2d_grad", {c.cotangents[0]}, with_image(c))};
}

/// Each element of each window once; padding is no work.
std::int64_t window_elements(const Attributes& attributes, const Shape& image) {
    std::int64_t total = image[0] * image[3];
    for (int axis : {0, 1}) {
        std::int64_t of_axis = 0;
        for (const PoolSpan& span : pool_spans(attributes, axis, image[axis + 1]))
            of_axis += span.last - span.first;
        total *= of_axis;
    }
    return total;
}

std::int64_t forward_flops(std::span<const Type> inputs, std::span<const Type>, const Attributes& a) {
    return window_elements(a, inputs[0].shape);
}
std::int64_t gradient_flops(std::span<const Type>, std::span<const Type> outputs, const Attributes& a) {
    return window_elements(a, outputs[0].shape);
}

Op gradient_row(std::string_view name, int inputs, TypeRule types) {
    return {.name = name,
            .min_inputs = inputs,
            .types = types,
            .no_gradient = no_second_derivative,
            .flops = gradient_flops};
}

}  // namespace

std::span<const Op> pool_ops() {
    static const std::vector<Op> rows = {
        {.name = "max_pool2d",
         .types = max_pool_types,
         .gradient = max_pool_gradient,
         .flops = forward_flops},
        gradient_row("max_pool2d_grad", 2, max_pool_grad_types),
        {.name = "average_pool2d",
         .types = average_pool_types,
         .gradient = average_pool_gradient,
         .flops = forward_flops},
        gradient_row("average_pool2d_grad", 1, average_pool_grad_types),
        {.name = "adaptive_average_pool2d",
         .types = adaptive_pool_types,
         .gradient = adaptive_pool_gradient,
         .flops = forward_flops},
        gradient_row("adaptive_average_pool2d_grad", 1, average_pool_grad_types),
    };
    return rows;
}

}  // namespace mantissa
