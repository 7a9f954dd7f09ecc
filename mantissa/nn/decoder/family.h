// A family of models as a row: the map from Hugging Face's config.json to the parts of a network, the names
// of its weights, and published sizes. Add a row: CONTRIBUTING.md, "Add a family of models".
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "mantissa/formats/weight_files.h"
#include "mantissa/nn/decoder/decoder.h"

namespace mantissa::inline v0::nn {

/// Names of layers and scopes; empty: the family has no such layer or scope.
struct DecoderNames {
    std::string_view body = "model", embedding = "embed_tokens", positions = "", layers = "layers",
                     last_norm = "norm", head = "lm_head";
    std::string_view before_attention = "input_layernorm", after_attention = "",
                     before_mlp = "post_attention_layernorm", after_mlp = "";
    std::string_view attention = "self_attn", q = "q_proj", k = "k_proj", v = "v_proj", qkv = "",
                     output = "o_proj", q_norm = "q_norm", k_norm = "k_norm";
    std::string_view mlp = "mlp", gate = "gate_proj", up = "up_proj", gate_up = "", down = "down_proj";
};

/// A member of config.json, and its target.
struct ConfigKey {
    enum class Absent : std::uint8_t {
        refused,  ///< an error
        by_row,   ///< the row's value, for null, too
        none      ///< the row's value; null means 0, off
    };
    struct Held {
        std::string_view json;  ///< the only supported value, beside null
    };
    struct NoEffect {};
    struct Dropout {};  ///< no effect here but a notice: dropout of the published training
    using Flags = std::vector<bool Decoder::*>;

    std::string_view name;
    std::variant<std::int64_t Decoder::*, double Decoder::*, Flags, Activation Decoder::*, Held, NoEffect,
                 Dropout>
        of;
    Absent absent = Absent::by_row;
};

/// A config.json being read.
class ConfigFile {
  public:
    ConfigFile(const nlohmann::json& root, const std::string& source, std::string_view family)
        : root_(root), source_(source), family_(family) {}

    const nlohmann::json& root() const { return root_; }
    const std::string& source() const { return source_; }
    std::string_view family() const { return family_; }
    bool has(std::string_view name) const;
    bool given(std::string_view name) const;  ///< neither absent nor null
    std::int64_t integer(std::string_view name) const;
    double number(std::string_view name) const { return number(root_, name); }
    double number(const nlohmann::json& object, std::string_view name) const;  ///< above 0
    bool flag(std::string_view name, bool absent) const;
    /// A list with an element for each layer.
    const nlohmann::json& of_layers(std::string_view name, std::int64_t layers) const;
    /// Throws UserError "SOURCE: NAME is VALUE, WHY".
    [[noreturn]] void refuse(std::string_view name, std::string_view why) const;

  private:
    const nlohmann::json& root_;
    const std::string& source_;
    std::string_view family_;
};

/// The effect of layer_types, which tell the layers with the window, on the family's class in transformers.
enum class LayerTypes : std::uint8_t {
    ignored,  ///< no effect: a list that contradicts the class is refused
    read,     ///< they count
    needed    ///< they count; always written, since the class's default differs
};

struct DecoderPreset {
    std::string_view name, alias;
    std::string_view config;  ///< config.json, without model_type
};

struct DecoderFamily {
    std::string_view model_type, architecture;
    Decoder parts = {};  ///< where config.json has no value
    DecoderNames names = {};
    std::vector<ConfigKey> keys = {};
    /// Whether a part of a head may turn; key names that may stand beside rope_parameters.
    bool turns_parts = false;
    std::string_view theta_key = "rope_theta", part_key = "partial_rotary_factor";
    LayerTypes layer_types = LayerTypes::ignored;
    /// Synonyms of config.json's names: first the synonym, then the name among `keys`.
    std::vector<std::pair<std::string_view, std::string_view>> other_names = {};
    /// Keys that `read` and `write` handle, beside `keys`, the rotary positions and layer_types.
    std::vector<std::string_view> own_keys = {};
    void (*read)(const ConfigFile& file, Decoder& parts) = nullptr;
    void (*write)(const Decoder& parts, nlohmann::ordered_json& config) = nullptr;
    /// The rules of its weight files, if names alone do not suffice.
    WeightFiles (*files)() = nullptr;
    /// Adds to config.json the sizes that the weights tell. Throws UserError where `config`, read from
    /// `path`, differs from `weights`, read from `source`.
    void (*complete)(nlohmann::json& config, std::span<const TensorView> weights, const std::string& source,
                     const std::string& path) = nullptr;
    bool chosen_parts = false;  ///< training may choose dropout and biases
    std::vector<DecoderPreset> presets = {};
};

/// Keys of sizes with the names of most families, without the activation's and the biases'.
std::vector<ConfigKey> common_keys(std::vector<ConfigKey> own);

/// The family with files that may lack a config.json: their weights tell it.
const DecoderFamily& gpt2_family();
std::span<const DecoderFamily* const> decoder_families();

/// The members of its config.json that give a dropout.
std::vector<std::string_view> dropout_keys(const DecoderFamily& family);

/// Reads the text of config.json, with rotary positions of transformers 4 (rope_theta, rope_scaling) or 5
/// (rope_parameters). Throws UserError, beginning with `source`, for another family, an unsupported value and
/// an unknown key.
DecoderConfig read_decoder_config(std::string_view text, const std::string& source);
DecoderConfig decoder_config_from(nlohmann::json root, const std::string& source);
/// The family that config.json names.
const DecoderFamily& family_in(const nlohmann::json& root, const std::string& source);
/// Renames synonyms (other_names) to their keys.
void take_own_names(nlohmann::json& root, const DecoderFamily& family, const std::string& source);

/// The text of config.json for such a model, as transformers 4 and 5 read it. It has no ids of tokens that
/// begin and end a text (with_token_ids).
std::string decoder_config_text(const DecoderConfig& config);

/// The rules of weight files. Frequencies and masks in old files are no parameters; a tied head's weight must
/// equal the embedding's.
WeightFiles decoder_files(const DecoderConfig& config);

/// Settings that must be equal to resume.
Configuration decoder_configuration(const DecoderConfig& config, std::int64_t sequence, Documents documents);

/// The presets of all families, each family's smallest first.
std::vector<std::string> decoder_names();
bool is_decoder(std::string_view name);
/// Throws UserError, naming the presets, for another name.
DecoderConfig decoder_config(std::string_view name);
/// The model of the config.json in `directory`, beside these weights, read from `source`. Throws UserError
/// that names the file if it has none.
DecoderConfig decoder_config_of(const std::filesystem::path& directory,
                                std::span<const TensorView> weights = {}, const std::string& source = "");

/// The model in other sizes, with a name that tells them; `config` if none differs. Throws UserError for a
/// dropout or biases in families that cannot choose them.
DecoderConfig with_sizes(DecoderConfig config, const ModelSizes& sizes);

}  // namespace mantissa::nn
