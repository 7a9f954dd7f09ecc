// The op table: one row per operation.
//
// A row says everything that the rest of mantissa asks of every operation: its operands and results, its
// gradient, its autocast class, and its class for the fuser. A row also says whether the operation is a view,
// how it treats padding, and its cost. A composite's row has its definition in simpler operations. Primitives
// have no definition: an element-wise one has its meaning in its row, any other one in the reference
// evaluator (reference_ops.cpp). Elsewhere a pass names the operations of the pattern that it looks for.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "mantissa/graph/attributes.h"
#include "mantissa/graph/type.h"

namespace mantissa::inline v0 {

class Graph;
namespace ops {
class Tensor;
}
using ops::Tensor;
struct Node;
struct Op;

/// The treatment of an operation's floating-point operands by autocast.
enum class AutocastClass : std::uint8_t {
    lower,   ///< contractions: cast to the policy's low format
    fp32,    ///< norms, softmax, exponentials, sums, losses: computed and written in FP32
    widest,  ///< operands of mixed formats are cast to the widest
    same     ///< takes operands in their own formats
};

/// The kind of an operation for the fuser.
enum class FuserClass : std::uint8_t { elementwise, row_reduction, contraction, movement, opaque };

/// An operation about to be added, as its type rule sees it.
struct OpCall {
    const Op& op;
    std::span<const Type> inputs;
    const Attributes& attributes;
};

/// The tools of a definition: operands in the graph that is being written.
struct DefinitionCall {
    Graph& graph;
    std::span<const Tensor> inputs;
    const Attributes& attributes;
};

/// The tools of a gradient rule. `cotangents[i]` is the gradient of the loss by `outputs[i]`; an output on
/// which the loss does not depend has an empty tensor.
struct GradientCall {
    Graph& graph;
    std::span<const Tensor> inputs;
    std::span<const Tensor> outputs;
    std::span<const Tensor> cotangents;
    const Attributes& attributes;
    std::vector<bool> wanted;  ///< by input: whether anybody asks for its gradient
};

/// A node with some operands that are longer than before, by rows of zeros at the end of an axis. The pass
/// `pad` asks a row about it.
struct LongerOperands {
    const Graph& graph;
    const Node& node;
    std::vector<int> axes;       ///< by operand: along which axis it is longer, -1 for none
    std::int64_t rows = 0;       ///< along that axis, as they were
    std::int64_t zero_rows = 0;  ///< that were added

