#include "cli/generate.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/output_file.h"
#include "cli/run_options.h"
#include "mantissa/base/error.h"
#include "mantissa/data/byte_tokenizer.h"
#include "mantissa/data/tokenizer_files.h"
#include "mantissa/train/generate.h"
#include "mantissa/train/model_file.h"

namespace mantissa::cli {

namespace {

struct Options {
    RunOptions run;  // device, threads, tokenizer, seed, json, quiet
    std::string checkpoint, prompt;
    double temperature = 1;
    std::optional<std::int64_t> top_k;
    std::int64_t length = 100;
};

GenerateOptions generate_options(const Options& options, const Tokenizer& tokenizer) {
    return {.sampling = {.temperature = options.temperature,
                         .top_k = options.top_k.value_or(0),
                         .tokens = tokenizer.vocabulary(),
                         .seed = options.run.seed},
            .length = options.length,
            .last_token = tokenizer.special("<|endoftext|>")};
}

void validate(const Options& options) {
    if (options.checkpoint.empty())
        throw UserError("generate needs a model: give --checkpoint DIR, written by train or by another");
    if (options.prompt.empty())
        throw UserError("generate needs a text to continue: give --prompt TEXT, one character or more");
    if (options.top_k && *options.top_k < 1)
        throw UserError(fmt::format(
            "--top-k must be 1 or more tokens, got {}; without it, all are considered", *options.top_k));
    if (options.length < 1)
        throw UserError(fmt::format("--length must be 1 token or more, got {}", options.length));
    mantissa::validate(SamplingOptions{.temperature = options.temperature});
}

/// What the options name, or what lies beside the weights, or bytes.
Tokenizer open_tokenizer(const Options& options, const ModelFile& file) {
    const std::filesystem::path directory = file.directory();
    const auto beside = [&](const char* name) { return std::filesystem::exists(directory / name); };
    Tokenizer tokenizer = !options.run.tokenizer.empty() ? load_tokenizer(options.run.tokenizer)
                          : beside("vocab.json") || beside("tokenizer.json") ? load_tokenizer(directory)
                                                                             : byte_tokenizer();
    if (tokenizer.vocabulary() > file.model().vocabulary)
        throw UserError(fmt::format(
            "{} has {} tokens, the vocabulary of {} only {}; give the tokenizer that "
            "it was trained with",
            tokenizer.parts().source, tokenizer.vocabulary(), file.model().name, file.model().vocabulary));
    return tokenizer;
}

void print_text(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
}

nlohmann::ordered_json report_of(const Options& options, const nn::Gpt2Config& model,
                                 std::size_t prompt_tokens, const Generated& generated,
                                 const std::string& text) {
    return {{"command", "generate"},
            {"model", {{"name", model.name}, {"parameters", model.parameters()}}},
            {"prompt", options.prompt},
            {"prompt_tokens", prompt_tokens},
            {"text", text},
            {"tokens", generated.tokens},
            {"log_probabilities", generated.log_probabilities},
            {"ended_by", name_of(generated.end)},
            {"temperature", options.temperature},
            {"top_k", options.top_k.value_or(0)},
            {"seed", options.run.seed},
            {"prompt_ms", generated.prompt_seconds * 1e3},
            {"tokens_per_second", generated.tokens_per_second()}};
}

void run(const Options& options) {
    validate(options);
    const auto device = open_device(options.run);
    const ModelFile file(options.checkpoint);
    if (!file.warning().empty()) fmt::print(stderr, "mantissa: warning: {}\n", file.warning());
    const nn::Gpt2Config& model = file.model();
    const Tokenizer tokenizer = open_tokenizer(options, file);
    const std::vector<TokenId> prompt = tokenizer.encode(options.prompt);

    Generator generator(*device, model, static_cast<std::int64_t>(prompt.size()));
    StateBlock parameters(*device, generator.parameters());
    file.load(parameters);
    generator.allocate(parameters);
    if (!options.run.quiet)
        fmt::print(stderr, "{}: {}, {} parameters; {}, {} tokens; {}, {} threads\n", options.checkpoint,
                   model.name, model.parameters(), tokenizer.parts().source, tokenizer.vocabulary(),
                   device->target().isa, device->target().threads);

    StreamDecoder decoder(tokenizer);
    std::string text;
    const auto show = [&](const std::string& part) {
        text += part;
        print_text(part);
    };
    print_text(options.prompt);
    const Generated generated = generate(generator, prompt, generate_options(options, tokenizer),
                                         [&](TokenId token) { show(decoder.push(token)); });
    show(decoder.finish());
    print_text("\n");
    if (!options.run.quiet)
        fmt::print(stderr, "{} tokens after a prompt of {} ({:.0f} ms), {:.1f} tokens/s, ended by {}{}\n",
                   generated.tokens.size(), prompt.size(), generated.prompt_seconds * 1e3,
                   generated.tokens_per_second(), name_of(generated.end),
                   generated.end == TextEnd::context ? fmt::format(" ({} tokens)", model.context) : "");
    write_output(options.run.json, report_of(options, model, prompt.size(), generated, text)
                                           .dump(2, ' ', false, nlohmann::json::error_handler_t::replace) +
                                       "\n");
}

}  // namespace

void add_generate_command(CLI::App& app) {
    const auto options = std::make_shared<Options>();
    CLI::App* command = app.add_subcommand("generate", "Continue a prompt with a trained model");
    command
        ->add_option("--checkpoint", options->checkpoint,
                     "The model: a directory that train wrote, or with model.safetensors and config.json")
        ->type_name("DIR");
    command->add_option("--prompt", options->prompt, "The text to continue");
    command
        ->add_option("--tokenizer", options->run.tokenizer,
                     "Tokenizer: a directory, tokenizer.json or .tiktoken (default: the one beside the "
                     "model, else bytes are tokens)")
        ->type_name("DIR");
    command
        ->add_option("--length", options->length,
                     "Tokens to generate; <|endoftext|> ends the text earlier, "
                     "and so does a full context")
        ->capture_default_str();
    command
        ->add_option("--temperature", options->temperature,
                     "Scores are divided by it; 0: always the likeliest token")
        ->capture_default_str();
    command->add_option("--top-k", options->top_k,
                        "Draw from the so many likeliest tokens only (default: all)");
    command->add_option("--seed", options->run.seed, "Of the draws")->capture_default_str();
    command->add_option("--device", options->run.device, "Where to run: cpu")->capture_default_str();
    command->add_option("--threads", options->run.threads, "Threads to use (default: all that may be)");
    add_output_file(*command, "--json", options->run.json,
                    "Write text and figures to this file, for machines");
    command->add_flag("--quiet", options->run.quiet, "Print the text alone");
    command->callback([options] { run(*options); });
}

}  // namespace mantissa::cli
