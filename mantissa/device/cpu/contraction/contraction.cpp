// Everything in a call besides multiplying: checks addresses, and hands the items of matrix_run.h or the
// blocks of row_run.cpp to threads.
#include "mantissa/device/cpu/contraction/contraction.h"

#include <immintrin.h>

#include <vector>

#include "mantissa/device/cpu/contraction/matrix_run.h"
#include "mantissa/device/cpu/contraction/precondition.h"
#include "mantissa/device/cpu/contraction/standard_epilogue.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// Runs an item of one of the entries that are handed out together: in the order of matrix_run.h, each round
/// of all entries before the next round.
void run_item_of(std::span<MatrixRun> runs, const Blocking& blocking, std::int64_t item,
                 std::byte* worker_memory) {
    const auto entries = std::ssize(runs);
    const std::int64_t first = blocking.pack_groups(), round = first + blocking.blocks();
    const std::int64_t behind = item - entries * first;
    const std::int64_t entry = behind < 0 ? item / first : behind % (entries * round) / round;
    const std::int64_t of_entry =
        behind < 0 ? item % first : first + behind / (entries * round) * round + behind % round;
    try {
        runs[static_cast<std::size_t>(entry)].run_item(of_entry, worker_memory);
    } catch (...) {
        for (MatrixRun& run : runs) run.abandon();
        throw;
    }
}

void run_matrices(const MatrixCall& call, std::span<std::byte> workspace, ThreadPool& pool) {
    const Blocking& blocking = call.matrices.blocking;
    const WorkspaceLayout& layout = call.matrices.layout;
    const std::int64_t entries = call.prepared.problem.entries(), items = blocking.items();
    const std::size_t per_worker = layout.per_worker(), per_matrix = layout.per_matrix();
    std::byte* const workers = workspace.data();
    std::byte* const matrices = workers + static_cast<std::size_t>(pool.threads()) * per_worker;
    if (blocking.entry_per_thread) {
        pool.for_each_block(entries, [&](std::int64_t entry, int worker) {
            const auto w = static_cast<std::size_t>(worker);
            MatrixRun run(call, entry, matrices + w * per_matrix);
            for (std::int64_t item = 0; item < items; ++item) run.run_item(item, workers + w * per_worker);
        });
        return;
    }
    for (std::int64_t entry = 0; entry < entries;) {
        std::vector<MatrixRun> runs;
        for (std::int64_t i = 0; i < blocking.entries_at_once; ++i, ++entry)
            runs.emplace_back(call, entry, matrices + static_cast<std::size_t>(i) * per_matrix);
        pool.for_each_in_turn(std::ssize(runs) * items, [&](std::int64_t item, int worker) {
            run_item_of(runs, blocking, item, workers + static_cast<std::size_t>(worker) * per_worker);
        });
    }
}

}  // namespace

void contract(const PreparedContraction& prepared, const ContractionArguments& arguments,
              std::span<std::byte> workspace, ThreadPool& pool) {
    if (std::holds_alternative<NothingToDo>(prepared.way)) return;
    const ContractionProblem& problem = prepared.problem;
    check_arguments(problem, prepared.memory, arguments, workspace, prepared.workspace_bytes(pool.threads()));

    const StandardEpilogueArguments standard{&problem, &arguments, prepared.kernels.finish, prepared.large};
    EpilogueFunction finish = nullptr;
    const void* finish_args = nullptr;
    if (prepared.finish == Finish::custom) {
        finish = arguments.epilogue;
        finish_args = arguments.epilogue_args;
    } else if (prepared.finish == Finish::standard) {
        finish = finish_standard;
        finish_args = &standard;
    }
    if (const auto* rows = std::get_if<PreparedRows>(&prepared.way))
        return run_few_rows({problem, *rows, arguments, finish, finish_args}, workspace, pool);
    const auto& matrices = std::get<PreparedMatrices>(prepared.way);
    run_matrices({prepared, matrices, arguments, finish, finish_args,
                  prepared.finish == Finish::standard ? &standard : nullptr, pool.threads()},
                 workspace, pool);
}

void pack_b(const PreparedContraction& prepared, const void* b, std::span<std::byte> panels,
            ThreadPool& pool) {
    if (prepared.kept_bytes() == 0) return;
    check_packing(prepared.memory, b, panels);
    const ContractionProblem& problem = prepared.problem;
    const auto& matrices = std::get<PreparedMatrices>(prepared.way);
    const Blocking& blocking = matrices.blocking;
    const std::int64_t groups = ceil_div(blocking.columns, blocking.pack_columns);
    const std::int64_t of_chunk = groups * blocking.depths_inside, of_entry = of_chunk * blocking.chunks();
    pool.for_each_block(problem.entries() * of_entry, [&](std::int64_t item, int) {
        const std::int64_t entry = item / of_entry, chunk = item % of_entry / of_chunk;
        const std::int64_t inner = item % of_chunk / groups, group = item % groups;
        const PanelRange columns = blocking.columns_of(problem.n, chunk);
        const PanelRange depth = blocking.depth_of(problem.k, chunk, inner);
        const PanelRange mine = part_of(columns.size, blocking.pack_columns, group);
        std::byte* const first = panels.data() + matrices.place_of_kept(entry, chunk, inner);
        matrices.b.pack({.data = b}, entry, {columns.begin + mine.begin, mine.size},
                        {depth, first + mine.begin * prepared.kernels.line_bytes(depth.size)});
        _mm_sfence();  // panels may have gone past the caches
    });
}

}  // namespace mantissa::on_cpu
