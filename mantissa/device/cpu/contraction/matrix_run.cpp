#include "mantissa/device/cpu/contraction/matrix_run.h"

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <thread>
#include <tuple>

#include "mantissa/base/loop_recorder.h"
#include "mantissa/base/whole_units.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// Calls a kernel set's begin and end, whatever happens in an epilogue.
class Begun {
  public:
    explicit Begun(const ContractionKernels& kernels) : kernels_(kernels) {
        if (kernels_.begin) kernels_.begin();
    }
    ~Begun() {
        if (kernels_.end) kernels_.end();
    }
    Begun(const Begun&) = delete;
    Begun& operator=(const Begun&) = delete;

  private:
    const ContractionKernels& kernels_;
};

std::atomic_ref<std::int64_t> atomic(std::int64_t& counter) { return std::atomic_ref<std::int64_t>(counter); }

/// Tells the loop recorder, if there is one, that a counter has come to a value.
void record_reached(const std::int64_t& counter, std::int64_t value) {
    if (LoopRecorder* const recorder = LoopRecorder::of_this_thread()) recorder->reached(&counter, value);
}

}  // namespace

MatrixRun::MatrixRun(const MatrixCall& call, std::int64_t entry, std::byte* memory)
    : c_(call),
      p_(call.prepared.problem),
      kernels_(call.prepared.kernels),
      blocking_(call.matrices.blocking),
      layout_(call.matrices.layout),
      a_(call.matrices.a),
      b_(call.matrices.b),
      entry_(entry),
      memory_(memory) {
    std::memset(memory_, 0, layout_.counters);
}

void MatrixRun::run_item(std::int64_t item, std::byte* worker_memory) {
    const std::int64_t groups = blocking_.pack_groups();
    if (item < groups) return pack(0, item);
    item -= groups;
    const std::int64_t chunk = item / (groups + blocking_.blocks());
    const std::int64_t part = item % (groups + blocking_.blocks());
    // The next chunk is packed in between: by then all blocks are done with the chunk whose buffer it takes,
    // and it is ready before a block wants it.
    const std::int64_t before = blocking_.blocks() / 2, packing = part - before;
    if (packing < 0)
        multiply(chunk, part, worker_memory);
    else if (packing >= groups)
        multiply(chunk, part - groups, worker_memory);
    else if (chunk + 1 < blocking_.chunks())
        pack(chunk + 1, packing);
}

void MatrixRun::abandon() { atomic(counter(failed_counter)).store(1); }

void MatrixRun::wait(std::int64_t& what, std::int64_t least, std::int64_t steps) {
    if (LoopRecorder* const recorder = LoopRecorder::of_this_thread()) recorder->awaits(&what, least, steps);
    for (int round = 0; atomic(what).load(std::memory_order_acquire) < least; ++round) {
        if (atomic(counter(failed_counter)).load(std::memory_order_relaxed)) return;
        if (round < 1000)
            _mm_pause();
        else
            std::this_thread::yield();
    }
}

PanelRange MatrixRun::rows_of(std::int64_t block) const {
    return part_of(p_.m, blocking_.rows, block % blocking_.row_blocks);
}

std::byte* MatrixRun::buffer_of_b(std::int64_t chunk, std::int64_t inner) const {
    return memory_ + layout_.counters + static_cast<std::size_t>(chunk % 2) * layout_.packed_b +
           inner * layout_.part_of_b;
}

const std::byte* MatrixRun::panels_of_b(std::int64_t chunk, std::int64_t inner) const {
    if (!p_.keeps_b) return buffer_of_b(chunk, inner);
    return static_cast<const std::byte*>(c_.arguments.b) + c_.matrices.place_of_kept(entry_, chunk, inner);
}

const std::byte* MatrixRun::panel_of_b(std::int64_t chunk, std::int64_t inner, std::int64_t column) const {
    const std::int64_t depth = depth_of(chunk, inner).size;
    const auto& words = c_.matrices.words;
    return panels_of_b(chunk, inner) +
           (words ? words->place(column, depth) : column * kernels_.line_bytes(depth));
}

std::byte* MatrixRun::buffer_of_a(std::int64_t chunk, std::int64_t inner) const {
    const std::int64_t parity = blocking_.rows_once() ? 0 : chunk % 2;
    return memory_ + layout_.begin_of_a() + static_cast<std::size_t>(parity) * layout_.packed_a +
           inner * layout_.part_of_a;
}

