#include "mantissa/data/tokenizer_train.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <queue>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/base/printable.h"
#include "mantissa/data/text_file.h"
#include "mantissa/data/tokenizer_alphabet.h"
#include "mantissa/data/tokenizer_split.h"

namespace mantissa::inline v0 {

namespace {

constexpr std::size_t longest_counted = 256;
constexpr std::size_t part_bytes = std::size_t{1} << 20;

struct TextHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

/// As PieceCounts, with look-up by string_view, so that only new pieces are copied.
using Counter = std::unordered_map<std::string, std::uint64_t, TextHash, std::equal_to<>>;

void count_piece(std::string_view piece, Counter& counter) {
    const auto known = counter.find(piece);
    if (known != counter.end())
        ++known->second;
    else
        counter.emplace(piece, 1);
}

void count_part(std::string_view text, Counter& counter) {
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = gpt2_pattern().find(text, begin).end;
        for (; begin < end; begin += std::min(longest_counted, end - begin))
            count_piece(text.substr(begin, std::min(longest_counted, end - begin)), counter);
    }
}

}  // namespace

PieceCounts count_pieces(std::span<const std::filesystem::path> texts, ThreadPool& pool,
                         TrainObserver observer) {
    std::vector<TextFile> files;
    std::uint64_t total = 0;
    for (const auto& path : texts) total += files.emplace_back(path).text().size();

    const SafeCuts cuts(TextPipeline::gpt2());
    std::vector<Counter> counters(pool.threads());
    std::atomic<std::uint64_t> done = 0;
    for (const TextFile& file : files) {
        const auto parts = cut_text(file.text(), part_bytes, cuts);
        pool.for_each_block(static_cast<std::int64_t>(parts.size()), [&](std::int64_t block, int worker) {
            const std::string_view part = parts[block];
            count_part(part, counters[worker]);
            const std::uint64_t bytes = done += part.size();
            if (worker == 0) observer({"counting", bytes, total});
        });
    }
    PieceCounts counts;
    for (Counter& counter : counters) {
        for (const auto& [piece, count] : counter) counts[piece] += count;
        counter = {};
    }
    return counts;
}