    /// The operand's type without the added zeros.
    const Type& type(std::size_t operand) const;
};

/// The effect of an operation on longer operands.
struct LongerOutputs {
    std::vector<int> axes;  ///< by output: along which axis it is longer, zeros there again; -1 for none
    Attributes attributes;
    bool longer_bias = false;  ///< operand 2 must be longer, too
};

/// Work of one execution.
struct Cost {
    std::int64_t flops = 0;
    std::int64_t bytes = 0;  ///< read and written once each, if nothing stays in a cache
};

/// The types of the outputs. Throws UserError with the expected and the given type.
using TypeRule = std::vector<Type> (*)(const OpCall&);
/// One gradient per input, empty where the input has none.
using GradientRule = std::vector<Tensor> (*)(const GradientCall&);
using Definition = std::vector<Tensor> (*)(const DefinitionCall&);
/// An element of the result, from the operands' elements, in FP64.
using ElementMeaning = double (*)(std::span<const double>);
/// FLOPs, or bytes that are read and written.
using CostRule = std::int64_t (*)(std::span<const Type> inputs, std::span<const Type> outputs,
                                  const Attributes&);
/// The operand that is the copy of an update.
using CopyRule = std::size_t (*)(const Attributes&);
/// The number of operands that `lower` means, from the first on.
using LoweredRule = std::size_t (*)(const Attributes&);
/// Bytes from the start of operand 0 to an output that is part of its memory as it stands; nothing where the
/// output needs memory of its own.
using ViewRule = std::optional<std::int64_t> (*)(const Graph&, const Node&, int output);
/// The operand over which an output may be written when it is not needed afterwards; -1: none.
using InPlaceRule = int (*)(const Attributes&, std::size_t inputs, std::size_t output);
/// The longer outputs; nothing where the operation has no rule for zeros there.
using PaddingRule = std::optional<LongerOutputs> (*)(const LongerOperands&);

struct Op {
    std::string_view name;
    int min_inputs = 1;
    int max_inputs = min_inputs;  ///< as many as `min_inputs`, unless the row says otherwise
    TypeRule types = nullptr;
    GradientRule gradient = nullptr;    ///< null only with a reason in `no_gradient`
    std::string_view no_gradient = {};  ///< why there is none
    AutocastClass autocast = AutocastClass::same;
    LoweredRule lowered = nullptr;  ///< which operands `lower` means; the others keep their type. Null: all
    FuserClass fuser = FuserClass::opaque;
    CostRule flops = nullptr;          ///< null: no arithmetic
    CostRule bytes = nullptr;          ///< null: all operands and results
    Definition definition = nullptr;   ///< null: a primitive
    ElementMeaning meaning = nullptr;  ///< null: the meaning is an entry of reference_ops.cpp
    int instructions =
        1;  ///< in a nest, on sixteen lanes, for the choice between computing again and keeping
    /// Output i may be written over input `in_place[i]` when that input is not needed afterwards; -1: never.
    std::vector<int> in_place = {};
    InPlaceRule in_place_rule = nullptr;  ///< where it depends on the node; null: `in_place`
    /// For updates of operand 0 that may take a copy of it in another format as their last operand. They then
    /// give the new copy, rounded once to that format, as their last output. Null: they take none.
    CopyRule copy = nullptr;
    ViewRule view = nullptr;        ///< null: its outputs have memory of their own
    PaddingRule padding = nullptr;  ///< null: it takes no operand with zeros behind it
    /// Output i is operand i after its arrival, in the operand's memory where that may be.
    bool passes_through = false;
    std::uint32_t reads_codes = 0;  ///< bit i: operand i may be codes and scales (numerics/coded_weights.h)
    bool gains_by_padding = false;  ///< a contraction: zeros behind an operand round off its extents

    bool composite() const { return definition != nullptr; }
    /// Whether an output may be written over an operand.
    bool writes_over() const { return in_place_rule || !in_place.empty(); }
    /// The operand over which output i of a node with so many operands may be written; -1: none.
    int written_over(const Attributes& attributes, std::size_t inputs, std::size_t output) const;
    /// Whether a node with so many operands takes a copy, and so gives the new one.
    bool takes_copy(std::size_t operands, const Attributes& attributes) const {
        return copy && operands == copy(attributes) + 1;
    }
    Cost cost(std::span<const Type> inputs, std::span<const Type> outputs, const Attributes&) const;
};

/// All rows, in the order of the families in graph/ops/.
std::span<const Op* const> op_table();

/// The row of that name. Throws UserError if there is none.
const Op& find_op(std::string_view name);

// The families, one source file each in graph/ops/.
std::span<const Op> source_ops();
std::span<const Op> elementwise_ops();
std::span<const Op> function_ops();
std::span<const Op> movement_ops();
std::span<const Op> reduction_ops();
std::span<const Op> contraction_ops();
std::span<const Op> grouped_contraction_ops();
std::span<const Op> convolution_ops();
std::span<const Op> attention_ops();
std::span<const Op> normalization_ops();
std::span<const Op> batch_normalization_ops();
std::span<const Op> pool_ops();
std::span<const Op> activation_ops();
std::span<const Op> position_ops();
std::span<const Op> order_ops();
std::span<const Op> loss_ops();
std::span<const Op> optimizer_ops();
std::span<const Op> collective_ops();
std::span<const Op> scan_ops();
std::span<const Op> fused_ops();

}  // namespace mantissa
