#include "mantissa/data/chat/chat_encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "mantissa/base/error.h"
#include "mantissa/data/tokenizer_json_pipeline.h"
#include "mantissa/formats/strict_json.h"

namespace mantissa::inline v0 {

namespace {

const std::string* file_of(const TokenizerParts& parts, const char* name) {
    const auto found = parts.files.find(name);
    return found == parts.files.end() ? nullptr : &found->second;
}

nlohmann::json object_of(const TokenizerParts& parts, const char* name) {
    const std::string* text = file_of(parts, name);
    nlohmann::json root =
        text ? parse_strict_json(*text, name, {.rounds_integers = true}) : nlohmann::json::object();
    return root.is_object() ? root : nlohmann::json::object();
}

/// A template, or, of several, the one named default.
std::optional<std::string> template_in(const nlohmann::json& config) {
    const nlohmann::json& given = member_or_null(config, "chat_template");
    if (given.is_string()) return given.get<std::string>();
    if (!given.is_array()) return {};
    for (const nlohmann::json& each : given)
        if (member_or_null(each, "name") == "default" && member_or_null(each, "template").is_string())
            return each["template"].get<std::string>();
    throw UserError(
        "tokenizer_config.json: chat_template has several templates, and none is named default; put the one "
        "to use into chat_template.jinja");
}

/// bos_token and the other tokens, as variables of templates.
std::map<std::string, std::string> named_tokens(const TokenizerParts& parts) {
    std::map<std::string, std::string> tokens;
    for (const char* file : {"special_tokens_map.json", "tokenizer_config.json"}) {  // the latter counts
        const nlohmann::json root = object_of(parts, file);
        for (const auto& [name, value] : root.items()) {
            const nlohmann::json& text = value.is_object() ? member_or_null(value, "content") : value;
            if (name.ends_with("_token") && text.is_string()) tokens[name] = text.get<std::string>();
        }
    }
    return tokens;
}

}  // namespace

std::optional<ChatTemplate> chat_template_of(const TokenizerParts& parts) {
    std::optional<std::string> text;
    std::string source = "chat_template.jinja";
    if (const std::string* file = file_of(parts, source.c_str())) {
        text = *file;
    } else {
        source = "tokenizer_config.json: chat_template";
        text = template_in(object_of(parts, "tokenizer_config.json"));
    }
    if (!text) return {};
    ChatTemplate made(std::move(*text), source);
    made.set_tokens(named_tokens(parts));
    return made;
}

namespace {

/// Runs of a chat's characters, asked about bytes from left to right.
class Origins {
  public:
    explicit Origins(const RenderedChat& chat) : chat_(chat) {}

    /// Whether a special token may be here: written by the template, alone or with a role's name.
    bool may_be_special(std::size_t begin, std::size_t end) const {
        auto run = std::ranges::upper_bound(chat_.runs, begin, {}, &RenderedChat::Run::end);
        if (run == chat_.runs.end() || !run->origin.is_template()) return false;
        for (; run != chat_.runs.end(); ++run) {
            if (!run->origin.is_template() && run->origin.part() != ChatOrigin::Part::role) return false;
            if (run->end >= end) return true;
        }
        return false;
    }

  private:
    const RenderedChat& chat_;
};

/// Ranges of a text: the learnt ones, and the answers, after which it may be cut.
struct LearntRanges {
    std::vector<TextRange> learnt, answers;
};

/// Tokens of a text part by part, each marked if learnt.
class MaskedEncoder {
  public:
    MaskedEncoder(const Tokenizer& tokenizer, std::string_view text, const LearntRanges& ranges)
        : tokenizer_(tokenizer),
          encoder_(tokenizer),
          text_(text),
          learnt_(ranges.learnt),
          answers_(ranges.answers) {
        for (const TextRange& range : learnt_) {
            borders_.push_back(range.begin);
            borders_.push_back(range.end);
        }
        for (const TextRange& range : answers_) borders_.push_back(range.end);
        std::ranges::sort(borders_);
    }

    void add_special(const Tokenizer::FoundSpecial& token) {
        out_.tokens.push_back(token.id);
        out_.trained.push_back(is_learnt(token.begin));
        end_answers(token.end);
    }

    /// Encodes bytes without special tokens.
    void add_plain(std::size_t begin, std::size_t end, EncodeOptions options) {
        if (begin == end) return;
        const std::size_t first = out_.tokens.size();
        encoder_.encode(text_.substr(begin, end - begin), out_.tokens, options);
        // The tokens encoded so far tell the length of a part as the tokenizer sees it, since it may have
        // changed the text.
        std::size_t part = begin, before = 0, token = first, at = 0;
        const auto mark_until = [&](std::size_t border) {
            const std::uint8_t learnt = is_learnt(part);
            for (; token < out_.tokens.size() && at < border; ++token) {
                at += tokenizer_.token_bytes(out_.tokens[token]).size();
                out_.trained.push_back(learnt);
            }
        };
        for (auto border = std::ranges::upper_bound(borders_, begin);
             border != borders_.end() && *border < end; ++border) {
            if (*border == part) continue;
            std::vector<TokenId> ids;
            encoder_.encode(text_.substr(part, *border - part), ids, options);
            options.continues = true;
            for (const TokenId id : ids) before += tokenizer_.token_bytes(id).size();
            mark_until(before);
            part = *border;
            end_answers(part);
        }
        mark_until(std::string_view::npos);
        end_answers(end);
    }

    EncodedChat finish() { return std::move(out_); }

