// Runs a contraction as one loop over items handed out in order: packing a chunk of b, and multiplying one
// block of rows with a packed chunk. The chunk after the one being multiplied is packed beside it, so threads
// meet no barrier; an item waits only for items before it, which some thread has taken already, so no wait is
// for ever.
//
// Items of one matrix:   pack chunk 0 | pack chunk 1, multiply chunk 0 | pack chunk 2, multiply chunk 1 | ...
#include "mantissa/device/cpu/contraction/contraction.h"

#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "mantissa/base/error.h"
#include "mantissa/device/cpu/contraction/blocking.h"
#include "mantissa/device/cpu/contraction/choice.h"
#include "mantissa/device/cpu/contraction/kernels.h"
#include "mantissa/device/cpu/contraction/precondition.h"
#include "mantissa/device/cpu/contraction/run_with.h"
#include "mantissa/device/cpu/contraction/standard_epilogue.h"

namespace mantissa::cpu {

namespace {

// An output of 8 MiB stays in no L2, and will be read from memory anyway.
constexpr std::int64_t streaming_from = 2 << 20;

/// Between a kernel set's begin and end, whatever happens in an epilogue.
class Prepared {
  public:
    explicit Prepared(const ContractionKernels& kernels) : kernels_(kernels) {
        if (kernels_.begin) kernels_.begin();
    }
    ~Prepared() {
        if (kernels_.end) kernels_.end();
    }
    Prepared(const Prepared&) = delete;
    Prepared& operator=(const Prepared&) = delete;

  private:
    const ContractionKernels& kernels_;
};

std::size_t in_lines(std::int64_t bytes) { return (static_cast<std::size_t>(bytes) + 63) / 64 * 64; }

/// Bytes of the parts of the workspace, each in whole cache lines.
struct WorkspaceLayout {
    WorkspaceLayout(const ContractionProblem& problem, const Blocking& blocking,
                    const ContractionKernels& kernels)
        : counters(in_lines((4 + blocking.blocks()) * 8)),
          packed_b(in_lines(kernels.line_bytes(blocking.depth) * blocking.columns)),
          partial(blocking.partial_sums ? in_lines(problem.m * blocking.columns * 4) : 0),
          packed_a(in_lines(kernels.line_bytes(blocking.depth) * blocking.rows)),
          tile(in_lines(kernels.height * kernels.width * 4)) {}

    std::size_t per_matrix() const { return counters + 2 * packed_b + partial; }
    std::size_t per_worker() const { return packed_a + tile; }

    std::size_t counters, packed_b, partial, packed_a, tile;
};

/// Short rows a page apart are no stream that hardware would foresee.
void prefetch(const std::byte* from, std::int64_t bytes) {
    for (std::int64_t at = 0; at < bytes; at += 64) _mm_prefetch(from + at, _MM_HINT_T0);
}

std::atomic_ref<std::int64_t> atomic(std::int64_t& counter) { return std::atomic_ref<std::int64_t>(counter); }

/// One matrix of the batch, and the memory in which it is computed.
class MatrixRun {
  public:
    struct Common {
        const ContractionProblem& problem;
        const ContractionArguments& arguments;
        ContractionKernels kernels;
        Blocking blocking;
        WorkspaceLayout layout;
        bool streaming = false;
        EpilogueFunction finish = nullptr;
        const void* finish_args = nullptr;
    };

    MatrixRun(const Common& common, std::int64_t entry, std::byte* memory)
        : c_(common), p_(common.problem), entry_(entry), memory_(memory) {
        std::memset(memory_, 0, c_.layout.counters);
    }

    void run_item(std::int64_t item, std::byte* worker_memory) {
        const Blocking& blocking = c_.blocking;
        if (item < blocking.pack_groups) return pack(0, item);
        item -= blocking.pack_groups;
        const std::int64_t chunk = item / (blocking.pack_groups + blocking.blocks());
        const std::int64_t part = item % (blocking.pack_groups + blocking.blocks());
        if (part >= blocking.pack_groups)
            multiply(chunk, part - blocking.pack_groups, worker_memory);
        else if (chunk + 1 < blocking.chunks())
            pack(chunk + 1, part);
    }

