#include "mantissa/passes/rewriter.h"

#include "mantissa/base/error.h"

namespace mantissa::inline v0 {

Rewriter::Rewriter(const Graph& source, Types types)
    : source_(source), types_(types), placed_(source.size()) {
    for (NodeId id = 0; id < source.end(); ++id) placed_[id].resize(source.node(id).outputs.size());
}

Value Rewriter::map(Value value) const {
    check(placed(value), "a pass places a value before it is used");
    return placed_[value.node][value.output];
}

std::vector<Value> Rewriter::map(const std::vector<Value>& values) const {
    std::vector<Value> mapped;
    mapped.reserve(values.size());
    for (const Value& value : values) mapped.push_back(map(value));
    return mapped;
}

bool Rewriter::placed(Value value) const { return placed_[value.node][value.output].node >= 0; }

void Rewriter::place(Value source, Value value) {
    check(target_.type(value).shape == source_.type(source).shape,
          "a rewrite keeps the shape of what it replaces");
    check(types_ == Types::may_change || target_.type(value) == source_.type(source),
          "a rewrite keeps the type of what it replaces");
    placed_[source.node][source.output] = value;
}

void Rewriter::place(NodeId source, NodeId made) {
    for (std::int32_t i = 0; i < std::ssize(source_.node(source).outputs); ++i) place({source, i}, {made, i});
}

void Rewriter::copy(NodeId id) {
    const Node& node = source_.node(id);
    const OriginScope scope(target_, node.origin);
    NodeId copied = -1;
    if (node.op->name == "input") {
        copied = target_.add_input(node.attributes.word("name"), node.outputs[0]).node;
    } else if (node.op->name == "state") {
        copied = target_.add_state(source_.state(source_.state_of(id))).node;
    } else {
        copied = target_.add(node.op->name, map(node.inputs), node.attributes);
    }
    place(id, copied);
}

Graph Rewriter::finish() {
    for (const Result& result : source_.results()) target_.add_result(result.name, map(result.value));
    for (const Update& update : source_.updates()) target_.add_update(update.state, map(update.value));
    return std::move(target_);
}

}  // namespace mantissa
