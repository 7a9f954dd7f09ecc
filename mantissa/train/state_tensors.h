// States as file formats see them: described, and read piece by piece from wherever they lie.
#pragma once

#include <vector>

#include "mantissa/formats/safetensors_write.h"
#include "mantissa/runtime/state_block.h"

namespace mantissa::inline v0 {

/// Name, type and shape of every state of one kind.
std::vector<TensorSpec> specs_of(const StateBlock& block, State::Kind kind);

/// The same states to be written to a file: none of them is copied before its turn comes, and then a piece at
/// a time. `block` must live until then.
std::vector<TensorToWrite> tensors_of(const StateBlock& block, State::Kind kind);

}  // namespace mantissa
