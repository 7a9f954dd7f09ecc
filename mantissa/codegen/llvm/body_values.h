// The body of a score function (score_code.h) as instructions, for pairs of queries and keys one after
// another: on the host vectors of pairs, in a thread of a GPU single ones.
#pragma once

#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "mantissa/codegen/attention_kernel.h"
#include "mantissa/codegen/llvm/control.h"
#include "mantissa/codegen/llvm/lanes.h"
#include "mantissa/graph/graph.h"

namespace mantissa::inline v0::codegen {

/// A value is made where the builder stands when it is first asked for, for the code behind, and once for all
/// pairs between which it does not change. A value that changes along no lanes is a single number.
class BodyValues {
  public:
    struct Pair {
        std::size_t query = 0, key = 0;  ///< place among the rows at hand; along lanes the number of a vector
        llvm::Value* score = nullptr;
        llvm::Value* cotangent = nullptr;
    };
    llvm::Value* result(std::size_t output, const Pair& pair);

  protected:
    struct Changes {
        bool queries = false, keys = false;
    };

    /// `operands`: how they change. `lane_axis`: of [B, H, T, S], that a vector's pairs go along.
    BodyValues(llvm::IRBuilderBase& builder, const Lanes& lanes, const ScoreCode& code,
               std::vector<Changes> operands, std::optional<std::size_t> lane_axis = {});
    ~BodyValues() = default;

    virtual llvm::Value* operand(std::size_t operand, const Pair& pair) = 0;
    /// i64: of the first lane.
    virtual llvm::Value* position(std::size_t axis, const Pair& pair) = 0;

    /// Whether a value changes along queries (2) or keys (3).
    bool changes_along(std::size_t axis, NodeId id) const {
        return axis == 2 ? changes_[id].queries : changes_[id].keys;
    }
    bool in_lanes(NodeId id) const { return lane_axis_ && changes_along(*lane_axis_, id); }
    llvm::Value* of(mantissa::Value value, const Pair& pair);
    /// Forgets values that change along an axis.
    void forget(std::size_t axis);
    void forget_all() { known_.clear(); }

    llvm::IRBuilderBase& b_;
    Control control_;
    const Lanes& lanes_;
    const Lanes one_;
    const ScoreCode& code_;
    const Graph& graph_;

  private:
    Changes own_changes(NodeId id, const std::vector<Changes>& operands) const;
    std::optional<std::size_t> input_of(NodeId id) const;
    llvm::Value* made(NodeId id, const Pair& pair);
    llvm::Value* element(const Node& node, const Lanes& lanes, const Pair& pair);

    std::size_t operands_;
    std::optional<std::size_t> lane_axis_;
    std::vector<Changes> changes_;  // by node
    std::map<std::tuple<NodeId, std::size_t, std::size_t>, llvm::Value*> known_;
};

/// Where the pairs of a GPU's thread stand.
struct PairSite {
    llvm::Value *sequence = nullptr, *head = nullptr;   ///< i64
    std::vector<llvm::Value*> queries = {}, keys = {};  ///< i32
    /// Some pairs may be beyond the last: operands are then read at the last.
    bool queries_may_end = true, keys_may_end = true;
};

class PairValues final : public BodyValues {
  public:
    /// `operands`: their addresses.
    PairValues(llvm::IRBuilderBase& builder, const Lanes& lanes, const AttentionKernel& kernel,
               const ScoreCode& code, std::vector<llvm::Value*> operands, PairSite site);

  private:
    static std::vector<Changes> changes_of(const AttentionKernel& kernel);
    llvm::Value* operand(std::size_t operand, const Pair& pair) override;
    llvm::Value* position(std::size_t axis, const Pair& pair) override;
    llvm::Value* read_at(llvm::Value* position, bool may_end, std::int64_t count);

    const AttentionKernel& kernel_;
    std::vector<llvm::Value*> operands_;
    PairSite site_;
};

}  // namespace mantissa::codegen
