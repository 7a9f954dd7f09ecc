// A contraction: out = epilogue(op(a) * op(b)) for plain and batched matrices, as a problem, without
// addresses, and the addresses of one call.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "mantissa/device/cpu/contraction/epilogue_kernels.h"
#include "mantissa/device/cpu/isa.h"
#include "mantissa/graph/convolution_axis.h"
#include "mantissa/numerics/dtype.h"

namespace mantissa::inline v0::on_cpu {

enum class Transpose : std::uint8_t { no, yes };

/// A matrix that is not in memory, but gathered from images while it is packed, as the operand of a
/// convolution is. Stored row (n, i, j) and column (r, s, c), each counted row-major, hold channel c of a
/// pixel of image n. The pixel is at the axes' image_place of i and r, and of j and s; outside of the image
/// the number is 0.
struct ImageWindow {
    ConvolutionAxis vertical, horizontal;
    std::int64_t channels = 0;
    // Distances from each to the next, in elements.
    std::int64_t row_pitch = 0, pixel_pitch = 0, image_pitch = 0;

    std::int64_t rows_of_image() const { return vertical.output * horizontal.output; }
    std::int64_t columns() const { return vertical.filter * horizontal.filter * channels; }
};

/// How one operand lies in memory; counts are in elements, rows are contiguous.
struct MatrixLayout {
    DType dtype = DType::f32;
    /// yes: memory holds the transpose of the operand.
    Transpose transpose = Transpose::no;
    /// The distance between stored rows.
    std::int64_t leading = 0;
    /// The distance between matrices of the batch, outer and inner batch dimension. 0 repeats an input.
    std::array<std::int64_t, 2> batch_stride = {0, 0};
    /// a only: packing replaces its elements by ContractionArguments::map_a.
    bool mapped = false;
    /// a and b: the stored elements are gathered from images; `leading` means nothing.
    std::optional<ImageWindow> window = {};
    /// b only: nf4, int4 or int8. Codes and scales of a whole matrix are stored (numerics/coded_weights.h),
    /// and widened to `dtype` as they are packed.
    Layout codes = Layout::row_major;

    /// Where the matrix of one entry begins, in elements, in a batch whose inner dimension is `inner`.
    std::int64_t offset_of(std::int64_t entry, std::int64_t inner) const {
        return entry == 0 ? 0 : entry / inner * batch_stride[0] + entry % inner * batch_stride[1];
    }
};

/// Treatment of the former contents of `out`.
enum class Store : std::uint8_t { overwrite, accumulate };

/// The function of each sum before it is stored: out = cast(sum + bias[column]).
struct StandardEpilogue {
    bool bias = false;
    DType bias_dtype = DType::f32;
};

/// A part of an operand in its stored format, on its way into panels.
struct MappedPart {
    const void* from = nullptr;  ///< the first of its elements
    std::int64_t from_leading = 0;
    std::int64_t row = 0;  ///< of the stored matrix, where the part begins
    std::int64_t column = 0;
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    void* to = nullptr;  ///< where the mapped elements go, of the same type
    std::int64_t to_leading = 0;
};

/// Called for every element of a mapped operand, by any thread that packs it: once or more often.
using MapFunction = void (*)(const MappedPart& part, const void* args);

/// The format that operands are multiplied in. Sums are FP32 in any case.
enum class Multiply : std::uint8_t {
    as_stored,  ///< FP32 by FP32; BF16 and FP16 exactly
    /// FP32 operands with TF32's 11 significant bits and FP32's range, or better: three products of BF16
    /// parts on a tile unit, operands rounded to TF32 elsewhere.
    tf32,
};

/// op(a) [m, k] times op(b) [k, n] for each of batch[0] * batch[1] entries. Products and sums are FP32. BF16
/// and FP16 operands are widened, which is exact, unless both are BF16 and the level has a unit for them
/// (bf16_unit), which flushes subnormal operands and sums to zero. With up to eight rows b is not packed. Dot
/// products of pairs take two rows or more, with both operands along the depth, and other operands are
/// widened there, too. Sizes may be 0: with k = 0 all sums are 0.
struct ContractionProblem {
    std::array<std::int64_t, 2> batch = {1, 1};
    std::int64_t m = 0;
    std::int64_t n = 0;
    std::int64_t k = 0;
    MatrixLayout a = {};
    MatrixLayout b = {};
    MatrixLayout out = {};
    Store store = Store::overwrite;
    StandardEpilogue epilogue = {};
    Multiply multiply = Multiply::as_stored;
    /// The sums go to an EpilogueFunction of the caller's; `out`, `store` and `epilogue` stay at their
    /// defaults.
    bool custom_epilogue = false;
    /// b lasts for many calls. pack_b() makes its panels once, and calls read these in place of b.
    bool keeps_b = false;
    /// Blocks of zeros of either operand add nothing, whatever they meet: rows of a gradient at padding. It
    /// moves no bit of finite operands' sums, but for the sign of a zero that a sum underflowed to. Operands
    /// that are gathered or mapped are multiplied whole.
    bool leaves_zeros_out = false;
    /// Threads to keep busy: many threads get finer blocks, which moves no bit. Any number may run it.
    int threads = 1;

    std::int64_t entries() const { return batch[0] * batch[1]; }
    bool finds_zeros() const { return leaves_zeros_out && !a.mapped && !a.window && !b.window; }
    /// Elements of the output.
    std::int64_t sums() const { return entries() * m * n; }
};

/// Data of one call. No output may overlap an input.
struct ContractionArguments {
    const void* a = nullptr;
    const void* b = nullptr;     ///< the kept panels, if b is kept
    void* out = nullptr;         ///< unused with a custom epilogue
    const void* bias = nullptr;  ///< [n], if the epilogue adds one
    EpilogueFunction epilogue = nullptr;
    const void* epilogue_args = nullptr;
    MapFunction map_a = nullptr;  ///< of a mapped a
    const void* map_a_args = nullptr;
};

enum class Side : std::uint8_t { a, b };

/// Why the problem cannot be done; empty if it can.
std::string refusal(const ContractionProblem& problem);

}  // namespace mantissa::on_cpu
