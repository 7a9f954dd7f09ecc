// config.json by the keys of a family's row: read into parts of a network, and written from them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "mantissa/base/error.h"
#include "mantissa/formats/hf_config_keys.h"
#include "mantissa/formats/strict_json.h"
#include "mantissa/nn/decoder/family.h"
#include "mantissa/nn/decoder/rotary_config.h"

namespace mantissa::inline v0::nn {

namespace {

using Json = nlohmann::json;
using Absent = ConfigKey::Absent;

/// Names of activations; the first of each is written.
struct ActivationName {
    std::string_view name;
    Activation activation;
};
constexpr ActivationName activation_names[] = {
    {"silu", Activation::silu},          {"swish", Activation::silu},
    {"gelu", Activation::gelu},          {"gelu_pytorch_tanh", Activation::gelu_tanh},
    {"gelu_new", Activation::gelu_tanh}, {"relu", Activation::relu}};

/// "a llama", "an opt".
std::string one_of(std::string_view family) {
    const bool vowel = std::string_view("aeiou").find(family.front()) != std::string_view::npos;
    return fmt::format("{} {}", vowel ? "an" : "a", family);
}

}  // namespace

bool ConfigFile::has(std::string_view name) const { return root_.contains(std::string(name)); }
bool ConfigFile::given(std::string_view name) const {
    return has(name) && !root_[std::string(name)].is_null();
}

std::int64_t ConfigFile::integer(std::string_view name) const {
    const Json& value = require_member(root_, name, source_, one_of(family_) + "'s configuration");
    const std::uint64_t read = require_unsigned(value, source_, name);
    if (read > (std::uint64_t{1} << 62)) refuse(name, "which is no size");
    return static_cast<std::int64_t>(read);
}

double ConfigFile::number(const Json& object, std::string_view name) const {
    const Json& value = require_member(
        object, name, source_, &object == &root_ ? one_of(family_) + "'s configuration" : "rotary positions");
    if (!value.is_number() || !(value.get<double>() > 0))
        throw UserError(
            fmt::format("{}: {}: expected a number above 0, found {}", source_, name, json_excerpt(value)));
    return value.get<double>();
}

bool ConfigFile::flag(std::string_view name, bool absent) const {
    if (!given(name)) return absent;
    const Json& value = root_[std::string(name)];
    if (!value.is_boolean())
        throw UserError(
            fmt::format("{}: {}: expected true or false, found {}", source_, name, json_excerpt(value)));
    return value.get<bool>();
}

const Json& ConfigFile::of_layers(std::string_view name, std::int64_t layers) const {
    const Json& list = root_[std::string(name)];
    if (!list.is_array() || std::ssize(list) != layers)
        throw UserError(fmt::format("{}: {}: expected a list of {} layers, found {}", source_, name, layers,
                                    json_excerpt(list)));
    return list;
}

void ConfigFile::refuse(std::string_view name, std::string_view why) const {
    throw UserError(
        fmt::format("{}: {} is {}, {}", source_, name, json_excerpt(root_[std::string(name)]), why));
}

namespace {

/// One key of a row, read into the parts.
class KeyReader {
  public:
    KeyReader(const ConfigFile& file, const ConfigKey& key, Decoder& parts)
        : file_(file), key_(key), parts_(parts) {}

    void operator()(std::int64_t Decoder::*size) const {
        if (!takes(size)) return;
        parts_.*size = file_.integer(key_.name);
        if (parts_.*size == 0 && key_.absent == Absent::none)
            throw UserError(fmt::format("{}: {} is 0; without one it is null", file_.source(), key_.name));
    }
    void operator()(double Decoder::*number) const {
        if (takes(number)) parts_.*number = file_.number(key_.name);
    }
    void operator()(const ConfigKey::Flags& flags) const {
        for (bool Decoder::*flag : flags) parts_.*flag = file_.flag(key_.name, parts_.*flag);
    }
    void operator()(Activation Decoder::*activation) const {
        if (!file_.given(key_.name)) return;
        for (const ActivationName& known : activation_names) {
            if (file_.root()[std::string(key_.name)] != known.name) continue;
            parts_.*activation = known.activation;
            return;
        }
        std::vector<std::string> names;
        for (const ActivationName& known : activation_names)
            names.push_back(fmt::format("\"{}\"", known.name));
        file_.refuse(key_.name, fmt::format("only {} can be run", fmt::join(names, ", ")));
    }
    void operator()(const ConfigKey::Held& held) const {
        if (file_.given(key_.name) && file_.root()[std::string(key_.name)] != Json::parse(held.json))
            file_.refuse(key_.name, fmt::format("only {} can be run", held.json));
    }
    void operator()(const ConfigKey::NoEffect&) const {}
    void operator()(const ConfigKey::Dropout&) const {}

