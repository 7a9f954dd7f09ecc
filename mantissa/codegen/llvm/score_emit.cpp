// Compiles the code of a score function to LLVM IR: one function of a block of pairs, for the host.
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <algorithm>

#include "mantissa/base/error.h"
#include "mantissa/codegen/llvm/control.h"
#include "mantissa/codegen/llvm/emit.h"
#include "mantissa/codegen/llvm/lanes.h"
#include "mantissa/codegen/llvm/random_code.h"
#include "mantissa/codegen/llvm/target_code.h"
#include "mantissa/codegen/score_block.h"
#include "mantissa/graph/graph.h"

namespace mantissa::inline v0::codegen {

namespace {

using llvm::Value;

/// How often a value is computed: once a block, for each row, for each vector of lanes, or for both.
struct Changes {
    bool rows = false, lanes = false;
};

/// Rows one after another; of each, all vectors of lanes, written out. What does not change from row to row
/// is made before them and stays in registers.
class ScoreEmitter {
  public:
    ScoreEmitter(llvm::IRBuilderBase& builder, llvm::Module& module, const std::string& name,
                 const ScoreCode& code, const HostFeatures& features)
        : b_(builder),
          control_(builder),
          code_(code),
          graph_(code.graph),
          lanes_(builder, Lanes::Form::sixteen, host_conversions(features)),
          one_(lanes_.of_one()),
          vectors_(static_cast<std::size_t>(code.lanes / lanes_.count())),
          changes_(graph_.size()),
          uses_(graph_.size()),
          single_(graph_.size()),
          in_lanes_(graph_.size(), Values(vectors_)) {
        block_ = begin_host_function(b_, module, name);
    }

    void run() {
        find_changes();
        read_arguments();
        control_.if_then(
            b_.CreateICmpSGE(present_, control_.integer(code_.lanes)), [&] { emit_rows(false); },
            [&] { emit_rows(true); });
        b_.CreateRetVoid();
    }

  private:
    static constexpr std::size_t none = static_cast<std::size_t>(-1);

    const Node& node(std::size_t id) const { return graph_.node(static_cast<NodeId>(id)); }
    static std::size_t index_of(mantissa::Value value) { return static_cast<std::size_t>(value.node); }

    /// The operand that a node is; inputs beside operands are the scores and the cotangents.
    std::size_t input_of(std::size_t id) const {
        const auto& inputs = graph_.inputs();
        const auto at = std::find(inputs.begin(), inputs.end(), static_cast<NodeId>(id));
        return at == inputs.end() ? none : static_cast<std::size_t>(at - inputs.begin());
    }

    void find_changes() {
        for (std::size_t id = 0; id < graph_.size(); ++id) {
            Changes& now = changes_[id];
            const std::string_view op = node(id).op->name;
            if (const std::size_t input = input_of(id); input != none) {
                const bool is_operand = input >= 1 && input <= code_.operands.size();
                now = is_operand
                          ? Changes{code_.operands[input - 1].rows, code_.operands[input - 1].lanes != 0}
                          : Changes{true, true};
            } else if (op == "iota") {
                const std::int64_t axis = node(id).attributes.integer("axis");
                const int lane_axis = code_.lanes_are_queries ? 2 : 3;
                now = {axis >= 2 && axis != lane_axis, axis == lane_axis};
            } else if (op == "random_uniform") {
                now = {true, true};
            }
            for (const mantissa::Value& input : node(id).inputs) {
                now.rows = now.rows || changes_[index_of(input)].rows;
                now.lanes = now.lanes || changes_[index_of(input)].lanes;
                ++uses_[index_of(input)];
            }
        }
        for (const Result& result : graph_.results()) ++uses_[index_of(result.value)];
    }

    Value* field(std::size_t offset, llvm::Type* type) {
        return b_.CreateLoad(type, b_.CreateConstGEP1_64(b_.getInt8Ty(), block_, offset));
    }
    Value* entry(Value* array, llvm::Type* type, std::size_t index) {
        return b_.CreateLoad(type, b_.CreateConstGEP1_64(type, array, index));
    }

