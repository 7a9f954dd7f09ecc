// Element-wise primitives on the CPU, over merged axes: FP32, BF16 and FP16 by the row kernels' vectors,
// everything else by plain loops.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "mantissa/base/error.h"
#include "mantissa/device/cpu/kernels/kernels.h"
#include "mantissa/device/cpu/kernels/scalar.h"
#include "mantissa/device/cpu/kernels/strided_loops.h"
#include "mantissa/device/cpu/rows/partition.h"
#include "mantissa/device/cpu/rows/rows.h"
#include "mantissa/numerics/formats.h"
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
// not come here.

template <class In, class Out, class Function>
Launch unary(const Problem& problem, const Context& context, Function function) {
    return [loops = make_loops(problem), &pool = context.pool, function](const Operands& operands) {
        const In* x = operands.input<In>(0);
        Out* y = operands.output<Out>(0);
        const std::int64_t step = loops->inner.strides[0];
        loops->for_each_piece(pool, [&](const StridedLoops::Strides& start, std::int64_t count) {
            for (std::int64_t i = 0; i < count; ++i)
                y[start[1] + i] = stored_as<Out>(function(number(x[start[0] + i * step])));
        });
    };
}

template <class A, class B, class Out, class Function>
Launch binary(const Problem& problem, const Context& context, Function function) {
    return [loops = make_loops(problem), &pool = context.pool, function](const Operands& operands) {
        const A* x = operands.input<A>(0);
        const B* z = operands.input<B>(1);
        Out* y = operands.output<Out>(0);
        const std::int64_t x_step = loops->inner.strides[0], z_step = loops->inner.strides[1];
        loops->for_each_piece(pool, [&](const StridedLoops::Strides& start, std::int64_t count) {
            for (std::int64_t i = 0; i < count; ++i)
                y[start[2] + i] = stored_as<Out>(
                    function(number(x[start[0] + i * x_step]), number(z[start[1] + i * z_step])));
        });
    };
}

template <class T>
Launch select(const Problem& problem, const Context& context) {
    return [loops = make_loops(problem), &pool = context.pool](const Operands& operands) {
        const bool* condition = operands.input<bool>(0);
        const T *x = operands.input<T>(1), *z = operands.input<T>(2);
        T* y = operands.output<T>(0);
        const auto& step = loops->inner.strides;
        loops->for_each_piece(pool, [&](const StridedLoops::Strides& start, std::int64_t count) {
            for (std::int64_t i = 0; i < count; ++i)
                y[start[3] + i] =
                    condition[start[0] + i * step[0]] ? x[start[1] + i * step[1]] : z[start[2] + i * step[2]];
        });
    };
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

const std::byte* element(const std::byte* data, DType dtype, std::int64_t index) {
    return data + index * static_cast<std::int64_t>(size_of(dtype));
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
            kernels.elementwise(p, stores);
        });
    };
}

void add_by_runs(KernelTable& table, const Context& context, const char* op, ElementwiseFunction function) {
    table[op].push_back(
        {.name = fmt::format("rows {}", row_kernels(context.isa).name),
         .refusal = refuse_unless_runs,
         .prepare = [=](const Problem& problem) { return by_runs(problem, context, function); }});
}

/// `function` is a generic callable: one kernel for every type it can be called with.
template <class Function>
void add_arithmetic(KernelTable& table, const Context& context, const char* op, ElementwiseFunction by_rows,
                    Function function) {
    add_by_runs(table, context, op, by_rows);
    table[op].push_back(
        {.name = "plain loop", .refusal = refuse_mixed, .prepare = [=](const Problem& problem) {
             return with_type(problem.inputs[0].dtype, [&](auto type) {
                 using T = decltype(type);
                 return binary<T, T, T>(problem, context, function);
             });
         }});
}

/// An FP32 number beside a tensor of 16 bits, on either side.
template <class T, class Function>
Launch compare_with_number(const Problem& problem, const Context& context, Function function) {
    if (problem.inputs[0].dtype == DType::f32) return binary<float, T, bool>(problem, context, function);
    return binary<T, float, bool>(problem, context, function);
}

template <class Function>
void add_comparison(KernelTable& table, const Context& context, const char* op, Function function) {
    table[op].push_back({.name = "plain loop", .prepare = [=](const Problem& problem) {
                             const DType a = problem.inputs[0].dtype, b = problem.inputs[1].dtype;
                             if (a == b)
                                 return with_type(a, [&](auto type) {
                                     using T = decltype(type);
                                     return binary<T, T, bool>(problem, context, function);
                                 });
                             if (a == DType::bf16 || b == DType::bf16)
                                 return compare_with_number<BF16>(problem, context, function);
                             return compare_with_number<FP16>(problem, context, function);
                         }});
}

