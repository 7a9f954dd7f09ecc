// Convolution of images, and its two gradients: three contractions over one window.
#include "mantissa/graph/call.h"
#include "mantissa/graph/convolution.h"
#include "mantissa/graph/ops/rules.h"

namespace mantissa::inline v0 {

namespace {

using namespace rules;

Convolution convolution_of(const OpCall& call) {
    for (std::size_t i = 1; i < call.inputs.size(); ++i)
        expect(call.inputs[i].dtype == call.inputs[0].dtype, "operands must have one type, got {} and {}",
               call.inputs[0].text(), call.inputs[i].text());
    expect_multiply(call, call.inputs[0].dtype);
    return mantissa::convolution_of(call.inputs, call.attributes);
}

/// The operands' type, or FP32 where they are shorter.
Type output_type(const OpCall& call, Shape shape) {
    const DType stored = call.inputs[0].dtype;
    const DType output = call.attributes.has("output") ? call.attributes.dtype("output") : stored;
    expect(is_floating(output) && (output == stored || output == DType::f32),
           "the output must be f32 or the operands' {}, got {}", name_of(stored), name_of(output));
    return {output, std::move(shape)};
}

std::vector<Type> conv2d_types(const OpCall& call) {
    const Convolution convolution = convolution_of(call);
    if (call.inputs.size() == 3) expect_shape(call, 2, {convolution.filters});
    return {output_type(call, convolution.y_shape())};
}

std::vector<Type> input_gradient_types(const OpCall& call) {
    return {output_type(call, convolution_of(call).x_shape())};
}

std::vector<Type> filter_gradient_types(const OpCall& call) {
    return {output_type(call, convolution_of(call).filter_shape())};
}

/// All three do the same products; products with zeros outside of the image are counted, as is usual.
std::int64_t convolution_flops(std::span<const Type> inputs, std::span<const Type>,
                               const Attributes& attributes) {
    const Convolution convolution = mantissa::convolution_of(inputs, attributes);
    return 2 * convolution.y_shape().elements() * convolution.depth();
}

/// The attributes that all three convolutions have.
Attributes common(const Attributes& attributes) {
    Attributes out{{"dilation", attributes.list("dilation")},
                   {"groups", attributes.integer("groups")},
                   {"padding", attributes.list("padding")},
                   {"stride", attributes.list("stride")}};
    if (attributes.has("multiply")) out = out.with("multiply", attributes.word("multiply"));
    return out;
}

Attributes written_as(Attributes attributes, DType output, DType operands) {
    return output == operands ? attributes : attributes.with("output", output);
}

/// dy, filter -> dx of the given extents.
Tensor input_gradient(Tensor dy, Tensor filter, const Convolution& of, const Attributes& attributes,
                      DType output) {
    const std::vector<std::int64_t> extents{of.vertical.image, of.horizontal.image};
    return call1("conv2d_input_gradient", {dy, filter},
                 written_as(common(attributes).with("extents", extents), output, dy.dtype()));
}

/// x, dy -> dfilter of the given window.
Tensor filter_gradient(Tensor x, Tensor dy, const Convolution& of, const Attributes& attributes,
                       DType output) {
    const std::vector<std::int64_t> window{of.vertical.filter, of.horizontal.filter};
    return call1("conv2d_filter_gradient", {x, dy},
                 written_as(common(attributes).with("window", window), output, x.dtype()));
}

Convolution convolution_of(const GradientCall& c) {
    const std::vector<Type> inputs{c.inputs[0].type(), c.inputs[1].type()};
    return mantissa::convolution_of(inputs, c.attributes);
}

std::vector<Tensor> conv2d_gradient(const GradientCall& c) {
    const Tensor x = c.inputs[0], filter = c.inputs[1], dy = cast(c.cotangents[0], x.dtype());
    const Convolution of = convolution_of(c);
    std::vector<Tensor> gradients{input_gradient(dy, filter, of, c.attributes, gradient_dtype(x)),
                                  filter_gradient(x, dy, of, c.attributes, gradient_dtype(filter))};
    if (c.inputs.size() == 3)
        gradients.push_back(reduce_to(dy, c.inputs[2].shape(), gradient_dtype(c.inputs[2])));
    return gradients;
}

/// It is linear in dy and in the filter: the gradient by dy is the convolution itself.
std::vector<Tensor> gradient_of_input_gradient(const GradientCall& c) {
    const Tensor dy = c.inputs[0], filter = c.inputs[1], ddx = cast(c.cotangents[0], dy.dtype());
    const Convolution of = convolution_of(c);
    return {call1("conv2d", {ddx, filter}, written_as(common(c.attributes), gradient_dtype(dy), dy.dtype())),
            filter_gradient(ddx, dy, of, c.attributes, gradient_dtype(filter))};
}

std::vector<Tensor> gradient_of_filter_gradient(const GradientCall& c) {
    const Tensor x = c.inputs[0], dy = c.inputs[1], ddf = cast(c.cotangents[0], x.dtype());
    const Convolution of = convolution_of(c);
    return {input_gradient(dy, ddf, of, c.attributes, gradient_dtype(x)),
            call1("conv2d", {x, ddf}, written_as(common(c.attributes), gradient_dtype(dy), x.dtype()))};
}

Op row(const char* name, TypeRule types, GradientRule gradient) {
    Op op;
    op.name = name;
    op.min_inputs = op.max_inputs = 2;
    op.types = types;
    op.gradient = gradient;
    op.autocast = AutocastClass::lower;
    op.fuser = FuserClass::contraction;
    op.flops = convolution_flops;
    return op;
}

}  // namespace

std::span<const Op> convolution_ops() {
    static const std::vector<Op> rows = [] {
        std::vector<Op> all{
            row("conv2d", conv2d_types, conv2d_gradient),
            row("conv2d_input_gradient", input_gradient_types, gradient_of_input_gradient),
            row("conv2d_filter_gradient", filter_gradient_types, gradient_of_filter_gradient)};
        all[0].max_inputs = 3;
        return all;
    }();
    return rows;
}

}  // namespace mantissa
