#include "mantissa/device/cpu/contraction/prepared.h"

#include <algorithm>

#include "mantissa/base/error.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/contraction/standard_epilogue.h"

namespace mantissa::inline v0::on_cpu {

namespace {

// An output of 8 MiB, or 4 of BF16, stays in no L2, and will be read from memory anyway. Products that are
// quick enough to keep their sums in L2 wait for every cache behind it. For them, 2 MiB of sums, more than
// one core's L2 holds, are as good as in memory.
constexpr std::int64_t large_from = 2 << 20;
constexpr std::int64_t large_from_beside_quick_products = 1 << 19;

// The share of a cache that may be counted on, if all cores share it. Larger panels are read from memory in
// any case. Written past the caches, their lines are not fetched before and drive nothing else out. With
// AMX's products replaced by reading their operands, the gradient of GPT-2's input to the logits took 0.6 of
// the time.
constexpr std::size_t max_shared_in_cache = std::size_t{8} << 20;

// About 256 KB of FP32 a block of b, some 20 microseconds of reading; but sixteen blocks or more, so that no
// thread waits long for the last.
constexpr std::int64_t block_elements = 64 << 10, min_blocks = 16;
// Where b's rows run across the depth: pieces of 1 KB, and sums in L1.
constexpr std::int64_t columns_across = 256;

std::size_t whole_lines(std::int64_t bytes) { return static_cast<std::size_t>(in_lines(bytes)); }

bool is_large(const ContractionProblem& problem, const ContractionKernels& kernels) {
    const bool quick = kernels.max_partial_bytes > 0;
    return problem.sums() >= (quick ? large_from_beside_quick_products : large_from);
}

/// Whether b is read in place, and the kernels have functions for that.
bool are_few_rows(const ContractionProblem& problem, const ContractionKernels& kernels) {
    const MatrixLayout &a = problem.a, &b = problem.b;
    return problem.m <= max_rows_in_place && !a.mapped && !a.window && !b.window && !has_codes(b.codes) &&
           kernels.multiply_row[0][0] != nullptr;
}

/// Whether several rows of BF16 lie along the depth, as the columns do.
bool are_rows_of_pairs(const ContractionProblem& problem, const ContractionKernels& kernels) {
    return kernels.multiply_rows_of_pairs && problem.m > 1 && problem.a.dtype == DType::bf16 &&
           problem.b.dtype == DType::bf16 && problem.a.transpose == Transpose::no &&
           problem.b.transpose == Transpose::yes;
}

std::int64_t most_columns_of_block(const ContractionProblem& problem) {
    if (problem.b.transpose == Transpose::no) return columns_across;
    return std::clamp<std::int64_t>(block_elements / std::max<std::int64_t>(1, problem.k) / 16 * 16, 16,
                                    4096);
}

std::int64_t columns_of_block(const ContractionProblem& problem) {
    const std::int64_t most = most_columns_of_block(problem);
    if (problem.b.transpose == Transpose::no) return most;
    return std::clamp<std::int64_t>(problem.n / min_blocks / 16 * 16, 16, most);
}

}  // namespace

WorkspaceLayout::WorkspaceLayout(const ContractionProblem& problem, const Blocking& blocking,
                                 const ContractionKernels& kernels) {
    const std::int64_t line_bytes = kernels.line_bytes(blocking.depth);
    const auto zeros = [&](std::int64_t lines, std::int64_t panel) {
        return problem.finds_zeros() ? in_lines(ceil_div(lines, panel) * 8) : 0;
    };
    const std::size_t buffers = blocking.chunks() > 1 ? 2 : 1;
    buffers_of_b = problem.keeps_b ? 0 : buffers;
    buffers_of_a = blocking.rows_once() ? 1 : buffers;
    counters = whole_lines((4 + blocking.blocks()) * 8);
    zeros_of_b = in_lines(blocking.packed_bytes);
    part_of_b = zeros_of_b + zeros(blocking.columns, kernels.width);
    packed_b = whole_lines(part_of_b * blocking.depths_inside);
    const bool shares_a = blocking.a_groups > 0;
    zeros_of_a = in_lines(line_bytes * align_up(problem.m, kernels.height));
    part_of_a = zeros_of_a + zeros(problem.m, kernels.height);
    packed_a = shares_a ? whole_lines(part_of_a * blocking.depths_inside) : 0;
    partial = blocking.partial_sums ? whole_lines(problem.m * blocking.columns * 4) : 0;
    zeros_of_block = in_lines(line_bytes * blocking.rows);
    block_of_a = shares_a ? 0 : whole_lines(zeros_of_block + zeros(blocking.rows, kernels.height));
    if (const auto pairs = ImagePairs::of(problem, kernels))
        packed_a = whole_lines(pairs->bytes(problem.k, blocking.depth));
    if (blocking.a_in_place) {
        const std::size_t addresses =
            reads_a_across(problem, kernels)
                ? ChannelsInPlace(problem, kernels).bytes(blocking.rows, blocking.depth)
                : RowsInPlace(problem, kernels).bytes(blocking.rows, blocking.depth);
        block_of_a = whole_lines(static_cast<std::int64_t>(addresses));
    }
    if (const auto tiles = TilesInPlace::of(problem, kernels))
        block_of_a = whole_lines(static_cast<std::int64_t>(tiles->bytes(blocking.rows, blocking.depth)));
    const std::int64_t tile = kernels.height * kernels.width * 4;
    const std::int64_t tiles =
        ceil_div(blocking.rows, kernels.height) * ceil_div(blocking.split_columns, kernels.width);
    block_of_sums = whole_lines(blocking.depths_inside > 1 ? tiles * tile : tile);
    two_tiles = kernels.interleaves() ? whole_lines(2 * tile) : 0;
}

PanelStores WorkspaceLayout::stores() const {
    return buffers_of_b * packed_b + buffers_of_a * packed_a > max_shared_in_cache ? PanelStores::streaming
                                                                                   : PanelStores::plain;
}

PreparedMatrices::PreparedMatrices(const ContractionProblem& problem, const ContractionKernels& kernels)
    : blocking(blocking_of(problem, kernels)),
      layout(problem, blocking, kernels),
      a(problem, Side::a, kernels, blocking.a_groups > 0 ? layout.stores() : PanelStores::plain),
      b(problem, Side::b, kernels, layout.stores()) {
    check(!problem.finds_zeros() || blocking.depth <= 64 * depth_of_zeros,
          "a chunk of the depth has more blocks than a number of bits");
    words = PixelWords::of(problem, kernels);
    tiles = TilesInPlace::of(problem, kernels);
    if (reads_a_in_place(problem, kernels)) in_place.emplace(problem, kernels);
    if (reads_a_across(problem, kernels)) across.emplace(problem, kernels);
}

std::size_t PreparedMatrices::workspace_bytes(int threads) const {
    const auto workers = static_cast<std::size_t>(threads);
    const auto matrices =
        blocking.entry_per_thread ? workers : static_cast<std::size_t>(blocking.entries_at_once);
    return workers * layout.per_worker() + matrices * layout.per_matrix();
}

PreparedRows::PreparedRows(const ContractionProblem& problem, const ContractionKernels& kernels) {
    const bool along = problem.b.transpose == Transpose::yes;
    const auto form = static_cast<std::size_t>(along ? PanelSource::along_depth : PanelSource::across_depth);
    rows_in_place = are_rows_of_pairs(problem, kernels);
    multiply = rows_in_place ? kernels.multiply_rows_of_pairs
                             : kernels.multiply_row[form][problem.b.dtype == DType::bf16 ? 1 : 0];
    columns = columns_of_block(problem);
    blocks = ceil_div(problem.n, columns);
    next_column = along ? problem.b.leading : 1;
    row_stride = rows_in_place ? problem.a.leading : in_lines(problem.k * 4) / 4;
    rows_bytes = rows_in_place ? 0 : whole_lines(problem.m * row_stride * 4);
    // For any number of columns: those of a loop's product may be its steps, which should cost no memory.
    worker_bytes = rows_bytes + whole_lines(problem.m * most_columns_of_block(problem) * 4);
}

std::size_t PreparedContraction::workspace_bytes(int threads) const {
    if (const auto* rows = std::get_if<PreparedRows>(&way)) return rows->workspace_bytes(threads);
    const auto* const matrices = std::get_if<PreparedMatrices>(&way);
    return matrices ? matrices->workspace_bytes(threads) : 0;
}

std::int64_t PreparedContraction::rows_of_item() const {
    const auto* const matrices = std::get_if<PreparedMatrices>(&way);
    return matrices ? matrices->blocking.rows : std::max<std::int64_t>(1, problem.m);
}

PreparedContraction prepare_contraction(const ContractionProblem& problem,
                                        const ContractionKernels& kernels) {
    PreparedContraction out{.problem = problem,
                            .kernels = kernels,
                            .memory = {},
                            .way = NothingToDo{},
                            .large = is_large(problem, kernels)};
    if (problem.sums() == 0) return out;
    out.memory = memory_of(problem);
    bool in_place = !needs_finishing(problem);
    if (are_few_rows(problem, kernels)) {
        out.way.emplace<PreparedRows>(problem, kernels);
        out.problem.keeps_b = false;
    } else {
        const PreparedMatrices& matrices = out.way.emplace<PreparedMatrices>(problem, kernels);
        const Blocking& blocking = matrices.blocking;
        if (problem.keeps_b)
            out.memory.kept_bytes = static_cast<std::size_t>(matrices.place_of_kept(problem.entries(), 0));
        in_place = in_place && blocking.depths_inside == 1;
        out.streaming = out.large && problem.store == Store::overwrite && blocking.depth_chunks == 1;
    }
    if (problem.custom_epilogue)
        out.finish = Finish::custom;
    else
        out.finish = in_place ? Finish::none : Finish::standard;
    out.streaming = out.streaming && out.finish == Finish::none;
    return out;
}

PreparedContraction prepare_contraction(const ContractionProblem& problem, Isa isa) {
    require_accepted(problem);
    return prepare_contraction(problem, kernels_of(problem, isa));
}

}  // namespace mantissa::on_cpu
