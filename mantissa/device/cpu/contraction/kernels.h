// The inner kernels of the contraction, one set for each level of instructions: packing an operand into
// panels, and multiplying two panels. The code around them (blocking, threads, edges of the problem) is
// common to all.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/contraction/epilogue_kernels.h"
#include "mantissa/device/cpu/contraction/row_product.h"
#include "mantissa/device/cpu/isa.h"
#include "mantissa/numerics/coded_weights.h"
#include "mantissa/numerics/dtype.h"

namespace mantissa::inline v0::on_cpu {

/// Packing asks for parts of an operand that is stored as codes and scales, as numbers. All levels give the
/// same bits.
void widen_codes_generic(const WidenedPart& part);
void widen_codes_avx2(const WidenedPart& part);
void widen_codes_avx512(const WidenedPart& part);

/// A block of finished sums that become output some rows at a time. `kernel` makes the block's output of
/// them. Where there is `finish`, `kernel` only adds the block's addend, and `finish` does the rest.
struct SumsBehind {
    EpilogueBlock block;  ///< from the first remaining row
    EpilogueKernel kernel = nullptr;
    EpilogueFunction finish = nullptr;
    const void* finish_args = nullptr;
    std::int64_t row0 = 0;
    std::int64_t col0 = 0;
    std::int64_t rows = 0;  ///< that remain

