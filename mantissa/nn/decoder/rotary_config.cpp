#include "mantissa/nn/decoder/rotary_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "mantissa/base/error.h"
#include "mantissa/formats/strict_json.h"

namespace mantissa::inline v0::nn {

namespace {

using Json = nlohmann::json;
using Kind = Rotary::Kind;

struct KindName {
    Kind kind;
    std::string_view name;
    std::vector<std::string_view> keys;  ///< beside type, theta and part
};

const std::vector<KindName>& kind_names() {
    static const std::vector<KindName> all = {
        {Kind::plain, "default", {}},
        {Kind::linear, "linear", {"factor"}},
        {Kind::llama3,
         "llama3",
         {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}},
        {Kind::yarn,
         "yarn",
         {"factor", "beta_fast", "beta_slow", "truncate", "attention_factor", "mscale", "mscale_all_dim",
          "original_max_position_embeddings"}},
        {Kind::dynamic, "dynamic", {"factor", "original_max_position_embeddings"}},
        {Kind::longrope,
         "longrope",
         {"factor", "short_factor", "long_factor", "attention_factor", "original_max_position_embeddings"}}};
    return all;
}

constexpr std::string_view full_layers = "full_attention", windowed_layers = "sliding_attention";

/// Reads an object of rotary positions, or, without one, the members beside it.
class RotaryReader {
  public:
    RotaryReader(const ConfigFile& file, const DecoderFamily& family, const Decoder& parts)
        : file_(file), family_(family), parts_(parts) {}

    /// `name`: the object's, for errors; `rotary`: values for absent members.
    Rotary read(const Json& rope, const std::string& name, Rotary rotary) const {
        if (!rope.is_object())
            throw UserError(fmt::format("{}: {}: expected an object, found {}", file_.source(), name,
                                        json_excerpt(rope)));
        const KindName& kind = kind_of(rope, name);
        rotary.kind = kind.kind;
        for (const auto& [key, value] : rope.items())
            if (key != "rope_type" && key != "type" && key != "rope_theta" &&
                key != "partial_rotary_factor" && std::ranges::find(kind.keys, key) == kind.keys.end() &&
                !value.is_null())
                throw UserError(fmt::format("{}: {}.{} is {}, which \"{}\" has not", file_.source(), name,
                                            key, json_excerpt(value), kind.name));
        rotary.theta = number(rope, "rope_theta", rotary.theta);
        rotary.part = number(rope, "partial_rotary_factor", rotary.part);
        if (kind.kind == Kind::plain) return rotary;
        if (kind.kind != Kind::linear && kind.kind != Kind::dynamic)
            rotary.original_context = original_context(rope);
        if (is(rope, "factor") || kind.kind == Kind::linear || kind.kind == Kind::llama3 ||
            kind.kind == Kind::dynamic)
            rotary.factor = file_.number(rope, "factor");
        else
            rotary.factor =
                static_cast<double>(parts_.context) / static_cast<double>(rotary.original_context);
        if (kind.kind == Kind::llama3) read_llama3(rope, rotary);
        if (kind.kind == Kind::yarn) read_yarn(rope, name, rotary);
        if (kind.kind == Kind::longrope) read_longrope(rope, name, rotary);
        return rotary;
    }

  private:
    static bool is(const Json& object, const char* key) {
        return object.contains(key) && !object[key].is_null();
    }

    double number(const Json& object, const char* key, double absent) const {
        return is(object, key) ? file_.number(object, key) : absent;
    }

    const KindName& kind_of(const Json& rope, const std::string& name) const {
        // Files before transformers 4.43 call it "type".
        const char* const type_name = rope.contains("rope_type") ? "rope_type" : "type";
        if (!is(rope, type_name)) return kind_names().front();
        const Json& type = rope[type_name];
        // Phi-3's files have used other names for longrope.
        const bool renamed = family_.model_type == "phi3" && (type == "su" || type == "yarn");
        std::string known;
        for (const KindName& kind : kind_names()) {
            if (renamed ? kind.kind == Kind::longrope : type == kind.name) return kind;
            known += fmt::format("{}\"{}\"", known.empty() ? "" : ", ", kind.name);
        }
        throw UserError(fmt::format("{}: {}.{} is {}; known are {}", file_.source(), name, type_name,
                                    json_excerpt(type), known));
    }

