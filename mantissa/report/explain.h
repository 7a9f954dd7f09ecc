// The formats of a training step: storage, multiplication and summation of each operation, and the rule that
// chose them. Read off the plan, and so off the kernels' actual types.
#pragma once

#include <string>
#include <vector>

#include "mantissa/graph/graph.h"
#include "mantissa/passes/pass_refusal.h"
#include "mantissa/passes/pipeline.h"
#include "mantissa/report/report.h"
#include "mantissa/report/roofline.h"
#include "mantissa/report/thread_estimate.h"
#include "mantissa/runtime/plan.h"

namespace mantissa::inline v0 {

class TrainingPlan;

struct ExplainedNode {
    std::string op;
    std::string name;       ///< the model's scope, as in "h.3.mlp.c_fc"
    std::string line = {};  ///< of the trace, as in "model.py:52"; empty: unknown
    std::string pass;       ///< forward, backward or update
    std::string storage;    ///< of the operands: "bf16", or "bf16,f32" where they differ
    std::string multiply;   ///< format of arithmetic; empty: nothing is computed
    std::string sum;        ///< format of accumulation; empty: none
    std::string output;     ///< of the outputs
    std::string rule;
    std::string kernel;
    bool contracts = false;  ///< multiplies matrices, as attention does, too
    std::int64_t bytes = 0;  ///< read and written once each
    std::int64_t flops = 0;
    /// The operations in a fused kernel, casts included, in order; for a contraction with an epilogue, the
    /// epilogue's. Their values stay in registers, so they have no bytes, FLOPs and kernels of their own.
    std::vector<ExplainedNode> parts = {};
};

struct ExplainedCast {
    std::string name, pass, from, to, rule;
    std::int64_t bytes = 0;  ///< read and written
};

/// An attention that runs as one operation.
struct ExplainedAttention {
    std::string name;
    std::string form;     ///< "causal", or as in "a function of the score, masked by data"
    std::string formula;  ///< as ScoreFormula writes it
    std::int64_t blocks = 0, all_blocks = 0;  ///< of pairs: computed at most, and all
    std::int64_t queries = 0, keys = 0;       ///< in a block
    std::string why;                          ///< reason for this number of blocks
};

/// Arena values of one kind that are alive at the peak.
struct LiveValues {
    std::string op;         ///< producer, as in "softmax"; "workspace" of a kernel
    std::string pass;       ///< forward, backward or update
    std::string type = {};  ///< as in "f32[4, 12, 1024, 1024]"; empty for a workspace
    int count = 0;
    std::int64_t bytes = 0;
};

/// A plan's memory at its peak: the values to save for a larger model or batch.
struct MemoryAtPeak {
    std::int64_t state = 0;                                    ///< parameters, moments, constants
    std::int64_t arena = 0;                                    ///< activations, gradients, workspaces
    std::int64_t inputs = 0;                                   ///< tokens and scalars
    std::string peak_op = {}, peak_name = {}, peak_pass = {};  ///< the node that runs at the peak
    std::vector<LiveValues> live = {};                         ///< largest first

    std::int64_t total() const { return state + arena + inputs; }
};

MemoryAtPeak memory_at_peak(const Plan& plan);

/// For people: the totals, and the values alive at the peak, except the last hundredth.
std::string memory_table(const MemoryAtPeak& memory);

struct Explanation {
    ReportedModel model;
    std::string policy;
    std::string of = "one training step";
    std::vector<std::string> passes = {};  ///< the optional ones that ran
    std::vector<ExplainedNode> nodes;      ///< in the order of the run, without casts
    std::vector<ExplainedCast> casts;
    std::vector<ExplainedAttention> attentions = {};
    std::vector<PassRefusal> refused;  ///< nodes that passes left unchanged, and reasons
    MemoryAtPeak memory = {};
    std::string reason_of_unit = {};  ///< Target's

    /// "gpt2-tiny at 4 x 256 tokens, policy bf16: one training step".
    std::string title() const;
    /// "passes: simplify, fuse", and a line about the unit that multiplies BF16.
    std::string passes_text() const;
};

/// `pipeline`: the options of the plan's graph. `model` and `refused` are left to the caller.
Explanation explain(const Plan& plan, const PipelineOptions& pipeline);
/// Explains a training step, with its model and its refusals.
Explanation explain(const TrainingPlan& plan);

/// "bf16*bf16+f32" for a contraction; the arithmetic format for all other nodes; "-" if nothing is computed.
std::string arithmetic_of(const ExplainedNode& node);

/// A table for people: a line for each kind of operation (or each node), with the parts of a fused kernel
/// below. Casts, totals by arithmetic, refusals of passes and memory follow.
enum class Detail : std::uint8_t { kinds, nodes };
std::string explain_table(const Explanation& explanation, Detail detail);

/// The explanation as a self-contained page, with every node, and with the rates of its kernels if a roofline
/// of the step was measured. `command`: the command line.
std::string explain_html(const Explanation& explanation, const Roofline* roofline,
                         const std::string& command);

/// docs/json.md describes every member. `threads`: the step's time on more threads; null: not requested.
std::string explain_json(const Explanation& explanation, const ThreadReport* threads = nullptr);

/// The operations that two policies treat differently, or only one has, and the number of casts. Operations
/// are matched by pass, name and scope, in order.
std::string explain_difference(const Explanation& first, const Explanation& second);

/// Explains a node `attention`.
ExplainedAttention explain_attention(const Graph& graph, const Node& node);

/// The first of several equal items, with the total bytes and arithmetic, and the count.
template <class Item>
struct Kind {
    Item first;
    int count = 0;
};

// All in order of first use.

/// Nodes that differ only in their place in the model. Fused kernels are equal if their parts are.
std::vector<Kind<ExplainedNode>> kinds_of(const std::vector<ExplainedNode>& nodes);

/// Casts of one pass, between the same formats and by the same rule.
std::vector<Kind<ExplainedCast>> kinds_of(const std::vector<ExplainedCast>& casts);

/// Nodes of one operation that one pass left unchanged for one reason.
std::vector<Kind<PassRefusal>> kinds_of(const std::vector<PassRefusal>& refused);

/// Attentions with equal descriptions.
std::vector<Kind<ExplainedAttention>> kinds_of(const std::vector<ExplainedAttention>& attentions);

struct PartKind {
    ExplainedNode part;  ///< first part
    std::string ops;     ///< of all parts: "mul (3), add, rsqrt"
};

/// Parts of a fused kernel with equal formats and rule.
std::vector<PartKind> part_kinds_of(const ExplainedNode& node);

struct ArithmeticTotal {
    std::string name;  ///< "bf16*bf16+f32", "f32", "movement", "casts"
    std::int64_t flops = 0, bytes = 0;
};

/// By arithmetic, casts last.
std::vector<ArithmeticTotal> totals_of(const Explanation& explanation);

}  // namespace mantissa