    /// Does the next rows, at most so many.
    void finish_rows(std::int64_t most);
};

/// Some of the depth of a tile's rows of a, in place: neighbours in memory, for each row from an address of
/// its own.
struct RunInPlace {
    const std::byte* const* rows = nullptr;  ///< as many as a tile is high; missing rows point to zeros
    std::int64_t depth = 0;                  ///< in elements, a multiple of a panel's words
};

/// Some neighbouring steps of the depth for a tile; at each step its rows are neighbours in memory.
struct StepsInPlace {
    std::int64_t first = 0;  ///< bytes from Tile::a to the word of row 0 at the first step
    std::int64_t begin = 0;  ///< number of that step in the panel of b
    std::int64_t count = 0;
};

/// Some of the depth of a panel's rows of a on tiles. For each tile of sixteen rows: the place of its first
/// step, and the bytes from one row to the next, and from one step of the depth to the next.
struct TileRun {
    const std::byte* rows[2] = {};
    std::int64_t stride[2] = {}, step[2] = {};
    std::int64_t steps = 0;
};

/// Depth of the blocks of a panel that may be left out as zeros.
inline constexpr std::int64_t depth_of_zeros = 32;

/// One block of sums: c[rows, cols] = (accumulate ? c : 0) + a_panel^T b_panel.
struct Tile {
    const void* a = nullptr;              ///< a packed panel of a, unless it is read in place
    const RunInPlace* runs = nullptr;     ///< for `multiply_in_place`: of all the depth, in its order
    const StepsInPlace* steps = nullptr;  ///< for `multiply_across`: of all of the depth that is not zero
    std::int64_t step_bytes = 0;          ///< from one step to the next
    std::int64_t run_count = 0;           ///< of runs or steps
    const void* b = nullptr;              ///< a packed panel of b, or words of pixels
    std::int64_t depth = 0;
    std::uint64_t zeros = 0;  ///< bit i: block i of the depth is left out; panels are given `steps` for that
    float* c = nullptr;
    std::int64_t ldc = 0;
    std::int64_t rows = 0;  ///< 1 ... panel height
    std::int64_t cols = 0;  ///< 1 ... panel width
    bool accumulate = false;
    /// The sums are only written, and too many for the caches: whole lines may go past them.
    bool streaming = false;
    /// Lines that are wanted in L2 soon; kernels may ask for them, and never fault.
    const void* ahead = nullptr;
    /// Sums of another tile; a kernel that interleaves finishes all of them between products. Such kernels
    /// begin with zeros.
    SumsBehind* behind = nullptr;
    /// For kernels that interleave: the depth of the panel of b that stays in L1; the rest passes it.
    std::int64_t resident_depth = 0;
    /// For kernels that interleave: b is no panel, but all its columns word after word (PixelWords).
    bool b_in_words = false;
    /// For kernels that interleave: instead of a panel of a, `run_count` of all the depth, in its order.
    const TileRun* tile_runs = nullptr;
    /// For kernels that interleave: lines `ahead` to ask for with this tile, and further lines.
    std::int64_t lines_ahead = 0;
    const void* rows_ahead = nullptr;
    std::int64_t row_lines_ahead = 0;
};

/// Copies lines of an operand, as they are or widened to FP32, into panels [depth, panel size], as many as
/// they fill; missing lines of the last are 0.
struct PanelCopy {
    const void* source = nullptr;
    std::int64_t stride = 0;  ///< of stored rows, in elements
    /// Across the depth: from a word's first stored row to its second, where `stride` is from one word to the
    /// next. 0: stored rows are neighbours.
    std::int64_t beside = 0;
    std::int64_t lines = 0;  ///< 1 or more
    std::int64_t depth = 0;  ///< 1 or more
    void* panel = nullptr;
    std::int64_t panel_bytes = 0;  ///< from one panel to the next
    /// So many stored rows behind the copied ones are read soon; kernels may ask for them, and never fault.
    std::int64_t rows_ahead = 0;
    /// The panels may go past the caches.
    bool streaming = false;
};

using TileKernel = void (*)(const Tile& tile);
using PanelKernel = void (*)(const PanelCopy& copy);

/// The order of a panel's source: element (line, depth) is at line * stride + depth, or at depth * stride +
/// line.
enum class PanelSource : std::uint8_t { along_depth, across_depth };

/// [PanelSource][0 FP32, 1 BF16]
using PanelKernels = std::array<std::array<PanelKernel, 2>, 2>;

/// Copies columns of a gathered operand from images for some rows: zeros where a pixel is outside of its
/// image (window.h).
struct WindowPiece;
using GatherKernel = void (*)(const WindowPiece& piece);

/// Writes the words of two pixels that end in a run of them (pixel_words.h).
struct PixelRun;
using PixelRunKernel = void (*)(const PixelRun& run);

/// Turns `count` numbers into parts: parts[i] gets part i of each. The kind of conversion defines the parts.
/// False where a first part of several may be infinite or a NaN.
using ConvertKernel = bool (*)(const void* from, std::int64_t count, void* const* parts);

/// How operands that the panels do not take become numbers that they take: `parts` numbers for each element.
/// A panel has its first parts, then its second parts, and then two bytes a line for each step of
/// `depth_unit`. The first of the two says whether a first part in that step may be infinite or a NaN.
struct Conversion {
    ConvertKernel convert = nullptr;  ///< null: operands are taken as they are
    DType source = DType::f32;
    DType part = DType::f32;  ///< FP32 or BF16, as PanelKernels takes them
    int parts = 1;            ///< or 2
};

/// Copies operands in two parts, each number read once: panels with all of their depth and marks. False where
/// a number's first part needs a rule of its own, or is infinite or a NaN; the panels are then useless.
using SplitKernel = bool (*)(const PanelCopy& copy);

/// [PanelSource][0 FP32, 1 FP16]
using SplitKernels = std::array<std::array<SplitKernel, 2>, 2>;

struct ContractionKernels {
    std::int64_t height = 0;  ///< rows of a tile, lines of a panel of a
    std::int64_t width = 0;   ///< columns of a tile, lines of a panel of b
    /// A panel is a multiple of `depth_unit` deep; chunks are at most `max_depth`, and a block of a takes at
    /// most `max_block_bytes` and has at most `max_rows`. For FP32 vectors, 384 makes the block of a, 256 x
    /// 384 x 4 bytes, 384 KB and one panel of b, 48 wide, 72 KB. Both stay in an L2 of 1 MB while every row
    /// of a passes the panel. Deeper chunks mean fewer passes over the sums; best between 256 and 512.
    std::int64_t depth_unit = 1;
    std::int64_t max_depth = 384;
    std::int64_t max_block_bytes = 384 << 10;
    std::int64_t max_rows = 256;
    /// A block reads its rows of a from L2, or packs them for itself; so many columns repay that.
    std::int64_t min_columns = 384;
    /// No deeper k is one chunk, if that is more than `max_depth`.
    std::int64_t whole_depth = 0;
    /// Where k is several chunks, sums of one block that stay in L2 from chunk to chunk. 0: they lie in
    /// memory, which is as good where products take long enough to hide that.
    std::int64_t max_partial_bytes = 0;
    /// The kernels finish the sums of the previous tile while they form products, as Tile::behind says; so
    /// much of a panel of b then stays in L1 while the rows of a block pass it. 0: they do not.
    std::int64_t resident_depth = 0;
    bool interleaves() const { return resident_depth > 0; }
    /// Sums of bytes are too large by so many times the sum of their row of a.
    std::uint32_t shift_of_bytes = 0;
    /// Bytes of an element of a panel.
    std::int64_t element_bytes = 4;
    /// The kernel that the standard epilogue calls.
    EpilogueKernel finish = nullptr;
    TileKernel multiply = nullptr;
    /// multiply() of operands in two parts, by three products or four; null where the kernels have none.
    TileKernel multiply_by_three = nullptr;
    TileKernel multiply_by_four = nullptr;
    /// multiply() for rows of a that are read in place, of elements as wide as a panel's; null where the
    /// kernels only read panels.
    TileKernel multiply_in_place = nullptr;
    /// multiply_in_place() where the words of the rows are neighbours at each step of the depth.
    TileKernel multiply_across = nullptr;
    /// null for operand types that these kernels do not take
    PanelKernels pack_a = {};
    PanelKernels pack_b = {};
    Conversion conversion = {};
    /// For conversions to two parts; null: numbers are converted first, and their parts packed.
    SplitKernels split_a = {};
    SplitKernels split_b = {};
    // null: plain loops do it
    GatherKernel gather = nullptr;
    PixelRunKernel pack_pixels = nullptr;
    WidenCodes widen = widen_codes_generic;
    /// Panels of a are blocks of so much depth, one after another. Each block has its lines as they are:
    /// `height` rows of this many elements. 0: panels have another order.
    std::int64_t depth_of_blocks = 0;
    /// Kernels for a few rows; null where the panels serve them, too.
    RowProductKernels multiply_row = {};
    /// The kernel for several rows of BF16, read in place; null: they are widened for multiply_row.
    RowProductKernel multiply_rows_of_pairs = nullptr;
    /// Called by a thread before and after it multiplies; null where there is nothing to do.
    void (*begin)() = nullptr;
    void (*end)() = nullptr;

