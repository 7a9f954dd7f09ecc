// How a model's weights are called and laid out in files that other people's tools read and write. The rules
// are plain data, so that reading and writing are the same for every family of models.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/base/function_ref.h"
#include "mantissa/formats/safetensors_write.h"
#include "mantissa/formats/tensor_view.h"
#include "mantissa/formats/unfit_weights.h"

namespace mantissa::inline v0 {

/// A parameter as it stands in a file.
struct StoredWeight {
    std::string name;
    AxisOrder order = {};
};

/// How files hold a model's weights: as the parameters are, unless a member says otherwise.
struct WeightFiles {
    /// The kind of a file that holds such weights, for messages: "a GPT-2 checkpoint".
    std::string kind = "a checkpoint of this model";
    /// May stand before every name in a file: "transformer.".
    std::string prefix = {};
    /// How that parameter is stored; null: under its own name, as it is.
    StoredWeight (*stored)(const TensorSpec& parameter) = nullptr;
    /// Whether a tensor of a file, its prefix taken away, is no parameter but something that others store
    /// beside them; null: none is.
    bool (*ignored)(std::string_view name) = nullptr;
    /// Tensors that a file may hold besides, and the one to which each must be equal.
    std::map<std::string, std::string> tied = {};
    /// Files that stand beside the weights, by name: config.json.
    std::map<std::string, std::string> texts = {};
};

/// Takes the value of a parameter; the bytes are there during the call.
using TakeWeight = FunctionRef<void(const TensorSpec& parameter, std::span<const std::byte> value)>;

/// Hands the parameters' values in a file to `take`, one after another. F16 and BF16 tensors become f32
/// parameters exactly, and f32, F16 and BF16 ones are rounded where a parameter has 16 bits; other types must
/// match. Throws UserError, beginning with `source` and naming every
/// tensor, for those that are missing, unknown, or of another shape or type, and for one that is given twice;
/// nothing was taken then. By name, those that fit are taken, and the others returned.
UnfitWeights read_weights(std::span<const TensorView> file, std::span<const TensorSpec> parameters,
                          const WeightFiles& rules, const std::string& source, TakeWeight take,
                          Match match = Match::strict);

/// How to write `parameters`, in their order, so that read_weights and others that know these rules read
/// them.
std::vector<TensorToWrite> stored_weights(std::vector<TensorToWrite> parameters, const WeightFiles& rules);

}  // namespace mantissa
