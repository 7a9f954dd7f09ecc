#include "cli/generate.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/command_line.h"
#include "cli/output_file.h"
#include "cli/print_error.h"
#include "cli/run_options.h"
#include "mantissa/base/error.h"
#include "mantissa/data/byte_tokenizer.h"
#include "mantissa/data/text_file.h"
#include "mantissa/data/tokenizer_files.h"
#include "mantissa/report/profile_table.h"
#include "mantissa/train/generate.h"
#include "mantissa/train/model_file.h"
#include "mantissa/train/perplexity.h"

namespace mantissa::cli {

namespace {

struct GenerateCommand {
    RunOptions run;  // device, threads, tokenizer, seed, json, quiet
    std::string checkpoint, prompt, validation;
    double temperature = 1;
    std::optional<std::int64_t> top_k;
    std::int64_t length = 100;
    bool profile = false;
};

GenerateOptions generate_options(const GenerateCommand& options, const Tokenizer& tokenizer) {
    return {.sampling = {.temperature = options.temperature,
                         .top_k = options.top_k.value_or(0),
                         .tokens = tokenizer.vocabulary(),
                         .seed = options.run.seed},
            .length = options.length,
            .last_token = tokenizer.end_of_text()};
}

void validate(const GenerateCommand& options) {
    if (options.checkpoint.empty())
        throw UserError("--checkpoint DIR is missing: which model, written by train or by another?");
    if (options.prompt.empty() && options.validation.empty())
        throw UserError("--prompt TEXT is missing: which text, of one character or more, to continue?");
    if (options.top_k && *options.top_k < 1)
        throw UserError(fmt::format(
            "--top-k must be 1 or more tokens, got {}; without it, all are considered", *options.top_k));
    if (options.length < 1)
        throw UserError(fmt::format("--length must be 1 token or more, got {}", options.length));
    in_option("--temperature",
              [&] { mantissa::validate(SamplingOptions{.temperature = options.temperature}); });
}

/// What the options name, or what lies beside the weights, or bytes.
Tokenizer open_tokenizer(const GenerateCommand& options, const ModelFile& file) {
    Tokenizer tokenizer = !options.run.tokenizer.empty()      ? load_tokenizer(options.run.tokenizer)
                          : holds_tokenizer(file.directory()) ? load_tokenizer(file.directory())
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

double prompt_tokens_per_second(std::size_t tokens, const Generated& generated) {
    return static_cast<double>(tokens) / generated.prompt_seconds;
}

nlohmann::ordered_json report_of(const GenerateCommand& options, const Policy& policy,
                                 const nn::LanguageModel& model, std::size_t prompt_tokens,
                                 const Generated& generated, const std::string& text) {
    return {{"command", "generate"},
            {"model", {{"name", model.name}, {"parameters", model.parameters}}},
            {"prompt", options.prompt},
            {"prompt_tokens", prompt_tokens},
            {"text", text},
            {"tokens", generated.tokens},
            {"log_probabilities", generated.log_probabilities},
            {"ended_by", name_of(generated.end)},
            {"temperature", options.temperature},
            {"top_k", options.top_k.value_or(0)},
            {"seed", options.run.seed},
            {"policy", policy.name},
            {"prompt_ms", generated.prompt_seconds * 1e3},
            {"prompt_tokens_per_second", prompt_tokens_per_second(prompt_tokens, generated)},
            {"tokens_per_second", generated.tokens_per_second()}};
}

/// The model that all parts of the command run.
struct Model {
    Device& device;
    const ModelFile& file;
    const Tokenizer& tokenizer;
    const StateBlock& parameters;

    const nn::LanguageModel& config() const { return file.model(); }
};

void announce(const GenerateCommand& options, const Model& model, const Policy& policy) {
    if (options.run.quiet) return;
    const Target& target = model.device.target();
    print_error(fmt::format("{}: {}, {} parameters; {}, {} tokens; policy {}; {}, {} threads\n",
                            options.checkpoint, model.config().name, model.config().parameters,
                            model.tokenizer.parts().source, model.tokenizer.vocabulary(), policy.name,
                            target.isa, target.threads));
}

std::unique_ptr<Generator> make_generator(const Model& model, const Policy& policy,
                                          const std::vector<TokenId>& prompt) {
    auto generator = std::make_unique<Generator>(model.device, model.config(),
                                                 static_cast<std::int64_t>(prompt.size()), policy);
    generator->allocate(model.parameters);
    return generator;
}

std::string speed_text(const Policy& policy, const std::vector<TokenId>& prompt, const Generated& generated) {
    return fmt::format(
        "{}: {} tokens at {:.1f} tokens/s, after a prompt of {} at {:.1f} tokens/s ({:.0f} ms)", policy.name,
        generated.tokens.size(), generated.tokens_per_second(), prompt.size(),
        prompt_tokens_per_second(prompt.size(), generated), generated.prompt_seconds * 1e3);
}

nlohmann::ordered_json run_prompt(const GenerateCommand& options, const Model& model, const Policy& policy) {
    const std::vector<TokenId> prompt = model.tokenizer.encode_whole(options.prompt);
    const auto generator = make_generator(model, policy, prompt);
    announce(options, model, policy);
    StreamDecoder decoder(model.tokenizer);
    std::string text;
    const auto show = [&](const std::string& part) {
        text += part;
        print_text(part);
    };
    print_text(options.prompt);
    const Generated generated = generate(*generator, prompt, generate_options(options, model.tokenizer),
                                         [&](TokenId token) { show(decoder.push(token)); });
    show(decoder.finish());
    print_text("\n");
    if (!options.run.quiet)
        fmt::print(
            stderr, "{}; ended by {}{}\n", speed_text(policy, prompt, generated), name_of(generated.end),
            generated.end == TextEnd::context ? fmt::format(" ({} tokens)", model.config().context) : "");
    if (options.profile && !generator->profile().empty())
        print_error(fmt::format("{}", profile_table(generator->token_plan(), generator->profile())));
    return report_of(options, policy, model.config(), prompt.size(), generated, text);
}

/// The perplexity of the validation text, and beside that of a quantised model that of BF16, with how fast
/// each continues the prompt, if there is one.
nlohmann::ordered_json run_validation(const GenerateCommand& options, const Model& model,
                                      const Policy& policy, const std::vector<TokenId>& text) {
    std::vector<Policy> policies{policy};
    if (!policy.weights.empty()) policies.push_back(find_policy("bf16"));
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    for (const Policy& each : policies) {
        const Perplexity found = perplexity(model.device, model.config(), each, model.parameters, text);
        fmt::print("perplexity {:.3f} under {}: {} tokens of {}, {:.1f} tokens/s\n", found.value(), each.name,
                   found.tokens, options.validation, found.tokens_per_second());
        all.push_back({{"policy", each.name},
                       {"tokens", found.tokens},
                       {"loss", found.loss},
                       {"perplexity", found.value()},
                       {"tokens_per_second", found.tokens_per_second()}});
    }
    if (policies.size() > 1 && !options.prompt.empty()) {
        const std::vector<TokenId> prompt = model.tokenizer.encode_whole(options.prompt);
        const auto generator = make_generator(model, policies[1], prompt);
        const Generated generated =
            generate(*generator, prompt, generate_options(options, model.tokenizer), [](TokenId) {});
        if (!options.run.quiet) print_error(fmt::format("{}\n", speed_text(policies[1], prompt, generated)));
        all.back()["generated_tokens_per_second"] = generated.tokens_per_second();
    }
    return all;
}

std::string prompt_from_standard_input() {
    std::string prompt((std::istreambuf_iterator<char>(std::cin)), std::istreambuf_iterator<char>());
    if (prompt.ends_with('\n')) prompt.pop_back();
    return prompt;
}

void run(const GenerateCommand& options) {
    validate(options);
    const auto device = open_device(options.run);
    const ModelFile file(options.checkpoint);
    if (!file.warning().empty()) print_error(fmt::format("mantissa: warning: {}\n", file.warning()));
    const Tokenizer tokenizer = open_tokenizer(options, file);
    const Policy policy = policy_for(options.run, device->target());
    StateBlock parameters(*device, Generator(*device, file.model(), 1).parameters());
    file.load(parameters);
    const Model model{*device, file, tokenizer, parameters};
    std::vector<TokenId> text;
    if (!options.validation.empty()) text = tokenizer.encode_whole(TextFile(options.validation).text());
    nlohmann::ordered_json report = {{"command", "generate"}, {"policy", policy.name}};
    if (options.prompt.empty())
        announce(options, model, policy);
    else
        report = run_prompt(options, model, policy);
    if (!options.validation.empty()) report["validation"] = run_validation(options, model, policy, text);
    write_output(options.run.json,
                 report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

}  // namespace

void add_generate_command(CLI::App& app) {
    const auto options = std::make_shared<GenerateCommand>();
    CLI::App* command = app.add_subcommand("generate", "Continue a prompt with a trained model");
    command
        ->add_option("--checkpoint", options->checkpoint,
                     "The model: a directory that train wrote, or with model.safetensors and config.json")
        ->type_name("DIR");
    command->add_option("--prompt", options->prompt,
                        "The text to continue; -: standard input, but for the line break at its end");
    command
        ->add_option("--tokenizer", options->run.tokenizer,
                     "Tokenizer: a directory, tokenizer.json or .tiktoken (default: the one beside the "
                     "model, else bytes are tokens)")
        ->type_name("DIR");
    command
        ->add_option("--length", options->length,
                     "Tokens to generate; <|endoftext|>, or </s>, ends the text earlier, "
                     "and so does a full context")
        ->capture_default_str();
    command
        ->add_option("--temperature", options->temperature,
                     "Scores are divided by it; 0: always the likeliest token")
        ->capture_default_str();
    command->add_option("--top-k", options->top_k, "Draw from the k likeliest tokens only (default: all)");
    add_seed_option(*command, options->run, "Of the draws");
    command->add_option("--device", options->run.device, "Where to run: cpu")->capture_default_str();
    command->add_option("--threads", options->run.threads, "Threads to use (default: all that may be)");
    add_output_file(*command, "--json", options->run.json,
                    "Write text and figures to this file, for machines");
    add_policy_option(*command, options->run, PolicyUse::any);
    command
        ->add_option("--validation", options->validation,
                     "Print the perplexity of this text; that of int8 and int4 beside that of bf16")
        ->type_name("FILE");
    command->add_flag("--profile", options->profile, "Print where the time of the last token went");
    command->add_flag("--quiet", options->run.quiet, "Print the text alone");
    command->callback([options] {
        if (options->prompt == "-") options->prompt = prompt_from_standard_input();
        run(*options);
    });
}

}  // namespace mantissa::cli
