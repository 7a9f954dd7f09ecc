// Kernels of a GPU for operations that are no nest, as plain data: each thread, or each block of threads,
// makes one element of its output out of elements that lie anywhere. Sizes are part of a kernel, so that
// indices are divided by constants. Other kernels: attention_kernel.h; images in image_kernel.h,
// depthwise_kernel.h and filter_gradient_kernel.h; quantised weights in quantized_kernel.h; rounding below
// sixteen bits in rounding_kernel.h.
//
// Parameters of each: the operands' addresses, the output's, and further numbers as said below, 64 bits each.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "mantissa/codegen/attention_kernel.h"
#include "mantissa/codegen/compiler.h"
#include "mantissa/codegen/depthwise_kernel.h"
#include "mantissa/codegen/filter_gradient_kernel.h"
#include "mantissa/codegen/image_kernel.h"
#include "mantissa/codegen/part_table.h"
#include "mantissa/codegen/quantized_kernel.h"
#include "mantissa/codegen/rounding_kernel.h"

namespace mantissa::inline v0::codegen {

/// Where the elements of an operand lie along the axes that a kernel counts.
struct Strided {
    DType dtype = DType::f32;
    std::vector<std::int64_t> strides = {};  ///< in elements, one an axis; 0 repeats
    std::int64_t offset = 0;                 ///< in elements
};

/// The index in an i32 operand moves the place where another operand is read, or the output written.
struct Indexed {
    std::size_t by = 0;                       ///< the operand
    std::optional<std::size_t> operand = {};  ///< the moved operand; none: the output
    std::int64_t pitch = 0;                   ///< elements for each index
    std::int64_t limit = 0;                   ///< indices are below; other indices are reported, and nothing
                                              ///< is done
    std::int32_t report = 1;                  ///< the number reported
};

/// A thread an element, or `at_once` neighbours of a row. `op`: an element-wise operation of the op table;
/// "copy", bits as they are; "iota", the place that `counter` counts; "random_uniform", of the operands seed
/// and step; "round_to F" for a format F. With `indexed` a further parameter: the address of two i32, at a
/// multiple of 8. The first becomes `report`, and the second an index that is outside.
struct ElementKernel {
    std::string op;
    std::vector<std::int64_t> extents;  ///< outermost first
    std::vector<Strided> operands;
    Strided output;
    std::optional<Indexed> indexed = {};
    /// Neighbours along the last axis that a thread copies or casts. They lie side by side in the operand and
    /// in the output. Each group of them lies at a multiple of its bytes, or of 16. Other operations: 1.
    int at_once = 1;
    std::vector<std::int64_t> counter = {};  ///< of "iota": a stride an axis
    std::int64_t operation = 0;              ///< of "random_uniform"
};

/// A sum or maximum, `chunks` results a kept element: result i is kept element i % kept, over the terms of
/// chunk i / kept. A result has a thread, or several of a block, which add in one order.
struct ReductionKernel {
    struct Axis {
        std::int64_t extent = 1;
        std::int64_t stride = 0;
    };
    bool maximum = false;
    std::vector<Axis> kept, reduced;  ///< outermost first
    std::int64_t chunks = 1;
    std::int64_t terms_of_chunk = 0;
    int threads = 1;  ///< of a result: 1, or a power of two up to 256
    /// The threads of a result are no neighbours: neighbouring threads have neighbouring results, whose terms
    /// lie side by side.
    bool spread = false;
    /// Neighbouring results of a thread, whose terms lie side by side and begin at a multiple of as many.
    int at_once = 1;
    DType from = DType::f32, sums = DType::f32, to = DType::f32;
};

/// The rows of a table's gradient, in three stages over stretches of neighbouring tokens: as many blocks as
/// there are stretches add up one frequent id. Tokens whose id is outside are left out.
struct EmbeddingGradientKernel {
    enum class Stage {
        /// A thread a token: ids i32 [N] -> firsts i32 [rows, stretches], which are 0 before: N less the
        /// first token of the id in the stretch. A further parameter as ElementKernel's `indexed`.
        firsts,
        /// A block a token: dy [N, columns], ids, firsts -> sums [N, columns]: at the first token of an id in
        /// its stretch, the sum of dy over the id's tokens there, in order.
        stretches,
        /// A block a token: sums, ids, firsts -> the addend of the table: at the id's first token of all, the
        /// sums of all stretches, in order.
        rows,
    };
    Stage stage = Stage::firsts;
    std::int64_t tokens = 0;
    std::int64_t columns = 0;
    std::int64_t rows = 0;        ///< of the table
    std::int64_t of_stretch = 1;  ///< tokens
    DType dtype = DType::f32;     ///< of dy and the table; sums are FP32, or FP64 of FP64
    std::int32_t report = 1;

