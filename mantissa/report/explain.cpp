#include "mantissa/report/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "mantissa/graph/attention_score.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/visible_pairs.h"
#include "mantissa/numerics/coded_weights.h"
#include "mantissa/passes/analysis/contraction_epilogue.h"
#include "mantissa/report/quantities.h"
#include "mantissa/report/report.h"
#include "mantissa/train/training_plan.h"

namespace mantissa::inline v0 {

namespace {

/// Tensors without the scalars beside them, such as the step count of AdamW in FP64, which decide nothing.
std::vector<Type> tensors_of(std::span<const Type> types) {
    std::vector<Type> tensors;
    for (const Type& type : types)
        if (type.shape.rank() > 0) tensors.push_back(type);
    return tensors.empty() ? std::vector<Type>(types.begin(), types.end()) : tensors;
}

/// The formats of values: floating-point ones if there are any, each once, in order of first use.
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

/// FP64 for FP64, FP32 for every shorter floating-point format; none for integers.
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
            if (is_fp8(inputs[0].layout)) return "fp8";
            return node.attributes.has("multiply") ? node.attributes.word("multiply")
                                                   : std::string(name_of(inputs[0].dtype));
        default:
            break;
    }
    if (node.op->name == "cast") return "";
    const std::optional<DType> format = arithmetic_format(inputs);
    return format ? std::string(name_of(*format)) : "";
}

/// `sums`: the kernel's accumulation format.
std::string sum_of(const Node& node, DType sums, std::span<const Type> inputs) {
    const bool adds =
        node.op->fuser == FuserClass::contraction || node.op->fuser == FuserClass::row_reduction;
    if (!adds) return "";
    const bool wide = arithmetic_format(inputs) == DType::f64;
    if (sums == DType::i32) return "s32";
    return std::string(name_of(wide ? DType::f64 : sums));
}

/// The policy's rule; a cast without one was written by the model, or by the definition of the update.
std::string rule_of(const Node& node) {
    if (!node.origin.rule.empty()) return node.origin.rule;
    return node.op->name == "cast" ? "asked for" : "input types";
}

/// The formats of a graph's operation; plan and cost are left to the caller.
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

/// Names of operands, numbers, counters and changes of shape are no work of a kernel.
bool is_part(const Node& node) {
    if (node.op->name == "cast") return true;
    return !node.inputs.empty() && node.op->fuser != FuserClass::movement;
}

/// The operations of a fused kernel, in order, without the contraction, which has its own line.
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

/// Reads the product formats of an operation with inner products (attention, the joint loss) from its
/// kernel's name, as in "attention bf16*bf16+f32 amx". Other nodes stay unchanged.
void read_products(ExplainedNode& node) {
    const std::size_t times = node.kernel.find('*'), plus = node.kernel.find('+', times);
    if (times == std::string::npos || plus == std::string::npos) return;
    const std::size_t start = node.kernel.rfind(' ', times) + 1;
    node.contracts = true;
    node.multiply = node.kernel.substr(start, times - start);
    node.sum = node.kernel.substr(plus + 1, node.kernel.find(' ', plus) - plus - 1);
}

/// A contraction with an epilogue is explained as that contraction; other fused kernels as a whole.
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

/// The cast of an update that also writes a rounded copy of the parameter.
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

namespace {

/// Queries and keys in a block of the CPU's kernels.
constexpr std::int64_t queries_of_block = 32, keys_of_block = 128;

std::string form_of(const AttentionScore& score, const ScoreFormula& formula, bool causal, bool by_data) {
    std::string form = formula.score == "s" ? "the scaled product" : "a function of the score";
    bool masked = false;
    if (score.body)
        for (const Result& result : score.body->graph().results())
            masked = masked || result.name == "visible";
    if (masked)
        form += by_data ? ", masked by data" : ", masked by positions";
    else if (causal)
        form += ", causal";
    if (!formula.multiplier.empty()) form += ", weights multiplied";
    return form;
}

std::string why_of(const VisibleBlocks& blocks) {
    if (blocks.by_data)
        return "at most these: what is visible depends on data, and each step leaves out blocks that nothing "
               "sees";
    if (blocks.computed == blocks.all) return "some pair of every block is visible";
    return "nothing sees the others, which follows from positions alone";
}

}  // namespace

