// `mantissa generate`: continues a prompt with a trained model.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/output_file.h"
#include "cli/print_error.h"
#include "cli/run_options.h"
#include "mantissa/base/error.h"
#include "mantissa/base/printable.h"
#include "mantissa/data/chat/chat_encoder.h"
#include "mantissa/data/corpus.h"
#include "mantissa/data/text_file.h"
#include "mantissa/data/text_reading.h"
#include "mantissa/data/tokenizer_files.h"
#include "mantissa/report/report.h"
#include "mantissa/report/roofline.h"
#include "mantissa/train/generate.h"
#include "mantissa/train/model_file.h"
#include "mantissa/train/perplexity.h"
#include "mantissa/train/text_model.h"
#include "mantissa/train/training_checkpoint.h"

namespace mantissa::cli {

namespace {

struct GenerateCommand {
    RunOptions run;  // device, threads, tokenizer, seed, json, quiet
    std::string checkpoint, adapter, prompt, prompts, chat, system;
    std::vector<std::string> validation;
    double temperature = 1, top_p = 1, min_p = 0, repetition_penalty = 1;
    std::optional<std::int64_t> top_k;
    std::vector<std::string> stop;
    std::int64_t length = 100, samples = 1, batch = 8;
    std::string full_context = "end";
    bool profile = false;
};

void validate(const GenerateCommand& options) {
    if (options.checkpoint.empty())
        throw UserError("--checkpoint DIR is missing: which model, written by train or by another?");
    if (!options.prompt.empty() + !options.prompts.empty() + !options.chat.empty() > 1)
        throw UserError("--prompt, --prompts and --chat: give one of them");
    if (!options.chat.empty() && options.run.special_tokens)
        throw UserError(
            "--special-tokens says how --prompt is read; the template of --chat writes them itself");
    if (options.top_k && *options.top_k < 1)
        throw UserError(fmt::format(
            "--top-k must be 1 or more tokens, got {}; without it, all are considered", *options.top_k));
    in_option("--temperature",
              [&] { mantissa::validate(SamplingOptions{.temperature = options.temperature}); });
    in_option("--top-p", [&] { mantissa::validate(SamplingOptions{.top_p = options.top_p}); });
    in_option("--min-p", [&] { mantissa::validate(SamplingOptions{.min_p = options.min_p}); });
    in_option("--repetition-penalty",
              [&] { mantissa::validate(SamplingOptions{.repetition_penalty = options.repetition_penalty}); });
    in_option("--stop", [&] { StopSequences(options.stop); });
    if (options.prompt.empty() && options.prompts.empty() && options.chat.empty() &&
        options.validation.empty())
        throw UserError("--prompt TEXT is missing: which text, of one character or more, to continue?");
}

/// The tokenizer of the options, or the one beside the weights.
Tokenizer open_tokenizer(const GenerateCommand& options, const ModelFile& file) {
    if (options.run.tokenizer.empty())
        return named_tokenizer(tokenizer_beside(file.directory(), "--checkpoint"));
    return in_option("--tokenizer", [&] { return named_tokenizer(options.run.tokenizer); });
}

/// Prints control characters escaped on a terminal, which would obey them; files and programs get the text
/// unchanged.
void print_text(const std::string& text) {
    static const bool is_terminal = ::isatty(STDOUT_FILENO) == 1;
    const std::string shown = is_terminal ? printable(text) : text;
    std::fwrite(shown.data(), 1, shown.size(), stdout);
    std::fflush(stdout);
}

/// A text to be written.
struct Job {
    std::string prompt;
    std::vector<TokenId> tokens;  ///< of the prompt
    std::uint64_t seed = 0;       ///< added to --seed
};

/// The text of a prompt, and how it ended.
struct Written {
    std::string text;
    Generated generated;
};

double prompt_tokens_per_second(std::size_t tokens, const Generated& generated) {
    return static_cast<double>(tokens) / generated.prompt_seconds;
}

Fields fields_of(const GenerateCommand& options, const Job& job, const Written& written) {
    return {{"prompt", job.prompt},
            {"prompt_tokens", job.tokens.size()},
            {"text", written.text},
            {"tokens", written.generated.tokens},
            {"log_probabilities", written.generated.log_probabilities},
            {"ended_by", name_of(written.generated.end)},
            {"slides", written.generated.slides},
            {"seed", options.run.seed + job.seed}};
}

Fields report_of(const GenerateCommand& options, const Policy& policy, const nn::LanguageModel& model) {
    return {{"model.name", model.name},
            {"model.parameters", model.parameters},
            {"temperature", options.temperature},
            {"top_k", options.top_k.value_or(0)},
            {"top_p", options.top_p},
            {"min_p", options.min_p},
            {"repetition_penalty", options.repetition_penalty},
            {"stop", options.stop},
            {"policy", policy.name}};
}

/// Options with the tokens that end a text and, in a chat, an answer's turn.
GenerateOptions generate_options(const GenerateCommand& options, const TextModel& model) {
    const SamplingOptions sampling{.temperature = options.temperature,
                                   .top_k = options.top_k.value_or(0),
                                   .top_p = options.top_p,
                                   .min_p = options.min_p,
                                   .repetition_penalty = options.repetition_penalty,
                                   .seed = options.run.seed};
    const FullContext full = options.full_context == "slide" ? FullContext::slides : FullContext::ends;
    return options.chat.empty() ? model.options(sampling, options.length, full)
                                : model.answer_options(sampling, options.length, full);
}

void announce(const GenerateCommand& options, const TextModel& model, const Policy& policy) {
    if (options.run.quiet) return;
    print_error(fmt::format("{}: {} parameters; {}, {} tokens; policy {}; {}\n", options.checkpoint,
                            model.model().parameters, model.tokenizer().parts().source,
                            model.tokenizer().vocabulary(), policy.name,
                            device_text(model.device().target())));
    if (const nn::LanguageModel& made = model.model(); made.used_context() < made.context)
        print_error(
            fmt::format("{}: was trained on sequences of {}, of a context of {}: texts stay within them\n",
                        options.checkpoint, count_text(made.used_context(), "token"), made.context));
}

/// Makes a generator for `texts` texts at once.
std::unique_ptr<TokenGenerator> make_generator(const GenerateCommand& options, const TextModel& model,
                                               const Policy& policy, std::span<const Job> jobs,
                                               std::size_t texts) {
    std::vector<std::int64_t> lengths;
    for (const Job& job : jobs) lengths.push_back(std::ssize(job.tokens));
    const char* const option = !options.chat.empty() ? "--chat" : jobs.size() > 1 ? "--prompts" : "--prompt";
    auto generator = in_option(option, [&] {
        return model.generator(lengths, generate_options(options, model), policy,
                               static_cast<std::int64_t>(texts));
    });
    generator->allocate(model.parameters());
    return generator;
}

std::string speed_text(const Policy& policy, std::size_t prompt_tokens, const Generated& generated) {
    std::string made = count_text(generated.tokens.size(), "token");
    // The first token comes from the prompt.
    if (generated.timed_tokens > 0) made += fmt::format(" at {:.1f} tokens/s", generated.tokens_per_second());
    return fmt::format("{}: {}, after a prompt of {} at {:.1f} tokens/s ({:.0f} ms)", policy.name, made,
                       prompt_tokens, prompt_tokens_per_second(prompt_tokens, generated),
                       generated.prompt_seconds * 1e3);
}

void print_profile(const GenerateCommand& options, const TokenGenerator& generator) {
    if (options.profile && !generator.profile().empty())
        print_error(fmt::format("{}", profile_table(generator.token_plan(), generator.profile())));
}

/// Writes one text, shown token by token.
Fields write_one(const GenerateCommand& options, const TextModel& model, const Policy& policy,
                 const Job& job) {
    const auto generator = make_generator(options, model, policy, {&job, 1}, 1);
    announce(options, model, policy);
    TextWriter writer(model.tokenizer(), options.stop);
    if (options.chat.empty()) print_text(job.prompt);
    Written written;
    try {
        written.generated =
            generate(*generator, job.tokens, generate_options(options, model), [&](TokenId token) {
                print_text(writer.push(token));
                return writer.goes_on();
            });
    } catch (const UserError&) {
        print_text("\n");
        throw;
    }
    print_text(writer.finish() + "\n");
    written.text = writer.text();
    const Generated& generated = written.generated;
    if (!options.run.quiet)
        fmt::print(stderr, "{}; ended by {}{}\n", speed_text(policy, job.tokens.size(), generated),
                   name_of(generated.end),
                   generated.end == TextEnd::context
                       ? fmt::format(" ({})", count_text(model.model().used_context(), "token"))
                   : generated.slides > 0
                       ? fmt::format("; the context of {} was full {}, and its older half dropped",
                                     count_text(model.model().used_context(), "token"),
                                     count_text(generated.slides, "time"))
                       : "");
    print_profile(options, *generator);
    Fields report = report_of(options, policy, model.model());
    const Fields text = fields_of(options, job, written);
    report.insert(report.end(), text.begin(), text.end());  // beside the list, as in earlier versions
    report.insert(report.end(),
                  {{"texts", Datum::List{text}},
                   {"texts_at_once", 1},
                   {"prompt_ms", generated.prompt_seconds * 1e3},
                   {"prompt_tokens_per_second", prompt_tokens_per_second(job.tokens.size(), generated)},
                   {"tokens_per_second", generated.tokens_per_second()}});
    return report;
}

/// Writes as many texts as the generator has, from the first of `jobs` on. If there are fewer jobs, the last
/// is repeated, and ended at its first token.
std::vector<Written> write_together(const GenerateCommand& options, const TextModel& model,
                                    TokenGenerator& generator, std::span<const Job> jobs) {
    std::vector<TextWriter> writers(jobs.size(), TextWriter(model.tokenizer(), options.stop));
    std::vector<std::vector<TokenId>> prompts;
    std::vector<std::uint64_t> seeds;
    for (std::size_t i = 0; i < static_cast<std::size_t>(generator.texts()); ++i) {
        const Job& job = jobs[std::min(i, jobs.size() - 1)];
        prompts.push_back(job.tokens);
        seeds.push_back(job.seed);
    }
    std::vector<Generated> all = generate_together(
        generator, prompts, seeds, generate_options(options, model), [&](std::size_t text, TokenId token) {
            if (text >= jobs.size()) return false;
            writers[text].push(token);
            return writers[text].goes_on();
        });
    std::vector<Written> written;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
        writers[i].finish();
        written.push_back({writers[i].text(), std::move(all[i])});
    }
    return written;
}

/// Writes several texts; each is shown when its group is done, with a line of dashes between.
Fields write_all(const GenerateCommand& options, const TextModel& model, const Policy& policy,
                 std::span<const Job> jobs) {
    const std::size_t at_once = std::min(jobs.size(), static_cast<std::size_t>(options.batch));
    const auto generator = make_generator(options, model, policy, jobs, at_once);
    announce(options, model, policy);
    Datum::List texts;
    std::int64_t tokens = 0;
    double seconds = 0;
    for (std::size_t first = 0; first < jobs.size(); first += at_once) {
        const auto some = jobs.subspan(first, std::min(at_once, jobs.size() - first));
        const std::vector<Written> written = write_together(options, model, *generator, some);
        for (std::size_t i = 0; i < some.size(); ++i) {
            print_text((first + i == 0 ? "" : "----\n") + (options.chat.empty() ? some[i].prompt : "") +
                       written[i].text + "\n");
            texts.emplace_back(fields_of(options, some[i], written[i]));
        }
        tokens += written[0].generated.timed_tokens;
        seconds += written[0].generated.seconds;
    }
    Fields report = report_of(options, policy, model.model());
    report.insert(report.end(), {{"texts", std::move(texts)},
                                 {"texts_at_once", at_once},
                                 {"tokens_per_second", static_cast<double>(tokens) / seconds}});
    if (!options.run.quiet)
        print_error(fmt::format("{}: {}, {} at once: {} at {:.1f} tokens/s\n", policy.name,
                                count_text(jobs.size(), "text"), at_once, count_text(tokens, "token"),
                                static_cast<double>(tokens) / seconds));
    print_profile(options, *generator);
    return report;
}

/// Conversations of --chat: chats in a file, or a text as the user's message.
std::vector<ChatRecord> conversations(const GenerateCommand& options) {
    const std::string name = options.chat == "-" ? "standard input" : options.chat;
    const TextFile file(options.chat);
    const std::string_view text = file.text();
    const std::size_t first = text.find_first_not_of(" \t\r\n");
    const bool is_json = first != std::string_view::npos && (text[first] == '{' || text[first] == '[');
    std::vector<ChatRecord> chats;
    if (is_json) {
        chats = parse_chats(text, name).chats;
    } else {
        const std::size_t last = text.find_last_not_of("\r\n");
        nlohmann::ordered_json message = {{"role", "user"}, {"content", text.substr(0, last + 1)}};
        chats.push_back({.place = name,
                         .chat = {.messages = nlohmann::ordered_json::array({message}).dump()},
                         .messages = 1});
    }
    for (ChatRecord& chat : chats) {
        if (options.system.empty()) continue;
        auto messages = nlohmann::ordered_json::parse(chat.chat.messages);
        const nlohmann::ordered_json system = {{"role", "system"}, {"content", options.system}};
        messages.insert(messages.begin(), system);
        chat.chat.messages = messages.dump();
    }
    return chats;
}

/// Jobs of --chat: conversations rendered by the template, with the beginning of an answer.
std::vector<Job> jobs_of_chats(const GenerateCommand& options, const TextModel& model) {
    const ChatEncoder encoder(model.tokenizer());
    std::vector<Job> jobs;
    for (const ChatRecord& chat : conversations(options)) {
        ChatEncoder::Prompt prompt = encoder.prompt(chat);
        for (std::int64_t sample = 0; sample < options.samples; ++sample)
            jobs.push_back({prompt.text, prompt.tokens, static_cast<std::uint64_t>(sample)});
    }
    return jobs;
}

/// Jobs of each prompt, as many as --samples; the first of each draws as it would alone.
std::vector<Job> jobs_of(const GenerateCommand& options, const TextModel& model) {
    if (!options.chat.empty()) return jobs_of_chats(options, model);
    std::vector<std::string> prompts;
    if (!options.prompt.empty()) prompts.push_back(options.prompt);
    if (!options.prompts.empty()) {
        const TextFile file(options.prompts);
        for (const std::string_view line : lines_of(file.text()))
            if (!line.empty()) prompts.emplace_back(line);
        if (prompts.empty())
            throw UserError(fmt::format("{}: holds no prompt; expected one a line", options.prompts));
    }
    std::vector<Job> jobs;
    for (const std::string& prompt : prompts) {
        const std::string twice = begins_twice(prompt, model.reading(), model.tokenizer(),
                                               prompts.size() == 1 ? "the prompt" : "a prompt");
        if (!twice.empty()) warn("{}", twice);
        for (std::int64_t sample = 0; sample < options.samples; ++sample)
            jobs.push_back({prompt, model.prompt_tokens(prompt), static_cast<std::uint64_t>(sample)});
    }
    return jobs;
}

/// The text of --validation, read as in a training's validation; null: none was given.
std::unique_ptr<const Corpus> open_validation_text(const GenerateCommand& options, const ModelFile& file,
                                                   const TextModel& model) {
    if (options.validation.empty()) return nullptr;
    RunOptions run = options.run;
    run.from_files = file.model();
    run.text = options.validation;
    if (run.tokenizer.empty()) run.tokenizer = tokenizer_beside(file.directory(), "--checkpoint");
    run.documents = file.documents() == nn::Documents::packed ? "packed" : "joined";
    run.special_tokens.reset();
    run.reading = model.reading();
    auto corpus = std::make_unique<const Corpus>(
        in_option("--validation", [&] { return open_corpus(run, CorpusOptions::Untokenized::bytes); }));
    if (!options.run.quiet) say("--validation: {}", corpus->description);
    return corpus;
}

/// The perplexity of the validation text; for a quantised model also BF16's. With a prompt, also the speed of
/// each in continuing it.
Datum run_validation(const GenerateCommand& options, const TextModel& model, const Policy& policy,
                     const Corpus& text, std::span<const Job> jobs) {
    std::vector<Policy> policies{policy};
    if (!policy.weights.empty()) policies.push_back(find_policy("bf16"));
    std::vector<Fields> all;
    for (const Policy& each : policies) {
        const Perplexity found = perplexity(model.device(), model.model(), each, model.parameters(), text);
        fmt::print("perplexity {:.3f} under {}: {} of {}, {:.1f} tokens/s\n", found.value(), each.name,
                   count_text(found.tokens, "token"), text.stream.source(), found.tokens_per_second());
        all.push_back({{"policy", each.name},
                       {"tokens", found.tokens},
                       {"loss", found.loss},
                       {"perplexity", found.value()},
                       {"tokens_per_second", found.tokens_per_second()}});
    }
    if (policies.size() > 1 && !jobs.empty()) {
        const auto generator = make_generator(options, model, policies[1], jobs.first(1), 1);
        const Generated generated = generate(*generator, jobs[0].tokens, generate_options(options, model),
                                             [](TokenId) { return true; });
        if (!options.run.quiet)
            print_error(fmt::format("{}\n", speed_text(policies[1], jobs[0].tokens.size(), generated)));
        all.back().push_back({"generated_tokens_per_second", generated.tokens_per_second()});
    }
    return all;
}

std::string prompt_from_standard_input() {
    std::string prompt((std::istreambuf_iterator<char>(std::cin)), std::istreambuf_iterator<char>());
    const std::size_t line_break = prompt.ends_with("\r\n") ? 2 : prompt.ends_with('\n') ? 1 : 0;
    prompt.resize(prompt.size() - line_break);
    return prompt;
}

void run(const GenerateCommand& options) {
    validate(options);
    if (holds_network(options.checkpoint))
        throw UserError(
            fmt::format("--checkpoint {}: is of a network for images, which writes no text; predict takes it",
                        options.checkpoint));
    const auto device = open_device(options.run);
    ModelFile file(options.checkpoint);
    if (!options.adapter.empty()) file.adapt(options.adapter);
    if (!file.warning().empty()) warn("{}", file.warning());
    const Policy policy = policy_for(options.run, device->target());
    const TextModel model(*device, file, open_tokenizer(options, file),
                          specials_of(options.run.special_tokens));
    warn_of_another_tokenizer(options.run.tokenizer, file.directory());
    if (file.reading() == earlier_reading && !saved_reading(file.directory()))
        say_earlier_reading(options.checkpoint, model.reading(), model.tokenizer());
    const std::unique_ptr<const Corpus> text = open_validation_text(options, file, model);
    const std::vector<Job> jobs = jobs_of(options, model);
    Fields report{{"policy", policy.name}};
    if (jobs.empty())
        announce(options, model, policy);
    else
        report = jobs.size() == 1 ? write_one(options, model, policy, jobs[0])
                                  : write_all(options, model, policy, jobs);
    if (text) report.push_back({"validation", run_validation(options, model, policy, *text, jobs)});
    write_output(options.run.json, json_of("generate", std::move(report)));
}

}  // namespace

