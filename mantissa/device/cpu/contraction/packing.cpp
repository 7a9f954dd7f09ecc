#include "mantissa/device/cpu/contraction/packing.h"

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/contraction/image_pairs.h"
#include "mantissa/device/cpu/contraction/window.h"

namespace mantissa::inline v0::on_cpu {

namespace {

// To L2 and not L1: rows that are a page apart fall into one set of it and would drive each other out.
void prefetch_run(const std::byte* from, std::int64_t bytes) {
    for (std::int64_t at = 0; at < bytes; at += 64) _mm_prefetch(from + at, _MM_HINT_T1);
}

/// Whether all are zeros of either sign: `bits` has all bits but the signs.
bool are_zeros(const std::byte* from, std::int64_t bytes, std::uint64_t bits) {
    // A line at a time: its words are looked at together, in vectors.
    std::array<std::uint64_t, 8> line;
    for (; bytes >= 64; from += 64, bytes -= 64) {
        std::memcpy(line.data(), from, 64);
        std::uint64_t any = 0;
        for (const std::uint64_t word : line) any |= word;
        if ((any & bits) != 0) return false;
    }
    line = {};
    std::memcpy(line.data(), from, static_cast<std::size_t>(bytes));
    std::uint64_t any = 0;
    for (const std::uint64_t word : line) any |= word;
    return (any & bits) == 0;
}

/// How much of a line that runs along the depth is staged at a time.
constexpr std::int64_t slice_along = 64;

/// The parts of some stored rows are staged as the source has them. They are one panel's, 64 deep, or 32 rows
/// across some panels, since a short row costs a call. 48 KB hold them, four parts of BF16 or one of FP32.
constexpr std::int64_t max_staged_lines = 192, max_staged_rows = 32;

}  // namespace

PanelRange part_of(std::int64_t whole, std::int64_t part, std::int64_t index) {
    const std::int64_t begin = std::min(whole, index * part);
    return {begin, std::min(part, whole - begin)};
}

OperandPanels::OperandPanels(const ContractionProblem& problem, Side side, const ContractionKernels& kernels,
                             PanelStores stores)
    : kernels_(kernels),
      layout_(side == Side::a ? problem.a : problem.b),
      inner_batch_(problem.batch[1]),
      k_(problem.k),
      is_a_(side == Side::a),
      lines_(side == Side::a ? problem.m : problem.n),
      panel_size_(side == Side::a ? kernels.height : kernels.width),
      stores_(stores) {
    const bool transposed = layout_.transpose == Transpose::yes;
    form_ = transposed == (side == Side::b) ? PanelSource::along_depth : PanelSource::across_depth;
    const PanelKernels& all = side == Side::a ? kernels.pack_a : kernels.pack_b;
    const DType packed = kernels.conversion.convert ? kernels.conversion.part : layout_.dtype;
    const auto form = static_cast<std::size_t>(form_);
    kernel_ = all[form][packed == DType::bf16 ? 1 : 0];
    if (kernels.conversion.parts > 1 && !is_made())
        split_ = (is_a_ ? kernels.split_a : kernels.split_b)[form][layout_.dtype == DType::f16 ? 1 : 0];
    if (const auto pairs = ImagePairs::of(problem, kernels); pairs && !is_a_)
        words_of_group_ = pairs->words_of_group();
}

std::int64_t OperandPanels::padded_lines() const { return align_up(lines_, panel_size_); }

const std::byte* OperandPanels::element(const void* source, std::int64_t entry, std::int64_t line,
                                        std::int64_t depth) const {
    const std::int64_t matrix = layout_.offset_of(entry, inner_batch_);
    const std::int64_t in_matrix =
        form_ == PanelSource::along_depth ? line * layout_.leading + depth : depth * layout_.leading + line;
    return static_cast<const std::byte*>(source) +
           static_cast<std::int64_t>(size_of(layout_.dtype)) * (matrix + in_matrix);
}

void OperandPanels::pack(const OperandSource& source, std::int64_t entry, PanelRange lines,
                         const PanelChunk& chunk) const {
    pack_part(source, entry, lines, chunk.depth, chunk);
}

void OperandPanels::pack_part(const OperandSource& source, std::int64_t entry, PanelRange lines,
                              PanelRange depth, const PanelChunk& chunk) const {
    if (lines.size == 0 || depth.size == 0) return;
    if (gathers_blocks() && depth.begin == chunk.depth.begin && depth.size == chunk.depth.size)
        return pack_blocks(source, entry, lines, depth, chunk);
    const bool along = form_ == PanelSource::along_depth;
    const std::int64_t before = (depth.begin - chunk.depth.begin) * panel_size_ * kernels_.element_bytes;
    const std::int64_t lines_left = lines_ - lines.begin - lines.size;
    const std::int64_t depth_left = k_ - depth.begin - depth.size;
    const PanelCopy copy{.source = element(source.data, entry, lines.begin, depth.begin),
                         .stride = layout_.leading,
                         .lines = lines.size,
                         .depth = depth.size,
                         .panel = chunk.panels + before,
                         .panel_bytes = panel_size_ * kernels_.line_bytes(chunk.depth.size),
                         .rows_ahead = along ? lines_left : depth_left,
                         .streaming = stores_ == PanelStores::streaming};
    if (words_of_group_ > 0) return pack_pairs(copy, source, entry, lines, depth);
    if (split_ && split_(copy)) return;
    if (kernels_.conversion.convert || is_made()) return pack_staged(source, entry, lines, depth, chunk);
    kernel_(copy);
}

void OperandPanels::pack_pairs(const PanelCopy& of_part, const OperandSource& source, std::int64_t entry,
                               PanelRange lines, PanelRange depth) const {
    PanelCopy copy = of_part;
    copy.beside = words_of_group_ * layout_.leading;
    for (std::int64_t word = depth.begin / 2, end = (depth.begin + depth.size) / 2; word < end;) {
        const std::int64_t group = word / words_of_group_, in_group = word % words_of_group_;
        const std::int64_t words = std::min(words_of_group_ - in_group, end - word);
        copy.source = element(source.data, entry, lines.begin, 2 * group * words_of_group_ + in_group);
        copy.depth = 2 * words;
        copy.rows_ahead = 2 * (words_of_group_ - in_group - words);
        copy.panel = static_cast<std::byte*>(of_part.panel) + (word - depth.begin / 2) * panel_size_ * 4;
        kernel_(copy);
        word += words;
    }
}

void OperandPanels::make(const OperandSource& source, std::int64_t entry, PanelRange lines, PanelRange depth,
                         void* to, std::int64_t stride) const {
    if (layout_.mapped) return map(source, entry, lines, depth, to, stride);
    const bool along = form_ == PanelSource::along_depth;
    if (has_codes(layout_.codes))
        return widen(source.data, along ? lines : depth, along ? depth : lines, to, stride);
    gather_window(source, entry, along ? lines : depth, along ? depth : lines,
                  {static_cast<std::byte*>(to), stride, along ? depth.size : lines.size});
}

void OperandPanels::widen(const void* source, PanelRange rows, PanelRange columns, void* to,
                          std::int64_t stride) const {
    const bool along = form_ == PanelSource::along_depth;
    const CodedMatrix whole{layout_.codes, along ? lines_ : k_, layout_.leading};
    kernels_.widen({.from = source_of(whole, source),
                    .row = rows.begin,
                    .column = columns.begin,
                    .rows = rows.size,
                    .columns = columns.size,
                    .dtype = layout_.dtype,
                    .to = to,
                    .stride = stride});
}

void OperandPanels::gather_window(const OperandSource& source, std::int64_t entry, PanelRange rows,
                                  PanelRange columns, const GatheredTo& to) const {
    const auto element_bytes = static_cast<std::int64_t>(size_of(layout_.dtype));
    const auto* const images =
        static_cast<const std::byte*>(source.data) + layout_.offset_of(entry, inner_batch_) * element_bytes;
    gather(*layout_.window, {images, element_bytes, kernels_.gather}, rows, columns, to);
}

bool OperandPanels::gathers_blocks() const {
    const std::int64_t block = kernels_.depth_of_blocks;
    return is_a_ && block > 0 && layout_.window && form_ == PanelSource::along_depth &&
           !kernels_.conversion.convert;
}

void OperandPanels::pack_blocks(const OperandSource& source, std::int64_t entry, PanelRange lines,
                                PanelRange depth, const PanelChunk& chunk) const {
    const std::int64_t block = kernels_.depth_of_blocks, line_bytes = kernels_.line_bytes(chunk.depth.size);
    for (std::int64_t line = 0; line < lines.size; line += panel_size_) {
        std::byte* const panel = chunk.panels + line * line_bytes;
        const std::int64_t count = std::min(panel_size_, lines.size - line);
        if (count < panel_size_ || depth.size % block != 0)
            std::memset(panel, 0, static_cast<std::size_t>(panel_size_ * line_bytes));
        gather_window(source, entry, {lines.begin + line, count}, depth,
                      {panel, block, block, panel_size_ * block});
    }
}

void OperandPanels::map(const OperandSource& source, std::int64_t entry, PanelRange lines, PanelRange depth,
                        void* to, std::int64_t stride) const {
    const bool along = form_ == PanelSource::along_depth;
    const PanelRange rows = along ? lines : depth, columns = along ? depth : lines;
    source.map({.from = element(source.data, entry, lines.begin, depth.begin),
                .from_leading = layout_.leading,
                .row = rows.begin,
                .column = columns.begin,
                .rows = rows.size,
                .columns = columns.size,
                .to = to,
                .to_leading = stride},
               source.map_args);
}

bool OperandPanels::stage(const OperandSource& source, std::int64_t entry, PanelRange lines, PanelRange depth,
                          const Staging& staging) const {
    const Conversion& conversion = kernels_.conversion;
    if (is_made() && !conversion.convert) {
        make(source, entry, lines, depth, staging.parts, staging.stride);
        return true;
    }
    alignas(64) std::byte made[max_staged_lines * max_staged_rows * sizeof(float)];
    if (is_made()) make(source, entry, lines, depth, made, staging.stride);
    const bool along = form_ == PanelSource::along_depth;
    bool finite = true;
    for (std::int64_t row = 0; row < (along ? lines.size : depth.size); ++row) {
        void* rows[2];
        for (int part = 0; part < conversion.parts; ++part)
            rows[part] =
                staging.parts + part * staging.part_bytes + row * staging.stride * staging.element_bytes;
        const void* const stored =
            is_made() ? made + row * staging.stride * static_cast<std::int64_t>(size_of(layout_.dtype))
                      : element(source.data, entry, lines.begin + (along ? row : 0),
                                depth.begin + (along ? 0 : row));
        finite = conversion.convert(stored, along ? depth.size : lines.size, rows) && finite;
    }
    return finite;
}

void OperandPanels::pack_staged(const OperandSource& source, std::int64_t entry, PanelRange lines,
                                PanelRange depth, const PanelChunk& chunk) const {
    alignas(64) std::byte parts[max_staged_lines * max_staged_rows * 4 * 2];
    const Conversion& conversion = kernels_.conversion;
    const bool along = form_ == PanelSource::along_depth;
    const std::int64_t slice = along ? slice_along : max_staged_rows;
    const std::int64_t group = along ? panel_size_ : max_staged_lines / panel_size_ * panel_size_;
    const auto part_bytes =
        static_cast<std::int64_t>(size_of(conversion.convert ? conversion.part : layout_.dtype));
    const std::int64_t stride = along ? slice : group, whole = group * slice * part_bytes;
    const std::int64_t line_bytes = kernels_.line_bytes(chunk.depth.size);
    const std::int64_t part_of_panel =
        kernels_.padded(chunk.depth.size) * panel_size_ * kernels_.element_bytes;
    for (std::int64_t line = 0; line < lines.size; line += group)
        for (std::int64_t k = 0; k < depth.size; k += slice) {
            const PanelRange some{lines.begin + line, std::min(group, lines.size - line)};
            const PanelRange deep{depth.begin + k, std::min(slice, depth.size - k)};
            const std::int64_t next = std::clamp<std::int64_t>(depth.size - k - slice, 0, slice);
            prefetch(source.data, entry, some, {deep.begin + slice, next}, 0, 1);
            const bool finite = stage(source, entry, some, deep, {parts, stride, part_bytes, whole});
            const std::int64_t begin = deep.begin - chunk.depth.begin;
            std::byte* const panels = chunk.panels + line * line_bytes;
            for (int part = 0; part < conversion.parts; ++part)
                kernel_(
                    {.source = parts + part * whole,
                     .stride = stride,
                     .lines = some.size,
                     .depth = deep.size,
                     .panel = panels + part * part_of_panel + begin * panel_size_ * kernels_.element_bytes,
                     .panel_bytes = panel_size_ * line_bytes,
                     .streaming = stores_ == PanelStores::streaming});
            if (conversion.parts == 1) continue;
            for (std::int64_t panel = 0; panel < some.size; panel += panel_size_)
                for (std::int64_t step = begin; step < begin + deep.size; step += kernels_.depth_unit)
                    panels[panel * line_bytes + conversion.parts * part_of_panel +
                           step / kernels_.depth_unit * 2 * panel_size_] = std::byte{!finite};
        }
}

void OperandPanels::find_zeros(const void* source, std::int64_t entry, PanelRange lines, PanelRange depth,
                               std::uint64_t* zeros) const {
    const bool along = form_ == PanelSource::along_depth;
    const auto element_bytes = static_cast<std::int64_t>(size_of(layout_.dtype));
    const std::uint64_t bits = element_bytes == 2 ? 0x7fff7fff7fff7fff : 0x7fffffff7fffffff;
    const std::int64_t row_bytes = layout_.leading * element_bytes;
    for (std::int64_t line = 0; line < lines.size; line += panel_size_, ++zeros) {
        *zeros = 0;
        const std::int64_t count = std::min(panel_size_, lines.size - line);
        for (std::int64_t k = 0, block = 0; k < depth.size; k += depth_of_zeros, ++block) {
            const std::int64_t deep = std::min(depth_of_zeros, depth.size - k);
            const std::int64_t rows = along ? count : deep, columns = along ? deep : count;
            const std::byte* const first = element(source, entry, lines.begin + line, depth.begin + k);
            std::int64_t row = 0;
            while (row < rows && are_zeros(first + row * row_bytes, columns * element_bytes, bits)) ++row;
            if (row == rows) *zeros |= std::uint64_t{1} << block;
        }
    }
}

void OperandPanels::prefetch(const void* source, std::int64_t entry, PanelRange lines, PanelRange depth,
                             std::int64_t share, std::int64_t shares) const {
    if (layout_.window || has_codes(layout_.codes)) return;  // which lie elsewhere
    const bool along = form_ == PanelSource::along_depth;
    const std::int64_t rows = along ? lines.size : depth.size;
    const std::int64_t row_bytes =
        static_cast<std::int64_t>(size_of(layout_.dtype)) * (along ? depth.size : lines.size);
    for (std::int64_t row = rows * share / shares; row < rows * (share + 1) / shares; ++row)
        prefetch_run(element(source, entry, lines.begin + (along ? row : 0), depth.begin + (along ? 0 : row)),
                     row_bytes);
}

}  // namespace mantissa::on_cpu
