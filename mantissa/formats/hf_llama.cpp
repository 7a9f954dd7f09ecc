#include "mantissa/formats/hf_llama.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "mantissa/base/error.h"
#include "mantissa/formats/hf_config_keys.h"
#include "mantissa/formats/strict_json.h"

namespace mantissa::inline v0 {

namespace {

using Json = nlohmann::json;

/// Keys of a config.json that Reader reads or holds to a value, and pretraining_tp, which cuts products into
/// parts and changes no result.
constexpr std::string_view keys_of_llamas[] = {"attention_bias",
                                               "attention_dropout",
                                               "head_dim",
                                               "hidden_act",
                                               "hidden_size",
                                               "intermediate_size",
                                               "layer_types",
                                               "max_position_embeddings",
                                               "mlp_bias",
                                               "num_attention_heads",
                                               "num_hidden_layers",
                                               "num_key_value_heads",
                                               "partial_rotary_factor",
                                               "pretraining_tp",
                                               "rms_norm_eps",
                                               "rope_parameters",
                                               "rope_scaling",
                                               "rope_theta",
                                               "sliding_window",
                                               "tie_word_embeddings",
                                               "vocab_size"};

/// The same of rotary positions, by kind; the first four of all.
constexpr std::string_view keys_of_rotary[] = {"rope_type",        "type",
                                               "rope_theta",       "partial_rotary_factor",
                                               "factor",           "low_freq_factor",
                                               "high_freq_factor", "original_max_position_embeddings"};

/// One config.json.
class Reader {
  public:
    Reader(std::string_view text, const std::string& source)
        : source_(source), root_(parse_strict_json(text, source)) {}

    LlamaSizes read() {
        require_known_kind();
        LlamaSizes sizes;
        sizes.window = window();
        sizes.layers = integer("num_hidden_layers");
        sizes.heads = integer("num_attention_heads");
        sizes.key_heads = integer("num_key_value_heads",
                                  is_mistral() && !root_.contains("num_key_value_heads") ? 8 : sizes.heads);
        sizes.channels = integer("hidden_size");
        if (!given("head_dim") && sizes.heads > 0 && sizes.channels % sizes.heads != 0)
            throw UserError(
                fmt::format("{}: hidden_size {} cannot be shared by {} heads, and head_dim is not "
                            "given",
                            source_, sizes.channels, sizes.heads));
        sizes.head_size =
            integer("head_dim", sizes.heads > 0 ? std::optional(sizes.channels / sizes.heads) : std::nullopt);
        sizes.hidden = integer("intermediate_size");
        sizes.vocabulary = integer("vocab_size");
        // The library's defaults where the file says nothing.
        sizes.context = integer("max_position_embeddings", is_mistral() ? 131072 : 2048);
        sizes.epsilon = number(root_, "rms_norm_eps", 1e-6);
        sizes.tied = flag("tie_word_embeddings");
        sizes.rotary = rotary();
        if (!attends_in_window(sizes.layers)) sizes.window = 0;
        return sizes;
    }

  private:
    bool given(const char* name) const { return root_.contains(name) && !root_[name].is_null(); }

    void require_known_kind() {
        const Json& type = require_member(root_, "model_type", source_, "a LLaMA's configuration");
        if (type != "llama" && type != "mistral")
            throw UserError(fmt::format("{}: model_type is {}, expected \"llama\" or \"mistral\"", source_,
                                        json_excerpt(type)));
        const std::pair<const char*, Json> expected[] = {{"hidden_act", "silu"},
                                                         {"attention_bias", false},
                                                         {"mlp_bias", false},
                                                         {"partial_rotary_factor", 1.0}};
        for (const auto& [name, value] : expected)
            if (given(name) && root_[name] != value)
                throw UserError(fmt::format("{}: {} is {}, only {} can be run", source_, name,
                                            json_excerpt(root_[name]), value.dump()));
        require_known_keys(root_, keys_of_llamas, source_);
    }

    bool is_mistral() const { return root_["model_type"] == "mistral"; }

