#include "mantissa/train/training_checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "mantissa/base/atomic_file.h"
#include "mantissa/base/error.h"
#include "mantissa/base/file.h"
#include "mantissa/formats/strict_json.h"
#include "mantissa/formats/weight_files.h"
#include "mantissa/train/checkpoint.h"
#include "mantissa/train/state_tensors.h"

namespace mantissa::inline v0 {

namespace {

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
            {"accumulate", options.micro_steps()},
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

/// What differs between the configuration that was saved and ours.
struct ConfigurationDifferences {
    std::vector<std::string> fixed;       ///< the model, and what only one of them has: another optimizer
    std::vector<std::string> changeable;  ///< numbers that a run may go on with, if it is meant

    ConfigurationDifferences(const nlohmann::json& of_checkpoint, const nlohmann::json& ours) {
        const nlohmann::json saved = with_model_of(of_checkpoint, ours);
        std::set<std::string> members;
        for (const nlohmann::json* object : {&saved, &ours})
            for (const auto& [member, value] : object->items()) members.insert(member);
        for (const std::string& member : members) {
            const bool both = saved.contains(member) && ours.contains(member);
            add_differences(member, saved.value(member, nlohmann::json()),
                            ours.value(member, nlohmann::json()),
                            both && member != "model" ? changeable : fixed);
        }
    }

    void require(Resume resume, const std::string& source) const {
        std::vector<std::string> wrong = fixed;
        if (resume == Resume::as_it_was) wrong.insert(wrong.end(), changeable.begin(), changeable.end());
        if (!wrong.empty())
            throw UserError(fmt::format("{}: it was trained with {}; give the same options to resume", source,
                                        fmt::join(wrong, "; ")));
    }
};

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

/// The optimizer's states in the file that this run has. Throws UserError, naming the tensor, unless each is
/// there as it should be; those that follow from options which may change begin anew where it has none.
std::vector<TensorView> optimizer_values(const SafetensorsFile& file, std::span<const TensorSpec> states,
                                         Resume resume) {
    const std::vector<TensorView> saved = file.views();
    std::vector<TensorView> values;
    for (const TensorSpec& state : states) {
        const auto found = std::find_if(saved.begin(), saved.end(),
                                        [&](const TensorView& t) { return t.name == state.name; });
        const bool begins_anew = resume == Resume::with_changes && state.name.starts_with("loss_scale.");
        if (found == saved.end() && begins_anew) continue;
        if (found == saved.end() || found->dtype != state.dtype || found->shape != state.shape)
            throw UserError(fmt::format("{}: tensor '{}' is missing or is not {}{}", file.path().string(),
                                        state.name, name_of(state.dtype), shape_text(state.shape)));
        values.push_back(*found);
    }
    return values;
}

}  // namespace

void require_room_for_checkpoint(const std::filesystem::path& directory, const TrainingPlan& plan) {
    require_checkpoint_place(directory);
    std::uint64_t bytes = 0;
    for (const State& state : plan.step().graph().states())
        if (is_weight(state) || is_of_optimizer(state))
            bytes += static_cast<std::uint64_t>(state.type.bytes());
    const AtomicDirectory probe(directory, bytes);  // is removed again, since nothing commits it
}

void save_training(const std::filesystem::path& directory, Trainer& trainer, const RunRecord& record) {
    nlohmann::ordered_json state = {{"step", trainer.steps_done()},
                                    {"configuration", configuration_of(trainer.plan())},
                                    {"roundings", roundings_of(trainer.plan())},
                                    {"inputs", record.inputs}};
    if (!record.options.empty()) state["options"] = record.options;
    const WeightFiles& files = trainer.model().files;
    const std::vector<TensorToWrite> model = stored_weights(tensors_of(trainer.state(), is_weight), files);
    // Gradients that are added up are not saved: between steps, the only time when a run is, they are zero.
    const std::vector<TensorToWrite> optimizer = tensors_of(trainer.state(), is_of_optimizer);
    std::map<std::string, std::string> texts = files.texts;
    texts.insert(record.texts.begin(), record.texts.end());
    // A prompt among the options may hold bytes that are no UTF-8, which JSON cannot.
    texts["state.json"] = state.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    save_checkpoint(directory, {.model = model, .optimizer = optimizer, .texts = std::move(texts)});
}

namespace {

using SavedOptions = std::map<std::string, std::vector<std::string>>;

SavedOptions options_in(const std::filesystem::path& directory) {
    require_checkpoint(directory);
    const std::filesystem::path file = directory / "state.json";
    const nlohmann::json state = parse_strict_json(read_file(file), file.string());
    if (!state.is_object() || !state.contains("options")) return {};
    try {
        return state["options"].get<SavedOptions>();
    } catch (const nlohmann::json::exception&) {
        throw UserError(
            fmt::format("{}: \"options\" is damaged: expected lists of texts by name", file.string()));
    }
}

}  // namespace

SavedOptions saved_options(const std::filesystem::path& directory) {
    // As load_checkpoint does, which checks what this only reads, and says which of the two it took.
    try {
        return options_in(directory);
    } catch (const UserError&) {
        const std::filesystem::path previous = AtomicDirectory::previous_of(directory);
        if (!std::filesystem::exists(previous / "state.json")) throw;
        return options_in(previous);
    }
}

Resumed resume_training(const std::filesystem::path& directory, Trainer& trainer, const RunRecord& record,
                        Resume resume) {
    const LoadedCheckpoint loaded = load_checkpoint(directory);
    const std::string source = (loaded.directory / "state.json").string();
    const nlohmann::json state = parse_strict_json(loaded.texts.at("state.json"), source);
    const ConfigurationDifferences differences(
        require_member(state, "configuration", source, "the state of the run"),
        configuration_of(trainer.plan()));
    differences.require(resume, source);
    const std::uint64_t step =
        require_unsigned(require_member(state, "step", source, "the state of the run"), source, "step");
    StateBlock& block = trainer.state();
    const std::vector<TensorView> optimizer =
        optimizer_values(loaded.optimizer, specs_of(block, is_of_optimizer), resume);
    read_weights(loaded.model.views(), specs_of(block, is_weight), trainer.model().files,
                 loaded.model.path().string(),
                 [&](const TensorSpec& parameter, std::span<const std::byte> value) {
                     block.write(parameter.name, value);
                     loaded.model.release();
                 });
    for (const TensorView& value : optimizer) {
        block.write(value.name, {value.data, byte_count(value.dtype, value.shape)});
        loaded.optimizer.release();
    }
    trainer.continue_after(static_cast<std::int64_t>(step));
    std::vector<std::string> warnings =
        warn_of_differences(state, roundings_of(trainer.plan()), record.inputs, source);
    if (!differences.changeable.empty())
        warnings.insert(warnings.begin(), fmt::format("{}: it was trained with {}, as asked", source,
                                                      fmt::join(differences.changeable, "; ")));
    if (!loaded.warning.empty()) warnings.insert(warnings.begin(), loaded.warning);
    return {loaded.directory, fmt::format("{}", fmt::join(warnings, "; "))};
}

}  // namespace mantissa
