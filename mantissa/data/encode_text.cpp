#include "mantissa/data/encode_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/data/text_file.h"

namespace mantissa::inline v0 {

namespace {

/// Long compared with each thread's warm-up of its piece cache, short compared with memory.
constexpr std::size_t part_bytes = std::size_t{1} << 20;
/// Parts that a thread encodes between two calls of the sink.
constexpr std::size_t parts_per_thread = 4;

/// The parts of cut_text, with additional ends after `cuts`.
std::vector<std::string_view> parts_of(std::string_view text, std::span<const std::size_t> cuts,
                                       const SafeCuts& safe) {
    std::vector<std::string_view> parts;
    std::size_t begin = 0;
    const auto add = [&](std::size_t end) {
        const auto more = cut_text(text.substr(begin, end - begin), part_bytes, safe);
        parts.insert(parts.end(), more.begin(), more.end());
        begin = end;
    };
    for (const std::size_t cut : cuts)
        if (cut > begin) add(safe.next(text, cut));
    add(text.size());
    return parts;
}

}  // namespace

void encode_text(const Tokenizer& tokenizer, std::string_view text, ThreadPool& pool, TokenSink sink,
                 const EncodeOptions& options, std::span<const std::size_t> cuts) {
    const auto parts = parts_of(text, cuts, tokenizer.safe_cuts());
    std::vector<Encoder> encoders;
    for (int i = 0; i < pool.threads(); ++i) encoders.emplace_back(tokenizer);
    const std::size_t batch = parts_per_thread * static_cast<std::size_t>(pool.threads());
    std::vector<std::vector<TokenId>> ids(std::min(batch, parts.size()));
    std::size_t bytes_done = 0;
    for (std::size_t first = 0; first < parts.size(); first += batch) {
        const std::size_t count = std::min(batch, parts.size() - first);
        pool.for_each_block(static_cast<std::int64_t>(count), [&](std::int64_t block, int worker) {
            const std::size_t i = static_cast<std::size_t>(block);
            ids[i].clear();
            EncodeOptions of_part = options;
            of_part.continues |= first + i > 0;
            encoders[worker].encode(parts[first + i], ids[i], of_part);
        });
        for (std::size_t i = 0; i < count; ++i) {
            bytes_done += parts[first + i].size();
            sink(ids[i], bytes_done);
        }
    }
}

std::vector<TokenId> ends_of_documents(const Tokenizer& tokenizer) {
    if (const auto ends = tokenizer.ends(); !ends.empty()) return {ends.begin(), ends.end()};
    throw UserError(
        fmt::format("{}: has no token that ends documents; expected eos_token_id in a config.json beside it, "
                    "or <|endoftext|>, </s> or <|end_of_text|>",
                    tokenizer.parts().source));
}

namespace {

/// Passes tokens on without empty documents, and with each document's first and last tokens.
class DocumentFilter {
  public:
    DocumentFilter(const Tokenizer& tokenizer, const TextReading& reading)
        : tokenizer_(tokenizer),
          first_(tokenizer.first_tokens(reading)),
          last_(tokenizer.last_tokens(reading)),
          ends_(ends_of_documents(tokenizer)) {}

    /// Passes these tokens on; the result is valid until the next call.
    std::span<const TokenId> push(std::span<const TokenId> ids) {
        through_.clear();
        for (const TokenId id : ids) {
            if (is_end(id)) {
                end_document(id);
            } else if (is_empty_ && is_blank(id)) {
                held_.push_back(id);
            } else {
                if (is_empty_) through_.insert(through_.end(), first_.begin(), first_.end());
                through_.insert(through_.end(), held_.begin(), held_.end());
                through_.push_back(id);
                held_.clear();
                is_empty_ = false;
            }
        }
        return through_;
    }
    std::span<const TokenId> finish() {
        through_.clear();
        end_document(ends_[0]);
        return through_;
    }

  private:
    void end_document(TokenId end) {
        if (!is_empty_) through_.insert(through_.end(), last_.begin(), last_.end());
        if (!is_empty_ && (last_.empty() || !is_end(last_.back()))) through_.push_back(end);
        held_.clear();
        is_empty_ = true;
    }
    bool is_end(TokenId id) const { return std::ranges::find(ends_, id) != ends_.end(); }
    bool is_blank(TokenId id) const {
        return tokenizer_.token_bytes(id).find_first_not_of(" \t\r\n") == std::string_view::npos;
    }

    const Tokenizer& tokenizer_;
    std::span<const TokenId> first_, last_;
    std::vector<TokenId> ends_;
    bool is_empty_ = true;       // the document has only white space so far
    std::vector<TokenId> held_;  // the white space
    std::vector<TokenId> through_;
};

}  // namespace

void encode_documents(const Tokenizer& tokenizer, std::string_view text, ThreadPool& pool, TokenSink sink,
                      const TextReading& reading) {
    DocumentFilter documents(tokenizer, reading);
    const SpecialsInText specials =
        reading.specials == SpecialsInText::as_text ? SpecialsInText::end_of_text_as_token : reading.specials;
    encode_text(
        tokenizer, text, pool,
        [&](std::span<const TokenId> ids, std::size_t bytes_done) { sink(documents.push(ids), bytes_done); },
        {.specials = specials, .ends_apart = reading.begins});
    sink(documents.finish(), text.size());
}

}  // namespace mantissa