    /// Null is no window; left out, it is what the library takes for a Mistral.
    std::int64_t window() const {
        if (!is_mistral()) {
            if (given("sliding_window"))
                throw UserError(
                    fmt::format("{}: sliding_window is {}, which a LLaMA has not; only a Mistral's "
                                "can be run",
                                source_, json_excerpt(root_["sliding_window"])));
            return 0;
        }
        if (!root_.contains("sliding_window")) return 4096;
        if (!given("sliding_window")) return 0;
        const std::int64_t tokens = integer("sliding_window");
        if (tokens == 0)
            throw UserError(fmt::format("{}: sliding_window is 0; without one it is null", source_));
        return tokens;
    }

    /// Whether layers see a window, as layer_types says, or else sliding_window alone. All see the same here.
    bool attends_in_window(std::int64_t layers) const {
        if (!given("layer_types")) return true;
        const Json& types = root_["layer_types"];
        if (!types.is_array() || std::ssize(types) != layers)
            throw UserError(fmt::format("{}: layer_types: expected a list of {} layers, found {}", source_,
                                        layers, json_excerpt(types)));
        const auto all = [&](const char* kind) {
            return std::ranges::all_of(types, [&](const Json& type) { return type == kind; });
        };
        if (all("full_attention")) return false;
        if (all("sliding_attention") && is_mistral() && window() > 0) return true;
        std::set<std::string> kinds;
        for (const Json& type : types) kinds.insert(json_excerpt(type));
        throw UserError(
            fmt::format("{}: layer_types has {}; only layers that all have full_attention, or all of "
                        "a Mistral with a sliding_window sliding_attention, can be run",
                        source_, fmt::join(kinds, " and ")));
    }

    /// Without a value in its absence it must be there.
    std::int64_t integer(const char* name, std::optional<std::int64_t> absent = {}) const {
        if (!given(name) && absent) return *absent;
        const Json& value = require_member(root_, name, source_, "a LLaMA's configuration");
        const std::uint64_t read = require_unsigned(value, source_, name);
        if (read > (std::uint64_t{1} << 62))
            throw UserError(fmt::format("{}: {} is {}, which is no size", source_, name, read));
        return static_cast<std::int64_t>(read);
    }

    double number(const Json& object, const char* name, std::optional<double> absent = {}) const {
        if (absent && (!object.contains(name) || object[name].is_null())) return *absent;
        const Json& value = require_member(object, name, source_, "rotary positions");
        if (!value.is_number() || !(value.get<double>() > 0))
            throw UserError(fmt::format("{}: {}: expected a number above 0, found {}", source_, name,
                                        json_excerpt(value)));
        return value.get<double>();
    }

    bool flag(const char* name) const {
        if (!given(name)) return false;
        if (!root_[name].is_boolean())
            throw UserError(fmt::format("{}: {}: expected true or false, found {}", source_, name,
                                        json_excerpt(root_[name])));
        return root_[name].get<bool>();
    }

    LlamaRotary rotary() const {
        const char* const member = given("rope_parameters") ? "rope_parameters" : "rope_scaling";
        LlamaRotary read;
        read.theta = number(root_, "rope_theta", 10000.0);
        if (!given(member)) return read;
        const Json& rope = root_[member];
        if (!rope.is_object())
            throw UserError(
                fmt::format("{}: {}: expected an object, found {}", source_, member, json_excerpt(rope)));
        for (const auto& [key, value] : rope.items())
            if (std::ranges::find(keys_of_rotary, key) == std::ranges::end(keys_of_rotary))
                throw UserError(fmt::format("{}: {}.{} is {}, which cannot be run", source_, member, key,
                                            json_excerpt(value)));
        read.theta = number(rope, "rope_theta", read.theta);
        if (const double part = number(rope, "partial_rotary_factor", 1.0); part != 1)
            throw UserError(fmt::format("{}: {}.partial_rotary_factor is {}, only 1.0 can be run", source_,
                                        member, part));
        // Files before transformers 4.43 call it "type".
        const char* const type_name = rope.contains("rope_type") ? "rope_type" : "type";
        const Json absent = "default", &type = rope.contains(type_name) ? rope[type_name] : absent;
        if (type == "default") return read;
        read.kind = type == "linear" ? LlamaRotary::Kind::linear : LlamaRotary::Kind::llama3;
        if (type != "linear" && type != "llama3")
            throw UserError(fmt::format("{}: {}.{} is {}; known are \"default\", \"linear\" and \"llama3\"",
                                        source_, member, type_name, json_excerpt(type)));
        read.factor = number(rope, "factor");
        if (read.kind == LlamaRotary::Kind::linear) return read;
        read.low_frequency_factor = number(rope, "low_freq_factor");
        read.high_frequency_factor = number(rope, "high_freq_factor");
        if (!(read.high_frequency_factor > read.low_frequency_factor))
            throw UserError(fmt::format("{}: high_freq_factor {} must be above low_freq_factor {}", source_,
                                        read.high_frequency_factor, read.low_frequency_factor));
        read.original_context = static_cast<std::int64_t>(number(rope, "original_max_position_embeddings"));
        return read;
    }