const std::byte* MatrixRun::shared_panels_of_a(std::int64_t chunk, std::int64_t inner,
                                               PanelRange rows) const {
    const PanelRange depth = depth_of(chunk, inner);
    if (blocking_.a_groups == 0) return nullptr;
    return buffer_of_a(chunk, inner) + rows.begin * kernels_.line_bytes(depth.size);
}

const std::byte* MatrixRun::panels_of_a(std::int64_t chunk, std::int64_t inner, PanelRange rows,
                                        std::byte* worker_memory) const {
    if (const std::byte* const shared = shared_panels_of_a(chunk, inner, rows)) return shared;
    const PanelRange depth = depth_of(chunk, inner);
    a_.pack(source_of_a(), entry_, rows, {depth, worker_memory});
    if (std::uint64_t* const zeros = zeros_of_a(chunk, inner, rows.begin, worker_memory))
        a_.find_zeros(c_.arguments.a, entry_, rows, depth, zeros);
    return worker_memory;
}

std::uint64_t* MatrixRun::zeros_of_a(std::int64_t chunk, std::int64_t inner, std::int64_t row,
                                     std::byte* worker_memory) const {
    if (!p_.finds_zeros()) return nullptr;
    if (blocking_.a_groups == 0)
        return reinterpret_cast<std::uint64_t*>(worker_memory + layout_.zeros_of_block);
    return reinterpret_cast<std::uint64_t*>(buffer_of_a(chunk, inner) + layout_.zeros_of_a) +
           row / kernels_.height;
}

std::uint64_t* MatrixRun::zeros_of_b(std::int64_t chunk, std::int64_t inner, std::int64_t column) const {
    if (!p_.finds_zeros() || p_.keeps_b || has_codes(p_.b.codes)) return nullptr;
    return reinterpret_cast<std::uint64_t*>(buffer_of_b(chunk, inner) + layout_.zeros_of_b) +
           column / kernels_.width;
}

OperandSource MatrixRun::source_of_a() const {
    const ContractionArguments& arguments = c_.arguments;
    return {arguments.a, arguments.map_a, arguments.map_a_args};
}

const std::byte* MatrixRun::images(const void* data, const MatrixLayout& layout) const {
    return static_cast<const std::byte*>(data) +
           layout.offset_of(entry_, p_.batch[1]) * static_cast<std::int64_t>(size_of(layout.dtype));
}

void MatrixRun::pack(std::int64_t chunk, std::int64_t group) {
    // The buffer is free when every block is done with the chunk before the last.
    for (std::int64_t block = 0; block < blocking_.blocks(); ++block) wait(done(block), chunk - 1);
    const std::int64_t groups = blocking_.b_groups + blocking_.a_groups;
    const std::int64_t inner = group / groups, part = group % groups;
    if (part < blocking_.b_groups)
        pack_columns(chunk, inner, part);
    else
        pack_rows(chunk, inner, part - blocking_.b_groups);
    _mm_sfence();  // as in multiply()
    record_reached(packed(chunk), atomic(packed(chunk)).fetch_add(1, std::memory_order_release) + 1);
}

void MatrixRun::pack_columns(std::int64_t chunk, std::int64_t inner, std::int64_t group) const {
    const PanelRange columns = columns_of(chunk), depth = depth_of(chunk, inner);
    if (const auto& words = c_.matrices.words) {
        const PanelRange channels = part_of(words->channels(), blocking_.pack_columns, group);
        return words->pack(images(c_.arguments.b, p_.b), channels, depth, buffer_of_b(chunk, inner));
    }
    const PanelRange mine = part_of(columns.size, blocking_.pack_columns, group);
    const PanelRange lines{columns.begin + mine.begin, mine.size};
    b_.pack({.data = c_.arguments.b}, entry_, lines,
            {depth, buffer_of_b(chunk, inner) + mine.begin * kernels_.line_bytes(depth.size)});
    if (std::uint64_t* const zeros = zeros_of_b(chunk, inner, mine.begin))
        b_.find_zeros(c_.arguments.b, entry_, lines, depth, zeros);
}

void MatrixRun::pack_rows(std::int64_t chunk, std::int64_t inner, std::int64_t group) const {
    if (chunk > 0 && blocking_.rows_once()) return;
    const PanelRange depth = depth_of(chunk, inner);
    if (const auto& across = c_.matrices.across; across && across->pairs()) {
        const PanelRange channels = part_of(p_.a.window->channels, blocking_.pack_rows, group);
        return across->pairs()->pack(images(c_.arguments.a, p_.a), channels, depth,
                                     buffer_of_a(chunk, inner));
    }
    const PanelRange rows = part_of(p_.m, blocking_.pack_rows, group);
    a_.pack(source_of_a(), entry_, rows,
            {depth, buffer_of_a(chunk, inner) + rows.begin * kernels_.line_bytes(depth.size)});
    if (std::uint64_t* const zeros = zeros_of_a(chunk, inner, rows.begin, nullptr))
        a_.find_zeros(c_.arguments.a, entry_, rows, depth, zeros);
}