    std::int64_t original_context(const Json& rope) const {
        if (std::ranges::find(family_.own_keys, "original_max_position_embeddings") != family_.own_keys.end())
            return file_.given("original_max_position_embeddings")
                       ? file_.integer("original_max_position_embeddings")
                       : family_.parts.rotary.original_context;
        return is(rope, "original_max_position_embeddings")
                   ? static_cast<std::int64_t>(file_.number(rope, "original_max_position_embeddings"))
                   : parts_.context;
    }

    void read_llama3(const Json& rope, Rotary& rotary) const {
        rotary.low_frequency_factor = file_.number(rope, "low_freq_factor");
        rotary.high_frequency_factor = file_.number(rope, "high_freq_factor");
        if (!(rotary.high_frequency_factor > rotary.low_frequency_factor))
            throw UserError(fmt::format("{}: high_freq_factor {} must be above low_freq_factor {}",
                                        file_.source(), rotary.high_frequency_factor,
                                        rotary.low_frequency_factor));
    }

    void read_yarn(const Json& rope, const std::string& name, Rotary& rotary) const {
        rotary.high_frequency_factor = number(rope, "beta_fast", 32);
        rotary.low_frequency_factor = number(rope, "beta_slow", 1);
        if (rope.contains("truncate") && !rope["truncate"].is_boolean())
            throw UserError(fmt::format("{}: {}.truncate: expected true or false, found {}", file_.source(),
                                        name, json_excerpt(rope["truncate"])));
        rotary.truncated = rope.value("truncate", true);
        rotary.attention_factor = number(rope, "attention_factor", 0);
        if (rotary.attention_factor > 0 || !is(rope, "mscale") || !is(rope, "mscale_all_dim")) return;
        const auto scale = [&](const char* key) {
            const double log = rotary.factor > 1 ? std::log(rotary.factor) : 0;
            return 0.1 * file_.number(rope, key) * log + 1;
        };
        rotary.attention_factor = scale("mscale") / scale("mscale_all_dim");
    }

    void read_longrope(const Json& rope, const std::string& name, Rotary& rotary) const {
        const auto pairs = static_cast<std::size_t>(turning_elements(rotary, parts_.head_size) / 2);
        const auto factors = [&](const char* key) {
            const Json& list = require_member(rope, key, file_.source(), name);
            if (!list.is_array() || list.size() != pairs ||
                !std::ranges::all_of(list, [](const Json& x) { return x.is_number() && x > 0.0; }))
                throw UserError(fmt::format("{}: {}.{}: expected {} numbers above 0, found {}",
                                            file_.source(), name, key, pairs, json_excerpt(list)));
            return list.get<std::vector<double>>();
        };
        rotary.short_factors = factors("short_factor");
        rotary.long_factors = factors("long_factor");
        rotary.attention_factor = number(rope, "attention_factor", 0);
    }

