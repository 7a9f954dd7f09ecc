// A training run on disk: what a checkpoint must hold so that the run goes on as if it had never stopped, to
// the bit.
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
    std::optional<double> best_loss = {};  ///< the lowest, of those that are finite
    std::int64_t best_steps = 0;           ///< that had been made then
    std::int64_t since = 0;                ///< validations after it, or all where there is none
    std::string judged = {};               ///< equal where they are of the same data; empty: not known
};

/// A checkpoint's record of a run besides what its trainer knows.
struct RunRecord {
    /// The origins of the run, in words, by name: the batches that it reads, its learning rate.
    std::map<std::string, std::string> inputs = {};
    /// How far it has read its data (BatchSource::place_at).
    std::optional<DataPlace> place = {};
    /// Small files to keep beside the weights, by name: the tokenizer.
    std::map<std::string, std::string> texts = {};
    /// The ids of the tokenizer, for those who read the model's configuration.
    HfTokenIds token_ids = {};
    /// The longest sequence that the weights were trained on, by this run and those before it; 0: not known.
    std::int64_t longest_sequence = 0;
    std::optional<TextReading> reading = {};  ///< of the texts that it trains on
    std::optional<ValidationProgress> validations = {};
    /// By this run, and by those that it began from.
    std::optional<TrainedOn> trained_on = {};
    /// Where the weights came from that adapters stand beside; empty: not known.
    std::string base_model = {};
    /// How it was asked for, so that whoever resumes it need not say it again: values by option.
    std::map<std::string, std::vector<std::string>> options = {};
};

/// The members that may differ when a run is resumed. The model and the kind of optimizer never may.
enum class Resume : std::uint8_t {
    as_it_was,    ///< nothing else
    with_changes  ///< policy, loss scale, batch, accumulation, sequence, seed and the optimizer's numbers
};

/// Throws UserError if a checkpoint of this trainer cannot be made in `directory`: what is there is none, no
/// file can be made, or the disk has no room. To be called before training begins.
void require_room_for_checkpoint(const std::filesystem::path& directory, const TrainingPlan& plan);

/// Saves parameters, optimizer state and the position of the run, a piece at a time; what was in `directory`
/// is kept as DIRECTORY.previous. Throws UserError, with everything left as it was, if it cannot. All ranks
/// call it, and it throws on all of them alike; the first's record is kept. Where averages are kept
/// (AveragedWeights), the file of the model has these; the parameters that training goes on with lie among
/// the optimizer's states, as raw.NAME.
void save_training(const std::filesystem::path& directory, Trainer& trainer, const RunRecord& record = {});

/// Throws UserError if there is something in `directory`, where save_merged is to write.
void require_free_for_merged(const std::filesystem::path& directory);

/// Writes the whole model of a trainer with adapters, which are added to its weights in FP32, and the texts
/// beside it. Throws UserError if there is something in `directory`, or it cannot be written.
void save_merged(const std::filesystem::path& directory, const Trainer& trainer,
                 const RunRecord& record = {});

/// The options of the run that was saved in `directory`, or in the checkpoint before it where that one's
/// cannot be read; none where an earlier version saved it. Throws UserError, naming the file, if there is no
/// checkpoint.
std::map<std::string, std::vector<std::string>> saved_options(const std::filesystem::path& directory);

/// The validations of the run that was saved in `directory`; none are as at the beginning. Throws UserError
/// likewise.
ValidationProgress saved_validations(const std::filesystem::path& directory);

/// Its longest sequence (RunRecord); 0: not known, as of earlier versions. Throws UserError likewise.
std::int64_t saved_longest_sequence(const std::filesystem::path& directory);
std::int64_t longest_sequence_in(const LoadedCheckpoint& checkpoint);
/// How that run read its texts, from the same of the two; none where an earlier version saved it, or it reads
/// none.
std::optional<TextReading> saved_reading(const std::filesystem::path& directory);
/// The memory of the run that was saved in `directory`; none where an earlier version or another
/// program wrote it, or it is a file. Throws UserError, naming the file, where it is damaged.
std::optional<TrainedOn> saved_trained_on(const std::filesystem::path& directory);

/// The checkpoint that a run goes on from.
struct Resumed {
    std::filesystem::path directory;  ///< the checkpoint, or the one before it
    /// Empty, or to be shown: the checkpoint was damaged, and the one before it was taken. Or other passes or
    /// instructions compute from here on, with other roundings. Or the run goes on from other inputs or with
    /// changes.
    std::string warning;
    std::map<std::string, std::string> texts = {};  ///< the small files that were kept beside the weights
    ValidationProgress validations = {};
    DataPlace place = {};  ///< where its data go on (BatchSource::go_on_from)
};

/// Puts the trainer where a checkpoint was saved. Throws UserError if there is no checkpoint, or if it is of
/// another configuration, and names every difference that may not be. The trainer is then untouched.
Resumed resume_training(const std::filesystem::path& directory, Trainer& trainer,
                        const RunRecord& record = {}, Resume resume = Resume::as_it_was);

}  // namespace mantissa
