// Names and layouts of a model's weights in files of other projects' tools. The rules are plain data, so that
// reading and writing serve every family of models.
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

/// A parameter's form in a file.
struct StoredWeight {
    std::string name;
    AxisOrder order = {};
};

/// Names and layouts of weights in files: as the parameters', unless a member differs.
struct WeightFiles {
    /// The kind of file, for errors: "a GPT-2 checkpoint".
    std::string kind = "a checkpoint of this model";
    /// An optional prefix of every name in a file: "transformer.".
    std::string prefix = {};
    /// The stored form of a parameter; null: unchanged, under its own name.
    StoredWeight (*stored)(const TensorSpec& parameter) = nullptr;
    /// Whether a tensor of a file, named without its prefix, is extra data of other writers and no parameter;
    /// null: none is.
    bool (*ignored)(std::string_view name) = nullptr;
    /// Extra tensors that a file may hold, and the tensor that each must equal.
    std::map<std::string, std::string> tied = {};
    /// Files beside the weights, by name: config.json.
    std::map<std::string, std::string> texts = {};
};

/// Takes the value of a parameter; the bytes are valid during the call.
using TakeWeight = FunctionRef<void(const TensorSpec& parameter, std::span<const std::byte> value)>;

/// Hands the parameters' values in a file to `take`, one after another. F16 and BF16 tensors become f32
/// parameters exactly; f32, F16 and BF16 tensors are rounded for 16-bit parameters; other types must match.
/// Throws UserError, before the first call, beginning with `source` and naming every tensor that is missing,
/// unknown, of another shape or type, or given twice. By name, fitting tensors are taken, and the others
/// returned.
UnfitWeights read_weights(std::span<const TensorView> file, std::span<const TensorSpec> parameters,
                          const WeightFiles& rules, const std::string& source, TakeWeight take,
                          Match match = Match::strict);

/// The form in which to write `parameters`, in their order, for read_weights and other readers with these
/// rules.
std::vector<TensorToWrite> stored_weights(std::vector<TensorToWrite> parameters, const WeightFiles& rules);

}  // namespace mantissa