  private:
    /// Whether the file has the number.
    template <class Number>
    bool takes(Number Decoder::*number) const {
        if (key_.absent == Absent::none && file_.has(key_.name) && !file_.given(key_.name))
            parts_.*number = 0;
        return key_.absent == Absent::refused || file_.given(key_.name);
    }

    const ConfigFile& file_;
    const ConfigKey& key_;
    Decoder& parts_;
};

class KeyWriter {
  public:
    KeyWriter(const Decoder& parts, const ConfigKey& key, nlohmann::ordered_json& config)
        : parts_(parts), key_(key), config_(config) {}

    void operator()(std::int64_t Decoder::*size) const { write_number(parts_.*size); }
    void operator()(double Decoder::*number) const { write_number(parts_.*number); }
    void operator()(const ConfigKey::Flags& flags) const { member() = parts_.*flags.front(); }
    void operator()(Activation Decoder::*activation) const {
        member() = std::ranges::find(activation_names, parts_.*activation, &ActivationName::activation)->name;
    }
    void operator()(const ConfigKey::Held& held) const {
        member() = nlohmann::ordered_json::parse(held.json);
    }
    void operator()(const ConfigKey::NoEffect&) const {}
    void operator()(const ConfigKey::Dropout&) const {}

  private:
    nlohmann::ordered_json& member() const { return config_[std::string(key_.name)]; }
    template <class Number>
    void write_number(Number number) const {
        if (key_.absent == Absent::none && number == 0)
            member() = nullptr;
        else
            member() = number;
    }

