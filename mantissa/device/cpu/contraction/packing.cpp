#include "mantissa/device/cpu/contraction/packing.h"

#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "mantissa/base/error.h"
#include "mantissa/device/cpu/contraction/blocking.h"
#include "mantissa/device/cpu/sparse.h"
#include "mantissa/numerics/formats.h"

namespace mantissa::cpu {

namespace {

// To L2 and not L1: rows that are a page apart fall into one set of it and would drive each other out.
void prefetch_run(const std::byte* from, std::int64_t bytes) {
    for (std::int64_t at = 0; at < bytes; at += 64) _mm_prefetch(from + at, _MM_HINT_T1);
}

std::int64_t rounded_up(std::int64_t size, std::int64_t unit) { return (size + unit - 1) / unit * unit; }

/// How much of a line that runs along the depth is staged at a time.
constexpr std::int64_t slice_along = 64;

/// How many stored rows across the depth, so many bytes apart, are packed at a time. Two blocks of the
/// kernels, or one where the lines are so many that these rows and the next would fill much of L2. Where a
/// row gives a panel less than a line of cache, that line is to stay in L1 for the next panel: rows share as
/// many of its sets, of eight lines each, as their distance leaves.
std::int64_t slice_across(std::int64_t row_bytes, std::int64_t panel_row_bytes, std::int64_t stride_bytes) {
    constexpr std::int64_t page = 4096, ways = 8;
    if (panel_row_bytes < 64)
        return std::clamp<std::int64_t>(ways * page / std::gcd(page, stride_bytes), 16, 64);
    return row_bytes <= 1024 ? 64 : 32;
}

/// The parts of some stored rows are staged as the source has them: of one panel, 64 deep, or of 32 rows
/// across some panels, since short rows cost a call each. 48 KB hold them, four parts of BF16 or one of FP32.
constexpr std::int64_t most_staged_lines = 192, most_staged_rows = 32;

}  // namespace

PanelRange part_of(std::int64_t whole, std::int64_t part, std::int64_t index) {
    const std::int64_t begin = std::min(whole, index * part);
    return {begin, std::min(part, whole - begin)};
}

OperandPanels::OperandPanels(const ContractionProblem& problem, Side side, const ContractionKernels& kernels,
                             PanelStores stores)
    : problem_(problem),
      kernels_(kernels),
      layout_(side == Side::a ? problem.a : problem.b),
      is_a_(side == Side::a),
      lines_(side == Side::a ? problem.m : problem.n),
      panel_size_(side == Side::a ? kernels.height : kernels.width),
      stores_(stores) {
    const bool transposed = layout_.transpose == Transpose::yes;
    form_ = transposed == (side == Side::b) ? PanelSource::along_depth : PanelSource::across_depth;
    const PanelKernels& all = side == Side::a ? kernels.pack_a : kernels.pack_b;
    const DType packed = kernels.conversion.convert ? kernels.conversion.part : layout_.dtype;
    kernel_ = all[static_cast<std::size_t>(form_)][packed == DType::bf16 ? 1 : 0];
}

std::int64_t OperandPanels::padded_lines() const { return rounded_up(lines_, panel_size_); }

std::size_t OperandPanels::bytes() const {
    const std::int64_t depth = depth_of_chunks(problem_.k, kernels_);
    const std::int64_t last = problem_.k % depth;
    return static_cast<std::size_t>(offset(0, {problem_.k - last, last}) +
                                    padded_lines() * kernels_.line_bytes(last));
}

std::int64_t OperandPanels::offset(std::int64_t line, PanelRange depth) const {
    return padded_lines() * kernels_.line_bytes(depth.begin) + line * kernels_.line_bytes(depth.size);
}

const std::byte* OperandPanels::element(const void* source, std::int64_t entry, std::int64_t line,
                                        std::int64_t depth) const {
    const std::int64_t outer = entry / problem_.batch[1], inner = entry % problem_.batch[1];
    const std::int64_t matrix = outer * layout_.batch_stride[0] + inner * layout_.batch_stride[1];
    const std::int64_t in_matrix =
        form_ == PanelSource::along_depth ? line * layout_.leading + depth : depth * layout_.leading + line;
    return static_cast<const std::byte*>(source) +
           static_cast<std::int64_t>(size_of(layout_.dtype)) * (matrix + in_matrix);
}

void OperandPanels::pack(const OperandSource& from, std::int64_t entry, PanelRange lines, PanelRange depth,
                         std::byte* panels) const {
    if (layout_.two_of_four && kernels_.skips_zeros) return pack_compressed(from, lines, depth, panels);
    if (kernels_.conversion.convert || layout_.two_of_four || layout_.mapped)
        return pack_staged(from, entry, lines, depth, panels);
    const void* const source = from.data;
    const bool along = form_ == PanelSource::along_depth;
    const std::int64_t line_bytes = kernels_.line_bytes(depth.size);
    const auto element_bytes = static_cast<std::int64_t>(size_of(layout_.dtype));
    const std::int64_t slice = along ? depth.size
                                     : slice_across(lines.size * element_bytes, panel_size_ * element_bytes,
                                                    layout_.leading * element_bytes);
    const std::int64_t count = (lines.size + panel_size_ - 1) / panel_size_;
    // What is read next is asked for on the way: by the kernels along the depth, where that is the lines of
    // the next panel, be they the first that some thread packs next; and here across, where it is the next
    // rows, in the order of memory.
    if (!along) prefetch(source, entry, lines, {depth.begin, std::min(slice, depth.size)}, 0, 1);
    for (std::int64_t k = 0; k < depth.size; k += slice) {
        const PanelRange next{depth.begin + k + slice,
                              std::clamp<std::int64_t>(depth.size - k - slice, 0, slice)};
        for (std::int64_t panel = 0; panel < count; ++panel) {
            const std::int64_t line = panel * panel_size_;
            if (!along) prefetch(source, entry, lines, next, panel, count);
            const bool last = lines.begin + line + panel_size_ >= lines_;
            kernel_({.source = element(source, entry, lines.begin + line, depth.begin + k),
                     .stride = layout_.leading,
                     .lines = std::min(panel_size_, lines.size - line),
                     .depth = std::min(slice, depth.size - k),
                     .panel = panels + line * line_bytes + k * panel_size_ * kernels_.element_bytes,
                     .ahead = along && !last ? panel_size_ * layout_.leading : 0,
                     .streaming = stores_ == PanelStores::streaming});
        }
    }
}

void OperandPanels::kept_numbers(const void* data, std::int64_t line, PanelRange depth,
                                 float* numbers) const {
    const std::int64_t first = line * (problem_.k / 2) + depth.begin / 2, count = depth.size / 2;
    const auto* const values =
        static_cast<const std::byte*>(data) + first * static_cast<std::int64_t>(size_of(layout_.dtype));
    void* const part = numbers;
    if (kernels_.conversion.convert)
        kernels_.conversion.convert(values, count, &part);
    else if (layout_.dtype == DType::bf16)
        for (std::int64_t i = 0; i < count; ++i)
            numbers[i] = to_f32(reinterpret_cast<const BF16*>(values)[i]);
    else
        std::memcpy(numbers, values, static_cast<std::size_t>(count) * sizeof(float));
}

void OperandPanels::pack_compressed(const OperandSource& source, PanelRange lines, PanelRange depth,
                                    std::byte* panels) const {
    const std::int64_t line_bytes = kernels_.line_bytes(depth.size);
    const std::int64_t word_row = kernels_.width * kernels_.element_bytes;  // of a panel of b
    std::memset(panels, 0, static_cast<std::size_t>(rounded_up(lines.size, panel_size_) * line_bytes));
    for (std::int64_t line = 0; line < lines.size; ++line) {
        const std::int64_t in_panel = line % panel_size_;
        auto* const panel = reinterpret_cast<float*>(panels + (line - in_panel) * line_bytes) + in_panel;
        const std::uint8_t* const positions =
            source.positions + (lines.begin + line) * ((problem_.k + 7) / 8) + depth.begin / 8;
        for (std::int64_t k = 0; k < depth.size; k += slice_along) {
            const std::int64_t deep = std::min(slice_along, depth.size - k);
            float numbers[slice_along / 2];
            kept_numbers(source.data, lines.begin + line, {depth.begin + k, deep}, numbers);
            for (std::int64_t i = 0; i < deep / 2; ++i) {
                const std::int64_t at = k + i / 2 * 4 + position_of(positions + k / 8, i);
                float* const to = panel + (k / 2 + i) * 2 * panel_size_;
                to[0] = numbers[i];
                to[panel_size_] = std::bit_cast<float>(static_cast<std::uint32_t>(at * word_row));
            }
        }
    }
}

void OperandPanels::stage_compressed(const OperandSource& source, std::int64_t line, PanelRange depth,
                                     void* const* parts) const {
    const std::int64_t at = line * (problem_.k / 2) + depth.begin / 2;
    const auto* const values =
        static_cast<const std::byte*>(source.data) + at * static_cast<std::int64_t>(size_of(layout_.dtype));
    // Panels and their slices begin at multiples of 8, two pairs of positions to a byte.
    const std::uint8_t* const positions = source.positions + line * ((problem_.k + 7) / 8) + depth.begin / 8;
    const SparseFormat format = sparse_format_of(layout_.dtype);
    if (!kernels_.conversion.convert) return decompress_row(format, values, positions, depth.size, parts[0]);
    alignas(64) std::byte dense[slice_along * sizeof(float)];
    decompress_row(format, values, positions, depth.size, dense);
    kernels_.conversion.convert(dense, depth.size, parts);
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

void OperandPanels::stage(const OperandSource& source, std::int64_t entry, PanelRange lines, PanelRange depth,
                          const Staging& staging) const {
    const Conversion& conversion = kernels_.conversion;
    if (layout_.mapped && !conversion.convert)
        return map(source, entry, lines, depth, staging.parts, staging.stride);
    alignas(64) std::byte mapped[most_staged_lines * most_staged_rows * sizeof(float)];
    if (layout_.mapped) map(source, entry, lines, depth, mapped, staging.stride);
    const bool along = form_ == PanelSource::along_depth;
    for (std::int64_t row = 0; row < (along ? lines.size : depth.size); ++row) {
        void* rows[4];
        for (int part = 0; part < conversion.parts; ++part)
            rows[part] =
                staging.parts + part * staging.part_bytes + row * staging.stride * staging.element_bytes;
        const void* const stored =
            layout_.mapped ? mapped + row * staging.stride * static_cast<std::int64_t>(size_of(layout_.dtype))
                           : element(source.data, entry, lines.begin + (along ? row : 0),
                                     depth.begin + (along ? 0 : row));
        if (layout_.two_of_four)
            stage_compressed(source, lines.begin + row, depth, rows);
        else
            conversion.convert(stored, along ? depth.size : lines.size, rows);
    }
}

void OperandPanels::pack_staged(const OperandSource& source, std::int64_t entry, PanelRange lines,
                                PanelRange depth, std::byte* panels) const {
    alignas(64) std::byte parts[most_staged_lines * most_staged_rows * 4 * 2];
    const Conversion& conversion = kernels_.conversion;
    const bool along = form_ == PanelSource::along_depth;
    const std::int64_t slice = along ? slice_along : most_staged_rows;
    const std::int64_t group = along ? panel_size_ : most_staged_lines / panel_size_ * panel_size_;
    const auto part_bytes =
        static_cast<std::int64_t>(size_of(conversion.convert ? conversion.part : layout_.dtype));
    const std::int64_t stride = along ? slice : group, whole = group * slice * part_bytes;
    for (std::int64_t line = 0; line < lines.size; line += group)
        for (std::int64_t k = 0; k < depth.size; k += slice) {
            const PanelRange some{lines.begin + line, std::min(group, lines.size - line)};
            const PanelRange deep{depth.begin + k, std::min(slice, depth.size - k)};
            const std::int64_t next = std::clamp<std::int64_t>(depth.size - k - slice, 0, slice);
            if (!layout_.two_of_four) prefetch(source.data, entry, some, {deep.begin + slice, next}, 0, 1);
            stage(source, entry, some, deep, {parts, stride, part_bytes, whole});
            for (std::int64_t first = 0; first < some.size; first += panel_size_)
                pack_terms({.source = parts + first * part_bytes,
                            .stride = stride,
                            .lines = std::min(panel_size_, some.size - first),
                            .depth = deep.size,
                            .panel = panels + (line + first) * kernels_.line_bytes(depth.size) +
                                     k * panel_size_ * kernels_.element_bytes,
                            .streaming = stores_ == PanelStores::streaming},
                           whole, kernels_.padded(depth.size) * panel_size_ * kernels_.element_bytes);
        }
}

void OperandPanels::pack_terms(const PanelCopy& first, std::int64_t part_bytes,
                               std::int64_t term_bytes) const {
    const auto& parts_of_terms = is_a_ ? kernels_.conversion.a : kernels_.conversion.b;
    for (int term = 0; term < kernels_.conversion.terms; ++term) {
        PanelCopy copy = first;
        copy.source = static_cast<const std::byte*>(first.source) +
                      parts_of_terms[static_cast<std::size_t>(term)] * part_bytes;
        copy.panel = static_cast<std::byte*>(first.panel) + term * term_bytes;
        kernel_(copy);
    }
}

void OperandPanels::prefetch(const void* source, std::int64_t entry, PanelRange lines, PanelRange depth,
                             std::int64_t share, std::int64_t shares) const {
    const bool along = form_ == PanelSource::along_depth;
    const std::int64_t rows = along ? lines.size : depth.size;
    const std::int64_t row_bytes =
        static_cast<std::int64_t>(size_of(layout_.dtype)) * (along ? depth.size : lines.size);
    for (std::int64_t row = rows * share / shares; row < rows * (share + 1) / shares; ++row)
        prefetch_run(element(source, entry, lines.begin + (along ? row : 0), depth.begin + (along ? 0 : row)),
                     row_bytes);
}

}  // namespace mantissa::cpu
