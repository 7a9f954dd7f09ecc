// BPE or Unigram. BPE: a vocabulary of byte strings, and merges that are applied in order of rank within the
// pieces of tokenizer_split.h. Byte-level as GPT-2's and LLaMA 3's, where merges begin with single bytes; or
// as SentencePiece's, of LLaMA 1 and 2, where they begin with characters, and what the vocabulary lacks falls
// back to a token for each of its bytes. Unigram: a score for each token (tokenizer_unigram.h). Text to token
// ids and back; reading, writing and training are
// elsewhere (tokenizer_files.h, tokenizer_train.h). Sources: openai/gpt-2, src/encoder.py; Sennrich et al.
// 2016; Kudo, Richardson 2018.
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

/// Adjacent `left` and `right` become `result`. The rank of a merge is its place in the list.
struct Merge {
    TokenId left, right, result;
    bool operator==(const Merge&) const = default;
};

/// A token that is found in a text before that is cut: unless it is read as text, such as
/// <|endoftext|>, or always.
struct SpecialToken {
    std::string text;
    TokenId id;
    bool on_request = true;
    /// It takes along the white space on that side.
    bool takes_spaces_before = false, takes_spaces_behind = false;
    bool single_word = false;    ///< not where a letter or digit stands beside it
    bool normalized = false;     ///< found in what the pipeline changes a text to, changed in the same way
    bool in_vocabulary = false;  ///< it is no special one, and merges may make it, too
    bool operator==(const SpecialToken&) const = default;
};

/// The spaces that decoded text loses at its start.
enum class FirstSpace : std::uint8_t {
    kept,
    one_dropped,           ///< a space
    all_of_token_dropped,  ///< all spaces in the first token
};

/// The parts that a tokenizer is made from.
struct TokenizerParts {
    std::string source;               ///< file or directory, for messages
    std::vector<std::string> tokens;  ///< the bytes of each id; for special tokens their text
    std::vector<Merge> merges;        ///< in order of rank; empty if `rank_is_id`
    std::vector<SpecialToken> specials;
    /// As in tiktoken: two neighbours merge if their bytes together are a token. Its id is the rank.
    bool rank_is_id = false;
    /// A piece that is a token as a whole is taken as it is, even if the merges would not build it.
    bool whole_pieces = false;
    TextPipeline pipeline = TextPipeline::gpt2();
    /// The tokens of the 256 bytes, which stand for what the others lack: merges begin with characters, and
    /// U+2581 is a space. Empty: merges begin with bytes.
    std::vector<TokenId> byte_fallback = {};
    /// Unigram's log-probabilities of the first tokens; those behind them are found in texts. Empty: BPE.
    std::vector<double> scores = {};
    /// The token of characters that no other has; Unigram's.
    std::optional<TokenId> unknown = {};
    FirstSpace first_space = FirstSpace::kept;
    /// Tokens with which every text begins, such as <s>; encode_whole puts them before it.
    std::vector<TokenId> first_tokens = {};
    /// Tokens with which every text ends, such as </s>. What goes on after a prompt does not have them.
    std::vector<TokenId> last_tokens = {};
    /// Tokens that end a text, the one to end it with first. Empty: Tokenizer finds it by the names that it
    /// has, <|endoftext|>, </s>, <|end_of_text|>.
    std::vector<TokenId> ends = {};
    std::optional<TokenId> begin = {};  ///< the token that begins a text, by the files beside the tokenizer
    /// The files that it was read from, as they are, by the names by which load_tokenizer finds them.
    std::map<std::string, std::string> files = {};
};

/// Whether "<|endoftext|>" in a text is that token or thirteen characters.
enum class SpecialsInText : std::uint8_t {
    as_tokens,
    as_text,
    end_of_text_as_token  ///< those that end a text (Tokenizer::ends), and no others
};

/// How texts become tokens, in training and in use alike: by default as Hugging Face's tokenizers do it. A
/// checkpoint keeps how its model was trained.
struct TextReading {
    SpecialsInText specials = SpecialsInText::as_tokens;
    /// TokenizerParts::first_tokens stand before each text and document, last_tokens behind.
    bool begins = true;

    bool operator==(const TextReading&) const = default;
};

struct EncodeOptions {
    SpecialsInText specials = SpecialsInText::as_tokens;
    bool continues = false;       ///< the text goes on where an earlier one ended (at one of safe_cuts)
    bool behind_special = false;  ///< it stands behind a special token
    bool ends_apart = false;      ///< behind a token that ends a text begins another
};

/// Immutable, so one may be shared by threads.
class Tokenizer {
  public:
    /// Throws UserError, naming `parts.source`, if the parts disagree: a byte without a token, a token twice,
    /// a merge of tokens that do not make up its result, a pair with two ranks, a special token that is
    /// empty. A text that need not be cut is cut all the same where no token could span the cut.
    explicit Tokenizer(TokenizerParts parts);
    ~Tokenizer();
    Tokenizer(Tokenizer&&) noexcept;
    Tokenizer& operator=(Tokenizer&&) noexcept;

    const TokenizerParts& parts() const;
    /// Number of ids, special tokens included: every id is below it.
    TokenId vocabulary() const;
    /// The id of the special token of this text.
    std::optional<TokenId> special(std::string_view text) const;
    /// The tokens that end a text, the one to end it with first.
    std::span<const TokenId> ends() const { return parts().ends; }
    /// Special tokens of a text where `allowed`, asked of the bytes begin ... end - 1 of each, lets them be:
    /// as encode finds them, with the white space that they take along.
    struct FoundSpecial {
        std::size_t begin, end;
        TokenId id;
    };
    std::vector<FoundSpecial> find_specials(
        std::string_view text, FunctionRef<bool(std::size_t begin, std::size_t end)> allowed) const;
    /// Where a text may be cut so that the tokens of its parts are those of the whole.
    const SafeCuts& safe_cuts() const;

    /// The tokens of `text`, which may hold any bytes. For many texts an Encoder is faster.
    std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options = {}) const;
    /// The tokens of a whole text, with those before it with which each begins.
    std::vector<TokenId> encode_whole(std::string_view text, const TextReading& reading = {}) const;
    /// Those: TokenizerParts::first_tokens, or none where texts are not to begin with them. Likewise
    /// last_tokens, which whole texts of training have behind them, and prompts have not.
    std::span<const TokenId> first_tokens(const TextReading& reading) const;
    std::span<const TokenId> last_tokens(const TextReading& reading) const;

    /// The bytes of the tokens of a whole text, which need not be valid UTF-8. Throws UserError if an id is
    /// not below vocabulary().
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

/// Turns tokens into text as they come: holds back the bytes of a character until all of them are there.
class StreamDecoder {
  public:
    explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

    /// The text that is complete after `id`: valid UTF-8, each invalid part replaced by U+FFFD.
    std::string push(TokenId id);
    /// The bytes still held back, as U+FFFD, or nothing.
    std::string finish();

  private:
    const Tokenizer* tokenizer_;
    std::string held_;  // at most 3 bytes between calls
};

}  // namespace mantissa
