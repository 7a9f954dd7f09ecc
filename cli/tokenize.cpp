// `mantissa tokenize`: trains a byte-level BPE tokenizer, or encodes, decodes and counts text with one.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/output_file.h"
#include "cli/print_error.h"
#include "cli/progress_line.h"
#include "cli/run_options.h"
#include "mantissa/base/clock.h"
#include "mantissa/base/error.h"
#include "mantissa/base/file.h"
#include "mantissa/base/function_ref.h"
#include "mantissa/base/printable.h"
#include "mantissa/base/thread_pool.h"
#include "mantissa/data/chat/chat_set.h"
#include "mantissa/data/encode_text.h"
#include "mantissa/data/text_file.h"
#include "mantissa/data/text_files.h"
#include "mantissa/data/token_file.h"
#include "mantissa/data/token_manifest.h"
#include "mantissa/data/tokenizer_files.h"
#include "mantissa/data/tokenizer_train.h"
#include "mantissa/report/report.h"

namespace mantissa::cli {

namespace {

struct TokenizeCommand {
    std::vector<std::string> train, encode, count, decode, chats;
    TokenId vocabulary = 50257;
    std::string tokenizer, out, json;
    std::optional<std::string> special_tokens;
    std::string loss_on = "answers";
    std::int64_t show = 1;
    int threads = 0;
    bool documents = false, quiet = false;
};

std::string share_text(const char* stage, std::uint64_t done, std::uint64_t total) {
    return fmt::format("{} {:.0f} %", stage, 100.0 * static_cast<double>(done) / static_cast<double>(total));
}

/// Reports the command's result: a line for people, and JSON if --json is given.
void report(const TokenizeCommand& options, const std::string& line, const Fields& fields) {
    if (!options.quiet && !line.empty()) fmt::print("{}\n", line);
    write_output(options.json, json_of("tokenize", fields));
}

int thread_count(const TokenizeCommand& options) {
    return options.threads > 0 ? options.threads : default_thread_count();
}

Tokenizer required_tokenizer(const TokenizeCommand& options) {
    if (options.tokenizer.empty())
        throw UserError("--tokenizer DIR is missing: which tokenizer should be used?");
    return load_tokenizer(options.tokenizer);
}

/// The files of an option; prints which files of folders were taken or left out.
std::vector<std::filesystem::path> texts_to_read(const TokenizeCommand& options,
                                                 const std::vector<std::string>& given) {
    const TextFiles found = find_texts({given.begin(), given.end()});
    if (!options.quiet && !found.account.empty()) say("{}", found.account);
    return found.taken;
}

void train(const TokenizeCommand& options) {
    if (options.out.empty())
        throw UserError("--out DIR is missing: where should vocab.json and merges.txt go?");
    if (holds_tokenizer(options.out))
        throw UserError(
            fmt::format("--out {}: holds a tokenizer, with which texts may have been encoded; name another "
                        "folder, or remove it",
                        options.out));
    in_option("--vocabulary", [&] { require_vocabulary(options.vocabulary); });  // before any text is read
    const Stopwatch watch;
    const std::vector<std::filesystem::path> paths = texts_to_read(options, options.train);
    ThreadPool pool(thread_count(options));
    std::uint64_t bytes = 0;
    std::size_t pieces = 0;
    const Tokenizer tokenizer = [&] {
        ProgressLine line(options.quiet, ProgressLine::FirstLine::after_ten_seconds);
        const auto observer = [&](const TrainProgress& progress) {
            line.show(share_text(progress.stage, progress.done, progress.total));
        };
        for (const auto& path : paths) bytes += TextFile(path).text().size();
        const PieceCounts counts = count_pieces(paths, pool, observer);
        pieces = counts.size();
        return in_option("--vocabulary",
                         [&] { return train_tokenizer(counts, options.vocabulary, observer); });
    }();
    write_tokenizer(tokenizer, options.out);
    const double seconds = watch.seconds();
    report(options,
           fmt::format("{}: {} from {} of text ({}) in {:.1f} s", options.out,
                       count_text(tokenizer.vocabulary(), "token"), count_text(bytes, "byte"),
                       count_text(pieces, "distinct piece"), seconds),
           {{"tokenizer", options.out},
            {"vocabulary", tokenizer.vocabulary()},
            {"bytes", bytes},
            {"pieces", pieces},
            {"seconds", seconds}});
}

/// The texts of --encode or --count, and how they are read.
struct TextsToEncode {
    std::vector<std::filesystem::path> files;
    std::vector<TextFile> texts;
    TextReading reading;
    TextsAre are;