    void read_arguments() {
        llvm::Type *pointer = b_.getPtrTy(), *number = b_.getInt64Ty();
        from_ = field(offsetof(ScoreBlock, from), pointer);
        scores_ = field(offsetof(ScoreBlock, scores), pointer);
        slopes_ = field(offsetof(ScoreBlock, slopes), pointer);
        multipliers_ = field(offsetof(ScoreBlock, multipliers), pointer);
        cotangents_ = field(offsetof(ScoreBlock, cotangents), pointer);
        rows_ = field(offsetof(ScoreBlock, rows), number);
        present_ = field(offsetof(ScoreBlock, lanes), number);
        scale_ = field(offsetof(ScoreBlock, scale), b_.getFloatTy());
        first_ = {field(offsetof(ScoreBlock, sequence), number), field(offsetof(ScoreBlock, head), number),
                  field(offsetof(ScoreBlock, query), number), field(offsetof(ScoreBlock, key), number)};
        Value* operands = field(offsetof(ScoreBlock, operands), pointer);
        Value* operand_rows = field(offsetof(ScoreBlock, operand_rows), pointer);
        for (std::size_t i = 0; i < code_.operands.size(); ++i) {
            operands_.push_back(entry(operands, pointer, i));
            operand_rows_.push_back(entry(operand_rows, number, i));
        }
        if (!code_.sums) return;
        Value* gradients = field(offsetof(ScoreBlock, gradients), pointer);
        Value* gradient_rows = field(offsetof(ScoreBlock, gradient_rows), pointer);
        for (std::size_t i = 0; i < code_.outputs.size(); ++i) {
            gradients_.push_back(entry(gradients, pointer, i));
            gradient_rows_.push_back(entry(gradient_rows, number, i));
        }
    }

    void emit_rows(bool partial) {
        masks_.assign(vectors_, nullptr);
        for (std::size_t v = 0; partial && v < vectors_; ++v) masks_[v] = mask_of_vector(v);
        row_ = nullptr;
        for (std::size_t id = 0; id < graph_.size(); ++id)
            if (!changes_[id].rows) compute_everywhere(id);
        Values sums(carried_sums() * vectors_, lanes_.constant(0, DType::f32));
        sums = control_.loop("row", control_.integer(0), rows_, control_.integer(1), sums,
                             [&](Value* row, Values carried) {
                                 emit_row(row, carried);
                                 return carried;
                             });
        add_carried(sums);
    }

    /// A value that does not change along the lanes is a single number.
    void compute_everywhere(std::size_t id) {
        if (!changes_[id].lanes)
            single_[id] = compute_single(id);
        else
            for (std::size_t v = 0; v < vectors_; ++v) in_lanes_[id][v] = compute_lanes(id, v);
    }

    void emit_row(Value* row, Values& carried) {
        row_ = row;
        for (std::size_t id = 0; id < graph_.size(); ++id)
            if (changes_[id].rows && !changes_[id].lanes) single_[id] = compute_single(id);
        for (std::size_t v = 0; v < vectors_; ++v) {
            for (std::size_t id = 0; id < graph_.size(); ++id)
                if (changes_[id].rows && changes_[id].lanes) in_lanes_[id][v] = compute_lanes(id, v);
            if (!code_.sums) store_vector(v);
        }
        if (code_.sums) add_row(carried);
    }

    std::int64_t first_lane(std::size_t v) const { return static_cast<std::int64_t>(v) * lanes_.count(); }

    Value* mask_of_vector(std::size_t v) {
        Value* left = b_.CreateSub(present_, control_.integer(first_lane(v)));
        Value* some = b_.CreateSelect(b_.CreateICmpSLT(left, control_.integer(0)), control_.integer(0), left);
        return b_.CreateICmpULT(lanes_.lane_numbers(), lanes_.widened(b_.CreateTrunc(some, b_.getInt32Ty())));
    }

    /// An element of a block [rows, lanes of a whole block].
    Value* in_block(Value* block, std::size_t v) {
        Value* at =
            b_.CreateAdd(b_.CreateMul(row_, control_.integer(code_.lanes)), control_.integer(first_lane(v)));
        return control_.at(block, at, DType::f32);
    }
    Value* load_block(Value* block, std::size_t v) { return lanes_.load(in_block(block, v), DType::f32); }

    Value* operand_row(std::size_t operand) {
        const ScoreCode::Operand& now = code_.operands[operand];
        if (!now.rows) return operands_[operand];
        return control_.at(operands_[operand], b_.CreateMul(row_, operand_rows_[operand]), now.dtype);
    }

    Value* as_value(Value* loaded, const ScoreCode::Operand& operand, const Lanes& lanes) {
        if (operand.value != DType::boolean || operand.dtype == DType::boolean) return loaded;
        return b_.CreateICmpNE(loaded, lanes.constant(0, DType::i32));
    }

    Value* load_operand(std::size_t operand, std::size_t v) {
        const ScoreCode::Operand& now = code_.operands[operand];
        Value *base = operand_row(operand), *mask = masks_[v];
        if (now.lanes > 0)
            return as_value(
                lanes_.load(control_.at(base, control_.integer(first_lane(v)), now.dtype), now.dtype, mask),
                now, lanes_);
        // Lanes go down in memory: sixteen are read as they lie there, and turned round.
        const std::int64_t lowest = -first_lane(v) - (lanes_.count() - 1);
        if (mask) mask = turned(mask);
        Value* read = lanes_.load(control_.at(base, control_.integer(lowest), now.dtype), now.dtype, mask);
        return as_value(turned(read), now, lanes_);
    }
    Value* turned(Value* vector) {
        std::vector<int> order;
        for (int i = lanes_.count() - 1; i >= 0; --i) order.push_back(i);
        return b_.CreateShuffleVector(vector, order);
    }

