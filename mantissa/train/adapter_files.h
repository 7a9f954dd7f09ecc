// Adapters in the files of PEFT: adapter_config.json beside adapter_model.safetensors, and weights into which
// they are merged.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "mantissa/formats/safetensors.h"
#include "mantissa/formats/safetensors_write.h"
#include "mantissa/formats/weight_files.h"
#include "mantissa/nn/lora.h"
#include "mantissa/runtime/state_block.h"

namespace mantissa::inline v0 {

inline constexpr const char* adapter_model_name = "adapter_model.safetensors";
inline constexpr const char* adapter_config_name = "adapter_config.json";

/// Whether the folder holds adapters and no model.
bool holds_adapters_alone(const std::filesystem::path& directory);

/// The adapters that lie in a folder.
class AdapterFolder {
  public:
    /// `files`: how files hold the weights of the model that they are for. Throws UserError, naming the file,
    /// for what is missing, and for adapters of another kind: those of linear layers and convolutions are
    /// read, with magnitudes (DoRA) or without.
    AdapterFolder(const std::filesystem::path& directory, const WeightFiles& files);

    /// Ranks and scales of every layer that has an adapter.
    const nn::LoraOptions& options() const { return options_; }
    /// Copies them into the adapters of a trainer that was made with options().
    void load(StateBlock& state) const;
    /// Adds s B A to every weight, in FP32, and gives its outputs their magnitudes. Throws UserError, naming
    /// the layer, for a model without such a layer; nothing was added then.
    void merge(StateBlock& weights) const;

  private:
    struct Part {
        std::string layer, path;  // without and with what stands before it in files of the model
        TensorView a, b;          // [r, inputs], [outputs, r]; of a convolution [r, C, R, S], [K, r, 1, 1]
        TensorView magnitude;     // [outputs], [1, K, 1, 1]; no data: none

        std::vector<std::pair<std::string, const TensorView*>> tensors() const;  // by name of state
    };
    void read_config();
    void read_parts(const WeightFiles& files);
    void require_shapes(const Part& part) const;
    [[noreturn]] void refuse(const char* file, const std::string& what) const;
    std::string source() const { return (directory_ / adapter_model_name).string(); }

    std::filesystem::path directory_;
    SafetensorsFile file_;
    std::vector<Part> parts_;
    nn::LoraOptions options_;
};

/// The text of adapter_config.json for the adapters among these states. `base`: where the model's own weights
/// came from; empty: it is not known.
std::string adapter_config(std::span<const State> states, const nn::Model& model,
                           const nn::LoraOptions& options, const std::string& base);

/// Names of the parts of adapters as they are called in a file, and without what stands before them there.
WeightFiles adapter_files(const WeightFiles& model);
std::vector<TensorToWrite> stored_adapters(std::vector<TensorToWrite> parts, const WeightFiles& model);

/// The model's own weights in FP32 with their adapters added, to be written; `state` must live until then.
std::vector<TensorToWrite> merged_weights(const StateBlock& state, const nn::LoraOptions& options);

}  // namespace mantissa
