#include "mantissa/train/model_file.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "mantissa/base/atomic_file.h"
#include "mantissa/base/error.h"
#include "mantissa/data/text_reading.h"
#include "mantissa/formats/safetensors.h"
#include "mantissa/formats/strict_json.h"
#include "mantissa/formats/weight_files.h"
#include "mantissa/graph/graph.h"
#include "mantissa/nn/language_model_files.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/adapter_files.h"
#include "mantissa/train/state_tensors.h"
#include "mantissa/train/training_checkpoint.h"

namespace mantissa::inline v0 {

namespace {

namespace fs = std::filesystem;

bool holds(const fs::path& directory, const char* name) { return fs::exists(directory / name); }

}  // namespace

ModelFile::ModelFile(const fs::path& directory, double dropout) : directory_(directory) {
    if (holds_adapters_alone(directory))
        throw UsageError(fmt::format(
            "{}: holds adapters alone; give the model that they are for, and this folder as `adapter`",
            directory.string()));
    if (const std::string version = saved_over_by_transformers(directory); !version.empty()) {
        saved_over_ =
            fmt::format("{}: transformers {} has saved a model over this checkpoint, whose weights are taken",
                        directory.string(), version);
        file_.emplace(directory);
    } else if (holds(directory, "manifest.json") || holds(directory, "state.json") ||
               (!fs::exists(directory) && fs::exists(AtomicDirectory::previous_of(directory)))) {
        checkpoint_ = load_checkpoint(directory, CheckpointUse::weights);
        directory_ = checkpoint_->directory;
        const std::string file = (directory_ / "state.json").string();
        const nlohmann::json state = parse_strict_json(checkpoint_->texts.at("state.json"), file);
        reading_ = reading_in(state, file);
        const nlohmann::json::json_pointer documents("/configuration/model/documents");
        if (state.contains(documents) && state[documents] == "packed") documents_ = nn::Documents::packed;
    } else {
        if (!fs::exists(directory)) throw UserError(directory.string() + ": does not exist");
        if (!fs::is_directory(directory))
            throw UserError(fmt::format("{}: is a file; give the folder that holds it with its config.json",
                                        directory.string()));
        if (!holds(directory, "model.safetensors") && !holds(directory, "model.safetensors.index.json")) {
            nn::require_known_family(directory);
            throw UserError(
                fmt::format("{}: holds no model: expected a checkpoint that train wrote, or "
                            "model.safetensors with its config.json",
                            directory.string()));
        }
        file_.emplace(directory);
    }
    model_ = nn::language_model_of(views(), source(), directory_, dropout);
    if (checkpoint_) model_.trained_on = longest_sequence_in(*checkpoint_);
}

std::vector<TensorView> ModelFile::views() const {
    return checkpoint_ ? checkpoint_->model.views() : file_->views();
}

std::string ModelFile::source() const {
    return checkpoint_ ? checkpoint_->model.path().string() : file_->source();
}

void ModelFile::adapt(const fs::path& adapters) {
    adapters_.emplace(adapters, nn::files_of(model_.on_sequences(1)));
}

void ModelFile::load(StateBlock& state) const {
    // The weights do not depend on the sequence length.
    const nn::Model model = model_.on_sequences(1);
    read_weights(views(), specs_of(state, is_own_weight), nn::files_of(model), source(),
                 [&](const TensorSpec& parameter, std::span<const std::byte> value) {
                     state.write(parameter.name, value);
                     checkpoint_ ? checkpoint_->model.release() : file_->release();
                 });
    if (adapters_) adapters_->merge(state);
}

UnfitWeights load_weights(const nn::Model& model, const std::filesystem::path& path, StateBlock& state,
                          Match match) {
    const SafetensorsModel file(path);
    const std::vector<TensorView> views = file.views();
    return read_weights(
        views, specs_of(state, is_own_weight), nn::files_of(model), file.source(),
        [&](const TensorSpec& spec, std::span<const std::byte> value) {
            state.write(spec.name, value);
            file.release();
        },
        match);
}

void save_weights(const nn::Model& model, const StateBlock& state, const std::filesystem::path& path) {
    const std::vector<TensorToWrite> stored =
        stored_weights(tensors_of(state, is_weight), nn::files_of(model));
    write_safetensors(path, std::span<const TensorToWrite>(stored), {{"format", "pt"}});
}

}  // namespace mantissa