namespace {

constexpr std::uint64_t min_count = 2;
constexpr const char* end_of_text = "<|endoftext|>";

std::uint64_t pair_key(TokenId left, TokenId right) {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

/// The number of a pair's occurrences, and the words that held it when it was last added; some no longer do.
struct Pair {
    std::uint64_t count = 0;
    std::vector<std::uint32_t> words;
};

/// A queued pair. Its count may be outdated, but only too high.
struct Candidate {
    std::uint64_t count;
    std::uint64_t key;
    bool operator<(const Candidate& other) const {
        return count != other.count ? count < other.count : key > other.key;
    }
};

/// One distinct piece: place of its tokens, number of occurrences.
struct Word {
    std::size_t begin;
    std::uint32_t length;
    std::uint64_t count;
};

/// The words and the counts of all pairs in them.
///
/// Each token is made by one merge only. So the tokens of a byte range follow from earlier merges and its
/// bytes, if no token crosses its ends. A pair therefore first appears when one of its two tokens is made,
/// and its count only falls afterwards.
class Trainer {
  public:
    Trainer(const PieceCounts& counts, const std::array<TokenId, 256>& byte_tokens) {
        words_.reserve(counts.size());
        for (const auto& [piece, count] : counts) {
            const std::size_t begin = tokens_.size();
            for (const char c : piece) tokens_.push_back(byte_tokens[static_cast<unsigned char>(c)]);
            words_.push_back({begin, static_cast<std::uint32_t>(piece.size()), count});
        }
        check(words_.size() < std::numeric_limits<std::uint32_t>::max(), "word numbers fit in 32 bits");
        for (std::uint32_t w = 0; w < words_.size(); ++w)
            for (std::uint32_t i = 0; i + 1 < words_[w].length; ++i)
                add(tokens_[words_[w].begin + i], tokens_[words_[w].begin + i + 1], w);
        for (const auto& [key, pair] : pairs_) candidates_.push({pair.count, key});
        grown_.clear();
    }

    /// The most frequent pair, removed from the queue; count 0 if none occurs often enough.
    Candidate next() {
        while (!candidates_.empty()) {
            const Candidate top = candidates_.top();
            candidates_.pop();
            const auto pair = pairs_.find(top.key);
            if (pair == pairs_.end()) continue;
            if (pair->second.count == top.count) return top.count < min_count ? Candidate{0, 0} : top;
            if (pair->second.count >= min_count)
                candidates_.push({pair->second.count, top.key});
            else
                pairs_.erase(pair);
        }
        return {0, 0};
    }

    /// Makes `left` and `right` one token in every word.
    void merge(TokenId left, TokenId right, TokenId result) {
        const auto pair = pairs_.extract(pair_key(left, right));
        for (const std::uint32_t w : pair.mapped().words) merge_in_word(w, {left, right, result});
        for (const std::uint64_t key : grown_) {
            const auto found = pairs_.find(key);
            if (found != pairs_.end()) candidates_.push({found->second.count, key});
        }
        grown_.clear();
    }

  private:
    void add(TokenId left, TokenId right, std::uint32_t w) {
        const auto [place, fresh] = pairs_.try_emplace(pair_key(left, right));
        Pair& pair = place->second;
        pair.count += words_[w].count;
        if (pair.words.empty() || pair.words.back() != w) pair.words.push_back(w);
        if (fresh) grown_.push_back(place->first);
    }

    void remove(TokenId left, TokenId right, std::uint32_t w) {
        // The pair being merged is no longer in the table.
        const auto pair = pairs_.find(pair_key(left, right));
        if (pair != pairs_.end()) pair->second.count -= words_[w].count;
    }

    void merge_in_word(std::uint32_t w, const Merge& pair) {
        Word& word = words_[w];
        TokenId* const tokens = tokens_.data() + word.begin;
        std::uint32_t kept = 0;
        for (std::uint32_t i = 0; i < word.length;) {
            if (i + 1 == word.length || tokens[i] != pair.left || tokens[i + 1] != pair.right) {
                tokens[kept++] = tokens[i++];
                continue;
            }
            if (kept > 0) {
                remove(tokens[kept - 1], pair.left, w);
                add(tokens[kept - 1], pair.result, w);
            }
            if (i + 2 < word.length) {
                remove(pair.right, tokens[i + 2], w);
                add(pair.result, tokens[i + 2], w);
            }
            tokens[kept++] = pair.result;
            i += 2;
        }
        word.length = kept;
    }

    std::vector<TokenId> tokens_;  // of all words, each word shrinking in place
    std::vector<Word> words_;
    std::unordered_map<std::uint64_t, Pair> pairs_;
    std::priority_queue<Candidate> candidates_;
    std::vector<std::uint64_t> grown_;  // pairs made by the current merge
};

constexpr TokenId smallest = 257;

}  // namespace

void require_vocabulary(TokenId vocabulary) {
    if (vocabulary < smallest)
        throw UserError(fmt::format("a vocabulary of {} is too small: 256 bytes and {} take {}",
                                    count_text(vocabulary, "token"), end_of_text, smallest));
}

Tokenizer train_tokenizer(const PieceCounts& counts, TokenId vocabulary, TrainObserver observer) {
    require_vocabulary(vocabulary);
    TokenizerParts parts;
    parts.source = "trained tokenizer";
    std::array<TokenId, 256> byte_tokens{};
    for (const std::uint8_t byte : bytes_in_token_order()) {
        byte_tokens[byte] = static_cast<TokenId>(parts.tokens.size());
        parts.tokens.emplace_back(1, static_cast<char>(byte));
    }
    Trainer trainer(counts, byte_tokens);
    const auto merges = static_cast<std::size_t>(vocabulary - smallest);
    while (parts.merges.size() < merges) {
        const Candidate best = trainer.next();
        if (best.count == 0)
            throw UserError(
                fmt::format("the text gives {} tokens, the vocabulary is to have {}: no further pair occurs "
                            "twice. Give more text or a smaller vocabulary",
                            parts.tokens.size() + 1, vocabulary));
        const auto left = static_cast<TokenId>(best.key >> 32), right = static_cast<TokenId>(best.key);
        const auto result = static_cast<TokenId>(parts.tokens.size());
        trainer.merge(left, right, result);
        parts.tokens.push_back(parts.tokens[left] + parts.tokens[right]);
        parts.merges.push_back({left, right, result});
        if (result % 256 == 0) observer({"merging", parts.merges.size(), merges});
    }
    parts.specials.push_back({end_of_text, static_cast<TokenId>(parts.tokens.size())});
    parts.tokens.emplace_back(end_of_text);
    return Tokenizer(std::move(parts));
}

}  // namespace mantissa
