#include "mantissa/data/corpus.h"

#include <fmt/format.h>

#include <algorithm>

#include "mantissa/base/checksum.h"
#include "mantissa/base/error.h"
#include "mantissa/base/printable.h"
#include "mantissa/data/encode_text.h"
#include "mantissa/data/packed_documents.h"
#include "mantissa/data/permutation.h"
#include "mantissa/data/text_files.h"
#include "mantissa/data/text_reading.h"
#include "mantissa/data/token_manifest.h"
#include "mantissa/data/tokenizer_files.h"
#include "mantissa/data/tokenizer_train.h"

namespace mantissa::inline v0 {

namespace {

constexpr const char* licenses = "/usr/share/common-licenses";

std::vector<TextFile> texts_of(const std::vector<std::filesystem::path>& files) {
    return {files.begin(), files.end()};
}

std::vector<std::int32_t> bytes_of(std::string_view text) {
    std::vector<std::int32_t> tokens;
    tokens.reserve(text.size());
    for (char c : text) tokens.push_back(static_cast<unsigned char>(c));
    return tokens;
}

void require_room(std::int64_t tokens, std::int64_t model_vocabulary, const std::string& what) {
    if (tokens > model_vocabulary)
        throw UserError(fmt::format(
            "{} has {} tokens, the model's vocabulary {}; use a smaller tokenizer or a larger model", what,
            tokens, model_vocabulary));
}

/// Throws UsageError for files that can be read only once: a tokenizer is trained on the text first.
void require_readable_again(const std::vector<std::filesystem::path>& files) {
    for (const std::filesystem::path& path : files)
        if (is_read_once(path))
            throw UsageError(
                fmt::format("{} can be read but once, and a tokenizer is to be trained on it first; give a "
                            "file, or `tokenizer`",
                            path == "-" ? "standard input" : path.string()));
}

const Tokenizer& require_tokenizer(const Tokenizer* tokenizer) {
    if (tokenizer) return *tokenizer;
    throw UsageError(
        "packed documents end at the tokenizer's end-of-text token, and there is no tokenizer; give it as "
        "`tokenizer` DIR");
}

Tokenizer train_on(const std::vector<std::filesystem::path>& files, std::int64_t vocabulary,
                   ThreadPool& pool) {
    const auto silent = [](const TrainProgress&) {};
    return train_tokenizer(count_pieces(files, pool, silent), static_cast<TokenId>(vocabulary), silent);
}

}  // namespace

std::vector<std::filesystem::path> english_text_files() {
    std::vector<std::filesystem::path> files;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(licenses, error))
        if (entry.is_regular_file() && !entry.is_symlink()) files.push_back(entry.path());
    if (files.empty())
        throw UsageError(
            fmt::format("no text was given, and {} has none to start with; use `texts` FILE", licenses));
    std::sort(files.begin(), files.end());
    return files;
}

std::int64_t trained_vocabulary(std::int64_t text_bytes, std::int64_t model_vocabulary) {
    constexpr std::int64_t least = 257, most = 4096;
    return std::clamp(text_bytes / 64, least, std::max(least, std::min(most, model_vocabulary)));
}

