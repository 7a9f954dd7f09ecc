// Element-wise primitives on the CPU: plain loops over merged axes, vectorised by the compiler.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "mantissa/base/error.h"
#include "mantissa/device/cpu/kernels/kernels.h"
#include "mantissa/device/cpu/kernels/walk.h"

namespace mantissa::cpu {

std::string refuse_unless_f32(const Problem& problem) {
    const auto refuse = [](const Type& type) { return is_floating(type.dtype) && type.dtype != DType::f32; };
    for (std::span<const Type> types : {problem.inputs, problem.outputs})
        for (const Type& type : types)
            if (refuse(type)) return fmt::format("it is written for f32, got {}", type.text());
    return "";
}

namespace {

std::shared_ptr<const Walk> make_walk(const Problem& problem) {
    const Shape& shape = problem.outputs[0].shape;
    std::vector<std::vector<std::int64_t>> strides;
    for (const Type& input : problem.inputs) strides.push_back(broadcast_strides(input.shape, shape));
    strides.push_back(shape.strides());
    return std::make_shared<const Walk>(shape.extents(), strides);
}

/// Lets `body(a)` run with the stride of an operand known to the compiler: 1, or 0 for a repeated element.
template <class T, class Body>
void with_stride(const T* data, std::int64_t stride, Body&& body) {
    if (stride == 0)
        body([value = *data](std::int64_t) { return value; });
    else if (stride == 1)
        body([data](std::int64_t i) { return data[i]; });
    else
        body([data, stride](std::int64_t i) { return data[i * stride]; });
}

template <class In, class Out, class Function>
Launch unary(const Problem& problem, const Context& context, Function function) {
    return [walk = make_walk(problem), &pool = context.pool, function](const Operands& operands) {
        const In* x = operands.input<In>(0);
        Out* y = operands.output<Out>(0);
        walk->for_each_piece(pool, [&](const Walk::Strides& start, std::int64_t count) {
            Out* target = y + start[1];
            with_stride(x + start[0], walk->inner.strides[0], [&](auto a) {
                for (std::int64_t i = 0; i < count; ++i) target[i] = static_cast<Out>(function(a(i)));
            });
        });
    };
}

template <class In, class Out, class Function>
Launch binary(const Problem& problem, const Context& context, Function function) {
    return [walk = make_walk(problem), &pool = context.pool, function](const Operands& operands) {
        const In *x = operands.input<In>(0), *z = operands.input<In>(1);
        Out* y = operands.output<Out>(0);
        walk->for_each_piece(pool, [&](const Walk::Strides& start, std::int64_t count) {
            Out* target = y + start[2];
            with_stride(x + start[0], walk->inner.strides[0], [&](auto a) {
                with_stride(z + start[1], walk->inner.strides[1], [&](auto b) {
                    for (std::int64_t i = 0; i < count; ++i)
                        target[i] = static_cast<Out>(function(a(i), b(i)));
                });
            });
        });
    };
}

template <class T>
Launch select(const Problem& problem, const Context& context) {
    return [walk = make_walk(problem), &pool = context.pool](const Operands& operands) {
        const bool* condition = operands.input<bool>(0);
        const T *x = operands.input<T>(1), *z = operands.input<T>(2);
        T* y = operands.output<T>(0);
        walk->for_each_piece(pool, [&](const Walk::Strides& start, std::int64_t count) {
            T* target = y + start[3];
            with_stride(condition + start[0], walk->inner.strides[0], [&](auto c) {
                with_stride(x + start[1], walk->inner.strides[1], [&](auto a) {
                    with_stride(z + start[2], walk->inner.strides[2], [&](auto b) {
                        for (std::int64_t i = 0; i < count; ++i) target[i] = c(i) ? a(i) : b(i);
                    });
                });
            });
        });
    };
}

/// Calls `body(T{})` with the C++ type of a storage type; the result of `otherwise` for those without
/// arithmetic.
template <class Body>
auto with_type(DType dtype, Body&& body) -> decltype(body(float{})) {
    switch (dtype) {
        case DType::f32:
            return body(float{});
        case DType::f64:
            return body(double{});
        case DType::i32:
            return body(std::int32_t{});
        case DType::i64:
            return body(std::int64_t{});
        case DType::u8:
            return body(std::uint8_t{});
        case DType::boolean:
            return body(bool{});
        case DType::f16:
        case DType::bf16:
            break;
    }
    throw InternalError("a kernel refuses the types that it has no arithmetic for");
}

std::string refuse_sixteen_bit(const Problem& problem) {
    for (std::span<const Type> types : {problem.inputs, problem.outputs})
        for (const Type& type : types)
            if (type.dtype == DType::f16 || type.dtype == DType::bf16)
                return fmt::format("it has no arithmetic in {}", name_of(type.dtype));
    return "";
}

/// `function` is a generic callable: one kernel for every type it can be called with.
template <class Function>
void add_arithmetic(KernelTable& table, const Context& context, const char* op, Function function) {
    table[op].push_back(
        {.name = "plain loop", .refusal = refuse_sixteen_bit, .prepare = [=](const Problem& problem) {
             return with_type(problem.inputs[0].dtype, [&](auto type) {
                 using T = decltype(type);
                 return binary<T, T>(problem, context, function);
             });
         }});
}

template <class Function>
void add_comparison(KernelTable& table, const Context& context, const char* op, Function function) {
    table[op].push_back(
        {.name = "plain loop", .refusal = refuse_sixteen_bit, .prepare = [=](const Problem& problem) {
             return with_type(problem.inputs[0].dtype, [&](auto type) {
                 return binary<decltype(type), bool>(problem, context, function);
             });
         }});
}

/// Functions of one floating-point number.
template <class Function>
void add_function(KernelTable& table, const Context& context, const char* op, Function function) {
    table[op].push_back(
        {.name = "plain loop", .refusal = refuse_sixteen_bit, .prepare = [=](const Problem& problem) {
             if (problem.inputs[0].dtype == DType::f64)
                 return unary<double, double>(problem, context, function);
             check(problem.inputs[0].dtype == DType::f32, "functions are of floating-point numbers");
             return unary<float, float>(problem, context, function);
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

void add_casts(KernelTable& table, const Context& context) {
    table["cast"].push_back(
        {.name = "plain loop", .refusal = refuse_sixteen_bit, .prepare = [=](const Problem& problem) {
             return with_type(problem.inputs[0].dtype, [&](auto from) {
                 return with_type(problem.outputs[0].dtype, [&](auto to) {
                     return unary<decltype(from), decltype(to)>(problem, context, [](auto x) { return x; });
                 });
             });
         }});
}

}  // namespace

void add_elementwise_kernels(KernelTable& table, const Context& context) {
    add_arithmetic(table, context, "add", [](auto a, auto b) { return a + b; });
    add_arithmetic(table, context, "sub", [](auto a, auto b) { return a - b; });
    add_arithmetic(table, context, "mul", [](auto a, auto b) { return a * b; });
    add_arithmetic(table, context, "div", [](auto a, auto b) { return a / b; });
    add_arithmetic(table, context, "maximum", [](auto a, auto b) { return larger(a, b); });
    add_arithmetic(table, context, "minimum", [](auto a, auto b) { return smaller(a, b); });
    add_comparison(table, context, "less", [](auto a, auto b) { return a < b; });
    add_comparison(table, context, "less_equal", [](auto a, auto b) { return a <= b; });
    add_comparison(table, context, "equal", [](auto a, auto b) { return a == b; });
    add_comparison(table, context, "logical_and", [](auto a, auto b) { return a && b; });
    add_function(table, context, "neg", [](auto x) { return -x; });
    add_function(table, context, "exp", [](auto x) { return std::exp(x); });
    add_function(table, context, "log", [](auto x) { return std::log(x); });
    add_function(table, context, "tanh", [](auto x) { return std::tanh(x); });
    add_function(table, context, "erf", [](auto x) { return std::erf(x); });
    add_function(table, context, "sqrt", [](auto x) { return std::sqrt(x); });
    add_function(table, context, "rsqrt", [](auto x) { return 1 / std::sqrt(x); });
    add_casts(table, context);
    table["select"].push_back(
        {.name = "plain loop", .refusal = refuse_sixteen_bit, .prepare = [=](const Problem& problem) {
             return with_type(problem.outputs[0].dtype,
                              [&](auto type) { return select<decltype(type)>(problem, context); });
         }});
    table["is_finite"].push_back(
        {.name = "plain loop", .refusal = refuse_sixteen_bit, .prepare = [=](const Problem& problem) {
             const auto finite = [](auto x) { return std::isfinite(x); };
             return problem.inputs[0].dtype == DType::f64 ? unary<double, bool>(problem, context, finite)
                                                          : unary<float, bool>(problem, context, finite);
         }});
}

}  // namespace mantissa::cpu
