// Averaged weights: an exponential moving average (EMA) of the parameters, which often predicts better than
// the parameters of the last step. It begins with the parameters after the first step; then average <- decay
// average + (1 - decay) parameter, as in torch.optim.swa_utils.AveragedModel. Running statistics are averaged
// alike, since they belong to the weights that they were measured with; so do use_buffers there and timm's
// ModelEmaV3.
#pragma once

#include <string>
#include <string_view>

#include "mantissa/passes/pipeline.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/trainer.h"

namespace mantissa::inline v0 {

/// Records `update` and two kinds of states: `ema.W` for each updated parameter or running statistic W, and
/// `ema` (f64), the number of averaged steps. A step that is not applied changes neither. Decay 0: `update`
/// alone. Throws UserError for a decay outside [0, 1).
TraceUpdate with_average(TraceUpdate update, double decay);

/// Whether a state of this name is the average of a weight.
bool is_average(std::string_view state);
/// The weight that belongs to an average.
std::string averaged_weight(const std::string& average);

/// Swaps weights and their averages, bit by bit, if there are averages and a step was made; returns whether
/// it did. A second call restores both.
bool swap_averages(StateBlock& state);
/// Throws UserError while AveragedWeights live.
void require_own_weights(const StateBlock& state);

}  // namespace mantissa
