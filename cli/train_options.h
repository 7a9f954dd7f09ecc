// The options of `train`: parsing, conversion for a trainer, and the options that a checkpoint remembers, so
// that `--resume DIR` alone continues the run as requested.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cli/image_data.h"
#include "cli/run_options.h"
#include "cli/train_sampler.h"
#include "cli/train_views.h"
#include "mantissa/train/loss_scale.h"
#include "mantissa/train/optimizer.h"
#include "mantissa/train/schedule.h"
#include "mantissa/train/trainer.h"
#include "mantissa/train/training_checkpoint.h"

namespace mantissa::cli {

class Command;

/// Values by option, as typed.
using TypedOptions = std::map<std::string, std::vector<std::string>>;

/// The options that were given or taken over, including reports that grow with a run. Options that place this
/// run or its outputs are left out. Names of files are made absolute: a run may be resumed from another
/// folder.
TypedOptions options_to_remember(const Command& command);

/// Whether the previous run's log, page and event files continue.
enum class Reports : std::uint8_t { go_on, end };

/// Sets every option that was not given to its remembered value. Throws UserError, naming the option, for an
/// invalid value. Returns the reports that do not continue or cannot be written any more, as they would be
/// typed, with reasons. Empty: none.
std::string take_over(Command& command, const TypedOptions& remembered, Reports reports);

struct TrainOptions {
    RunOptions run;
    ImageDataOptions images;
    std::string optimizer = "adamw";
    std::vector<double> betas = {0.9, 0.95};  ///< of AdamW
    double momentum = 0;                      ///< of SGD
    bool nesterov = false;
    std::optional<double> weight_decay;
    std::optional<double> clip;               ///< none: from settle_recipe
    std::optional<double> min_learning_rate;  ///< none: the learning rate
    std::int64_t accumulate = 1, warmup = default_warmup, save_every = 0, validate_every = 0,
                 sample_every = 0;
    std::vector<std::string> validation;  ///< texts or tokens to validate on; empty: the held-out part
    std::string held_out;                 ///< method of holding out; empty: from settle_recipe
    std::int64_t validate_batches = 0;    ///< 0: all that the held-out text has
    std::int64_t bad_steps = 3;
    std::string order = "random";
    SamplerOptions sampler;
    std::string checkpoint, resume, log;
    std::vector<std::string> freeze;  ///< patterns of names
    double ema = 0;                   ///< decay of averaged weights; 0: none are kept
    bool keep_best = false;
    std::int64_t patience = 0;  ///< validations without a lower loss; 0: unlimited
    std::int64_t print_every = 1;
    /// Whether a resumed run's options may differ; all others were taken over.
    Resume changes = Resume::as_it_was;
    TypedOptions typed;           ///< for the checkpoint to remember
    std::set<std::string> given;  ///< names of options on this command line
    bool takes_low_rate = false;  ///< take_rate_of_trained_weights
    std::string not_continued;    ///< reports of the resumed run, and reasons; empty: none
    std::string loss_scale;       ///< "dynamic", "none" or a number; empty: by the policy
    LossScaleOptions scaling;
    bool profile = false;
    bool plan = false;                  ///< only plans and shows the step, without training
    std::string states = "sharded";     ///< of the optimizer, among ranks
    std::string reduce_dtype = "fp32";  ///< format of gradients in transit between ranks
    double bucket = 16;                 ///< MB of gradients, among ranks
    double rank_timeout = 300;          ///< seconds
    std::int64_t compare_every = 100;   ///< steps; 0: never
    ViewOptions views;
};

/// Adds every option of `train` to the command; parsing fills `options`.
void add_train_options(Command& command, TrainOptions& options);

LearningRateSchedule schedule_of(const TrainOptions& options);

/// The loss scale of --loss-scale and its companions.
LossScaleOptions loss_scale_of(const TrainOptions& options, const Policy& policy);

/// The requested trainer, with the passes that this machine can run. Throws UserError for an option out of
/// range.
TrainerOptions trainer_of(const TrainOptions& options, const Target& target, const Policy& policy,
                          Ranks* ranks = nullptr);

/// Completes the options after --resume and --from: remembered options that were not given, the place to
/// save, the model and the tokenizer of the files. Throws UserError if these contradict the given options. A
/// checkpoint remembers the micro-batches of a whole step, divided among `ranks`.
void complete_options(Command& command, TrainOptions& options, int ranks);

/// Folder of the checkpoint with the lowest validation loss, for --keep-best.
std::string place_of_best(const std::string& checkpoint);

/// Throws UserError if an option of the loop is out of range or lacks a required one.
void validate_loop(const TrainOptions& options);

}  // namespace mantissa::cli
