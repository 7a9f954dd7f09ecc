#include "mantissa/report/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "mantissa/graph/graph.h"
#include "mantissa/numerics/coded_weights.h"
#include "mantissa/passes/analysis/contraction_epilogue.h"
#include "mantissa/train/training_plan.h"

namespace mantissa::inline v0 {

namespace {

/// Scalars beside tensors left out: they decide nothing, as the step count of AdamW in FP64.
std::vector<Type> tensors_of(std::span<const Type> types) {
    std::vector<Type> tensors;
    for (const Type& type : types)
        if (type.shape.rank() > 0) tensors.push_back(type);
    return tensors.empty() ? std::vector<Type>(types.begin(), types.end()) : tensors;
}

/// The formats of some values: floating-point ones where there are any, each once, in order of first use.
std::string formats_of(std::span<const Type> types) {
    const bool any_floating =
        std::any_of(types.begin(), types.end(), [](const Type& type) { return is_floating(type.dtype); });
    std::vector<std::string_view> seen;
    for (const Type& type : types) {
        const std::string_view name = has_codes(type.layout) ? name_of(type.layout) : name_of(type.dtype);
        if ((!any_floating || is_floating(type.dtype)) && std::ranges::find(seen, name) == seen.end())
            seen.push_back(name);
    }
    return fmt::format("{}", fmt::join(seen, ","));
}

/// FP64 computes in FP64, every shorter floating-point format in FP32; nothing for integers.
std::optional<DType> arithmetic_format(std::span<const Type> types) {
    std::optional<DType> format;
    for (const Type& type : types) {
        if (type.dtype == DType::f64) return DType::f64;
        if (is_floating(type.dtype)) format = DType::f32;
    }
    return format;
}

std::string multiply_of(const Node& node, std::span<const Type> inputs) {
    switch (node.op->fuser) {
        case FuserClass::movement:
            return "";
        case FuserClass::contraction:
            return node.attributes.has("multiply") ? node.attributes.word("multiply")
                                                   : std::string(name_of(inputs[0].dtype));
        default:
            break;
    }
    if (node.op->name == "cast") return "";
    const std::optional<DType> format = arithmetic_format(inputs);
    return format ? std::string(name_of(*format)) : "";
}

/// `sums`: what the kernel adds in.
std::string sum_of(const Node& node, DType sums, std::span<const Type> inputs) {
    const bool adds =
        node.op->fuser == FuserClass::contraction || node.op->fuser == FuserClass::row_reduction;
    if (!adds) return "";
    const bool wide = arithmetic_format(inputs) == DType::f64;
    if (sums == DType::i32) return "s32";
    return std::string(name_of(wide ? DType::f64 : sums));
}

/// A cast that no rule of the policy made was written by the model, or by the definition of the update.
std::string rule_of(const Node& node) {
    if (!node.origin.rule.empty()) return node.origin.rule;
    return node.op->name == "cast" ? "asked for" : "input types";
}

/// The formats of an operation of a graph; of which plan and at what cost is left to the caller.
ExplainedNode formats_of(const Graph& graph, const Node& node, DType sums) {
    const std::vector<Type> inputs = tensors_of(graph.input_types(node));
    return {.op = std::string(node.op->name),
            .name = {},
            .line = {},
            .pass = {},
            .storage = formats_of(inputs),
            .multiply = multiply_of(node, inputs),
            .sum = sum_of(node, sums, inputs),
            .output = formats_of(node.outputs),
            .rule = rule_of(node),
            .kernel = {},
            .contracts = node.op->fuser == FuserClass::contraction};
}

/// Names of operands, numbers, counters and other shapes of the same are no work of a kernel.
bool is_part(const Node& node) {
    if (node.op->name == "cast") return true;
    return !node.inputs.empty() && node.op->fuser != FuserClass::movement;
}

/// The operations of a fused kernel, in its order; the contraction, which its own line is about, apart.
std::vector<ExplainedNode> parts_of(const Graph& body, NodeId contraction, const ExplainedNode& whole,
                                    DType sums) {
    std::vector<ExplainedNode> parts;
    for (NodeId id = 0; id < body.end(); ++id) {
        const Node& node = body.node(id);
        if (id == contraction || !is_part(node)) continue;
        ExplainedNode part = formats_of(body, node, sums);
        part.name = whole.name;
        part.line = whole.line;
        part.pass = whole.pass;
        parts.push_back(std::move(part));
    }
    return parts;
}

/// The formats in which an operation multiplies and adds that does so inside of itself (attention, the joint
/// loss): its kernel's name says it, as "attention bf16*bf16+f32 amx" does. Otherwise nothing changes.
void read_products(ExplainedNode& node) {
    const std::size_t times = node.kernel.find('*'), plus = node.kernel.find('+', times);
    if (times == std::string::npos || plus == std::string::npos) return;
    const std::size_t start = node.kernel.rfind(' ', times) + 1;
    node.contracts = true;
    node.multiply = node.kernel.substr(start, times - start);
    node.sum = node.kernel.substr(plus + 1, node.kernel.find(' ', plus) - plus - 1);
}

/// A contraction with an epilogue is explained as the contraction that it is; other fused kernels as a whole.
ExplainedNode explain_node(const Graph& graph, const PlannedNode& planned) {
    const Node& node = graph.node(planned.node);
    const Graph* body = node.op->name == "fused" ? &node.attributes.body("body").graph() : nullptr;
    const NodeId contraction = body ? contraction_of(*body) : -1;
    ExplainedNode explained = contraction >= 0
                                  ? formats_of(*body, body->node(contraction), planned.arithmetic.sums)
                                  : formats_of(graph, node, planned.arithmetic.sums);
    explained.name = node.origin.scope;
    explained.line = node.origin.line.text();
    explained.pass = std::string(name_of(node.origin.stage));
    explained.output = formats_of(node.outputs);
    explained.kernel = planned.kernel;
    explained.bytes = planned.cost.bytes;
    explained.flops = planned.cost.flops;
    if (node.op->fuser == FuserClass::opaque && !body) read_products(explained);
    if (!body) return explained;
    explained.parts = parts_of(*body, contraction, explained, planned.arithmetic.sums);
    if (contraction >= 0) {
        explained.rule = rule_of(node);
        return explained;
    }
    explained.rule = "its parts'";
    for (const ExplainedNode& part : explained.parts)
        if (!part.sum.empty()) explained.sum = part.sum;
    return explained;
}

ExplainedCast cast_of(const Graph& graph, const PlannedNode& planned) {
    const Node& node = graph.node(planned.node);
    return {.name = node.origin.scope,
            .pass = std::string(name_of(node.origin.stage)),
            .from = std::string(name_of(graph.type(node.inputs[0]).dtype)),
            .to = std::string(name_of(node.outputs[0].dtype)),
            .rule = rule_of(node),
            .bytes = planned.cost.bytes};
}

/// An update that keeps a copy rounds the parameter, too.
ExplainedCast copy_of(const Node& node) {
    return {.name = node.origin.scope,
            .pass = std::string(name_of(node.origin.stage)),
            .from = std::string(name_of(node.outputs[0].dtype)),
            .to = std::string(name_of(node.outputs.back().dtype)),
            .rule = rule_of(node),
            .bytes = node.outputs.back().bytes()};
}

}  // namespace

Explanation explain(const Plan& plan, const PipelineOptions& pipeline) {
    Explanation explanation;
    explanation.policy = pipeline.policy.name;
    explanation.passes = chosen_passes(pipeline);
    explanation.memory = memory_at_peak(plan);
    explanation.reason_of_unit = plan.device().target().reason_of_unit;
    for (const PlannedNode& planned : plan.nodes()) {
        const Node& node = plan.graph().node(planned.node);
        if (node.op->name == "cast") {
            explanation.casts.push_back(cast_of(plan.graph(), planned));
            continue;
        }
        if (node.op->takes_copy(node.inputs.size(), node.attributes))
            explanation.casts.push_back(copy_of(node));
        if (node.op->name == "attention")
            explanation.attentions.push_back(explain_attention(plan.graph(), node));
        explanation.nodes.push_back(explain_node(plan.graph(), planned));
    }
    return explanation;
}

Explanation explain(const TrainingPlan& plan) {
    Explanation explanation = explain(plan.step(), plan.pipeline());
    explanation.refused = plan.refused();
    explanation.model = reported(plan.model(), plan.facts(), plan.options().batch);
    return explanation;
}

std::string Explanation::title() const {
    return fmt::format("{} at {}, policy {}: {}", model.name, model.examples, policy, of);
}

std::string Explanation::passes_text() const {
    const std::string text =
        passes.empty() ? "no optional pass" : fmt::format("passes: {}", fmt::join(passes, ", "));
    return reason_of_unit.empty() ? text : text + "\n" + reason_of_unit;
}

std::string arithmetic_of(const ExplainedNode& node) {
    if (node.contracts) return node.multiply + "*" + node.multiply + "+" + node.sum;
    return node.multiply.empty() ? "-" : node.multiply;
}

}  // namespace mantissa