namespace {

/// Whether tokens of other programs begin texts with the tokenizer's first tokens.
bool seem_to_begin_texts(const TokenStream& stream, const Tokenizer* tokenizer) {
    if (!tokenizer || tokenizer->parts().first_tokens.empty()) return true;  // no first tokens
    std::vector<std::int32_t> tokens(std::min<std::uint64_t>(stream.size(), 1 << 20));
    stream.copy(0, tokens);
    return std::ranges::find(tokens, tokenizer->parts().first_tokens[0]) != tokens.end();
}

Corpus open_tokens(const CorpusOptions& options, std::unique_ptr<Tokenizer> tokenizer) {
    const std::optional<TextReading> recorded = check_token_origin(options.tokens, tokenizer.get());
    TokenStream stream(options.tokens,
                       {.format = options.tokens_format, .vocabulary = options.model_vocabulary});
    std::string description = stream.description();
    const TextReading reading =
        recorded.value_or(TextReading{.specials = options.reading.specials,
                                      .begins = !recorded && seem_to_begin_texts(stream, tokenizer.get())});
    std::vector<std::string> names;
    for (const std::filesystem::path& file : options.tokens) names.push_back(file.filename().string());
    return {.stream = std::move(stream),
            .tokenizer = std::move(tokenizer),
            .description = std::move(description),
            .names = std::move(names),
            .reading = reading};
}

TokenStream stream_of(const ChatSet& chats, const std::string& source) {
    return TokenStream(chats.tokens, source);
}

Corpus open_chats(const CorpusOptions& options, std::unique_ptr<Tokenizer> tokenizer, ThreadPool& pool) {
    if (!tokenizer)
        throw UsageError(
            "chats become tokens by the tokenizer of a model and its template; give it as `tokenizer` DIR");
    auto chats = std::make_unique<ChatSet>(read_chat_set(
        {.files = options.chats, .loss_on = options.loss_on, .longest = options.sequence}, *tokenizer, pool));
    return {.stream = stream_of(*chats, name_of(options.chats)),
            .tokenizer = std::move(tokenizer),
            .description = chats->account,
            .chats = std::move(chats),
            .reading = options.reading};
}

Corpus open_texts(const CorpusOptions& options, std::unique_ptr<Tokenizer> tokenizer, ThreadPool& pool) {
    TextFiles found = find_texts(options.texts.empty() ? english_text_files() : options.texts);
    const std::vector<std::filesystem::path>& files = found.taken;
    const bool trains = !tokenizer && options.untokenized == CorpusOptions::Untokenized::train;
    if (trains) require_readable_again(files);
    if (options.documents && !trains) ends_of_documents(require_tokenizer(tokenizer.get()));
    const std::vector<TextFile> texts = texts_of(files);
    const TextsAre are = options.documents ? TextsAre::documents
                         : tokenizer       ? joined_or_begun(*tokenizer, options.reading)
                                           : TextsAre::joined;
    const std::uint64_t bytes = bytes_of_texts(texts, are);
    std::string kind = fmt::format("tokens of {}", options.tokenizer.string());
    if (trains) {
        const std::int64_t size =
            trained_vocabulary(static_cast<std::int64_t>(bytes), options.model_vocabulary);
        tokenizer = std::make_unique<Tokenizer>(train_on(files, size, pool));
        require_room(tokenizer->vocabulary(), options.model_vocabulary, "the tokenizer of this text");
        kind = fmt::format("tokens of {} kinds, by a BPE trained on it", size);
    }
    std::vector<std::int32_t> tokens;
    const auto append = [&](std::span<const TokenId> ids, std::size_t) {
        tokens.insert(tokens.end(), ids.begin(), ids.end());
    };
    std::vector<std::uint64_t> starts = {0};
    if (tokenizer) {
        starts = encode_texts(*tokenizer, texts, are, options.reading, pool, append);
    } else {
        require_room(256, options.model_vocabulary, "a text of bytes");
        tokens = bytes_of(joined_texts(texts));
        for (std::size_t i = 1; i < texts.size(); ++i)
            starts.push_back(starts.back() + texts[i - 1].text().size() + 1);
    }
    std::string description = fmt::format("{}, {} as {} {}", name_of(files), count_text(bytes, "byte"),
                                          tokens.size(), tokenizer ? kind : "tokens, a byte each");
    if (!found.account.empty()) description += "\n" + found.account;
    for (std::size_t i = 0; i < texts.size(); ++i) {
        if (!begins_with_chat(texts[i].text())) continue;
        description += fmt::format(
            "\nwarning: {} holds chats, which are read as text here, braces and roles included; to learn "
            "their answers alone, give it as chats",
            name_of({files[i]}));
        break;
    }
    for (std::size_t i = 0; tokenizer && i < texts.size(); ++i) {
        const std::string twice =
            begins_twice(texts[i].text(), options.reading, *tokenizer, name_of({files[i]}));
        if (twice.empty()) continue;
        description += "\nwarning: " + twice;  // only the first such file is named
        break;
    }
    return {.stream = TokenStream(std::move(tokens), name_of(files), std::move(starts)),
            .tokenizer = std::move(tokenizer),
            .description = std::move(description),
            .names = std::move(found.names),
            .reading = options.reading};
}

}  // namespace

Corpus open_corpus(const CorpusOptions& options, ThreadPool& pool) {
    if (!options.texts.empty() && !options.tokens.empty())
        throw UsageError("both texts and token files were given; use `texts` or `tokens`");
    std::unique_ptr<Tokenizer> tokenizer;
    if (!options.tokenizer.empty()) {
        tokenizer = std::make_unique<Tokenizer>(load_tokenizer(options.tokenizer));
        require_room(tokenizer->vocabulary(), options.model_vocabulary, options.tokenizer.string());
    }
    if (!options.chats.empty()) return open_chats(options, std::move(tokenizer), pool);
    Corpus corpus = options.tokens.empty() ? open_texts(options, std::move(tokenizer), pool)
                                           : open_tokens(options, std::move(tokenizer));
    if (!options.documents) return corpus;
    const Tokenizer& tokenizes = require_tokenizer(corpus.tokenizer.get());
    const std::span<const TokenId> first = tokenizes.first_tokens(corpus.reading);
    corpus.ends = std::make_unique<DocumentEnds>(
        corpus.stream, DocumentMarks{.ends = ends_of_documents(tokenizes),
                                     .first = first.empty() ? std::nullopt : std::optional(first[0])});
    // After the token count, before the line about files.
    corpus.description.insert(std::min(corpus.description.find('\n'), corpus.description.size()),
                              fmt::format(", in {}", count_text(corpus.ends->documents(), "document")));
    return corpus;
}