    std::int64_t stretches() const { return (tokens + of_stretch - 1) / of_stretch; }
    DType sums() const { return dtype == DType::f64 ? DType::f64 : DType::f32; }
};

/// Sums of squares, in FP64, of many tensors of one format. A warp makes a sum, of `of_sum` neighbouring
/// elements, in one order. A part of its table: first block, address, elements, number of its first sum.
/// Further parameter: the sums f64.
struct SquaresKernel {
    DType from = DType::f32;
    std::int64_t of_sum = 0;
    std::int64_t parts = 0;
    static constexpr int threads_of_sum = 32, sums_of_block = 8;

    PartTable table() const { return {parts, 4}; }
};

/// Takes an FP64 sum of squares, gives its root as f32 and, the second output, whether the root is finite.
/// One thread.
struct NormKernel {};

/// Rotary positions: x [tokens, heads, 2 half], cosines and sines f32 [positions, half] -> as x, which may
/// lie where x does. A thread turns `at_once` neighbouring pairs; token t has position t % positions.
struct TurnKernel {
    std::int64_t tokens = 0, positions = 1, heads = 1, half = 1;
    DType dtype = DType::f32;
    int at_once = 1;  ///< divides half
};

/// Products of small matrices whose operands stay in registers, again and again: how many a GPU does a
/// second. One mode of mma.sync. Parameters: u32 for each thread, so that no product is optimised away, and
/// how often each warp does `peak_products` of them.
struct PeakKernel {
    std::string inputs = "bf16", accumulator = "f32";  ///< as in device/format_peaks.h
    std::int64_t blocks = 1;
};

/// Products whose sums do not wait for one another: enough for a unit that takes 33 cycles for a product and
/// begins one every 8.
constexpr int peak_products = 8;

/// All modes.
std::vector<PeakKernel> peak_kernels();
/// Operations of one product, a multiply-add counted as two.
std::int64_t operations_of_product(const PeakKernel& kernel);

struct GridKernel {
    std::string name;  ///< as reports of faults call it
    std::variant<ElementKernel, ReductionKernel, EmbeddingGradientKernel, SquaresKernel, NormKernel,
                 TurnKernel, AttentionKernel, SeenTilesKernel, PeakKernel, PoolKernel, ConvolutionKernel,
                 DepthwiseKernel, FilterGradientKernel, QuantizeKernel, WeightGroupsKernel,
                 QuantizedRowsKernel, ScaledSumsKernel, RoundingKernel, TensorScaleKernel>
        code;
};

/// Threads of a block, except in attention.
constexpr int grid_threads = 256;

/// Threads of a block.
int block_threads(const GridKernel& kernel);
/// Blocks of threads that do the whole kernel.
std::int64_t blocks_of(const GridKernel& kernel);

/// Equal kernels have equal texts.
std::string text_of(const GridKernel& kernel);

/// The kernel's PTX, with the entry `name`. Throws InternalError for an unknown operation, or where there is
/// no compiler (Compiler::refusal).
Listing compile(const GridKernel& kernel, const NvptxTarget& target);

/// Why the operation cannot be computed element by element; empty if it can.
std::string refuse_element(std::string_view op, DType from, DType to);

}  // namespace mantissa::codegen
