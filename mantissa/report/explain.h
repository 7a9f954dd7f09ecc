// The formats of a training step: for each operation those that it is stored, multiplied and summed in, and
// the rule that chose them. Read off the plan, so off the types that the kernels are given.
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
    std::string line = {};  ///< that traced it, as in "model.py:52"; empty: unknown
    std::string pass;       ///< forward, backward or update
    std::string storage;    ///< of the operands: "bf16", or "bf16,f32" where they differ
    std::string multiply;   ///< what arithmetic is done in; empty where nothing is computed
    std::string sum;        ///< what is added up in; empty where nothing is
    std::string output;     ///< of the outputs
    std::string rule;
    std::string kernel;
    bool contracts = false;  ///< whether what it does is to multiply matrices, as attention does, too
    std::int64_t bytes = 0;  ///< read and written once each
    std::int64_t flops = 0;
    /// The operations in a fused kernel, casts too, in their order; of a contraction with an epilogue those
    /// of the epilogue. Their values stay in registers, so they have no bytes, FLOPs and kernels of their
    /// own.
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
    std::int64_t blocks = 0, all_blocks = 0;  ///< of pairs that are computed, at most, and that there are
    std::int64_t queries = 0, keys = 0;       ///< in a block
    std::string why;                          ///< so many
};

/// Values of the arena that are alike, and alive at the peak.
struct LiveValues {
    std::string op;         ///< that made them, as in "softmax"; "workspace" of a kernel
    std::string pass;       ///< forward, backward or update
    std::string type = {};  ///< as in "f32[4, 12, 1024, 1024]"; empty for a workspace
    int count = 0;
    std::int64_t bytes = 0;
};

/// The contents of a plan's memory where most of it is in use: what one would have to do without to train a
/// larger model or batch.
struct MemoryAtPeak {
    std::int64_t state = 0;                                    ///< parameters, moments, constants
    std::int64_t arena = 0;                                    ///< activations, gradients, workspaces
    std::int64_t inputs = 0;                                   ///< tokens and scalars
    std::string peak_op = {}, peak_name = {}, peak_pass = {};  ///< the node that runs at the peak
    std::vector<LiveValues> live = {};                         ///< largest first

    std::int64_t total() const { return state + arena + inputs; }
};

MemoryAtPeak memory_at_peak(const Plan& plan);

/// For people: the totals, and what is alive at the peak, all but the last hundredth.
std::string memory_table(const MemoryAtPeak& memory);

struct Explanation {
    ReportedModel model;
    std::string policy;
    std::string of = "one training step";
    std::vector<std::string> passes = {};  ///< the optional ones that ran
    std::vector<ExplainedNode> nodes;      ///< in the order in which they run, casts apart
    std::vector<ExplainedCast> casts;
    std::vector<ExplainedAttention> attentions = {};
    std::vector<PassRefusal> refused;  ///< what the passes left as it was, and why
    MemoryAtPeak memory = {};
    std::string reason_of_unit = {};  ///< Target's

    /// "gpt2-tiny at 4 x 256 tokens, policy bf16: one training step".
    std::string title() const;
    /// "passes: simplify, fuse", and a line about the unit that multiplies BF16.
    std::string passes_text() const;
};

/// `pipeline`: what the plan's graph was built with. `model` and `refused` are left to the caller.
Explanation explain(const Plan& plan, const PipelineOptions& pipeline);
/// A training step, with its model and what the passes left.
Explanation explain(const TrainingPlan& plan);

/// "bf16*bf16+f32" for a contraction; the format it computes in for all else; "-" where nothing is computed.
std::string arithmetic_of(const ExplainedNode& node);

/// A table for people. It has a line for each kind of operation (or for each node), and below a fused kernel
/// its parts. The casts, totals by arithmetic, what passes left unchanged, and the memory follow.
enum class Detail : std::uint8_t { kinds, nodes };
std::string explain_table(const Explanation& explanation, Detail detail);

/// The same as a page that needs no other file, with every node; with a roofline, of a run of the same step,
/// what its kernels reached. `command`: what was typed.
std::string explain_html(const Explanation& explanation, const Roofline* roofline,
                         const std::string& command);

/// docs/json.md describes every member. `threads`: what the step would take on more of them; null: that was
/// not asked.
std::string explain_json(const Explanation& explanation, const ThreadReport* threads = nullptr);

/// The operations of one model that two policies treat differently, those that only one of them has, and how
/// many casts. Two operations are the same if pass, name and scope are, in their order.
std::string explain_difference(const Explanation& first, const Explanation& second);

/// Explains a node `attention`.
ExplainedAttention explain_attention(const Graph& graph, const Node& node);

/// The first of some that are alike, with the bytes and arithmetic of all, and how many there are.
template <class Item>
struct Kind {
    Item first;
    int count = 0;
};

// All in order of first use.

/// Nodes that differ in nothing but their place in the model. Fused kernels are alike where their parts are.
std::vector<Kind<ExplainedNode>> kinds_of(const std::vector<ExplainedNode>& nodes);

/// Casts of one pass, between the same formats and by the same rule.
std::vector<Kind<ExplainedCast>> kinds_of(const std::vector<ExplainedCast>& casts);

/// Nodes of one operation that one pass left as they are, for one reason.
std::vector<Kind<PassRefusal>> kinds_of(const std::vector<PassRefusal>& refused);

/// Attentions of which the same is said.
std::vector<Kind<ExplainedAttention>> kinds_of(const std::vector<ExplainedAttention>& attentions);

struct PartKind {
    ExplainedNode part;  ///< the first of them
    std::string ops;     ///< of all: "mul (3), add, rsqrt"
};

/// Parts of a fused kernel that are done in the same formats by the same rule.
std::vector<PartKind> part_kinds_of(const ExplainedNode& node);

struct ArithmeticTotal {
    std::string name;  ///< "bf16*bf16+f32", "f32", "movement", "casts"
    std::int64_t flops = 0, bytes = 0;
};

/// By arithmetic, casts last.
std::vector<ArithmeticTotal> totals_of(const Explanation& explanation);

}  // namespace mantissa
