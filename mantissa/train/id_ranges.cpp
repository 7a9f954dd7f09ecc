#include "mantissa/train/id_ranges.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <string_view>

#include "mantissa/base/error.h"
#include "mantissa/graph/ignored_targets.h"

namespace mantissa::inline v0 {

namespace {

/// The input whose ids a value holds: moved, and one of them put aside.
struct GivenIds {
    NodeId input = -1;  ///< -1: none's
    std::optional<std::int64_t> ignored = {};
};

/// c of `equal(x, c)` and of its negation, a `select`; nothing of other conditions.
std::optional<std::int64_t> id_compared(const Graph& graph, Value condition) {
    const Node* node = &graph.node(condition.node);
    if (node->op->name == "select") node = &graph.node(node->inputs[0].node);
    if (node->op->name != "equal") return {};
    for (const Value input : node->inputs)
        if (const Node& constant = graph.node(input.node); constant.op->name == "constant")
            return std::llround(constant.attributes.number("value"));
    return {};
}

GivenIds given_ids(const Graph& graph, Value value) {
    GivenIds given;
    for (;;) {
        const Node& node = graph.node(value.node);
        const std::string_view op = node.op->name;
        if (op == "input") {
            given.input = value.node;
            return given;
        }
        if (op == "reshape" || op == "transpose" || op == "slice") {
            value = node.inputs[0];
        } else if (op == "select" && !given.ignored) {
            // As ops::cross_entropy puts `ignore_index` aside: another id stands for it.
            given.ignored = id_compared(graph, node.inputs[0]);
            if (!given.ignored) return {};
            const bool second = graph.node(node.inputs[1].node).op->name == "constant";
            value = node.inputs[second ? 2 : 1];
        } else {
            return {};
        }
    }
}

std::optional<IdRange> range_of(const Graph& graph, const Node& node) {
    if (node.op->name == "embedding") return IdRange{.limit = graph.type(node.inputs[0]).shape[0]};
    if (node.op->name == "cross_entropy")
        return IdRange{.limit = graph.type(node.inputs[0]).shape[-1],
                       .may_be_negative = ignores_negative(node.attributes),
                       .is_target = true};
    return std::nullopt;
}

[[noreturn]] void refuse(const IdRange& range, std::int32_t id, std::size_t position) {
    throw UserError(fmt::format(
        "{}: {} {} at position {} is out of range, expected 0 to {}{}; {}, or was the text tokenized with "
        "another "
        "vocabulary?",
        range.is_target ? "cross_entropy" : "embedding", range.is_target ? "target" : "id", id, position,
        range.limit - 1, range.ignored ? fmt::format(", or {}", *range.ignored) : "",
        range.is_target ? "are there more classes than scores" : "is the table too short"));
}

}  // namespace

std::vector<IdRange> id_ranges(const Graph& traced) {
    std::vector<IdRange> ranges;
    for (NodeId id = 0; id < traced.end(); ++id) {
        const Node& node = traced.node(id);
        std::optional<IdRange> range = range_of(traced, node);
        if (!range) continue;
        const GivenIds ids = given_ids(traced, node.inputs[1]);
        if (ids.input < 0) continue;
        range->input = traced.node(ids.input).attributes.word("name");
        range->ignored = ids.ignored;
        if (ids.ignored) range->may_be_negative = false;
        ranges.push_back(std::move(*range));
    }
    return ranges;
}

void check_ids(const std::vector<IdRange>& ranges, const nn::Model& model, const Batch& batch) {
    for (const IdRange& range : ranges) {
        const auto input = std::ranges::find(model.inputs, range.input, &nn::InputSpec::name);
        if (input == model.inputs.end() || input->dtype != DType::i32) continue;
        const std::span<const std::byte> bytes =
            batch.values()[static_cast<std::size_t>(input - model.inputs.begin())].bytes;
        const std::span ids(reinterpret_cast<const std::int32_t*>(bytes.data()),
                            bytes.size() / sizeof(std::int32_t));
        for (std::size_t i = 0; i < ids.size(); ++i) {
            const bool known = ids[i] < range.limit && (ids[i] >= 0 || range.may_be_negative);
            if (!known && range.ignored != ids[i]) refuse(range, ids[i], i);
        }
    }
}

}  // namespace mantissa
