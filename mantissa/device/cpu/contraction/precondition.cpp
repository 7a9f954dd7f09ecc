#include "mantissa/device/cpu/contraction/precondition.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "mantissa/base/error.h"
#include "mantissa/device/cpu/contraction/window.h"

namespace mantissa::inline v0::on_cpu {

namespace {

struct NamedMatrix {
    const char* name;
    const MatrixLayout& layout;
    std::int64_t rows, cols;  // as stored
};

NamedMatrix stored(const char* name, const MatrixLayout& layout, std::int64_t rows, std::int64_t cols) {
    if (layout.transpose == Transpose::yes) std::swap(rows, cols);
    return {name, layout, rows, cols};
}

NamedMatrix stored(const ContractionProblem& problem, Side side) {
    return side == Side::a ? stored("a", problem.a, problem.m, problem.k)
                           : stored("b", problem.b, problem.k, problem.n);
}

/// The operand's memory as its layout describes it; strides are not negative.
OperandMemory memory_of(const NamedMatrix& matrix, const ContractionProblem& problem) {
    const MatrixLayout& layout = matrix.layout;
    OperandMemory memory{.name = matrix.name, .dtype = layout.dtype};
    if (matrix.rows == 0 || matrix.cols == 0) return memory;
    if (has_codes(layout.codes)) {
        memory.bytes = static_cast<std::size_t>(coded_bytes({layout.codes, matrix.rows, matrix.cols}));
        return memory;
    }
    const std::int64_t of_matrix = layout.window ? elements_of(*layout.window, matrix.rows)
                                                 : (matrix.rows - 1) * layout.leading + matrix.cols;
    const std::int64_t elements = (problem.batch[0] - 1) * layout.batch_stride[0] +
                                  (problem.batch[1] - 1) * layout.batch_stride[1] + of_matrix;
    memory.bytes = static_cast<std::size_t>(elements) * size_of(layout.dtype);
    return memory;
}

[[noreturn]] void fail(const std::string& what) { throw InternalError("contraction: " + what); }

struct ByteRange {
    std::uintptr_t begin = 0, end = 0;
};

ByteRange range_of(const void* data, std::size_t bytes) {
    const auto begin = reinterpret_cast<std::uintptr_t>(data);
    return {begin, begin + bytes};
}

bool overlap(ByteRange a, ByteRange b) {
    return a.begin < a.end && b.begin < b.end && a.begin < b.end && b.begin < a.end;
}

/// Checks that the operand is there, whole and aligned; returns its bytes.
ByteRange checked(const OperandMemory& operand, const void* data) {
    if (operand.bytes == 0) return {};
    if (!data) fail(fmt::format("{} is missing", operand.name));
    if (reinterpret_cast<std::uintptr_t>(data) % size_of(operand.dtype) != 0)
        fail(fmt::format("{} at {} is not aligned to its elements of type {}", operand.name, data,
                         name_of(operand.dtype)));
    return range_of(data, operand.bytes);
}

/// The panels of b that are kept.
ByteRange checked_panels(const void* panels, std::size_t bytes) {
    if (bytes == 0) return {};
    if (!panels) fail("the panels of b are missing");
    if (reinterpret_cast<std::uintptr_t>(panels) % 64 != 0)
        fail("the panels of b are not aligned to 64 bytes");
    return range_of(panels, bytes);
}

bool is_known(DType dtype) { return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16; }

std::string refusal_of_window(const NamedMatrix& matrix) {
    const ImageWindow& window = *matrix.layout.window;
    if (matrix.layout.mapped) return fmt::format("{} cannot be mapped and gathered at once", matrix.name);
    const ConvolutionAxis &down = window.vertical, &across = window.horizontal;
    if (std::min({down.output, across.output, down.filter, across.filter, down.image, across.image,
                  window.channels}) < 1 ||
        std::min({window.row_pitch, window.pixel_pitch, window.image_pitch}) < 0)
        return fmt::format("the window of {} has an extent below 1 or a negative pitch", matrix.name);
    if (matrix.rows % window.rows_of_image() != 0 || matrix.cols != window.columns())
        return fmt::format("{} is stored as {} x {}; its window has {} columns, and {} rows an image",
                           matrix.name, matrix.rows, matrix.cols, window.columns(), window.rows_of_image());
    return {};
}

std::string refusal_of_layout(const NamedMatrix& matrix) {
    const MatrixLayout& layout = matrix.layout;
    if (!is_known(layout.dtype))
        return fmt::format("{} is {}; expected f32, bf16 or f16", matrix.name, name_of(layout.dtype));
    if (layout.window) {
        if (std::string reason = refusal_of_window(matrix); !reason.empty()) return reason;
    } else if (matrix.rows > 1 && layout.leading < matrix.cols)
        return fmt::format("{} has rows of {} elements but a leading dimension of {}", matrix.name,
                           matrix.cols, layout.leading);
    if (layout.leading < 0 || layout.batch_stride[0] < 0 || layout.batch_stride[1] < 0)
        return fmt::format("{} has a negative stride", matrix.name);
    return {};
}

std::string refusal_of_output(const ContractionProblem& problem) {
    const StandardEpilogue& epilogue = problem.epilogue;
    if (problem.custom_epilogue) {
        if (epilogue.bias) return "a custom epilogue replaces the standard one; both were asked for";
        if (problem.store == Store::accumulate) return "a custom epilogue cannot accumulate into the output";
        return {};
    }
    if (problem.out.window) return "only a and b can be gathered, not the output";
    if (problem.out.transpose == Transpose::yes) return "the output cannot be stored transposed";
    if (problem.store == Store::accumulate && problem.out.dtype != DType::f32)
        return "accumulation needs an f32 output";
    if (problem.store == Store::accumulate && epilogue.bias) return "accumulation takes no epilogue";
    for (int level = 0; level < 2; ++level)
        if (problem.batch[level] > 1 && problem.out.batch_stride[level] == 0)
            return "the entries of the batch share one output (batch stride 0)";
    std::string reason = refusal_of_layout(stored("the output", problem.out, problem.m, problem.n));
    if (reason.empty() && epilogue.bias && !is_known(epilogue.bias_dtype))
        reason = fmt::format("the bias is {}; expected f32, bf16 or f16", name_of(epilogue.bias_dtype));
    return reason;
}

/// Refuses a mapped operand other than a single matrix a.
std::string refusal_of_map(const ContractionProblem& problem) {
    if (problem.b.mapped || problem.out.mapped) return "only a can be mapped";
    if (!problem.a.mapped) return {};
    if (problem.batch != std::array<std::int64_t, 2>{1, 1})
        return fmt::format("a is mapped, which only a single matrix can be; the batch is {} x {}",
                           problem.batch[0], problem.batch[1]);
    return {};
}

/// Checks that codes are whole, without gaps, and have a type to be widened to.
std::string refusal_of_codes(const ContractionProblem& problem) {
    const MatrixLayout& b = problem.b;
    if (has_codes(problem.a.codes) || has_codes(problem.out.codes)) return "only b can be codes and scales";
    if (!has_codes(b.codes)) return {};
    if (b.dtype == DType::f16) return "codes are widened to f32 or bf16, not to f16";
    const NamedMatrix matrix = stored(problem, Side::b);
    if (problem.entries() != 1 || b.window || b.leading != matrix.cols)
        return fmt::format("b is {}, which only one matrix can be whose rows follow each other",
                           name_of(b.codes));
    return {};
}

/// FP16 is converted on both sides or on none. The same holds for operands that are not multiplied in their
/// stored format.
std::string refusal_of_multiply(const ContractionProblem& problem) {
    const DType a = problem.a.dtype, b = problem.b.dtype;
    if ((a == DType::f16) != (b == DType::f16))
        return fmt::format("a is {} and b is {}; f16 is multiplied by f16 only", name_of(a), name_of(b));
    if (problem.multiply == Multiply::as_stored) return {};
    if (a != DType::f32 || b != DType::f32)
        return fmt::format("a is {} and b is {}; only f32 is multiplied as another format", name_of(a),
                           name_of(b));
    return {};
}

}  // namespace

std::string refusal(const ContractionProblem& problem) {
    if (std::min({problem.m, problem.n, problem.k, problem.batch[0], problem.batch[1]}) < 0)
        return fmt::format("sizes must not be negative: batch {} x {}, m {}, n {}, k {}", problem.batch[0],
                           problem.batch[1], problem.m, problem.n, problem.k);
    std::string reason = refusal_of_layout(stored(problem, Side::a));
    if (reason.empty()) reason = refusal_of_layout(stored(problem, Side::b));
    if (reason.empty()) reason = refusal_of_map(problem);
    if (reason.empty()) reason = refusal_of_codes(problem);
    if (reason.empty()) reason = refusal_of_multiply(problem);
    if (reason.empty()) reason = refusal_of_output(problem);
    return reason;
}

void require_accepted(const ContractionProblem& problem) {
    if (const std::string refused = refusal(problem); !refused.empty()) fail(refused);
}

ContractionMemory memory_of(const ContractionProblem& problem) {
    ContractionMemory memory;
    memory.a = memory_of(stored(problem, Side::a), problem);
    memory.b = memory_of(stored(problem, Side::b), problem);
    if (problem.custom_epilogue) return memory;
    memory.out = memory_of(stored("the output", problem.out, problem.m, problem.n), problem);
    const StandardEpilogue& epilogue = problem.epilogue;
    if (epilogue.bias)
        memory.bias = {.name = "the bias",
                       .dtype = epilogue.bias_dtype,
                       .bytes = static_cast<std::size_t>(problem.n) * size_of(epilogue.bias_dtype)};
    return memory;
}

void check_arguments(const ContractionProblem& problem, const ContractionMemory& memory,
                     const ContractionArguments& arguments, std::span<const std::byte> workspace,
                     std::size_t workspace_needed) {
    const ByteRange read_a = checked(memory.a, arguments.a);
    const ByteRange read_b =
        problem.keeps_b ? checked_panels(arguments.b, memory.kept_bytes) : checked(memory.b, arguments.b);
    if (problem.a.mapped && !arguments.map_a) fail("the function that maps a is missing");
    if (workspace.size() < workspace_needed)
        fail(fmt::format("the workspace has {} bytes; {} are needed", workspace.size(), workspace_needed));
    if (reinterpret_cast<std::uintptr_t>(workspace.data()) % 64 != 0)
        fail("the workspace is not aligned to 64 bytes");
    if (problem.custom_epilogue) {
        if (!arguments.epilogue) fail("the custom epilogue is missing");
        return;
    }
    const ByteRange written = checked(memory.out, arguments.out);
    checked(memory.bias, arguments.bias);
    if (overlap(written, read_a)) fail("the output overlaps a");
    if (overlap(written, read_b)) fail("the output overlaps b");
    if (overlap(written, range_of(workspace.data(), workspace.size())))
        fail("the output overlaps the workspace");
}

void check_packing(const ContractionMemory& memory, const void* b, std::span<const std::byte> panels) {
    if (panels.size() < memory.kept_bytes)
        fail(fmt::format("the panels of b have {} bytes; {} are needed", panels.size(), memory.kept_bytes));
    if (overlap(checked(memory.b, b), checked_panels(panels.data(), memory.kept_bytes)))
        fail("the panels of b overlap b");
}

}  // namespace mantissa::on_cpu
