#include "mantissa/device/cpu/contraction/row_run.h"

#include <algorithm>

#include "mantissa/device/cpu/contraction/packing.h"
#include "mantissa/device/cpu/sparse.h"
#include "mantissa/numerics/formats.h"

namespace mantissa::cpu {

namespace {

// About 256 KB of FP32 a block: some 20 microseconds of reading.
constexpr std::int64_t block_elements = 64 << 10;
// Where b's rows run across the depth: pieces of 1 KB, and sums in L1.
constexpr std::int64_t columns_across = 256;

std::int64_t columns_of_block(const ContractionProblem& problem) {
    if (problem.b.transpose == Transpose::no) return columns_across;
    return std::clamp<std::int64_t>(block_elements / std::max<std::int64_t>(1, problem.k) / 16 * 16, 16,
                                    4096);
}

std::size_t in_lines(std::int64_t bytes) { return (static_cast<std::size_t>(bytes) + 63) / 64 * 64; }

/// In FP32 and one after another, the row of a lies in the worker's memory, then come the sums.
std::size_t row_bytes(const ContractionProblem& problem) { return in_lines(problem.k * 4); }

std::size_t bytes_per_worker(const ContractionProblem& problem) {
    return row_bytes(problem) + in_lines(columns_of_block(problem) * 4);
}

std::int64_t offset_of(const ContractionProblem& problem, const MatrixLayout& layout, std::int64_t entry) {
    return entry / problem.batch[1] * layout.batch_stride[0] +
           entry % problem.batch[1] * layout.batch_stride[1];
}

float element_at(DType type, const void* data, std::int64_t index) {
    return type == DType::bf16 ? to_f32(static_cast<const BF16*>(data)[index])
                               : static_cast<const float*>(data)[index];
}

/// The row from its 2:4 compressed form, as many numbers at a time as a byte of positions is for.
void read_compressed_row(const ContractionProblem& problem, const ContractionArguments& arguments,
                         float* row) {
    const DType type = problem.a.dtype;
    const auto* const values = static_cast<const std::byte*>(arguments.a);
    for (std::int64_t k = 0; k < problem.k; k += 8) {
        const std::int64_t count = std::min<std::int64_t>(8, problem.k - k);
        alignas(8) std::byte some[8 * sizeof(float)];
        decompress_row(sparse_format_of(type), values + k / 2 * static_cast<std::int64_t>(size_of(type)),
                       arguments.a_positions + k / 8, count, some);
        for (std::int64_t i = 0; i < count; ++i) row[k + i] = element_at(type, some, i);
    }
}

void read_row(const ContractionProblem& problem, const void* a, std::int64_t entry, float* row) {
    const std::int64_t step = problem.a.transpose == Transpose::yes ? problem.a.leading : 1;
    const std::int64_t first = offset_of(problem, problem.a, entry);
    for (std::int64_t k = 0; k < problem.k; ++k) row[k] = element_at(problem.a.dtype, a, first + k * step);
}

void store_sums(const ContractionProblem& problem, void* out, std::int64_t entry, PanelRange columns,
                const float* sums) {
    float* const to = static_cast<float*>(out) + offset_of(problem, problem.out, entry) + columns.begin;
    const bool accumulate = problem.store == Store::accumulate;
    for (std::int64_t j = 0; j < columns.size; ++j) to[j] = accumulate ? to[j] + sums[j] : sums[j];
}

}  // namespace

bool is_single_row(const ContractionProblem& problem, const ContractionKernels& kernels) {
    return problem.m == 1 && !problem.a.packed && !problem.a.mapped && !problem.b.packed &&
           kernels.multiply_row[0][0] != nullptr;
}

std::size_t row_workspace_bytes(const ContractionProblem& problem, int threads) {
    return static_cast<std::size_t>(threads) * bytes_per_worker(problem);
}

void run_single_row(const ContractionProblem& problem, const ContractionArguments& arguments,
                    const ContractionKernels& kernels, std::span<std::byte> workspace, ThreadPool& pool,
                    EpilogueFunction finish, const void* finish_args) {
    const bool along = problem.b.transpose == Transpose::yes;
    const auto form = static_cast<std::size_t>(along ? PanelSource::along_depth : PanelSource::across_depth);
    const RowProductKernel kernel = kernels.multiply_row[form][problem.b.dtype == DType::bf16 ? 1 : 0];
    const auto element = static_cast<std::int64_t>(size_of(problem.b.dtype));
    const std::int64_t per_block = columns_of_block(problem);
    const std::int64_t blocks = (problem.n + per_block - 1) / per_block;
    pool.for_each_block(problem.batch[0] * problem.batch[1] * blocks, [&](std::int64_t item, int worker) {
        const std::int64_t entry = item / blocks;
        const PanelRange columns = part_of(problem.n, per_block, item % blocks);
        std::byte* const memory =
            workspace.data() + static_cast<std::size_t>(worker) * bytes_per_worker(problem);
        float* const row = reinterpret_cast<float*>(memory);
        float* const sums = reinterpret_cast<float*>(memory + row_bytes(problem));
        if (problem.a.two_of_four)
            read_compressed_row(problem, arguments, row);
        else
            read_row(problem, arguments.a, entry, row);
        const std::int64_t first =
            offset_of(problem, problem.b, entry) + columns.begin * (along ? problem.b.leading : 1);
        kernel({.row = row,
                .b = static_cast<const std::byte*>(arguments.b) + first * element,
                .stride = problem.b.leading,
                .depth = problem.k,
                .cols = columns.size,
                .sums = sums});
        if (finish)
            finish(sums, per_block, entry, columns.begin, 1, columns.size, finish_args);
        else
            store_sums(problem, arguments.out, entry, columns, sums);
    });
}

}  // namespace mantissa::cpu
