#include "cli/train_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <limits>

#include "cli/command_line.h"
#include "cli/output_file.h"
#include "mantissa/base/error.h"
#include "mantissa/data/tokenizer_files.h"
#include "mantissa/train/checkpoint.h"
#include "mantissa/train/model_file.h"

namespace mantissa::cli {

LearningRateSchedule schedule_of(const TrainOptions& options) {
    const double peak = options.run.learning_rate;
    const LearningRateSchedule schedule{
        .peak = peak,
        .least = options.min_learning_rate < 0 ? peak : options.min_learning_rate,
        .warmup = options.warmup,
        .steps = options.run.steps};
    validate(schedule);
    return schedule;
}

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
    validate(scaling);
    return scaling;
}

namespace {

Optimizer optimizer_of(const TrainOptions& options) {
    if (options.optimizer == "adamw") {
        AdamWOptions chosen{.beta1 = options.betas.at(0), .beta2 = options.betas.at(1)};
        chosen.weight_decay = options.weight_decay.value_or(chosen.weight_decay);
        return adamw(chosen);
    }
    if (options.optimizer == "sgd")
        return sgd({.momentum = options.momentum,
                    .nesterov = options.nesterov,
                    .weight_decay = options.weight_decay.value_or(0),
                    .decay_matrices_only = true});
    throw UserError(fmt::format("--optimizer is adamw or sgd, got '{}'", options.optimizer));
}

}  // namespace

TrainerOptions trainer_of(const TrainOptions& options, const Target& target, const Policy& policy) {
    TrainerOptions trainer = trainer_options(options.run);
    if (options.accumulate < 1 || options.accumulate > std::numeric_limits<std::int32_t>::max())
        throw UserError(fmt::format("--accumulate must be 1 or more micro-steps, and at most {}, got {}",
                                    std::numeric_limits<std::int32_t>::max(), options.accumulate));
    trainer.accumulate = options.accumulate;
    trainer.optimizer = clipped(optimizer_of(options), options.clip);
    trainer.loss_scale = loss_scale_of(options, policy);
    trainer.pipeline.policy = policy;
    choose_passes(options.run, target, trainer.pipeline);
    return trainer;
}

BatchOrder order_of(const TrainOptions& options) {
    if (options.order == "random") return BatchOrder::random;
    if (options.order == "sequential") return BatchOrder::sequential;
    throw UserError(fmt::format("--order is random or sequential, got '{}'", options.order));
}

namespace {

/// Sizes and --model would say of a model what its files say already.
void require_no_model_options(const CLI::App& command) {
    for (const char* name : {"--model", "--layers", "--heads", "--channels", "--context", "--vocabulary",
                             "--dropout", "--no-bias", "--resume", "--images"})
        if (command.get_option(name)->count() > 0)
            throw UserError(
                fmt::format("--from takes model and weights from files: give it without {}", name));
}

/// The files beside the weights are the tokenizer that they were trained with.
void use_tokenizer_of(const std::string& directory, RunOptions& run) {
    if (run.tokenizer.empty() && run.tokens.empty() && holds_tokenizer(directory)) run.tokenizer = directory;
}

void recall(CLI::App& command, TrainOptions& options) {
    const TypedOptions saved = saved_options(options.resume);
    const bool tokenizer_given = command.get_option("--tokenizer")->count() > 0;
    take_over(command, saved);
    if (!saved.empty()) options.changes = Resume::with_changes;
    if (options.checkpoint.empty()) options.checkpoint = options.resume;
    // Its own copy, which is there whatever became of the one that it was trained with.
    if (!tokenizer_given && holds_tokenizer(options.resume)) options.run.tokenizer = options.resume;
    if (!options.from.empty()) options.run.from_files = ModelFile(options.resume).model();
}

}  // namespace

void complete_options(CLI::App& command, TrainOptions& options) {
    if (!options.from.empty()) {
        require_no_model_options(command);
        options.run.from_files = ModelFile(options.from).model();
        use_tokenizer_of(options.from, options.run);
        if (options.run.tokenizer.empty() && options.run.tokens.empty())
            throw UserError(fmt::format(
                "--from {}: there is no tokenizer beside the weights; give the one they were trained with as "
                "--tokenizer DIR",
                options.from));
    }
    options.resume = place_of_checkpoint("--resume", options.resume);
    options.checkpoint = place_of_checkpoint("--checkpoint", options.checkpoint);
    if (!options.resume.empty()) recall(command, options);
    require_images(command, options.images);
    options.typed = options_to_remember(command);
}

void validate_loop(const TrainOptions& options) {
    if (options.images.directory.empty() && nn::is_image_model(options.run.model))
        throw UserError(
            fmt::format("--model {}: is for pictures; give them as --images DIR", options.run.model));
    for (const auto& [value, name] : {std::pair{options.save_every, "--save-every"},
                                      {options.validate_every, "--validate-every"},
                                      {options.sample_every, "--sample-every"},
                                      {options.bad_steps, "--bad-steps"}})
        if (value < 0)
            throw UserError(fmt::format("{} must be 0 (never) or more steps, got {}", name, value));
    if (options.print_every < 1)
        throw UserError(fmt::format("--print-every must be 1 step or more, got {}", options.print_every));
    if (options.validate_batches < 0)
        throw UserError(fmt::format("--validate-batches must be 0 (all of the held-out text) or more, got {}",
                                    options.validate_batches));
    if (options.save_every > 0 && options.checkpoint.empty())
        throw UserError("--save-every needs a place: give --checkpoint DIR");
    if (!options.checkpoint.empty()) require_checkpoint_place(options.checkpoint);
    require_outside(options.images, {{"--checkpoint", options.checkpoint},
                                     {"--tensorboard", options.views.tensorboard},
                                     {"--dump", options.run.dump}});
    std::vector<NamedFile> inputs;
    for (const std::string& text : options.run.text) inputs.push_back({"--text", text});
    for (const std::string& tokens : options.run.tokens) inputs.push_back({"--tokens", tokens});
    inputs.push_back({"--tokenizer", options.run.tokenizer});
    require_apart({{"--log", options.log},
                   {"--json", options.run.json},
                   {"--html", options.views.html},
                   {"--trace", options.views.trace}},
                  inputs, {options.checkpoint, options.resume, options.from});
}

