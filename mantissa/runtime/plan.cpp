#include "mantissa/runtime/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "mantissa/base/error.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/graph/graph.h"
#include "mantissa/passes/analysis/contraction_epilogue.h"
#include "mantissa/passes/pipeline.h"
#include "mantissa/runtime/input_staging.h"
#include "mantissa/runtime/scan_kernel.h"

namespace mantissa::inline v0 {

namespace {

/// A kernel ready to run, or none.
struct Choice {
    const Kernel* kernel = nullptr;
    PreparedKernel prepared;
    std::vector<Refusal> refused;
};

Choice choose(const Device& device, const Problem& problem) {
    Choice choice;
    for (const Kernel& kernel : device.kernels(problem.op.name)) {
        Expected<PreparedKernel> answer = kernel.prepare(problem);
        if (answer) {
            choice.kernel = &kernel;
            choice.prepared = std::move(*answer);
            return choice;
        }
        choice.refused.push_back({kernel.name, answer.reason()});
    }
    return choice;
}

/// The kernel of a loop is the plan of its body.
const Kernel scan_kernel{.name = "its body, step by step", .prepare = {}};

/// Sources have values without running; views have their operand's.
bool runs(const Graph& graph, const Node& node) { return !is_source(node) && !is_view(graph, node); }

/// Whether a node is the operation, or a contraction of that name with an epilogue.
bool runs_op(const Node& node, std::string_view op) {
    if (node.op->name != "fused") return node.op->name == op;
    const Graph& body = node.attributes.body("body").graph();
    const NodeId contraction = contraction_of(body);
    return contraction >= 0 && body.node(contraction).op->name == op;
}

std::string reasons_of(const Choice& choice) {
    std::string reasons;
    for (const Refusal& refusal : choice.refused)
        reasons +=
            fmt::format("{}'{}' says: {}", reasons.empty() ? "" : "; ", refusal.kernel, refusal.reason);
    return reasons;
}

[[noreturn]] void fail_without_kernel(const Graph& graph, const Device& device, NodeId id,
                                      const Choice& choice) {
    const std::string reasons = reasons_of(choice);
    throw UserError(fmt::format("{} has no kernel for {}{}{}", device.target().device, print(graph, id),
                                reasons.empty() ? "" : "; ", reasons));
}

std::string why_none(const Choice& choice, const Node& node) {
    const std::string reasons = reasons_of(choice);
    return reasons.empty() ? fmt::format("none runs '{}'", node.op->name) : reasons;
}

/// Operands of a node that are some of these inputs, as they are or views of them.
std::vector<int> lasting_operands(const Graph& graph, const Node& node, std::span<const NodeId> lasting) {
    std::vector<int> operands;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        NodeId source = node.inputs[i].node;
        while (is_view(graph, graph.node(source))) source = graph.node(source).inputs[0].node;
        if (std::ranges::find(lasting, source) != lasting.end()) operands.push_back(static_cast<int>(i));
    }
    return operands;
}

/// Whether it is a view that begins between multiples of 16 bytes. Other values begin at a multiple.
bool lies_askew(const Graph& graph, Value value) {
    std::int64_t offset = 0;
    for (; is_view(graph, graph.node(value.node)); value = graph.node(value.node).inputs[0])
        offset += *graph.node(value.node).op->view(graph, graph.node(value.node), value.output);
    return offset % 16 != 0;
}

}  // namespace

Machine machine_for_passes(const Device& device) {
    return {.target = device.target(), .kernel_of = [&device](const Graph& graph, const Node& node) {
                const std::vector<Type> inputs = graph.input_types(node);
                Choice choice = choose(device, {*node.op, inputs, node.outputs, node.attributes});
                if (!choice.kernel) return KernelAnswer{.why_none = why_none(choice, node)};
                if (choice.prepared.time) choice.prepared.time->kernel = choice.kernel->name;
                return KernelAnswer{.time = std::move(choice.prepared.time)};
            }};
}

