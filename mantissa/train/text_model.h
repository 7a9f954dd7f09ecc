// A language model that writes: weights on a device, tokenizer, and the tokens that end a text.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/data/tokenizer.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/generate.h"
#include "mantissa/train/model_file.h"

namespace mantissa::inline v0 {

/// Words that end a text, found while the text arrives.
class StopSequences {
  public:
    /// Throws UserError for an empty word.
    explicit StopSequences(std::vector<std::string> words);

    /// The text that can be shown after `part`: all before the first word, or before a possible beginning of
    /// one. Empty once a word was found.
    std::string push(std::string_view part);
    /// The text still held back, if the text ended without a word.
    std::string finish();
    bool found() const { return found_; }

  private:
    std::vector<std::string> words_;
    std::string held_;
    bool found_ = false;
};

class TextModel {
  public:
    /// Reads texts as the model was trained; `specials`, if given, decides the treatment of special tokens.
    /// Throws UserError, naming the tokenizer, if it has more tokens than the model.
    TextModel(Device& device, const ModelFile& file, Tokenizer tokenizer,
              std::optional<SpecialsInText> specials = {});

    Device& device() const { return device_; }
    const nn::LanguageModel& model() const { return model_; }
    const Tokenizer& tokenizer() const { return tokenizer_; }
    const StateBlock& parameters() const { return parameters_; }
    const TextReading& reading() const { return reading_; }
    /// The tokens of a prompt.
    std::vector<TokenId> prompt_tokens(std::string_view text) const {
        return tokenizer_.encode_whole(text, reading_);
    }

    /// Options with the tokens that end a text (from the model's files, otherwise its tokenizer) and the
    /// tokens that begin one.
    GenerateOptions options(SamplingOptions sampling, std::int64_t length, FullContext full_context) const;
    /// Options for an answer in a chat; the end of its turn ends it, too.
    GenerateOptions answer_options(SamplingOptions sampling, std::int64_t length,
                                   FullContext full_context) const;
    /// Plans for prompts of these lengths, `texts` at once, and for contexts that slide.
    std::unique_ptr<TokenGenerator> generator(std::vector<std::int64_t> prompt_tokens,
                                              const GenerateOptions& options, const Policy& policy,
                                              std::int64_t texts = 1) const;

  private:
    Device& device_;
    nn::LanguageModel model_;
    Tokenizer tokenizer_;
    TextReading reading_;
    StateBlock parameters_;
    std::vector<TokenId> ends_;
};

/// A text in whole characters as it arrives, up to the first stop word.
class TextWriter {
  public:
    /// The tokenizer must outlive it. Throws UserError for an empty word.
    TextWriter(const Tokenizer& tokenizer, const std::vector<std::string>& stop)
        : decoder_(tokenizer), stop_(stop) {}

    /// Returns the text that can be shown now.
    std::string push(TokenId token) { return add(stop_.push(decoder_.push(token))); }
    std::string finish() {
        std::string rest = stop_.push(decoder_.finish());
        return add(rest + stop_.finish());
    }
    bool goes_on() const { return !stop_.found(); }
    const std::string& text() const { return text_; }

  private:
    std::string add(std::string part) {
        text_ += part;
        return part;
    }

    StreamDecoder decoder_;
    StopSequences stop_;
    std::string text_;
};

}  // namespace mantissa