namespace {

void add_loss_scale_options(CLI::App& command, TrainOptions& options) {
    command.add_option("--loss-scale", options.loss_scale,
                       "dynamic, none, or a number that stays (default: dynamic for fp16, else none)");
    command.add_option("--loss-scale-start", options.scaling.initial, "Of a dynamic loss scale")
        ->capture_default_str();
    command
        .add_option("--loss-scale-interval", options.scaling.interval,
                    "Good steps in a row after which a dynamic loss scale is doubled")
        ->capture_default_str();
    command
        .add_option("--loss-scale-floor", options.scaling.floor, "A dynamic loss scale never falls below it")
        ->capture_default_str();
}

void add_optimizer_options(CLI::App& command, TrainOptions& options) {
    command
        .add_option("--accumulate", options.accumulate,
                    "Micro-steps whose gradients make up a step, each of --batch sequences or pictures")
        ->capture_default_str();
    command.add_option("--min-learning-rate", options.min_learning_rate,
                       "At the last step, reached by a cosine (default: --learning-rate, so constant)");
    command.add_option("--warmup", options.warmup, "Steps over which the learning rate rises")
        ->capture_default_str();
    command.add_option("--optimizer", options.optimizer, "adamw or sgd")->capture_default_str();
    command.add_option("--betas", options.betas, "Of AdamW")->expected(2)->capture_default_str();
    command.add_option("--momentum", options.momentum, "Of SGD")->capture_default_str();
    command.add_flag("--nesterov", options.nesterov, "SGD looks ahead by its momentum");
    command.add_option("--weight-decay", options.weight_decay,
                       "On matrices (default: 0.1 with AdamW, 0 with SGD)");
    command.add_option("--clip", options.clip, "Scale gradients down to this norm; 0: never")
        ->capture_default_str();
}

/// What happens between steps.
void add_loop_options(CLI::App& command, TrainOptions& options) {
    command
        .add_option("--order", options.order,
                    "random: windows of the text, each once an epoch, cut at other places in each, or "
                    "pictures, each once an epoch; sequential: from front to back")
        ->capture_default_str();
    command
        .add_option("--checkpoint", options.checkpoint,
                    "Save here at the end, and on an interrupt (default: where --resume went on from)")
        ->type_name("DIR");
    command.add_option("--save-every", options.save_every, "Save every so many steps, too; 0: never")
        ->capture_default_str();
    command
        .add_option(
            "--resume", options.resume,
            "Go on from this checkpoint, to the same bits, with the options it was made with, and save "
            "there; options that are given take the place of those")
        ->type_name("DIR");
    command
        .add_option("--from", options.from,
                    "Begin with these weights instead of random ones: model.safetensors and config.json as "
                    "published, or a checkpoint; with the tokenizer beside them")
        ->type_name("DIR");
    command.add_option("--print-every", options.print_every, "Print the line of every so many steps")
        ->capture_default_str();
    command
        .add_option("--validate-every", options.validate_every,
                    "Steps between validations on the last tenth of the text, or on the pictures of val/, of "
                    "test_batch.bin or a tenth of each class, then kept from training; 0: never")
        ->capture_default_str();
    command
        .add_option("--validate-batches", options.validate_batches,
                    "Batches of a validation, from the beginning of what is kept; 0: all of it")
        ->capture_default_str();
    command
        .add_option("--sample-every", options.sample_every,
                    "Steps between samples: --prompt continued by the model as it is; 0: never")
        ->capture_default_str();
    command.add_option("--prompt", options.sampler.prompt, "What samples continue")->capture_default_str();
    command
        .add_option("--bad-steps", options.bad_steps,
                    "Stop after so many steps in a row whose loss or gradients were not finite; each is "
                    "skipped, and what went wrong named; 0: never stop")
        ->capture_default_str();
    add_output_file(command, "--log", options.log,
                    "Write a line of JSON a step to this file; after --resume, lines are added");
    command.add_flag("--profile", options.profile, "Print where the time of the last step went");
    add_view_options(command, options.views);
}

}  // namespace

void add_train_options(CLI::App& command, TrainOptions& options) {
    add_run_options(command, options.run);
    add_picture_data_options(command, options.images);
    add_policy_option(command, options.run);
    add_simulate_option(command, options.run);
    add_passes_option(command, options.run);
    command
        .add_option(
            "--dump-target", options.run.dump_target,
            "With --dump: write the fused kernels for this GPU (sm_80, sm_90a), too, as PTX; none has "
            "run it")
        ->type_name("GPU");
    add_loss_scale_options(command, options);
    add_optimizer_options(command, options);
    add_loop_options(command, options);
}

}  // namespace mantissa::cli