ExplainedAttention explain_attention(const Graph& graph, const Node& node) {
    const AttentionExtents e = attention_extents(attention_layout(node.attributes), graph.input_types(node));
    const AttentionScore score = attention_score(node.attributes);
    const bool causal = node.attributes.flag("causal");
    const ScoreFormula formula = score_formula(score, causal, e);
    const VisibleBlocks blocks = visible_blocks(score, causal, e, queries_of_block, keys_of_block);
    return {.name = node.origin.scope,
            .form = form_of(score, formula, causal, blocks.by_data),
            .formula = formula.text(),
            .blocks = blocks.computed,
            .all_blocks = blocks.all,
            .queries = queries_of_block,
            .keys = keys_of_block,
            .why = why_of(blocks)};
}

namespace {

NodeId peak_of(const Plan& plan) {
    std::vector<std::int64_t> change(plan.graph().size() + 2);
    for (const Allocation& allocation : plan.memory().allocations) {
        change[static_cast<std::size_t>(allocation.first)] += allocation.bytes;
        change[static_cast<std::size_t>(allocation.last) + 1] -= allocation.bytes;
    }
    std::int64_t now = 0, most = -1;
    NodeId peak = 0;
    for (std::size_t id = 0; id < plan.graph().size(); ++id) {
        now += change[id];
        if (now <= most) continue;
        most = now;
        peak = static_cast<NodeId>(id);
    }
    return peak;
}

LiveValues kind_of(const Graph& graph, const Allocation& allocation) {
    const Node& node = graph.node(allocation.value.node);
    const bool workspace = allocation.value.output < 0;
    return {.op = workspace ? "workspace" : std::string(node.op->name),
            .pass = std::string(name_of(node.origin.stage)),
            .type = workspace ? "" : graph.type(allocation.value).text(),
            .count = 1,
            .bytes = allocation.bytes};
}

}  // namespace

MemoryAtPeak memory_at_peak(const Plan& plan) {
    const NodeId peak = peak_of(plan);
    const Node& node = plan.graph().node(peak);
    MemoryAtPeak memory{.state = plan.memory().state_bytes,
                        .arena = plan.memory().arena_bytes,
                        .inputs = plan.input_bytes(),
                        .peak_op = std::string(node.op->name),
                        .peak_name = node.origin.scope,
                        .peak_pass = std::string(name_of(node.origin.stage))};
    std::map<std::tuple<std::string, std::string, std::string>, LiveValues> kinds;
    for (const Allocation& allocation : plan.memory().allocations) {
        if (allocation.first > peak || allocation.last < peak) continue;
        const LiveValues one = kind_of(plan.graph(), allocation);
        const auto [entry, is_new] = kinds.try_emplace({one.pass, one.op, one.type}, one);
        if (is_new) continue;
        ++entry->second.count;
        entry->second.bytes += one.bytes;
    }
    for (const auto& [key, kind] : kinds) memory.live.push_back(kind);
    std::stable_sort(memory.live.begin(), memory.live.end(),
                     [](const LiveValues& a, const LiveValues& b) { return a.bytes > b.bytes; });
    return memory;
}

std::string memory_table(const MemoryAtPeak& memory) {
    Grid grid{{"MB", "values", "pass", "operation", "type"}};
    std::int64_t all = 0, shown = 0;
    for (const LiveValues& kind : memory.live) all += kind.bytes;
    for (const LiveValues& kind : memory.live) {
        if (shown * 100 >= all * 99) break;
        shown += kind.bytes;
        grid.rows.push_back({with_decimals(megabytes(kind.bytes), 1), std::to_string(kind.count), kind.pass,
                             kind.op, kind.type});
    }
    return fmt::format(
        "memory: {:.1f} MB as planned: state {:.1f}, activations and gradients {:.1f}, inputs {:.1f}\n"
        "most is in use at {} {} ({}), by\n{}",
        megabytes(memory.total()), megabytes(memory.state), megabytes(memory.arena), megabytes(memory.inputs),
        memory.peak_op, memory.peak_name, memory.peak_pass, grid.text());
}

