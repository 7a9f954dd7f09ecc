// The options of adapters on the command line.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "mantissa/nn/model.h"

namespace mantissa::inline v0 {
class StateBlock;
}

namespace mantissa::cli {

class Command;
struct RunOptions;

struct LoraArguments {
    std::optional<std::int64_t> rank;
    std::optional<double> alpha, dropout;
    bool rank_stabilized = false, magnitudes = false;
    std::vector<std::string> on;  ///< patterns of names
    std::string trunk;            ///< a layout's name; empty: the policy's format
    std::string adapter;          ///< a folder of adapters to train further
    std::string merge;            ///< the folder for the whole model at the end

    bool given() const { return rank || !adapter.empty(); }
};

/// --lora and its companions.
void add_lora_options(Command& command, LoraArguments& arguments);
/// --adapter and --merge, of `train`.
void add_adapter_options(Command& command, LoraArguments& arguments);

/// The requested adapters; none: the weights are trained. Throws UserError for images.
std::optional<nn::LoraOptions> lora_of(const RunOptions& options);

/// Copies the adapters of --adapter into a trainer's states, if given.
void begin_with_adapters(const RunOptions& options, StateBlock& state);

}  // namespace mantissa::cli
