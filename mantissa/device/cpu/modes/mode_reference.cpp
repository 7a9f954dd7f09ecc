// The matrix modes, one product after another, from the definitions of their formats.
#include "mantissa/base/buffer.h"
#include "mantissa/base/error.h"
#include "mantissa/device/cpu/modes/matrix_mode.h"
#include "mantissa/device/cpu/modes/pack_mode.h"
#include "mantissa/device/cpu/sparse.h"
#include "mantissa/numerics/formats.h"
#include "mantissa/numerics/integer_formats.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// The product of number k of a row of each operand.
template <class Number>
using Product = Number (*)(const void* a, const void* b, std::int64_t k);

double product_f64(const void* a, const void* b, std::int64_t k) {
    return static_cast<const double*>(a)[k] * static_cast<const double*>(b)[k];
}
std::int64_t product_s8(const void* a, const void* b, std::int64_t k) {
    return static_cast<const std::int8_t*>(a)[k] * static_cast<const std::int8_t*>(b)[k];
}
std::int64_t product_s4(const void* a, const void* b, std::int64_t k) {
    return s4_at(static_cast<const std::uint8_t*>(a), k) * s4_at(static_cast<const std::uint8_t*>(b), k);
}
std::int64_t product_xor(const void* a, const void* b, std::int64_t k) {
    return b1_at(static_cast<const std::uint8_t*>(a), k) != b1_at(static_cast<const std::uint8_t*>(b), k);
}
std::int64_t product_and(const void* a, const void* b, std::int64_t k) {
    return b1_at(static_cast<const std::uint8_t*>(a), k) && b1_at(static_cast<const std::uint8_t*>(b), k);
}

/// Rows are `row_bytes` long. `Out` is what c and d hold.
template <class Out, class Number>
void sum_products(const ModeProblem& problem, const ModeArguments& arguments, std::int64_t row_bytes,
                  Product<Number> product) {
    const auto* const a = static_cast<const std::byte*>(arguments.a);
    const auto* const b = static_cast<const std::byte*>(arguments.b);
    for (std::int64_t i = 0; i < problem.m; ++i)
        for (std::int64_t j = 0; j < problem.n; ++j) {
            const std::int64_t at = i * problem.n + j;
            Number sum = 0;
            for (std::int64_t k = 0; k < problem.k; ++k)
                sum += product(a + i * row_bytes, b + j * row_bytes, k);
            if (arguments.c) sum += static_cast<Number>(static_cast<const Out*>(arguments.c)[at]);
            static_cast<Out*>(arguments.d)[at] = static_cast<Out>(sum);
        }
}

/// FP64 holds the sum of an FP16 number and the product of two, but where one is so small beside the other
/// that it decides no rounding; so each sum here is rounded once.
void sum_f16(const ModeProblem& problem, const ModeArguments& arguments) {
    for (std::int64_t i = 0; i < problem.m; ++i)
        for (std::int64_t j = 0; j < problem.n; ++j) {
            double sum = 0;
            for (std::int64_t k = 0; k < problem.k; ++k)
                sum = rounded_to(sum + load_as_f64(arguments.a, DType::f16, i * problem.k + k) *
                                           load_as_f64(arguments.b, DType::f16, j * problem.k + k),
                                 DType::f16);
            if (arguments.c) sum += load_as_f64(arguments.c, DType::f16, i * problem.n + j);
            store_from_f64(arguments.d, DType::f16, i * problem.n + j, sum);
        }
}

}  // namespace

void multiply_reference(const ModeProblem& problem, const ModeArguments& arguments) {
    if (const std::string reason = refusal(problem); !reason.empty()) throw UserError(reason);
    if (problem.first == FirstOperand::two_of_four) {
        const SparseFormat format = sparse_format_of(problem.mode);
        const SparseSizes of_row = sparse_sizes(format, 1, problem.k);
        Buffer dense(sparse_sizes(format, problem.m, problem.k).dense);
        for (std::int64_t row = 0; row < problem.m; ++row) {
            const auto place = static_cast<std::size_t>(row);
            decompress_row(format, static_cast<const std::byte*>(arguments.a) + place * of_row.values,
                           arguments.positions + place * of_row.positions, problem.k,
                           dense.data() + place * of_row.dense);
        }
        ModeProblem same = problem;
        same.first = FirstOperand::dense;
        ModeArguments with = arguments;
        with.a = dense.data();
        return multiply_reference(same, with);
    }
    switch (problem.mode) {
        case MatrixMode::f64:
            return sum_products<double>(problem, arguments, 8 * problem.k, product_f64);
        case MatrixMode::f16:
            return sum_f16(problem, arguments);
        case MatrixMode::s8:
            return sum_products<std::int32_t>(problem, arguments, problem.k, product_s8);
        case MatrixMode::s4:
            return sum_products<std::int32_t>(problem, arguments, problem.k / 2, product_s4);
        case MatrixMode::b1_exclusive_or:
            return sum_products<std::int32_t>(problem, arguments, problem.k / 8, product_xor);
        case MatrixMode::b1_conjunction:
            return sum_products<std::int32_t>(problem, arguments, problem.k / 8, product_and);
    }
}

}  // namespace mantissa::on_cpu
