// A training run on disk: the contents of a checkpoint with which a run continues to the same bits.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/data/tokenizer.h"
#include "mantissa/data/trained_on.h"
#include "mantissa/formats/hf_token_ids.h"
#include "mantissa/train/checkpoint.h"
#include "mantissa/train/trainer.h"
#include "mantissa/train/training_plan.h"

namespace mantissa::inline v0 {

/// The validations of a run so far.
struct ValidationProgress {
    std::optional<double> best_loss = {};  ///< the lowest finite one
    std::int64_t best_steps = 0;           ///< steps made by then
    std::int64_t since = 0;                ///< validations after the best one; all, if there is no best
    std::string judged = {};               ///< description of the data, for comparison; empty: not known
};

/// A checkpoint's record of a run, beyond the trainer's own knowledge.
struct RunRecord {
    /// Origins of the run in words, by name: its batches, its learning rate.
    std::map<std::string, std::string> inputs = {};
    /// Its place in the data (BatchSource::place_at).
    std::optional<DataPlace> place = {};
    /// Small files to keep beside the weights, by name: the tokenizer.
    std::map<std::string, std::string> texts = {};
    /// The tokenizer's ids, for readers of the model's configuration.
    HfTokenIds token_ids = {};
    /// The longest sequence that the weights were trained on, in this run and earlier ones; 0: not known.
    std::int64_t longest_sequence = 0;
    std::optional<TextReading> reading = {};  ///< of its training texts
    std::optional<ValidationProgress> validations = {};
    /// Data of this run, and of the runs that it began from.
    std::optional<TrainedOn> trained_on = {};
    /// Origin of the weights that adapters belong to; empty: not known.
    std::string base_model = {};
    /// The run's options and values, so that a resume need not repeat them.
    std::map<std::string, std::vector<std::string>> options = {};
};

/// The settings that may change at a resume. The model and the kind of optimizer never may.
enum class Resume : std::uint8_t {
    as_it_was,    ///< no setting
    with_changes  ///< policy, loss scale, batch, accumulation, sequence, seed and the optimizer's numbers
};

/// Throws UserError if a checkpoint of this trainer cannot be made: `directory` holds something else, no file
/// can be made, or the disk has no room. To be called before training begins.
void require_room_for_checkpoint(const std::filesystem::path& directory, const TrainingPlan& plan);

/// Saves parameters, optimizer state and the position of the run, a piece at a time. The old `directory` is
/// kept as DIRECTORY.previous. Throws UserError, leaving everything as it was, if it cannot. All ranks call
/// it, and it throws on all of them alike; the first rank's record is kept. If averages are kept
/// (AveragedWeights), the model's file has the averages. The trained parameters are then among the
/// optimizer's states, as raw.NAME.
void save_training(const std::filesystem::path& directory, Trainer& trainer, const RunRecord& record = {});

/// Throws UserError if `directory`, the place for save_merged, is not empty.
void require_free_for_merged(const std::filesystem::path& directory);

/// Writes the whole model, with a trainer's adapters added to its weights in FP32, and the texts beside it.
/// Throws UserError if `directory` is not empty or cannot be written.
void save_merged(const std::filesystem::path& directory, const Trainer& trainer,
                 const RunRecord& record = {});

/// The options of the run saved in `directory`, or in the checkpoint before it where that one is unreadable;
/// none if an earlier version saved it. Throws UserError, naming the file, if there is no checkpoint.
std::map<std::string, std::vector<std::string>> saved_options(const std::filesystem::path& directory);

/// The validations of the run saved in `directory`; empty if there were none. Throws UserError likewise.
ValidationProgress saved_validations(const std::filesystem::path& directory);

/// The run's longest sequence (RunRecord); 0: not known, as in earlier versions. Throws UserError likewise.
std::int64_t saved_longest_sequence(const std::filesystem::path& directory);
std::int64_t longest_sequence_in(const LoadedCheckpoint& checkpoint);
/// How the run read its texts; none if an earlier version saved it, or it reads no texts.
std::optional<TextReading> saved_reading(const std::filesystem::path& directory);
/// The training data of the run saved in `directory`; none if an earlier version or another program wrote it,
/// or it is a file. Throws UserError, naming the file, where it is damaged.
std::optional<TrainedOn> saved_trained_on(const std::filesystem::path& directory);

/// The checkpoint that a run continues from.
struct Resumed {
    std::filesystem::path directory;  ///< the checkpoint, or the one before it
    /// Empty, or a warning to show. The checkpoint was damaged, and the one before it was read. Or other
    /// passes or instructions compute from here on, with other roundings. Or the run has other inputs or
    /// settings.
    std::string warning;
    std::map<std::string, std::string> texts = {};  ///< small files kept beside the weights
    ValidationProgress validations = {};
    DataPlace place = {};  ///< where its data continue (BatchSource::go_on_from)
};

/// Restores a saved run in the trainer. Throws UserError, leaving the trainer untouched, if there is no
/// checkpoint, or if it is of another configuration, naming every difference that is not allowed.
Resumed resume_training(const std::filesystem::path& directory, Trainer& trainer,
                        const RunRecord& record = {}, Resume resume = Resume::as_it_was);

}  // namespace mantissa