namespace {

/// The borders of documents.
class DocumentBounds {
  public:
    explicit DocumentBounds(const Corpus& corpus) {
        bounds_ = {0};
        for (const std::uint64_t position : corpus.ends->positions()) bounds_.push_back(position + 1);
        if (bounds_.back() != corpus.stream.size()) bounds_.push_back(corpus.stream.size());
    }
    const std::vector<std::uint64_t>& all() const { return bounds_; }
    std::uint64_t at_or_after(std::uint64_t place) const { return *std::ranges::lower_bound(bounds_, place); }
    /// The nearest border that is not before `first`.
    std::uint64_t nearest(std::uint64_t place, std::uint64_t first) const {
        const auto after = std::ranges::lower_bound(bounds_, place);
        if (*after == place || *after == first || after == bounds_.begin()) return *after;
        const std::uint64_t before = std::max(*std::prev(after), first);
        return place - before < *after - place ? before : *after;
    }

  private:
    std::vector<std::uint64_t> bounds_;  // ascending, from 0 to the size of the stream
};

/// As split_each_file, without cutting documents: the next file makes up for a file's surplus or lack. So a
/// tenth of one-document files is kept whole.
std::vector<TokenRange> tails_of_documents(const Corpus& corpus) {
    const DocumentBounds bounds(corpus);
    std::vector<TokenRange> tails;
    std::uint64_t seen = 0, kept = 0;
    for (const TokenRange& file : corpus.stream.files()) {
        const TokenRange whole{bounds.at_or_after(file.begin), bounds.at_or_after(file.end)};
        seen += whole.size();
        const std::uint64_t wanted = std::min(whole.size(), seen / 10 - std::min(kept, seen / 10));
        const TokenRange tail{bounds.nearest(whole.end - wanted, whole.begin), whole.end};
        tails.push_back(tail);
        kept += tail.size();
    }
    return tails;
}

std::vector<TokenRange> documents_by_name(const Corpus& corpus) {
    const std::vector<TokenRange> files = corpus.stream.files();
    const DocumentBounds documents(corpus);
    const std::vector<std::uint64_t>& bounds = documents.all();
    const std::uint64_t most = corpus.stream.size() / 4;
    std::vector<TokenRange> chosen;
    std::size_t file = 0;
    std::uint64_t in_file = 0;
    for (std::size_t i = 0; i + 1 < bounds.size(); ++i, ++in_file) {
        const TokenRange document{bounds[i], bounds[i + 1]};
        for (; files[file].end <= document.begin; in_file = 0) ++file;
        // The first document has its file's name, which stays when more documents follow.
        const std::string name = in_file == 0
                                     ? corpus.names[file]
                                     : fmt::format("{}, document {}", corpus.names[file], in_file + 1);
        if (document.size() <= most && is_held_out(place_by_name(name))) chosen.push_back(document);
    }
    return chosen;
}

/// Moves ranges to the end of the stream, for validation.
TokenSplit split_off(Corpus& corpus, const std::vector<TokenRange>& ranges) {
    std::uint64_t kept = 0;
    for (const TokenRange& range : ranges) kept += range.size();
    const TokenRange all = corpus.stream.all();
    if (kept == 0) return split_for_validation(all);
    corpus.stream.move_to_end(ranges);
    corpus.ends = std::make_unique<DocumentEnds>(corpus.stream, DocumentMarks(corpus.ends->marks()));
    return {.train = {0, all.end - kept}, .validation = {all.end - kept, all.end}};
}

}  // namespace

std::unique_ptr<BatchSource> text_batches(const Corpus& corpus, TokenRange range, std::int64_t sequence,
                                          const BatchOptions& options) {
    if (corpus.chats) return std::make_unique<PackedChats>(*corpus.chats, range, sequence, options);
    if (!corpus.ends) return std::make_unique<TextWindows>(corpus.stream, range, sequence, options);
    return std::make_unique<PackedDocuments>(corpus.stream, *corpus.ends, range, sequence, options);
}

TokenSplit split_by_name(Corpus& corpus) {
    check(corpus.ends != nullptr, "what has names are documents");
    return split_off(corpus, documents_by_name(corpus));
}

TokenSplit split_each_file(Corpus& corpus) {
    if (!corpus.ends) return split_each_file(corpus.stream);
    return split_off(corpus, tails_of_documents(corpus));
}

TokenSplit split_chats(Corpus& corpus, bool last) {
    ChatSet& set = *corpus.chats;
    const std::uint64_t count = set.chats();
    if (count < 2)
        throw UserError(fmt::format("{}: holds one chat to learn, and a validation would need another",
                                    corpus.stream.source()));
    std::vector<std::uint64_t> order, kept;
    for (std::uint64_t chat = 0; chat < count; ++chat) {
        const bool keep = last ? chat >= count - std::max<std::uint64_t>(1, count / 10)
                               : is_held_out(place_by_name(checksum_text(set.names[chat])));
        (keep ? kept : order).push_back(chat);
    }
    if (kept.empty() || order.empty()) return split_chats(corpus, true);
    const std::uint64_t trained = order.size();
    order.insert(order.end(), kept.begin(), kept.end());
    set.reorder(order);
    corpus.stream = stream_of(set, std::string(corpus.stream.source()));
    return {.train = {0, set.starts[trained]}, .validation = {set.starts[trained], set.starts[count]}};
}

}  // namespace mantissa