namespace {

/// Groups items with equal keys. `add` adds an item to the first of its kind.
template <class Item, class KeyOf, class Add>
std::vector<Kind<Item>> alike(const std::vector<Item>& items, const KeyOf& key_of, const Add& add) {
    std::vector<Kind<Item>> kinds;
    std::map<decltype(key_of(items.front())), std::size_t> known;
    for (const Item& item : items) {
        const auto [entry, is_new] = known.try_emplace(key_of(item), kinds.size());
        if (is_new)
            kinds.push_back({item});
        else
            add(kinds[entry->second].first, item);
        ++kinds[entry->second].count;
    }
    return kinds;
}

constexpr auto add_nothing = [](auto&, const auto&) {};

std::tuple<std::string, std::string, std::string, std::string, std::string> formats_and_rule(
    const ExplainedNode& node) {
    return {node.storage, arithmetic_of(node), node.sum, node.output, node.rule};
}

/// The differences between fused kernels, as text.
std::string parts_text(const ExplainedNode& node) {
    std::string text;
    for (const ExplainedNode& part : node.parts)
        text += fmt::format("{} {} {} {} {};", part.op, part.storage, arithmetic_of(part), part.output,
                            part.rule);
    return text;
}

}  // namespace

std::vector<Kind<ExplainedNode>> kinds_of(const std::vector<ExplainedNode>& nodes) {
    return alike(
        nodes,
        [](const ExplainedNode& node) {
            return std::tuple(node.pass, node.op, node.storage, arithmetic_of(node), node.output, node.rule,
                              parts_text(node));
        },
        [](ExplainedNode& all, const ExplainedNode& node) {
            all.flops += node.flops;
            all.bytes += node.bytes;
        });
}

std::vector<Kind<ExplainedCast>> kinds_of(const std::vector<ExplainedCast>& casts) {
    return alike(
        casts, [](const ExplainedCast& cast) { return std::tuple(cast.pass, cast.from, cast.to, cast.rule); },
        [](ExplainedCast& all, const ExplainedCast& cast) { all.bytes += cast.bytes; });
}

std::vector<Kind<ExplainedAttention>> kinds_of(const std::vector<ExplainedAttention>& attentions) {
    return alike(
        attentions,
        [](const ExplainedAttention& a) {
            return std::tuple(a.form, a.formula, a.blocks, a.all_blocks, a.why);
        },
        add_nothing);
}

std::vector<Kind<PassRefusal>> kinds_of(const std::vector<PassRefusal>& refused) {
    return alike(
        refused,
        [](const PassRefusal& refusal) { return std::tuple(refusal.pass, refusal.op, refusal.reason); },
        add_nothing);
}

std::vector<PartKind> part_kinds_of(const ExplainedNode& node) {
    std::vector<PartKind> parts;
    const auto formats_and_op = [](const ExplainedNode& part) {
        return std::tuple(formats_and_rule(part), part.op);
    };
    for (const auto& [part, count] : alike(node.parts, formats_and_op, add_nothing)) {
        auto same = std::ranges::find(parts, formats_and_rule(part),
                                      [](const PartKind& kind) { return formats_and_rule(kind.part); });
        if (same == parts.end()) same = parts.insert(same, {part, ""});
        same->ops += fmt::format("{}{}{}", same->ops.empty() ? "" : ", ", part.op,
                                 count == 1 ? "" : fmt::format(" ({})", count));
    }
    return parts;
}

std::vector<ArithmeticTotal> totals_of(const Explanation& explanation) {
    std::map<std::string, ArithmeticTotal> by_arithmetic;
    for (const ExplainedNode& node : explanation.nodes) {
        const std::string arithmetic = arithmetic_of(node);
        ArithmeticTotal& total = by_arithmetic[arithmetic];
        total.name = arithmetic == "-" ? "movement" : arithmetic;
        total.flops += node.flops;
        total.bytes += node.bytes;
    }
    std::vector<ArithmeticTotal> totals;
    for (auto& [key, total] : by_arithmetic) totals.push_back(std::move(total));
    ArithmeticTotal casts{.name = "casts"};
    for (const ExplainedCast& cast : explanation.casts) casts.bytes += cast.bytes;
    totals.push_back(std::move(casts));
    return totals;
}

}  // namespace mantissa
