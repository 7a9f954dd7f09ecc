#include "cli/run_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <limits>
#include <memory>

#include "cli/command_line.h"
#include "cli/output_file.h"
#include "cli/print_error.h"
#include "mantissa/base/atomic_file.h"
#include "mantissa/base/error.h"
#include "mantissa/base/printable.h"
#include "mantissa/base/system_memory.h"
#include "mantissa/codegen/compiler.h"
#include "mantissa/data/text_reading.h"
#include "mantissa/data/token_file.h"
#include "mantissa/data/token_manifest.h"
#include "mantissa/data/tokenizer_files.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/device/cuda/cuda_device.h"
#include "mantissa/graph/graph.h"
#include "mantissa/passes/recompute.h"
#include "mantissa/ranks/launched.h"
#include "mantissa/report/quantities.h"
#include "mantissa/report/report.h"
#include "mantissa/train/model_file.h"
#include "mantissa/train/schedule.h"
#include "mantissa/train/training_checkpoint.h"
#include "mantissa/train/training_plan.h"

namespace mantissa::cli {

namespace {

/// The parser returns its largest number for anything larger.
constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();

std::vector<std::string> joined(std::vector<std::string> words, const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

}  // namespace

std::vector<Row> image_options(nn::GivenImageSizes& sizes) {
    return {Row("--image-size", &sizes.image,
                "Rows and columns of an image, in pixels (default: the network's, 224 or 32)"),
            Row("--classes", &sizes.classes,
                "Classes of images (default: the network's, or as many as given images have)"),
            Row("--width", &sizes.width,
                "Channels of the first convolution; all others are in proportion (default: the network's)")};
}

void add_model_options(Command& command, RunOptions& options) {
    const std::vector<std::string> all = nn::language_model_names(), networks = nn::image_model_names();
    const auto half = all.begin() + std::ssize(all) / 2;  // for readable sentences
    nn::ModelSizes& sizes = options.sizes;                // empty sizes are the model's
    command.add(
        "Model",
        {Row("--model", &options.model,
             fmt::format("Model: {}. Or {}. For images: {}", fmt::join(all.begin(), half, ", "),
                         fmt::join(half, all.end(), ", "), fmt::join(networks, ", ")),
             {.words = joined(all, networks)}),
         Row("--layers", &sizes.layers, "Layers (default: the model's)"),
         Row("--heads", &sizes.heads,
             "Attention heads; they must divide the channels (default: the model's)"),
         Row("--channels", &sizes.channels, "Channels, the width of the model (default: the model's)"),
         Row("--context", &sizes.context, "Longest sequence, in tokens (default: the model's)"),
         Row("--vocabulary", &sizes.vocabulary, "Vocabulary size, in tokens (default: the model's)"),
         Row("--dropout", &sizes.dropout, "Share of activations that training drops, 0 to 1 (default: 0)"),
         Row("--no-bias", &sizes.bias, "Linear layers and norms without biases")});
    command.add("Model", image_options(options.images));
    command.add("Training",
                {Row("--batch", &options.batch, "Sequences, or images, of a micro-batch",
                     {.range = {1, "1 or more", most_of_count}}),
                 Row("--sequence", &options.sequence,
                     "Sequence length, in tokens (default: the model's context)", {.check = not_zero})});
}

void require_tokenizer(const std::string& given) {
    if (given != bytes_word) in_option("--tokenizer", [&] { load_tokenizer(given); });
}

Row from_option(RunOptions& options, const char* what) {
    return Row("--from", &options.from, what, {.type = "DIR", .is_read = true});
}

Row seed_option(RunOptions& options, const char* what) {
    // The parser would read -1 as 2^64 - 1.
    const auto refuse_negative = [](const std::string& given) {
        return given.starts_with('-') ? fmt::format("must be 0 or more, got {}", given) : std::string();
    };
    return Row("--seed", &options.seed, what, {.check = refuse_negative});
}

Row device_option(RunOptions& options) {
    return Row("--device", &options.device,
               "Device to run on: cpu, or cuda for an NVIDIA GPU (new: two kinds of card have run it)",
               {.words = {"cpu", "cuda"}, .kept = Kept::nothing});
}

Row threads_option(int& threads) {
    return Row("--threads", &threads, "Threads (default: one for each core)",
               {.check = not_zero, .kept = Kept::nothing});
}

Row json_option(std::string& file, const char* what) {
    return Row("--json", &file, what, {.type = "FILE", .writes_file = true, .kept = Kept::nothing});
}

Row html_option(std::string& file, const char* what) {
    return {
        "--html", &file, what, {.type = "FILE", .writes_file = true, .is_path = true, .kept = Kept::report}};
}

Row trace_option(std::string& file, const char* what) {
    return Row("--trace", &file, what, {.type = "FILE", .writes_file = true, .kept = Kept::nothing});
}

Row quiet_option(bool& quiet, const char* what) {
    return Row("--quiet", &quiet, what, {.kept = Kept::nothing});
}

void add_machine_options(Command& command, RunOptions& options) {
    command.add("Machine", {device_option(options), threads_option(options.threads)});
    command.add("Reports", {json_option(options.json, "Write the report as JSON")});
}

Row policy_option(RunOptions& options, PolicyUse use) {
    const std::vector<std::string> names =
        use == PolicyUse::any ? joined(policy_names(), inference_policy_names()) : policy_names();
    return Row("--policy", &options.policy,
               fmt::format(
                   "Precision policy: {} (default: bf16 where the machine has a BF16 matrix unit, else fp32)",
                   fmt::join(names, ", ")),
               {.words = names});
}

Row emulate_option(RunOptions& options) {
    // An empty value switches off an emulation that a checkpoint remembers.
    return Row("--emulate", &options.emulate,
               "Emulate another precision: round matmul operands to tf32, bf16 or fp16, compute in FP32",
               {.may_be_empty = true, .words = {"tf32", "bf16", "fp16"}});
}

Row passes_option(RunOptions& options) {
    return Row("--passes", &options.passes,
               fmt::format("Optional passes, with commas between: {}; all that this machine can run, or none",
                           fmt::join(optional_pass_names(), ", ")),
               {.words = joined({"all", "none"}, optional_pass_names())});
}

Row recompute_option(RunOptions& options) {
    return Row(
        "--recompute", &options.recompute,
        fmt::format(
            "Values that the backward pass computes again instead of keeping them, with commas between: {}",
            fmt::join(recomputable(), ", ")),
        {.type = "WHAT", .commas = true, .words = recomputable()});
}

Row loss_on_option(std::string& loss_on) {
    return Row("--loss-on", &loss_on,
               "Tokens of --chats that are trained: answers, each with the token that ends its turn, or all",
               {.words = {"answers", "all"},
                .words_are = WordUse::all,
                .beside = {{"--chats"}, "belongs to --chats; give these, or leave it out"}});
}

Row documents_option(RunOptions& options) {
    return Row("--documents", &options.documents,
               "Documents of the text. joined: they follow one another as one text. packed: several in a "
               "sequence, and none sees another",
               {.type = "WORD", .words = {"joined", "packed"}});
}

Row special_tokens_option(std::optional<std::string>& given) {
    return Row("--special-tokens", &given,
               "Special tokens that a text spells, such as <|im_end|>: read as tokens, or as text, letter by "
               "letter (default: as the model was trained, else tokens)",
               {.type = "WORD", .words = {"tokens", "text"}, .words_are = WordUse::all});
}

std::optional<SpecialsInText> specials_of(const std::optional<std::string>& given) {
    return given ? std::optional(specials_in_text(*given)) : std::nullopt;
}

nn::Documents documents_of(const RunOptions& options) {
    if (options.documents == "joined") return nn::Documents::joined;
    if (options.documents == "packed") return nn::Documents::packed;
    throw UserError(fmt::format("--documents {}: expected joined or packed", options.documents));
}

void add_run_options(Command& command, RunOptions& options) {
    add_model_options(command, options);
    add_machine_options(command, options);
    command.add("Training", {Row("--steps", &options.steps, "Training steps", {.range = {1, "1 or more"}})});
    command.add("Text",
                {Row("--text", &options.text,
                     "Text files, and folders of them (default: the licences in /usr/share/common-licenses)",
                     {.type = "FILE", .is_path = true, .is_read = true}),
                 Row("--tokens", &options.tokens, "Token shards instead of text: llm.c's, nanoGPT's or .npy",
                     {.type = "FILE", .is_path = true, .is_read = true}),
                 Row("--tokens-format", &options.tokens_format,
                     "Format of --tokens: llmc, raw (16-bit numbers alone) or npy (default: found by the "
                     "first bytes)",
                     {.words = {"llmc", "raw", "npy"}}),
                 Row("--tokenizer", &options.tokenizer,
                     "Tokenizer of the text: a directory, tokenizer.json or .tiktoken; or bytes, so that "
                     "each byte is a token (default: train: bytes; ladder: one trained on the text)",
                     {.type = "DIR", .is_path = true, .is_read = true, .if_missing = require_tokenizer}),
                 documents_option(options), special_tokens_option(options.special_tokens)});
    command.add("Training", {Row("--learning-rate", &options.learning_rate, "Highest learning rate"),
                             seed_option(options, "Seed of the weights and of everything random")});
    command.add("Formats and passes", {recompute_option(options)});
    command.add("Reports",
                {Row("--dump", &options.dump,
                     "Write the graph after each pass into this directory; train writes the plan, too",
                     {.type = "DIR", .kept = Kept::nothing}),
                 Row("--pass-times", &options.pass_times, "Print the time of each pass, in milliseconds",
                     {.kept = Kept::nothing}),
                 quiet_option(options.quiet)});
}

bool take_rate_of_trained_weights(const Command& command, RunOptions& options) {
    if (!options.from_files || command.is_given("--learning-rate")) return false;
    options.learning_rate = options.lora.given() ? rate_of_adapters : rate_of_trained_weights;
    return true;
}

void describe_rate_of_trained_weights(Command& command) {
    std::string words = fmt::format(
        "Highest learning rate; where --from names a text model, {:g} unless given", rate_of_trained_weights);
    if (command.has("--lora")) words += fmt::format(", {:g} with --lora", rate_of_adapters);
    command.describe("--learning-rate", words);
}

std::unique_ptr<Device> open_device(const RunOptions& options, Ranks* ranks) {
    if (options.threads < 0)
        refuse_value("--threads", fmt::format("must be 1 or more, got {}", options.threads));
    if (options.device == "cuda") {
        Expected<std::unique_ptr<Device>> gpu = make_cuda_device(ranks);
        if (!gpu) throw UserError(gpu.reason() + ", for --device cuda");
        return std::move(*gpu);
    }
    if (options.device != "cpu")
        throw UserError(fmt::format("--device {}: expected cpu or cuda", options.device));
    if (const auto cores = static_cast<int>(usable_cores().size()); options.threads > cores && !options.quiet)
        say("--threads {}: there {}, for which threads beyond that wait", options.threads,
            cores == 1 ? "is one core" : fmt::format("are {} cores", cores));
    return make_cpu_device({.threads = options.threads, .ranks = ranks});
}

namespace {

/// Whether this program trained the model on bytes.
bool is_of_bytes(const std::filesystem::path& checkpoint) {
    if (!std::filesystem::exists(checkpoint / "state.json")) return false;
    const auto saved = saved_options(checkpoint);
    if (const auto word = saved.find("--tokenizer"); word != saved.end())
        return word->second == std::vector<std::string>{bytes_word};
    return !saved.empty() && !saved.contains("--tokens");
}

void refuse_beside_files(const Command& command, std::initializer_list<const char*> names) {
    for (const char* name : names)
        if (command.is_given(name))
            throw UserError(
                fmt::format("--from takes model and weights from files: give it without {}", name));
}

}  // namespace

bool holds_network(const std::filesystem::path& directory) {
    const bool is_checkpoint =
        std::filesystem::exists(directory / "state.json") ||
        std::filesystem::exists(AtomicDirectory::previous_of(directory) / "state.json");
    if (!is_checkpoint) return false;
    const auto saved = saved_options(directory);
    const auto model = saved.find("--model");
    return model != saved.end() && model->second.size() == 1 && nn::is_image_model(model->second[0]);
}

namespace {

/// Takes the network of the files; with --images, its head may have other classes.
void take_network_of_files(const Command& command, RunOptions& options) {
    refuse_beside_files(command, {"--model", "--image-size", "--width", "--resume"});
    const bool trains_on_others = command.is_given("--images");
    if (!trains_on_others) refuse_beside_files(command, {"--classes"});
    auto file = std::make_shared<const ImageModelFile>(options.from);
    if (!file->warning().empty()) warn("{}", file->warning());
    const nn::ImageSizes& sizes = file->network().sizes;
    options.from = file->directory().string();
    options.model = file->network().model.name;
    options.images.image = sizes.image;
    options.images.width = sizes.width;
    if (!trains_on_others) options.images.classes = sizes.classes;
    options.from_images = std::move(file);
}

}  // namespace

void take_model_of_files(const Command& command, RunOptions& options) {
    if (options.from.empty()) return;
    if (holds_network(options.from)) return take_network_of_files(command, options);
    if (command.is_given("--images")) {
        refuse_beside_files(command, {"--resume"});
        if (!std::filesystem::exists(options.from))
            throw UserError(fmt::format("{}: does not exist", options.from));
        if (!nn::is_image_model(options.model))
            throw UserError(
                fmt::format("--from {}: with --images it is a checkpoint of such a run, or a safetensors "
                            "file and --model, which of {} it is of",
                            options.from, fmt::join(nn::image_model_names(), ", ")));
        return;
    }
    refuse_beside_files(command, {"--model", "--layers", "--heads", "--channels", "--context", "--vocabulary",
                                  "--no-bias", "--resume"});
    const ModelFile file(options.from, options.sizes.dropout.value_or(0));
    if (!file.warning().empty()) warn("{}", file.warning());
    options.from = file.directory().string();
    options.from_files = file.model();
    options.reading = file.reading();
    if (options.reading == earlier_reading && !saved_reading(options.from)) options.earlier = options.from;
}

void take_tokenizer_of_files(RunOptions& options) {
    if (options.from.empty() || nn::is_image_model(options.model)) return;
    if (options.tokenizer.empty() && options.tokens.empty())
        options.tokenizer = tokenizer_beside(options.from, "--from");
    else
        warn_of_another_tokenizer(options.tokenizer, options.from);
}

void warn_of_another_tokenizer(const std::string& given, const std::filesystem::path& folder) {
    const bool has_own = holds_tokenizer(folder);
    if (given.empty() || (!has_own && !is_of_bytes(folder))) return;
    const bool same = given == bytes_word ? !has_own : has_own && is_kept_in(folder, load_tokenizer(given));
    if (!same)
        warn("--tokenizer {}: the weights in {} learnt {}; leave the option out to use {}", given,
             folder.string(), has_own ? "the tokens of the tokenizer beside them" : "bytes",
             has_own ? "that one" : "them");
}

void say_earlier_reading(const std::string& checkpoint, const TextReading& reading,
                         const Tokenizer& tokenizer) {
    if (differ(reading, TextReading{}, tokenizer))
        say("{} is of an earlier version, and texts are read as they were there: {}", checkpoint,
            text_of(reading, tokenizer));
}

std::string tokenizer_beside(const std::filesystem::path& folder, const char* option) {
    if (holds_tokenizer(folder)) return folder.string();
    if (is_of_bytes(folder)) return bytes_word;
    throw UserError(
        fmt::format("{} {}: there is no tokenizer beside the weights; give the one they were trained with as "
                    "--tokenizer DIR, or --tokenizer {} if it was bytes{}",
                    option, folder.string(), bytes_word, unread_tokenizer(folder)));
}

namespace {

TokenFormat token_format(const RunOptions& options) {
    if (!options.tokens_format) return TokenFormat::detect;
    if (options.tokens.empty())
        throw UserError("--tokens-format says how --tokens are stored: give --tokens FILE");
    return in_option("--tokens-format", [&] { return mantissa::token_format(*options.tokens_format); });
}

}  // namespace

Corpus open_corpus(const RunOptions& options, CorpusOptions::Untokenized untokenized) {
    if (!options.text.empty() && !options.tokens.empty())
        throw UserError("--text and --tokens exclude one another; give one of them");
    if (!options.chats.empty() && !(options.text.empty() && options.tokens.empty()))
        throw UserError("--chats excludes --text and --tokens; give one of them");
    const bool of_bytes = options.tokenizer == bytes_word;
    if (of_bytes)
        for (const std::string& shard : options.tokens) check_tokenizer_of(shard, byte_tokenizer());
    ThreadPool pool(options.threads == 0 ? default_thread_count() : options.threads);
    const std::optional<SpecialsInText> specials = specials_of(options.special_tokens);
    TextReading reading = options.reading;
    reading.specials = specials.value_or(reading.specials);
    const nn::LanguageModel model = language_model(options);
    Corpus corpus =
        mantissa::open_corpus({.texts = {options.text.begin(), options.text.end()},
                               .tokens = {options.tokens.begin(), options.tokens.end()},
                               .chats = {options.chats.begin(), options.chats.end()},
                               .loss_on = options.loss_on == "all" ? LossOn::all : LossOn::answers,
                               .sequence = options.sequence == 0 ? model.context : options.sequence,
                               .tokens_format = token_format(options),
                               .tokenizer = of_bytes ? "" : options.tokenizer,
                               .untokenized = of_bytes ? CorpusOptions::Untokenized::bytes : untokenized,
                               .model_vocabulary = model.vocabulary,
                               .reading = reading,
                               .documents = documents_of(options) == nn::Documents::packed},
                              pool);
    if (specials && !corpus.tokenizer)
        throw UserError("--special-tokens says how a tokenizer reads texts: give --tokenizer DIR");
    if (specials && corpus.reading.specials != *specials)
        throw UserError(
            fmt::format("--special-tokens {}: {} were made with --special-tokens {}; leave the option out, "
                        "or make them anew",
                        name_of(*specials), corpus.stream.source(), name_of(corpus.reading.specials)));
    if (!options.earlier.empty() && corpus.tokenizer)
        say_earlier_reading(options.earlier, corpus.reading, *corpus.tokenizer);
    return corpus;
}

namespace {

/// Writes the graph after each pass as DIR/NN-PASS.txt.
std::function<void(const std::string&, const Graph&)> dump_into(const std::string& directory) {
    if (directory.empty()) return {};
    in_option("--dump", [&] { make_folder(directory); });
    return [directory, index = std::make_shared<int>(0)](const std::string& pass, const Graph& graph) {
        write_output(fmt::format("{}/{:02}-{}.txt", directory, (*index)++, pass), print(graph));
    };
}

/// The options of the given sizes.
std::string given_sizes(const nn::ModelSizes& sizes) {
    std::vector<std::string> given;
    const auto add = [&](const auto& size, const char* option) {
        if (size) given.emplace_back(option);
    };
    add(sizes.layers, "--layers");
    add(sizes.heads, "--heads");
    add(sizes.channels, "--channels");
    add(sizes.context, "--context");
    add(sizes.vocabulary, "--vocabulary");
    add(sizes.dropout, "--dropout");
    return fmt::format("{}", fmt::join(given, ", "));
}

}  // namespace

nn::LanguageModel language_model(const RunOptions& options) {
    if (!options.from_files && nn::is_image_model(options.model))
        throw UserError(fmt::format(
            "--model {}: is for images, which this command does not read; bench trains it on synthetic ones",
            options.model));
    if (options.from_files) return *options.from_files;
    if (!nn::is_language_model(options.model))
        throw UserError(fmt::format("--model: there is no model '{}'; there are {}; for images {}",
                                    options.model, fmt::join(nn::language_model_names(), ", "),
                                    fmt::join(nn::image_model_names(), ", ")));
    return in_option(given_sizes(options.sizes),
                     [&] { return nn::language_model(options.model, options.sizes); });
}

namespace {

/// Refuses options of language models, instead of ignoring them silently.
void refuse_text_options(const RunOptions& options) {
    if (options.sizes != nn::ModelSizes{} || options.sequence != 0)
        throw UserError(
            fmt::format("--model {}: its sizes are --image-size, --classes and --width; the others are of "
                        "language models",
                        options.model));
    if (!options.text.empty() || !options.tokens.empty() || !options.chats.empty() ||
        !options.tokenizer.empty())
        throw UserError(fmt::format(
            "--model {}: trains on images, not on --text, --tokens, --chats or --tokenizer", options.model));
    if (options.special_tokens)
        throw UserError(fmt::format("--model {}: trains on images, in which there are no --special-tokens",
                                    options.model));
    if (documents_of(options) != nn::Documents::joined)
        throw UserError(
            fmt::format("--model {}: trains on images, of which there are no --documents", options.model));
}

}  // namespace

std::optional<nn::ImageModel> image_network(const RunOptions& options) {
    if (!nn::is_image_model(options.model)) {
        if (options.images != nn::GivenImageSizes{})
            throw UserError(fmt::format("--image-size, --classes and --width are of {}, got --model {}",
                                        fmt::join(nn::image_model_names(), ", "), options.model));
        return {};
    }
    refuse_text_options(options);
    const auto checked = [&](const char* option, const nn::GivenImageSizes& given) {
        return in_option(
            option, [&] { return nn::image_model(options.model, nn::image_sizes(options.model, given)); });
    };
    checked("--image-size", {.image = options.images.image});
    checked("--classes", {.classes = options.images.classes});
    return checked("--width", options.images);
}

std::function<nn::Model(std::int64_t sequence)> on_sequences_of(const nn::LanguageModel& model,
                                                                const RunOptions& options) {
    return documents_of(options) == nn::Documents::packed ? model.on_packed_documents : model.on_sequences;
}

nn::Model training_model(const RunOptions& options) {
    if (const std::optional<nn::ImageModel> network = image_network(options)) return network->model;
    if (options.sequence < 0 || options.sequence > most)
        throw UserError(
            fmt::format("--sequence must be 1 or more, and at most {}, got {}", most, options.sequence));
    const nn::LanguageModel model = language_model(options);
    return in_option("--sequence", [&] {
        return on_sequences_of(model, options)(options.sequence == 0 ? model.context : options.sequence);
    });
}

nn::Model model_to_train(const RunOptions& options) {
    // Image networks are small beside the memory of their images.
    if (const std::optional<nn::ImageModel> network = image_network(options)) return network->model;
    constexpr double bytes_of_each = 16;  // FP32: value, gradient and two moments
    const nn::LanguageModel model = language_model(options);
    const double needed = bytes_of_each * static_cast<double>(model.parameters);
    const auto available = static_cast<double>(available_memory());
    if (needed > available && !options.lora.given())  // adapters need neither; their plan knows the need
        throw UserError(fmt::format(
            "{} has {} parameters, which with gradients and moments need {:.2f} GB, {:.2f} GB are available; "
            "give fewer --layers, --channels or --vocabulary, or a smaller --model",
            model.name, model.parameters, needed / 1e9, available / 1e9));
    return training_model(options);
}

TrainerOptions trainer_options(const RunOptions& options) {
    TrainerOptions trainer;
    require_learning_rate(options.learning_rate);
    trainer.batch = options.batch;
    trainer.seed = options.seed;
    trainer.recompute = {options.recompute.begin(), options.recompute.end()};
    in_option("--recompute", [&] { check_recomputable(trainer.recompute); });
    trainer.dump = dump_into(options.dump);
    trainer.passes = {"simplify"};
    trainer.lora = lora_of(options);
    return trainer;
}

void choose_passes(const RunOptions& options, const Target& target, TrainerOptions& trainer) {
    std::vector<std::string> names;
    if (options.passes == "all") {
        names = runnable_passes(target, trainer.policy);
    } else if (options.passes != "none") {
        names = split_at(',', options.passes);
        for (const char* word : {"all", "none"})
            if (std::ranges::find(names, word) != names.end())
                throw UserError(fmt::format("--passes {}: {} stands alone; name the passes, or only {}",
                                            options.passes, word, word));
    }
    PipelineOptions tried;
    in_option("--passes", [&] { mantissa::choose_passes(tried, names); });
    trainer.passes = names;
}

Policy policy_for(const RunOptions& options, const Target& target) {
    if (!options.emulate.empty()) {
        if (!options.policy.empty() && options.policy != "fp32")
            throw UserError(fmt::format(
                "--emulate rounds what FP32 multiplies; with --policy {} nothing is left to round",
                options.policy));
        return in_option("--emulate", [&] { return emulated(options.emulate); });
    }
    if (!options.policy.empty()) return in_option("--policy", [&] { return find_policy(options.policy); });
    return find_policy(target.fastest_policy);
}

std::string device_text(const Target& target) {
    const std::string name = target.device == "cpu" ? "" : target.name + ", ";
    return fmt::format("{}{}, {}", name, target.isa, threads_text(target));
}

namespace {

/// Writes each fused kernel as pseudo-code (.txt), LLVM IR (.ll) and assembly (.s).
void dump_kernels(const std::string& directory, const Device& device) {
    for (const KernelListing& kernel : device.compiled_kernels()) {
        write_output(directory + "/" + kernel.name + ".txt", kernel.pseudo_code);
        write_output(directory + "/" + kernel.name + ".ll", kernel.ir);
        write_output(directory + "/" + kernel.name + ".s", kernel.assembly);
    }
}

/// Writes each fused kernel for a GPU (.ptx), in the order of first use in the plan.
void dump_kernels_for(const std::string& architecture, const std::string& directory, const Graph& graph) {
    if (std::string reason = codegen::Compiler::refusal(); !reason.empty())
        throw UserError("--dump-target: " + reason);
    codegen::Compiler compiler(codegen::NvptxTarget{.architecture = architecture});
    std::vector<std::shared_ptr<const codegen::FusedKernel>> held;
    for (NodeId id = 0; id < graph.end(); ++id)
        if (const Node& node = graph.node(id); node.op->name == "fused")
            held.push_back(compiler.add(node.attributes.body("body").graph()));
    for (const auto& kernel : compiler.kernels())
        write_output(fmt::format("{}/{}-{}.ptx", directory, kernel->name, architecture),
                     compiler.list(*kernel).assembly);
}

}  // namespace

void dump_training(const RunOptions& options, const TrainingPlan& plan) {
    if (options.dump.empty()) {
        if (!options.dump_target.empty())
            throw UserError("--dump-target says for which GPU --dump writes kernels: give --dump DIR");
        return;
    }
    const auto write = [&](const std::string& file, const std::string& text) {
        if (!text.empty()) write_output(options.dump + "/" + file, text);
    };
    write("plan.txt", plan.step().text());
    for (std::size_t level = 0; level < plan.accumulate().size(); ++level)
        write(fmt::format("accumulate-{}-plan.txt", level), plan.accumulate()[level]->text());
    std::string refused, padding;
    for (const PassRefusal& refusal : plan.refused())
        refused += fmt::format("{}: {}\n    {}\n", refusal.pass,
                               refusal.place.empty() ? refusal.op : refusal.place, refusal.reason);
    for (const PaddedParameter& parameter : plan.padded())
        padding += fmt::format("{}: {}, {} of zeros behind them\n", parameter.name,
                               count_text(parameter.rows, "row"), parameter.zero_rows);
    write("refused.txt", refused);
    write("padding.txt", padding);
    if (!options.dump_target.empty())
        dump_kernels_for(options.dump_target, options.dump, plan.step().graph());
    dump_kernels(options.dump, plan.device());
}

std::string pass_table(const std::vector<PassTime>& times) {
    Grid grid{{"pass", "ms", "nodes"}};
    for (const PassTime& time : times)
        grid.rows.push_back({time.pass, with_decimals(time.milliseconds, 2), std::to_string(time.nodes)});
    return grid.text();
}

}  // namespace mantissa::cli