Plan::Plan(Graph graph, Device& device, MakeKernels make, std::span<const NodeId> lasting, bool askew)
    : graph_(std::move(graph)), device_(device) {
    std::vector<std::int64_t> workspace(graph_.size());
    std::vector<std::vector<std::vector<int>>> may_write_over(graph_.size());
    std::vector<std::function<std::string()>> algorithms;  // by planned node
    for (NodeId id = 0; id < graph_.end(); ++id) {
        const Node& node = graph_.node(id);
        if (!runs(graph_, node)) continue;
        const std::vector<Type> inputs = graph_.input_types(node);
        const std::vector<int> lasting_inputs = lasting_operands(graph_, node, lasting);
        const bool some_askew =
            askew || std::ranges::any_of(node.inputs, [&](Value input) { return lies_askew(graph_, input); });
        const Problem problem{.op = *node.op,
                              .inputs = inputs,
                              .outputs = node.outputs,
                              .attributes = node.attributes,
                              .lasting = lasting_inputs,
                              .askew = some_askew,
                              .backward = node.origin.stage == Stage::backward};
        Choice choice = node.op->name == "scan" ? Choice{&scan_kernel, prepare_scan(node, device, make), {}}
                                                : choose(device, problem);
        if (!choice.kernel) fail_without_kernel(graph_, device, id, choice);
        workspace[id] = choice.prepared.workspace;
        may_write_over[id] = std::move(choice.prepared.may_write_over);
        algorithms.push_back(std::move(choice.prepared.algorithm));
        nodes_.push_back(
            {.node = id,
             .kernel = choice.kernel->name,
             .arithmetic = choice.kernel->arithmetic,
             .refused = std::move(choice.refused),
             .launch = std::move(choice.prepared.launch),
             .workspace = workspace[id],
             .keep = std::move(choice.prepared.keep),
             .kept = choice.prepared.kept,
             .launches = choice.prepared.launches,
             .cost = choice.prepared.cost.value_or(node.op->cost(inputs, node.outputs, node.attributes))});
    }
    if (make == MakeKernels::yes) device_.compile_kernels();
    for (std::size_t i = 0; i < nodes_.size(); ++i)
        if (algorithms[i]) nodes_[i].algorithm = algorithms[i]();
    memory_ = plan_memory(graph_, {.workspace = [&](NodeId id) { return workspace[id]; },
                                   .may_write_over = [&](NodeId id) { return may_write_over[id]; },
                                   .alignment = device_.target().alignment});
}

std::vector<const PlannedNode*> Plan::nodes_of(std::string_view op) const {
    find_op(op);  // there would be no node of a name that no operation has, in silence
    std::vector<const PlannedNode*> first;
    for (const PlannedNode& planned : nodes_)
        if (runs_op(graph_.node(planned.node), op) &&
            std::ranges::find(first, planned.kernel, &PlannedNode::kernel) == first.end())
            first.push_back(&planned);
    return first;
}

std::vector<std::string> Plan::kernels_of(std::string_view op) const {
    std::vector<std::string> names;
    for (const PlannedNode* planned : nodes_of(op)) names.push_back(planned->kernel);
    return names;
}

std::int64_t Plan::aligned(std::int64_t bytes) const { return align_up(bytes, device_.target().alignment); }

std::int64_t Plan::input_bytes() const {
    std::int64_t bytes = 0;
    for (NodeId id : graph_.inputs()) bytes += aligned(graph_.node(id).outputs[0].bytes());
    return device_.target().overlaps_copies ? (1 + InputStaging::slots) * bytes : bytes;
}

std::int64_t Plan::constant_bytes() const {
    std::int64_t bytes = 0;
    for (NodeId id : memory_.constants) bytes += aligned(graph_.node(id).outputs[0].bytes());
    return bytes;
}

std::string Plan::text() const {
    std::string text;
    for (const PlannedNode& planned : nodes_) {
        const Place& place = memory_.place({planned.node, 0});
        text +=
            fmt::format("{}\n    kernel '{}', {} flops, {} bytes{}\n", print(graph_, planned.node),
                        planned.kernel, planned.cost.flops, planned.cost.bytes,
                        place.kind == Place::Kind::arena ? fmt::format(", arena + {}", place.offset) : "");
        if (!planned.algorithm.empty()) text += fmt::format("    {}\n", planned.algorithm);
        for (const Refusal& refusal : planned.refused)
            text += fmt::format("    refused '{}': {}\n", refusal.kernel, refusal.reason);
    }
    return text;
}

}  // namespace mantissa
