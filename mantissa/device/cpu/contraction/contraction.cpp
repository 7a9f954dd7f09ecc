// What a call does besides multiplying: chooses, checks, and hands the items of matrix_run.h to threads.
#include "mantissa/device/cpu/contraction/contraction.h"

#include <immintrin.h>

#include "mantissa/base/error.h"
#include "mantissa/device/cpu/contraction/blocking.h"
#include "mantissa/device/cpu/contraction/choice.h"
#include "mantissa/device/cpu/contraction/matrix_run.h"
#include "mantissa/device/cpu/contraction/precondition.h"
#include "mantissa/device/cpu/contraction/row_run.h"
#include "mantissa/device/cpu/contraction/run_with.h"
#include "mantissa/device/cpu/contraction/standard_epilogue.h"

namespace mantissa::cpu {

namespace {

// An output of 8 MiB, or 4 of BF16, stays in no L2, and will be read from memory anyway. Products that are
// quick enough to keep their sums in L2 wait for every cache behind it: there, what one core's L2 does not
// hold, 2 MiB of sums, is as good as in memory.
constexpr std::int64_t large_from = 2 << 20;
constexpr std::int64_t large_from_beside_quick_products = 1 << 19;

// A packed operand that no L2 holds is read from behind it: written past it, its lines are not fetched
// before.
constexpr std::size_t packed_past_caches_from = std::size_t{2} << 20;

// What a thread packs at a time of an operand that is packed on its own: hardware has to learn anew where
// each begins. Half of it lost five points of a copy in the middle, a quarter nine.
constexpr std::int64_t packing_item_bytes = 512 << 10;

std::int64_t elements_of(const ContractionProblem& problem) {
    return problem.batch[0] * problem.batch[1] * problem.m * problem.n;
}

bool is_empty(const ContractionProblem& problem) { return elements_of(problem) == 0; }

bool is_large(const ContractionProblem& problem, const ContractionKernels& kernels) {
    const bool quick = kernels.most_partial_bytes > 0;
    return elements_of(problem) >= (quick ? large_from_beside_quick_products : large_from);
}

void run_guarded(MatrixRun& run, std::int64_t item, std::byte* worker_memory) {
    try {
        run.run_item(item, worker_memory);
    } catch (...) {
        run.abandon();
        throw;
    }
}

void run_matrices(const ContractionCall& call, std::span<std::byte> workspace, ThreadPool& pool) {
    const std::int64_t entries = call.problem.batch[0] * call.problem.batch[1];
    const std::size_t per_worker = call.layout.per_worker(), per_matrix = call.layout.per_matrix();
    std::byte* const workers = workspace.data();
    std::byte* const matrices = workers + static_cast<std::size_t>(pool.threads()) * per_worker;
    if (call.blocking.entry_per_thread) {
        pool.for_each_block(entries, [&](std::int64_t entry, int worker) {
            const auto w = static_cast<std::size_t>(worker);
            MatrixRun run(call, entry, matrices + w * per_matrix);
            for (std::int64_t item = 0; item < call.blocking.items(); ++item)
                run.run_item(item, workers + w * per_worker);
        });
        return;
    }
    for (std::int64_t entry = 0; entry < entries; ++entry) {
        MatrixRun run(call, entry, matrices);
        pool.for_each_block(call.blocking.items(), [&](std::int64_t item, int worker) {
            run_guarded(run, item, workers + static_cast<std::size_t>(worker) * per_worker);
        });
    }
}

void require(const std::string& refused) {
    if (!refused.empty()) throw InternalError("contraction: " + refused);
}

}  // namespace

std::size_t workspace_bytes(const ContractionProblem& problem, Isa isa, int threads) {
    return workspace_bytes(problem, kernels_of(problem, isa), threads);
}

std::size_t workspace_bytes(const ContractionProblem& problem, const ContractionKernels& kernels,
                            int threads) {
    if (is_empty(problem)) return 0;
    if (is_single_row(problem, kernels)) return row_workspace_bytes(problem, threads);
    const Blocking blocking = blocking_of(problem, kernels);
    const WorkspaceLayout layout(problem, blocking, kernels);
    const auto workers = static_cast<std::size_t>(threads);
    return (blocking.entry_per_thread ? workers : 1) * layout.per_matrix() + workers * layout.per_worker();
}

std::int64_t rows_of_item(const ContractionProblem& problem, Isa isa) {
    const ContractionKernels kernels = kernels_of(problem, isa);
    if (is_empty(problem) || is_single_row(problem, kernels)) return 1;
    return blocking_of(problem, kernels).rows;
}

std::size_t packed_bytes(const ContractionProblem& problem, Side side, Isa isa) {
    return packed_bytes(problem, side, kernels_of(problem, isa));
}

std::size_t packed_bytes(const ContractionProblem& problem, Side side, const ContractionKernels& kernels) {
    return OperandPanels(problem, side, kernels).bytes();
}

void pack(const ContractionProblem& problem, Side side, const void* source, std::span<std::byte> packed,
          ThreadPool& pool, Isa isa) {
    require(refusal(problem, isa));
    pack(problem, side, source, packed, pool, kernels_of(problem, isa));
}

void pack(const ContractionProblem& problem, Side side, const void* source, std::span<std::byte> packed,
          ThreadPool& pool, const ContractionKernels& kernels) {
    const std::size_t bytes = packed_bytes(problem, side, kernels);
    check_packing(problem, side, source, packed, bytes);
    const bool streaming = bytes >= packed_past_caches_from;
    const OperandPanels panels(problem, side, kernels,
                               streaming ? PanelStores::streaming : PanelStores::plain);
    const std::int64_t rows = panels.stored_rows(), part = panels.stored_rows_of(packing_item_bytes);
    pool.for_each_block((rows + part - 1) / part, [&](std::int64_t item, int) {
        panels.pack_stored(source, part_of(rows, part, item), packed.data());
        if (streaming) _mm_sfence();
    });
}

void contract(const ContractionProblem& problem, const ContractionArguments& arguments,
              std::span<std::byte> workspace, ThreadPool& pool, Isa isa) {
    require(refusal(problem, isa));
    contract(problem, arguments, workspace, pool, kernels_of(problem, isa));
}

void contract(const ContractionProblem& problem, const ContractionArguments& arguments,
              std::span<std::byte> workspace, ThreadPool& pool, const ContractionKernels& kernels) {
    if (is_empty(problem)) return;
    check_arguments(problem, arguments, workspace,
                    {.workspace = workspace_bytes(problem, kernels, pool.threads()),
                     .packed_a = problem.a.packed ? packed_bytes(problem, Side::a, kernels) : 0,
                     .packed_b = problem.b.packed ? packed_bytes(problem, Side::b, kernels) : 0});

    const Blocking blocking = blocking_of(problem, kernels);
    const bool large = is_large(problem, kernels);
    const StandardEpilogueArguments standard{&problem, &arguments, kernels.finish, large};
    ContractionCall call{problem, arguments, kernels, blocking, WorkspaceLayout(problem, blocking, kernels)};
    call.large = large;
    if (problem.custom_epilogue) {
        call.finish = arguments.epilogue;
        call.finish_args = arguments.epilogue_args;
    } else if (needs_finishing(problem) || blocking.depth_inside) {
        call.finish = finish_standard;
        call.finish_args = &standard;
    } else {
        call.streaming = large && problem.store == Store::overwrite && blocking.depth_chunks == 1;
    }
    if (is_single_row(problem, kernels))
        run_single_row(problem, arguments, kernels, workspace, pool, call.finish, call.finish_args);
    else
        run_matrices(call, workspace, pool);
}

}  // namespace mantissa::cpu
