// Options that commands which train have in common, and what they stand for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/lora_options.h"
#include "cli/option_rows.h"
#include "mantissa/base/thread_pool.h"
#include "mantissa/data/corpus.h"
#include "mantissa/nn/documents.h"
#include "mantissa/nn/image_model_parts.h"
#include "mantissa/nn/language_model.h"
#include "mantissa/train/image_model_file.h"
#include "mantissa/train/trainer.h"
#include "mantissa/train/training_plan.h"

namespace mantissa::cli {

struct RunOptions {
    std::string model = "gpt2-tiny";
    std::string from;                             ///< a folder with a model and its weights
    std::optional<nn::LanguageModel> from_files;  ///< that model, in place of --model
    /// The network for images of that folder, whose name and sizes then are those of --model.
    std::shared_ptr<const ImageModelFile> from_images;
    nn::ModelSizes sizes;        ///< in place of the model's own
    nn::GivenImageSizes images;  ///< in place of those of a network for images
    std::string device = "cpu";
    std::int64_t batch = 8, sequence = 0, steps = 0;  ///< sequence 0: the model's context
    std::vector<std::string> text, tokens, chats;
    std::string loss_on = "answers";           ///< of chats
    std::string policy;                        ///< empty: the fastest that trains without a loss scale
    std::string emulate;                       ///< empty: nothing is emulated
    std::optional<std::string> tokens_format;  ///< of TokenFormat; none: found by the first bytes
    std::string tokenizer, json, dump;
    std::string documents = "joined";           ///< of a text: what its sequences are
    std::optional<std::string> special_tokens;  ///< of texts: tokens or text; none: as `reading` says
    TextReading reading;                        ///< of the weights that are gone on with
    std::string earlier;      ///< a checkpoint of an earlier version, of which `reading` is; empty: of none
    std::string dump_target;  ///< a GPU, for which --dump writes kernels, too; empty: none
    std::string passes = "all";  ///< names with commas between, or all, or none
    std::vector<std::string> recompute;
    int threads = 0;
    std::uint64_t seed = 1337;
    double learning_rate = 1e-3;
    bool quiet = false, pass_times = false;
    LoraArguments lora;
};

/// The recipe of trainings where nothing else is asked for: AdamW's gradients are clipped to a norm, and the
/// rate rises at first. Without, a first curve may leap (bench/records/recipe-20261125-0952.txt).
inline constexpr std::int64_t default_warmup = 20;
inline constexpr double default_clip = 1;
/// The highest learning rate of a text model that begins with trained weights.
inline constexpr double rate_of_trained_weights = 2e-5;
/// That of adapters beside such weights, as QLoRA's paper has it: they begin at zero and are small.
inline constexpr double rate_of_adapters = 2e-4;
/// Takes one of these rates where --from names a text model and --learning-rate was not given. Whether it
/// did.
bool take_rate_of_trained_weights(const Command& command, RunOptions& options);
/// The help of --learning-rate says so.
void describe_rate_of_trained_weights(Command& command);

/// Adds the options that commands which train have in common, with `options`' values as defaults.
void add_run_options(Command& command, RunOptions& options);
// Parts of them, for commands that do not train.
void add_model_options(Command& command, RunOptions& options);
void add_machine_options(Command& command, RunOptions& options);
/// --image-size, --classes and --width.
std::vector<Row> image_options(nn::GivenImageSizes& sizes);
/// --from, in place of all that add_model_options says of the model.
Row from_option(RunOptions& options, const char* what);
/// For a value of --tokenizer that is no file: throws UserError, unless it is "bytes".
void require_tokenizer(const std::string& given);
Row seed_option(RunOptions& options, const char* what);
/// Policies in which a model can be trained, or all.
enum class PolicyUse : std::uint8_t { training, any };
Row policy_option(RunOptions& options, PolicyUse use = PolicyUse::training);
Row emulate_option(RunOptions& options);
Row passes_option(RunOptions& options);
Row recompute_option(RunOptions& options);
Row device_option(RunOptions& options);
Row threads_option(int& threads);
Row json_option(std::string& file, const char* what);
Row html_option(std::string& file, const char* what);
Row trace_option(std::string& file, const char* what);
Row quiet_option(bool& quiet, const char* what = "Print no progress");
/// --loss-on, of chats.
Row loss_on_option(std::string& loss_on);
Row documents_option(RunOptions& options);
/// --special-tokens, whose word `given` is.
Row special_tokens_option(std::optional<std::string>& given);
/// The word as it is meant, or none. Throws UserError for one that it does not know.
std::optional<SpecialsInText> specials_of(const std::optional<std::string>& given);
/// The value of --documents. Throws UserError for a word that it does not know.
nn::Documents documents_of(const RunOptions& options);

/// Throws UserError if --device is none that this build has. `ranks`: those among which it is one.
std::unique_ptr<Device> open_device(const RunOptions& options, Ranks* ranks = nullptr);

/// Whether this program trained a network for images there.
bool holds_network(const std::filesystem::path& directory);

/// The model of --from, if it is given: one that writes text, or a network for images; shows the warning
/// where the checkpoint is damaged and the one before it was taken. With --images, files that do not say
/// which network they hold are taken for that of --model. Throws UserError that names the file if there is
/// no model, and, naming the option, where the command line says of the model what its files say.
void take_model_of_files(const Command& command, RunOptions& options);

/// The tokenizer beside a model's weights, or `bytes_word` if the checkpoint says that it was trained on
/// bytes. Throws UserError, beginning with `option`, if there is neither.
std::string tokenizer_beside(const std::filesystem::path& folder, const char* option);

/// For --from, where neither tokens nor a tokenizer were given: the tokenizer beside the weights, or bytes if
/// the checkpoint says that it was trained on them. Throws UserError, beginning with the option, if there is
/// neither.
void take_tokenizer_of_files(RunOptions& options);
/// Says how a checkpoint of an earlier version reads texts, where that is not how they are read today.
void say_earlier_reading(const std::string& checkpoint, const TextReading& reading,
                         const Tokenizer& tokenizer);
/// Warns where a tokenizer is given and another lies beside the weights.
void warn_of_another_tokenizer(const std::string& given, const std::filesystem::path& folder);

/// The corpus of --text, --tokens and --tokenizer, for a language model.
Corpus open_corpus(const RunOptions& options, CorpusOptions::Untokenized untokenized);

/// The model of --model, with the sizes that were given. Throws UserError for one that is not known, or sizes
/// that make none.
nn::LanguageModel language_model(const RunOptions& options);

/// The network for images of --model, of the sizes that were given; none if it names another model. Throws
/// UserError, beginning with the option, for sizes that make none, and for options of language models.
std::optional<nn::ImageModel> image_network(const RunOptions& options);

/// A language model in training on sequences, as --documents says.
std::function<nn::Model(std::int64_t sequence)> on_sequences_of(const nn::LanguageModel& model,
                                                                const RunOptions& options);

/// The same, or the language model in training on sequences of --sequence. Throws UserError for a sequence
/// that is not positive or too long.
nn::Model training_model(const RunOptions& options);

/// The same, where it is going to be trained. Throws UserError where parameters, gradients and moments alone
/// do not fit the memory: before anything is traced, which of such sizes takes long.
nn::Model model_to_train(const RunOptions& options);

/// A trainer's options, as the command line has them. Throws UserError for a batch or number of steps that is
/// not positive.
TrainerOptions trainer_options(const RunOptions& options);

/// The policy or the emulation asked for, or bf16 where the machine has a BF16 matrix unit and fp32 where
/// not. Throws UserError for an emulation under another policy than fp32.
Policy policy_for(const RunOptions& options, const Target& target);

/// "avx512, 2 threads"; for a GPU its name first.
std::string device_text(const Target& target);

/// Switches on the passes of --passes; all: those that the machine can run.
void choose_passes(const RunOptions& options, const Target& target, TrainerOptions& trainer);

/// Writes plans, what the passes left as it was, and why, what was padded, and the code of fused kernels, if
/// --dump asks for them. Throws UserError for a --dump-target without --dump, or one that is not known.
void dump_training(const RunOptions& options, const TrainingPlan& plan);

/// The times of the passes, a line each.
std::string pass_table(const std::vector<PassTime>& times);

}  // namespace mantissa::cli
