// The op table: one row per operation, and nowhere else a list of operations.
//
// A row says everything the rest of mantissa asks of an operation: what it takes and gives, its gradient, its
// autocast class, what it is for the fuser, its cost, and for composites their definition in simpler
// operations. Primitives have no definition; their meaning is their entry in the reference evaluator
// (reference_ops.cpp).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "mantissa/graph/attributes.h"
#include "mantissa/graph/type.h"

namespace mantissa {

class Graph;
class Tensor;
struct Op;

/// What autocast does with an operation's floating-point operands.
enum class AutocastClass : std::uint8_t {
    lower,   ///< contractions: cast to the policy's low format
    fp32,    ///< norms, softmax, exponentials, sums, losses: computed and written in FP32
    widest,  ///< operands of mixed formats are cast to the widest
    same     ///< takes what comes
};

/// What an operation is for the fuser.
enum class FuserClass : std::uint8_t { elementwise, row_reduction, contraction, movement, opaque };

/// An operation about to be added: what its type rule sees.
struct OpCall {
    const Op& op;
    std::span<const Type> inputs;
    const Attributes& attributes;
};

/// What a definition is built from: operands in the graph that is being written.
struct DefinitionCall {
    Graph& graph;
    std::span<const Tensor> inputs;
    const Attributes& attributes;
};

/// What a gradient rule is built from. `cotangents[i]` is the gradient of the loss by `outputs[i]`; an output
/// on which the loss does not depend has an empty tensor.
struct GradientCall {
    Graph& graph;
    std::span<const Tensor> inputs;
    std::span<const Tensor> outputs;
    std::span<const Tensor> cotangents;
    const Attributes& attributes;
};

/// Work of one execution.
struct Cost {
    std::int64_t flops = 0;
    std::int64_t bytes = 0;  ///< read and written once each, if nothing stays in a cache
};

/// The types of the outputs. Throws UserError saying what was expected and what came.
using TypeRule = std::vector<Type> (*)(const OpCall&);
/// One gradient per input, empty where the input has none.
using GradientRule = std::vector<Tensor> (*)(const GradientCall&);
using Definition = std::vector<Tensor> (*)(const DefinitionCall&);
using FlopRule = std::int64_t (*)(std::span<const Type> inputs, std::span<const Type> outputs,
                                  const Attributes&);
/// Which operand is the copy of an update.
using CopyRule = std::size_t (*)(const Attributes&);

struct Op {
    std::string_view name;
    int least_inputs = 1;
    int most_inputs = 1;
    TypeRule types = nullptr;
    GradientRule gradient = nullptr;    ///< null only with a reason in `no_gradient`
    std::string_view no_gradient = {};  ///< why there is none
    AutocastClass autocast = AutocastClass::same;
    FuserClass fuser = FuserClass::opaque;
    FlopRule flops = nullptr;         ///< null: no arithmetic
    Definition definition = nullptr;  ///< null: a primitive
    /// Output i may be written over input `in_place[i]` when that input is not needed afterwards; -1: never.
    std::vector<int> in_place = {};
    /// For updates of operand 0 that may take a copy of it in another format as their last operand, and then
    /// give the new one, rounded once to that format, as their last output. Null: they take none.
    CopyRule copy = nullptr;

    bool composite() const { return definition != nullptr; }
    /// Whether a node with so many operands takes a copy, and so gives the new one.
    bool takes_copy(std::size_t operands, const Attributes& attributes) const {
        return copy && operands == copy(attributes) + 1;
    }
    Cost cost(std::span<const Type> inputs, std::span<const Type> outputs, const Attributes&) const;
};

/// All rows, in the order of the families in graph/ops/.
std::span<const Op* const> op_table();

/// The row of that name. Throws InternalError if there is none.
const Op& find_op(std::string_view name);

// The families, one source file each in graph/ops/.
std::span<const Op> source_ops();
std::span<const Op> elementwise_ops();
std::span<const Op> movement_ops();
std::span<const Op> reduction_ops();
std::span<const Op> contraction_ops();
std::span<const Op> attention_ops();
std::span<const Op> normalization_ops();
std::span<const Op> activation_ops();
std::span<const Op> loss_ops();
std::span<const Op> optimizer_ops();
std::span<const Op> fused_ops();

}  // namespace mantissa