void MatrixRun::multiply(std::int64_t chunk, std::int64_t block, std::byte* worker_memory) {
    const std::int64_t groups = blocking_.pack_groups();
    if (groups > 0) wait(packed(chunk), groups * (chunk / 2 + 1), groups);
    wait(done(block), chunk);
    const PanelRange columns =
        part_of(columns_of(chunk).size, blocking_.split_columns, block / blocking_.row_blocks);
    if (rows_of(block).size > 0 && columns.size > 0) {
        const Begun begun(kernels_);
        SumsBehind behind;
        const std::int64_t left = blocking_.depth_chunks - depth_index(chunk, 0);
        for (std::int64_t inner = 0; inner < std::min(blocking_.depths_inside, left); ++inner)
            if (kernels_.interleaves())
                multiply_interleaved(chunk, inner, block, columns, worker_memory, behind);
            else
                multiply_panels(chunk, inner, block, columns, worker_memory);
        behind.finish_rows(kernels_.height);
    }
    _mm_sfence();  // stores past the caches are visible before the counter is
    atomic(done(block)).store(chunk + 1, std::memory_order_release);
    record_reached(done(block), chunk + 1);
}

std::optional<MatrixRun::Part> MatrixRun::next_part(Part part) const {
    if (++part.inner < blocking_.depths_inside && depth_of(part.chunk, part.inner).size > 0) return part;
    part.inner = 0;
    // Threads take blocks by turns.
    part.block += blocking_.entry_per_thread ? 1 : c_.threads;
    part.chunk += part.block / blocking_.blocks();
    part.block %= blocking_.blocks();
    if (part.chunk >= blocking_.chunks()) return std::nullopt;
    return part;
}

void MatrixRun::prefetch_rows(const Part& part, std::int64_t share, std::int64_t shares) const {
    a_.prefetch(c_.arguments.a, entry_, rows_of(part.block), depth_of(part.chunk, part.inner), share, shares);
}

MatrixRun::Sums MatrixRun::sums_of(std::int64_t chunk, PanelRange rows, PanelRange columns,
                                   std::byte* worker_memory) const {
    float* const mine = reinterpret_cast<float*>(worker_memory + layout_.block_of_a);
    if (p_.out.dtype == DType::f32 && !p_.custom_epilogue) {
        const std::int64_t matrix = p_.out.offset_of(entry_, p_.batch[1]);
        const std::int64_t column = columns_of(chunk).begin + columns.begin;
        float* const out = static_cast<float*>(c_.arguments.out) + matrix;
        return {.first = out + rows.begin * p_.out.leading + column, .leading = p_.out.leading};
    }
    if (blocking_.partial_sums)
        return {.first = reinterpret_cast<float*>(memory_ + layout_.begin_of_partial()) +
                         rows.begin * blocking_.columns + columns.begin,
                .leading = blocking_.columns};
    return {.first = mine, .leading = kernels_.width, .each_tile = true};
}

/// Rows of a block in a chunk of the depth: panels of a, or their places in the images.
class MatrixRun::RowsOfTiles {
  public:
    RowsOfTiles(const MatrixRun& run, std::int64_t chunk, std::int64_t inner, PanelRange rows,
                std::byte* worker_memory)
        : run_(run), line_bytes_(run.kernels_.line_bytes(run.depth_of(chunk, inner).size)) {
        const PanelRange depth = run.depth_of(chunk, inner);
        const auto& [in_place, across] = std::tie(run.c_.matrices.in_place, run.c_.matrices.across);
        if (in_place)
            runs_ = in_place->write(run.images(run.c_.arguments.a, run.p_.a), rows, depth, worker_memory);
        else if (across)
            steps_ = across->write(
                across->pairs() ? run.buffer_of_a(chunk, inner) : run.images(run.c_.arguments.a, run.p_.a),
                rows, depth, worker_memory);
        else
            panels_ = run.panels_of_a(chunk, inner, rows, worker_memory);
    }

