// A score function (score_code.h) in a thread of a GPU, for pairs of its queries and keys, one after another.
// What does not change from query to query, or from key to key, is made once.
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "mantissa/codegen/attention_kernel.h"
#include "mantissa/codegen/llvm/control.h"
#include "mantissa/codegen/llvm/lanes.h"
#include "mantissa/graph/graph.h"

namespace mantissa::inline v0::codegen {

/// Where the pairs stand.
struct PairSite {
    llvm::Value *sequence = nullptr, *head = nullptr;   ///< i64
    std::vector<llvm::Value*> queries = {}, keys = {};  ///< i32
    /// Some may be beyond the last: operands are then read at the last.
    bool queries_may_end = true, keys_may_end = true;
};

/// All values are made where the builder stands when they are first asked for, and are for the code behind
/// it.
class PairValues {
  public:
    /// `operands`: their addresses.
    PairValues(llvm::IRBuilderBase& builder, const Lanes& lanes, const AttentionKernel& kernel,
               const ScoreCode& code, std::vector<llvm::Value*> operands, PairSite site);

    /// The inputs of a pair that its thread has.
    struct Pair {
        std::size_t query = 0, key = 0;  ///< of the site's
        llvm::Value* score = nullptr;
        llvm::Value* cotangent = nullptr;
    };
    llvm::Value* result(std::size_t output, const Pair& pair);

  private:
    struct Changes {
        bool queries = false, keys = false;
    };

    void find_changes();
    Changes own_changes(std::size_t id) const;
    std::size_t input_of(std::size_t id) const;
    llvm::Value* of(mantissa::Value value, const Pair& pair);
    llvm::Value* made(std::size_t id, const Pair& pair);
    llvm::Value* of_input(std::size_t input, const Pair& pair);
    llvm::Value* position(std::size_t axis, const Pair& pair);
    llvm::Value* read_at(llvm::Value* position, bool may_end, std::int64_t count);
    llvm::Value* contracted(const Node& sum, const Pair& pair);

    llvm::IRBuilderBase& b_;
    Control control_;
    const Lanes& lanes_;
    const AttentionKernel& kernel_;
    const ScoreCode& code_;
    const Graph& graph_;
    std::vector<llvm::Value*> operands_;
    PairSite site_;
    std::vector<Changes> changes_;  // by node
    std::vector<int> uses_;         // by node: how often it is read, results included
    std::map<std::tuple<std::size_t, std::size_t, std::size_t>, llvm::Value*> known_;
};

}  // namespace mantissa::codegen
