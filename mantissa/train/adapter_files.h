// Adapters in PEFT's files, adapter_config.json beside adapter_model.safetensors, and weights into which they
// are merged.
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

/// The adapters in a folder.
class AdapterFolder {
  public:
    /// `files`: names and layouts of the model's weights in files. Throws UserError, naming the file, for a
    /// missing file or member and for unsupported adapters. Adapters of linear layers and convolutions are
    /// supported, with magnitudes (DoRA) or without.
    AdapterFolder(const std::filesystem::path& directory, const WeightFiles& files);

    /// Ranks and scales of every layer that has an adapter.
    const nn::LoraOptions& options() const { return options_; }
    /// Copies the adapters into a trainer that was made with options().
    void load(StateBlock& state) const;
    /// Adds s B A to every weight, in FP32, and scales its outputs to their magnitudes. Throws UserError,
    /// naming the layer, before it adds anything, for a model without such a layer.
    void merge(StateBlock& weights) const;

  private:
    struct Part {
        std::string layer, path;  // without and with the prefix of the model's files
        TensorView a, b;          // [r, inputs], [outputs, r]; convolution: [r, C, R, S], [K, r, 1, 1]
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

/// The text of adapter_config.json for the adapters among these states. `base`: origin of the model's own
/// weights; empty: not known.
std::string adapter_config(std::span<const State> states, const nn::Model& model,
                           const nn::LoraOptions& options, const std::string& base);

/// Names of the parts of adapters in a file, where the model's prefix precedes them, and in the states.
WeightFiles adapter_files(const WeightFiles& model);
std::vector<TensorToWrite> stored_adapters(std::vector<TensorToWrite> parts, const WeightFiles& model);

/// The model's own weights in FP32 with their adapters added. `state` must live until they are written.
std::vector<TensorToWrite> merged_weights(const StateBlock& state, const nn::LoraOptions& options);

}  // namespace mantissa