    const ConfigFile& file_;
    const DecoderFamily& family_;
    const Decoder& parts_;
};

bool by_layers(const Json& rope) {
    return rope.is_object() && (rope.contains(full_layers) || rope.contains(windowed_layers));
}

nlohmann::ordered_json rotary_json(const Rotary& rotary) {
    const auto kind = std::ranges::find(kind_names(), rotary.kind, &KindName::kind);
    nlohmann::ordered_json json = {{"rope_type", kind->name}};
    const auto add = [&](std::string_view key, auto value) {
        if (std::ranges::find(kind->keys, key) != kind->keys.end()) json[std::string(key)] = value;
    };
    add("factor", rotary.factor);
    add("low_freq_factor", rotary.low_frequency_factor);
    add("high_freq_factor", rotary.high_frequency_factor);
    if (rotary.kind != Kind::dynamic) add("original_max_position_embeddings", rotary.original_context);
    add("beta_fast", rotary.high_frequency_factor);
    add("beta_slow", rotary.low_frequency_factor);
    if (!rotary.truncated) add("truncate", false);
    if (rotary.attention_factor > 0) add("attention_factor", rotary.attention_factor);
    add("short_factor", rotary.short_factors);
    add("long_factor", rotary.long_factors);
    return json;
}

}  // namespace

bool is_rotary_key(const DecoderFamily& family, std::string_view key) {
    if (family.parts.learned_positions) return false;
    return key == family.theta_key || key == family.part_key || key == "rope_scaling" ||
           key == "rope_parameters" || (family.parts.rotary_of_windows && key == "rope_local_base_freq");
}

void read_rotary(const ConfigFile& file, const DecoderFamily& family, Decoder& parts) {
    if (parts.learned_positions) return;
    const RotaryReader reader(file, family, parts);
    const auto outside = [&](std::string_view key, double absent) {
        return file.given(key) ? file.number(key) : absent;
    };
    parts.rotary.theta = outside(family.theta_key, parts.rotary.theta);
    parts.rotary.part = outside(family.part_key, parts.rotary.part);
    if (parts.rotary_of_windows)
        parts.rotary_of_windows->theta = outside("rope_local_base_freq", parts.rotary_of_windows->theta);
    const auto read = [&](const char* member) {
        if (!file.given(member) || file.root()[member].empty()) return false;
        const Json& rope = file.root()[member];
        if (parts.rotary_of_windows && member == std::string_view("rope_parameters") && !by_layers(rope))
            file.refuse(member, "expected one of \"full_attention\" and one of \"sliding_attention\"");
        if (!parts.rotary_of_windows || !by_layers(rope)) {
            parts.rotary = reader.read(rope, member, parts.rotary);
            return true;
        }
        for (const auto& [key, value] : rope.items()) {
            Rotary& rotary = key == windowed_layers ? *parts.rotary_of_windows : parts.rotary;
            if (key != full_layers && key != windowed_layers)
                file.refuse(member, "layers of a kind that is not known");
            if (!value.is_null()) rotary = reader.read(value, fmt::format("{}.{}", member, key), rotary);
        }
        return true;
    };
    // As in transformers: rope_scaling, the older key, has precedence; with objects for each kind of layer,
    // it is for the full layers.
    if (parts.rotary_of_windows) {
        read("rope_parameters");
        read("rope_scaling");
    } else if (!read("rope_scaling")) {
        read("rope_parameters");
    }
    for (const Rotary* rotary :
         {&parts.rotary, parts.rotary_of_windows ? &*parts.rotary_of_windows : nullptr})
        if (rotary && !family.turns_parts && rotary->part != 1)
            throw UserError(fmt::format("{}: {} is {}, only 1.0 can be run", file.source(), family.part_key,
                                        rotary->part));
    // Longer texts need the long factors, which depend on the text's length.
    if (parts.rotary.kind == Kind::longrope) {
        parts.rotary.stretched_context = parts.context;
        parts.context = std::min(parts.context, parts.rotary.original_context);
    }
}

void write_rotary(const DecoderFamily& family, const Decoder& parts, nlohmann::ordered_json& config) {
    if (parts.learned_positions) return;
    const Rotary& rotary = parts.rotary;
    const auto whole = [&](const Rotary& of) {
        nlohmann::ordered_json json = rotary_json(of);
        json["rope_theta"] = of.theta;
        if (family.turns_parts) json["partial_rotary_factor"] = of.part;
        return json;
    };
    // transformers 4 reads theta, the part and rope_scaling, transformers 5 rope_parameters.
    config[std::string(family.theta_key)] = rotary.theta;
    if (family.turns_parts) config[std::string(family.part_key)] = rotary.part;
    if (rotary.kind != Kind::plain) config["rope_scaling"] = rotary_json(rotary);
    config["rope_parameters"] = whole(rotary);
    if (rotary.kind == Kind::longrope) config["max_position_embeddings"] = rotary.stretched_context;
    if (!parts.rotary_of_windows) return;
    config["rope_local_base_freq"] = parts.rotary_of_windows->theta;
    config["rope_parameters"] = {{std::string(full_layers), whole(rotary)},
                                 {std::string(windowed_layers), whole(*parts.rotary_of_windows)}};
}

}  // namespace mantissa::nn
