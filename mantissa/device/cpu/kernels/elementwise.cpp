// Element-wise primitives on the CPU, over merged axes: FP32, BF16 and FP16 by the row kernels' vectors,
// everything else by plain loops.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <memory>

#include "mantissa/device/cpu/kernels/kernels.h"
#include "mantissa/device/cpu/kernels/strided_loops.h"
#include "mantissa/device/cpu/rows/partition.h"
#include "mantissa/device/cpu/rows/rows.h"
#include "mantissa/numerics/formats.h"
#include "mantissa/numerics/scalar.h"
#include "mantissa/numerics/tf32.h"

namespace mantissa::inline v0::on_cpu {

namespace {

std::shared_ptr<const StridedLoops> make_loops(const Problem& problem) {
    const Shape& shape = problem.outputs[0].shape;
    std::vector<std::vector<std::int64_t>> strides;
    for (const Type& input : problem.inputs) strides.push_back(broadcast_strides(input.shape, shape));
    strides.push_back(shape.strides());
    return std::make_shared<const StridedLoops>(shape.extents(), strides);
}

// The plain loops take any strides and are not specialised for them: what is large and FP32 or shorter does
// not come here. There are some two hundred of them, by function and type, so each is a plain function and
// what surrounds them is written once: with a launch of its own each, this file took twenty seconds to
// compile.

const std::byte* element(const std::byte* data, DType dtype, std::int64_t index) {
    return data + index * static_cast<std::int64_t>(size_of(dtype));
}

/// A run of dense results, and of each operand the first element and the elements from one to the next.
struct Run {
    std::array<const std::byte*, max_loop_operands - 1> operands{};
    std::array<std::int64_t, max_loop_operands - 1> steps{};
    std::byte* results = nullptr;
    std::int64_t count = 0;
};
using PlainLoop = void (*)(const Run&);

template <class T>
const T* operand(const Run& run, std::size_t i) {
    return reinterpret_cast<const T*>(run.operands[i]);
}

template <class Function, class In, class Out>
void unary(const Run& run) {
    const In* x = operand<In>(run, 0);
    Out* y = reinterpret_cast<Out*>(run.results);
    const std::int64_t count = run.count, step = run.steps[0];
    for (std::int64_t i = 0; i < count; ++i) y[i] = stored_as<Out>(Function{}(number(x[i * step])));
}

template <class Function, class A, class B, class Out>
void binary(const Run& run) {
    const A* x = operand<A>(run, 0);
    const B* z = operand<B>(run, 1);
    Out* y = reinterpret_cast<Out*>(run.results);
    const std::int64_t count = run.count, x_step = run.steps[0], z_step = run.steps[1];
    for (std::int64_t i = 0; i < count; ++i)
        y[i] = stored_as<Out>(Function{}(number(x[i * x_step]), number(z[i * z_step])));
}

template <class T>
void select(const Run& run) {
    const bool* condition = operand<bool>(run, 0);
    const T *x = operand<T>(run, 1), *z = operand<T>(run, 2);
    T* y = reinterpret_cast<T*>(run.results);
    const std::int64_t count = run.count;
    const auto step = run.steps;
    for (std::int64_t i = 0; i < count; ++i) y[i] = condition[i * step[0]] ? x[i * step[1]] : z[i * step[2]];
}

Launch by_plain_loop(const Problem& problem, const Context& context, PlainLoop loop) {
    std::vector<DType> dtypes;
    for (const Type& type : problem.inputs) dtypes.push_back(type.dtype);
    return [loops = make_loops(problem), &pool = context.pool, loop, dtypes,
            dtype = problem.outputs[0].dtype](const Operands& o) {
        loops->for_each_piece(pool, [&](const StridedLoops::Strides& start, std::int64_t count) {
            Run run;
            for (std::size_t i = 0; i < dtypes.size(); ++i) {
                run.operands[i] = element(o.inputs[i], dtypes[i], start[i]);
                run.steps[i] = loops->inner.strides[i];
            }
            run.results = o.outputs[0] + start[dtypes.size()] * static_cast<std::int64_t>(size_of(dtype));
            run.count = count;
            loop(run);
        });
    };
}

/// `choose` gives the loop of a problem's types.
Kernel plain_loop(const Context& context, PlainLoop (*choose)(const Problem&),
                  std::string (*refuse)(const Problem&) = nullptr) {
    return kernel_of(
        "plain loop",
        [=](const Problem& problem) { return by_plain_loop(problem, context, choose(problem)); }, refuse);
}

bool is_vector_format(DType dtype) {
    return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}

/// The row kernels take dense runs of FP32, BF16 and FP16, mixed at will.
std::string refuse_unless_runs(const Problem& problem) {
    const std::size_t first = problem.inputs[0].dtype == DType::boolean ? 1 : 0;
    for (std::size_t i = first; i < problem.inputs.size(); ++i)
        if (!is_vector_format(problem.inputs[i].dtype))
            return fmt::format("it computes in f32, got {}", problem.inputs[i].text());
    if (!is_vector_format(problem.outputs[0].dtype))
        return fmt::format("it computes in f32, got {}", problem.outputs[0].text());
    const std::shared_ptr<const StridedLoops> loops = make_loops(problem);
    for (std::size_t i = 0; i < problem.inputs.size(); ++i)
        if (loops->inner.strides[i] > 1) return fmt::format("operand {} is not dense along the last axis", i);
    return "";
}

/// The plain loops have one type for all operands.
std::string refuse_mixed(const Problem& problem) {
    const std::size_t first = problem.inputs[0].dtype == DType::boolean && problem.inputs.size() == 3 ? 1 : 0;
    for (std::size_t i = first; i < problem.inputs.size(); ++i)
        if (problem.inputs[i].dtype != problem.inputs[first].dtype)
            return fmt::format("its operands have one type, got {} and {}", problem.inputs[first].text(),
                               problem.inputs[i].text());
    return "";
}

/// A function by the row kernels. A condition, if there is one, is the first operand.
Launch by_runs(const Problem& problem, const Context& context, ElementwiseFunction function) {
    std::vector<DType> dtypes;
    for (const Type& type : problem.inputs) dtypes.push_back(type.dtype);
    const Type& y = problem.outputs[0];
    // Large outputs are not read again from a cache; one written over its operand is in the cache already.
    const bool large = y.bytes() >= streaming_bytes;
    return [loops = make_loops(problem), &pool = context.pool, &kernels = row_kernels(context.isa), function,
            dtypes, dtype = y.dtype, large](const Operands& o) {
        const std::size_t first = dtypes[0] == DType::boolean ? 1 : 0;
        bool in_place = false;
        for (const std::byte* input : o.inputs) in_place = in_place || input == o.outputs[0];
        const Stores stores = large && !in_place ? Stores::streaming : Stores::plain;
        loops->for_each_piece(pool, [&](const StridedLoops::Strides& start, std::int64_t count) {
            Elementwise p{.function = function, .count = count};
            for (std::size_t i = first; i < dtypes.size(); ++i)
                p.operands[i - first] = {{element(o.inputs[i], dtypes[i], start[i]), dtypes[i]},
                                         loops->inner.strides[i] == 0};
            if (first == 1) {
                p.condition = o.input<bool>(0) + start[0];
                p.condition_repeats = loops->inner.strides[0] == 0;
            }
            p.y = {o.outputs[0] + start[dtypes.size()] * static_cast<std::int64_t>(size_of(dtype)), dtype};
            kernels.element.elementwise(p, stores);
        });
    };
}

void add_by_runs(KernelTable& table, const Context& context, const char* op, ElementwiseFunction function) {
    table[op].push_back(kernel_of(
        fmt::format("rows {}", row_kernels(context.isa).name),
        [=](const Problem& problem) { return by_runs(problem, context, function); }, refuse_unless_runs));
}

// `Function` is a callable without state, for every type that it is given a number of.

template <class Function>
PlainLoop loop_of_function(const Problem& problem) {
    return with_type(problem.inputs[0].dtype, [](auto type) -> PlainLoop {
        using T = decltype(type);
        return unary<Function, T, T>;
    });
}

template <class Function>
PlainLoop loop_of_arithmetic(const Problem& problem) {
    return with_type(problem.inputs[0].dtype, [](auto type) -> PlainLoop {
        using T = decltype(type);
        return binary<Function, T, T, T>;
    });
}

/// An FP32 number may stand beside a tensor of 16 bits, on either side.
template <class Function>
PlainLoop loop_of_comparison(const Problem& problem) {
    const DType a = problem.inputs[0].dtype, b = problem.inputs[1].dtype;
    if (a == b)
        return with_type(a, [](auto type) -> PlainLoop {
            using T = decltype(type);
            return binary<Function, T, T, bool>;
        });
    if (a == DType::bf16) return binary<Function, BF16, float, bool>;
    if (b == DType::bf16) return binary<Function, float, BF16, bool>;
    return a == DType::f32 ? binary<Function, float, FP16, bool> : binary<Function, FP16, float, bool>;
}

/// NaN wins.
template <class T>
T larger(T a, T b) {
    return a != a || a > b ? a : b;
}
template <class T>
T smaller(T a, T b) {
    return a != a || a < b ? a : b;
}

/// Between FP32, BF16 and FP16 by the row kernels; the rest by a plain loop.
void add_casts(KernelTable& table, const Context& context) {
    const auto refuse = [](const Problem& problem) -> std::string {
        if (problem.outputs[0].shape.elements() == 0) return "it needs one element or more";
        const bool takes =
            is_vector_format(problem.inputs[0].dtype) && is_vector_format(problem.outputs[0].dtype);
        return takes ? "" : "it casts between f32, bf16 and f16";
    };
    const auto prepare = [=](const Problem& problem) -> Launch {
        return [count = problem.outputs[0].shape.elements(), from = problem.inputs[0].dtype,
                to = problem.outputs[0].dtype, &pool = context.pool,
                &kernels = row_kernels(context.isa)](const Operands& o) {
            cast(kernels, {.count = count, .x = {o.inputs[0], from}, .y = {o.outputs[0], to}}, pool);
        };
    };
    table["cast"].push_back(
        kernel_of(fmt::format("rows {}", row_kernels(context.isa).name), prepare, refuse));
    table["cast"].push_back(plain_loop(context, [](const Problem& problem) {
        return with_type(problem.inputs[0].dtype, [&](auto from) {
            return with_type(problem.outputs[0].dtype, [](auto to) -> PlainLoop {
                const auto same = [](auto x) { return x; };
                return unary<decltype(same), decltype(from), decltype(to)>;
            });
        });
    }));
}

/// A number at a time: emulations need not be fast.
PlainLoop loop_of_rounding(const Problem& problem) {
    const auto by_tf32 = [](float x) { return to_tf32(x); };
    const auto by_bf16 = [](float x) { return to_f32(to_bf16(x)); };
    const auto by_fp16 = [](float x) { return to_f32(to_fp16(x)); };
    const std::string& format = problem.attributes.word("format");
    if (format == "tf32") return unary<decltype(by_tf32), float, float>;
    if (format == "bf16") return unary<decltype(by_bf16), float, float>;
    return unary<decltype(by_fp16), float, float>;
}

/// A function of floating-point numbers, which others become first: FP64 goes through its own functions.
template <class Function>
struct InFloatingPoint {
    auto operator()(auto x) const {
        if constexpr (std::is_same_v<decltype(x), double>)
            return Function{}(x);
        else
            return Function{}(static_cast<float>(x));
    }
};

PlainLoop loop_of_is_finite(const Problem& problem) {
    const auto finite = [](auto x) { return std::isfinite(x); };
    return with_type(problem.inputs[0].dtype, [](auto type) -> PlainLoop {
        return unary<InFloatingPoint<decltype(finite)>, decltype(type), bool>;
    });
}

}  // namespace

void add_elementwise_kernels(KernelTable& table, const Context& context) {
    using enum ElementwiseFunction;
    const auto arithmetic = [&](const char* op, ElementwiseFunction by_rows, auto function) {
        add_by_runs(table, context, op, by_rows);
        table[op].push_back(plain_loop(context, loop_of_arithmetic<decltype(function)>, refuse_mixed));
    };
    arithmetic("add", add, [](auto a, auto b) { return a + b; });
    arithmetic("sub", subtract, [](auto a, auto b) { return a - b; });
    arithmetic("mul", multiply, [](auto a, auto b) { return a * b; });
    arithmetic("div", divide, [](auto a, auto b) { return a / b; });
    arithmetic("maximum", maximum, [](auto a, auto b) { return larger(a, b); });
    arithmetic("minimum", minimum, [](auto a, auto b) { return smaller(a, b); });
    const auto comparison = [&](const char* op, auto function) {
        table[op].push_back(plain_loop(context, loop_of_comparison<decltype(function)>));
    };
    comparison("less", [](auto a, auto b) { return a < b; });
    comparison("less_equal", [](auto a, auto b) { return a <= b; });
    comparison("equal", [](auto a, auto b) { return a == b; });
    comparison("logical_and", [](auto a, auto b) { return a && b; });
    add_by_runs(table, context, "neg", negate);
    const auto negative = [](auto x) { return -x; };
    table["neg"].push_back(plain_loop(context, loop_of_function<decltype(negative)>));
    const auto function = [&](const char* op, ElementwiseFunction by_rows, auto scalar) {
        add_by_runs(table, context, op, by_rows);
        table[op].push_back(plain_loop(context, loop_of_function<InFloatingPoint<decltype(scalar)>>));
    };
    function("exp", exp, [](auto x) { return std::exp(x); });
    function("log", log, [](auto x) { return std::log(x); });
    function("tanh", tanh, [](auto x) { return std::tanh(x); });
    function("erf", erf, [](auto x) { return std::erf(x); });
    function("sin", sin, [](auto x) { return std::sin(x); });
    function("cos", cos, [](auto x) { return std::cos(x); });
    function("sqrt", square_root, [](auto x) { return std::sqrt(x); });
    function("rsqrt", reciprocal_root, [](auto x) { return 1 / std::sqrt(x); });
    add_casts(table, context);
    table["round_to"].push_back(plain_loop(context, loop_of_rounding));
    table["is_finite"].push_back(plain_loop(context, loop_of_is_finite));
    add_by_runs(table, context, "select", ElementwiseFunction::select);
    const auto loop_of_select = [](const Problem& problem) {
        return with_type(problem.outputs[0].dtype,
                         [](auto type) -> PlainLoop { return on_cpu::select<decltype(type)>; });
    };
    table["select"].push_back(plain_loop(context, loop_of_select, refuse_mixed));
}

}  // namespace mantissa::on_cpu