/// Functions of one number of any type; FP32 and shorter by the row kernels.
template <class Function>
void add_function(KernelTable& table, const Context& context, const char* op, ElementwiseFunction by_rows,
                  Function function) {
    add_by_runs(table, context, op, by_rows);
    table[op].push_back({.name = "plain loop", .prepare = [=](const Problem& problem) {
                             return with_type(problem.inputs[0].dtype, [&](auto type) {
                                 using T = decltype(type);
                                 return unary<T, T>(problem, context, function);
                             });
                         }});
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
    table["cast"].push_back(
        {.name = fmt::format("rows {}", row_kernels(context.isa).name),
         .refusal = refuse,
         .prepare = [=](const Problem& problem) -> Launch {
             return [count = problem.outputs[0].shape.elements(), from = problem.inputs[0].dtype,
                     to = problem.outputs[0].dtype, &pool = context.pool,
                     &kernels = row_kernels(context.isa)](const Operands& o) {
                 cast(kernels, {.count = count, .x = {o.inputs[0], from}, .y = {o.outputs[0], to}}, pool);
             };
         }});
    table["cast"].push_back({.name = "plain loop", .prepare = [=](const Problem& problem) {
                                 return with_type(problem.inputs[0].dtype, [&](auto from) {
                                     return with_type(problem.outputs[0].dtype, [&](auto to) {
                                         return unary<decltype(from), decltype(to)>(problem, context,
                                                                                    [](auto x) { return x; });
                                     });
                                 });
                             }});
}

/// A number at a time: simulations need not be fast.
void add_rounding(KernelTable& table, const Context& context) {
    table["round_to"].push_back(
        {.name = "plain loop", .prepare = [=](const Problem& problem) -> Launch {
             const std::string& format = problem.attributes.word("format");
             if (format == "tf32") return unary<float, float>(problem, context, to_tf32);
             if (format == "bf16")
                 return unary<float, float>(problem, context, [](float x) { return to_f32(to_bf16(x)); });
             return unary<float, float>(problem, context, [](float x) { return to_f32(to_fp16(x)); });
         }});
}

/// Both are of floating-point numbers, and integers have no NaN: FP64 goes through its own functions.
auto in_floating_point(auto function) {
    return [function](auto x) {
        if constexpr (std::is_same_v<decltype(x), double>)
            return function(x);
        else
            return function(static_cast<float>(x));
    };
}

}  // namespace

void add_elementwise_kernels(KernelTable& table, const Context& context) {
    using enum ElementwiseFunction;
    const auto arithmetic = [&](const char* op, ElementwiseFunction by_rows, auto function) {
        add_arithmetic(table, context, op, by_rows, function);
    };
    arithmetic("add", add, [](auto a, auto b) { return a + b; });
    arithmetic("sub", subtract, [](auto a, auto b) { return a - b; });
    arithmetic("mul", multiply, [](auto a, auto b) { return a * b; });
    arithmetic("div", divide, [](auto a, auto b) { return a / b; });
    arithmetic("maximum", maximum, [](auto a, auto b) { return larger(a, b); });
    arithmetic("minimum", minimum, [](auto a, auto b) { return smaller(a, b); });
    add_comparison(table, context, "less", [](auto a, auto b) { return a < b; });
    add_comparison(table, context, "less_equal", [](auto a, auto b) { return a <= b; });
    add_comparison(table, context, "equal", [](auto a, auto b) { return a == b; });
    add_comparison(table, context, "logical_and", [](auto a, auto b) { return a && b; });
    const auto function = [&](const char* op, ElementwiseFunction by_rows, auto scalar) {
        add_function(table, context, op, by_rows, in_floating_point(scalar));
    };
    add_function(table, context, "neg", negate, [](auto x) { return -x; });
    function("exp", exp, [](auto x) { return std::exp(x); });
    function("log", log, [](auto x) { return std::log(x); });
    function("tanh", tanh, [](auto x) { return std::tanh(x); });
    function("erf", erf, [](auto x) { return std::erf(x); });
    function("sqrt", square_root, [](auto x) { return std::sqrt(x); });
    function("rsqrt", reciprocal_root, [](auto x) { return 1 / std::sqrt(x); });
    add_casts(table, context);
    add_rounding(table, context);
    add_by_runs(table, context, "select", ElementwiseFunction::select);
    table["select"].push_back(
        {.name = "plain loop", .refusal = refuse_mixed, .prepare = [=](const Problem& problem) {
             return with_type(problem.outputs[0].dtype,
                              [&](auto type) { return on_cpu::select<decltype(type)>(problem, context); });
         }});
    table["is_finite"].push_back({.name = "plain loop", .prepare = [=](const Problem& problem) {
                                      const auto finite =
                                          in_floating_point([](auto x) { return std::isfinite(x); });
                                      return with_type(problem.inputs[0].dtype, [&](auto type) {
                                          return unary<decltype(type), bool>(problem, context, finite);
                                      });
                                  }});
}

}  // namespace mantissa::on_cpu
