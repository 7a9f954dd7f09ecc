#include "mantissa/train/training_checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "mantissa/base/atomic_file.h"
#include "mantissa/base/error.h"
#include "mantissa/formats/strict_json.h"
#include "mantissa/formats/weight_files.h"
#include "mantissa/train/checkpoint.h"

namespace mantissa::inline v0 {

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

nlohmann::ordered_json as_json(const Configuration& configuration) {
    nlohmann::ordered_json json = nlohmann::ordered_json::object();
    for (const Setting& setting : configuration)
        std::visit([&](const auto& value) { json[setting.name] = value; }, setting.value);
    return json;
}

/// All that must be equal for a run to go on as it would have.
nlohmann::ordered_json configuration_of(const TrainingPlan& plan) {
    const TrainerOptions& options = plan.options();
    nlohmann::ordered_json optimizer = as_json(options.optimizer.configuration);
    optimizer["clip"] = options.optimizer.clip;
    return {{"model", as_json(plan.model().configuration)},
            {"policy", options.pipeline.policy.name},
            {"loss_scale", loss_scale_configuration(options.loss_scale)},
            {"batch", options.batch},
            {"accumulate", options.accumulate},
            {"seed", options.seed},
            {options.optimizer.name, optimizer}};
}

/// The members of both, those of an object under the object's name: "model.heads = 4, this run has 2".
void add_differences(const std::string& name, const nlohmann::json& saved, const nlohmann::json& ours,
                     std::vector<std::string>& differences) {
    if (saved == ours) return;
    if (!saved.is_object() || !ours.is_object()) {
        const auto text = [](const nlohmann::json& value) {
            return value.is_null() ? std::string("nothing") : value.dump();
        };
        differences.push_back(fmt::format("{} = {}, this run has {}", name, text(saved), text(ours)));
        return;
    }
    std::set<std::string> members;
    for (const nlohmann::json* object : {&saved, &ours})
        for (const auto& [member, value] : object->items()) members.insert(member);
    for (const std::string& member : members)
        add_differences(name.empty() ? member : name + "." + member, saved.value(member, nlohmann::json()),
                        ours.value(member, nlohmann::json()), differences);
}

/// Checkpoints of version 0.1 before models were values have the name of a GPT-2 there, its dropout and its
/// sequence; what else it is, the shapes of its parameters hold.
nlohmann::json with_model_of(nlohmann::json saved, const nlohmann::json& ours) {
    if (!saved.contains("model") || !saved["model"].is_string()) return saved;
    nlohmann::json model = ours["model"];
    for (const char* member : {"dropout", "sequence"}) {
        model[member] = saved.value(member, nlohmann::json());
        saved.erase(member);
    }
    saved["model"] = model;
    return saved;
}

void require_same_configuration(const nlohmann::json& saved, const nlohmann::json& ours,
                                const std::string& source) {
    std::vector<std::string> differences;
    add_differences("", with_model_of(saved, ours), ours, differences);
    if (!differences.empty())
        throw UserError(fmt::format("{}: it was trained with {}; give the same options to resume", source,
                                    fmt::join(differences, "; ")));
}

/// What rounds the same numbers otherwise: where it differs, the run goes on, but not to the same bits.
nlohmann::ordered_json roundings_of(const TrainingPlan& plan) {
    const PipelineOptions& pipeline = plan.options().pipeline;
    std::vector<std::string> passes = chosen_passes(pipeline);
    std::erase(passes, "lay_out");  // moves numbers and rounds none
    return {
        {"instructions", plan.device().target().isa}, {"passes", passes}, {"recompute", pipeline.recompute}};
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

void require_room_for_checkpoint(const std::filesystem::path& directory, const TrainingPlan& plan) {
    require_checkpoint_place(directory);
    std::uint64_t bytes = 0;
    for (const State& state : plan.step().graph().states())
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
                                    {"configuration", configuration_of(trainer.plan())},
                                    {"roundings", roundings_of(trainer.plan())},
                                    {"inputs", inputs}};
    const WeightFiles& files = trainer.model().files;
    const std::vector<TensorToWrite> model = stored_weights(parameters.views, files);
    std::map<std::string, std::string> texts = files.texts;
    texts["state.json"] = state.dump(2) + "\n";
    save_checkpoint(directory, {.model = model, .optimizer = optimizer, .texts = std::move(texts)});
}

std::string resume_training(const std::filesystem::path& directory, Trainer& trainer,
                            const RunInputs& inputs) {
    const LoadedCheckpoint loaded = load_checkpoint(directory);
    const std::string source = (loaded.directory / "state.json").string();
    const nlohmann::json state = parse_strict_json(loaded.texts.at("state.json"), source);
    require_same_configuration(require_member(state, "configuration", source, "the state of the run"),
                               configuration_of(trainer.plan()), source);
    const std::uint64_t step =
        require_unsigned(require_member(state, "step", source, "the state of the run"), source, "step");
    Values values;
    const auto parameters = room_for(trainer.state(), State::Kind::parameter, values);
    const auto optimizer = room_for(trainer.state(), State::Kind::optimizer, values);
    read_weights(loaded.model.views(), parameters, trainer.model().files, loaded.model.path().string());
    copy_optimizer(loaded.optimizer, optimizer);
    for (const auto& [name, value] : values) trainer.state().write(name, value);
    trainer.continue_after(static_cast<std::int64_t>(step));
    std::vector<std::string> warnings =
        warn_of_differences(state, roundings_of(trainer.plan()), inputs, source);
    if (!loaded.warning.empty()) warnings.insert(warnings.begin(), loaded.warning);
    return fmt::format("{}", fmt::join(warnings, "; "));
}

}  // namespace mantissa
