// The rate of a mode of multiplying matrices on matrices in memory, packing and storing included: the modes
// that models run in, contractions and products of bytes.
#include <algorithm>
#include <cstring>
#include <functional>

#include "mantissa/base/buffer.h"
#include "mantissa/base/clock.h"
#include "mantissa/device/cpu/contraction/contraction.h"
#include "mantissa/device/cpu/modes/byte_product.h"
#include "mantissa/device/cpu/unit_rates.h"
#include "mantissa/numerics/formats.h"

namespace mantissa::inline v0::on_cpu {

namespace {

constexpr std::int64_t columns = 1024, depth = 768;

/// Numbers between 1 and 2, so that nothing is subnormal.
Buffer operand(DType type, std::int64_t rows) {
    Buffer buffer(static_cast<std::size_t>(rows * depth) * size_of(type), "operands to multiply");
    for (std::int64_t i = 0; i < rows * depth; ++i)
        store_from_f64(buffer.data(), type, i, 1 + static_cast<double>(i % 61) / 64);
    return buffer;
}

double best_rate(double work, const std::function<void()>& multiply) {
    constexpr int turns = 15;  // the first is a warm-up; others may use the cores
    double best = 0;
    for (int turn = 0; turn < turns; ++turn) {
        const Stopwatch watch;
        multiply();
        best = std::max(best, work / watch.seconds());
    }
    return best;
}

double contraction_rate(DType type, Multiply as, std::int64_t rows, double work, ThreadPool& pool, Isa isa) {
    const PreparedContraction prepared =
        prepare_contraction({.m = rows,
                             .n = columns,
                             .k = depth,
                             .a = {.dtype = type, .leading = depth},
                             .b = {.dtype = type, .transpose = Transpose::yes, .leading = depth},
                             .out = {.leading = columns},
                             .multiply = as},
                            isa);
    const Buffer a = operand(type, rows), b = operand(type, columns);
    const Buffer out(static_cast<std::size_t>(rows * columns) * sizeof(float), "their product");
    const Buffer workspace(prepared.workspace_bytes(pool.threads()));
    return best_rate(work, [&] {
        contract(prepared, {.a = a.data(), .b = b.data(), .out = out.data()}, workspace.as<std::byte>(),
                 pool);
    });
}

double byte_rate(std::int64_t rows, double work, ThreadPool& pool, Isa isa) {
    const Buffer a(static_cast<std::size_t>(rows * depth)), b(static_cast<std::size_t>(columns * depth));
    for (const Buffer* each : {&a, &b}) std::memset(each->data(), 3, each->size());
    const Buffer d(static_cast<std::size_t>(rows * columns) * sizeof(std::int32_t));
    const ByteProduct product{
        .m = rows, .n = columns, .k = depth, .a = a.data(), .b = b.data(), .d = d.data()};
    const Buffer workspace(byte_product_workspace(product, isa, pool.threads()));
    return best_rate(work, [&] { multiply_bytes(product, workspace.as<std::byte>(), pool, isa); });
}

}  // namespace

std::optional<double> whole_rate(std::string_view inputs, std::string_view accumulator, double operations,
                                 ThreadPool& pool, Isa isa) {
    constexpr double of_row = 2.0 * columns * depth;
    const auto rows = static_cast<std::int64_t>(std::clamp(operations / of_row / 16, 1.0, 64.0)) * 16;
    const double work = of_row * static_cast<double>(rows);
    if (inputs == "s8") return byte_rate(rows, work, pool, isa);
    if (accumulator != "f32") return std::nullopt;
    const auto contracts = [&](DType type, Multiply as = Multiply::as_stored) {
        return contraction_rate(type, as, rows, work, pool, isa);
    };
    if (inputs == "f32") return contracts(DType::f32);
    if (inputs == "tf32") return contracts(DType::f32, Multiply::tf32);
    if (inputs == "f16") return contracts(DType::f16);
    if (inputs == "bf16") return contracts(DType::bf16);
    return std::nullopt;
}

}  // namespace mantissa::on_cpu