    const Decoder& parts_;
    const ConfigKey& key_;
    nlohmann::ordered_json& config_;
};

constexpr std::string_view layer_types = "layer_types";

/// Reads layer_types, the layers with the window. Otherwise the row's `read` has set them, or all have it.
void read_layer_types(const ConfigFile& file, LayerTypes meaning, Decoder& parts) {
    if (!file.given(layer_types)) return;
    parts.windowed.clear();
    std::set<std::string> unknown;
    for (const Json& type : file.of_layers(layer_types, parts.layers)) {
        parts.windowed.push_back(type == "sliding_attention");
        if (type != "full_attention" && type != "sliding_attention") unknown.insert(json_excerpt(type));
    }
    if (!unknown.empty())
        throw UserError(
            fmt::format("{}: layer_types has {}; known are \"full_attention\" and "
                        "\"sliding_attention\"",
                        file.source(), fmt::join(unknown, " and ")));
    if (std::ranges::count(parts.windowed, true) > 0 && parts.window == 0)
        throw UserError(fmt::format(
            "{}: layer_types has \"sliding_attention\", but the model has no sliding_window that counts",
            file.source()));
    if (meaning == LayerTypes::ignored && parts.window > 0 && std::ranges::count(parts.windowed, false) > 0)
        throw UserError(
            fmt::format("{}: layer_types has \"full_attention\", but all layers of {} have the window; "
                        "remove layer_types",
                        file.source(), one_of(file.family())));
}

/// Makes the description unique: no window if no layer has it, no list if all have it.
void shorten_windows(Decoder& parts) {
    if (std::ranges::count(parts.windowed, true) == 0 && !parts.windowed.empty()) parts.window = 0;
    if (parts.window == 0 || std::ranges::count(parts.windowed, false) == 0) parts.windowed.clear();
    if (std::ranges::count(parts.turned, false) == 0) parts.turned.clear();
}

Decoder read_parts(const ConfigFile& file, const DecoderFamily& family) {
    Decoder parts = family.parts;
    std::vector<std::string_view> known = family.own_keys;
    known.push_back(layer_types);
    for (const ConfigKey& key : family.keys) {
        known.push_back(key.name);
        std::visit(KeyReader(file, key, parts), key.of);
    }
    for (const auto& [key, value] : file.root().items())
        if (is_rotary_key(family, key)) known.push_back(key);
    require_known_keys(file.root(), known, file.source());
    if (parts.key_heads == 0) parts.key_heads = parts.heads;
    if (parts.head_size == 0) {
        if (parts.heads < 1 || parts.channels % parts.heads != 0)
            throw UserError(fmt::format("{}: {} channels cannot be shared by {} heads{}", file.source(),
                                        parts.channels, parts.heads,
                                        family.chosen_parts ? "" : ", and head_dim is not given"));
        parts.head_size = parts.channels / parts.heads;
    }
    if (family.read) family.read(file, parts);
    read_layer_types(file, family.layer_types, parts);
    shorten_windows(parts);
    read_rotary(file, family, parts);
    return parts;
}

}  // namespace

const DecoderFamily& family_in(const Json& root, const std::string& source) {
    const Json& type = require_member(root, "model_type", source, "a model's configuration");
    std::vector<std::string> types;
    for (const DecoderFamily* family : decoder_families()) {
        if (type == family->model_type) return *family;
        types.push_back(fmt::format("\"{}\"", family->model_type));
    }
    throw UserError(
        fmt::format("{}: model_type is {}; known are {}. In Python mantissa.torch.trainer trains the PyTorch "
                    "module of most other families as it is",
                    source, json_excerpt(type), fmt::join(types, ", ")));
}

void take_own_names(Json& root, const DecoderFamily& family, const std::string& source) {
    for (const auto& [theirs, name] : family.other_names) {
        const std::string other(theirs), own(name);
        if (!root.contains(other)) continue;
        if (root.contains(own) && root[own] != root[other])
            throw UserError(fmt::format("{}: {} is {}, and {}, which is the same, {}", source, own,
                                        json_excerpt(root[own]), other, json_excerpt(root[other])));
        root[own] = root[other];
        root.erase(other);
    }
}

std::vector<ConfigKey> common_keys(std::vector<ConfigKey> own) {
    std::vector<ConfigKey> keys = {{"vocab_size", &Decoder::vocabulary, Absent::refused},
                                   {"max_position_embeddings", &Decoder::context},
                                   {"hidden_size", &Decoder::channels, Absent::refused},
                                   {"intermediate_size", &Decoder::hidden, Absent::refused},
                                   {"num_hidden_layers", &Decoder::layers, Absent::refused},
                                   {"num_attention_heads", &Decoder::heads, Absent::refused},
                                   {"tie_word_embeddings", ConfigKey::Flags{&Decoder::tied}}};
    for (ConfigKey& key : own) {
        std::erase_if(keys, [&](const ConfigKey& common) { return common.name == key.name; });
        keys.push_back(std::move(key));
    }
    return keys;
}

std::vector<std::string_view> dropout_keys(const DecoderFamily& family) {
    std::vector<std::string_view> names;
    for (const ConfigKey& key : family.keys)
        if (std::holds_alternative<ConfigKey::Dropout>(key.of)) names.push_back(key.name);
    return names;
}

DecoderConfig read_decoder_config(std::string_view text, const std::string& source) {
    return decoder_config_from(parse_strict_json(text, source), source);
}

DecoderConfig decoder_config_from(Json root, const std::string& source) {
    const DecoderFamily& family = family_in(root, source);
    take_own_names(root, family, source);
    return {.name = std::string(family.model_type),
            .parts = read_parts(ConfigFile(root, source, family.model_type), family),
            .family = &family};
}

std::string decoder_config_text(const DecoderConfig& config) {
    const DecoderFamily& family = *config.family;
    const Decoder& parts = config.parts;
    nlohmann::ordered_json json = {{"architectures", {family.architecture}},
                                   {"model_type", family.model_type}};
    for (const ConfigKey& key : family.keys) std::visit(KeyWriter(parts, key, json), key.of);
    write_rotary(family, parts, json);
    if (family.layer_types == LayerTypes::needed || !parts.windowed.empty()) {
        nlohmann::ordered_json& types = json[std::string(layer_types)] = nlohmann::ordered_json::array();
        for (std::int64_t layer = 0; layer < parts.layers; ++layer)
            types.push_back(parts.has_window(layer) ? "sliding_attention" : "full_attention");
    }
    if (family.write) family.write(parts, json);
    json["bos_token_id"] = nullptr;
    json["eos_token_id"] = nullptr;
    json["pad_token_id"] = nullptr;  // the library's default may exceed the vocabulary
    json["torch_dtype"] = "float32";
    return json.dump(2) + "\n";
}

namespace {

bool is_no_parameter(std::string_view name) {
    return name.ends_with(".rotary_emb.inv_freq") || name.ends_with(".attention.bias") ||
           name.ends_with(".attention.masked_bias");
}

}  // namespace

WeightFiles decoder_files(const DecoderConfig& config) {
    const DecoderNames& names = config.family->names;
    WeightFiles files{.kind = one_of(config.family->model_type) + " checkpoint", .ignored = is_no_parameter};
    if (config.family->files)
        files = config.family->files();
    else if (config.parts.tied)
        files.tied = {
            {fmt::format("{}.weight", names.head), fmt::format("{}.{}.weight", names.body, names.embedding)}};
    files.texts["config.json"] = decoder_config_text(config);
    return files;
}

}  // namespace mantissa::nn
