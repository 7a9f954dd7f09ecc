// A fused kernel as loops: steps that run once, for each row, and in each walk over a row's columns. Plain
// data, made from the body of a fused node; pseudo-code and machine code are made from it alike.
//
// A row is walked once more than there are row reductions that depend on one another. A value that a later
// walk needs of an earlier one is computed again where that is cheap, else kept in a scratch row.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/base/whole_units.h"
#include "mantissa/graph/graph.h"
#include "mantissa/passes/analysis/nest.h"

namespace mantissa::inline v0::codegen {

/// Steps that are no operations of a graph: exp_up_to_zero is numerics/exp2_body.h's.
inline constexpr std::string_view own_steps[] = {"one_plus_tanh", "times_one_plus_tanh", "exp_up_to_zero"};

/// One value. `arguments` are earlier values.
struct Step {
    std::string_view op;       ///< of the op table, or "load" of an operand, or one of `own_steps`
    DType dtype = DType::f32;  ///< of the result
    Varies varies = Varies::by_both;
    std::vector<int> arguments = {};
    double constant = 0;  ///< of "constant"
    int operand = -1;     ///< of "load"
    Access access = {};   ///< of "load" and "iota"
};

/// Added to (or compared with) an accumulator in a walk.
struct Reduction {
    int result = -1;  ///< the step that stands for the finished reduction
    int value = -1;   ///< the reduced step
    bool maximum = false;
    /// A NaN may be lost: every value made from the maximum of a row meets the NaN elsewhere, too.
    bool of_numbers = false;
};

/// A sum over rows: one accumulator a column, or one alone.
struct RowSum {
    int value = -1;
    int output = -1;
    bool columns = false;     ///< an accumulator a column
    std::int64_t offset = 0;  ///< of the first accumulator in a block's partial sums
};

struct Store {
    int value = -1;
    int output = -1;
};

/// A value kept in a scratch row for later walks.
struct Keep {
    int value = -1;
    int row = -1;
};

/// One walk over the columns of a row, then the steps that follow from its reductions.
struct Walk {
    std::vector<int> steps;  ///< in order; loads included
    std::vector<Reduction> reductions;
    std::vector<Store> stores;
    std::vector<Keep> kept;
    std::vector<Keep> reread;  ///< kept by an earlier walk
    std::vector<RowSum> sums;
    std::vector<int> row_steps;  ///< after the walk, once
    std::vector<Store> row_stores;
    std::vector<RowSum> row_sums;
};

struct LoopNest {
    bool flat = true;  ///< one loop over elements, whose number is an argument
    /// The epilogue of a contraction: called for a block of some rows and columns, whose sums are operand 0.
    bool epilogue = false;
    std::int64_t columns = 0;  ///< unless flat; the number of rows is an argument
    std::vector<DType> inputs;
    std::vector<DType> outputs;
    std::vector<Step> steps;
    std::vector<int> once;       ///< steps that do not vary
    std::vector<int> row_steps;  ///< steps of a row that the first walk needs
    std::vector<Walk> walks;
    int scratch_rows = 0;
    std::int64_t partial_sums = 0;  ///< FP32 numbers of one block's sums over rows

    /// Bytes of one row (flat: of one element) that are read and written.
    std::int64_t bytes_per_row = 0;
};

/// FP32 numbers from one scratch row to the next: a row starts on a cache line and has room for whole
/// vectors.
inline std::int64_t scratch_stride(const LoopNest& nest) {
    return align_up(std::max<std::int64_t>(nest.columns, 1), 16);
}
/// Numbers in all scratch rows of one thread, or of one block of a GPU's.
inline std::int64_t scratch_floats(const LoopNest& nest) { return nest.scratch_rows * scratch_stride(nest); }

/// The step that chooses, for all elements alike, between two values of every output of a flat nest, as an
/// update is applied or not; -1 if no step does.
int condition_of(const LoopNest& nest);
/// By operand, whether a flat nest reads its elements if that condition holds.
std::vector<bool> read_where_it_holds(const LoopNest& nest);

/// The part of them that a block of a GPU's threads needs in global memory: 0 where they fit the shared.
std::int64_t global_scratch_floats(const LoopNest& nest);

/// Lowers a fused node's body. Of a body that starts with a contraction, it lowers the epilogue
/// (passes/analysis/contraction_epilogue.h); its operands after the sums are `ContractionEpilogue::operands`.
/// Throws InternalError if it is no nest.
LoopNest lower(const Graph& body);
/// Lowers a body that is this nest, with contracted products (passes/contract_products.h).
LoopNest lower(const Graph& contracted, Nest nest);

/// As readable pseudo-code. Equal kernels have equal texts.
std::string pseudo_code(const LoopNest& nest);

}  // namespace mantissa::codegen
