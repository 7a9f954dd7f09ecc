#include "mantissa/train/training_checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "mantissa/base/atomic_file.h"
#include "mantissa/base/checksum.h"
#include "mantissa/base/error.h"
#include "mantissa/base/file.h"
#include "mantissa/data/text_reading.h"
#include "mantissa/formats/strict_json.h"
#include "mantissa/formats/weight_files.h"
#include "mantissa/graph/graph.h"
#include "mantissa/numerics/coded_weights.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/adapter_files.h"
#include "mantissa/train/checkpoint.h"
#include "mantissa/train/ema.h"
#include "mantissa/train/state_tensors.h"
#include "mantissa/train/training_plan.h"

namespace mantissa::inline v0 {

namespace {

/// The settings of the loss scale, which decide the next scale together with the states `loss_scale.*`.
nlohmann::ordered_json loss_scale_configuration(const LossScaleOptions& options) {
    switch (options.kind) {
        case LossScaleOptions::Kind::by_policy:
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

nlohmann::ordered_json json_of(const nn::LoraOptions& lora) {
    const auto alpha = [](const std::optional<double>& of) {
        return of ? nlohmann::ordered_json(*of) : nlohmann::ordered_json(nullptr);
    };
    nlohmann::ordered_json others = nlohmann::ordered_json::array();
    for (const nn::LoraOptions::Layers& other : lora.others)
        others.push_back({other.pattern, other.rank, alpha(other.alpha)});
    nlohmann::ordered_json json = {{"rank", lora.rank},       {"alpha", alpha(lora.alpha)},
                                   {"dropout", lora.dropout}, {"rank_stabilized", lora.rank_stabilized},
                                   {"layers", lora.layers},   {"others", others}};
    if (lora.magnitudes) json["magnitudes"] = true;  // earlier checkpoints lack it
    if (has_codes(lora.trunk)) json["trunk"] = name_of(lora.trunk);
    return json;
}

/// A checksum of the frozen weights, as stored, that adapters are trained with.
std::string trunk_checksum(const StateBlock& block) {
    constexpr std::int64_t piece_bytes = 1 << 20;
    Checksum checksum;
    std::vector<std::byte> piece;
    for (const State& state : block.states()) {
        if (!state.frozen || !is_own_weight(state)) continue;
        for (std::int64_t begin = 0; begin < state.type.bytes(); begin += piece_bytes) {
            piece.resize(std::min(piece_bytes, state.type.bytes() - begin));
            block.read(state.name, begin, piece);
            checksum.add(piece);
        }
    }
    return checksum_text(checksum.value());
}

/// Adapters fit only the weights that they were trained with.
void require_same_trunk(const StateBlock& block, const nlohmann::json& state, const std::string& source) {
    if (!state.contains("trunk")) return;  // earlier versions did not say
    if (const std::string ours = trunk_checksum(block); state["trunk"] != ours)
        throw UserError(fmt::format(
            "{}: its adapters were trained beside frozen weights with checksum {}, and those of the "
            "model that was read have {}; give the model as it was",
            source, state["trunk"].dump(), ours));
}

/// The weights that a checkpoint holds: only the adapters, if there are any, since other weights stay
/// unchanged.
Chosen kept_weights(const TrainingPlan& plan) {
    return plan.options().lora ? Chosen(is_of_adapter) : Chosen(is_weight);
}

/// All settings that must be equal for a run to continue as it would have.
nlohmann::ordered_json configuration_of(const TrainingPlan& plan) {
    const TrainerOptions& options = plan.options();
    nlohmann::ordered_json optimizer = as_json(options.optimizer.configuration);
    optimizer["clip"] = options.optimizer.clip;
    for (const ParameterGroup& group : options.optimizer.groups)
        optimizer["groups"].push_back(
            {{"pattern", group.pattern},
             {"learning_rate_factor", group.learning_rate_factor},
             {"weight_decay", group.weight_decay ? nlohmann::ordered_json(*group.weight_decay)
                                                 : nlohmann::ordered_json(nullptr)}});
    nlohmann::ordered_json all = {{"model", as_json(plan.model().configuration)},
                                  {"policy", options.policy.name},
                                  {"loss_scale", loss_scale_configuration(options.loss_scale)},
                                  {"batch", options.batch},
                                  {"accumulate", options.micro_batches()},
                                  {"seed", options.seed},
                                  {options.optimizer.name, optimizer}};
    if (!options.frozen.empty()) all["frozen"] = options.frozen;
    if (options.lora) all["adapters"] = json_of(*options.lora);
    if (options.ema_decay > 0) all["ema_decay"] = options.ema_decay;
    return all;
}

/// Adds the members that differ, nested ones under their object's name: "model.heads = 4, this run has 2".
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

/// Converts checkpoints of version 0.1 from before models were values. They have a GPT-2's name as the model,
/// and its dropout and sequence apart; the parameters' shapes imply the rest.
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

/// The differences between the configuration that was saved and ours.
struct ConfigurationDifferences {
    std::vector<std::string> fixed;       ///< the model; a member of only one side: another optimizer
    std::vector<std::string> changeable;  ///< numbers that may change if the user allows it

    ConfigurationDifferences(const nlohmann::json& of_checkpoint, const nlohmann::json& ours) {
        const nlohmann::json saved = with_model_of(of_checkpoint, ours);
        std::set<std::string> members;
        for (const nlohmann::json* object : {&saved, &ours})
            for (const auto& [member, value] : object->items()) members.insert(member);
        std::string saved_optimizer, our_optimizer;  // an object that only one of them has
        for (const std::string& member : members) {
            const bool both = saved.contains(member) && ours.contains(member);
            if (!both && saved.value(member, ours.value(member, nlohmann::json())).is_object()) {
                (saved.contains(member) ? saved_optimizer : our_optimizer) = member;
                continue;
            }
            add_differences(
                member, saved.value(member, nlohmann::json()), ours.value(member, nlohmann::json()),
                both && member != "model" && member != "frozen" && member != "adapters" ? changeable : fixed);
        }
        if (saved_optimizer != our_optimizer)
            fixed.push_back(fmt::format("optimizer = {}, this run has {}", saved_optimizer, our_optimizer));
        // No weight depends on the sequence length.
        for (const std::string& each : fixed)
            if (each.starts_with("model.sequence = ")) changeable.push_back(each);
        std::erase_if(fixed, [](const std::string& each) { return each.starts_with("model.sequence = "); });
    }

    void require(Resume resume, const std::string& source) const {
        std::vector<std::string> wrong = fixed;
        if (resume == Resume::as_it_was) wrong.insert(wrong.end(), changeable.begin(), changeable.end());
        if (!wrong.empty())
            throw UserError(fmt::format("{}: it was trained with {}; give the same options to resume", source,
                                        fmt::join(wrong, "; ")));
    }
};

/// A checksum of the library algorithms chosen for the plans' matrix products, each counted once, so that it
/// does not depend on how a step is cut; empty if there was no choice.
std::string algorithms_of(const TrainingPlan& plan) {
    std::set<std::string> all;
    const auto add = [&](const Plan& of) {
        for (const PlannedNode& node : of.nodes())
            if (!node.algorithm.empty()) all.insert(node.algorithm);
    };
    for (const auto& micro_batch : plan.accumulate()) add(*micro_batch);
    add(plan.step());
    const std::string lines = fmt::format("{}", fmt::join(all, "\n"));
    return all.empty() ? lines : checksum_text(checksum_of(std::as_bytes(std::span(lines))));
}

/// The members that change roundings: if one differs, the run continues, but not to the same bits.
nlohmann::ordered_json roundings_of(const TrainingPlan& plan) {
    const PipelineOptions& pipeline = plan.pipeline();
    std::vector<std::string> passes = chosen_passes(pipeline);
    std::erase(passes, "lay_out");  // moves numbers and rounds none
    nlohmann::ordered_json roundings = {
        {"instructions", plan.device().target().isa}, {"passes", passes}, {"recompute", pipeline.recompute}};
    const std::string& unit = plan.device().target().bf16_unit;
    if (std::ranges::any_of(plan.step().nodes(),
                            [](const PlannedNode& node) { return node.arithmetic.multiply == "bf16"; }))
        roundings["bf16_unit"] = unit.empty() ? "none: widened to f32" : unit;
    if (const std::string algorithms = algorithms_of(plan); !algorithms.empty())
        roundings["algorithms"] = algorithms;
    return roundings;
}

/// Two long JSON texts without the comma-separated parts that both begin or end with.
std::pair<std::string, std::string> where_they_part(std::string a, std::string b) {
    const auto [in_a, in_b] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
    if (const std::size_t part = a.rfind(", ", static_cast<std::size_t>(in_a - a.begin())); part != a.npos) {
        a = "\"..." + a.substr(part);
        b = "\"..." + b.substr(part);
    }
    const auto [end_a, end_b] = std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend());
    const auto same = static_cast<std::size_t>(end_a - a.rbegin());
    if (const std::size_t part = a.find(", ", a.size() - same); part != a.npos) {
        b = b.substr(0, b.size() - (a.size() - part)) + ", ...\"";
        a = a.substr(0, part) + ", ...\"";
    }
    return {a, b};
}

/// The differences between a member of the state and ours, in words. Empty if there are none, or it is not
/// known: earlier checkpoints lack some members.
std::string differences(const nlohmann::json& state, const char* member, const nlohmann::json& ours) {
    std::string text;
    if (!state.contains(member)) return text;
    for (const auto& [name, value] : ours.items()) {
        if (!state[member].contains(name) || state[member][name] == value) continue;
        const auto [saved, now] = where_they_part(state[member][name].dump(), value.dump());
        text += fmt::format("{}{} = {}, this run has {}", text.empty() ? "" : "; ", name, saved, now);
    }
    return text;
}

/// The saved state with present names of passes and policies in place of an earlier version's.
nlohmann::json with_names_of_today(nlohmann::json state) {
    if (state.contains("configuration") && state["configuration"].contains("policy")) {
        nlohmann::json& policy = state["configuration"]["policy"];
        constexpr std::string_view before = "emulated ";
        if (const std::string name = policy.is_string() ? policy.get<std::string>() : "";
            name.starts_with(before))
            policy = "emulated " + name.substr(before.size());
    }
    if (state.contains("roundings") && state["roundings"].contains("passes"))
        for (nlohmann::json& pass : state["roundings"]["passes"])
            if (pass.is_string()) pass = pass_name_today(pass.get<std::string>());
    return state;
}

std::vector<std::string> warn_of_differences(const nlohmann::json& state, nlohmann::json roundings,
                                             const RunRecord& record, const std::string& source) {
    std::vector<std::string> warnings;
    // Without algorithms in the checkpoint, the comparison of instructions suffices.
    if (state.contains("roundings") && !state["roundings"].contains("algorithms"))
        roundings.erase("algorithms");
    if (const std::string other = differences(state, "roundings", roundings); !other.empty())
        warnings.push_back(fmt::format(
            "{}: it was trained with {}; losses follow those of one run within roundings, not to the bit",
            source, other));
    const auto add_others = [&](const char* member, const nlohmann::json& ours) {
        if (const std::string other = differences(state, member, ours); !other.empty())
            warnings.push_back(
                fmt::format("{}: it was trained with {}; it goes on with what this run has, so it is not "
                            "the run that it would have been",
                            source, other));
    };
    add_others("inputs", record.inputs);
    if (record.reading) add_others("reading", json_of(*record.reading));
    return warnings;
}

/// The name of an optimizer's state in a checkpoint. There the model has the averaged weights, for
/// predictions, and the trained parameters are saved beside the moments.
std::string name_in_checkpoint(const std::string& state) {
    return is_average(state) ? "raw." + averaged_weight(state) : state;
}

bool is_average_of_statistic(const StateBlock& block, const std::string& state) {
    if (!is_average(state)) return false;
    const auto found = std::ranges::find(block.states(), averaged_weight(state), &State::name);
    return found != block.states().end() && found->kind == State::Kind::running;
}

/// The optimizer's states of this run that the checkpoint has. Throws UserError, naming the tensor, unless
/// each has its type and shape. States of options that may change may be missing, and begin anew. So may
/// averages of running statistics, which earlier versions did not keep.
std::vector<TensorSpec> optimizer_values(const SavedStates& saved, const StateBlock& block, Resume resume) {
    std::vector<TensorSpec> states = specs_of(block, is_of_optimizer);
    std::erase_if(states, [&](const TensorSpec& state) {
        const bool may_begin_anew = resume == Resume::with_changes && state.name.starts_with("loss_scale.");
        return (may_begin_anew || is_average_of_statistic(block, state.name)) &&
               !saved.has(name_in_checkpoint(state.name));
    });
    for (const TensorSpec& state : states)
        saved.require({name_in_checkpoint(state.name), state.dtype, state.shape});
    return states;
}

/// The place of the saved run in its data. Checkpoints of earlier versions do not record it; all their steps
/// had one size.
DataPlace place_of(const nlohmann::json& state, std::uint64_t step, const nlohmann::json& ours,
                   const std::string& source) {
    const nlohmann::json& saved = state["configuration"];
    const auto number = [&](const nlohmann::json& object, const char* name) {
        return require_unsigned(require_member(object, name, source, "the place in the data"), source, name);
    };
    DataPlace place{.step = step};
    if (state.contains("data")) {
        const nlohmann::json& data = state["data"];
        place.examples = number(data, "examples");
        place.per_step = number(data, "examples_of_first_step");
        place.per_epoch = number(data, "examples_of_epoch");
        const nlohmann::json& epoch = require_member(data, "epoch", source, "the place in the data");
        if (!epoch.is_string()) throw UserError(fmt::format("{}: \"epoch\" is no text", source));
        place.epoch = epoch.get<std::string>();
        return place;
    }
    if (!saved.contains("batch")) return place;
    place.per_step =
        number(saved, "batch") * (saved.contains("accumulate") ? number(saved, "accumulate") : 1);
    place.examples = step * place.per_step;
    if (!saved["model"].is_object()) return place;
    if (const nlohmann::json sequence = saved["model"].value("sequence", nlohmann::json());
        sequence != ours["model"].value("sequence", nlohmann::json()))
        place.epoch = fmt::format("of windows of {} tokens", sequence.dump());
    return place;
}

ValidationProgress validations_in(const nlohmann::json& state, const std::string& source) {
    ValidationProgress validations;
    if (!state.contains("validations")) return validations;
    const nlohmann::json& saved = state["validations"];
    const auto number = [&](const char* name) {
        return static_cast<std::int64_t>(
            require_unsigned(require_member(saved, name, source, "what validations found"), source, name));
    };
    validations.best_steps = number("best_steps");
    validations.since = number("since");
    if (const nlohmann::json loss = saved.value("best_loss", nlohmann::json()); loss.is_number())
        validations.best_loss = loss.get<double>();
    if (const nlohmann::json judged = saved.value("judged", nlohmann::json()); judged.is_string())
        validations.judged = judged.get<std::string>();
    return validations;
}

/// Starts averages of running statistics that an earlier version did not keep at the statistics. Returns this
/// in words; empty: there are none.
std::string begin_averages_of_statistics(StateBlock& block, const std::vector<TensorSpec>& there,
                                         const std::string& source) {
    bool begins = false;
    for (const TensorSpec& each : specs_of(block, is_of_optimizer)) {
        if (!is_average(each.name) || std::ranges::find(there, each.name, &TensorSpec::name) != there.end())
            continue;
        block.write(each.name, block.read(averaged_weight(each.name)));
        begins = true;
    }
    return begins ? fmt::format(
                        "{}: it kept no averages of running statistics, which begin here with the "
                        "statistics that it has",
                        source)
                  : "";
}

RankOf rank_of(const TrainingPlan& plan) {
    const Ranks* const ranks = plan.options().ranks;
    return ranks ? RankOf{ranks->rank(), ranks->size()} : RankOf{};
}

/// Writes a state's value, or this rank's part of it, padded with zeros.
void write_saved(StateBlock& block, const SavedStates& saved, const TensorSpec& state, RankOf self) {
    std::vector<std::byte> value(block.type(state.name).bytes());
    const std::int64_t elements = Shape(state.shape).elements();
    const bool is_shard = block.type(state.name).shape.extents() != state.shape;
    const Shard part = is_shard ? shard_of(elements, self.ranks, self.rank) : Shard{0, elements};
    const auto bytes = static_cast<std::size_t>(part.count) * size_of(state.dtype);
    saved.read({name_in_checkpoint(state.name), state.dtype, state.shape}, part,
               std::span(value).first(bytes));
    block.write(state.name, value);
}

}  // namespace

void require_room_for_checkpoint(const std::filesystem::path& directory, const TrainingPlan& plan) {
    require_checkpoint_place(directory);
    std::uint64_t bytes = 0;
    for (const State& state : plan.step().graph().states())
        if (kept_weights(plan)(state) || is_of_optimizer(state))
            bytes += static_cast<std::uint64_t>(
                Type{state.type.dtype, state.shard_of.value_or(state.type.shape)}.bytes());
    const AtomicDirectory probe(directory, bytes);  // removed again, since nothing commits it
}

namespace {

/// Configuration and tokenizer.
std::map<std::string, std::string> texts_beside_model(const nn::Model& model, const RunRecord& record) {
    std::map<std::string, std::string> texts = nn::files_of(model).texts;
    if (const auto config = texts.find("config.json"); config != texts.end()) {
        config->second = with_token_ids(config->second, record.token_ids);
        texts["generation_config.json"] = hf_generation_config(record.token_ids);
    }
    texts.insert(record.texts.begin(), record.texts.end());
    return texts;
}

}  // namespace

void save_training(const std::filesystem::path& directory, Trainer& trainer, const RunRecord& record) {
    nlohmann::ordered_json state = {{"step", trainer.steps_done()},
                                    {"configuration", configuration_of(trainer.plan())},
                                    {"roundings", roundings_of(trainer.plan())},
                                    {"inputs", record.inputs}};
    if (record.place)
        state["data"] = {{"examples", record.place->examples},
                         {"examples_of_first_step", record.place->per_step},
                         {"examples_of_epoch", record.place->per_epoch},
                         {"epoch", record.place->epoch}};
    if (record.validations)
        state["validations"] = {{"best_loss", record.validations->best_loss
                                                  ? nlohmann::ordered_json(*record.validations->best_loss)
                                                  : nlohmann::ordered_json(nullptr)},
                                {"best_steps", record.validations->best_steps},
                                {"since", record.validations->since},
                                {"judged", record.validations->judged}};
    if (record.longest_sequence > 0) state["longest_sequence"] = record.longest_sequence;
    if (record.reading) state["reading"] = json_of(*record.reading);
    if (trainer.plan().options().lora) state["trunk"] = trunk_checksum(trainer.state());
    if (record.trained_on) state["trained_on"] = record.trained_on->text();
    if (!record.options.empty()) state["options"] = record.options;
    const AveragedWeights averaged(trainer.state());
    const WeightFiles& files = nn::files_of(trainer.model());
    Ranks* const ranks = trainer.plan().options().ranks;
    const std::optional<nn::LoraOptions>& lora = trainer.plan().options().lora;
    std::vector<TensorToWrite> weights = tensors_of(trainer.state(), kept_weights(trainer.plan()), ranks);
    const std::vector<TensorToWrite> model =
        lora ? stored_adapters(std::move(weights), files) : stored_weights(std::move(weights), files);
    // Accumulated gradients are not saved: a run is saved between steps, where they are zero.
    std::vector<TensorToWrite> optimizer =
        parts_of_states(trainer.state(), is_of_optimizer, rank_of(trainer.plan()));
    for (TensorToWrite& each : optimizer) each.tensor.name = name_in_checkpoint(each.tensor.name);
    std::map<std::string, std::string> texts = record.texts;
    if (lora)
        texts[adapter_config_name] =
            adapter_config(trainer.state().states(), trainer.model(), *lora, record.base_model);
    else
        texts = texts_beside_model(trainer.model(), record);
    // An option may hold bytes that are not UTF-8, which JSON cannot represent.
    texts["state.json"] = state.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    save_checkpoint(
        directory,
        {.model = model, .optimizer = optimizer, .texts = std::move(texts), .adapters = lora.has_value()},
        ranks);
}

void require_free_for_merged(const std::filesystem::path& directory) {
    std::error_code error;
    if (std::filesystem::exists(directory, error) && !std::filesystem::is_empty(directory, error))
        throw UserError(fmt::format("{}: is there already; a merged model is written to a folder of its own",
                                    directory.string()));
}

void save_merged(const std::filesystem::path& directory, const Trainer& trainer, const RunRecord& record) {
    require_free_for_merged(directory);
    std::filesystem::create_directories(directory);
    trainer.save_weights(directory / "model.safetensors");
    for (const auto& [name, text] : texts_beside_model(trainer.model(), record))
        write_whole(directory / name, text);
}

namespace {

using SavedOptions = std::map<std::string, std::vector<std::string>>;

/// Result of `read` on the state of the run saved in `directory`, or in the checkpoint before it. Chooses as
/// load_checkpoint does, which also checks the files and warns about the choice.
template <class Read>
auto read_state(const std::filesystem::path& directory, Read read) {
    const auto read_in = [&](const std::filesystem::path& folder) {
        require_checkpoint(folder);
        const std::string file = (folder / "state.json").string();
        return read(parse_strict_json(read_file(file), file), file);
    };
    try {
        return read_in(directory);
    } catch (const UserError&) {
        const std::filesystem::path previous = AtomicDirectory::previous_of(directory);
        if (!std::filesystem::exists(previous / "state.json")) throw;
        return read_in(previous);
    }
}

std::int64_t longest_sequence_of(const nlohmann::json& state, const std::string& source) {
    if (!state.is_object() || !state.contains("longest_sequence")) return 0;
    return static_cast<std::int64_t>(require_unsigned(state["longest_sequence"], source, "longest_sequence"));
}

}  // namespace

SavedOptions saved_options(const std::filesystem::path& directory) {
    return read_state(directory, [](const nlohmann::json& state, const std::string& file) -> SavedOptions {
        if (!state.is_object() || !state.contains("options")) return {};
        try {
            return state["options"].get<SavedOptions>();
        } catch (const nlohmann::json::exception&) {
            throw UserError(fmt::format("{}: \"options\" is damaged: expected lists of texts by name", file));
        }
    });
}

std::int64_t saved_longest_sequence(const std::filesystem::path& directory) {
    return read_state(directory, longest_sequence_of);
}

std::int64_t longest_sequence_in(const LoadedCheckpoint& checkpoint) {
    const std::string source = (checkpoint.directory / "state.json").string();
    return longest_sequence_of(parse_strict_json(checkpoint.texts.at("state.json"), source), source);
}

ValidationProgress saved_validations(const std::filesystem::path& directory) {
    return read_state(directory, validations_in);
}

std::optional<TextReading> saved_reading(const std::filesystem::path& directory) {
    return read_state(directory, [](const nlohmann::json& state, const std::string& file) {
        return state.is_object() && state.contains("reading") ? std::optional(reading_in(state, file))
                                                              : std::nullopt;
    });
}

std::optional<TrainedOn> saved_trained_on(const std::filesystem::path& directory) {
    const std::filesystem::path own = directory / "state.json",
                                file = std::filesystem::exists(own)
                                           ? own
                                           : AtomicDirectory::previous_of(directory) / "state.json";
    if (!std::filesystem::exists(file)) return {};
    const nlohmann::json state = parse_strict_json(read_file(file), file.string());
    if (!state.is_object() || !state.contains("trained_on")) return {};
    const nlohmann::json& saved = state["trained_on"];
    return TrainedOn::of_text(saved.is_string() ? saved.get<std::string>() : "", file.string());
}

Resumed resume_training(const std::filesystem::path& directory, Trainer& trainer, const RunRecord& record,
                        Resume resume) {
    require_own_weights(trainer.state());
    const LoadedCheckpoint loaded = load_checkpoint(directory);
    const std::string source = (loaded.directory / "state.json").string();
    const nlohmann::json state =
        with_names_of_today(parse_strict_json(loaded.texts.at("state.json"), source));
    const nlohmann::json ours = configuration_of(trainer.plan());
    const ConfigurationDifferences differences(
        require_member(state, "configuration", source, "the state of the run"), ours);
    differences.require(resume, source);
    const std::uint64_t step =
        require_unsigned(require_member(state, "step", source, "the state of the run"), source, "step");
    if (trainer.plan().options().lora) require_same_trunk(trainer.state(), state, source);
    DataPlace place = place_of(state, step, ours, source);
    StateBlock& block = trainer.state();
    std::vector<const SafetensorsFile*> files{&*loaded.optimizer};
    for (const SafetensorsFile& file : loaded.optimizer_of_ranks) files.push_back(&file);
    const SavedStates saved(files);
    std::optional<std::vector<TensorSpec>> optimizer;  // read once the weights are known to fit
    const WeightFiles& of_model = nn::files_of(trainer.model());
    read_weights(loaded.model.views(), specs_of(block, kept_weights(trainer.plan())),
                 trainer.plan().options().lora ? adapter_files(of_model) : of_model,
                 loaded.model.path().string(),
                 [&](const TensorSpec& parameter, std::span<const std::byte> value) {
                     if (!optimizer) optimizer = optimizer_values(saved, block, resume);
                     block.write(parameter.name, value);
                     loaded.model.release();
                 });
    for (const TensorSpec& each : *optimizer) write_saved(block, saved, each, rank_of(trainer.plan()));
    const std::string begun = begin_averages_of_statistics(block, *optimizer, source);
    swap_averages(block);
    trainer.continue_after(static_cast<std::int64_t>(step));
    std::vector<std::string> warnings =
        warn_of_differences(state, roundings_of(trainer.plan()), record, source);
    if (!differences.changeable.empty())
        warnings.insert(warnings.begin(), fmt::format("{}: it was trained with {}, as asked", source,
                                                      fmt::join(differences.changeable, "; ")));
    if (!begun.empty()) warnings.push_back(begun);
    if (!loaded.warning.empty()) warnings.insert(warnings.begin(), loaded.warning);
    return {.directory = loaded.directory,
            .warning = fmt::format("{}", fmt::join(warnings, "; ")),
            .texts = loaded.texts,
            .validations = validations_in(state, source),
            .place = std::move(place)};
}

}  // namespace mantissa
