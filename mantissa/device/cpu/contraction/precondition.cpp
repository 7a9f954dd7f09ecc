#include "mantissa/device/cpu/contraction/precondition.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "mantissa/base/error.h"

namespace mantissa::cpu {

namespace {

struct NamedMatrix {
    const char* name;
    const void* data;
    const MatrixLayout& layout;
    std::int64_t rows, cols;  // as stored
};

NamedMatrix stored(const char* name, const void* data, const MatrixLayout& layout, std::int64_t rows,
                   std::int64_t cols) {
    if (layout.transpose == Transpose::yes) std::swap(rows, cols);
    return {name, data, layout, rows, cols};
}

struct ByteRange {
    std::uintptr_t begin = 0, end = 0;
};

/// From the first to the last byte that belongs to the matrix, over all entries; strides are not negative.
ByteRange extent(const NamedMatrix& matrix, const ContractionProblem& problem) {
    if (matrix.rows == 0 || matrix.cols == 0) return {};
    const MatrixLayout& layout = matrix.layout;
    const std::int64_t last = (problem.batch[0] - 1) * layout.batch_stride[0] +
                              (problem.batch[1] - 1) * layout.batch_stride[1] +
                              (matrix.rows - 1) * layout.leading + matrix.cols;
    const auto begin = reinterpret_cast<std::uintptr_t>(matrix.data);
    return {begin, begin + static_cast<std::uintptr_t>(last) * size_of(layout.dtype)};
}

bool overlap(ByteRange a, ByteRange b) {
    return a.begin < a.end && b.begin < b.end && a.begin < b.end && b.begin < a.end;
}

[[noreturn]] void fail(const std::string& what) { throw InternalError("contraction: " + what); }

void check_operand(const NamedMatrix& matrix) {
    if (matrix.rows == 0 || matrix.cols == 0) return;
    if (!matrix.data) fail(fmt::format("{} is missing", matrix.name));
    if (reinterpret_cast<std::uintptr_t>(matrix.data) % size_of(matrix.layout.dtype) != 0)
        fail(fmt::format("{} at {} is not aligned to its elements of type {}", matrix.name, matrix.data,
                         name_of(matrix.layout.dtype)));
}

ByteRange memory(const void* data, std::size_t bytes) {
    const auto begin = reinterpret_cast<std::uintptr_t>(data);
    return {begin, begin + bytes};
}

void check_packed(const char* name, const void* data, std::size_t bytes, std::size_t needed) {
    if (needed == 0) return;
    if (!data) fail(fmt::format("{} is missing", name));
    if (bytes < needed) fail(fmt::format("the packed {} has {} bytes; {} are needed", name, bytes, needed));
    if (reinterpret_cast<std::uintptr_t>(data) % 64 != 0)
        fail(fmt::format("the packed {} at {} is not aligned to 64 bytes", name, data));
}

/// Rows of k / 2 values without gaps.
ByteRange checked_compressed(const NamedMatrix& matrix) {
    const std::int64_t values = matrix.rows * matrix.cols / 2;
    check_operand(matrix);
    return memory(matrix.data, static_cast<std::size_t>(values) * size_of(matrix.layout.dtype));
}

/// The operand is there, whole and aligned; the bytes that it takes.
ByteRange checked_operand(const NamedMatrix& matrix, const ContractionProblem& problem, std::size_t bytes,
                          std::size_t needed) {
    if (matrix.layout.packed) {
        check_packed(matrix.name, matrix.data, bytes, needed);
        return memory(matrix.data, needed);
    }
    if (matrix.layout.two_of_four) return checked_compressed(matrix);
    check_operand(matrix);
    return extent(matrix, problem);
}

ByteRange checked_positions(const ContractionProblem& problem, const ContractionArguments& arguments) {
    if (!problem.a.two_of_four || problem.m * problem.k == 0) return {};
    if (!arguments.a_positions) fail("the positions of a are missing");
    return memory(arguments.a_positions, static_cast<std::size_t>(problem.m * ((problem.k + 7) / 8)));
}

bool is_known(DType dtype) { return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16; }

std::string refusal_of_layout(const NamedMatrix& matrix) {
    const MatrixLayout& layout = matrix.layout;
    if (!is_known(layout.dtype))
        return fmt::format("{} is {}; expected f32, bf16 or f16", matrix.name, name_of(layout.dtype));
    if (layout.two_of_four) return fmt::format("{} cannot be 2:4 sparse, only a can", matrix.name);
    if (matrix.rows > 1 && layout.leading < matrix.cols)
        return fmt::format("{} has rows of {} elements but a leading dimension of {}", matrix.name,
                           matrix.cols, layout.leading);
    if (layout.leading < 0 || layout.batch_stride[0] < 0 || layout.batch_stride[1] < 0)
        return fmt::format("{} has a negative stride", matrix.name);
    return {};
}

std::string refusal_of_compressed(const ContractionProblem& problem) {
    if (!is_known(problem.a.dtype))
        return fmt::format("a is {}; expected f32, bf16 or f16", name_of(problem.a.dtype));
    if (problem.k % 4 != 0)
        return fmt::format("a is 2:4 sparse: K must be a multiple of 4, got {}", problem.k);
    if (problem.a.packed || problem.a.transpose == Transpose::yes)
        return "a 2:4 sparse a is neither packed nor stored transposed";
    if (problem.batch != std::array<std::int64_t, 2>{1, 1})
        return fmt::format("a is 2:4 sparse, which only a single matrix can be; the batch is {} x {}",
                           problem.batch[0], problem.batch[1]);
    return {};
}

std::string refusal_of_operand(const NamedMatrix& matrix, const ContractionProblem& problem) {
    if (!matrix.layout.packed) return refusal_of_layout(matrix);
    if (!is_known(matrix.layout.dtype))
        return fmt::format("{} is {}; expected f32, bf16 or f16", matrix.name, name_of(matrix.layout.dtype));
    if (problem.batch != std::array<std::int64_t, 2>{1, 1})
        return fmt::format("{} is packed, which only a single matrix can be; the batch is {} x {}",
                           matrix.name, problem.batch[0], problem.batch[1]);
    return {};
}

std::string refusal_of_output(const ContractionProblem& problem) {
    const StandardEpilogue& epilogue = problem.epilogue;
    const bool finishes = epilogue.bias || epilogue.residual || epilogue.activation != Activation::none;
    if (problem.custom_epilogue) {
        if (finishes) return "a custom epilogue replaces the standard one; both were asked for";
        if (problem.store == Store::accumulate) return "a custom epilogue cannot accumulate into the output";
        return {};
    }
    if (problem.out.packed || epilogue.residual_layout.packed)
        return "only a and b can be packed, not the output or the residual";
    if (problem.out.transpose == Transpose::yes) return "the output cannot be stored transposed";
    if (problem.store == Store::accumulate && problem.out.dtype != DType::f32)
        return "accumulation needs an f32 output";
    if (problem.store == Store::accumulate && finishes) return "accumulation takes no epilogue";
    for (int level = 0; level < 2; ++level)
        if (problem.batch[level] > 1 && problem.out.batch_stride[level] == 0)
            return "the entries of the batch share one output (batch stride 0)";
    std::string reason = refusal_of_layout(stored("the output", nullptr, problem.out, problem.m, problem.n));
    if (reason.empty() && epilogue.residual)
        reason = refusal_of_layout(
            stored("the residual", nullptr, epilogue.residual_layout, problem.m, problem.n));
    if (reason.empty() && epilogue.residual && epilogue.residual_layout.transpose == Transpose::yes)
        reason = "the residual cannot be stored transposed";
    if (reason.empty() && epilogue.bias && !is_known(epilogue.bias_dtype))
        reason = fmt::format("the bias is {}; expected f32, bf16 or f16", name_of(epilogue.bias_dtype));
    return reason;
}

/// How a mapped operand lies, and which operand is one.
std::string refusal_of_map(const ContractionProblem& problem) {
    if (problem.b.mapped || problem.out.mapped || problem.epilogue.residual_layout.mapped)
        return "only a can be mapped";
    if (!problem.a.mapped) return {};
    if (problem.a.packed || problem.a.two_of_four) return "a mapped a is neither packed nor 2:4 sparse";
    if (problem.batch != std::array<std::int64_t, 2>{1, 1})
        return fmt::format("a is mapped, which only a single matrix can be; the batch is {} x {}",
                           problem.batch[0], problem.batch[1]);
    return {};
}

/// FP16 is converted on both sides or on none, and so is what is not multiplied as it is stored.
std::string refusal_of_multiply(const ContractionProblem& problem, Isa isa) {
    const DType a = problem.a.dtype, b = problem.b.dtype;
    if ((a == DType::f16) != (b == DType::f16))
        return fmt::format("a is {} and b is {}; f16 is multiplied by f16 only", name_of(a), name_of(b));
    if (problem.multiply == Multiply::as_stored) return {};
    if (a != DType::f32 || b != DType::f32)
        return fmt::format("a is {} and b is {}; only f32 is multiplied as another format", name_of(a),
                           name_of(b));
    if (problem.multiply == Multiply::bf16x6 && bf16_unit(isa) == Bf16Unit::none)
        return "six products of BF16 parts need a BF16 unit";
    return {};
}

}  // namespace

std::string refusal(const ContractionProblem& problem, Isa isa) {
    if (std::min({problem.m, problem.n, problem.k, problem.batch[0], problem.batch[1]}) < 0)
        return fmt::format("sizes must not be negative: batch {} x {}, m {}, n {}, k {}", problem.batch[0],
                           problem.batch[1], problem.m, problem.n, problem.k);
    std::string reason =
        problem.a.two_of_four
            ? refusal_of_compressed(problem)
            : refusal_of_operand(stored("a", nullptr, problem.a, problem.m, problem.k), problem);
    if (reason.empty())
        reason = refusal_of_operand(stored("b", nullptr, problem.b, problem.k, problem.n), problem);
    if (reason.empty()) reason = refusal_of_map(problem);
    if (reason.empty()) reason = refusal_of_multiply(problem, isa);
    if (reason.empty()) reason = refusal_of_output(problem);
    return reason;
}

void check_arguments(const ContractionProblem& problem, const ContractionArguments& arguments,
                     std::span<const std::byte> workspace, const NeededBytes& needed) {
    const NamedMatrix a = stored("a", arguments.a, problem.a, problem.m, problem.k);
    const NamedMatrix b = stored("b", arguments.b, problem.b, problem.k, problem.n);
    const ByteRange read_a = checked_operand(a, problem, arguments.packed_a_bytes, needed.packed_a);
    const ByteRange read_b = checked_operand(b, problem, arguments.packed_b_bytes, needed.packed_b);
    const ByteRange positions = checked_positions(problem, arguments);
    if (problem.a.mapped && !arguments.map_a) fail("the function that maps a is missing");
    if (workspace.size() < needed.workspace)
        fail(fmt::format("the workspace has {} bytes; {} are needed", workspace.size(), needed.workspace));
    if (reinterpret_cast<std::uintptr_t>(workspace.data()) % 64 != 0)
        fail("the workspace is not aligned to 64 bytes");
    if (problem.custom_epilogue) {
        if (!arguments.epilogue) fail("the custom epilogue is missing");
        return;
    }
    const NamedMatrix out = stored("the output", arguments.out, problem.out, problem.m, problem.n);
    check_operand(out);
    const StandardEpilogue& epilogue = problem.epilogue;
    const MatrixLayout row{.dtype = epilogue.bias_dtype, .leading = problem.n};
    if (epilogue.bias) check_operand(stored("the bias", arguments.bias, row, 1, problem.n));
    if (epilogue.residual)
        check_operand(
            stored("the residual", arguments.residual, epilogue.residual_layout, problem.m, problem.n));
    const ByteRange written = extent(out, problem);
    // Partial sums lie in the output before the residual is read.
    if (epilogue.residual && overlap(written, extent(stored("the residual", arguments.residual,
                                                            epilogue.residual_layout, problem.m, problem.n),
                                                     problem)))
        fail("the output overlaps the residual");
    if (overlap(written, read_a)) fail("the output overlaps a");
    if (overlap(written, positions)) fail("the output overlaps the positions of a");
    if (overlap(written, read_b)) fail("the output overlaps b");
    if (overlap(written, memory(workspace.data(), workspace.size())))
        fail("the output overlaps the workspace");
}

void check_packing(const ContractionProblem& problem, Side side, const void* source,
                   std::span<const std::byte> packed, std::size_t needed) {
    NamedMatrix matrix = side == Side::a ? stored("a", source, problem.a, problem.m, problem.k)
                                         : stored("b", source, problem.b, problem.k, problem.n);
    if (matrix.layout.packed || matrix.layout.two_of_four || matrix.layout.mapped)
        fail(fmt::format("{} is to be packed, but its layout says that it is {}", matrix.name,
                         matrix.layout.packed   ? "already"
                         : matrix.layout.mapped ? "mapped"
                                                : "2:4 sparse"));
    if (problem.batch != std::array<std::int64_t, 2>{1, 1})
        fail(fmt::format("only a single matrix can be packed; the batch is {} x {}", problem.batch[0],
                         problem.batch[1]));
    check_operand(matrix);
    check_packed(matrix.name, packed.data(), packed.size(), needed);
    if (overlap(memory(packed.data(), needed), extent(matrix, problem)))
        fail(fmt::format("{} overlaps its packed copy", matrix.name));
}

}  // namespace mantissa::cpu
