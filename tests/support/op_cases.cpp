// One case or more for every operation: operands and how to call it. Gradients and kernels are tested over
// this list, and a test fails if an operation of the table is missing here.
#include "tests/support/op_cases.h"

#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"

#include "tests/support/attention_cases.h"
#include "tests/support/axis_cases.h"
#include "tests/support/loss_cases.h"

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

/// As the pass that simulates a machine puts it before a contraction.
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

/// A function of steps has no gradient: x beside it has one, and what the sum rounds is half an ULP.
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

/// Kernels that the generator makes. The errors are those of numerics/elementary.h, of whole ULPs.
std::vector<OpCase> function_cases() {
    std::vector<OpCase> cases = {
        unary_case("log1p", Values::positive, 2),
        unary_case("expm1", Values::normal, 2),
        binary_case("copysign", "of equal shapes", {3, 7}, {3, 7}, Values::normal, 0),
        binary_case("copysign", "with a column", {2, 3, 5}, {3, 1}, Values::normal, 0),
        binary_case("remainder", "of equal shapes", {3, 7}, {3, 7}, Values::positive, 1),
        binary_case("remainder", "with a row", {2, 3, 5}, {5}, Values::positive, 1),
        binary_case("remainder", "with a column", {2, 3, 5}, {3, 1}, Values::positive, 1),
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
    // Of a quarter, so that powers of themselves stay small.
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
    for (const char* op :
         {"integer_remainder", "integer_division", "less", "less_equal", "equal", "maximum", "minimum"}) {
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
    // An operand that is transposed and should not be keeps its shape: only the numbers tell.
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
    return cases;
}

}  // namespace

std::vector<OpCase> cases_of_convolution(const std::string& name, const Shape& images, const Shape& filter,
                                         const Conv2dOptions& options) {
    std::vector<OpCase> cases;
    Graph sizes;
    const auto input = [&](const char* of, Shape shape) {
        return Tensor(sizes, sizes.add_input(of, {DType::f32, std::move(shape)}));
    };
    const Tensor y = conv2d(input("x", images), input("filter", filter), options);
    const Shape outputs = y.shape();
    const Attributes attributes = sizes.node(y.value().node).attributes;
    const double terms = static_cast<double>(filter[0] * filter[1] * (filter[2] + filter[3]));
    cases.push_back({"conv2d",
                     fmt::format("conv2d {}", name),
                     {f32(images), f32(filter)},
                     [=](Graph& g, In x) { return call(g, "conv2d", x, attributes); },
                     {1, terms}});
    const Attributes of_input = attributes.with("extents", std::vector<std::int64_t>{images[1], images[2]});
    cases.push_back({"conv2d_input_gradient",
                     fmt::format("conv2d_input_gradient {}", name),
                     {f32(outputs), f32(filter)},
                     [=](Graph& g, In x) { return call(g, "conv2d_input_gradient", x, of_input); },
                     {1, terms}});
    const Attributes of_filter = attributes.with("window", std::vector<std::int64_t>{filter[0], filter[1]});
    cases.push_back({"conv2d_filter_gradient",
                     fmt::format("conv2d_filter_gradient {}", name),
                     {f32(images), f32(outputs)},
                     [=](Graph& g, In x) { return call(g, "conv2d_filter_gradient", x, of_filter); },
                     {1, static_cast<double>(images[0] * outputs[1] * outputs[2])}});
    return cases;
}

namespace {

std::vector<OpCase> convolution_cases() {
    std::vector<OpCase> cases;
    const auto add = [&](const char* name, std::int64_t channels, const Shape& filter,
                         const Conv2dOptions& options) {
        std::ranges::move(cases_of_convolution(name, {2, 5, 4, channels}, filter, options),
                          std::back_inserter(cases));
    };
    add("3x3", 5, {3, 3, 5, 4}, {.padding = {1, 1, 1, 1}});
    add("1x1", 5, {1, 1, 5, 3}, {});
    add("1x1 of stride 2", 5, {1, 1, 5, 3}, {.stride = {2, 2}});
    add("3x2 of stride 2 and 3", 3, {3, 2, 3, 5}, {.stride = {2, 3}, .padding = {1, 0, 0, 1}});
    add("2x3, dilated", 3, {2, 3, 3, 2}, {.padding = {2, 1, 2, 3}, .dilation = {3, 2}});
    add("strided and dilated", 2, {3, 2, 2, 3},
        {.stride = {2, 2}, .padding = {2, 2, 0, 0}, .dilation = {2, 3}});
    add("in groups", 6, {3, 3, 2, 9}, {.padding = {1, 1, 1, 1}, .groups = 3});
    add("padded beyond the filter", 2, {2, 2, 2, 3}, {.padding = {4, 3, 3, 5}});
    cases.push_back({"conv2d",
                     "conv2d with a bias",
                     {f32({1, 3, 4, 5}), f32({2, 2, 5, 7}), f32({7})},
                     [](Graph&, In x) { return std::vector{conv2d(x[0], x[1], {.bias = x[2]})}; },
                     {1, 21}});
    return cases;
}

/// Whole numbers are exact; results are scaled and a bias is added, in FP32.
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
            // Of s4 three groups are added up, and for many rows FP32's products of all 70.
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
/// adds up to a chunk's depth of terms in a row, whose absolute values add up to less than 1.
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

/// The same with rows of padding in w, which are not zero here: they must not be looked at.
OpCase padded_linear_cross_entropy_case(const char* name, std::int64_t N, std::int64_t classes,
                                        bool gradients) {
    OpCase test = linear_cross_entropy_case(name, N, 5, classes + 3, gradients);
    test.operands[2].limit = classes;
    test.build = [=](Graph& g, In x) { return call(g, "linear_cross_entropy", x, {{"classes", classes}}); };
    return test;
}

/// The same where a third of the targets is below 0, and counts for nothing.
OpCase ignoring_linear_cross_entropy_case(const char* name, std::int64_t N, std::int64_t V, bool gradients) {
    OpCase test = linear_cross_entropy_case(name, N, 5, V, gradients);
    test.operands[2].least = -V / 2;
    test.build = [](Graph& g, In x) {
        return call(g, "linear_cross_entropy", x, {{"ignore_negative", true}});
    };
    return test;
}

/// A number as one for each of N rows, all different.
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

std::vector<OpCase> linear_cross_entropy_cases() {
    return {linear_cross_entropy_case_by_rows("by rows", 1027, 13, true),
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

/// Turned by the angles t / (i + 1).
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

std::vector<OpCase> composite_cases() {
    const Attributes epsilon{{"epsilon", 1e-5}};
    // Layer norm, softmax and their gradients amplify rounding errors by small factors; the bounds of the
    // kernels themselves are held in tests/device.
    return {
        {"layer_norm",
         "layer_norm",
         {f32({6, 33}), f32({33}), f32({33})},
         [=](Graph& g, In x) { return call(g, "layer_norm", x, epsilon); },
         {8, 33}},
        {"layer_norm_grad",
         "layer_norm_grad",
         {f32({6, 33}), f32({6, 33}), f32({33})},
         [=](Graph& g, In x) {
             const Tensor beta = constant(g, 0.0, DType::f32, {33});
             const auto y = call(g, "layer_norm", std::vector{x[1], x[2], beta}, epsilon);
             return call(g, "layer_norm_grad", std::vector{x[0], x[1], x[2], y[1], y[2]}, epsilon);
         },
         {16, 66}},
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
        {"softmax",
         "softmax",
         {f32({5, 19})},
         [](Graph&, In x) { return std::vector{softmax(x[0])}; },
         {8, 19}},
        {"softmax_grad",
         "softmax_grad",
         {f32({5, 19}), f32({5, 19})},
         [](Graph&, In x) {
             return std::vector{call1("softmax_grad", {x[0], softmax(x[1])})};
         },
         {16, 38}},
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
    return cases;
}

/// Of one row of statistics, and of several, one after another.
std::vector<OpCase> running_average_cases() {
    const auto average = [](Graph& g, In x) { return call(g, "running_average", x, {{"momentum", 0.1}}); };
    return {{"running_average", "running_average", {f32({19}), f32({19})}, average, {2, 4}},
            {"running_average", "running_average of three rows", {f32({19}), f32({3, 19})}, average, {2, 4}}};
}

/// Rows of images are added one after another; scales are known to some roundings of their own. Of 16 bits, y
/// between two numbers may become either: with beta added, it may be small beside what was rounded.
std::vector<OpCase> batch_norm_cases() {
    const Attributes epsilon{{"epsilon", 1e-5}};
    std::vector<OpCase> cases;
    for (const Shape& x : {Shape{2, 3, 5, 7}, Shape{37, 33}, Shape{1, 4}}) {
        const Operand images = f32(x), scale = f32({x[-1]});
        const double rows = static_cast<double>(x.elements() / x[-1]);
        const std::string note = fmt::format(" of {}", x.text());
        cases.push_back({"batch_norm",
                         "batch_norm" + note,
                         {images, scale, scale},
                         [=](Graph& g, In in) { return call(g, "batch_norm", in, epsilon); },
                         {8, rows, 2}});
        cases.push_back(
            {"batch_norm_grad",
             "batch_norm_grad" + note,
             {images, images, scale},
             [=](Graph& g, In in) {
                 const Tensor beta = constant(g, 0.0, in[2].dtype(), in[2].shape());
                 const auto y = call(g, "batch_norm", std::vector{in[1], in[2], beta}, epsilon);
                 return call(g, "batch_norm_grad", std::vector{in[0], in[1], in[2], y[1], y[3]}, epsilon);
             },
             {16, 2 * rows, 2}});
        cases.push_back({"moments",
                         "moments" + note,
                         {images},
                         [=](Graph& g, In in) { return call(g, "moments", in, epsilon); },
                         {8, rows}});
        cases.push_back({"normalize",
                         "normalize" + note,
                         {images, scale, scale, scale, f32({x[-1]}, Values::positive)},
                         [=](Graph& g, In in) { return call(g, "normalize", in, epsilon); },
                         {8, 4, 2}});
    }
    for (OpCase& each : running_average_cases()) cases.push_back(std::move(each));
    return cases;
}

/// A pool and its gradient. An average adds up a window and is divided once.
void add_pool_cases(std::vector<OpCase>& cases, const char* op, const char* note, Shape x,
                    const Attributes& attributes, double terms) {
    const std::string gradient = fmt::format("{}_grad", op);
    const auto pool = [=](Graph& g, In in) { return call(g, op, in, attributes); };
    cases.push_back({op, fmt::format("{} {}", op, note), {f32(x)}, pool, {1, terms}});
    cases.push_back(
        {gradient,
         fmt::format("{} {}", gradient, note),
         {f32(x), f32(x)},
         [=](Graph& g, In in) {
             const auto y = pool(g, {in[0]});
             const Attributes own = attributes.with("image", std::vector<std::int64_t>{x[1], x[2]});
             // A gradient of y's shape, made of the second operand.
             const auto dy = pool(g, {in[1]});
             std::vector<Tensor> operands{dy[0]};
             if (y.size() == 2) operands.push_back(y[1]);
             return call(g, gradient, operands, own);
         },
         // dy is stored before it is spread.
         {2, 3 * terms, 2}});
}

std::vector<OpCase> pool_cases() {
    using List = std::vector<std::int64_t>;
    const auto windows = [](List window, List stride, List padding) {
        return Attributes{
            {"window", std::move(window)}, {"stride", std::move(stride)}, {"padding", std::move(padding)}};
    };
    const Attributes overlapping = windows({3, 3}, {2, 2}, {1, 1, 1, 1}),
                     apart = windows({2, 1}, {3, 2}, {0, 1, 0, 0}),
                     whole = windows({2, 2}, {2, 2}, {0, 0, 0, 0});
    std::vector<OpCase> cases;
    for (const char* op : {"max_pool2d", "average_pool2d"}) {
        const bool is_max = std::string_view(op) == "max_pool2d";
        const auto add = [&](const char* note, Shape x, const Attributes& attributes) {
            add_pool_cases(cases, op, note, std::move(x),
                           is_max ? attributes : attributes.with("count_padding", false), is_max ? 0 : 9);
        };
        add("with overlaps and padding", {2, 7, 6, 5}, overlapping);
        add("with gaps", {1, 8, 5, 17}, apart);
        add("of whole windows", {2, 4, 6, 3}, whole);
    }
    cases.push_back({"max_pool2d",
                     "max_pool2d, which of infinities and NaN",
                     {f32({2, 7, 6, 5}, Values::finite_or_not)},
                     [=](Graph& g, In x) { return std::vector{call(g, "max_pool2d", x, overlapping)[1]}; }});
    add_pool_cases(cases, "average_pool2d", "that counts padding", {2, 7, 6, 5},
                   overlapping.with("count_padding", true), 9);
    add_pool_cases(cases, "adaptive_average_pool2d", "to fewer", {2, 7, 5, 4}, {{"extents", List{3, 2}}}, 9);
    add_pool_cases(cases, "adaptive_average_pool2d", "to more", {1, 2, 3, 4}, {{"extents", List{3, 7}}}, 9);
    return cases;
}

/// What of several ranks one makes alone.
const Attributes one_rank{{"ranks", std::int64_t{1}}, {"sum", std::int64_t{0}}};
OpCase exchange_case(const std::string& op) {
    return {op, op + " of one rank", {f32({7, 300}), f32({5})}, [op](Graph& g, In x) {
                return call(g, op, x, one_rank);
            }};
}

/// AdamW of so many parameters of unlike shapes, with copies, as the pass `join_updates` makes it.
OpCase joined_case(int parts, const Attributes& adamw) {
    std::vector<Operand> operands;
    for (int part = 0; part < parts; ++part) {
        const Shape shape = part % 3 == 0 ? Shape{5, 7} : part % 3 == 1 ? Shape{61 * part} : Shape{2, 3, 19};
        for (int i = 0; i < 3; ++i) operands.push_back(f32(shape));
        operands.push_back(f32(shape, Values::positive));
        operands.push_back(f32({}, Values::positive));
        operands.push_back({{DType::f64, {}}, Values::scalar_step});
        operands.push_back(f32({}, Values::positive));
        operands.push_back({{DType::boolean, {}}, Values::one});
        operands.push_back(f32(shape));
    }
    const Attributes joined = adamw.with("update", std::string("adamw")).with("parts", std::int64_t{parts});
    return {"joined_updates",
            fmt::format("{} joined updates", parts),
            std::move(operands),
            [joined](Graph& g, In x) { return call(g, "joined_updates", x, joined); },
            {8, 16}};
}

/// More than a launch of a GPU takes, one of them of several blocks.
std::vector<Operand> many_gradients() {
    std::vector<Operand> operands = {f32({37, 1103})};
    for (int i = 1; i < 180; ++i) operands.push_back(f32({i}));
    return operands;
}

std::vector<OpCase> update_cases() {
    const Attributes adamw{{"beta1", 0.9}, {"beta2", 0.95}, {"epsilon", 1e-8}, {"weight_decay", 0.1}};
    return {
        {"global_norm",
         "global_norm",
         {f32({7, 3}), f32({5})},
         [](Graph& g, In x) { return call(g, "global_norm", x); },
         {4, 26}},
        {"global_norm",
         "global_norm of many gradients",
         many_gradients(),
         [](Graph& g, In x) { return call(g, "global_norm", x); },
         {4, 26}},
        {"global_norm",
         "global_norm of a bad gradient",
         {f32({7, 3}, Values::finite_or_not)},
         [](Graph& g, In x) { return std::vector{call(g, "global_norm", x)[1]}; }},
        {"tree_add",
         "tree_add",
         {f32({7, 3}), f32({7, 3})},
         [](Graph& g, In x) { return call(g, "tree_add", x); },
         {1}},
        exchange_case("all_reduce_start"),
        exchange_case("all_reduce_wait"),
        exchange_case("reduce_scatter_start"),
        exchange_case("reduce_scatter_wait"),
        exchange_case("all_gather_rows_start"),
        exchange_case("all_gather_wait"),
        {"own_part",
         "own_part of one rank",
         {f32({7, 300})},
         [](Graph& g, In x) { return call(g, "own_part", x, one_rank); }},
        {"all_gather_start",
         "all_gather_start of one rank",
         {f32({3072}), f32({1024})},
         [](Graph& g, In x) {
             return call(g, "all_gather_start", x,
                         one_rank.with("shapes", std::vector<std::int64_t>{2, 7, 300, 1, 1024}));
         }},
        {"norm_of_parts",
         "norm_of_parts of one rank",
         {f32({3072}), f32({7, 3})},
         [](Graph& g, In x) {
             return call(g, "norm_of_parts", x,
                         one_rank.with("elements", std::vector<std::int64_t>{3072, 0}));
         },
         {4}},
        {"adamw",
         "adamw",
         {f32({5, 7}),
          f32({5, 7}),
          f32({5, 7}),
          f32({5, 7}, Values::positive),
          f32({}, Values::positive),
          {{DType::f64, {}}, Values::scalar_step},
          f32({}, Values::positive),
          {{DType::boolean, {}}, Values::one}},
         [=](Graph& g, In x) { return call(g, "adamw", x, adamw); },
         {8, 16}},
        {"adamw",
         "adamw with a copy",
         {f32({5, 7}),
          f32({5, 7}),
          f32({5, 7}),
          f32({5, 7}, Values::positive),
          f32({}, Values::positive),
          {{DType::f64, {}}, Values::scalar_step},
          f32({}, Values::positive),
          {{DType::boolean, {}}, Values::one},
          f32({5, 7})},
         [=](Graph& g, In x) { return call(g, "adamw", x, adamw); },
         {8, 16}},
        joined_case(2, adamw),
        joined_case(75, adamw),
    };
}

/// parameter, gradient, buffer, learning rate, gradient scale, apply; in some a copy. Five iterations take
/// small singular values, and what was rounded in them, some hundredfold: few enough here that a rounding
/// stays below a thousandth of a unit.
std::vector<OpCase> muon_cases() {
    std::vector<OpCase> all;
    for (const Shape& p : {Shape{3, 7}, Shape{6, 4}, Shape{5, 5}})
        for (const bool copies : {false, true}) {
            std::vector<Operand> operands = {f32(p),
                                             f32(p),
                                             f32(p),
                                             f32({}, Values::positive),
                                             f32({}, Values::positive),
                                             {{DType::boolean, {}}, Values::one}};
            if (copies) operands.push_back(f32(p));
            const Attributes attributes{
                {"epsilon", 1e-7},    {"format", std::string("f32")}, {"iterations", std::int64_t{5}},
                {"momentum", 0.9},    {"nesterov", copies},           {"rate_factor", 1.5},
                {"weight_decay", 0.1}};
            all.push_back({"muon",
                           fmt::format("muon of {}{}", p.text(), copies ? " with a copy" : ""),
                           std::move(operands),
                           [=](Graph& g, In x) { return call(g, "muon", x, attributes); },
                           {8, 16}});
        }
    return all;
}

/// parameter, gradient, learning rate, gradient scale, apply, and with momentum buffer and step; in some a
/// copy.
std::vector<OpCase> sgd_cases() {
    struct Setting {
        const char* name;
        Attributes attributes;
        bool copies = false;
        Values step = Values::scalar_step;  ///< the third
    };
    const auto attributes = [](double momentum, double dampening, bool nesterov, double weight_decay) {
        return Attributes{{"momentum", momentum},
                          {"dampening", dampening},
                          {"nesterov", nesterov},
                          {"weight_decay", weight_decay}};
    };
    std::vector<OpCase> all;
    for (const Setting& setting : std::initializer_list<Setting>{
             {"sgd", attributes(0, 0, false, 0)},
             {"sgd with decay and a copy", attributes(0, 0, false, 0.1), true},
             {"sgd with momentum", attributes(0.9, 0, false, 0)},
             {"sgd dampened", attributes(0.9, 0.4, false, 0.1), true},
             {"sgd dampened, first step", attributes(0.9, 0.4, false, 0.1), false, Values::one},
             {"sgd with Nesterov's momentum", attributes(0.9, 0, true, 0.1), true}}) {
        std::vector<Operand> operands = {f32({5, 7}),
                                         f32({5, 7}),
                                         f32({}, Values::positive),
                                         f32({}, Values::positive),
                                         {{DType::boolean, {}}, Values::one}};
        if (setting.attributes.number("momentum") > 0) {
            operands.push_back(f32({5, 7}));
            operands.push_back({{DType::f64, {}}, setting.step});
        }
        if (setting.copies) operands.push_back(f32({5, 7}));
        // At most nine roundings one after another, of sums of up to four terms.
        all.push_back({"sgd",
                       setting.name,
                       operands,
                       [a = setting.attributes](Graph& g, In x) { return call(g, "sgd", x, a); },
                       {8, 16}});
    }
    return all;
}

}  // namespace

std::vector<OpCase> op_cases() {
    std::vector<OpCase> all;
    for (auto cases : {source_cases(),
                       elementwise_cases(),
                       function_cases(),
                       movement_cases(),
                       axis_cases(),
                       reduction_cases(),
                       contraction_cases(),
                       convolution_cases(),
                       quantized_cases(),
                       attention_cases(),
                       cross_entropy_cases(),
                       soft_loss_cases(),
                       ignoring_cross_entropy_cases(),
                       linear_cross_entropy_cases(),
                       composite_cases(),
                       activation_cases(),
                       batch_norm_cases(),
                       pool_cases(),
                       update_cases(),
                       sgd_cases(),
                       muon_cases()})
        all.insert(all.end(), cases.begin(), cases.end());
    return all;
}

}  // namespace mantissa::testing