    const std::string& source_;
    Json root_;
};

nlohmann::ordered_json scaling_of(const LlamaRotary& rotary) {
    switch (rotary.kind) {
        case LlamaRotary::Kind::plain:
            return {{"rope_type", "default"}};
        case LlamaRotary::Kind::linear:
            return {{"rope_type", "linear"}, {"factor", rotary.factor}};
        case LlamaRotary::Kind::llama3:
            return {{"rope_type", "llama3"},
                    {"factor", rotary.factor},
                    {"low_freq_factor", rotary.low_frequency_factor},
                    {"high_freq_factor", rotary.high_frequency_factor},
                    {"original_max_position_embeddings", rotary.original_context}};
    }
    throw InternalError("a kind of rotary positions outside of its enumeration");
}

}  // namespace

LlamaSizes read_hf_llama_config(std::string_view text, const std::string& source) {
    return Reader(text, source).read();
}

std::string hf_llama_config(const LlamaSizes& sizes) {
    const bool is_mistral = sizes.window > 0;
    nlohmann::ordered_json config = {
        {"architectures", {is_mistral ? "MistralForCausalLM" : "LlamaForCausalLM"}},
        {"model_type", is_mistral ? "mistral" : "llama"},
        {"vocab_size", sizes.vocabulary},
        {"max_position_embeddings", sizes.context},
        {"hidden_size", sizes.channels},
        {"intermediate_size", sizes.hidden},
        {"num_hidden_layers", sizes.layers},
        {"num_attention_heads", sizes.heads},
        {"num_key_value_heads", sizes.key_heads},
        {"head_dim", sizes.head_size},
        {"hidden_act", "silu"},
        {"rms_norm_eps", sizes.epsilon},
        {"rope_theta", sizes.rotary.theta}};
    // transformers 4 reads rope_theta and rope_scaling, transformers 5 rope_parameters.
    if (sizes.rotary.kind != LlamaRotary::Kind::plain) config["rope_scaling"] = scaling_of(sizes.rotary);
    nlohmann::ordered_json parameters = scaling_of(sizes.rotary);
    parameters["rope_theta"] = sizes.rotary.theta;
    config["rope_parameters"] = std::move(parameters);
    if (is_mistral) {
        config["sliding_window"] = sizes.window;
    } else {
        config["attention_bias"] = false;
        config["mlp_bias"] = false;
    }
    config["bos_token_id"] = nullptr;
    config["eos_token_id"] = nullptr;
    config["tie_word_embeddings"] = sizes.tied;
    config["torch_dtype"] = "float32";
    return config.dump(2) + "\n";
}

WeightFiles hf_llama_files(const LlamaSizes& sizes) {
    WeightFiles files{.kind = "a LLaMA checkpoint", .ignored = [](std::string_view name) {
                          return name.ends_with(".rotary_emb.inv_freq");
                      }};
    if (sizes.tied) files.tied = {{"lm_head.weight", "model.embed_tokens.weight"}};
    files.texts["config.json"] = hf_llama_config(sizes);
    return files;
}

}  // namespace mantissa
