// At least one case for every operation: operands and a call. Gradients and kernels are tested over this
// list; a test fails if an operation of the table is missing.
#include "tests/support/op_cases.h"

#include <cmath>

#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"

#include "tests/support/attention_cases.h"
#include "tests/support/axis_cases.h"
#include "tests/support/image_cases.h"
#include "tests/support/loss_cases.h"
#include "tests/support/update_cases.h"

namespace mantissa::testing {
namespace {

std::vector<OpCase> source_cases() {
    return {
        {"input", "input", {f32({3, 5})}, [](Graph&, In x) { return std::vector{x[0]}; }},
        {"constant",
         "constant",
         {f32({3})},
         [](Graph& g, In x) { return std::vector{x[0] * constant(g, 2.5)}; },
         {1}},
        {"literal",
         "literal",
         {f32({2, 3})},
         [](Graph& g, In x) {
             return std::vector{x[0] * literal(g, {1, -2.5, 3e-7, 0, 40, 0.1}, DType::f32, {2, 3})};
         },
         {1}},
        {"iota",
         "iota over rows",
         {f32({1})},
         [](Graph& g, In) {
             return std::vector{iota(g, {3, 4, 2}, 1)};
         }},
        {"random_uniform",
         "random_uniform",
         {counter(), counter()},
         [](Graph&, In x) {
             return std::vector{random_uniform(x[0], x[1], 7, {5, 13})};
         }},
    };
}

OpCase unary_case(const char* op, Values values, double ulps) {
    return {op,
            op,
            {f32({7, 13}, values)},
            [op](Graph&, In x) { return std::vector{call1(op, {x[0]})}; },
            {ulps}};
}

/// round_to before a contraction, as the pass that emulates a machine puts it.
OpCase round_to_case(const char* format) {
    return {"round_to", fmt::format("round_to {}", format), {f32({13, 7})}, [format](Graph&, In x) {
                return std::vector{call1("round_to", {x[0]}, {{"format", std::string(format)}})};
            }};
}

OpCase binary_case(const char* op, const char* name, Shape a, Shape b, Values values, double ulps) {
    return {op,
            fmt::format("{} {}", op, name),
            {f32(std::move(a)), f32(std::move(b), values)},
            [op](Graph&, In x) {
                return std::vector{call1(op, {x[0], x[1]})};
            },
            {ulps}};
}

std::vector<OpCase> elementwise_cases() {
    std::vector<OpCase> cases = {
        unary_case("neg", Values::normal, 0),
        unary_case("exp", Values::normal, 2),
        unary_case("log", Values::positive, 2),
        unary_case("tanh", Values::normal, 2),
        unary_case("erf", Values::normal, 2),
        unary_case("sin", Values::normal, 2),
        unary_case("cos", Values::normal, 2),
        unary_case("sqrt", Values::positive, 1),
        unary_case("rsqrt", Values::positive, 2),
        unary_case("stop_gradient", Values::normal, 0),
        unary_case("is_finite", Values::finite_or_not, 0),
        {"cast",
         "cast to f64",
         {f32({5, 3})},
         [](Graph&, In x) { return std::vector{cast(x[0], DType::f64)}; }},
        {"cast",
         "cast from bool",
         {flags({9})},
         [](Graph&, In x) { return std::vector{cast(x[0], DType::f32)}; }},
        round_to_case("tf32"),
        round_to_case("bf16"),
        round_to_case("f16"),
        {"logical_and",
         "logical_and",
         {flags({4, 5}), flags({5})},
         [](Graph&, In x) { return std::vector{logical_and(x[0], x[1])}; }},
        {"select",
         "select with a broadcast mask",
         {flags({5, 5}), f32({2, 3, 5, 5}), f32({})},
         [](Graph&, In x) { return std::vector{select(x[0], x[1], x[2])}; }},
    };
    for (const char* op : {"add", "sub", "mul", "div", "maximum", "minimum", "less", "less_equal", "equal"}) {
        const Values values = std::string(op) == "div" ? Values::positive : Values::normal;
        cases.push_back(binary_case(op, "of equal shapes", {4, 37}, {4, 37}, values, 1));
        cases.push_back(binary_case(op, "with a scalar", {3, 11}, {}, values, 1));
        cases.push_back(binary_case(op, "with a row", {2, 3, 5}, {5}, values, 1));
        cases.push_back(binary_case(op, "with a column", {2, 3, 5}, {3, 1}, values, 1));
        cases.push_back(binary_case(op, "of an outer product", {7, 1}, {1, 6}, values, 1));
    }
    return cases;
}

/// A step function has no gradient; the x that is added has one, and the sum rounds by half an ULP.
OpCase step_case(const char* op) {
    return {op,
            op,
            {f32({7, 13}, Values::wide)},
            [op](Graph&, In x) { return std::vector{x[0] + call1(op, {x[0]})}; },
            {1, 1}};
}

OpCase integer_case(const char* op, const char* name, Shape a, Shape b) {
    testing::Operand x = ids(std::move(a), 40), y = ids(std::move(b), 7);
    x.least = -40;
    y.least = -7;
    return {
        op, fmt::format("{} {}", op, name), {x, y}, [op](Graph& g, In given) { return call(g, op, given); }};
}

/// Kernels of the generator. Errors are as in tests/support/elementary.h, in whole ULPs.
std::vector<OpCase> function_cases() {
    std::vector<OpCase> cases = {
        unary_case("log1p", Values::positive, 2),
        unary_case("expm1", Values::normal, 2),
        unary_case("atan", Values::normal, 2),
        unary_case("erfc", Values::normal, 5),
        binary_case("copysign", "of equal shapes", {3, 7}, {3, 7}, Values::normal, 0),
        binary_case("copysign", "with a column", {2, 3, 5}, {3, 1}, Values::normal, 0),
        binary_case("remainder", "of equal shapes", {3, 7}, {3, 7}, Values::positive, 1),
        binary_case("remainder", "with a row", {2, 3, 5}, {5}, Values::positive, 1),
        binary_case("remainder", "with a column", {2, 3, 5}, {3, 1}, Values::positive, 1),
        {"fma",
         "fma of three shapes",
         {f32({4, 37}), f32({37}), f32({4, 1})},
         [](Graph& g, In x) { return call(g, "fma", x); },
         {1}},
        {"select",
         "clamp",
         {f32({5, 33}, Values::wide)},
         [](Graph&, In x) { return std::vector{clamp(x[0], -9.5, 4)}; }},
        {"select",
         "not and or",
         {flags({4, 5}), flags({5})},
         [](Graph&, In x) { return std::vector{logical_or(logical_not(x[0]), x[1])}; }},
    };
    for (const char* op : {"floor", "ceil", "round", "trunc", "sign"}) cases.push_back(step_case(op));
    // Bases around a quarter, so that powers of powers stay small.
    const auto power = [&](const char* name, Shape base, Shape exponent) {
        cases.push_back({"pow",
                         fmt::format("pow {}", name),
                         {f32(std::move(base), Values::positive), f32(std::move(exponent))},
                         [](Graph&, In x) { return std::vector{pow(x[0] * 0.25, x[1] * 0.25)}; },
                         {4}});
    };
    power("of equal shapes", {4, 37}, {4, 37});
    power("with a number", {3, 11}, {});
    power("of an outer product", {7, 1}, {1, 6});
    for (const char* op : {"integer_remainder", "integer_division", "bit_and", "bit_or", "bit_xor", "less",
                           "less_equal", "equal", "maximum", "minimum"}) {
        cases.push_back(integer_case(op, "of i32", {4, 37}, {4, 37}));
        cases.push_back(integer_case(op, "of i32 by a column", {2, 3, 5}, {3, 1}));
    }
    return cases;
}

std::vector<OpCase> movement_cases() {
    return {
        {"reshape",
         "reshape",
         {f32({6, 4})},
         [](Graph&, In x) {
             return std::vector{reshape(x[0], {3, -1})};
         }},
        {"transpose",
         "transpose of a matrix",
         {f32({5, 7})},
         [](Graph&, In x) {
             return std::vector{transpose(x[0], {1, 0})};
         }},
        {"transpose",
         "transpose of a number",
         {f32({})},
         [](Graph&, In x) { return std::vector{transpose(x[0], {})}; }},
        {"transpose",
         "transpose to head-major",
         {f32({2, 5, 3, 2, 3})},
         [](Graph&, In x) {
             return std::vector{transpose(x[0], {2, 0, 3, 1, 4})};
         }},
        {"broadcast",
         "broadcast",
         {f32({3, 1})},
         [](Graph&, In x) {
             return std::vector{broadcast_to(x[0], {2, 3, 4})};
         }},
        {"slice",
         "slice of rows",
         {f32({7, 3})},
         [](Graph&, In x) { return std::vector{slice(x[0], 0, 2, 6)}; }},
        {"slice",
         "slice of columns",
         {f32({4, 9})},
         [](Graph&, In x) { return std::vector{slice(x[0], -1, 1, 4)}; }},
        {"slice",
         "slice of long rows",
         {f32({5, 2, 40})},
         [](Graph&, In x) { return std::vector{slice(x[0], -1, 3, 27)}; }},
        {"pad", "pad", {f32({3, 4})}, [](Graph&, In x) { return std::vector{pad(x[0], 1, 2, 1)}; }},
        {"split", "split of columns", {f32({3, 6})}, [](Graph&, In x) { return split(x[0], 1, 3); }},
        {"split",
         "split of the outermost axis",
         {f32({4, 5})},
         [](Graph&, In x) { return split(x[0], 0, 2); }},
        {"split", "split of long rows", {f32({3, 60})}, [](Graph&, In x) { return split(x[0], 1, 3); }},
        {"concat",
         "concat of long rows",
         {f32({2, 3, 20}), f32({2, 3, 33}), f32({2, 3, 16})},
         [](Graph&, In x) { return std::vector{concat(x, 2)}; }},
        {"concat",
         "concat",
         {f32({2, 3}), f32({2, 5})},
         [](Graph&, In x) { return std::vector{concat(x, 1)}; }},
        {"write_slice",
         "write_slice of rows of each head",
         {f32({2, 7, 3}), f32({2, 4, 3}), ids({}, 4)},
         [](Graph&, In x) { return std::vector{write_slice(x[0], x[1], x[2], 1)}; }},
        {"write_slice",
         "write_slice at a place of each head's own",
         {f32({3, 5, 4}), f32({3, 2, 4}), ids({3}, 3)},
         [](Graph&, In x) { return std::vector{write_slice(x[0], x[1], x[2], 1)}; }},
        {"write_slice",
         "write_slice over everything",
         {f32({5, 3}), f32({5, 3}), ids({}, 1)},
         [](Graph&, In x) { return std::vector{write_slice(x[0], x[1], x[2], -2)}; }},
        {"embedding",
         "embedding",
         {f32({11, 6}), ids({3, 4}, 11)},
         [](Graph&, In x) { return std::vector{embedding(x[0], x[1])}; }},
        {"embedding_grad",
         "embedding_grad",
         {f32({3, 4, 6}), ids({3, 4}, 5)},
         [](Graph&, In x) {
             return std::vector{call1("embedding_grad", {x[0], x[1]}, {{"rows", std::int64_t{5}}})};
         },
         {0, 12}},
        {"embedding_grad",
         "embedding_grad with an addend",
         {f32({3, 4, 6}), ids({3, 4}, 5), f32({7, 6})},
         [](Graph&, In x) {
             return std::vector{call1("embedding_grad", {x[0], x[1], x[2]}, {{"rows", std::int64_t{7}}})};
         },
         {0, 13}},
        {"embedding_grad",
         "embedding_grad over an addend that nobody reads later",
         {f32({3, 4, 6}), ids({3, 4}, 5), f32({7, 6})},
         [](Graph&, In x) {
             return std::vector{
                 call1("embedding_grad", {x[0], x[1], x[2] + x[2]}, {{"rows", std::int64_t{7}}})};
         },
         {0, 14}},
    };
}

std::vector<OpCase> reduction_cases() {
    std::vector<OpCase> cases;
    for (const char* op : {"sum", "max"}) {
        const auto add = [&](const char* name, Shape shape, std::vector<std::int64_t> axes, bool keep) {
            const double terms = static_cast<double>(shape.elements());
            cases.push_back({op,
                             fmt::format("{} {}", op, name),
                             {f32(std::move(shape))},
                             [=](Graph&, In x) {
                                 return std::vector{call1(op, {x[0]}, {{"axes", axes}, {"keep", keep}})};
                             },
                             {1, terms}});
        };
        add("over rows", {9, 5}, {0}, false);
        add("over the last axis", {3, 4, 7}, {2}, true);
        add("over everything", {3, 5, 2}, {0, 1, 2}, false);
        add("over the ends", {3, 4, 5}, {0, 2}, false);
        add("over pixels", {2, 2, 3, 17}, {1, 2}, false);
        add("over nothing", {3, 4}, {}, false);
    }
    return cases;
}

std::vector<OpCase> contraction_cases() {
    std::vector<OpCase> cases;
    for (bool ta : {false, true})
        for (bool tb : {false, true})
            cases.push_back({"matmul",
                             fmt::format("matmul {}{}", ta ? "T" : "N", tb ? "T" : "N"),
                             {f32(ta ? Shape{2, 3, 13, 5} : Shape{2, 3, 5, 13}),
                              f32(tb ? Shape{2, 3, 7, 13} : Shape{2, 3, 13, 7})},
                             [=](Graph&, In x) {
                                 return std::vector{
                                     matmul(x[0], x[1], {.transpose_a = ta, .transpose_b = tb})};
                             },
                             {1, 14}});
    // A wrongly transposed square operand keeps its shape: only the numbers tell.
    cases.push_back({"matmul",
                     "matmul of squares",
                     {f32({2, 7, 7}), f32({2, 7, 7})},
                     [](Graph&, In x) { return std::vector{matmul(x[0], x[1])}; },
                     {1, 8}});
    cases.push_back(
        {"matmul",
         "matmul with a bias",
         {f32({17, 9}), f32({11, 9}), f32({11})},
         [](Graph&, In x) { return std::vector{matmul(x[0], x[1], {.transpose_b = true, .bias = x[2]})}; },
         {1, 11}});
    // Three products, a sum and a rounding, after the sums of 9 terms.
    cases.push_back({"scaled_matmul",
                     "scaled_matmul with a bias",
                     {f32({17, 9}), f32({11, 9}), f32({}), f32({}), f32({11})},
                     [](Graph& g, In x) {
                         return call(g, "scaled_matmul", x, {{"transpose_a", false}, {"transpose_b", true}});
                     },
                     {4, 12}});
    return cases;
}

/// Blocks along the last axis, the middle one and the first; whole, short and of one number. The values are
/// exact, and so is BF16 as FP32.
std::vector<OpCase> block_cases() {
    std::vector<OpCase> cases;
    const auto add = [&](const char* element, const char* rule, Shape shape, std::int64_t axis,
                         std::int64_t block,
                         std::vector<std::pair<const char*, Attributes::Value>> more = {}) {
        Attributes attributes{
            {"element", std::string(element)}, {"rule", std::string(rule)}, {"axis", axis}, {"block", block}};
        std::string name = fmt::format("round_blocks {} {} of {} along axis {}", element, rule, block, axis);
        if (shape.rank() > 3) name += fmt::format(" of {} images of {} channels", shape[0], shape[-1]);
        std::vector<Operand> operands{f32(std::move(shape), Values::wide)};
        for (const auto& [key, value] : more) {
            attributes = attributes.with(key, value);
            name += fmt::format(" {}", key);
            if (key == std::string("given") || key == std::string("measured"))
                operands.push_back(f32({}, Values::positive));
            if (key == std::string("random")) operands.insert(operands.end(), 2, counter());
        }
        cases.push_back({"round_blocks", std::move(name), std::move(operands), [=](Graph& g, In x) {
                             std::vector<Tensor> given(x.begin(), x.end());
                             for (std::size_t i = 1; i < given.size(); ++i)
                                 if (is_floating(given[i].dtype())) given[i] = cast(given[i], DType::f32);
                             std::vector<Tensor> results = call(g, "round_blocks", given, attributes);
                             results[0] = cast(results[0], DType::f32);
                             return results;
                         }});
    };
    for (const char* element : {"e4m3", "e5m2", "e3m2", "e2m3", "e2m1", "int8"})
        for (const char* rule : {"up", "floor"}) {
            add(element, rule, {5, 83}, 1, 32);
            add(element, rule, {70, 37}, 0, 32);
        }
    // Blocks of 128 neighbours, and of 128 x 128.
    add("e4m3", "up", {3, 45, 6}, 1, 16);
    add("e4m3", "up", {3, 200}, 1, 128);
    add("e2m1", "floor", {7}, 0, 1);
    add("e4m3", "up", {131, 150}, 0, 128, {{"square", true}});
    // One scale a tensor, and two levels of scales.
    add("e4m3", "tensor", {5, 83}, 0, 32);
    add("e5m2", "tensor", {3, 45, 6}, 1, 32);
    add("e5m2", "tensor", {5, 83}, 0, 32, {{"given", true}});
    add("e5m2", "tensor", {5, 83}, 0, 32, {{"given", true}, {"measured", true}});
    add("e2m1", "two-level", {5, 83}, 1, 16, {{"measured", true}, {"random", std::int64_t{1} << 20}});
    for (const auto& [shape, axis] : {std::pair{Shape{5, 83}, 1}, {Shape{70, 37}, 0}}) {
        add("e2m1", "two-level", shape, axis, 16);
        add("e2m1", "two-level", shape, axis, 16, {{"hadamard", true}});
        add("e2m1", "two-level", shape, axis, 16, {{"random", std::int64_t{1} << 20}});
        add("e2m1", "two-level", shape, axis, 16,
            {{"hadamard", true}, {"random", (std::int64_t{1} << 20) + 1}});
    }
    add("e2m1", "two-level", {37, 70}, 0, 16, {{"square", true}});
    // Images and filters: short lines of channels, columns cut into parts, a matrix for each tap.
    add("e4m3", "up", {4, 6, 4, 16}, 3, 32);
    add("e4m3", "up", {3, 2, 2, 20}, 3, 32);
    add("e2m1", "floor", {37, 9, 19, 16}, 0, 32);
    add("e4m3", "up", {2, 3, 40, 35}, 0, 32, {{"square", true}});
    add("e2m1", "two-level", {18, 9, 19, 17}, 0, 16,
        {{"hadamard", true}, {"random", (std::int64_t{1} << 20) + 2}});
    add("e2m1", "two-level", {2, 3, 5, 24}, 3, 16, {{"random", (std::int64_t{1} << 20) + 3}});
    return cases;
}

/// Integers are exact; results are scaled and a bias is added, in FP32.
std::vector<OpCase> quantized_cases() {
    const auto quantized = [](const std::string& format, Graph& g, In x) {
        const auto w = call(g, "quantize_weight", std::vector{x[1]}, {{"format", format}});
        std::vector<Tensor> operands{x[0], w[0], w[1]};
        if (x.size() == 3) operands.push_back(x[2]);
        return call(g, "quantized_matmul", operands, {{"multiply", format}});
    };
    std::vector<OpCase> cases;
    cases.push_back({"quantize_weight",
                     "quantize_weight",
                     {f32({7, 33})},
                     [](Graph& g, In x) {
                         return call(g, "quantize_weight", x, {{"format", std::string("s8")}});
                     },
                     {1}});
    for (const std::string format : {"s8", "s4"})
        for (const std::int64_t rows : {1, 3, 19}) {
            const auto name = fmt::format("quantized_matmul {} of {} rows", format, rows);
            const auto build = [=](Graph& g, In x) { return quantized(format, g, x); };
            // s4 sums three groups; for many rows, FP32 sums all 70 products.
            const double groups = format == "s8" ? 0 : rows <= 8 ? 4 : 70;
            cases.push_back({"quantized_matmul", name, {f32({rows, 70}), f32({37, 70})}, build, {4, groups}});
            cases.push_back({"quantized_matmul",
                             name + " and a bias",
                             {f32({rows, 70}), f32({37, 70}), f32({37})},
                             build,
                             {4, 4 + groups}});
        }
    return cases;
}

/// In 16 bits a weight is rounded twice, as an exponential and as a gradient, and dx once more. In FP32, dw
/// sums up to a chunk's depth of consecutive terms; their absolute values sum to less than 1.
OpCase linear_cross_entropy_case(const char* name, std::int64_t N, std::int64_t C, std::int64_t V,
                                 bool gradients) {
    std::vector<Operand> operands{f32({N, C}), f32({V, C}), ids({N}, V)};
    if (gradients) operands.push_back(f32({}));
    return {"linear_cross_entropy",
            fmt::format("linear_cross_entropy {}", name),
            std::move(operands),
            [](Graph& g, In x) { return call(g, "linear_cross_entropy", x); },
            {16, 384, 3, true}};
}

/// A case with padding rows in w, which are not zero here: they must not be read.
OpCase padded_linear_cross_entropy_case(const char* name, std::int64_t N, std::int64_t classes,
                                        bool gradients) {
    OpCase test = linear_cross_entropy_case(name, N, 5, classes + 3, gradients);
    test.operands[2].limit = classes;
    test.build = [=](Graph& g, In x) { return call(g, "linear_cross_entropy", x, {{"classes", classes}}); };
    return test;
}

/// A case with a third of the targets below 0, which are not counted.
OpCase ignoring_linear_cross_entropy_case(const char* name, std::int64_t N, std::int64_t V, bool gradients) {
    OpCase test = linear_cross_entropy_case(name, N, 5, V, gradients);
    test.operands[2].least = -V / 2;
    test.build = [](Graph& g, In x) {
        return call(g, "linear_cross_entropy", x, {{"ignore_negative", true}});
    };
    return test;
}

/// Turns a number into N different ones, one per row.
Tensor of_rows(Graph& g, const Tensor& number, std::int64_t N) {
    return number * (cos(cast(iota(g, {N}, 0), DType::f32)) * (1.0 / static_cast<double>(N)));
}

/// Losses by rows, with a seed for each and one for its log-sum-exp.
OpCase linear_cross_entropy_case_by_rows(const char* name, std::int64_t N, std::int64_t V, bool gradients) {
    OpCase test = linear_cross_entropy_case(name, N, 5, V, gradients);
    if (gradients) test.operands.push_back(f32({}));
    test.operands[2].least = -V / 2;
    test.build = [=](Graph& g, In x) {
        std::vector<Tensor> operands{x[0], x[1], x[2]};
        for (std::size_t seed = 3; seed < x.size(); ++seed) operands.push_back(of_rows(g, x[seed], N));
        return call(g, "linear_cross_entropy", operands, {{"ignore_negative", true}, {"rows", true}});
    };
    return test;
}

/// A case with weights that need no gradient.
OpCase frozen_linear_cross_entropy_case(const char* name, std::int64_t N, std::int64_t V) {
    OpCase test = linear_cross_entropy_case(name, N, 5, V, true);
    test.build = [](Graph& g, In x) { return call(g, "linear_cross_entropy", x, {{"frozen", true}}); };
    return test;
}

std::vector<OpCase> linear_cross_entropy_cases() {
    return {frozen_linear_cross_entropy_case("with frozen weights", 1027, 13),
            frozen_linear_cross_entropy_case("with frozen weights, in one chunk", 37, 61),
            linear_cross_entropy_case_by_rows("by rows", 1027, 13, true),
            linear_cross_entropy_case_by_rows("by rows, in one chunk", 37, 61, true),
            linear_cross_entropy_case_by_rows("by rows, without gradients", 37, 61, false),
            ignoring_linear_cross_entropy_case("with ignored targets", 1027, 13, true),
            ignoring_linear_cross_entropy_case("with ignored targets, without gradients", 37, 61, false),
            padded_linear_cross_entropy_case("padded", 1027, 13, true),
            padded_linear_cross_entropy_case("padded, without gradients", 37, 61, false),
            linear_cross_entropy_case("in one chunk", 37, 5, 13, true),
            linear_cross_entropy_case("in two chunks", 1027, 3, 7, true),
            linear_cross_entropy_case("of one row", 1, 1, 1, true),
            linear_cross_entropy_case("without gradients", 1027, 6, 11, false)};
}

OpCase cross_entropy_case_with(const char* name, const CrossEntropyOptions& options, bool weighted) {
    OpCase test{"cross_entropy",
                fmt::format("cross_entropy {}", name),
                {f32({2, 5, 23}), ids({2, 5}, 23)},
                [=](Graph&, In x) { return std::vector{cross_entropy(x[0], x[1], options)}; },
                {8, 60}};
    if (weighted)
        test.build = [=](Graph& g, In x) {
            CrossEntropyOptions own = options;
            std::vector<double> weights;
            for (int i = 0; i < 23; ++i) weights.push_back(0.25 + i % 5);
            own.class_weights = literal(g, std::move(weights), DType::f32, {23});
            return std::vector{cross_entropy(x[0], x[1], own)};
        };
    return test;
}

std::vector<OpCase> cross_entropy_cases() {
    return {
        cross_entropy_case_with("by rows", {.reduction = Reduction::none}, false),
        cross_entropy_case_with("summed", {.ignore_index = 3, .reduction = Reduction::sum}, false),
        cross_entropy_case_with("smoothed", {.label_smoothing = 0.1}, false),
        cross_entropy_case_with("weighted", {}, true),
        cross_entropy_case_with("weighted, smoothed, without a class",
                                {.label_smoothing = 0.2, .ignore_index = 7}, true),
        {"cross_entropy_grad",
         "cross_entropy_grad by rows",
         {f32({}), f32({6, 23}), ids({6}, 23), f32({})},
         [](Graph& g, In x) {
             const Attributes rows{{"rows", true}};
             const auto y = call(g, "cross_entropy", std::vector{x[1], x[2]}, rows);
             return std::vector{call1("cross_entropy_grad",
                                      {of_rows(g, x[0], 6), x[1], x[2], y[1], of_rows(g, x[3], 6)}, rows)};
         },
         {16, 30}},
        {"cross_entropy",
         "cross_entropy",
         {f32({2, 3, 23}), ids({2, 3}, 23)},
         [](Graph& g, In x) { return call(g, "cross_entropy", x); },
         {8, 30}},
        {"cross_entropy_grad",
         "cross_entropy_grad",
         {f32({}), f32({6, 23}), ids({6}, 23)},
         [](Graph& g, In x) {
             const auto y = call(g, "cross_entropy", std::vector{x[1], x[2]});
             return std::vector{call1("cross_entropy_grad", {x[0], x[1], x[2], y[1]})};
         },
         {16, 30}},
        {"cross_entropy",
         "cross_entropy of padded logits",
         {f32({2, 3, 23}), ids({2, 3}, 19)},
         [](Graph& g, In x) {
             return call(g, "cross_entropy", x, {{"classes", std::int64_t{19}}});
         },
         {8, 30}},
        {"cross_entropy_grad",
         "cross_entropy_grad of padded logits",
         {f32({}), f32({6, 23}), ids({6}, 19)},
         [](Graph& g, In x) {
             const Attributes classes{{"classes", std::int64_t{19}}};
             const auto y = call(g, "cross_entropy", std::vector{x[1], x[2]}, classes);
             return std::vector{call1("cross_entropy_grad", {x[0], x[1], x[2], y[1]}, classes)};
         },
         {16, 30}},
    };
}

OpCase ignoring(OpCase test) {
    test.name = test.op + " with ignored targets";
    for (Operand& operand : test.operands)
        if (operand.values == Values::index) operand.least = -10;
    return test;
}

std::vector<OpCase> ignoring_cross_entropy_cases() {
    const Attributes attributes{{"ignore_negative", true}};
    return {
        ignoring({"cross_entropy",
                  "",
                  {f32({2, 3, 23}), ids({2, 3}, 23)},
                  [=](Graph& g, In x) { return call(g, "cross_entropy", x, attributes); },
                  {8, 30}}),
        ignoring({"cross_entropy_grad",
                  "",
                  {f32({}), f32({6, 23}), ids({6}, 23)},
                  [=](Graph& g, In x) {
                      const auto y = call(g, "cross_entropy", std::vector{x[1], x[2]}, attributes);
                      return std::vector{call1("cross_entropy_grad", {x[0], x[1], x[2], y[1]}, attributes)};
                  },
                  {16, 30}})};
}

/// Rotation by the angles t / (i + 1).
OpCase rotary_case(const char* name, Shape x) {
    return {"rotary",
            name,
            {f32(x)},
            [=](Graph& g, In in) {
                const DType dtype = in[0].dtype() == DType::f64 ? DType::f64 : DType::f32;
                const Shape table{x[1], x[3] / 2};
                const Tensor angles = cast(iota(g, table, 0), dtype) / (cast(iota(g, table, 1), dtype) + 1.0);
                return std::vector{rotary(in[0], cos(angles), sin(angles))};
            },
            {4, 4}};
}

const Attributes epsilon{{"epsilon", 1e-5}};

// Layer norm, softmax and their gradients amplify rounding errors by small factors.
OpCase layer_norm_grad_case(const char* name, std::int64_t rows, std::int64_t columns) {
    return {"layer_norm_grad",
            name,
            {f32({rows, columns}), f32({rows, columns}), f32({columns})},
            [=](Graph& g, In x) {
                const Tensor beta = constant(g, 0.0, DType::f32, {columns});
                const auto y = call(g, "layer_norm", std::vector{x[1], x[2], beta}, epsilon);
                return call(g, "layer_norm_grad", std::vector{x[0], x[1], x[2], y[1], y[2]}, epsilon);
            },
            {16, static_cast<double>(2 * std::max(rows, columns))}};
}

/// Roundings of a sum have random signs, so a long sum's error grows with the root of its length.
OpCase softmax_case(const char* name, std::int64_t rows, std::int64_t columns) {
    return {"softmax",
            name,
            {f32({rows, columns})},
            [](Graph&, In x) { return std::vector{softmax(x[0])}; },
            {8, 4 * std::sqrt(static_cast<double>(columns))}};
}

std::vector<OpCase> composite_cases() {
    return {
        {"layer_norm",
         "layer_norm",
         {f32({6, 33}), f32({33}), f32({33})},
         [=](Graph& g, In x) { return call(g, "layer_norm", x, epsilon); },
         {8, 33}},
        layer_norm_grad_case("layer_norm_grad", 6, 33),
        layer_norm_grad_case("layer_norm_grad of many rows", 131, 127),
        {"rms_norm",
         "rms_norm",
         {f32({6, 33}), f32({33})},
         [=](Graph& g, In x) { return call(g, "rms_norm", x, epsilon); },
         {8, 33}},
        {"rms_norm_grad",
         "rms_norm_grad",
         {f32({6, 33}), f32({6, 33}), f32({33})},
         [=](Graph& g, In x) {
             const auto y = call(g, "rms_norm", std::vector{x[1], x[2]}, epsilon);
             return call(g, "rms_norm_grad", std::vector{x[0], x[1], x[2], y[1]}, epsilon);
         },
         {16, 66}},
        rotary_case("rotary", {2, 5, 3, 6}),
        rotary_case("rotary of long heads", {1, 3, 2, 70}),
        softmax_case("softmax", 5, 19),
        softmax_case("softmax of long rows", 3, 4099),
        {"softmax",
         "softmax of rows of which some are hidden",
         {f32({7, 19}), flags({7, 1})},
         [](Graph& g, In x) {
             const Tensor hidden = constant(g, -std::numeric_limits<double>::infinity());
             return std::vector{call1("softmax", {select(x[1], x[0], hidden)}, {{"zero_rows", true}})};
         },
         {8, 19}},
        {"softmax_grad",
         "softmax_grad",
         {f32({5, 19}), f32({5, 19})},
         [](Graph&, In x) {
             return std::vector{call1("softmax_grad", {x[0], softmax(x[1])})};
         },
         {16, 38}},
        {"add_bias",
         "add_bias",
         {f32({3, 5, 41}), f32({41})},
         [](Graph&, In x) {
             return std::vector{call1("add_bias", {x[0], x[1]})};
         },
         {1, 1}},
        {"gelu", "gelu", {f32({3, 41})}, [](Graph&, In x) { return std::vector{gelu(x[0])}; }, {8, 8}},
        {"gelu_grad",
         "gelu_grad",
         {f32({3, 41}), f32({3, 41})},
         [](Graph&, In x) {
             return std::vector{call1("gelu_grad", {x[0], x[1]})};
         },
         {16, 16}},
        {"dropout",
         "dropout",
         {f32({4, 9}), counter(), counter()},
         [](Graph&, In x) {
             return std::vector{dropout(x[0], {x[1], x[2]}, 0.25, 3)};
         },
         {2}},
        {"fused",
         "fused",
         {f32({3, 41}), f32({41})},
         [](Graph& g, In x) {
             Graph body;
             const Tensor a = cast(Tensor(body, body.add_input("in0", x[0].type())), DType::f32);
             const Tensor b = cast(Tensor(body, body.add_input("in1", x[1].type())), DType::f32);
             const Tensor y = tanh(a * b) - mean(a, {-1}, KeepAxes::yes);
             body.add_result("out0", y.value());
             body.add_result("out1", sum(y, {0}).value());
             return call(g, "fused", x, {{"body", Body(std::move(body))}});
         },
         {16, 30}},
    };
}

/// An activation or its gradient. Their definitions round some ten times.
std::vector<OpCase> activation_cases() {
    std::vector<OpCase> cases;
    const auto add = [&](const char* op, const Attributes& attributes, const char* note, double ulps) {
        const std::string gradient = fmt::format("{}_grad", op);
        cases.push_back({op,
                         fmt::format("{}{}", op, note),
                         {f32({3, 41})},
                         [=](Graph& g, In x) { return call(g, op, x, attributes); },
                         {ulps, ulps}});
        cases.push_back({gradient,
                         fmt::format("{}{}", gradient, note),
                         {f32({3, 41}), f32({3, 41})},
                         [=](Graph& g, In x) { return call(g, gradient, x, attributes); },
                         {2 * ulps, 2 * ulps}});
    };
    add("relu", {}, "", 0);
    add("sigmoid", {}, "", 8);
    add("elu", {{"alpha", 1.0}}, "", 8);
    add("elu", {{"alpha", 0.3}}, " with another alpha", 8);
    add("softplus", {}, "", 8);
    add("swish", {}, "", 8);
    add("erf_gelu", {}, "", 8);
    return cases;
}

}  // namespace

std::vector<OpCase> op_cases() {
    std::vector<OpCase> all;
    for (auto cases :
         {source_cases(), elementwise_cases(), function_cases(), movement_cases(), axis_cases(),
          reduction_cases(), contraction_cases(), image_cases(), quantized_cases(), block_cases(),
          attention_cases(), cross_entropy_cases(), soft_loss_cases(), ignoring_cross_entropy_cases(),
          linear_cross_entropy_cases(), composite_cases(), activation_cases(), update_cases()})
        all.insert(all.end(), cases.begin(), cases.end());
    return all;
}

}  // namespace mantissa::testing
