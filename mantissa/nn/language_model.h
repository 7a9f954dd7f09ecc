// A model of text as a value: it can be trained on sequences of any length up to its context, and it scores
// the token that follows a text. The families that there are, by name.
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
    std::int64_t parameters = 0;  ///< elements of all, each once
    /// The largest that config.json tells of, where the model is one of files; and whether training here can
    /// drop at all.
    double dropout_of_files = 0;
    bool can_drop = false;
    /// The model in training on sequences of so many tokens, with the inputs of text_inputs (nn/documents.h).
    std::function<Model(std::int64_t sequence)> on_sequences = {};
    /// The same where the sequences are packed documents.
    std::function<Model(std::int64_t sequence)> on_packed_documents = {};
    /// Scores [B, V] of the token after the last of `tokens` i32 [B, T], which stand at `positions`
    /// i32 [B, T]; keys and values of all tokens before are states of the kind `cache`, stored as `kept`.
    std::function<Tensor(Tensor tokens, Tensor positions, DType kept)> next_logits = {};
};

/// Sizes that take the place of a preset's.
struct ModelSizes {
    std::optional<std::int64_t> layers = {}, heads = {}, channels = {}, context = {}, vocabulary = {};
    std::optional<double> dropout = {};
    std::optional<bool> bias = {};  ///< of linear layers and norms

    bool operator==(const ModelSizes&) const = default;
};

/// The presets of all families, of each the smallest first.
std::vector<std::string> language_model_names();

/// A preset, with other sizes if they are given. Throws UserError, naming those there are, for another name,
/// and for sizes that make no model.
LanguageModel language_model(std::string_view name, const ModelSizes& sizes = {});

}  // namespace mantissa::nn
