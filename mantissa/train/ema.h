// Averaged weights: an exponential moving average (EMA) of the parameters, which often predicts better than
// the parameters that the last step left. It begins with the parameters after the first step; then
// average <- decay average + (1 - decay) parameter, as torch.optim.swa_utils.AveragedModel has it. Running
// statistics belong to the weights that they were measured with, and are averaged alike, as with use_buffers
// there and in timm's ModelEmaV3.
#pragma once

#include <string>
#include <string_view>

#include "mantissa/passes/pipeline.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/trainer.h"

namespace mantissa::inline v0 {

/// Records what `update` records, and two kinds of states: `ema.W` for each parameter or running statistic W
/// that is updated, and `ema` (f64), the steps that they have seen. A step that is not applied does not
/// change them. Decay 0: `update` alone. Throws UserError for a decay outside [0, 1).
TraceUpdate with_average(TraceUpdate update, double decay);

/// Whether a state of this name is the average of a weight.
bool is_average(std::string_view state);
/// The weight that it is the average of.
std::string averaged_weight(const std::string& average);

/// Lets weights and their averages change places, bit by bit, where there are averages and a step was made;
/// returns whether. Twice is as never.
bool swap_averages(StateBlock& state);
/// Throws UserError while AveragedWeights live.
void require_own_weights(const StateBlock& state);

}  // namespace mantissa
