#include "mantissa/device/cpu/contraction/blocking.h"

#include <algorithm>

#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/contraction/in_place.h"
#include "mantissa/device/cpu/contraction/pixel_words.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// The size of equal parts of `size`, as few as keep each at most `most`, in whole units.
constexpr std::int64_t even_part(std::int64_t size, std::int64_t most, std::int64_t unit) {
    const std::int64_t count = std::max<std::int64_t>(1, ceil_div(size, most));
    return std::max(unit, align_up(ceil_div(size, count), unit));
}

// Packed chunks of b, 384 x 3072 x 4 bytes, are read once per 256 rows: from L3 or memory, under the
// arithmetic.
constexpr std::int64_t max_columns = 3072;
constexpr std::int64_t max_columns_of_entry = 1024;
// Enough items, so that threads which take them one by one end at about the same time.
constexpr std::int64_t enough_blocks = 12;
// So many blocks or a multiple, where they are few: 13 on two threads wait for one, a fourteenth of the time.
constexpr std::int64_t even_blocks = 4, many_blocks = 64;
// A chunk of a that is packed for all blocks is to stay in L3, beside b's.
constexpr std::int64_t max_shared_bytes = 8 << 20;
// All of k packed at a time must be worth its memory: GPT-2 124M's widest activation is 25 MB. Where all of k
// is more, or each thread has an entry of a batch to itself, a part of k is packed, and the next beside it. 8
// MB of b 768 wide are 13 chunks; after these, sums go to memory and back.
constexpr std::int64_t max_packed_bytes = 32 << 20;
constexpr std::int64_t max_packed_bytes_of_entry = 4 << 20;
constexpr std::int64_t max_packed_bytes_of_part = 8 << 20;
constexpr std::int64_t enough_entries = 8;
// As few entries as these leave many threads idle; their chunks together stay in L3.
constexpr std::int64_t max_entries_at_once = 16;
constexpr std::int64_t max_pack_lines = 192;

// Six blocks for each of many threads, so that the last ones cost little. A panel of b that passes 64 rows is
// read at 2 GB/s from behind L2, and one of a that passes 96 columns at less; tiles of AMX, twenty times as
// fast, would wait for both. A few threads lose by it: while memory is slow, finer blocks cost two of them
// 15 % of a step.
constexpr int many_threads = 9;
constexpr std::int64_t blocks_of_thread = 6;
constexpr std::int64_t min_rows_of_many = 64, min_columns_of_many = 96;
constexpr std::int64_t pack_lines_of_many = 96;

bool has_many_threads(const ContractionProblem& problem, const ContractionKernels& kernels) {
    return problem.threads >= many_threads && !kernels.interleaves();
}

/// Lines of an operand that are packed as one item, in whole panels.
std::int64_t pack_lines(std::int64_t panel_size, bool many) {
    return align_up(many ? pack_lines_of_many : max_pack_lines, panel_size);
}

/// How many chunks of the depth blocks go through, one block after another: all of them, or equal parts of
/// which two, packed, are not too much. One where the sums of all blocks together stay in L2 between chunks:
/// then packed chunks do, too. Where not all chunks can be packed at a time, sums twice as large are worth
/// that: they pass L2 with each chunk, but for them packed chunks do.
std::int64_t depths_inside_of(const ContractionProblem& problem, const ContractionKernels& kernels,
                              const Blocking& blocking) {
    const std::int64_t chunks = blocking.depth_chunks;
    if (blocking.rows * kernels.width * 4 > kernels.max_partial_bytes) return 1;
    const std::int64_t sums = problem.m * blocking.columns * 4;
    if (sums <= 2 * kernels.max_partial_bytes) return 1;
    const std::int64_t most = blocking.entry_per_thread ? max_packed_bytes_of_entry : max_packed_bytes;
    const std::int64_t packed = blocking.packed_bytes;
    if (packed * chunks * std::min<std::int64_t>(blocking.column_chunks, 2) <= most) return chunks;
    if (sums <= 4 * kernels.max_partial_bytes) return 1;
    const std::int64_t part = std::min(most / 2, max_packed_bytes_of_part);
    return ceil_div(chunks, ceil_div(chunks, std::max<std::int64_t>(1, part / packed)));
}

