#include "mantissa/codegen/llvm/body_values.h"

#include <llvm/IR/IRBuilder.h>

#include <algorithm>

#include "mantissa/codegen/llvm/random_code.h"

namespace mantissa::inline v0::codegen {

using llvm::Value;

BodyValues::BodyValues(llvm::IRBuilderBase& builder, const Lanes& lanes, const ScoreCode& code,
                       std::vector<Changes> operands, std::optional<std::size_t> lane_axis)
    : b_(builder),
      control_(builder),
      lanes_(lanes),
      one_(lanes.of_one()),
      code_(code),
      graph_(code.graph),
      operands_(operands.size()),
      lane_axis_(lane_axis),
      changes_(graph_.size()) {
    for (NodeId id = 0; id < graph_.end(); ++id) {
        Changes& now = changes_[id];
        now = own_changes(id, operands);
        for (const mantissa::Value& input : graph_.node(id).inputs) {
            now.queries = now.queries || changes_[input.node].queries;
            now.keys = now.keys || changes_[input.node].keys;
        }
    }
}

std::optional<std::size_t> BodyValues::input_of(NodeId id) const {
    const auto at = std::ranges::find(graph_.inputs(), id);
    if (at == graph_.inputs().end()) return std::nullopt;
    return static_cast<std::size_t>(at - graph_.inputs().begin());
}

BodyValues::Changes BodyValues::own_changes(NodeId id, const std::vector<Changes>& operands) const {
    const Node& node = graph_.node(id);
    if (const auto input = input_of(id)) {
        const bool is_operand = *input > 0 && *input <= operands.size();
        return is_operand ? operands[*input - 1] : Changes{true, true};  // the score, or its cotangent
    }
    if (node.op->name == "random_uniform") return {true, true};
    if (node.op->name != "iota") return {};
    const std::int64_t axis = node.attributes.integer("axis");
    return {axis == 2, axis == 3};
}

void BodyValues::forget(std::size_t axis) {
    std::erase_if(known_, [&](const auto& entry) { return changes_along(axis, std::get<0>(entry.first)); });
}

Value* BodyValues::result(std::size_t output, const Pair& pair) {
    return lanes_.widened(of(graph_.results()[output].value, pair));
}

Value* BodyValues::of(mantissa::Value value, const Pair& pair) {
    constexpr std::size_t all = static_cast<std::size_t>(-1);
    const NodeId id = value.node;
    const std::tuple key{id, changes_[id].queries ? pair.query : all, changes_[id].keys ? pair.key : all};
    if (const auto found = known_.find(key); found != known_.end()) return found->second;
    return known_[key] = made(id, pair);
}

Value* BodyValues::made(NodeId id, const Pair& pair) {
    const Node& now = graph_.node(id);
    const std::string_view op = now.op->name;
    const DType dtype = now.outputs[0].dtype;
    const Lanes& lanes = in_lanes(id) ? lanes_ : one_;
    if (const auto input = input_of(id)) {
        if (*input == 0) return pair.score;
        return *input > operands_ ? pair.cotangent : operand(*input - 1, pair);
    }
    if (op == "constant") return lanes.constant(now.attributes.number("value"), dtype);
    if (op == "iota")
        return lanes.counted_from(position(static_cast<std::size_t>(now.attributes.integer("axis")), pair),
                                  dtype);
    const auto argument = [&](mantissa::Value value) { return lanes.widened(of(value, pair)); };
    if (op == "random_uniform")
        return uniform_numbers(b_, lanes,
                               {.seed = argument(now.inputs[0]),
                                .step = argument(now.inputs[1]),
                                .number = element(now, lanes, pair),
                                .operation = now.attributes.integer("operation")});
    if (op == "broadcast" || op == "stop_gradient") return argument(now.inputs[0]);
    std::vector<Value*> arguments;
    for (const mantissa::Value& input : now.inputs) arguments.push_back(argument(input));
    if (op == "tanh" && code_.rounded)
        return b_.CreateFSub(lanes.apply("one_plus_tanh", arguments, dtype, dtype),
                             lanes.constant(1, DType::f32));
    return lanes.apply(op, arguments, graph_.type(now.inputs.back()).dtype, dtype);
}

/// Where each lane's pair stands in [B, H, T, S].
Value* BodyValues::element(const Node& node, const Lanes& lanes, const Pair& pair) {
    const std::vector<std::int64_t> strides = node.outputs[0].shape.strides();
    Value* number = control_.integer(0);
    for (std::size_t axis = 0; axis < 4; ++axis)
        number = b_.CreateAdd(number, b_.CreateMul(position(axis, pair), control_.integer(strides[axis])));
    if (!lane_axis_) return number;
    Value* lane = b_.CreateZExt(lanes.lane_numbers(), lanes.type(DType::i64));
    return b_.CreateAdd(
        lanes.widened(number),
        b_.CreateMul(lane, lanes.constant(static_cast<double>(strides[*lane_axis_]), DType::i64)));
}

PairValues::PairValues(llvm::IRBuilderBase& builder, const Lanes& lanes, const AttentionKernel& kernel,
                       const ScoreCode& code, std::vector<Value*> operands, PairSite site)
    : BodyValues(builder, lanes, code, changes_of(kernel)),
      kernel_(kernel),
      operands_(std::move(operands)),
      site_(std::move(site)) {}

std::vector<BodyValues::Changes> PairValues::changes_of(const AttentionKernel& kernel) {
    std::vector<Changes> changes;
    for (const auto& operand : kernel.score->operands)
        changes.push_back({operand.places.query != 0, operand.places.key != 0});
    return changes;
}

/// i64
Value* PairValues::position(std::size_t axis, const Pair& pair) {
    if (axis == 0) return site_.sequence;
    if (axis == 1) return site_.head;
    return b_.CreateZExt(axis == 2 ? site_.queries[pair.query] : site_.keys[pair.key], b_.getInt64Ty());
}

Value* PairValues::read_at(Value* position, bool may_end, std::int64_t count) {
    if (may_end) {
        Value* last = b_.getInt32(static_cast<std::uint32_t>(count - 1));
        position = b_.CreateSelect(b_.CreateICmpSLT(position, last), position, last);
    }
    return b_.CreateZExt(position, b_.getInt64Ty());
}

Value* PairValues::operand(std::size_t operand, const Pair& pair) {
    const auto& [dtype, places] = kernel_.score->operands[operand];
    Value* element = b_.CreateAdd(control_.integer(places.start),
                                  b_.CreateMul(site_.sequence, control_.integer(places.sequence)));
    element = b_.CreateAdd(element, b_.CreateMul(site_.head, control_.integer(places.head)));
    if (places.query != 0) {
        Value* query = read_at(site_.queries[pair.query], site_.queries_may_end, kernel_.queries);
        element = b_.CreateAdd(element, b_.CreateMul(query, control_.integer(places.query)));
    }
    Value* at = control_.at(operands_[operand], element, dtype);
    if (places.key != 0) {
        Value* key = read_at(site_.keys[pair.key], site_.keys_may_end, kernel_.keys);
        at = control_.at(at, b_.CreateMul(key, control_.integer(places.key)), dtype);
    }
    return lanes_.load(at, dtype);
}

}  // namespace mantissa::codegen
