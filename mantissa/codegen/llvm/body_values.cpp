#include "mantissa/codegen/llvm/pair_values.h"

#include <llvm/IR/IRBuilder.h>

#include <algorithm>

#include "mantissa/codegen/llvm/random_code.h"

namespace mantissa::inline v0::codegen {

using llvm::Value;

namespace {

constexpr std::size_t not_one = static_cast<std::size_t>(-1);

}  // namespace

PairValues::PairValues(llvm::IRBuilderBase& builder, const Lanes& lanes, const AttentionKernel& kernel,
                       const ScoreCode& code, std::vector<Value*> operands, PairSite site)
    : b_(builder),
      control_(builder),
      lanes_(lanes),
      kernel_(kernel),
      code_(code),
      graph_(code.graph),
      operands_(std::move(operands)),
      site_(std::move(site)),
      changes_(graph_.size()),
      uses_(graph_.size()) {
    find_changes();
}

std::size_t PairValues::input_of(std::size_t id) const {
    const auto at = std::ranges::find(graph_.inputs(), static_cast<NodeId>(id));
    return at == graph_.inputs().end() ? not_one : static_cast<std::size_t>(at - graph_.inputs().begin());
}

PairValues::Changes PairValues::own_changes(std::size_t id) const {
    const Node& node = graph_.node(static_cast<NodeId>(id));
    if (const std::size_t input = input_of(id); input != not_one) {
        if (input == 0 || input > operands_.size()) return {true, true};  // the score, or its cotangent
        const PairPlaces& places = kernel_.score->operands[input - 1].places;
        return {places.query != 0, places.key != 0};
    }
    if (node.op->name == "random_uniform") return {true, true};
    if (node.op->name != "iota") return {};
    const std::int64_t axis = node.attributes.integer("axis");
    return {axis == 2, axis == 3};
}

void PairValues::find_changes() {
    for (NodeId id = 0; id < graph_.end(); ++id) {
        Changes& now = changes_[id];
        now = own_changes(id);
        for (const mantissa::Value& input : graph_.node(id).inputs) {
            const auto at = static_cast<std::size_t>(input.node);
            now.queries = now.queries || changes_[at].queries;
            now.keys = now.keys || changes_[at].keys;
            ++uses_[at];
        }
    }
    for (const Result& result : graph_.results()) ++uses_[result.value.node];
}

Value* PairValues::result(std::size_t output, const Pair& pair) {
    return of(graph_.results()[output].value, pair);
}

Value* PairValues::of(mantissa::Value value, const Pair& pair) {
    const auto id = static_cast<std::size_t>(value.node);
    const std::tuple key{id, changes_[id].queries ? pair.query : not_one,
                         changes_[id].keys ? pair.key : not_one};
    if (const auto found = known_.find(key); found != known_.end()) return found->second;
    return known_[key] = made(id, pair);
}

Value* PairValues::made(std::size_t id, const Pair& pair) {
    const Node& now = graph_.node(static_cast<NodeId>(id));
    const std::string_view op = now.op->name;
    const DType dtype = now.outputs[0].dtype;
    if (const std::size_t input = input_of(id); input != not_one) return of_input(input, pair);
    if (op == "constant") return lanes_.constant(now.attributes.number("value"), dtype);
    if (op == "iota")
        return lanes_.counted_from(position(static_cast<std::size_t>(now.attributes.integer("axis")), pair),
                                   dtype);
    if (op == "random_uniform") {
        const std::vector<std::int64_t> strides = now.outputs[0].shape.strides();
        Value* number = control_.integer(0);
        for (std::size_t axis = 0; axis < 4; ++axis)
            number =
                b_.CreateAdd(number, b_.CreateMul(position(axis, pair), control_.integer(strides[axis])));
        return uniform_numbers(b_, lanes_,
                               {.seed = of(now.inputs[0], pair),
                                .step = of(now.inputs[1], pair),
                                .number = number,
                                .operation = now.attributes.integer("operation")});
    }
    if (op == "broadcast" || op == "stop_gradient") return of(now.inputs[0], pair);
    if (op == "add" && dtype == DType::f32)
        if (Value* sum = contracted(now, pair)) return sum;
    std::vector<Value*> arguments;
    for (const mantissa::Value& input : now.inputs) arguments.push_back(of(input, pair));
    if (op == "tanh" && code_.rounded)
        return b_.CreateFSub(lanes_.apply("one_plus_tanh", arguments, dtype, dtype),
                             lanes_.constant(1, DType::f32));
    return lanes_.apply(op, arguments, graph_.type(now.inputs.back()).dtype, dtype);
}

/// A sum with a product that nothing else reads is rounded once.
Value* PairValues::contracted(const Node& sum, const Pair& pair) {
    if (sum.inputs[0] == sum.inputs[1]) return nullptr;
    for (const std::size_t i : {0u, 1u}) {
        const auto id = static_cast<std::size_t>(sum.inputs[i].node);
        const Node& product = graph_.node(sum.inputs[i].node);
        if (product.op->name != "mul" || uses_[id] != 1) continue;
        return lanes_.apply(
            "fma", {of(product.inputs[0], pair), of(product.inputs[1], pair), of(sum.inputs[1 - i], pair)},
            DType::f32, DType::f32);
    }
    return nullptr;
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

Value* PairValues::of_input(std::size_t input, const Pair& pair) {
    if (input == 0) return pair.score;
    if (input > operands_.size()) return pair.cotangent;
    const auto& [dtype, places] = kernel_.score->operands[input - 1];
    Value* element = b_.CreateAdd(control_.integer(places.start),
                                  b_.CreateMul(site_.sequence, control_.integer(places.sequence)));
    element = b_.CreateAdd(element, b_.CreateMul(site_.head, control_.integer(places.head)));
    if (places.query != 0) {
        Value* query = read_at(site_.queries[pair.query], site_.queries_may_end, kernel_.queries);
        element = b_.CreateAdd(element, b_.CreateMul(query, control_.integer(places.query)));
    }
    Value* at = control_.at(operands_[input - 1], element, dtype);
    if (places.key != 0) {
        Value* key = read_at(site_.keys[pair.key], site_.keys_may_end, kernel_.keys);
        at = control_.at(at, b_.CreateMul(key, control_.integer(places.key)), dtype);
    }
    return lanes_.load(at, dtype);
}

}  // namespace mantissa::codegen