/// Rows of a block, whose sums stay in L2 beside `min_columns` where the depth is several chunks.
std::int64_t max_rows_of(const ContractionKernels& kernels, const Blocking& blocking) {
    if (blocking.depth_chunks == 1 || kernels.max_partial_bytes == 0) return kernels.max_rows;
    const std::int64_t rows = kernels.max_partial_bytes / 4 / kernels.min_columns;
    return std::clamp(rows / kernels.height * kernels.height, kernels.height, kernels.max_rows);
}

/// Whether few blocks of a deep contraction on tiles may be as tall as L2 allows: a panel of b that more rows
/// meet is asked for less often. Not with a custom epilogue: it may add sums up by blocks of rows, and such
/// blocks must follow from the shape alone.
bool may_be_tall(const ContractionProblem& problem, const ContractionKernels& kernels,
                 std::int64_t depth_chunks) {
    return kernels.interleaves() && depth_chunks > 1 && !problem.custom_epilogue;
}

/// Cuts blocks finer where they are few for many threads: rows first, then columns where that packs no row
/// twice. Each sum is made as before. An epilogue adds some sums up a block of rows, so the rows of such a
/// block stay together.
void cut_for_many_threads(const ContractionProblem& problem, const ContractionKernels& kernels,
                          bool packs_rows_once, Blocking& blocking) {
    const std::int64_t splits = ceil_div(blocking.columns, blocking.split_columns);
    const std::int64_t wanted = ceil_div(blocks_of_thread * problem.threads, blocking.entries_at_once);
    const std::int64_t wanted_rows = ceil_div(problem.m, ceil_div(wanted, splits));
    const std::int64_t rows = even_part(problem.m, std::max(min_rows_of_many, wanted_rows), kernels.height);
    if (!problem.custom_epilogue) blocking.rows = std::min(blocking.rows, rows);
    if (!packs_rows_once) return;
    const std::int64_t row_blocks = std::max<std::int64_t>(1, ceil_div(problem.m, blocking.rows));
    const std::int64_t wanted_columns = ceil_div(blocking.columns, ceil_div(wanted, row_blocks));
    const std::int64_t columns =
        even_part(blocking.columns, std::max(min_columns_of_many, wanted_columns), kernels.width);
    blocking.split_columns = std::min(blocking.split_columns, columns);
}

}  // namespace

std::int64_t depth_of_chunks(std::int64_t k, const ContractionKernels& kernels) {
    return even_part(
        k, k <= kernels.whole_depth ? std::max(kernels.whole_depth, kernels.max_depth) : kernels.max_depth,
        std::max<std::int64_t>(8, kernels.depth_unit));
}

