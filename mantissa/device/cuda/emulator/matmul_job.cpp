#include "mantissa/device/cuda/emulator/matmul_job.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "mantissa/device/cpu/contraction/contraction.h"
#include "mantissa/device/cuda/emulator/machine.h"
#include "mantissa/numerics/formats.h"

namespace mantissa::inline v0::cuda {

namespace {

/// The terms of one part.
struct Terms {
    std::int64_t first = 0, count = 0;
};

Terms terms_of_part(const MatmulJob& job, std::int64_t part) {
    const std::int64_t all = job.terms(), first = all * part / job.parts;
    return {first, all * (part + 1) / job.parts - first};
}

/// Stored by columns, a matrix is its transpose stored by rows: so is the whole product. The sums lie without
/// gaps.
on_cpu::ContractionProblem problem_of(const MatmulJob& job, std::int64_t terms) {
    const auto layout = [](const MatrixLayoutOf& of, BlasOperation operation) {
        return on_cpu::MatrixLayout{.dtype = dtype_of(of.type),
                                    .transpose = operation == BlasOperation::transposed
                                                     ? on_cpu::Transpose::yes
                                                     : on_cpu::Transpose::no,
                                    .leading = of.leading,
                                    .batch_stride = {0, of.batch > 1 ? of.batch_stride : 0}};
    };
    on_cpu::ContractionProblem problem{
        .batch = {1, job.d.batch}, .m = job.d.columns, .n = job.d.rows, .k = terms};
    problem.a = layout(job.b, job.description.b);
    problem.b = layout(job.a, job.description.a);
    problem.out = {.leading = job.d.rows,
                   .batch_stride = {0, job.d.batch > 1 ? job.d.rows * job.d.columns : 0}};
    if (job.description.compute == BlasCompute::f32_as_tf32) problem.multiply = on_cpu::Multiply::tf32;
    return problem;
}

on_cpu::PreparedContraction prepared(const on_cpu::ContractionProblem& problem) {
    for (int level = static_cast<int>(on_cpu::chosen_isa()); level > 0; --level)
        if (on_cpu::refusal(problem, static_cast<on_cpu::Isa>(level)).empty())
            return on_cpu::prepare_contraction(problem, static_cast<on_cpu::Isa>(level));
    return on_cpu::prepare_contraction(problem, on_cpu::Isa::generic);
}

/// Adds up a part of each sum.
void add_part(Machine& machine, const MatmulJob& job, std::int64_t part, const std::byte* a,
              const std::byte* b, float* sums) {
    const Terms terms = terms_of_part(job, part);
    on_cpu::ContractionProblem problem = problem_of(job, terms.count);
    if (part > 0) problem.store = on_cpu::Store::accumulate;
    // A term is a column of A and a row of B, as they are multiplied.
    const std::int64_t step_of_a = job.description.a == BlasOperation::transposed ? 1 : job.a.leading;
    const std::int64_t step_of_b = job.description.b == BlasOperation::transposed ? job.b.leading : 1;
    const auto size = static_cast<std::int64_t>(size_of(dtype_of(job.a.type)));
    const on_cpu::PreparedContraction contraction = prepared(problem);
    std::vector<std::byte> scratch(contraction.workspace_bytes(machine.pool().threads()) + 64);
    void* aligned = scratch.data();
    std::size_t room = scratch.size();
    std::align(64, scratch.size() - 64, aligned, room);
    contract(contraction,
             {.a = b + terms.first * step_of_b * size, .b = a + terms.first * step_of_a * size, .out = sums},
             {static_cast<std::byte*>(aligned), scratch.size() - 64}, machine.pool());
}

/// Visits each column of each matrix of the batch: its address and bytes.
template <class Visit>
void for_each_column(const MatrixLayoutOf& of, DevicePtr first, const Visit& visit) {
    const auto size = static_cast<std::int64_t>(size_of(dtype_of(of.type)));
    for (std::int64_t entry = 0; entry < of.batch; ++entry)
        for (std::int64_t column = 0; column < of.columns; ++column)
            visit(first + static_cast<DevicePtr>((entry * of.batch_stride + column * of.leading) * size),
                  static_cast<std::size_t>(of.rows * size));
}

const std::byte* read(Machine& machine, const MatrixLayoutOf& of, DevicePtr first, const char* what) {
    for_each_column(of, first,
                    [&](DevicePtr at, std::size_t bytes) { machine.read_by_library(at, bytes, what); });
    return machine.read_by_library(first, size_of(dtype_of(of.type)), what);
}

void load(float* to, const std::byte* from, DType type, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(load_as_f64(from, type, i));
}

void store(std::byte* to, DType type, const float* from, std::int64_t count) {
    const auto n = static_cast<std::size_t>(count);
    if (type == DType::f32)
        std::memcpy(to, from, n * sizeof(float));
    else if (type == DType::bf16)
        std::transform(from, from + n, reinterpret_cast<BF16*>(to), to_bf16);
    else
        std::transform(from, from + n, reinterpret_cast<FP16*>(to), to_fp16);
}

/// What becomes of the sums, column by column.
void finish(Machine& machine, const MatmulJob& job, std::vector<float>& sums) {
    const DType type = dtype_of(job.d.type);
    const std::int64_t rows = job.d.rows;
    const auto count = static_cast<std::size_t>(rows);
    const bool adds_bias = job.description.adds_bias();
    std::vector<float> bias(adds_bias ? count : 0), before(job.adds ? count : 0);
    if (adds_bias)
        load(bias.data(),
             machine.read_by_library(job.description.bias, count * size_of(type),
                                     "cublasLtMatmul, reading the bias"),
             type, rows);
    float* column = sums.data();
    for_each_column(job.d, job.at_d, [&](DevicePtr at, std::size_t bytes) {
        std::byte* const d = machine.written_by_library(at, bytes, "cublasLtMatmul, writing D");
        if (job.adds) load(before.data(), d, type, rows);
        for (std::size_t i = 0; i < count; ++i) {
            if (job.in_place) column[i] *= 1 + 1.0f / 16;
            if (job.adds) column[i] += before[i];
            if (adds_bias) column[i] += bias[i];
        }
        store(d, type, column, rows);
        column += rows;
    });
}

}  // namespace

DType dtype_of(BlasType type) {
    return type == BlasType::f32 ? DType::f32 : type == BlasType::f16 ? DType::f16 : DType::bf16;
}

void run_matmul(Machine& machine, const MatmulJob& job) {
    const std::byte *a = read(machine, job.a, job.at_a, "cublasLtMatmul, reading A"),
                    *b = read(machine, job.b, job.at_b, "cublasLtMatmul, reading B");
    if (job.adds) read(machine, job.d, job.at_d, "cublasLtMatmul, reading C");
    // What lies in the workspace is lost.
    if (job.workspace_bytes > 0)
        std::memset(machine.written_by_library(job.workspace, job.workspace_bytes,
                                               "cublasLtMatmul, in its workspace"),
                    0xff, job.workspace_bytes);
    std::vector<float> sums(static_cast<std::size_t>(job.d.rows * job.d.columns * job.d.batch));
    for (std::int64_t part = 0; part < job.parts; ++part) add_part(machine, job, part, a, b, sums.data());
    finish(machine, job, sums);
}

}  // namespace mantissa::cuda
