#include "mantissa/device/cpu/whole_rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "mantissa/base/buffer.h"
#include "mantissa/base/clock.h"
#include "mantissa/base/error.h"
#include "mantissa/device/cpu/contraction/contraction.h"
#include "mantissa/device/cpu/modes/matrix_mode.h"
#include "mantissa/device/cpu/sparse.h"
#include "mantissa/numerics/formats.h"

namespace mantissa::inline v0::on_cpu {

namespace {

constexpr std::int64_t columns = 1024, depth = 768;

/// A mode as one of the two kinds of functions that multiply matrices.
struct WholeMode {
    const char* inputs;
    const char* accumulator;
    bool contracts = false;  ///< `type` and `multiply`, else `mode`
    MatrixMode mode = MatrixMode::f64;
    DType type = DType::f32;
    Multiply multiply = Multiply::as_stored;
    int bits = 0;  ///< of a number of the operands
    std::optional<SparseFormat> sparse = {};
};

constexpr WholeMode whole_modes[] = {
    {.inputs = "f64", .accumulator = "f64", .mode = MatrixMode::f64, .bits = 64},
    {.inputs = "f32", .accumulator = "f32", .contracts = true, .bits = 32, .sparse = SparseFormat::f32},
    {.inputs = "tf32",
     .accumulator = "f32",
     .contracts = true,
     .multiply = Multiply::tf32,
     .bits = 32,
     .sparse = SparseFormat::f32},
    {.inputs = "f16",
     .accumulator = "f32",
     .contracts = true,
     .type = DType::f16,
     .bits = 16,
     .sparse = SparseFormat::f16},
    {.inputs = "f16", .accumulator = "f16", .mode = MatrixMode::f16, .bits = 16, .sparse = SparseFormat::f16},
    {.inputs = "bf16",
     .accumulator = "f32",
     .contracts = true,
     .type = DType::bf16,
     .bits = 16,
     .sparse = SparseFormat::bf16},
    {.inputs = "s8", .accumulator = "s32", .mode = MatrixMode::s8, .bits = 8, .sparse = SparseFormat::s8},
    {.inputs = "s4", .accumulator = "s32", .mode = MatrixMode::s4, .bits = 4, .sparse = SparseFormat::s4},
    {.inputs = "b1", .accumulator = "s32", .mode = MatrixMode::b1_exclusive_or, .bits = 1},
};

const WholeMode& find(std::string_view inputs, std::string_view accumulator) {
    for (const WholeMode& mode : whole_modes)
        if (mode.inputs == inputs && mode.accumulator == accumulator) return mode;
    throw InternalError(fmt::format("no mode multiplies {} with sums of {}", inputs, accumulator));
}

/// Numbers between 1 and 2, so that nothing is subnormal, the same in every row; of whole numbers any bits
/// do.
Buffer operand(const WholeMode& mode, std::int64_t rows) {
    const auto row_bytes = static_cast<std::size_t>(depth * mode.bits / 8);
    Buffer buffer(static_cast<std::size_t>(rows) * row_bytes, "operands to multiply");
    if (mode.bits >= 16) {
        const DType type = mode.contracts                 ? mode.type
                           : mode.mode == MatrixMode::f64 ? DType::f64
                                                          : DType::f16;
        for (std::int64_t i = 0; i < depth; ++i)
            store_from_f64(buffer.data(), type, i, 1 + static_cast<double>(i % 61) / 64);
    } else {
        for (std::size_t i = 0; i < row_bytes; ++i) buffer.data()[i] = static_cast<std::byte>(i * 151);
    }
    for (std::size_t row = 1; row < static_cast<std::size_t>(rows); ++row)
        std::memcpy(buffer.data() + row * row_bytes, buffer.data(), row_bytes);
    return buffer;
}

/// Matrices of a mode, and their product.
class WholeProduct {
  public:
    WholeProduct(const WholeMode& mode, std::int64_t rows, FirstOperand first, Isa isa, int threads)
        : mode_(mode), isa_(isa), a_(operand(mode, rows)), b_(operand(mode, columns)) {
        const bool sparse = first == FirstOperand::two_of_four;
        matrices_ = {.mode = mode.mode, .first = first, .m = rows, .n = columns, .k = depth};
        const ContractionProblem contraction{
            .m = rows,
            .n = columns,
            .k = depth,
            .a = {.dtype = mode.type, .leading = depth, .two_of_four = sparse},
            .b = {.dtype = mode.type, .transpose = Transpose::yes, .leading = depth},
            .out = {.leading = columns},
            .multiply = mode.multiply};
        if (mode.contracts) contraction_ = prepare_contraction(contraction, isa);
        d_ = Buffer(static_cast<std::size_t>(rows * columns) * sizeof(double));
        workspace_ = Buffer(mode.contracts ? contraction_.workspace_bytes(threads)
                                           : workspace_bytes(matrices_, isa, threads));
        if (sparse) compress_first(rows);
    }

    double seconds(ThreadPool& pool) const {
        const std::uint8_t* const positions = positions_.as<std::uint8_t>().data();
        const Stopwatch watch;
        if (mode_.contracts)
            contract(contraction_,
                     {.a = a_.data(), .b = b_.data(), .out = d_.data(), .a_positions = positions},
                     workspace_.as<std::byte>(), pool);
        else
            multiply(matrices_, {.a = a_.data(), .positions = positions, .b = b_.data(), .d = d_.data()},
                     workspace_.as<std::byte>(), pool, isa_);
        return watch.seconds();
    }

  private:
    void compress_first(std::int64_t rows) {
        const SparseSizes sizes = sparse_sizes(*mode_.sparse, rows, depth);
        Buffer values(sizes.values);
        positions_ = Buffer(sizes.positions);
        prune(*mode_.sparse, a_.data(), rows, depth);
        compress(*mode_.sparse, a_.data(), rows, depth, values.data(), positions_.as<std::uint8_t>().data());
        a_ = std::move(values);
    }

    const WholeMode& mode_;
    Isa isa_;
    ModeProblem matrices_;
    PreparedContraction contraction_;
    Buffer a_, b_, d_, workspace_, positions_;
};

}  // namespace

WholeRates whole_rates(std::string_view inputs, std::string_view accumulator, double operations,
                       ThreadPool& pool, Isa isa) {
    constexpr double of_row = 2.0 * columns * depth;
    constexpr int turns = 15;  // the first is a warm-up; others may use the cores
    const WholeMode& mode = find(inputs, accumulator);
    const auto rows = static_cast<std::int64_t>(std::clamp(operations / of_row / 16, 1.0, 64.0)) * 16;
    const WholeProduct dense(mode, rows, FirstOperand::dense, isa, pool.threads());
    std::optional<WholeProduct> sparse;
    if (mode.sparse) sparse.emplace(mode, rows, FirstOperand::two_of_four, isa, pool.threads());
    WholeRates rates;
    for (int turn = 0; turn < turns; ++turn) {
        const double work = of_row * static_cast<double>(rows);
        rates.dense = std::max(rates.dense.value_or(0), work / dense.seconds(pool));
        if (sparse) rates.sparse = std::max(rates.sparse.value_or(0), work / sparse->seconds(pool));
    }
    return rates;
}

}  // namespace mantissa::on_cpu
