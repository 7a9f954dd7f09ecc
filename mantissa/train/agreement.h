// States that must be equal on all ranks: compared before the first step, and now and then after it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "mantissa/ranks/ranks.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/training_plan.h"

namespace mantissa::inline v0 {

/// An error that every rank found at the same time, from the same numbers.
class AgreedError : public UserError {
  public:
    using UserError::UserError;
};

/// Values by name, in the order of comparison.
using RankFacts = std::vector<std::pair<std::string, std::string>>;

/// Version, instruction set, model, optimizer and numbers of the run, and a checksum of the plans' text.
RankFacts facts_of(const TrainingPlan& plan);

/// All ranks call it, with facts of the same names. Throws AgreedError on every rank; it names the first fact
/// that differs from rank 0's, with both values.
void require_alike(Ranks& ranks, const RankFacts& facts);

/// Compares, by checksum, parameters, statistics and the optimizer states that every rank holds whole.
/// `step`: the last step made.
void require_same_states(Ranks& ranks, const StateBlock& state, std::int64_t step);

}  // namespace mantissa
