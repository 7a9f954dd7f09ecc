#include "mantissa/train/model_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "mantissa/base/atomic_file.h"
#include "mantissa/base/error.h"
#include "mantissa/formats/hf_gpt2.h"
#include "mantissa/formats/strict_json.h"

namespace mantissa {

namespace {

namespace fs = std::filesystem;

bool holds(const fs::path& directory, const char* name) { return fs::exists(directory / name); }

/// The members of config.json by which a GPT-2 may differ from what this project computes.
void require_known_kind(const nlohmann::json& config, const std::string& source) {
    const std::pair<const char*, nlohmann::json> expected[] = {{"model_type", "gpt2"},
                                                               {"activation_function", "gelu_new"},
                                                               {"layer_norm_epsilon", 1e-5},
                                                               {"scale_attn_weights", true},
                                                               {"scale_attn_by_inverse_layer_idx", false}};
    for (const auto& [name, value] : expected)
        if (config.contains(name) && config[name] != value)
            throw UserError(fmt::format("{}: {} is {}, only {} can be run", source, name,
                                        json_excerpt(config[name]), value.dump()));
}

/// A published model of these sizes, or none.
std::optional<nn::Gpt2Config> published(const Gpt2Sizes& sizes) {
    for (const std::string& name : nn::gpt2_names()) {
        const nn::Gpt2Config config = nn::gpt2_config(name);
        if (sizes == Gpt2Sizes{config.layers, config.channels, config.context, config.vocabulary})
            return config;
    }
    return {};
}

nn::Gpt2Config model_of(const Gpt2Sizes& sizes, const fs::path& directory) {
    const std::optional<nn::Gpt2Config> known = published(sizes);
    const fs::path path = directory / "config.json";
    if (!fs::exists(path)) {
        if (known) return *known;
        throw UserError(
            fmt::format("{}: is missing, and only it says how many heads this model has", path.string()));
    }
    const nlohmann::json config = parse_strict_json(MappedFile(path).text(), path.string());
    require_known_kind(config, path.string());
    const auto heads = static_cast<std::int64_t>(require_unsigned(
        require_member(config, "n_head", path.string(), "a GPT-2"), path.string(), "n_head"));
    if (heads < 1 || sizes.channels % heads != 0)
        throw UserError(fmt::format("{}: {} channels cannot be shared by {} heads", path.string(),
                                    sizes.channels, heads));
    if (known && known->heads == heads) return *known;
    return {.name = directory.filename().string(),
            .layers = sizes.layers,
            .heads = heads,
            .channels = sizes.channels,
            .vocabulary = sizes.vocabulary,
            .context = sizes.context};
}

}  // namespace

ModelFile::ModelFile(const fs::path& directory) : directory_(directory) {
    if (holds(directory, "manifest.json") ||
        (!fs::exists(directory) && fs::exists(AtomicDirectory::previous_of(directory)))) {
        checkpoint_ = load_checkpoint(directory);
        directory_ = checkpoint_->directory;
    } else {
        if (!fs::exists(directory)) throw UserError(directory.string() + ": does not exist");
        if (!holds(directory, "model.safetensors") && !holds(directory, "model.safetensors.index.json"))
            throw UserError(
                fmt::format("{}: holds no model: expected a checkpoint that train wrote, or "
                            "model.safetensors with its config.json",
                            directory.string()));
        file_.emplace(directory);
    }
    model_ = model_of(gpt2_sizes_of(views(), source()), directory_);
}

std::vector<TensorView> ModelFile::views() const {
    return checkpoint_ ? checkpoint_->model.views() : file_->views();
}

std::string ModelFile::source() const {
    return checkpoint_ ? checkpoint_->model.path().string() : file_->source();
}

void ModelFile::load(StateBlock& state) const {
    std::vector<std::vector<std::byte>> values;
    std::vector<MutableTensorView> parameters;
    for (const State& each : state.states()) {
        if (each.kind != State::Kind::parameter) continue;
        values.emplace_back(static_cast<std::size_t>(each.type.bytes()));
        parameters.push_back({each.name, each.type.dtype, each.type.shape.extents(), values.back().data()});
    }
    import_hf_gpt2(views(), parameters, source());
    for (std::size_t i = 0; i < parameters.size(); ++i) state.write(parameters[i].name, values[i]);
}

}  // namespace mantissa