    std::int64_t padded(std::int64_t depth) const { return align_up(depth, depth_unit); }
    /// Bytes of each line of a panel.
    std::int64_t line_bytes(std::int64_t depth) const {
        const std::int64_t marks = conversion.parts > 1 ? 2 * padded(depth) / depth_unit : 0;
        return padded(depth) * conversion.parts * element_bytes + marks;
    }
};

/// Columns of a panel of b: narrow wastes less where few columns are left over. Panels of a do not differ.
enum class PanelWidth : std::uint8_t { wide, narrow };

ContractionKernels contraction_kernels_generic();
ContractionKernels contraction_kernels_avx2();
/// 48 columns, or 32.
ContractionKernels contraction_kernels_avx512(PanelWidth width = PanelWidth::wide);
/// BF16 operands on dot products of pairs; 48 columns, or 32.
ContractionKernels contraction_kernels_avx512_bf16(PanelWidth width = PanelWidth::wide);
/// BF16 operands on AMX tiles. The sizes of caches, of this CPU where none are given, change no bit.
ContractionKernels contraction_kernels_amx();
ContractionKernels contraction_kernels_amx(const CacheSizes& caches);

/// Signed bytes: problems are of FP32, each number of which stands for four neighbours along the depth. Their
/// sums are whole numbers, whose bits lie where those of FP32 would; they wrap. Operands lie along the depth
/// and are read by panels or, up to eight rows, in place; there no byte is -128.
ContractionKernels byte_kernels_generic();
ContractionKernels byte_kernels_avx2();
ContractionKernels byte_kernels_avx512_vnni();
/// Panels alone.
ContractionKernels byte_kernels_amx();

}  // namespace mantissa::on_cpu
