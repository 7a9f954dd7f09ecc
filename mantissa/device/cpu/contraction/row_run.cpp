// The contraction of a few rows of a with b as it is stored, for each entry of a batch, as in generating the
// next tokens of some texts. Bound by reading b.
#include <type_traits>

#include "mantissa/device/cpu/contraction/matrix_run.h"
#include "mantissa/numerics/formats.h"

namespace mantissa::inline v0::on_cpu {

namespace {

template <class Element>
void read_row(const Element* from, std::int64_t step, std::int64_t count, float* row) {
    const auto widened = [](Element x) {
        if constexpr (std::is_same_v<Element, BF16>)
            return to_f32(x);
        else
            return x;
    };
    if (step == 1)
        for (std::int64_t k = 0; k < count; ++k) row[k] = widened(from[k]);
    else
        for (std::int64_t k = 0; k < count; ++k) row[k] = widened(from[k * step]);
}

/// Row i of an entry.
void read_row(const ContractionProblem& problem, const void* a, std::int64_t entry, std::int64_t i,
              float* row) {
    const bool along = problem.a.transpose == Transpose::no;
    const std::int64_t step = along ? 1 : problem.a.leading;
    const std::int64_t first =
        problem.a.offset_of(entry, problem.batch[1]) + i * (along ? problem.a.leading : 1);
    if (problem.a.dtype == DType::bf16)
        read_row(static_cast<const BF16*>(a) + first, step, problem.k, row);
    else
        read_row(static_cast<const float*>(a) + first, step, problem.k, row);
}

/// The rows of an entry, in FP32.
void read_rows(const RowCall& call, std::int64_t entry, float* rows) {
    for (std::int64_t i = 0; i < call.problem.m; ++i)
        read_row(call.problem, call.arguments.a, entry, i, rows + i * call.rows.row_stride);
}

const void* rows_where_they_lie(const RowCall& call, std::int64_t entry) {
    const MatrixLayout& a = call.problem.a;
    return static_cast<const std::byte*>(call.arguments.a) +
           a.offset_of(entry, call.problem.batch[1]) * static_cast<std::int64_t>(size_of(a.dtype));
}

/// Row i of an entry.
void store_sums(const ContractionProblem& problem, void* out, std::int64_t entry, std::int64_t i,
                PanelRange columns, const float* sums) {
    float* const to = static_cast<float*>(out) + problem.out.offset_of(entry, problem.batch[1]) +
                      i * problem.out.leading + columns.begin;
    const bool accumulate = problem.store == Store::accumulate;
    for (std::int64_t j = 0; j < columns.size; ++j) to[j] = accumulate ? to[j] + sums[j] : sums[j];
}

}  // namespace

void run_few_rows(const RowCall& call, std::span<std::byte> workspace, ThreadPool& pool) {
    const ContractionProblem& problem = call.problem;
    const PreparedRows& rows = call.rows;
    const auto element = static_cast<std::int64_t>(size_of(problem.b.dtype));
    const auto memory_of = [&](int worker) {
        return workspace.data() + static_cast<std::size_t>(worker) * rows.worker_bytes;
    };
    // All blocks of the only entry share its rows: a token of eight texts of GPT-2 took an eighth longer in
    // BF16 where each block widened them again. Entries of a batch have rows of their own.
    const bool one_entry = problem.entries() == 1;
    const auto copied_to = [&](int worker) {
        return reinterpret_cast<float*>(memory_of(one_entry ? 0 : worker));
    };
    if (one_entry && !rows.rows_in_place) read_rows(call, 0, copied_to(0));
    pool.for_each_block(problem.entries() * rows.blocks, [&](std::int64_t item, int worker) {
        const std::int64_t entry = item / rows.blocks;
        const PanelRange columns = part_of(problem.n, rows.columns, item % rows.blocks);
        float* const sums = reinterpret_cast<float*>(memory_of(worker) + rows.rows_bytes);
        if (!one_entry && !rows.rows_in_place) read_rows(call, entry, copied_to(worker));
        const std::int64_t first =
            problem.b.offset_of(entry, problem.batch[1]) + columns.begin * rows.next_column;
        rows.multiply({.rows = rows.rows_in_place ? rows_where_they_lie(call, entry) : copied_to(worker),
                       .row_stride = rows.row_stride,
                       .count = problem.m,
                       .b = static_cast<const std::byte*>(call.arguments.b) + first * element,
                       .stride = problem.b.leading,
                       .depth = problem.k,
                       .cols = columns.size,
                       .sums = sums,
                       .sums_stride = rows.columns});
        if (call.finish)
            call.finish(sums, rows.columns, entry * problem.m, columns.begin, problem.m, columns.size,
                        call.finish_args);
        else
            for (std::int64_t i = 0; i < problem.m; ++i)
                store_sums(problem, call.arguments.out, entry, i, columns, sums + i * rows.columns);
    });
}

}  // namespace mantissa::on_cpu
