// BPE or Unigram. BPE: a vocabulary of byte strings, and merges applied by rank within the pieces of
// tokenizer_split.h. Byte-level as in GPT-2 and LLaMA 3, merges begin with single bytes. As in SentencePiece
// for LLaMA 1 and 2, they begin with characters, and a character outside of the vocabulary becomes one token
// per byte. Unigram: a score per token (tokenizer_tables.h). Converts text to token ids and back; for
// reading, writing and training see tokenizer_files.h and tokenizer_train.h. Sources: openai/gpt-2,
// src/encoder.py; Sennrich et al. 2016; Kudo, Richardson 2018.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/base/function_ref.h"
#include "mantissa/data/tokenizer_split.h"

namespace mantissa::inline v0 {

/// 0 ... vocabulary - 1: the type of the engine's token tensors.
using TokenId = std::int32_t;

/// Adjacent `left` and `right` become `result`. A merge's rank is its place in the list.
struct Merge {
    TokenId left, right, result;
    bool operator==(const Merge&) const = default;
};

/// A token found before the text is cut: unless it is read as text, such as <|endoftext|>, or always.
struct SpecialToken {
    std::string text;
    TokenId id;
    bool on_request = true;
    /// Whether it includes the white space on that side.
    bool takes_spaces_before = false, takes_spaces_behind = false;
    bool single_word = false;    ///< not next to a letter or digit
    bool normalized = false;     ///< found in the text after the pipeline's changes; changed likewise
    bool in_vocabulary = false;  ///< not special; merges may make it, too
    bool operator==(const SpecialToken&) const = default;
};

/// The spaces that decoded text loses at its start.
enum class FirstSpace : std::uint8_t {
    kept,
    one_dropped,           ///< a space
    all_of_token_dropped,  ///< all spaces in the first token
};

/// The data that a tokenizer is made from.
struct TokenizerParts {
    std::string source;               ///< file or directory, for messages
    std::vector<std::string> tokens;  ///< the bytes of each id; a special token's text
    std::vector<Merge> merges;        ///< in order of rank; empty if `rank_is_id`
    std::vector<SpecialToken> specials;
    /// As in tiktoken: two neighbours merge if their joined bytes are a token; its id is the rank.
    bool rank_is_id = false;
    /// A piece that is one token is taken whole, even if merges would not build it.
    bool whole_pieces = false;
    TextPipeline pipeline = TextPipeline::gpt2();
    /// The tokens of the 256 bytes, for characters without a token: merges begin with characters, and U+2581
    /// is a space. Empty: merges begin with bytes.
    std::vector<TokenId> byte_fallback = {};
    /// Unigram's log-probabilities of the first tokens; later tokens are found in texts. Empty: BPE.
    std::vector<double> scores = {};
    /// Unigram's token for unknown characters.
    std::optional<TokenId> unknown = {};
    FirstSpace first_space = FirstSpace::kept;
    /// Tokens that begin every text, such as <s>, added by encode_whole.
    std::vector<TokenId> first_tokens = {};
    /// Tokens that end every text, such as </s>; not added to a prompt.
    std::vector<TokenId> last_tokens = {};
    /// Tokens that end a text; the first is the one to write. Empty: Tokenizer looks for known names,
    /// <|endoftext|>, </s>, <|end_of_text|>.
    std::vector<TokenId> ends = {};
    std::optional<TokenId> begin = {};  ///< the token that begins a text, from files beside the tokenizer
    /// The tokenizer's original files, by the names that load_tokenizer looks for.
    std::map<std::string, std::string> files = {};
};

/// Whether "<|endoftext|>" in a text is that token or thirteen characters.
enum class SpecialsInText : std::uint8_t {
    as_tokens,
    as_text,
    end_of_text_as_token  ///< only tokens that end a text (Tokenizer::ends)
};

/// How texts become tokens, in training and in use: by default as in Hugging Face's tokenizers. A checkpoint
/// stores its model's reading.
struct TextReading {
    SpecialsInText specials = SpecialsInText::as_tokens;
    /// Whether TokenizerParts::first_tokens precede, and last_tokens follow, each text and document.
    bool begins = true;

