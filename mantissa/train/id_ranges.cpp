#include "mantissa/train/id_ranges.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>

#include "mantissa/base/error.h"
#include "mantissa/graph/ignored_targets.h"

namespace mantissa::inline v0 {

namespace {

/// The input whose numbers a value holds, moved and nothing else; -1: none's.
NodeId input_behind(const Graph& graph, Value value) {
    for (;;) {
        const Node& node = graph.node(value.node);
        if (node.op->name == "input") return value.node;
        if (node.op->name != "reshape" && node.op->name != "transpose" && node.op->name != "slice") return -1;
        value = node.inputs[0];
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
        "{}: {} {} at position {} is out of range, expected 0 to {}; {}, or was the text tokenized with "
        "another "
        "vocabulary?",
        range.is_target ? "cross_entropy" : "embedding", range.is_target ? "target" : "id", id, position,
        range.limit - 1, range.is_target ? "are there more classes than scores" : "is the table too short"));
}

}  // namespace

std::vector<IdRange> id_ranges(const Graph& traced) {
    std::vector<IdRange> ranges;
    for (NodeId id = 0; id < traced.end(); ++id) {
        const Node& node = traced.node(id);
        std::optional<IdRange> range = range_of(traced, node);
        if (!range) continue;
        const NodeId input = input_behind(traced, node.inputs[1]);
        if (input < 0) continue;
        range->input = traced.node(input).attributes.word("name");
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
        for (std::size_t i = 0; i < ids.size(); ++i)
            if (ids[i] >= range.limit || (ids[i] < 0 && !range.may_be_negative)) refuse(range, ids[i], i);
    }
}

}  // namespace mantissa
