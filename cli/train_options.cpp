#include "cli/train_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <filesystem>
#include <initializer_list>
#include <limits>
#include <string_view>

#include "cli/command_line.h"
#include "cli/names_elsewhere.h"
#include "cli/option_rows.h"
#include "cli/output_file.h"
#include "mantissa/base/atomic_file.h"
#include "mantissa/base/error.h"
#include "mantissa/base/printable.h"
#include "mantissa/data/text_reading.h"
#include "mantissa/data/tokenizer_files.h"
#include "mantissa/train/checkpoint.h"
#include "mantissa/train/model_file.h"
#include "mantissa/train/training_checkpoint.h"

namespace mantissa::cli {

TypedOptions options_to_remember(const Command& command) {
    TypedOptions typed;
    for (const Row& row : command.rows()) {
        const CLI::Option& option = *command.app().get_option(row.name);
        if (option.count() == 0 || row.is.kept == Kept::nothing) continue;
        std::vector<std::string>& values = typed[row.name] = option.results();
        if (!row.is.is_path) continue;
        for (std::string& value : values)
            if (value != "-" && (row.name != "--tokenizer" || value != bytes_word))
                value = std::filesystem::absolute(value).lexically_normal().string();
    }
    return typed;
}

namespace {

void give(CLI::Option& option, const std::vector<std::string>& values) {
    try {
        option.add_result(values);
        option.run_callback();
    } catch (const CLI::ParseError& error) {
        throw UserError(fmt::format("the checkpoint remembers {} as {}: {}", option.get_name(),
                                    fmt::join(values, " "), error.what()));
    }
}

/// Sets the option of a report; returns the reason if that is impossible.
std::string give_report(CLI::Option& option, const std::vector<std::string>& values, Reports reports) {
    if (reports == Reports::end) return "the run saves elsewhere";
    if (values == std::vector<std::string>{"-"}) return "standard output is given anew";
    try {
        give(option, values);
    } catch (const UserError& error) {
        option.clear();
        return error.what();
    }
    return "";
}

}  // namespace

std::string take_over(Command& command, const TypedOptions& remembered, Reports reports) {
    std::string left_out;
    for (const auto& [saved_name, saved_values] : remembered) {
        const std::string name = "--" + option_today(std::string_view(saved_name).substr(2));
        std::vector<std::string> values;
        for (const std::string& value : saved_values)
            values.push_back(value_today(std::string_view(name).substr(2), value));
        const auto row = std::ranges::find(command.rows(), name, &Row::name);
        if (row == command.rows().end())
            throw UserError(fmt::format("the checkpoint remembers {}, which there is not", name));
        CLI::Option& option = *command.app().get_option(name);
        if (option.count() > 0 || row->is.kept == Kept::nothing) continue;
        if (row->is.kept == Kept::value) {
            give(option, values);
        } else if (const std::string why = give_report(option, values, reports); !why.empty()) {
            left_out +=
                fmt::format("{}{} {} ({})", left_out.empty() ? "" : ", ", name, fmt::join(values, " "), why);
        }
    }
    return left_out;
}

LearningRateSchedule schedule_of(const TrainOptions& options) {
    const double peak = options.run.learning_rate;
    const LearningRateSchedule schedule{.peak = peak,
                                        .least = options.min_learning_rate.value_or(peak),
                                        .warmup = options.warmup,
                                        .steps = options.run.steps};
    validate(schedule);
    return schedule;
}

namespace {

/// Refuses given options without effect; remembered ones may have lost theirs.
void refuse_ignored(const TrainOptions& options, std::initializer_list<const char*> names,
                    std::string_view belongs_to) {
    for (const char* name : names)
        if (options.given.contains(name)) throw UserError(fmt::format("{} belongs to {}", name, belongs_to));
}

}  // namespace

LossScaleOptions loss_scale_of(const TrainOptions& options, const Policy& policy) {
    LossScaleOptions scaling = options.scaling;
    scaling.kind = default_loss_scale(policy).kind;
    if (options.loss_scale == "dynamic") {
        scaling.kind = LossScaleOptions::Kind::dynamic;
    } else if (options.loss_scale == "none") {
        scaling.kind = LossScaleOptions::Kind::none;
    } else if (!options.loss_scale.empty()) {
        scaling.kind = LossScaleOptions::Kind::fixed;
        std::size_t read = 0;
        try {
            scaling.initial = std::stod(options.loss_scale, &read);
        } catch (const std::exception&) {
            read = 0;
        }
        if (read != options.loss_scale.size())
            throw UserError(
                fmt::format("--loss-scale is dynamic, none or a number, got '{}'", options.loss_scale));
    }
    if (scaling.kind != LossScaleOptions::Kind::dynamic) {
        refuse_ignored(options, {"--loss-scale-start", "--loss-scale-interval", "--loss-scale-floor"},
                       "a dynamic loss scale; give --loss-scale dynamic, or leave it out");
        in_option("--loss-scale", [&] { validate(scaling); });
        return scaling;
    }
    in_option("--loss-scale-start", [&] {
        validate(LossScaleOptions{.kind = LossScaleOptions::Kind::fixed, .initial = scaling.initial});
    });
    in_option("--loss-scale-floor", [&] {
        validate(LossScaleOptions{.kind = scaling.kind, .initial = scaling.initial, .floor = scaling.floor});
    });
    in_option("--loss-scale-interval", [&] { validate(scaling); });
    return scaling;
}

namespace {

Optimizer adamw_of(const TrainOptions& options) {
    refuse_ignored(options, {"--momentum", "--nesterov"}, "--optimizer sgd; give that, or leave it out");
    AdamWOptions chosen{.beta1 = options.betas.at(0), .beta2 = options.betas.at(1)};
    in_option("--betas", [&] { return adamw(chosen); });
    chosen.weight_decay = options.weight_decay.value_or(chosen.weight_decay);
    return in_option("--weight-decay", [&] { return adamw(chosen); });
}

Optimizer sgd_of(const TrainOptions& options) {
    refuse_ignored(options, {"--betas"}, "--optimizer adamw; give that, or leave it out");
    SgdOptions chosen{.momentum = options.momentum, .weight_decay = 0, .decay_matrices_only = true};
    in_option("--momentum", [&] { return sgd(chosen); });
    chosen.nesterov = options.nesterov;
    in_option("--nesterov", [&] { return sgd(chosen); });
    chosen.weight_decay = options.weight_decay.value_or(0);
    return in_option("--weight-decay", [&] { return sgd(chosen); });
}

Optimizer muon_of(const TrainOptions& options, const Policy& policy) {
    refuse_ignored(options, {"--nesterov"}, "--optimizer sgd; Muon's momentum is Nesterov's always");
    MuonOptions chosen;
    if (options.momentum != 0) chosen.momentum = options.momentum;
    in_option("--momentum", [&] { return muon(chosen); });
    chosen.others.beta1 = options.betas.at(0);
    chosen.others.beta2 = options.betas.at(1);
    in_option("--betas", [&] { return muon(chosen); });
    chosen.weight_decay = options.weight_decay.value_or(chosen.weight_decay);
    chosen.others.weight_decay = chosen.weight_decay;
    chosen.in_bf16 = policy.name == "bf16";
    return in_option("--weight-decay", [&] { return muon(chosen); });
}

Optimizer optimizer_of(const TrainOptions& options, const Policy& policy) {
    if (options.optimizer == "adamw") return adamw_of(options);
    if (options.optimizer == "sgd") return sgd_of(options);
    return muon_of(options, policy);
}

}  // namespace

TrainerOptions trainer_of(const TrainOptions& options, const Target& target, const Policy& policy,
                          Ranks* ranks) {
    TrainerOptions trainer = trainer_options(options.run);
    trainer.ranks = ranks;
    trainer.states = options.states == "whole" ? States::whole : States::sharded;
    trainer.bucket_bytes = static_cast<std::int64_t>(options.bucket * 0x1p20);
    if (options.reduce_dtype == "bf16") {
        if (!ranks)
            throw UserError(
                "--reduce-dtype bf16: gradients travel among ranks, and this process is alone; start it by "
                "mpirun, or give --reduce-dtype fp32");
        trainer.wire = Wire::bf16;
    }
    trainer.accumulate = options.accumulate;
    trainer.optimizer =
        in_option("--clip", [&] { return clipped(optimizer_of(options, policy), options.clip.value()); });
    if (!policy.weights.empty())
        throw UserError(
            fmt::format("--policy {} is for inference only, since whole numbers have no gradient; train in "
                        "{}, and give it to generate",
                        policy.name, fmt::join(policy_names(), ", ")));
    trainer.loss_scale = loss_scale_of(options, policy);
    trainer.frozen = options.freeze;
    if (ranks && !options.run.lora.merge.empty())
        throw UserError(
            "--merge: several processes write no merged model; merge what they save in a run of one, by "
            "--adapter");
    if (!options.run.lora.merge.empty()) require_free_for_merged(options.run.lora.merge);
    if (!(options.ema >= 0 && static_cast<float>(options.ema) < 1))
        throw UserError(fmt::format("--ema must be 0 (none), or above 0 and below 1, got {}", options.ema));
    if (options.ema > 0 && ranks && trainer.states == States::sharded)
        throw UserError(
            "--ema: averages are kept whole, and ranks have parts of parameters; give --states whole");
    trainer.ema_decay = options.ema;
    trainer.policy = policy;
    const auto is_open = [&](const char* option) {  // a resumed run has its own
        return options.resume.empty() && !options.given.contains(option);
    };
    trainer.open = {.trunk = is_open("--trunk"),
                    .batch = is_open("--batch") && is_open("--accumulate"),
                    .recompute = is_open("--recompute")};
    choose_passes(options.run, target, trainer);
    return trainer;
}

namespace {

constexpr std::string_view best_suffix = ".best";

/// The place of a checkpoint that saves have moved aside: the run continues there.
std::string place_of_saves(const std::string& resume) {
    const std::filesystem::path target = AtomicDirectory::target_of(resume);
    return target.empty() ? resume : target.string();
}

/// Refuses the place to which a save of the checkpoint beside it would move the previous one.
void refuse_place_of_previous(const std::string& checkpoint) {
    if (const std::filesystem::path target = AtomicDirectory::target_of(checkpoint); !target.empty())
        throw UserError(fmt::format(
            "--checkpoint {}: that is where a save of {} moves the checkpoint before it; name another place",
            checkpoint, target.string()));
}

/// The folder with the tokenizer of the checkpoint, or, if that is gone, of the one before it; empty if it
/// has none.
std::string own_tokenizer(const std::filesystem::path& checkpoint) {
    const std::filesystem::path place =
        std::filesystem::exists(checkpoint) ? checkpoint : AtomicDirectory::previous_of(checkpoint);
    return holds_tokenizer(place) ? place.string() : "";
}

/// Refuses another tokenizer: the model has learnt the meaning of one tokenizer's tokens.
void require_own_tokenizer(const TrainOptions& options, const std::string& own, const TypedOptions& saved) {
    const std::string& given = options.run.tokenizer;
    if (given.empty()) return;
    const bool of_bytes =
        own.empty() && !saved.empty() && !saved.contains("--tokens") && !saved.contains("--images");
    if (own.empty() && !of_bytes) return;
    if (of_bytes ? given == bytes_word : given != bytes_word && is_kept_in(own, load_tokenizer(given)))
        return;
    throw UserError(fmt::format(
        "--tokenizer {}: {} was trained {}; leave the option out, or begin another run with its weights by "
        "--from {}",
        given, options.resume,
        of_bytes ? "on bytes" : "with another tokenizer, which lies beside its weights", options.resume));
}

/// Whether the tokenizer of a checkpoint can be read; otherwise --tokenizer replaces it. Throws UserError if
/// none was given.
bool can_be_read(const std::string& own, const TrainOptions& options) {
    try {
        load_tokenizer(own);
        return true;
    } catch (const UserError& error) {
        if (options.given.contains("--tokenizer")) return false;
        throw UserError(
            fmt::format("--resume {}: the tokenizer in it cannot be read ({}); give the one that it was "
                        "trained with as --tokenizer DIR",
                        options.resume, error.what()));
    }
}

/// Checks that a continued run's files still exist. Throws UserError for a moved file that was not given
/// again.
void require_still_there(const TrainOptions& options, const TypedOptions& saved) {
    for (const auto& [name, what] : {std::pair{"--text", "text"},
                                     {"--chats", "file of chats"},
                                     {"--tokens", "token file"},
                                     {"--validation", "text"},
                                     {"--images", "folder"}}) {
        const auto remembered = saved.find(name);
        if (remembered == saved.end() || options.given.contains(name)) continue;
        for (const std::string& path : remembered->second)
            if (std::error_code error; path != "-" && !std::filesystem::exists(path, error))
                throw UserError(
                    fmt::format("{}: is not there any more; --resume {} goes on with the {} that it was "
                                "trained on: where that has moved, say where to by {}",
                                path, options.resume, what, name));
    }
}

/// Refuses another model than the saved run's.
void require_own_model(const TrainOptions& options, const TypedOptions& saved) {
    if (saved.empty() || !options.given.contains("--model")) return;
    std::string own = RunOptions().model;
    if (const auto model = saved.find("--model"); model != saved.end())
        own = model->second.front();
    else if (const auto files = saved.find("--from"); files != saved.end())
        own = "model of " + files->second.front();
    if (options.run.model != own)
        throw UserError(fmt::format("--model {}: {} is a {}; leave the option out", options.run.model,
                                    options.resume, own));
}

void recall(Command& command, TrainOptions& options) {
    const TypedOptions saved = saved_options(options.resume);
    require_own_model(options, saved);
    const std::string own = own_tokenizer(options.resume);
    require_own_tokenizer(options, own, saved);
    require_still_there(options, saved);
    // A run that saves elsewhere is another run, and leaves this one's reports as they are.
    const bool is_same_run =
        options.checkpoint.empty() || options.checkpoint == place_of_saves(options.resume);
    options.not_continued = take_over(command, saved, is_same_run ? Reports::go_on : Reports::end);
    if (!saved.empty()) options.changes = Resume::with_changes;
    if (options.checkpoint.empty()) options.checkpoint = place_of_saves(options.resume);
    const std::optional<TextReading> reading = saved_reading(options.resume);
    options.run.reading = reading.value_or(earlier_reading);
    if (!reading) options.run.earlier = options.resume;
    // The checkpoint's own copy, which exists even if the original tokenizer is gone.
    if (!own.empty() && can_be_read(own, options)) options.run.tokenizer = own;
    if (!options.run.from.empty())
        options.run.from_files = ModelFile(options.run.lora.given() ? options.run.from : options.resume,
                                           options.run.sizes.dropout.value_or(0))
                                     .model();
}

/// Takes the image cut of a network that continues to learn, unless options differ, and remembers it, so that
/// the resumed run does not need the files.
void take_cut_of_files(TrainOptions& options) {
    const ImageModelFile& file = *options.run.from_images;
    const ImageCut& cut = file.cut();
    const auto remember = [&](const char* option, const auto& value) {
        if (options.typed.contains(option)) return;
        std::vector<std::string>& words = options.typed[option];
        for (const auto each : value) words.push_back(fmt::format("{}", each));
    };
    options.typed["--model"] = {file.network().model.name};
    remember("--image-size", std::array{cut.image});
    remember("--width", std::array{file.network().sizes.width});
    remember("--resize", std::array{cut.resize});
    remember("--mean", cut.pixels.mean);
    remember("--std", cut.pixels.standard_deviation);
    if (!options.images.resize) options.images.resize = cut.resize;
    const auto take = [](std::vector<float>& to, const auto& from) {
        if (to.empty()) to.assign(from.begin(), from.end());
    };
    take(options.images.mean, cut.pixels.mean);
    take(options.images.standard_deviation, cut.pixels.standard_deviation);
}

/// Replaces `trunk` by all weights of an image network that do not depend on its classes.
void name_trunk(TrainOptions& options) {
    const auto trunk = std::ranges::find(options.freeze, "trunk");
    if (trunk == options.freeze.end()) return;
    if (options.images.directory.empty() || !nn::is_image_model(options.run.model))
        throw UserError(
            "--freeze trunk is all of a network for images but what follows its classes; give patterns of "
            "names for another model");
    const auto names =
        nn::trunk_of(options.run.model, nn::image_sizes(options.run.model, options.run.images));
    options.freeze.erase(trunk);
    options.freeze.insert(options.freeze.end(), names.begin(), names.end());
}

/// A checkpoint remembers the micro-batches of a step over all ranks.
void share_micro_batches(TrainOptions& options, int ranks) {
    if (ranks == 1) return;
    const bool was_remembered = !options.resume.empty() && !options.given.contains("--accumulate");
    if (was_remembered && options.accumulate % ranks != 0)
        throw UserError(fmt::format(
            "--resume {}: its steps have {}, which {} ranks cannot share evenly; start another number of "
            "ranks, or give --accumulate, of each rank",
            options.resume, count_text(options.accumulate, "micro-batch", "micro-batches"), ranks));
    if (was_remembered) options.accumulate /= ranks;
    options.typed["--accumulate"] = {std::to_string(options.accumulate * ranks)};
}

/// Settles warm-up, clipping, rate and holding out, which are remembered even if not given: a run continues
/// with its initial defaults. Checkpoints without them are from a version that had neither warm-up nor
/// clipping and held out the last tenth of all files together. Image checkpoints that remember "each" or
/// "last" are from a version that held out by seed.
void settle_recipe(const Command& command, TrainOptions& options) {
    const bool resumes = !options.resume.empty();
    if (resumes && !command.has_value("--warmup")) options.warmup = 0;
    if (!options.clip) options.clip = resumes || options.optimizer == "sgd" ? 0 : default_clip;
    options.takes_low_rate = !resumes && take_rate_of_trained_weights(command, options.run);
    if (options.takes_low_rate)
        options.typed["--learning-rate"] = {fmt::format("{}", options.run.learning_rate)};
    const bool has_names = !options.images.directory.empty() || options.run.documents == "packed";
    if (options.held_out.empty()) options.held_out = resumes ? "last" : has_names ? "name" : "each";
    options.typed["--held-out"] = {options.held_out};
    options.typed["--warmup"] = {fmt::format("{}", options.warmup)};
    options.typed["--clip"] = {fmt::format("{}", *options.clip)};
}

/// Chats are packed, and their template defines the special tokens.
void settle_chats(TrainOptions& options) {
    if (options.run.chats.empty()) return;
    for (const char* other : {"--documents", "--special-tokens"})
        if (options.given.contains(other))
            throw UserError(
                fmt::format("{} belongs to --text and --tokens: chats are packed, and their template writes "
                            "the special tokens; leave it out",
                            other));
    options.run.documents = "packed";
}

}  // namespace

std::string place_of_best(const std::string& checkpoint) { return checkpoint + std::string(best_suffix); }

void complete_options(Command& command, TrainOptions& options, int ranks) {
    options.given = command.given();
    take_model_of_files(command, options.run);
    take_tokenizer_of_files(options.run);
    options.resume = place_of_checkpoint("--resume", options.resume);
    options.checkpoint = place_of_checkpoint("--checkpoint", options.checkpoint);
    refuse_place_of_previous(options.checkpoint);
    if (!options.resume.empty()) recall(command, options);
    command.require_company();
    settle_chats(options);
    options.typed = options_to_remember(command);
    if (options.run.lora.given() && !options.run.from.empty())  // its checkpoints have only adapters
        options.typed["--from"] = {std::filesystem::absolute(options.run.from).lexically_normal().string()};
    if (!options.images.directory.empty())
        options.typed.erase("--from");  // a checkpoint has all its contents
    if (options.run.from_images && !options.images.directory.empty()) take_cut_of_files(options);
    name_trunk(options);
    if (options.keep_best && !options.resume.empty() && options.checkpoint.ends_with(best_suffix))
        throw UserError(fmt::format(
            "--checkpoint {}: that is where the best checkpoint of {} is kept; name another place",
            options.checkpoint,
            options.checkpoint.substr(0, options.checkpoint.size() - best_suffix.size())));
    settle_recipe(command, options);
    share_micro_batches(options, ranks);
}

void validate_loop(const TrainOptions& options) {
    if (options.images.directory.empty() && nn::is_image_model(options.run.model))
        throw UserError(
            fmt::format("--model {}: is for images; give them as --images DIR", options.run.model));
    if (options.keep_best && options.checkpoint.empty())
        throw UserError("--keep-best keeps a checkpoint beside that of --checkpoint DIR: give that, too");
    if (!options.images.directory.empty())
        refuse_ignored(options, {"--validation", "--held-out"}, "--text and --tokens; images have val/");
    if (!options.validation.empty())
        refuse_ignored(options, {"--held-out"}, "what is trained on, and --validation is apart from that");
    if (options.held_out == "name" && options.images.directory.empty() && options.run.documents != "packed")
        throw UserError(
            "--held-out name: joined texts are no documents with names; give each or last, or --documents "
            "packed");
    if (options.held_out == "each" && !options.run.chats.empty())
        throw UserError("--held-out each: chats are kept whole; give name or last");
    if (options.save_every > 0 && options.checkpoint.empty())
        throw UserError("--save-every needs a place: give --checkpoint DIR");
    if (!options.checkpoint.empty()) require_checkpoint_place(options.checkpoint);
    if (options.keep_best) require_checkpoint_place(place_of_best(options.checkpoint));
    if (options.log == "-" && options.run.json == "-")
        throw UserError("--log -: --json writes there, too; name a file for one of them");
    const std::vector<NamedFile> folders = {{"--checkpoint", options.checkpoint},
                                            {"--tensorboard", options.views.tensorboard},
                                            {"--dump", options.run.dump}};
    const std::vector<NamedFile> outputs = {{"--log", options.log},
                                            {"--json", options.run.json},
                                            {"--html", options.views.html},
                                            {"--trace", options.views.trace}};
    require_outside_images(options.images, folders);
    std::vector<NamedFile> inputs;
    for (const std::string& text : options.run.text) inputs.push_back({"--text", text});
    for (const std::string& tokens : options.run.tokens) inputs.push_back({"--tokens", tokens});
    for (const std::string& chats : options.run.chats) inputs.push_back({"--chats", chats});
    for (const std::string& file : options.validation) inputs.push_back({"--validation", file});
    for (const NamedFile& input : inputs) {
        require_outside(input, "where each file of text is trained on", folders);
        require_outside(input, "where each file of text is trained on", outputs);
    }
    inputs.push_back({"--tokenizer", options.run.tokenizer});
    require_apart(outputs, inputs, {options.checkpoint, options.resume, options.run.from});
}

namespace {

const NumberRange never_or_more{0, "0 (never) or more steps"};
const Company validations{{"--validate-every"}, "belongs to validations; give --validate-every, too"};

std::vector<Row> format_options(TrainOptions& options) {
    LossScaleOptions& scaling = options.scaling;
    return {policy_option(options.run),
            emulate_option(options.run),
            passes_option(options.run),
            Row("--loss-scale", &options.loss_scale,
                "Loss scale: dynamic, none, or a number that stays (default: dynamic for fp16, else none)",
                {.words = {"dynamic", "none"}}),
            Row("--loss-scale-start", &scaling.initial, "First value of a dynamic loss scale"),
            Row("--loss-scale-interval", &scaling.interval,
                "Finite steps in a row after which a dynamic loss scale is doubled"),
            Row("--loss-scale-floor", &scaling.floor, "Lowest value of a dynamic loss scale")};
}

std::vector<Row> training_options(TrainOptions& options) {
    return {Row("--accumulate", &options.accumulate,
                "Micro-batches of a step, each of --batch sequences or images; among ranks, of each rank",
                {.range = {1, "1 or more micro-batches", most_of_count}}),
            Row("--min-learning-rate", &options.min_learning_rate,
                "Final learning rate of the cosine decay, as in PyTorch (default: no decay)"),
            Row("--warmup", &options.warmup, "Steps over which the learning rate rises from 0"),
            Row("--optimizer", &options.optimizer,
                "Optimizer: adamw, sgd, or muon for matrices of hidden layers beside adamw",
                {.words = {"adamw", "sgd", "muon"}, .words_are = WordUse::all_in_sentence}),
            Row("--betas", &options.betas, "Betas of AdamW, also of the part that Muon leaves to it",
                {.values = 2}),
            Row("--momentum", &options.momentum, "Momentum of SGD, or of Muon (there 0.95 if 0)"),
            Row("--nesterov", &options.nesterov, "Nesterov momentum in SGD"),
            Row("--weight-decay", &options.weight_decay,
                "Weight decay on matrices (default: 0.1 with AdamW and Muon, 0 with SGD)"),
            Row("--clip", &options.clip,
                "Largest norm of the gradients; 0: no clipping (default: 1 with AdamW and Muon, 0 with SGD)"),
            Row("--order", &options.order,
                "Order of the data. random: windows of the text, or images, each once an epoch. sequential: "
                "front to back",
                {.words = {"random", "sequential"}, .words_are = WordUse::all_in_sentence}),
            Row("--freeze", &options.freeze,
                "Weights that are not trained: patterns of names with commas between, as h.0.* or layer1.*; "
                "with --images, trunk is all but the head",
                {.type = "PATTERN", .commas = true}),
            Row("--ema", &options.ema,
                "Decay of an exponential moving average of the weights, such as 0.999; the average is "
                "validated, sampled from and saved; 0: no average",
                {.type = "DECAY"}),
            Row("--bad-steps", &options.bad_steps,
                "Stop after so many steps in a row that were not finite; each is skipped and diagnosed; 0: "
                "never stop",
                {.range = never_or_more})};
}

void add_checkpoint_options(Command& command, TrainOptions& options) {
    command.add(
        "Checkpoints",
        {Row("--checkpoint", &options.checkpoint,
             "Save the checkpoint here, at the end and on an interrupt (default: that of --resume)",
             {.type = "DIR", .kept = Kept::nothing}),
         Row("--save-every", &options.save_every, "Steps between checkpoints; 0: only at the end",
             {.range = never_or_more}),
         Row("--keep-best", &options.keep_best,
             "Keep the checkpoint with the lowest validation loss, too, as DIR.best beside --checkpoint DIR",
             {.beside = validations}),
         Row("--resume", &options.resume,
             "Go on from this checkpoint, to the same bits, with the options it was made with; options that "
             "are given now count instead",
             {.type = "DIR", .kept = Kept::nothing})});
    command.add("Model",
                {from_option(options.run,
                             "Begin with these weights: a checkpoint, or a published directory with "
                             "config.json and model.safetensors, and its tokenizer. With --images: a "
                             "checkpoint of such a run, or a file under torchvision's names for --model")});
}

std::vector<Row> validation_options(TrainOptions& options) {
    return {Row("--validate-every", &options.validate_every,
                "Steps between validations on a part of the text (--held-out), or on the images of val/ or a "
                "tenth of all images; 0: never",
                {.range = never_or_more}),
            Row("--validation", &options.validation,
                "Validate on these files instead, and train on all of --text, --tokens or --chats",
                {.type = "FILE", .is_path = true, .is_read = true, .beside = validations}),
            Row("--held-out", &options.held_out,
                "Text that is kept for validation. By name: a tenth of packed documents, by the names of "
                "their files, or of chats, by their words (default for these). By each: the last tenth of "
                "each file (default for joined ones). By last: of all files one after another",
                {.words = {"name", "each", "last"}, .words_are = WordUse::all, .beside = validations}),
            Row("--patience", &options.patience,
                "Stop after so many validations in a row without a lower loss; 0: never",
                {.type = "N", .range = {0, "0 (any number) or more validations"}, .beside = validations}),
            Row("--validate-batches", &options.validate_batches,
                "Batches of a validation; 0: all of the held-out data",
                {.range = {0, "0 (all of the held-out text) or more"}, .beside = validations}),
            Row("--sample-every", &options.sample_every,
                "Steps between samples, in which the model continues --prompt; 0: never",
                {.range = never_or_more}),
            Row("--prompt", &options.sampler.prompt, "Prompt of the samples",
                {.may_be_empty = true,
                 .beside = {{"--sample-every"}, "belongs to samples; give --sample-every, too"}})};
}

void add_report_options(Command& command, TrainOptions& options) {
    command.add(
        "Reports",
        {Row("--dump-target", &options.run.dump_target,
             "With --dump: write the fused kernels for this GPU (sm_80, sm_90a), too, as PTX",
             {.type = "GPU", .kept = Kept::nothing}),
         Row("--print-every", &options.print_every, "Steps between printed lines",
             {.range = {1, "1 step or more"}}),
         Row("--log", &options.log,
             "Write a line of JSON for each step, or a table if FILE ends in .csv; - is standard output; "
             "--resume adds lines",
             {.type = "FILE", .writes_file = true, .is_path = true, .kept = Kept::report}),
         Row("--plan", &options.plan,
             "Print bytes by part, the predicted time of a step and whether it fits, and train nothing",
             {.kept = Kept::nothing}),
         Row("--profile", &options.profile, "Print where the time of the last step went",
             {.kept = Kept::nothing})});
    add_view_options(command, options.views);
}

/// Options of a run by mpirun.
std::vector<Row> rank_options(TrainOptions& options) {
    return {Row("--states", &options.states,
                "Optimizer state across ranks: sharded (ZeRO-1), or whole on every rank",
                {.words = {"sharded", "whole"}, .words_are = WordUse::all}),
            Row("--reduce-dtype", &options.reduce_dtype,
                "Data type of the gradient all-reduce across ranks; bf16 halves the traffic",
                {.words = {"fp32", "bf16"}, .words_are = WordUse::all}),
            Row("--bucket", &options.bucket,
                "Bucket size of the gradient all-reduce, in MB; explain --ranks predicts the best",
                {.type = "MB", .range = {0.001, "0.001 MB or more", 1e6}}),
            Row("--rank-timeout", &options.rank_timeout,
                "Seconds after which a rank that does not answer ends the run", {.kept = Kept::nothing}),
            Row("--compare-every", &options.compare_every,
                "Steps between comparisons of parameters and states across ranks; 0: never",
                {.range = never_or_more, .kept = Kept::nothing})};
}

}  // namespace

void add_train_options(Command& command, TrainOptions& options) {
    add_run_options(command, options.run);
    command.describe("--quiet",
                     "Print no steps and no remarks: only the plan, warnings, what is saved, and a summary");
    add_image_data_options(command, options.images);
    command.add("Formats and passes", format_options(options));
    command.add("Training", training_options(options));
    command.add("Text", {Row("--chats", &options.run.chats,
                             "Files of chats instead of text, JSONL or JSON: messages, conversations, prompt "
                             "and completion, or text. The tokenizer's chat template writes them",
                             {.type = "FILE", .is_path = true, .is_read = true}),
                         loss_on_option(options.run.loss_on)});
    add_checkpoint_options(command, options);
    add_lora_options(command, options.run.lora);
    add_adapter_options(command, options.run.lora);
    command.add("Validation and samples", validation_options(options));
    add_report_options(command, options);
    describe_rate_of_trained_weights(command);
    command.add("Ranks", rank_options(options));
}

}  // namespace mantissa::cli
