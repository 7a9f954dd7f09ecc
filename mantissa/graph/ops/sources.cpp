// Operations without a computed operand: inputs, states, constants, literals, indices, random numbers.
#include "mantissa/graph/ops/rules.h"
#include "mantissa/numerics/coded_weights.h"

namespace mantissa::inline v0 {

namespace {

using namespace rules;

std::vector<Type> declared(const OpCall& call) {
    expect_extents(shape_attribute(call.attributes));
    Type type{call.attributes.dtype("dtype"), shape_attribute(call.attributes)};
    if (call.attributes.has("layout")) type.layout = layout_named(call.attributes.word("layout"));
    expect(!has_codes(type.layout) || (type.shape.rank() == 2 && is_floating(type.dtype)),
           "only a floating matrix is kept as {}, got {} {}", name_of(type.layout), name_of(type.dtype),
           type.shape.text());
    return {type};
}

std::vector<Type> literal_types(const OpCall& call) {
    const std::vector<Type> types = declared(call);
    const SharedData& data = call.attributes.data("values");
    expect(data.dtype() == types[0].dtype, "{} is given for {}", name_of(data.dtype()), types[0].text());
    expect(data.elements() == types[0].shape.elements(), "{} values are given for {}", data.elements(),
           types[0].text());
    return types;
}

std::vector<Type> iota_types(const OpCall& call) {
    const std::vector<Type> types = declared(call);
    const std::int64_t axis = call.attributes.integer("axis");
    expect(axis >= 0 && axis < types[0].shape.rank(), "axis {} is outside {}", axis, types[0].text());
    return types;
}

std::vector<Type> random_types(const OpCall& call) {
    for (std::size_t i : {0u, 1u}) {
        expect_dtype(call, i, DType::i64);
        expect_shape(call, i, {});
    }
    expect_extents(shape_attribute(call.attributes));
    return {{DType::f32, shape_attribute(call.attributes)}};
}

}  // namespace

std::span<const Op> source_ops() {
    static const std::vector<Op> rows = {
        {.name = "input",
         .min_inputs = 0,
         .types = declared,
         .no_gradient = "it depends on nothing",
         .fuser = FuserClass::movement},
        {.name = "state",
         .min_inputs = 0,
         .types = declared,
         .no_gradient = "it depends on nothing",
         .fuser = FuserClass::movement},
        {.name = "constant",
         .min_inputs = 0,
         .types = declared,
         .no_gradient = "it depends on nothing",
         .fuser = FuserClass::elementwise},
        {.name = "literal",
         .min_inputs = 0,
         .types = literal_types,
         .no_gradient = "it depends on nothing",
         .fuser = FuserClass::movement},
        {.name = "iota",
         .min_inputs = 0,
         .types = iota_types,
         .no_gradient = "it depends on nothing",
         .fuser = FuserClass::elementwise},
        // Philox4x32-10: ten rounds of about eight integer operations for four numbers.
        {.name = "random_uniform",
         .min_inputs = 2,
         .types = random_types,
         .no_gradient = "its operands are integers",
         .fuser = FuserClass::elementwise,
         .flops = flops_per_output<20>},
    };
    return rows;
}

}  // namespace mantissa