    Value* position(std::size_t axis) {
        const std::size_t row_axis = code_.lanes_are_queries ? 3 : 2;
        return axis == row_axis && row_ ? b_.CreateAdd(first_[axis], row_) : first_[axis];
    }

    Value* compute_single(std::size_t id) {
        const Node& now = node(id);
        const std::string_view op = now.op->name;
        const DType dtype = now.outputs[0].dtype;
        if (const std::size_t input = input_of(id); input != none) {
            const ScoreCode::Operand& operand = code_.operands[input - 1];
            return as_value(one_.load(operand_row(input - 1), operand.dtype), operand, one_);
        }
        if (op == "constant") return one_.constant(now.attributes.number("value"), dtype);
        if (op == "iota")
            return one_.counted_from(position(static_cast<std::size_t>(now.attributes.integer("axis"))),
                                     dtype);
        if (op == "broadcast" || op == "stop_gradient") return single_[index_of(now.inputs[0])];
        Values arguments;
        for (const mantissa::Value& input : now.inputs) arguments.push_back(single_[index_of(input)]);
        return one_.apply(op, arguments, graph_.type(now.inputs.back()).dtype, dtype);
    }

    Value* lane_value(mantissa::Value value, std::size_t v) {
        const std::size_t id = index_of(value);
        return changes_[id].lanes ? in_lanes_[id][v] : lanes_.widened(single_[id]);
    }

    Value* compute_lanes(std::size_t id, std::size_t v) {
        const Node& now = node(id);
        const std::string_view op = now.op->name;
        const DType dtype = now.outputs[0].dtype;
        if (const std::size_t input = input_of(id); input != none) return compute_input(input, v);
        if (op == "iota")
            return lanes_.counted_from(
                b_.CreateAdd(position(static_cast<std::size_t>(now.attributes.integer("axis"))),
                             control_.integer(first_lane(v))),
                dtype);
        if (op == "random_uniform") return uniform(now, v);
        if (op == "broadcast" || op == "stop_gradient") return lane_value(now.inputs[0], v);
        if (op == "add" && dtype == DType::f32)
            if (Value* sum = contracted(now, v)) return sum;
        Values arguments;
        for (const mantissa::Value& input : now.inputs) arguments.push_back(lane_value(input, v));
        if (op == "tanh" && code_.rounded)
            return b_.CreateFSub(lanes_.apply("one_plus_tanh", arguments, dtype, dtype),
                                 lanes_.constant(1, DType::f32));
        return lanes_.apply(op, arguments, graph_.type(now.inputs.back()).dtype, dtype);
    }

    /// A sum with a product that nothing else reads is rounded once.
    Value* contracted(const Node& sum, std::size_t v) {
        if (sum.inputs[0] == sum.inputs[1]) return nullptr;
        for (const std::size_t i : {0u, 1u}) {
            const std::size_t id = index_of(sum.inputs[i]);
            const Node& product = node(id);
            if (product.op->name != "mul" || uses_[id] != 1 || !changes_[id].lanes) continue;
            return lanes_.apply("fma",
                                {lane_value(product.inputs[0], v), lane_value(product.inputs[1], v),
                                 lane_value(sum.inputs[1 - i], v)},
                                DType::f32, DType::f32);
        }
        return nullptr;
    }

    Value* compute_input(std::size_t input, std::size_t v) {
        if (input == 0) return b_.CreateFMul(load_block(from_, v), lanes_.widened(scale_));
        if (input > code_.operands.size()) return load_block(cotangents_, v);
        return load_operand(input - 1, v);
    }

    Value* uniform(const Node& now, std::size_t v) {
        return uniform_numbers(b_, lanes_,
                               {.seed = lanes_.widened(single_[index_of(now.inputs[0])]),
                                .step = lanes_.widened(single_[index_of(now.inputs[1])]),
                                .number = element(now, v, lanes_.type(DType::i64)),
                                .operation = now.attributes.integer("operation")});
    }

    /// Where each lane's pair stands in [B, H, T, S].
    Value* element(const Node& now, std::size_t v, llvm::Type* wide) {
        const Shape& shape = now.outputs[0].shape;
        const std::vector<std::int64_t> strides = shape.strides();
        Value* first = control_.integer(0);
        for (std::size_t axis = 0; axis < 4; ++axis)
            first = b_.CreateAdd(first, b_.CreateMul(position(axis), control_.integer(strides[axis])));
        const std::int64_t step = strides[code_.lanes_are_queries ? 2 : 3];
        Value* lanes = b_.CreateAdd(b_.CreateZExt(lanes_.lane_numbers(), wide),
                                    lanes_.constant(static_cast<double>(first_lane(v)), DType::i64));
        return b_.CreateAdd(lanes_.widened(first),
                            b_.CreateMul(lanes, lanes_.constant(static_cast<double>(step), DType::i64)));
    }

