// A text model as a value: it trains on sequences of any length up to its context, and scores the token that
// follows a text. Known families, by name.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/nn/model.h"

namespace mantissa::inline v0::nn {

struct LanguageModel {
    std::string name;
    std::int64_t vocabulary = 0;  // V
    std::int64_t context = 0;     ///< the longest T
    /// Longest T at which tokens see more: the context, or a smaller window.
    std::int64_t reach = 0;
    /// The longest T that the weights were trained on; 0: not known.
    std::int64_t trained_on = 0;
    std::int64_t parameters = 0;  ///< elements, shared ones counted once
    /// The largest dropout in config.json, for a model from files, and whether training here can drop.
    double dropout_of_files = 0;
    bool can_drop = false;
    /// The model in training on sequences of so many tokens, with the inputs of text_inputs (nn/documents.h).
    std::function<Model(std::int64_t sequence)> on_sequences = {};
    /// The model in training on packed documents.
    std::function<Model(std::int64_t sequence)> on_packed_documents = {};
    /// Scores [B, V] of the token after the last of `tokens` i32 [B, T] at `positions` i32 [B, T]. Keys and
    /// values of earlier tokens are states of the kind `cache`, stored as `kept`.
    std::function<Tensor(Tensor tokens, Tensor positions, DType kept)> next_logits = {};

    /// The longest T for predictions: the weights know no positions, or distances, beyond training's.
    std::int64_t used_context() const { return trained_on > 0 && trained_on < reach ? trained_on : context; }
};

/// Sizes that replace a preset's.
struct ModelSizes {
    std::optional<std::int64_t> layers = {}, heads = {}, channels = {}, context = {}, vocabulary = {};
    std::optional<double> dropout = {};
    std::optional<bool> bias = {};  ///< of linear layers and norms

    bool operator==(const ModelSizes&) const = default;
};

/// The presets of all families, each family's smallest first.
std::vector<std::string> language_model_names();
/// Whether the name is a preset's or its alias, as gpt2-xl.
bool is_language_model(std::string_view name);

/// A preset, with other sizes if given. Throws UserError, naming the presets, for another name, and for sizes
/// that no model can have.
LanguageModel language_model(std::string_view name, const ModelSizes& sizes = {});

}  // namespace mantissa::nn
