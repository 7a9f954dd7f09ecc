// The options of `train` on the command line, what they mean to a trainer, and those that a checkpoint
// remembers, so that `--resume DIR` alone goes on with the run as it was asked for.
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

/// Values by option, as they were typed.
using TypedOptions = std::map<std::string, std::vector<std::string>>;

/// The options of the command that were given or taken over, reports that grow with a run among them; none
/// that says where to run or what to write this time. Names of files are made absolute: a run may be resumed
/// from another folder.
TypedOptions options_to_remember(const Command& command);

/// Whether log, page and event files of the run before grow on.
enum class Reports : std::uint8_t { go_on, end };

/// Gives the command what was remembered for every option that was not given. Throws UserError, naming the
/// option, for a value that it does not take. Returns which reports were left out, and why, as they would be
/// typed: those that end, or that cannot be written any more. Empty: none.
std::string take_over(Command& command, const TypedOptions& remembered, Reports reports);

struct TrainOptions {
    RunOptions run;
    ImageDataOptions images;
    std::string optimizer = "adamw";
    std::vector<double> betas = {0.9, 0.95};  ///< of AdamW
    double momentum = 0;                      ///< of SGD
    bool nesterov = false;
    std::optional<double> weight_decay;
    std::optional<double> clip;               ///< none: as settle_recipe says
    std::optional<double> min_learning_rate;  ///< none: the same as the learning rate
    std::int64_t accumulate = 1, warmup = default_warmup, save_every = 0, validate_every = 0,
                 sample_every = 0;
    std::vector<std::string> validation;  ///< texts or tokens to validate on; empty: what is held out
    std::string held_out;                 ///< how that is chosen; empty: as settle_recipe says
    std::int64_t validate_batches = 0;    ///< 0: as many as the held-out text makes
    std::int64_t bad_steps = 3;
    std::string order = "random";
    SamplerOptions sampler;
    std::string checkpoint, resume, log;
    std::vector<std::string> freeze;  ///< patterns of names
    double ema = 0;                   ///< the decay of averaged weights; 0: none are kept
    bool keep_best = false;
    std::int64_t patience = 0;  ///< validations without a lower loss; 0: any number
    std::int64_t print_every = 1;
    /// The kind of a resumed run: whether options may differ, since all others were taken over.
    Resume changes = Resume::as_it_was;
    TypedOptions typed;           ///< what the checkpoint is to remember
    std::set<std::string> given;  ///< on this command line, by name
    bool takes_low_rate = false;  ///< take_rate_of_trained_weights
    std::string not_continued;    ///< reports of the run that is resumed, and why; empty: none
    std::string loss_scale;       ///< "dynamic", "none" or a number; empty: as the policy needs
    LossScaleOptions scaling;
    bool profile = false;
    bool plan = false;                  ///< whether the step is planned and shown, and nothing is trained
    std::string states = "sharded";     ///< of the optimizer, among ranks
    std::string reduce_dtype = "fp32";  ///< in which gradients travel among ranks
    double bucket = 16;                 ///< MB of gradients, among ranks
    double rank_timeout = 300;          ///< seconds
    std::int64_t compare_every = 100;   ///< steps; 0: never
    ViewOptions views;
};

/// Adds every option of `train` to the command; they are read into `options`.
void add_train_options(Command& command, TrainOptions& options);

LearningRateSchedule schedule_of(const TrainOptions& options);

/// The loss scale of --loss-scale and its companions.
LossScaleOptions loss_scale_of(const TrainOptions& options, const Policy& policy);

/// The trainer that was asked for, with the passes that this machine can run. Throws UserError where an
/// option is out of range.
TrainerOptions trainer_of(const TrainOptions& options, const Target& target, const Policy& policy,
                          Ranks* ranks = nullptr);

/// Completes the options after --resume and --from: options that the checkpoint remembers and that were not
/// given, where to save, the model and the tokenizer of the files. Throws UserError where these contradict
/// what was given. A checkpoint remembers the micro-batches of a step, of which each of `ranks` makes its
/// part.
void complete_options(Command& command, TrainOptions& options, int ranks);

/// Where --keep-best keeps the checkpoint with the lowest validation loss.
std::string place_of_best(const std::string& checkpoint);

/// Throws UserError where an option of the loop is out of range or lacks what it needs.
void validate_loop(const TrainOptions& options);

}  // namespace mantissa::cli