    /// Lets those who wait for an item that failed go on.
    void abandon() { atomic(counter(failed_counter)).store(1); }

  private:
    // Counters. Chunks of equal parity share a buffer and a counter, which only grows.
    static constexpr std::int64_t failed_counter = 0, first_block_counter = 4;
    std::int64_t& counter(std::int64_t index) { return reinterpret_cast<std::int64_t*>(memory_)[index]; }
    std::int64_t& packed(std::int64_t chunk) { return counter(1 + chunk % 2); }
    // The block counters count chunks done.
    std::int64_t& done(std::int64_t block) { return counter(first_block_counter + block); }

    void wait(std::int64_t& what, std::int64_t least) {
        for (int round = 0; atomic(what).load(std::memory_order_acquire) < least; ++round) {
            if (atomic(counter(failed_counter)).load(std::memory_order_relaxed)) return;
            if (round < 1000)
                _mm_pause();
            else
                std::this_thread::yield();
        }
    }

    std::byte* packed_b(std::int64_t chunk) const {
        return memory_ + c_.layout.counters + static_cast<std::size_t>(chunk % 2) * c_.layout.packed_b;
    }

    struct Range {
        std::int64_t begin, size;
    };

    static Range part_of(std::int64_t whole, std::int64_t part, std::int64_t index) {
        const std::int64_t begin = std::min(whole, index * part);
        return {begin, std::min(part, whole - begin)};
    }

    Range depth_of(std::int64_t chunk) const {
        return part_of(p_.k, c_.blocking.depth, chunk % c_.blocking.depth_chunks);
    }
    Range columns_of(std::int64_t chunk) const {
        return part_of(p_.n, c_.blocking.columns, chunk / c_.blocking.depth_chunks);
    }

    std::int64_t offset_in(const MatrixLayout& layout) const {
        return entry_ / p_.batch[1] * layout.batch_stride[0] + entry_ % p_.batch[1] * layout.batch_stride[1];
    }

    /// Packs lines x depth of an operand into panels of `panel_size` lines.
    struct Source {
        const void* data;
        const MatrixLayout& layout;
        const PanelKernels& kernels;
        std::int64_t panel_size;
        PanelSource form;
    };
    void pack_panels(const Source& source, Range lines, Range depth, std::byte* panels) const;
    void pack(std::int64_t chunk, std::int64_t group);
    void multiply(std::int64_t chunk, std::int64_t block, std::byte* worker_memory);
    void multiply_panels(std::int64_t chunk, Range rows, Range columns, std::byte* worker_memory) const;