    void store_vector(std::size_t v) {
        for (std::size_t i = 0; i < code_.outputs.size(); ++i) {
            const ScoreCode::Makes makes = code_.outputs[i].makes;
            Value* to = makes == ScoreCode::Makes::scores   ? scores_
                        : makes == ScoreCode::Makes::slopes ? slopes_
                                                            : multipliers_;
            b_.CreateAlignedStore(lane_value(graph_.results()[i].value, v), in_block(to, v), llvm::Align(4));
        }
    }

    // Gradients that do not change from row to row are carried through them.
    bool is_carried(std::size_t output) const { return code_.sums && !code_.outputs[output].rows; }
    std::size_t carried_sums() const {
        std::size_t count = 0;
        for (std::size_t i = 0; i < code_.outputs.size(); ++i) count += is_carried(i);
        return count;
    }

    /// The sum of a vector's pairs, 0 where there are none.
    Value* contribution(std::size_t output, std::size_t v) {
        Value* value = lane_value(graph_.results()[output].value, v);
        return masks_[v] ? b_.CreateSelect(masks_[v], value, lanes_.constant(0, DType::f32)) : value;
    }

    void add_row(Values& carried) {
        std::size_t next = 0;
        for (std::size_t i = 0; i < code_.outputs.size(); ++i) {
            if (is_carried(i)) {
                for (std::size_t v = 0; v < vectors_; ++v, ++next)
                    carried[next] = b_.CreateFAdd(carried[next], contribution(i, v));
                continue;
            }
            Value* to = control_.at(gradients_[i], b_.CreateMul(row_, gradient_rows_[i]), DType::f32);
            if (code_.outputs[i].lanes) {
                for (std::size_t v = 0; v < vectors_; ++v) add_to(to, v, contribution(i, v));
            } else {
                Value* sum = contribution(i, 0);
                for (std::size_t v = 1; v < vectors_; ++v) sum = b_.CreateFAdd(sum, contribution(i, v));
                add_number(to, sum);
            }
        }
    }

    void add_carried(const Values& sums) {
        std::size_t next = 0;
        for (std::size_t i = 0; i < code_.outputs.size(); ++i) {
            if (!is_carried(i)) continue;
            Value* sum = sums[next];
            for (std::size_t v = 0; v < vectors_; ++v, ++next) {
                if (code_.outputs[i].lanes)
                    add_to(gradients_[i], v, sums[next]);
                else if (v > 0)
                    sum = b_.CreateFAdd(sum, sums[next]);
            }
            if (!code_.outputs[i].lanes) add_number(gradients_[i], sum);
        }
    }

    void add_to(Value* row, std::size_t v, Value* value) {
        Value* address = control_.at(row, control_.integer(first_lane(v)), DType::f32);
        Value* before = lanes_.load(address, DType::f32, masks_[v]);
        Value* sum = b_.CreateFAdd(before, value);
        if (masks_[v])
            b_.CreateMaskedStore(sum, address, llvm::Align(4), masks_[v]);
        else
            b_.CreateAlignedStore(sum, address, llvm::Align(4));
    }

    void add_number(Value* address, Value* vector) {
        Value* before = b_.CreateLoad(b_.getFloatTy(), address);
        b_.CreateStore(b_.CreateFAdd(before, lanes_.across(vector, false)), address);
    }

    llvm::IRBuilderBase& b_;
    Control control_;
    const ScoreCode& code_;
    const Graph& graph_;
    Lanes lanes_, one_;
    std::size_t vectors_;  // of a row
    Value *block_ = nullptr, *from_ = nullptr, *scores_ = nullptr, *slopes_ = nullptr;
    Value *multipliers_ = nullptr, *cotangents_ = nullptr, *rows_ = nullptr, *present_ = nullptr;
    Value* scale_ = nullptr;
    Values first_;  // by axis
    Values operands_, operand_rows_, gradients_, gradient_rows_;
    Values masks_;  // by vector; null: all lanes
    Value* row_ = nullptr;
    std::vector<Changes> changes_;  // by node
    std::vector<int> uses_;         // by node: how often it is read, results included
    Values single_;                 // by node
    std::vector<Values> in_lanes_;  // by node and vector
};

}  // namespace

void emit(llvm::Module& module, const std::string& name, const ScoreCode& code,
          const HostFeatures& features) {
    llvm::IRBuilder<> builder(module.getContext());
    ScoreEmitter(builder, module, name, code, features).run();
}

}  // namespace mantissa::codegen
