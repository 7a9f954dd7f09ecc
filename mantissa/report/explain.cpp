#include "mantissa/report/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "mantissa/passes/contraction_tail.h"

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
    std::vector<DType> seen;
    for (const Type& type : types)
        if ((!any_floating || is_floating(type.dtype)) &&
            std::find(seen.begin(), seen.end(), type.dtype) == seen.end())
            seen.push_back(type.dtype);
    std::string text;
    for (DType dtype : seen) text += (text.empty() ? "" : ",") + std::string(name_of(dtype));
    return text;
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
    const std::optional<DType> format = arithmetic_format(inputs);
    return format ? std::string(name_of(*format)) : "";
}

std::string sum_of(const Node& node, const PlannedNode& planned, std::span<const Type> inputs) {
    const bool adds =
        node.op->fuser == FuserClass::contraction || node.op->fuser == FuserClass::row_reduction;
    if (!adds) return "";
    const bool wide = arithmetic_format(inputs) == DType::f64;
    if (planned.sums == DType::i32) return "s32";
    return std::string(name_of(wide ? DType::f64 : planned.sums));
}

/// A cast that no rule of the policy made was written by the model, or by the definition of the update.
std::string rule_of(const Node& node) {
    if (!node.origin.rule.empty()) return node.origin.rule;
    return node.op->name == "cast" ? "asked for" : "input types";
}

}  // namespace

Explanation explain(const Plan& plan, const Policy& policy) {
    Explanation explanation;
    explanation.policy = policy.name;
    explanation.memory = memory_at_peak(plan);
    for (const PlannedNode& planned : plan.nodes()) {
        const Node& node = plan.graph().node(planned.node);
        const Graph* body = node.op->name == "fused" ? &node.attributes.body("body").graph() : nullptr;
        const NodeId contraction = body ? contraction_of(*body) : -1;
        // A contraction with a tail is explained as the contraction that it is.
        const Node& core = contraction >= 0 ? body->node(contraction) : node;
        const std::vector<Type> inputs =
            tensors_of(contraction >= 0 ? body->input_types(core) : plan.graph().input_types(node));
        const std::string pass(name_of(node.origin.stage));
        if (node.op->name == "cast") {
            explanation.casts.push_back({.name = node.origin.scope,
                                         .pass = pass,
                                         .from = std::string(name_of(inputs[0].dtype)),
                                         .to = std::string(name_of(node.outputs[0].dtype)),
                                         .rule = rule_of(node),
                                         .bytes = planned.cost.bytes});
            continue;
        }
        // An update that keeps a copy rounds the parameter, too.
        if (node.op->takes_copy(node.inputs.size(), node.attributes))
            explanation.casts.push_back({.name = node.origin.scope,
                                         .pass = pass,
                                         .from = std::string(name_of(node.outputs[0].dtype)),
                                         .to = std::string(name_of(node.outputs.back().dtype)),
                                         .rule = rule_of(node),
                                         .bytes = node.outputs.back().bytes()});
        explanation.nodes.push_back({.op = std::string(core.op->name),
                                     .name = node.origin.scope,
                                     .pass = pass,
                                     .storage = formats_of(inputs),
                                     .multiply = multiply_of(core, inputs),
                                     .sum = sum_of(core, planned, inputs),
                                     .output = formats_of(node.outputs),
                                     .rule = rule_of(node),
                                     .kernel = planned.kernel,
                                     .bytes = planned.cost.bytes,
                                     .flops = planned.cost.flops});
    }
    return explanation;
}

std::string Explanation::title() const {
    return fmt::format("{} at {}, policy {}: {}", model.name, model.examples, policy, of);
}

std::string arithmetic_of(const ExplainedNode& node) {
    if (node.op == "matmul" || node.op == "quantized_matmul")
        return node.multiply + "*" + node.multiply + "+" + node.sum;
    return node.multiply.empty() ? "-" : node.multiply;
}

}  // namespace mantissa
