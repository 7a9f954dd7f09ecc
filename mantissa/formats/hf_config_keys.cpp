#include "mantissa/formats/hf_config_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "mantissa/base/error.h"
#include "mantissa/formats/strict_json.h"

namespace mantissa::inline v0 {

namespace {

/// Keys of PreTrainedConfig (transformers 4 and 5) that do not change a model's values: its origin, its
/// storage, its return values, heads of other tasks, ids of the tokenizer, initial values.
constexpr std::string_view without_effect[] = {
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_attn_implementation_internal",
    "_commit_hash",
    "_experts_implementation",
    "_experts_implementation_internal",
    "_flash_attn_2_enabled",
    "_name_or_path",
    "_num_labels",
    "architectures",
    "attn_implementation",
    "auto_map",
    "bos_token_id",
    "chunk_size_feed_forward",
    "custom_pipelines",
    "decoder_start_token_id",
    "dtype",
    "eos_token_id",
    "finetuning_task",
    "gradient_checkpointing",
    "id2label",
    "initializer_range",
    "is_decoder",
    "label2id",
    "model_type",
    "name_or_path",
    "num_labels",
    "output_attentions",
    "output_hidden_states",
    "output_past",
    "pad_token_id",
    "prefix",
    "problem_type",
    "return_dict",
    "sep_token_id",
    "task_specific_params",
    "tf_legacy_loss",
    "tie_encoder_decoder",
    "tokenizer_class",
    "torch_dtype",
    "torchscript",
    "transformers_version",
    "unk_token_id",
    "use_bfloat16",
    "use_cache",
};

/// Options of the library's generate(), which older files have here, where generation_config.json is missing.
/// The program's own options replace them.
constexpr std::string_view of_generation[] = {"assistant_confidence_threshold",
                                              "assistant_lookbehind",
                                              "bad_words_ids",
                                              "begin_suppress_tokens",
                                              "diversity_penalty",
                                              "do_sample",
                                              "early_stopping",
                                              "encoder_no_repeat_ngram_size",
                                              "encoder_repetition_penalty",
                                              "epsilon_cutoff",
                                              "eta_cutoff",
                                              "exponential_decay_length_penalty",
                                              "forced_bos_token_id",
                                              "forced_eos_token_id",
                                              "length_penalty",
                                              "max_length",
                                              "max_new_tokens",
                                              "min_length",
                                              "no_repeat_ngram_size",
                                              "num_assistant_tokens",
                                              "num_assistant_tokens_schedule",
                                              "num_beam_groups",
                                              "num_beams",
                                              "num_return_sequences",
                                              "output_scores",
                                              "remove_invalid_values",
                                              "repetition_penalty",
                                              "return_dict_in_generate",
                                              "suppress_tokens",
                                              "target_lookbehind",
                                              "temperature",
                                              "top_k",
                                              "top_p",
                                              "typical_p"};

/// Keys that change a model's values unless they are false, null or empty.
constexpr std::string_view to_be_empty[] = {
    "add_cross_attention", "cross_attention_hidden_size", "is_encoder_decoder", "per_layer_config",
    "pruned_heads",        "quantization_config",         "compression_config", "tie_last_hidden_states"};

bool is_empty(const nlohmann::json& value) {
    return value.is_null() || value == false || (value.is_structured() && value.empty());
}

}  // namespace

void require_known_keys(const nlohmann::json& config, std::span<const std::string_view> of_family,
                        const std::string& source) {
    const auto among = [](const auto& names, std::string_view key) {
        return std::ranges::find(names, key) != std::ranges::end(names);
    };
    for (const auto& [key, value] : config.items()) {
        if (among(of_family, key) || among(without_effect, key) || among(of_generation, key)) continue;
        if (!among(to_be_empty, key))
            throw UserError(
                fmt::format("{}: {} is {}, a key that is not known here, so it may say what the "
                            "model computes; remove it if it does not",
                            source, key, json_excerpt(value)));
        if (!is_empty(value))
            throw UserError(fmt::format("{}: {} is {}; no model that has it can be run", source, key,
                                        json_excerpt(value)));
    }
}

double largest_dropout(const nlohmann::json& config, std::span<const std::string_view> names) {
    double most = 0;
    for (const std::string_view name : names)
        if (const auto found = config.find(std::string(name)); found != config.end() && found->is_number())
            most = std::max(most, found->get<double>());
    return most;
}

}  // namespace mantissa
