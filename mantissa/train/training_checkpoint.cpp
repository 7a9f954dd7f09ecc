#include "mantissa/train/training_checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "mantissa/base/atomic_file.h"
#include "mantissa/base/error.h"
#include "mantissa/formats/hf_gpt2.h"
#include "mantissa/formats/strict_json.h"
#include "mantissa/train/checkpoint.h"

namespace mantissa {

namespace {

/// States of one kind, copied to the host, as file formats see them. Gradients that are added up are not
/// among what is saved: between steps, the only time when a run is saved, they are zero.
struct HostCopies {
    std::vector<std::vector<std::byte>> bytes;
    std::vector<TensorView> views;

    HostCopies(const StateBlock& block, State::Kind kind) {
        for (const State& state : block.states()) {
            if (state.kind != kind) continue;
            bytes.push_back(block.read(state.name));
            views.push_back({state.name, state.type.dtype, state.type.shape.extents(), bytes.back().data()});
        }
    }
};

/// What the scale of the next step follows from, besides the states `loss_scale.*`.
nlohmann::ordered_json loss_scale_configuration(const LossScaleOptions& options) {
    switch (options.kind) {
        case LossScaleOptions::Kind::none:
            return "none";
        case LossScaleOptions::Kind::fixed:
            return options.initial;
        case LossScaleOptions::Kind::dynamic:
            break;
    }
    return {{"growth_factor", options.growth},
            {"backoff_factor", options.backoff},
            {"growth_interval", options.interval},
            {"floor", options.floor}};
}

nlohmann::ordered_json configuration_of(const Optimizer& optimizer) {
    nlohmann::ordered_json settings;
    for (const Setting& setting : optimizer.configuration)
        std::visit([&](const auto& value) { settings[setting.name] = value; }, setting.value);
    settings["clip"] = optimizer.clip;
    return settings;
}

/// All that must be equal for a run to go on as it would have.
nlohmann::ordered_json configuration_of(const TrainerOptions& options) {
    return {{"model", options.model.name},
            {"dropout", options.model.dropout},
            {"policy", options.pipeline.policy.name},
            {"loss_scale", loss_scale_configuration(options.loss_scale)},
            {"batch", options.batch},
            {"sequence", options.sequence},
            {"accumulate", options.accumulate},
            {"seed", options.seed},
            {options.optimizer.name, configuration_of(options.optimizer)}};
}

/// Names the first difference in our order: another policy, not the loss scale that comes with it.
void require_same_configuration(const nlohmann::json& saved, const nlohmann::ordered_json& ours,
                                const std::string& source) {
    for (const auto& [name, value] : ours.items())
        if (!saved.contains(name) || saved[name] != nlohmann::json(value))
            throw UserError(fmt::format(
                "{}: it was trained with {} = {}, this run has {}; give the same options to resume", source,
                name, saved.contains(name) ? saved[name].dump() : "nothing", value.dump()));
}

/// What rounds the same numbers otherwise: where it differs, the run goes on, but not to the same bits.
nlohmann::ordered_json roundings_of(const Trainer& trainer) {
    const PipelineOptions& pipeline = trainer.options().pipeline;
    std::vector<std::string> passes = chosen_passes(pipeline);
    std::erase(passes, "lay_out");  // moves numbers and rounds none
    return {{"instructions", trainer.plan().device().target().isa},
            {"passes", passes},
            {"recompute", pipeline.recompute}};
}

/// What of a member of the state differs from ours, in words. Empty if all is the same, or not known: earlier
/// checkpoints do not have every member.
std::string differences(const nlohmann::json& state, const char* member, const nlohmann::json& ours) {
    std::string text;
    if (!state.contains(member)) return text;
    for (const auto& [name, value] : ours.items())
        if (const nlohmann::json saved = state[member].value(name, nlohmann::json()); saved != value)
            text += fmt::format("{}{} = {}, this run has {}", text.empty() ? "" : "; ", name, saved.dump(),
                                value.dump());
    return text;
}

std::vector<std::string> warn_of_differences(const nlohmann::json& state, const nlohmann::json& roundings,
                                             const nlohmann::json& inputs, const std::string& source) {
    std::vector<std::string> warnings;
    if (const std::string other = differences(state, "roundings", roundings); !other.empty())
        warnings.push_back(fmt::format(
            "{}: it was trained with {}; losses follow those of one run within roundings, not to the bit",
            source, other));
    if (const std::string other = differences(state, "inputs", inputs); !other.empty())
        warnings.push_back(
            fmt::format("{}: it was trained with {}; it goes on with what this run has, so it is not the "
                        "run that it would have been",
                        source, other));
    return warnings;
}

/// Copies of the checkpoint's values by state, checked before anything is written to the trainer.
using Values = std::map<std::string, std::vector<std::byte>>;

std::vector<MutableTensorView> room_for(const StateBlock& block, State::Kind kind, Values& values) {
    std::vector<MutableTensorView> views;
    for (const State& state : block.states()) {
        if (state.kind != kind) continue;
        std::vector<std::byte>& value = values[state.name];
        value.resize(static_cast<std::size_t>(state.type.bytes()));
        views.push_back({state.name, state.type.dtype, state.type.shape.extents(), value.data()});
    }
    return views;
}

void copy_optimizer(const SafetensorsFile& file, const std::vector<MutableTensorView>& states) {
    const std::vector<TensorView> saved = file.views();
    for (const MutableTensorView& state : states) {
        const auto found = std::find_if(saved.begin(), saved.end(),
                                        [&](const TensorView& t) { return t.name == state.name; });
        if (found == saved.end() || found->dtype != state.dtype || found->shape != state.shape)
            throw UserError(fmt::format("{}: tensor '{}' is missing or is not {}{}", file.path().string(),
                                        state.name, name_of(state.dtype), shape_text(state.shape)));
        std::memcpy(state.data, found->data, byte_count(state.dtype, state.shape));
    }
}

}  // namespace

void require_room_for_checkpoint(const std::filesystem::path& directory, const Trainer& trainer) {
    require_checkpoint_place(directory);
    std::uint64_t bytes = 0;
    for (const State& state : trainer.plan().graph().states())
        if (state.kind == State::Kind::parameter || state.kind == State::Kind::optimizer)
            bytes += static_cast<std::uint64_t>(state.type.bytes());
    const AtomicDirectory probe(directory, bytes);  // is removed again, since nothing commits it
}

void save_training(const std::filesystem::path& directory, Trainer& trainer, const RunInputs& inputs) {
    const HostCopies parameters(trainer.state(), State::Kind::parameter),
        moments(trainer.state(), State::Kind::optimizer);
    std::vector<TensorToWrite> optimizer;
    for (const TensorView& view : moments.views) optimizer.push_back({view});
    nlohmann::ordered_json state = {{"step", trainer.steps_done()},
                                    {"configuration", configuration_of(trainer.options())},
                                    {"roundings", roundings_of(trainer)},
                                    {"inputs", inputs}};
    const std::vector<TensorToWrite> model = export_hf_gpt2(parameters.views);
    const nn::Gpt2Config& config = trainer.options().model;
    const Gpt2Sizes sizes{.layers = config.layers,
                          .channels = config.channels,
                          .context = config.context,
                          .vocabulary = config.vocabulary};
    save_checkpoint(directory,
                    {.model = model,
                     .optimizer = optimizer,
                     .texts = {{"state.json", state.dump(2) + "\n"},
                               // GPT-2's last token is <|endoftext|>.
                               {"config.json", hf_gpt2_config(sizes, config.heads, config.vocabulary - 1)}}});
}

std::string resume_training(const std::filesystem::path& directory, Trainer& trainer,
                            const RunInputs& inputs) {
    const LoadedCheckpoint loaded = load_checkpoint(directory);
    const std::string source = (loaded.directory / "state.json").string();
    const nlohmann::json state = parse_strict_json(loaded.texts.at("state.json"), source);
    require_same_configuration(require_member(state, "configuration", source, "the state of the run"),
                               configuration_of(trainer.options()), source);
    const std::uint64_t step =
        require_unsigned(require_member(state, "step", source, "the state of the run"), source, "step");
    Values values;
    const auto parameters = room_for(trainer.state(), State::Kind::parameter, values);
    const auto optimizer = room_for(trainer.state(), State::Kind::optimizer, values);
    import_hf_gpt2(loaded.model.views(), parameters, loaded.model.path().string());
    copy_optimizer(loaded.optimizer, optimizer);
    for (const auto& [name, value] : values) trainer.state().write(name, value);
    trainer.continue_after(static_cast<std::int64_t>(step));
    std::vector<std::string> warnings = warn_of_differences(state, roundings_of(trainer), inputs, source);
    if (!loaded.warning.empty()) warnings.insert(warnings.begin(), loaded.warning);
    return fmt::format("{}", fmt::join(warnings, "; "));
}

}  // namespace mantissa
