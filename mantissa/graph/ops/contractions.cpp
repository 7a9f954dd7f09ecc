// Contractions.
#include "mantissa/base/whole_units.h"
#include "mantissa/graph/call.h"
#include "mantissa/graph/ops/rules.h"
#include "mantissa/numerics/coded_weights.h"
#include "mantissa/numerics/short_formats.h"

namespace mantissa::inline v0 {

namespace {

using namespace rules;

/// The extent of an operand's row or column axis as it is multiplied, after its transposition.
std::int64_t extent(const Type& type, bool transposed, int axis) {
    return type.shape[transposed ? (axis == -1 ? -2 : -1) : axis];
}

std::vector<Type> matmul_types(const OpCall& call) {
    const Type &a = call.inputs[0], &b = call.inputs[1];
    expect_floating(call, 0);
    expect(a.dtype == b.dtype, "operands must have one type, got {} and {}", a.text(), b.text());
    expect(a.shape.rank() >= 2 && a.shape.rank() == b.shape.rank(),
           "operands must be matrices or equal batches of matrices, got {} and {}", a.text(), b.text());
    const bool ta = call.attributes.flag("transpose_a"), tb = call.attributes.flag("transpose_b");
    Shape shape = a.shape;
    for (int axis = 0; axis < shape.rank() - 2; ++axis)
        expect(a.shape[axis] == b.shape[axis], "batches differ: {} and {}", a.text(), b.text());
    expect(extent(a, ta, -1) == extent(b, tb, -2), "inner extents differ: {} of {}{} and {} of {}{}",
           extent(a, ta, -1), a.text(), ta ? " transposed" : "", extent(b, tb, -2), b.text(),
           tb ? " transposed" : "");
    shape[-2] = extent(a, ta, -2);
    shape[-1] = extent(b, tb, -1);
    if (call.inputs.size() == 3) {
        expect(call.inputs[2].dtype == a.dtype, "the bias must be {}, got {}", name_of(a.dtype),
               call.inputs[2].text());
        expect_shape(call, 2, {shape[-1]});
    }
    expect_multiply(call, a.dtype);
    const DType output = call.attributes.has("output") ? call.attributes.dtype("output") : a.dtype;
    expect(is_floating(output) && (output == a.dtype || output == DType::f32),
           "the output must be f32 or the operands' {}, got {}", name_of(a.dtype), name_of(output));
    return {{output, shape}};
}

std::int64_t matmul_flops(std::span<const Type> inputs, std::span<const Type> outputs,
                          const Attributes& attributes) {
    return 2 * outputs[0].shape.elements() * extent(inputs[0], attributes.flag("transpose_a"), -1);
}

/// With A' and B' the operands as multiplied: dA' = dY B'^T and dB' = A'^T dY, each written in the way its
/// operand is stored, and multiplied as the operands were.
std::vector<Tensor> matmul_gradient(const GradientCall& c) {
    const Tensor a = c.inputs[0], b = c.inputs[1], dy = cast(c.cotangents[0], a.dtype());
    const bool ta = c.attributes.flag("transpose_a"), tb = c.attributes.flag("transpose_b");
    const auto product = [&](Tensor x, bool tx, Tensor y, bool ty, const Tensor& of) {
        MatmulOptions options{.transpose_a = tx, .transpose_b = ty, .output = gradient_dtype(of)};
        if (c.attributes.has("multiply")) options.multiply = c.attributes.word("multiply");
        return matmul(x, y, options);
    };
    const Tensor da = ta ? product(b, tb, dy, true, a) : product(dy, false, b, !tb, a);
    const Tensor db = tb ? product(dy, true, a, ta, b) : product(a, !ta, dy, false, b);
    if (c.inputs.size() == 2) return {da, db};
    return {da, db, reduce_to(dy, c.inputs[2].shape(), gradient_dtype(c.inputs[2]))};
}

/// Zeros in rows of one side make rows or columns of zeros, unless a bias that is not zero is added to them;
/// zeros on both sides of the sum add nothing.
std::optional<LongerOutputs> pass_matmul(const LongerOperands& x) {
    const int last = x.type(0).shape.rank() - 1;
    const bool ta = x.node.attributes.flag("transpose_a"), tb = x.node.attributes.flag("transpose_b");
    const int m = ta ? last : last - 1, k_of_a = ta ? last - 1 : last;
    const int n = tb ? last - 1 : last, k_of_b = tb ? last : last - 1;
    const int a = x.axes[0], b = x.axes[1];
    const bool bias = x.node.inputs.size() == 3, longer_bias = bias && x.axes[2] >= 0;
    if (a == k_of_a && b == k_of_b && !longer_bias) return LongerOutputs{{-1}, x.node.attributes};
    if (a == m && b < 0 && !bias) return LongerOutputs{{last - 1}, x.node.attributes};
    if (a < 0 && b == n) return LongerOutputs{{last}, x.node.attributes, bias && !longer_bias};
    return std::nullopt;
}

/// s8 or s4, as the attribute `format` or `multiply` says.
Layout layout_of(const std::string& format) {
    expect(format == "s8" || format == "s4", "weights are quantised to s8 or s4, not to {}", format);
    return format == "s4" ? Layout::half_bytes : Layout::row_major;
}

/// Type of the scales of weights [N, K]: of s8 f32 [N], of s4 bf16 [N, groups].
Type scales_type(const Type& numbers) {
    const std::int64_t N = numbers.shape[0], K = numbers.shape[1];
    if (numbers.layout == Layout::row_major) return {DType::f32, {N}};
    return {DType::bf16, {N, ceil_div(K, weights_of_group)}};
}

/// w [N, K] -> whole numbers [N, K], their scales.
std::vector<Type> quantize_weight_types(const OpCall& call) {
    const Type& w = call.inputs[0];
    expect_floating(call, 0);
    expect(w.dtype != DType::f64 && w.shape.rank() == 2,
           "the weight must be a matrix of f32 or shorter, got {}", w.text());
    const Layout layout = layout_of(call.attributes.word("format"));
    expect(layout == Layout::row_major || w.shape[1] % 2 == 0,
           "s4 holds two numbers in a byte: rows must be even, got {}", w.text());
    const Type numbers{DType::s8, w.shape, layout};
    return {numbers, scales_type(numbers)};
}

/// x [M, K], whole numbers [N, K], their scales, perhaps a bias f32 [N] -> f32 [M, N].
std::vector<Type> quantized_matmul_types(const OpCall& call) {
    const Type &x = call.inputs[0], &q = call.inputs[1];
    expect_floating(call, 0);
    expect(x.dtype != DType::f64 && x.shape.rank() == 2,
           "operand 0 must be a matrix of f32 or shorter, got {}", x.text());
    expect(q.dtype == DType::s8 && q.layout == layout_of(call.attributes.word("multiply")) &&
               q.shape.rank() == 2 && q.shape[1] == x.shape[1],
           "operand 1 must be {}[N, {}], got {}", call.attributes.word("multiply"), x.shape[1], q.text());
    const Type scales = scales_type(q);
    expect(call.inputs[2] == scales, "operand 2 must be the scales, {}, got {}", scales.text(),
           call.inputs[2].text());
    if (call.inputs.size() == 4) {
        expect_dtype(call, 3, DType::f32);
        expect_shape(call, 3, {q.shape[0]});
    }
    return {{DType::f32, {x.shape[0], q.shape[0]}}};
}

std::int64_t quantized_matmul_flops(std::span<const Type> inputs, std::span<const Type> outputs,
                                    const Attributes&) {
    return 2 * outputs[0].shape.elements() * inputs[0].shape[1];
}

/// x of f32 or bf16 -> its values, bf16: along `axis`, each `block` neighbours rounded to the format
/// `element` times a scale that they share; with `square` as many neighbours along both last axes share it.
/// The last block of an axis may be shorter. By a rule with a scale for the tensor, the values are without
/// that scale. Then there are two more results, f32 []: the scale, which is NaN if x holds a number that is
/// not finite, and x's largest magnitude.
///
/// With `fp8` the values of a matrix are stored as FP8 numbers, for `scaled_matmul`.
///
/// Further operands: a largest magnitude to take instead of x's own, where `given`; x's own, where it was
/// `measured`; seed and step, where rounding is random. Then `random` tells it from other roundings.
std::vector<Type> round_blocks_types(const OpCall& call) {
    const Type& x = call.inputs[0];
    const Attributes& attributes = call.attributes;
    expect(x.dtype == DType::f32 || x.dtype == DType::bf16, "operand 0 must be f32 or bf16, got {}",
           x.text());
    const std::int64_t axis = attributes.integer("axis"), block = attributes.integer("block");
    expect(axis >= 0 && axis < x.shape.rank(), "axis {} is outside {}", axis, x.text());
    expect(block >= 1 && block <= max_rounded_block, "a block is 1 to {} numbers, got {}", max_rounded_block,
           block);
    expect(!attributes.has("square") || x.shape.rank() >= 2, "square blocks are of matrices, got {}",
           x.text());
    expect(!attributes.has("hadamard") || (block == hadamard_size && !attributes.has("square")),
           "{} numbers are turned together, which must be a block, got {}", hadamard_size, block);
    find_short_format(attributes.word("element"));
    const bool given = attributes.has("given"), measured = attributes.has("measured"),
               random = attributes.has("random");
    const std::size_t numbers = (given ? 1 : 0) + (measured ? 1 : 0);
    const std::size_t expected = 1 + numbers + (random ? 2 : 0);
    expect(call.inputs.size() == expected, "it takes {} operands, got {}", expected, call.inputs.size());
    for (std::size_t i = 1; i < expected; ++i) {
        expect_dtype(call, i, i <= numbers ? DType::f32 : DType::i64);
        expect_shape(call, i, {});
    }
    const ScaleRule rule = find_scale_rule(attributes.word("rule"));
    expect(rule == ScaleRule::two_level || (!random && !attributes.has("hadamard")),
           "random bits and Hadamard transforms go with the rule two-level");
    std::vector<Type> types{{DType::bf16, x.shape}};
    if (attributes.has("fp8")) {
        const std::string& element = attributes.word("element");
        expect(rule == ScaleRule::tensor && x.shape.rank() == 2 && (element == "e4m3" || element == "e5m2"),
               "matrices with a scale of the tensor are stored as e4m3 or e5m2, got {} of {} by the rule {}",
               element, x.text(), attributes.word("rule"));
        types[0].layout = layout_named(element);
    }
    if (has_tensor_scale(rule)) {
        types.push_back({DType::f32, {}});
        types.push_back({DType::f32, {}});
    } else {
        expect(numbers == 0, "the rule {} has no scale for the tensor", attributes.word("rule"));
    }
    return types;
}

/// a, b, a factor for the sums of each, perhaps a bias -> as a matmul.
std::vector<Type> scaled_matmul_types(const OpCall& call) {
    std::vector<Type> operands{call.inputs[0], call.inputs[1]};
    for (const std::size_t factor : {2u, 3u}) {
        expect_dtype(call, factor, DType::f32);
        expect_shape(call, factor, {});
    }
    if (call.inputs.size() == 5) operands.push_back(call.inputs[4]);
    return matmul_types({call.op, operands, call.attributes});
}

/// Bytes moved: half of an operand in FP8, which is stored both as it is and transposed.
std::int64_t scaled_matmul_bytes(std::span<const Type> inputs, std::span<const Type> outputs,
                                 const Attributes&) {
    std::int64_t bytes = outputs[0].bytes();
    for (const Type& input : inputs) bytes += is_fp8(input.layout) ? input.bytes() / 2 : input.bytes();
    return bytes;
}

std::vector<Tensor> scaled_matmul_definition(const DefinitionCall& call) {
    const std::span<const Tensor> x = call.inputs;
    const DType output = call.attributes.has("output") ? call.attributes.dtype("output") : x[0].dtype();
    const Tensor sums(call.graph, {call.graph.add("matmul", {x[0].value(), x[1].value()},
                                                  call.attributes.with("output", DType::f32)),
                                   0});
    Tensor y = call1("mul", {sums, call1("mul", {x[2], x[3]})});
    if (x.size() == 5) y = call1("add", {y, cast(x[4], DType::f32)});
    return {cast(y, output)};
}

constexpr std::string_view rounds_everything = "it rounds to whole numbers, for inference";

}  // namespace

std::span<const Op> contraction_ops() {
    static const std::vector<Op> rows = {
        {.name = "matmul",
         .min_inputs = 2,
         .max_inputs = 3,
         .types = matmul_types,
         .gradient = matmul_gradient,
         .autocast = AutocastClass::lower,
         .fuser = FuserClass::contraction,
         .flops = matmul_flops,
         .padding = pass_matmul,
         .reads_codes = 0b11,
         .gains_by_padding = true},
        // The sums times both factors, then the bias, in FP32.
        {.name = "scaled_matmul",
         .min_inputs = 4,
         .max_inputs = 5,
         .types = scaled_matmul_types,
         .no_gradient = "it is made after differentiation",
         .fuser = FuserClass::contraction,
         .flops = matmul_flops,
         .bytes = scaled_matmul_bytes,
         .definition = scaled_matmul_definition,
         .reads_codes = 0b11},
        // By mantissa/numerics/short_formats.h.
        {.name = "round_blocks",
         .max_inputs = 5,
         .types = round_blocks_types,
         .no_gradient = "it is made after differentiation",
         .flops = flops_per_input<4>},
        // s8, per row: scale = largest absolute value / 127, numbers to the nearest. s4: by groups of 32, see
        // mantissa/numerics/coded_weights.h.
        {.name = "quantize_weight",
         .types = quantize_weight_types,
         .no_gradient = rounds_everything,
         .flops = flops_per_input<2>},
        // x is quantised to bytes, by rows as s8 weights are or by groups of 32 as s4 weights; sums are
        // exact, then scaled in FP32.
        {.name = "quantized_matmul",
         .min_inputs = 3,
         .max_inputs = 4,
         .types = quantized_matmul_types,
         .no_gradient = rounds_everything,
         .fuser = FuserClass::contraction,
         .flops = quantized_matmul_flops},
    };
    return rows;
}

}  // namespace mantissa