void add_generate_command(CLI::App& app) {
    const auto options = std::make_shared<GenerateCommand>();
    Command& command = Command::in(app, "generate", "Continue a prompt with a trained model");
    const Company prompt{{"--prompt", "--prompts", "--chat"},
                         "says how a text is written: give --prompt, too"};
    Row seed = seed_option(options->run, "Seed of the draws");
    seed.is.beside = prompt;
    command.add(
        "Options",
        {Row("--checkpoint", &options->checkpoint,
             "Directory of the model: written by train, or Hugging Face's with config.json and "
             "model.safetensors",
             {.type = "DIR"}),
         Row("--adapter", &options->adapter,
             "Adapters to add to the model: a folder that train --lora or PEFT wrote",
             {.type = "DIR", .is_read = true}),
         Row("--prompt", &options->prompt, "Text to continue; -: standard input", {.may_be_empty = true}),
         Row("--prompts", &options->prompts, "Texts to continue, one a line, in place of --prompt",
             {.type = "FILE", .is_read = true}),
         Row("--tokenizer", &options->run.tokenizer,
             "Tokenizer: a directory, tokenizer.json or .tiktoken, or bytes (default: the one beside the "
             "model)",
             {.type = "DIR", .is_read = true, .if_missing = require_tokenizer}),
         Row("--chat", &options->chat,
             "Answer a conversation, in place of --prompt: a file of chats, as train takes them, or of the "
             "user's words; -: standard input. The answer alone is printed",
             {.type = "FILE", .is_read = true}),
         Row("--system", &options->system, "With --chat: a system message to put first",
             {.type = "TEXT", .beside = {{"--chat"}, "belongs to --chat; give that, or leave it out"}}),
         special_tokens_option(options->run.special_tokens),
         Row("--length", &options->length, "Tokens to generate; a token that ends a text ends it earlier",
             {.range = {1, "1 token or more"}, .beside = prompt}),
         Row("--full-context", &options->full_context,
             "If a text fills the context: end it, or slide: drop its older half and go on",
             {.words = {"end", "slide"}, .words_are = WordUse::all, .beside = prompt}),
         Row("--temperature", &options->temperature,
             "Temperature: below 1, likely tokens become likelier; 0: always the likeliest token",
             {.beside = prompt}),
         Row("--top-k", &options->top_k, "Draw from the k likeliest tokens only (default: all)",
             {.beside = prompt}),
         Row("--top-p", &options->top_p,
             "Draw from the fewest, likeliest tokens that have this probability together",
             {.beside = prompt}),
         Row("--min-p", &options->min_p,
             "Draw from tokens at least this share as likely as the likeliest, such as 0.05",
             {.beside = prompt}),
         Row("--repetition-penalty", &options->repetition_penalty,
             "Factor by which tokens already in the text become less likely, such as 1.2; 1: none",
             {.beside = prompt}),
         Row("--stop", &options->stop,
             "Stop sequence, before which the text ends; may be given several times",
             {.type = "TEXT", .one_at_a_time = true, .beside = prompt}),
         Row("--samples", &options->samples,
             "Texts for each prompt; the second draws with --seed plus 1, and so on",
             {.range = {1, "1 text or more"}, .beside = prompt}),
         Row("--batch", &options->batch, "Texts that are written at once",
             {.range = {1, "1 text or more"}, .beside = prompt}),
         seed,
         device_option(options->run),
         Row("--threads", &options->run.threads, "Threads (default: one for each core)"),
         json_option(options->run.json, "Write text and figures as JSON"),
         policy_option(options->run, PolicyUse::any),
         Row("--validation", &options->validation,
             "Print the perplexity of text files, and folders of them; for int8 and int4 that of bf16, too",
             {.type = "FILE", .is_read = true}),
         Row("--profile", &options->profile, "Print where the time of the last token went",
             {.beside = prompt}),
         quiet_option(options->run.quiet, "Print the text alone")});
    command.does([options, &command] {
        if (options->prompt == "-" || options->validation.empty()) validate(*options);
        command.require_company();
        if (options->prompt == "-") options->prompt = prompt_from_standard_input();
        run(*options);
    });
}

}  // namespace mantissa::cli