    const Common& c_;
    const ContractionProblem& p_;
    std::int64_t entry_;
    std::byte* memory_;
};

void MatrixRun::pack_panels(const Source& source, Range lines, Range depth, std::byte* panels) const {
    const PanelKernel kernel =
        source.kernels[static_cast<std::size_t>(source.form)][source.layout.dtype == DType::bf16 ? 1 : 0];
    const auto* const base = static_cast<const std::byte*>(source.data);
    const auto element = static_cast<std::int64_t>(size_of(source.layout.dtype));
    const bool along = source.form == PanelSource::along_depth;
    const std::int64_t line_step = along ? source.layout.leading : 1;
    const std::int64_t depth_step = along ? 1 : source.layout.leading;
    // A few stored rows at a time, so that the lines of cache between two panels are read once.
    const std::int64_t slice = along ? depth.size : std::max<std::int64_t>(16, c_.kernels.depth_unit);
    const std::int64_t line_bytes = c_.kernels.line_bytes(depth.size);
    const std::int64_t origin = offset_in(source.layout);
    for (std::int64_t k = 0; k < depth.size; k += slice) {
        const std::int64_t next = std::min(slice, depth.size - k - slice);
        for (std::int64_t row = 0; !along && row < next; ++row)
            prefetch(base + element * (origin + lines.begin + (depth.begin + k + slice + row) * depth_step),
                     element * lines.size);
        for (std::int64_t line = 0; line < lines.size; line += source.panel_size)
            kernel({.source = base + element * (origin + (lines.begin + line) * line_step +
                                                (depth.begin + k) * depth_step),
                    .stride = source.layout.leading,
                    .lines = std::min(source.panel_size, lines.size - line),
                    .depth = std::min(slice, depth.size - k),
                    .panel = panels + line * line_bytes + k * source.panel_size * c_.kernels.element_bytes});
    }
}

void MatrixRun::pack(std::int64_t chunk, std::int64_t group) {
    // The buffer is free when every block is done with the chunk before the last.
    for (std::int64_t block = 0; block < c_.blocking.blocks(); ++block) wait(done(block), chunk - 1);
    const Range columns = columns_of(chunk), depth = depth_of(chunk);
    const Range mine = part_of(columns.size, c_.blocking.pack_columns, group);
    const bool stored_transposed = p_.b.transpose == Transpose::yes;
    pack_panels({.data = c_.arguments.b,
                 .layout = p_.b,
                 .kernels = c_.kernels.pack_b,
                 .panel_size = c_.kernels.width,
                 .form = stored_transposed ? PanelSource::along_depth : PanelSource::across_depth},
                {columns.begin + mine.begin, mine.size}, depth,
                packed_b(chunk) + mine.begin * c_.kernels.line_bytes(depth.size));
    atomic(packed(chunk)).fetch_add(1, std::memory_order_release);
}

void MatrixRun::multiply(std::int64_t chunk, std::int64_t block, std::byte* worker_memory) {
    const Blocking& blocking = c_.blocking;
    wait(packed(chunk), blocking.pack_groups * (chunk / 2 + 1));
    wait(done(block), chunk);
    const Range rows = part_of(p_.m, blocking.rows, block % blocking.row_blocks);
    const Range columns =
        part_of(columns_of(chunk).size, blocking.split_columns, block / blocking.row_blocks);
    if (rows.size > 0 && columns.size > 0) {
        const Prepared prepared(c_.kernels);
        multiply_panels(chunk, rows, columns, worker_memory);
    }
    if (c_.streaming) _mm_sfence();
    atomic(done(block)).store(chunk + 1, std::memory_order_release);
}

/// `columns` counts from the beginning of the chunk.
void MatrixRun::multiply_panels(std::int64_t chunk, Range rows, Range columns,
                                std::byte* worker_memory) const {
    const Blocking& blocking = c_.blocking;
    const Range depth = depth_of(chunk);
    std::byte* const packed_a = worker_memory;
    const std::int64_t line_bytes = c_.kernels.line_bytes(depth.size);
    float* const tile_sums = reinterpret_cast<float*>(worker_memory + c_.layout.packed_a);
    float* const partial = reinterpret_cast<float*>(memory_ + c_.layout.counters + 2 * c_.layout.packed_b);
    const bool stored_transposed = p_.a.transpose == Transpose::yes;
    pack_panels({.data = c_.arguments.a,
                 .layout = p_.a,
                 .kernels = c_.kernels.pack_a,
                 .panel_size = c_.kernels.height,
                 .form = stored_transposed ? PanelSource::across_depth : PanelSource::along_depth},
                rows, depth, packed_a);

    const bool first = chunk % blocking.depth_chunks == 0;
    const bool last = (chunk + 1) % blocking.depth_chunks == 0;
    const bool in_out = p_.out.dtype == DType::f32 && !p_.custom_epilogue;
    const bool accumulate = !first || p_.store == Store::accumulate;
    const std::int64_t first_column = columns_of(chunk).begin;
    float* const out =
        in_out ? static_cast<float*>(c_.arguments.out) + offset_in(p_.out) + first_column : nullptr;
    for (std::int64_t j = columns.begin; j < columns.begin + columns.size; j += c_.kernels.width)
        for (std::int64_t i = 0; i < rows.size; i += c_.kernels.height) {
            Tile tile{.a = packed_a + i * line_bytes,
                      .b = packed_b(chunk) + j * line_bytes,
                      .depth = depth.size,
                      .rows = std::min(c_.kernels.height, rows.size - i),
                      .cols = std::min(c_.kernels.width, columns.begin + columns.size - j),
                      .accumulate = accumulate,
                      .streaming = c_.streaming};
            // The next panel of b comes from L3 or memory: a part of it with each tile of this one.
            tile.ahead = packed_b(chunk) + (j + c_.kernels.width) * line_bytes +
                         i / c_.kernels.height * 16 * depth.size;
            const std::int64_t row = rows.begin + i;
            tile.ldc = in_out ? p_.out.leading : blocking.partial_sums ? blocking.columns : c_.kernels.width;
            tile.c = in_out                  ? out + row * tile.ldc + j
                     : blocking.partial_sums ? partial + row * tile.ldc + j
                                             : tile_sums;
            c_.kernels.multiply(tile);
            if (last && c_.finish)
                c_.finish(tile.c, tile.ldc, entry_ * p_.m + row, first_column + j, tile.rows, tile.cols,
                          c_.finish_args);
        }
}

bool is_empty(const ContractionProblem& problem) {
    return problem.batch[0] * problem.batch[1] * problem.m * problem.n == 0;
}

void run_guarded(MatrixRun& run, std::int64_t item, std::byte* worker_memory) {
    try {
        run.run_item(item, worker_memory);
    } catch (...) {
        run.abandon();
        throw;
    }
}

}  // namespace

std::size_t workspace_bytes(const ContractionProblem& problem, Isa isa, int threads) {
    return workspace_bytes(problem, kernels_of(problem, isa), threads);
}

std::size_t workspace_bytes(const ContractionProblem& problem, const ContractionKernels& kernels,
                            int threads) {
    if (is_empty(problem)) return 0;
    const Blocking blocking = blocking_of(problem, kernels);
    const WorkspaceLayout layout(problem, blocking, kernels);
    const auto workers = static_cast<std::size_t>(threads);
    return (blocking.entry_per_thread ? workers : 1) * layout.per_matrix() + workers * layout.per_worker();
}

void contract(const ContractionProblem& problem, const ContractionArguments& arguments,
              std::span<std::byte> workspace, ThreadPool& pool, Isa isa) {
    const std::string refused = refusal(problem, isa);
    if (!refused.empty()) throw InternalError("contraction: " + refused);
    contract(problem, arguments, workspace, pool, kernels_of(problem, isa));
}

void contract(const ContractionProblem& problem, const ContractionArguments& arguments,
              std::span<std::byte> workspace, ThreadPool& pool, const ContractionKernels& kernels) {
    if (is_empty(problem)) return;
    check_arguments(problem, arguments, workspace, workspace_bytes(problem, kernels, pool.threads()));

    const Blocking blocking = blocking_of(problem, kernels);
    const StandardEpilogueArguments standard{&problem, &arguments};
    MatrixRun::Common common{problem, arguments, kernels, blocking,
                             WorkspaceLayout(problem, blocking, kernels)};
    if (problem.custom_epilogue) {
        common.finish = arguments.epilogue;
        common.finish_args = arguments.epilogue_args;
    } else if (needs_finishing(problem)) {
        common.finish = finish_standard;
        common.finish_args = &standard;
    }

    const std::int64_t entries = problem.batch[0] * problem.batch[1];
    common.streaming = !common.finish && !problem.custom_epilogue && problem.store == Store::overwrite &&
                       blocking.depth_chunks == 1 && entries * problem.m * problem.n >= streaming_from;
    const std::size_t per_worker = common.layout.per_worker(), per_matrix = common.layout.per_matrix();
    std::byte* const workers = workspace.data();
    std::byte* const matrices = workers + static_cast<std::size_t>(pool.threads()) * per_worker;
    if (blocking.entry_per_thread) {
        pool.for_each_block(entries, [&](std::int64_t entry, int worker) {
            const auto w = static_cast<std::size_t>(worker);
            MatrixRun run(common, entry, matrices + w * per_matrix);
            for (std::int64_t item = 0; item < blocking.items(); ++item)
                run.run_item(item, workers + w * per_worker);
        });
        return;
    }
    for (std::int64_t entry = 0; entry < entries; ++entry) {
        MatrixRun run(common, entry, matrices);
        pool.for_each_block(blocking.items(), [&](std::int64_t item, int worker) {
            run_guarded(run, item, workers + static_cast<std::size_t>(worker) * per_worker);
        });
    }
}

}  // namespace mantissa::cpu
