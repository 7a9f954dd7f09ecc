// A family of models as a row: how a config.json of Hugging Face's library maps to the parts of a network,
// how its weights are called, and published sizes. Add one: CONTRIBUTING.md, "Add a family of models".
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

/// Names of layers; an empty one is a layer that the family has not, or a scope that it does without.
struct DecoderNames {
    std::string_view body = "model", embedding = "embed_tokens", positions = "", layers = "layers",
                     last_norm = "norm", head = "lm_head";
    std::string_view before_attention = "input_layernorm", after_attention = "",
                     before_mlp = "post_attention_layernorm", after_mlp = "";
    std::string_view attention = "self_attn", q = "q_proj", k = "k_proj", v = "v_proj", qkv = "",
                     output = "o_proj", q_norm = "q_norm", k_norm = "k_norm";
    std::string_view mlp = "mlp", gate = "gate_proj", up = "up_proj", gate_up = "", down = "down_proj";
};

/// A member of config.json, and what it is of.
struct ConfigKey {
    enum class Absent : std::uint8_t {
        refused,  ///< it must be there
        by_row,   ///< the row's value, for null, too
        none      ///< the row's value; null is 0, which is none
    };
    struct Held {
        std::string_view json;  ///< the one value that can be run, beside null
    };
    struct NoEffect {};
    struct Dropout {};  ///< without effect, too: how much their training drops, which users are told of
    using Flags = std::vector<bool Decoder::*>;

    std::string_view name;
    std::variant<std::int64_t Decoder::*, double Decoder::*, Flags, Activation Decoder::*, Held, NoEffect,
                 Dropout>
        of;
    Absent absent = Absent::by_row;
};

/// One config.json that is read.
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
    /// A list of so many layers.
    const nlohmann::json& of_layers(std::string_view name, std::int64_t layers) const;
    /// Throws UserError "SOURCE: NAME is VALUE, WHY".
    [[noreturn]] void refuse(std::string_view name, std::string_view why) const;

  private:
    const nlohmann::json& root_;
    const std::string& source_;
    std::string_view family_;
};

/// The meaning of layer_types, which say where the window is, to the family's class in transformers.
enum class LayerTypes : std::uint8_t {
    ignored,  ///< none: a list that says otherwise than the class does is refused
    read,     ///< they count
    needed    ///< they count, and without them other layers may have it: always written
};

struct DecoderPreset {
    std::string_view name, alias;
    std::string_view config;  ///< config.json, without model_type
};

struct DecoderFamily {
    std::string_view model_type, architecture;
    Decoder parts = {};  ///< where config.json says nothing
    DecoderNames names = {};
    std::vector<ConfigKey> keys = {};
    /// Whether a part of a head may turn; the names that stand beside rope_parameters.
    bool turns_parts = false;
    std::string_view theta_key = "rope_theta", part_key = "partial_rotary_factor";
    LayerTypes layer_types = LayerTypes::ignored;
    /// Names that its class takes for others: theirs, then those of `keys`.
    std::vector<std::pair<std::string_view, std::string_view>> other_names = {};
    /// Keys that the next two read and write beside `keys`, the rotary positions and layer_types.
    std::vector<std::string_view> own_keys = {};
    void (*read)(const ConfigFile& file, Decoder& parts) = nullptr;
    void (*write)(const Decoder& parts, nlohmann::ordered_json& config) = nullptr;
    /// The rules of its files, where they are not those of its names.
    WeightFiles (*files)() = nullptr;
    /// Adds to config.json what the weights say. Throws UserError where `config`, read from `path`, differs
    /// from `weights`, read from `source`.
    void (*complete)(nlohmann::json& config, std::span<const TensorView> weights, const std::string& source,
                     const std::string& path) = nullptr;
    bool chosen_parts = false;  ///< training may drop, and do without biases
    std::vector<DecoderPreset> presets = {};
};

/// Sizes as most families call them; F, too, but the name of the activation and of biases.
std::vector<ConfigKey> common_keys(std::vector<ConfigKey> own);

/// The one whose files may say nothing of it but by their weights.
const DecoderFamily& gpt2_family();
std::span<const DecoderFamily* const> decoder_families();

/// The members of its config.json that say how much training drops.
std::vector<std::string_view> dropout_keys(const DecoderFamily& family);

/// Reads the text of config.json: rotary positions as transformers 4 writes them (rope_theta, rope_scaling),
/// or rope_parameters of transformers 5. Throws UserError, beginning with `source`, for another family, for
/// what cannot be run and for a key that is not known.
DecoderConfig read_decoder_config(std::string_view text, const std::string& source);
DecoderConfig decoder_config_from(nlohmann::json root, const std::string& source);
/// The family that config.json names.
const DecoderFamily& family_in(const nlohmann::json& root, const std::string& source);
/// Gives each key its own name.
void take_own_names(nlohmann::json& root, const DecoderFamily& family, const std::string& source);

/// The text of config.json for such a model, as transformers 4 and 5 read it. It names no tokens that begin
/// and end a text (with_token_ids).
std::string decoder_config_text(const DecoderConfig& config);

/// The rules of their weights: frequencies and masks that old files store are no parameters; where the head
/// is tied, its weight must equal the embedding's.
WeightFiles decoder_files(const DecoderConfig& config);

/// Facts that must be equal to resume.
Configuration decoder_configuration(const DecoderConfig& config, std::int64_t sequence, Documents documents);

/// The presets of all families, of each the smallest first.
std::vector<std::string> decoder_names();
bool is_decoder(std::string_view name);
/// Throws UserError, naming those there are, for another name.
DecoderConfig decoder_config(std::string_view name);
/// The model whose config.json lies in `directory`, beside these weights, read from `source`. Throws
/// UserError that names the file if it is none.
DecoderConfig decoder_config_of(const std::filesystem::path& directory,
                                std::span<const TensorView> weights = {}, const std::string& source = "");

/// The same model in other sizes, under a name that says so; `config` where none differs. Throws UserError
/// for a dropout or biases of families that cannot choose them.
DecoderConfig with_sizes(DecoderConfig config, const ModelSizes& sizes);

}  // namespace mantissa::nn