    TextsToEncode(const TokenizeCommand& options, const Tokenizer& tokenizer,
                  const std::vector<std::string>& given)
        : files(texts_to_read(options, given)),
          texts(files.begin(), files.end()),
          reading{.specials = specials_of(options.special_tokens).value_or(SpecialsInText::as_tokens)},
          are(options.documents ? TextsAre::documents : joined_or_begun(tokenizer, reading)) {}
    std::uint64_t bytes() const { return bytes_of_texts(texts, are); }
};

/// Encodes for --encode and --count; `sink` takes the tokens.
std::uint64_t encode_all(const TokenizeCommand& options, const Tokenizer& tokenizer,
                         const TextsToEncode& input, FunctionRef<void(std::span<const TokenId>)> sink) {
    ThreadPool pool(thread_count(options));
    ProgressLine line(options.quiet, ProgressLine::FirstLine::after_ten_seconds);
    std::uint64_t tokens = 0;
    encode_texts(tokenizer, input.texts, input.are, input.reading, pool,
                 [&](std::span<const TokenId> ids, std::size_t bytes_done) {
                     tokens += ids.size();
                     sink(ids);
                     line.show(share_text("encoding", bytes_done, input.bytes()));
                 });
    return tokens;
}

struct Counted {
    std::uint64_t tokens, bytes;
    double seconds;
    std::vector<std::filesystem::path> shards;
};

void report_count(const TokenizeCommand& options, const Counted& counted) {
    const double ratio = static_cast<double>(counted.bytes) / static_cast<double>(counted.tokens);
    Fields fields{{"tokens", counted.tokens},
                  {"bytes", counted.bytes},
                  {"bytes_per_token", ratio},
                  {"seconds", counted.seconds}};
    std::vector<std::string> shards;
    for (const auto& shard : counted.shards) shards.push_back(shard.string());
    if (!shards.empty()) fields.push_back({"files", shards});
    // Without an output file, --encode prints the ids themselves.
    const bool ids_printed = !options.encode.empty() && counted.shards.empty();
    report(options,
           ids_printed ? ""
                       : fmt::format("{}{}{} from {}, {:.2f} bytes per token", fmt::join(shards, ", "),
                                     shards.empty() ? "" : ": ", count_text(counted.tokens, "token"),
                                     count_text(counted.bytes, "byte"), ratio),
           fields);
}

void count(const TokenizeCommand& options) {
    const Tokenizer tokenizer = required_tokenizer(options);
    const TextsToEncode input(options, tokenizer, options.count);
    const Stopwatch watch;
    const auto tokens = encode_all(options, tokenizer, input, [](std::span<const TokenId>) {});
    report_count(options, {tokens, input.bytes(), watch.seconds(), {}});
}

/// Writes the shards of --out and the record of their sources; returns the shards' names.
std::vector<std::filesystem::path> write_shards(const TokenizeCommand& options, const Tokenizer& tokenizer,
                                                const TextsToEncode& input, std::uint64_t& tokens) {
    const std::filesystem::path out = options.out;
    if (!out.has_filename() || out.filename() == "." || out.filename() == "..")
        throw UserError(fmt::format("--out {}: is a folder; name the shards in it, as in {}", options.out,
                                    (out / "shards").lexically_normal().string()));
    std::filesystem::path stem = out;
    std::vector<std::filesystem::path> shards = {out};
    if (out.extension() == ".bin") {
        stem.replace_extension();
        std::vector<TokenId> all;
        tokens = encode_all(options, tokenizer, input, [&](std::span<const TokenId> ids) {
            all.insert(all.end(), ids.begin(), ids.end());
        });
        write_token_shard(out, all);
    } else {
        TokenShardWriter writer(out, {});
        tokens =
            encode_all(options, tokenizer, input, [&](std::span<const TokenId> ids) { writer.append(ids); });
        shards = writer.finish();
    }
    std::vector<TextOrigin> origins;
    for (std::size_t i = 0; i < input.files.size(); ++i)
        origins.push_back(text_origin(input.files[i] == "-" ? "" : input.files[i], input.texts[i].text()));
    write_token_manifest(stem, shards, token_origin(origins, options.tokenizer, tokenizer, input.reading));
    return shards;
}

void encode(const TokenizeCommand& options) {
    const Tokenizer tokenizer = required_tokenizer(options);
    const TextsToEncode input(options, tokenizer, options.encode);
    const Stopwatch watch;
    std::uint64_t tokens = 0;
    std::vector<std::filesystem::path> shards;
    if (options.out.empty()) {
        tokens = encode_all(options, tokenizer, input, [](std::span<const TokenId> ids) {
            for (const TokenId id : ids) fmt::print("{} ", id);
        });
        fmt::print("\n");
    } else {
        shards = write_shards(options, tokenizer, input, tokens);
    }
    report_count(options, {tokens, input.bytes(), watch.seconds(), shards});
}

void print_text(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

/// Marks learnt text: by colour on a terminal, by brackets elsewhere.
struct LearntMarks {
    bool is_terminal = ::isatty(STDOUT_FILENO) == 1;
    std::string_view open = is_terminal ? "\x1b[32m" : "[", close = is_terminal ? "\x1b[0m" : "]";

    std::string around(const ChatPart& part, const std::string& text) const {
        const std::string shown = is_terminal ? printable(text) : text;
        return part.learnt ? fmt::format("{}{}{}", open, shown, close) : shown;
    }
};

/// Shows the ids and the text of chats as in training, with learnt text marked, then total counts.
void show_chats(const TokenizeCommand& options) {
    if (options.show < 0)
        throw UserError(fmt::format("--show must be 0 chats or more, got {}", options.show));
    const Tokenizer tokenizer = required_tokenizer(options);
    ThreadPool pool(thread_count(options));
    const ChatSet set = read_chat_set({.files = {options.chats.begin(), options.chats.end()},
                                       .loss_on = options.loss_on == "all" ? LossOn::all : LossOn::answers,
                                       .longest = std::numeric_limits<std::int32_t>::max()},
                                      tokenizer, pool);
    const LearntMarks marks;
    Table shown{{"tokens", "trained", "text"}};
    std::uint64_t targets = 0;
    for (std::uint64_t chat = 0; chat < set.chats(); ++chat) {
        targets += set.targets_of(chat);
        if (chat >= static_cast<std::uint64_t>(options.show)) continue;
        const TokenRange range = set.range_of(chat);
        const auto ids = std::span(set.tokens).subspan(range.begin, range.size());
        const auto trained = std::span(set.trained).subspan(range.begin, range.size());
        std::string numbers, text;
        for (const ChatPart& part : parts_of(tokenizer, ids, trained)) {
            if (!numbers.empty()) numbers += ' ';
            numbers += marks.around(part, fmt::format("{}", fmt::join(part.tokens, " ")));
            text += marks.around(part, part.text);
        }
        fmt::print("{}, {} trained\n{}\n", count_text(range.size(), "token"), set.targets_of(chat), numbers);
        print_text(text + "\n\n");
        std::vector<int> mask(trained.begin(), trained.end());
        mask[0] = 0;
        shown.add(std::vector<TokenId>(ids.begin(), ids.end()), mask, tokenizer.decode(ids));
    }
    report(options, set.account,
           {{"chats", set.chats()},
            {"tokens", set.tokens.size()},
            {"targets", targets},
            {"account", set.account},
            {"shown", shown}});
}

/// Ids for --decode: numbers separated by spaces or commas.
std::optional<std::vector<TokenId>> parse_ids(std::string_view text) {
    constexpr std::string_view separators = " ,\n\r\t";
    std::vector<TokenId> ids;
    const char* at = text.data();
    const char* const end = at + text.size();
    while (at != end) {
        if (separators.find(*at) != separators.npos) {
            ++at;
            continue;
        }
        TokenId id = 0;
        const auto parsed = std::from_chars(at, end, id);
        if (parsed.ec != std::errc() ||
            (parsed.ptr != end && separators.find(*parsed.ptr) == separators.npos))
            return std::nullopt;
        ids.push_back(id);
        at = parsed.ptr;
    }
    return ids;
}

/// The text of --decode - or of a file of printed ids; none if the file is not text.
std::optional<std::string> printed_ids(const std::string& path) {
    if (is_read_once(path)) return std::string(TextFile(path).text());
    const MappedFile file(path);
    if (file.size() == 0 || !is_plain_text(file.text())) return std::nullopt;
    return std::string(file.text());
}

void decode_file(const Tokenizer& tokenizer, const std::string& path) {
    if (const std::optional<std::string> text = printed_ids(path)) {
        const std::optional<std::vector<TokenId>> ids = parse_ids(*text);
        if (!ids || ids->empty())
            throw UserError(
                fmt::format("{}: is text, but no token ids; expected numbers with spaces, commas or line "
                            "breaks between them, or a file of token shards",
                            path == "-" ? "standard input" : path));
        return print_text(tokenizer.decode(*ids));
    }
    const TokenFile file(path);
    check_tokenizer_of(path, tokenizer);
    file.check_vocabulary(tokenizer.vocabulary());
    constexpr std::uint64_t at_once = 1 << 20;
    std::vector<TokenId> ids;
    for (std::uint64_t begin = 0; begin < file.size(); begin += ids.size()) {
        ids.resize(std::min(at_once, file.size() - begin));
        file.copy(begin, ids);
        print_text(tokenizer.decode(ids));
    }
}

void decode(const TokenizeCommand& options) {
    const Tokenizer tokenizer = required_tokenizer(options);
    if (const auto ids = parse_ids(fmt::format("{}", fmt::join(options.decode, " "))))
        return print_text(tokenizer.decode(*ids));
    if (options.decode.size() > 1)
        throw UserError(
            fmt::format("--decode: expected token ids, or one file; found {} values, not all of them numbers",
                        options.decode.size()));
    decode_file(tokenizer, options.decode[0]);
}

void require_outputs_apart(const TokenizeCommand& options) {
    std::vector<NamedFile> inputs;
    for (const auto& [name, texts] : {std::pair{"--train", &options.train},
                                      {"--encode", &options.encode},
                                      {"--count", &options.count},
                                      {"--chats", &options.chats}})
        for (const std::string& text : *texts) inputs.push_back({name, text});
    std::vector<NamedFile> outputs{{"--json", options.json}};
    if (!options.encode.empty()) outputs.push_back({"--out", options.out});
    require_apart(outputs, inputs);
    for (const NamedFile& input : inputs)
        require_outside(input, "where each file of text is read",
                        {{"--out", options.out}, {"--json", options.json}});
}

}  // namespace

void add_tokenize_command(CLI::App& app) {
    auto options = std::make_shared<TokenizeCommand>();
    Command& command = Command::in(
        app, "tokenize", "Train a byte-level BPE tokenizer, or encode, decode and count text with one");
    command.add_one_of(
        "Action, exactly one of",
        {Row("--train", &options->train, "Train a tokenizer on text files, and folders of them",
             {.type = "TEXT", .is_read = true}),
         Row("--encode", &options->encode,
             "Encode text files, and folders of them, with a line break between two; -: standard input",
             {.type = "TEXT", .is_read = true}),
         Row("--decode", &options->decode,
             "Print the text of a token file, of a text of ids (-: standard input), or of the ids given",
             {.type = "FILE|IDS"}),
         Row("--count", &options->count, "Count the tokens of text files and folders; -: standard input",
             {.type = "TEXT", .is_read = true}),
         Row("--chats", &options->chats,
             "Show chats as training takes them: ids and text, with what is trained marked",
             {.type = "FILE", .is_read = true})});
    const Company texts{{"--encode", "--count"}, "belongs to --encode and --count; leave it out"};
    Row special_tokens = special_tokens_option(options->special_tokens),
        loss_on = loss_on_option(options->loss_on),
        json = json_option(options->json, "Write the summary as JSON");
    special_tokens.is.beside = texts;
    loss_on.is.beside.otherwise = "belongs to --chats; leave it out";
    json.is.beside = {{"--train", "--encode", "--count", "--chats"},
                      "belongs to --train, --encode, --count and --chats; leave it out"};
    command.add(
        "Options",
        {Row("--vocabulary", &options->vocabulary, "Tokens to train, <|endoftext|> included",
             {.beside = {{"--train"}, "belongs to --train; leave it out"}}),
         Row("--tokenizer", &options->tokenizer, "Tokenizer to use: a directory, tokenizer.json or .tiktoken",
             {.type = "DIR",
              .is_read = true,
              .if_missing = require_tokenizer,
              .beside = {{"--encode", "--decode", "--count", "--chats"},
                         "belongs to --encode, --decode, --count and --chats; leave it out"}}),
         Row("--out", &options->out,
             "Output. --train: a directory. --encode: token shards OUT_000000.bin and so on, and "
             "OUT.tokens.json; without it the ids are printed",
             {.beside = {{"--train", "--encode"}, "belongs to --train and --encode; leave it out"}}),
         Row("--documents", &options->documents,
             "With --encode and --count: <|endoftext|> in the text ends a document, for `train --documents "
             "packed`",
             {.beside = texts}),
         special_tokens,
         Row("--show", &options->show, "With --chats: how many are shown, the first ones",
             {.beside = {{"--chats"}, "belongs to --chats; leave it out"}}),
         loss_on, json,
         Row("--threads", &options->threads, "Threads (default: one for each core)",
             {.range = {1, "1 or more"}}),
         quiet_option(options->quiet, "Print no summary and no progress")});
    command.does([options, &command] {
        command.require_company();
        require_outputs_apart(*options);
        if (!options->train.empty()) return train(*options);
        if (!options->encode.empty()) return encode(*options);
        if (!options->decode.empty()) return decode(*options);
        if (!options->chats.empty()) return show_chats(*options);
        count(*options);
    });
}

}  // namespace mantissa::cli
