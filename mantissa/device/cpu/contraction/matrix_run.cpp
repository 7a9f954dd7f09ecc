#include "mantissa/device/cpu/contraction/matrix_run.h"

#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

namespace mantissa::cpu {

namespace {

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

// What may be counted on of a cache that all cores share. Panels that are more than that together are read
// from memory in any case; written past the caches, their lines are not fetched before and drive nothing else
// out: with AMX's products replaced by reading their operands, the gradient of GPT-2's input to the logits
// took 0.6 of the time.
constexpr std::size_t most_shared_in_cache = std::size_t{8} << 20;

std::size_t in_lines(std::int64_t bytes) { return (static_cast<std::size_t>(bytes) + 63) / 64 * 64; }

std::atomic_ref<std::int64_t> atomic(std::int64_t& counter) { return std::atomic_ref<std::int64_t>(counter); }

}  // namespace

WorkspaceLayout::WorkspaceLayout(const ContractionProblem& problem, const Blocking& blocking,
                                 const ContractionKernels& kernels) {
    const std::int64_t line_bytes = kernels.line_bytes(blocking.depth);
    const std::int64_t chunk_bytes = line_bytes * blocking.depths_of_chunk();
    buffers_of_b = blocking.chunks() > 1 ? 2 : 1;
    buffers_of_a = blocking.rows_once() ? 1 : buffers_of_b;
    counters = in_lines((4 + blocking.blocks()) * 8);
    packed_b = problem.b.packed ? 0 : in_lines(chunk_bytes * blocking.columns);
    const bool shares_a = blocking.a_groups > 0;
    packed_a = shares_a ? in_lines(chunk_bytes * OperandPanels(problem, Side::a, kernels).padded_lines()) : 0;
    partial = blocking.partial_sums ? in_lines(problem.m * blocking.columns * 4) : 0;
    block_of_a = problem.a.packed || shares_a ? 0 : in_lines(line_bytes * blocking.rows);
    block_of_sums = in_lines(blocking.depth_inside ? blocking.rows * blocking.split_columns * 4
                                                   : kernels.height * kernels.width * 4);
}

PanelStores WorkspaceLayout::stores() const {
    return buffers_of_b * packed_b + buffers_of_a * packed_a > most_shared_in_cache ? PanelStores::streaming
                                                                                    : PanelStores::plain;
}

MatrixRun::MatrixRun(const ContractionCall& call, std::int64_t entry, std::byte* memory)
    : c_(call),
      p_(call.problem),
      a_(call.problem, Side::a, call.kernels,
         call.blocking.a_groups > 0 ? call.layout.stores() : PanelStores::plain),
      b_(call.problem, Side::b, call.kernels, call.layout.stores()),
      entry_(entry),
      memory_(memory) {
    std::memset(memory_, 0, c_.layout.counters);
}

void MatrixRun::run_item(std::int64_t item, std::byte* worker_memory) {
    const Blocking& blocking = c_.blocking;
    const std::int64_t groups = blocking.pack_groups();
    if (item < groups) return pack(0, item);
    item -= groups;
    const std::int64_t chunk = item / (groups + blocking.blocks());
    const std::int64_t part = item % (groups + blocking.blocks());
    if (part >= groups)
        multiply(chunk, part - groups, worker_memory);
    else if (chunk + 1 < blocking.chunks())
        pack(chunk + 1, part);
}

void MatrixRun::abandon() { atomic(counter(failed_counter)).store(1); }

void MatrixRun::wait(std::int64_t& what, std::int64_t least) {
    for (int round = 0; atomic(what).load(std::memory_order_acquire) < least; ++round) {
        if (atomic(counter(failed_counter)).load(std::memory_order_relaxed)) return;
        if (round < 1000)
            _mm_pause();
        else
            std::this_thread::yield();
    }
}

std::int64_t MatrixRun::depth_index(std::int64_t chunk, std::int64_t inner) const {
    return c_.blocking.depth_inside ? inner : chunk % c_.blocking.depth_chunks;
}

PanelRange MatrixRun::depth_of(std::int64_t chunk, std::int64_t inner) const {
    return part_of(p_.k, c_.blocking.depth, depth_index(chunk, inner));
}

PanelRange MatrixRun::columns_of(std::int64_t chunk) const {
    const std::int64_t depth_chunks = c_.blocking.depth_inside ? 1 : c_.blocking.depth_chunks;
    return part_of(p_.n, c_.blocking.columns, chunk / depth_chunks);
}

PanelRange MatrixRun::rows_of(std::int64_t block) const {
    return part_of(p_.m, c_.blocking.rows, block % c_.blocking.row_blocks);
}

std::byte* MatrixRun::buffer_of_b(std::int64_t chunk, std::int64_t inner) const {
    return memory_ + c_.layout.counters + static_cast<std::size_t>(chunk % 2) * c_.layout.packed_b +
           inner * c_.blocking.columns * c_.kernels.line_bytes(c_.blocking.depth);
}

std::byte* MatrixRun::buffer_of_a(std::int64_t chunk, std::int64_t inner) const {
    const std::int64_t parity = c_.blocking.rows_once() ? 0 : chunk % 2;
    return memory_ + c_.layout.begin_of_a() + static_cast<std::size_t>(parity) * c_.layout.packed_a +
           inner * a_.padded_lines() * c_.kernels.line_bytes(c_.blocking.depth);
}

const std::byte* MatrixRun::panels_of_b(std::int64_t chunk, std::int64_t inner) const {
    if (!p_.b.packed) return buffer_of_b(chunk, inner);
    return static_cast<const std::byte*>(c_.arguments.b) +
           b_.offset(columns_of(chunk).begin, depth_of(chunk, inner));
}

const std::byte* MatrixRun::panels_of_a(std::int64_t chunk, std::int64_t inner, PanelRange rows,
                                        std::byte* worker_memory) const {
    const PanelRange depth = depth_of(chunk, inner);
    if (p_.a.packed) return static_cast<const std::byte*>(c_.arguments.a) + a_.offset(rows.begin, depth);
    if (c_.blocking.a_groups > 0)
        return buffer_of_a(chunk, inner) + rows.begin * c_.kernels.line_bytes(depth.size);
    a_.pack(source_of_a(), entry_, rows, {depth, worker_memory});
    return worker_memory;
}

OperandSource MatrixRun::source_of_a() const {
    const ContractionArguments& arguments = c_.arguments;
    return {arguments.a, arguments.a_positions, arguments.map_a, arguments.map_a_args};
}

void MatrixRun::pack(std::int64_t chunk, std::int64_t group) {
    // The buffer is free when every block is done with the chunk before the last.
    for (std::int64_t block = 0; block < c_.blocking.blocks(); ++block) wait(done(block), chunk - 1);
    const std::int64_t groups = c_.blocking.b_groups + c_.blocking.a_groups;
    const std::int64_t inner = group / groups, part = group % groups;
    if (part < c_.blocking.b_groups)
        pack_columns(chunk, inner, part);
    else
        pack_rows(chunk, inner, part - c_.blocking.b_groups);
    _mm_sfence();  // as in multiply()
    atomic(packed(chunk)).fetch_add(1, std::memory_order_release);
}

void MatrixRun::pack_columns(std::int64_t chunk, std::int64_t inner, std::int64_t group) const {
    const PanelRange columns = columns_of(chunk), depth = depth_of(chunk, inner);
    const PanelRange mine = part_of(columns.size, c_.blocking.pack_columns, group);
    b_.pack({.data = c_.arguments.b}, entry_, {columns.begin + mine.begin, mine.size},
            {depth, buffer_of_b(chunk, inner) + mine.begin * c_.kernels.line_bytes(depth.size)});
}

void MatrixRun::pack_rows(std::int64_t chunk, std::int64_t inner, std::int64_t group) const {
    if (chunk > 0 && c_.blocking.rows_once()) return;
    const PanelRange rows = part_of(p_.m, c_.blocking.pack_rows, group), depth = depth_of(chunk, inner);
    a_.pack(source_of_a(), entry_, rows,
            {depth, buffer_of_a(chunk, inner) + rows.begin * c_.kernels.line_bytes(depth.size)});
}

void MatrixRun::multiply(std::int64_t chunk, std::int64_t block, std::byte* worker_memory) {
    const Blocking& blocking = c_.blocking;
    wait(packed(chunk), blocking.pack_groups() * (chunk / 2 + 1));
    wait(done(block), chunk);
    const PanelRange columns =
        part_of(columns_of(chunk).size, blocking.split_columns, block / blocking.row_blocks);
    if (rows_of(block).size > 0 && columns.size > 0) {
        const Prepared prepared(c_.kernels);
        for (std::int64_t inner = 0; inner < blocking.depths_of_chunk(); ++inner)
            multiply_panels(chunk, inner, block, columns, worker_memory);
    }
    _mm_sfence();  // what went past the caches is visible before the counter is
    atomic(done(block)).store(chunk + 1, std::memory_order_release);
}

void MatrixRun::prefetch_next_rows(std::int64_t chunk, std::int64_t block, std::int64_t share,
                                   std::int64_t shares) const {
    const bool same_chunk = block + 1 < c_.blocking.row_blocks;
    if (!same_chunk && ++chunk >= c_.blocking.chunks()) return;
    a_.prefetch(c_.arguments.a, entry_, rows_of(same_chunk ? block + 1 : 0), depth_of(chunk, 0), share,
                shares);
}

MatrixRun::Sums MatrixRun::sums_of(std::int64_t chunk, PanelRange rows, PanelRange columns,
                                   std::byte* worker_memory) const {
    float* const mine = reinterpret_cast<float*>(worker_memory + c_.layout.block_of_a);
    if (c_.blocking.depth_inside) return {.first = mine, .leading = c_.blocking.split_columns};
    if (p_.out.dtype == DType::f32 && !p_.custom_epilogue) {
        const std::int64_t matrix =
            entry_ / p_.batch[1] * p_.out.batch_stride[0] + entry_ % p_.batch[1] * p_.out.batch_stride[1];
        const std::int64_t column = columns_of(chunk).begin + columns.begin;
        float* const out = static_cast<float*>(c_.arguments.out) + matrix;
        return {
            .first = out + rows.begin * p_.out.leading + column, .leading = p_.out.leading, .far = c_.large};
    }
    if (c_.blocking.partial_sums)
        return {.first = reinterpret_cast<float*>(memory_ + c_.layout.begin_of_partial()) +
                         rows.begin * c_.blocking.columns + columns.begin,
                .leading = c_.blocking.columns,
                .far = c_.large};
    return {.first = mine, .leading = c_.kernels.width, .each_tile = true};
}

/// `columns` counts from the beginning of the chunk.
void MatrixRun::multiply_panels(std::int64_t chunk, std::int64_t inner, std::int64_t block,
                                PanelRange columns, std::byte* worker_memory) const {
    const PanelRange depth = depth_of(chunk, inner), rows = rows_of(block);
    const std::int64_t line_bytes = c_.kernels.line_bytes(depth.size);
    const std::int64_t height = c_.kernels.height, width = c_.kernels.width;
    const std::byte* const panels_a = panels_of_a(chunk, inner, rows, worker_memory);
    const std::byte* const panels_b = panels_of_b(chunk, inner);
    const Sums sums = sums_of(chunk, rows, columns, worker_memory);
    const bool first = depth_index(chunk, inner) == 0;
    const bool last = depth_index(chunk, inner) + 1 == c_.blocking.depth_chunks;
    const bool foresees = c_.blocking.entry_per_thread && c_.blocking.a_groups == 0;
    const std::int64_t tiles = (rows.size + height - 1) / height * ((columns.size + width - 1) / width);
    const std::int64_t lines_ahead = std::max<std::int64_t>(4, width * height / rows.size);
    std::int64_t tile_index = 0;
    for (std::int64_t j = columns.begin; j < columns.begin + columns.size; j += width)
        for (std::int64_t i = 0; i < rows.size; i += height, ++tile_index) {
            if (foresees) prefetch_next_rows(chunk, block, tile_index, tiles);
            Tile tile{.a = panels_a + i * line_bytes,
                      .b = panels_b + j * line_bytes,
                      .depth = c_.kernels.panel_depth(depth.size),
                      .ldc = sums.leading,
                      .rows = std::min(height, rows.size - i),
                      .cols = std::min(width, columns.begin + columns.size - j),
                      .accumulate = !first || p_.store == Store::accumulate,
                      .streaming = c_.streaming,
                      .far = sums.far};
            // The next panel of b comes from L3 or memory: some lines of it with each tile of this one.
            tile.lines_ahead = lines_ahead;
            tile.ahead = panels_b + (j + width + std::min(i / height * lines_ahead, width)) * line_bytes;
            tile.c = sums.each_tile ? sums.first : sums.first + i * sums.leading + (j - columns.begin);
            c_.kernels.multiply(tile);
            if (last && c_.finish)
                c_.finish(tile.c, tile.ldc, entry_ * p_.m + rows.begin + i, columns_of(chunk).begin + j,
                          tile.rows, tile.cols, c_.finish_args);
        }
}

}  // namespace mantissa::cpu
