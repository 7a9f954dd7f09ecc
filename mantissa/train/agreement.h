// States that ranks must have alike: looked at before the first step, and now and then after it.
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

/// Values by what they are called, in the order in which they are compared.
using RankFacts = std::vector<std::pair<std::string, std::string>>;

/// Version, instruction set, model, optimizer and the numbers of the run, and a checksum of the plans' text.
RankFacts facts_of(const TrainingPlan& plan);

/// All ranks call it, with facts of the same names. Throws AgreedError, on every rank, that names the first
/// fact that one has otherwise than rank 0, with both values.
void require_alike(Ranks& ranks, const RankFacts& facts);

/// The same for parameters, statistics and those of the optimizer's states that every rank has whole, by
/// their checksums; `step`: after which.
void require_same_states(Ranks& ranks, const StateBlock& state, std::int64_t step);

}  // namespace mantissa