Blocking blocking_of(const ContractionProblem& problem, const ContractionKernels& kernels) {
    Blocking out;
    const std::int64_t entries = problem.entries();
    const bool many = has_many_threads(problem, kernels);
    if (entries >= enough_entries && entries <= max_entries_at_once && many) out.entries_at_once = entries;
    out.entry_per_thread = entries >= enough_entries && out.entries_at_once == 1;
    out.depth = depth_of_chunks(problem.k, kernels);
    out.depth_chunks = std::max<std::int64_t>(1, ceil_div(problem.k, out.depth));
    const auto words = PixelWords::of(problem, kernels);
    const std::int64_t most_columns = words                  ? problem.n
                                      : out.entry_per_thread ? max_columns_of_entry
                                                             : max_columns;
    out.columns = even_part(problem.n, most_columns, kernels.width);
    out.column_chunks = ceil_div(problem.n, out.columns);
    out.pack_columns = std::min(out.columns, pack_lines(kernels.width, many));
    if (!problem.keeps_b) out.b_groups = ceil_div(words ? words->channels() : out.columns, out.pack_columns);

    const std::int64_t line_bytes = kernels.line_bytes(out.depth);
    out.packed_bytes = words ? words->bytes(out.depth) : out.columns * line_bytes;
    const std::int64_t max_rows = max_rows_of(kernels, out);
    const std::int64_t max_rows_of_block = std::clamp(
        kernels.max_block_bytes / line_bytes / kernels.height * kernels.height, kernels.height, max_rows);
    out.rows = even_part(problem.m, max_rows_of_block, kernels.height);
    out.depths_inside = depths_inside_of(problem, kernels, out);
    out.split_columns = out.columns;
    const auto cut_columns = [&] {
        const std::int64_t row_blocks = std::max<std::int64_t>(1, ceil_div(problem.m, out.rows));
        const std::int64_t splits = std::min(ceil_div(enough_blocks, row_blocks),
                                             std::max<std::int64_t>(1, out.columns / kernels.min_columns));
        std::int64_t most = ceil_div(out.columns, splits);
        if (out.depths_inside > 1) most = std::min(most, kernels.max_partial_bytes / 4 / out.rows);
        out.split_columns = even_part(out.columns, most, kernels.width);
        return row_blocks * ceil_div(out.columns, out.split_columns);
    };
    const std::int64_t tall_rows = out.rows;
    if (cut_columns() < enough_blocks && !out.entry_per_thread) {
        out.rows = even_part(problem.m, std::min(max_rows_of_block, max_rows / 2), kernels.height);
        cut_columns();
    }
    const std::int64_t blocks = ceil_div(problem.m, out.rows);
    if (!out.entry_per_thread && !kernels.interleaves() && blocks > even_blocks && blocks < many_blocks) {
        out.rows = even_part(problem.m, ceil_div(problem.m, align_up(blocks, even_blocks)), kernels.height);
        cut_columns();
    }
    const std::int64_t low_rows = out.rows;
    // Rows too many to be packed for all blocks are packed by each block: once where enough blocks lie below
    // one another, and not for each split of the columns. Where b is words of pixels, a is gathered, too:
    // that is worth the way through memory.
    const std::int64_t most_shared = words ? max_packed_bytes : max_shared_bytes;
    const bool too_many = problem.m * line_bytes * out.depths_inside > most_shared;
    const std::int64_t rows_of_enough =
        even_part(problem.m, ceil_div(problem.m, enough_blocks), kernels.height);
    if (!out.entry_per_thread && too_many && out.split_columns < out.columns &&
        rows_of_enough >= max_rows / 2 && rows_of_enough < out.rows) {
        out.rows = rows_of_enough;
        cut_columns();
    }
    out.a_in_place = reads_a_in_place(problem, kernels) || reads_a_across(problem, kernels);
    out.few_blocks = ceil_div(problem.m, out.rows) * ceil_div(out.columns, out.split_columns);
    if (may_be_tall(problem, kernels, out.depth_chunks) && out.rows == low_rows) {
        // The tallest blocks that give each thread equally many, two at least.
        const auto cut_evenly = [&](std::int64_t rows) {
            out.rows = even_part(problem.m, rows, kernels.height);
            const std::int64_t blocks = cut_columns();
            return blocks >= 2 * problem.threads && blocks % problem.threads == 0;
        };
        std::int64_t rows = tall_rows;
        while (!cut_evenly(rows) && rows > low_rows) rows = std::max(low_rows, rows - kernels.height);
    }
    if (!out.entry_per_thread && many)
        cut_for_many_threads(problem, kernels, out.a_in_place || !too_many, out);
    out.row_blocks = ceil_div(problem.m, out.rows);
    out.column_splits = ceil_div(out.columns, out.split_columns);
    // Column chunks are many passes over a, too; where k is one chunk they all read the same rows.
    const bool read_again = out.column_splits > 1 || (out.column_chunks > 1 && out.rows_once());
    out.pack_rows = pack_lines(kernels.height, many);
    if (ImagePairs::of(problem, kernels))
        out.a_groups = ceil_div(problem.a.window->channels, out.pack_rows);
    else if (read_again && !out.a_in_place && !too_many)
        out.a_groups = ceil_div(problem.m, out.pack_rows);
    out.partial_sums = out.depth_groups() > 1 && (problem.custom_epilogue || problem.out.dtype != DType::f32);
    return out;
}

}  // namespace mantissa::on_cpu