  private:
    std::uint8_t is_learnt(std::size_t at) const {
        const auto range = std::ranges::upper_bound(learnt_, at, {}, &TextRange::end);
        return range != learnt_.end() && range->begin <= at;
    }
    /// Records answers that end at or before this byte, once all their tokens are there.
    void end_answers(std::size_t at) {
        for (; ended_ < answers_.size() && answers_[ended_].end <= at; ++ended_)
            out_.ends.push_back(out_.trained.size());
    }

    const Tokenizer& tokenizer_;
    Encoder encoder_;
    std::string_view text_;
    std::span<const TextRange> learnt_, answers_;
    std::vector<std::size_t> borders_;
    std::size_t ended_ = 0;
    EncodedChat out_;
};

EncodedChat encode_rendered(const Tokenizer& tokenizer, const RenderedChat& chat,
                            const LearntRanges& ranges) {
    MaskedEncoder encoder(tokenizer, chat.text, ranges);
    const Origins origins(chat);
    std::size_t done = 0;
    EncodeOptions options{.specials = SpecialsInText::as_text};
    for (const Tokenizer::FoundSpecial& token : tokenizer.find_specials(
             chat.text,
             [&](std::size_t begin, std::size_t end) { return origins.may_be_special(begin, end); })) {
        encoder.add_plain(done, token.begin, options);
        encoder.add_special(token);
        done = token.end;
        options.behind_special = true;
    }
    encoder.add_plain(done, chat.text.size(), options);
    return encoder.finish();
}

}  // namespace

ChatEncoder::ChatEncoder(const Tokenizer& tokenizer, LossOn loss_on)
    : tokenizer_(tokenizer), loss_on_(loss_on), template_(chat_template_of(tokenizer.parts())) {
    const auto first_special = [&](std::string_view text) -> std::optional<TextRange> {
        const auto found = tokenizer.find_specials(text, [](std::size_t, std::size_t) { return true; });
        if (found.empty()) return {};
        return TextRange{found[0].begin, found[0].end};
    };
    if (template_) {
        reads_parts_ = reads_parts_alone(*template_);
        ways_in_ = ways_into_answers(*template_);
        ends_ = ends_of_turns(*template_, first_special);
    }
    for (const TokenId end : tokenizer.ends())
        if (const std::string text(tokenizer.token_bytes(end)); std::ranges::find(ends_, text) == ends_.end())
            ends_.push_back(text);
}

RenderedChat ChatEncoder::render(const ChatRecord& record, bool generation_prompt) const {
    if (!template_)
        throw UserError(fmt::format(
            "{}: chats need the template that the model writes them in, and {} has none beside it; expected "
            "chat_template.jinja, or chat_template in tokenizer_config.json",
            record.place, tokenizer_.parts().source));
    ChatMessages chat = record.chat;
    if (reads_parts_) chat.messages = in_parts(chat.messages);
    chat.generation_prompt = generation_prompt;
    try {
        return template_->render(chat);
    } catch (const UserError& error) {
        throw UserError(fmt::format("{}: {}", record.place, error.what()));
    }
}

EncodedChat ChatEncoder::encode_text(const ChatRecord& record) const {
    RenderedChat chat{.text = record.prompt + record.text};
    chat.runs.push_back({chat.text.size(), {}});  // the author placed special tokens on purpose
    const std::size_t begin = loss_on_ == LossOn::all ? 0 : record.prompt.size();
    EncodedChat out = encode_rendered(tokenizer_, chat, {{{begin, chat.text.size()}}, {}});
    if (const auto first = tokenizer_.first_tokens({});
        !first.empty() && (out.tokens.empty() || out.tokens[0] != first[0])) {
        out.tokens.insert(out.tokens.begin(), first.begin(), first.end());
        out.trained.insert(out.trained.begin(), first.size(), 0);
    }
    if (const auto ends = tokenizer_.ends();
        !ends.empty() && (out.tokens.empty() || std::ranges::find(ends, out.tokens.back()) == ends.end())) {
        out.tokens.push_back(ends[0]);
        out.trained.push_back(1);
    }
    out.ends = {out.tokens.size()};
    return out;
}

EncodedChat ChatEncoder::encode(const ChatRecord& record) const {
    if (record.is_text) return encode_text(record);
    const RenderedChat chat = render(record, false);
    const std::vector<TextRange> answers =
        template_->has_marks() && record.answers_are_all
            ? marked_ranges(chat)
            : find_answers(chat, {.answers = record.answers, .ends = ends_, .ways_in = ways_in_});
    std::vector<TextRange> learnt = answers;
    if (loss_on_ == LossOn::all) learnt = {{0, chat.text.size()}};
    return encode_rendered(tokenizer_, chat, {learnt, answers});
}

std::vector<TokenId> ChatEncoder::end_tokens() const {
    std::vector<TokenId> tokens;
    for (const std::string& end : ends_)
        if (const auto token = tokenizer_.special(end)) tokens.push_back(*token);
    return tokens;
}

ChatEncoder::Prompt ChatEncoder::prompt(const ChatRecord& record) const {
    if (record.is_text)
        throw UserError(fmt::format("{}: is a text, and no conversation of messages", record.place));
    if (!record.answers.empty() && record.answers.back() == record.messages - 1)
        throw UserError(fmt::format("{}: ends with an answer, and the model is to write one; take it away",
                                    record.place));
    const RenderedChat chat = render(record, true);
    return {chat.text, encode_rendered(tokenizer_, chat, {}).tokens};
}

}  // namespace mantissa::inline v0
