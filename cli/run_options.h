// Options shared by commands that train, and their effect.
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
    std::optional<nn::LanguageModel> from_files;  ///< the model of `from`, in place of --model
    /// The image network of `from`; --model's name and sizes are then its own.
    std::shared_ptr<const ImageModelFile> from_images;
    nn::ModelSizes sizes;        ///< in place of the model's own
    nn::GivenImageSizes images;  ///< in place of an image network's own
    std::string device = "cpu";
    std::int64_t batch = 8, sequence = 0, steps = 0;  ///< sequence 0: the model's context
    std::vector<std::string> text, tokens, chats;
    std::string loss_on = "answers";           ///< of chats
    std::string policy;                        ///< empty: the fastest that trains without a loss scale
    std::string emulate;                       ///< empty: nothing is emulated
    std::optional<std::string> tokens_format;  ///< of TokenFormat; none: detected by the first bytes
    std::string tokenizer, json, dump;
    std::string documents = "joined";           ///< how sequences treat a text's documents
    std::optional<std::string> special_tokens;  ///< tokens or text; none: as in `reading`
    TextReading reading;                        ///< of the weights that training continues from
    std::string earlier;         ///< an earlier version's checkpoint, origin of `reading`; empty: none
    std::string dump_target;     ///< a GPU for which --dump also writes kernels; empty: none
    std::string passes = "all";  ///< names separated by commas, or all, or none
    std::vector<std::string> recompute;
    int threads = 0;
    std::uint64_t seed = 1337;
    double learning_rate = 1e-3;
    bool quiet = false, pass_times = false;
    LoraArguments lora;
};

/// The default recipe of trainings: AdamW's gradients are clipped to a norm, and the rate rises at first.
/// Otherwise a first curve may leap (bench/records/recipe-20261125-0952.txt).
inline constexpr std::int64_t default_warmup = 20;
inline constexpr double default_clip = 1;
/// The highest learning rate of a text model that begins with trained weights.
inline constexpr double rate_of_trained_weights = 2e-5;
/// The rate of adapters beside such weights, from QLoRA's paper: they begin at zero and are small.
inline constexpr double rate_of_adapters = 2e-4;
/// Sets one of these rates if --from names a text model and --learning-rate was not given; returns whether it
/// did.
bool take_rate_of_trained_weights(const Command& command, RunOptions& options);
/// Mentions this in the help of --learning-rate.
void describe_rate_of_trained_weights(Command& command);

/// Adds the options shared by commands that train, with `options`' values as defaults.
void add_run_options(Command& command, RunOptions& options);
// Parts of these options, for commands that do not train.
void add_model_options(Command& command, RunOptions& options);
void add_machine_options(Command& command, RunOptions& options);
/// --image-size, --classes and --width.
std::vector<Row> image_options(nn::GivenImageSizes& sizes);
/// --from, in place of add_model_options' options of the model.
Row from_option(RunOptions& options, const char* what);
/// Throws UserError for a value of --tokenizer that is neither a file nor "bytes".
void require_tokenizer(const std::string& given);
Row seed_option(RunOptions& options, const char* what);
/// Policies that a model can be trained in, or all.
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
/// --loss-on, for chats.
Row loss_on_option(std::string& loss_on);
Row documents_option(RunOptions& options);
/// --special-tokens, with its word in `given`.
Row special_tokens_option(std::optional<std::string>& given);
/// The meaning of the word, or none. Throws UserError for an unknown word.
std::optional<SpecialsInText> specials_of(const std::optional<std::string>& given);
/// The value of --documents. Throws UserError for an unknown word.
nn::Documents documents_of(const RunOptions& options);

/// Throws UserError if --device is not in this build. `ranks`: the ranks of this device, itself included.
std::unique_ptr<Device> open_device(const RunOptions& options, Ranks* ranks = nullptr);

/// Whether the folder has an image network trained by this program.
bool holds_network(const std::filesystem::path& directory);

/// Takes the model of --from, if given: a text model or an image network. Shows a warning if the checkpoint
/// was damaged and the one before it was read. With --images, files without a network's name are taken for
/// --model's. Throws UserError that names the file if there is no model, and, naming the option, if an option
/// repeats or contradicts the files.
void take_model_of_files(const Command& command, RunOptions& options);

/// The tokenizer beside a model's weights, or `bytes_word` if the checkpoint was trained on bytes. Throws
/// UserError, beginning with `option`, if there is neither.
std::string tokenizer_beside(const std::filesystem::path& folder, const char* option);

/// For --from without tokens and tokenizer: takes the tokenizer beside the weights, or bytes if the
/// checkpoint was trained on them. Throws UserError, beginning with the option, if there is neither.
void take_tokenizer_of_files(RunOptions& options);
/// Prints how an earlier version's checkpoint reads texts, if that differs from the present way.
void say_earlier_reading(const std::string& checkpoint, const TextReading& reading,
                         const Tokenizer& tokenizer);
/// Warns if a tokenizer is given and a different one is beside the weights.
void warn_of_another_tokenizer(const std::string& given, const std::filesystem::path& folder);

/// The corpus of --text, --tokens and --tokenizer, for a language model.
Corpus open_corpus(const RunOptions& options, CorpusOptions::Untokenized untokenized);

/// The model of --model with the given sizes. Throws UserError for an unknown model, or sizes that no model
/// can have.
nn::LanguageModel language_model(const RunOptions& options);

/// The image network of --model with the given sizes; none for another model. Throws UserError, beginning
/// with the option, for sizes that no network can have, and for options of language models.
std::optional<nn::ImageModel> image_network(const RunOptions& options);

/// A language model in training on sequences, by --documents.
std::function<nn::Model(std::int64_t sequence)> on_sequences_of(const nn::LanguageModel& model,
                                                                const RunOptions& options);

/// image_network's model, or the language model in training on sequences of --sequence. Throws UserError for
/// a sequence that is not positive or too long.
nn::Model training_model(const RunOptions& options);

/// training_model for actual training. Throws UserError if parameters, gradients and moments alone exceed the
/// memory: before tracing, which takes long at such sizes.
nn::Model model_to_train(const RunOptions& options);

/// A trainer's options from the command line. Throws UserError for a batch or number of steps that is not
/// positive.
TrainerOptions trainer_options(const RunOptions& options);

/// The requested policy or emulation; by default bf16 on machines with a BF16 matrix unit, else fp32. Throws
/// UserError for an emulation under another policy than fp32.
Policy policy_for(const RunOptions& options, const Target& target);

/// "avx512, 2 threads"; for a GPU its name first.
std::string device_text(const Target& target);

/// Switches on the passes of --passes; all: all that the machine can run.
void choose_passes(const RunOptions& options, const Target& target, TrainerOptions& trainer);

/// Writes plans, refusals of passes with reasons, padded parameters and the code of fused kernels, if --dump
/// asks for them. Throws UserError for a --dump-target that is unknown, or without --dump.
void dump_training(const RunOptions& options, const TrainingPlan& plan);

/// The times of the passes, a line each.
std::string pass_table(const std::vector<PassTime>& times);

}  // namespace mantissa::cli
