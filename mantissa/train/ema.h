// Averaged weights: an exponential moving average (EMA) of the parameters, which often predicts better than
// the parameters that the last step left. It begins with the parameters after the first step; then
// average <- decay average + (1 - decay) parameter, as torch.optim.swa_utils.AveragedModel has it. Running
// statistics are not averaged.
#pragma once

#include <string_view>

#include "mantissa/passes/pipeline.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/trainer.h"

namespace mantissa::inline v0 {

/// Records what `update` records, and two kinds of states: `ema.P` for each parameter P that is updated, and
/// `ema` (f64), the steps that they have seen. A step that is not applied does not change them. Decay 0:
/// `update` alone. Throws UserError for a decay outside [0, 1).
TraceUpdate with_average(TraceUpdate update, double decay);

/// Whether a state of this name is the average of a parameter.
bool is_average(std::string_view state);

/// Lets parameters and their averages change places, bit by bit, where there are averages and a step was
/// made. Twice is as never.
void swap_averages(StateBlock& state);

}  // namespace mantissa
