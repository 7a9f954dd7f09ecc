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
    /// A longer T shows no token more: the context, or the window that each sees.
    std::int64_t reach = 0;
    /// The longest T that the weights were trained on; 0: not known.
    std::int64_t trained_on = 0;
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

    /// The longest T that predictions are made on: beyond what was trained on lie positions, or distances, of
    /// which the weights know nothing.
    std::int64_t used_context() const { return trained_on > 0 && trained_on < reach ? trained_on : context; }
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
/// Whether language_model() makes one of the name: a preset, or another name of one, as gpt2-xl.
bool is_language_model(std::string_view name);

/// A preset, with other sizes if they are given. Throws UserError, naming those there are, for another name,
/// and for sizes that make no model.
LanguageModel language_model(std::string_view name, const ModelSizes& sizes = {});

}  // namespace mantissa::nn