    bool operator==(const TextReading&) const = default;
};

struct EncodeOptions {
    SpecialsInText specials = SpecialsInText::as_tokens;
    bool continues = false;       ///< the text continues an earlier one, cut at one of safe_cuts
    bool behind_special = false;  ///< the text follows a special token
    bool ends_apart = false;      ///< a token that ends a text is followed by a new text
};

/// Immutable: threads may share it.
class Tokenizer {
  public:
    /// Throws UserError, naming `parts.source`, if the parts disagree. Examples: a byte without a token, a
    /// token twice, a merge with another result, a pair with two ranks, an empty special token. A pipeline
    /// without cuts gets cuts where no token could span them.
    explicit Tokenizer(TokenizerParts parts);
    ~Tokenizer();
    Tokenizer(Tokenizer&&) noexcept;
    Tokenizer& operator=(Tokenizer&&) noexcept;

    const TokenizerParts& parts() const;
    /// The number of ids, special tokens included.
    TokenId vocabulary() const;
    /// The id of the special token with this text.
    std::optional<TokenId> special(std::string_view text) const;
    /// The tokens that end a text; the first is the one to write.
    std::span<const TokenId> ends() const { return parts().ends; }
    /// Special tokens of a text, found as encode does, with the white space that they include. `allowed` is
    /// asked about the bytes begin ... end - 1 of each.
    struct FoundSpecial {
        std::size_t begin, end;
        TokenId id;
    };
    std::vector<FoundSpecial> find_specials(
        std::string_view text, FunctionRef<bool(std::size_t begin, std::size_t end)> allowed) const;
    /// Places where a text may be cut so that the parts' tokens equal the whole text's.
    const SafeCuts& safe_cuts() const;

    /// The tokens of `text`, which may hold any bytes. For many texts an Encoder is faster.
    std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options = {}) const;
    /// The tokens of a whole text, its first tokens included.
    std::vector<TokenId> encode_whole(std::string_view text, const TextReading& reading = {}) const;
    /// TokenizerParts::first_tokens, or none if texts do not begin with them; and last_tokens, which end
    /// whole training texts but not prompts.
    std::span<const TokenId> first_tokens(const TextReading& reading) const;
    std::span<const TokenId> last_tokens(const TextReading& reading) const;

    /// The bytes of the tokens of a whole text; they need not be valid UTF-8. Throws UserError for an id
    /// outside of vocabulary().
    std::string decode(std::span<const TokenId> ids) const;
    std::string_view token_bytes(TokenId id) const;

  private:
    friend class Encoder;
    struct Tables;
    static void add_tokens_in_texts(Tables& tables);
    std::unique_ptr<const Tables> tables_;
};

/// Encodes with a cache of recent pieces, for one thread. The tokenizer must outlive it.
class Encoder {
  public:
    explicit Encoder(const Tokenizer& tokenizer);
    ~Encoder();
    Encoder(Encoder&&) noexcept;

    /// Appends the tokens of `text` to `ids`. Time is O(n log n) in the longest piece, O(n) in the text.
    void encode(std::string_view text, std::vector<TokenId>& ids, const EncodeOptions& options = {});

  private:
    struct State;
    std::unique_ptr<State> state_;
};

/// Turns tokens into text as they arrive; holds incomplete characters back.
class StreamDecoder {
  public:
    explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

    /// The text completed by `id`: valid UTF-8, with U+FFFD for each invalid part.
    std::string push(TokenId id);
    /// The bytes still held back, as U+FFFD, or nothing.
    std::string finish();

  private:
    const Tokenizer* tokenizer_;
    std::string held_;  // at most 3 bytes between calls
};

}  // namespace mantissa
