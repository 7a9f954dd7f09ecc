// States as file formats see them: described, and read piece by piece from wherever they lie.
#pragma once

#include <vector>

#include "mantissa/formats/safetensors_write.h"
#include "mantissa/runtime/state_block.h"

namespace mantissa::inline v0 {

/// Whether a state is among those that are meant.
using Chosen = bool (*)(const State&);

/// Name, type and shape of every state that is chosen: is_weight, is_of_optimizer.
std::vector<TensorSpec> specs_of(const StateBlock& block, Chosen chosen);

/// The same states to be written to a file: none of them is copied before its turn comes, and then a piece at
/// a time. `block` must live until then.
std::vector<TensorToWrite> tensors_of(const StateBlock& block, Chosen chosen);

inline bool is_of_optimizer(const State& state) { return state.kind == State::Kind::optimizer; }

}  // namespace mantissa