    /// The tile that begins with row `row` of the block.
    void multiply(std::int64_t row, Tile& tile) const {
        if (panels_) {
            tile.a = panels_ + row * line_bytes_;
            tile.zeros == 0 ? run_.kernels_.multiply(tile) : multiply_some(tile);
        } else if (run_.c_.matrices.across) {
            run_.c_.matrices.across->place(steps_, row, tile);
            run_.kernels_.multiply_across(tile);
        } else {
            tile.runs = runs_.first + row / run_.kernels_.height * runs_.count;
            tile.run_count = runs_.count;
            run_.kernels_.multiply_in_place(tile);
        }
    }

  private:
    /// A tile of panels, without blocks of zeros.
    void multiply_some(Tile& tile) const {
        const std::int64_t of_word = run_.kernels_.depth_unit, words = ceil_div(tile.depth, of_word);
        const std::int64_t of_block = depth_of_zeros / of_word;
        std::array<StepsInPlace, 64> steps;
        tile.steps = steps.data();
        tile.step_bytes = run_.kernels_.height * run_.kernels_.element_bytes * of_word;
        tile.run_count = 0;
        for (std::int64_t word = 0, end = 0; word < words; word = end) {
            end = std::min(words, word + of_block);
            if ((tile.zeros >> word / of_block & 1) != 0) continue;
            const auto run = static_cast<std::size_t>(tile.run_count++);
            steps[run] = {.first = word * tile.step_bytes, .begin = word, .count = end - word};
        }
        run_.kernels_.multiply_across(tile);
    }

    const MatrixRun& run_;
    std::int64_t line_bytes_;
    const std::byte* panels_ = nullptr;
    RowsInPlace::Runs runs_;
    ChannelsInPlace::Steps steps_;
};

/// `columns` counts from the beginning of the chunk.
void MatrixRun::multiply_panels(std::int64_t chunk, std::int64_t inner, std::int64_t block,
                                PanelRange columns, std::byte* worker_memory) const {
    const PanelRange depth = depth_of(chunk, inner), rows = rows_of(block);
    const std::int64_t line_bytes = kernels_.line_bytes(depth.size);
    const std::int64_t height = kernels_.height, width = kernels_.width;
    const RowsOfTiles rows_of_a(*this, chunk, inner, rows, worker_memory);
    const std::byte* const panels_b = panels_of_b(chunk, inner);
    const std::uint64_t* const zeros_a = zeros_of_a(chunk, inner, rows.begin, worker_memory);
    const std::uint64_t* const zeros_b = zeros_of_b(chunk, inner, 0);
    const Sums sums = sums_of(chunk, rows, columns, worker_memory);
    const bool first = depth_index(chunk, inner) == 0;
    const bool last = depth_index(chunk, inner) + 1 == blocking_.depth_chunks;
    const bool foresees = blocking_.entry_per_thread && blocking_.a_groups == 0;
    const std::optional<Part> next = foresees ? next_part({chunk, inner, block}) : std::nullopt;
    const std::int64_t tiles = ceil_div(rows.size, height) * ceil_div(columns.size, width);
    const std::int64_t lines_ahead = std::max<std::int64_t>(4, width * height / rows.size);
    Tile tile{.depth = depth.size,
              .ldc = sums.leading,
              .accumulate = !first || p_.store == Store::accumulate,
              .streaming = c_.prepared.streaming};
    std::int64_t tile_index = 0;
    for (std::int64_t j = columns.begin; j < columns.begin + columns.size; j += width) {
        tile.b = panels_b + j * line_bytes;
        tile.cols = std::min(width, columns.begin + columns.size - j);
        for (std::int64_t i = 0; i < rows.size; i += height, ++tile_index) {
            if (next) prefetch_rows(*next, tile_index, tiles);
            tile.rows = std::min(height, rows.size - i);
            tile.zeros = (zeros_a ? zeros_a[i / height] : 0) | (zeros_b ? zeros_b[j / width] : 0);
            // The next panel of b comes from L3 or memory: some lines of it with each tile of this one.
            tile.ahead = panels_b + (j + width + std::min(i / height * lines_ahead, width)) * line_bytes;
            tile.c = sums.each_tile ? sums.first : sums.first + i * sums.leading + (j - columns.begin);
            rows_of_a.multiply(i, tile);
            if (last && c_.finish)
                c_.finish(tile.c, tile.ldc, entry_ * p_.m + rows.begin + i, columns_of(chunk).begin + j,
                          tile.rows, tile.cols, c_.finish_args);
        }
    }
}

}  // namespace mantissa::on_cpu
