// Text from a trained model on disk: a prompt goes in, and its continuation comes out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/passes/policy.h"

namespace mantissa::inline v0 {

class Device;
enum class SpecialsInText : std::uint8_t;

/// Choice of the next token from a model's scores.
struct SamplingOptions {
    double temperature = 1;         ///< divides the scores; 0: the token of the largest score
    std::int64_t top_k = 0;         ///< candidates: the k largest scores; 0: all
    double top_p = 1;               ///< then the fewest, likeliest first, with this total probability
    double min_p = 0;               ///< then tokens at least this share as likely as the likeliest
    double repetition_penalty = 1;  ///< above 1: makes tokens of the text less likely
    std::int64_t tokens = 0;        ///< only tokens below this; 0: the tokenizer's
    std::uint64_t seed = 1337;      ///< of the random numbers
};

/// Treatment of a text that fills the model's context. It ends, or it slides: its older half is dropped, and
/// the rest is read again from position 0, since keys and values depend on positions.
enum class FullContext : std::uint8_t { ends, slides };

struct TextOptions {
    SamplingOptions sampling = {};
    std::int64_t length = 100;           ///< tokens at most; an end-of-text token ends it earlier
    std::vector<std::string> stop = {};  ///< words before which the text ends
    FullContext full_context = FullContext::ends;
};

struct GeneratorOptions {
    Policy policy = {};        ///< int8 and int4, too, which quantise the weights of linear layers
    std::string adapter = {};  ///< a folder of adapters to add to the weights; empty: none
    /// A directory, tokenizer.json or .tiktoken; or "bytes"; empty: the tokenizer beside the weights.
    std::string tokenizer = {};
    /// Whether "<|im_end|>" in a prompt is that token or ten characters; none: as in training.
    std::optional<SpecialsInText> specials = {};
};

class Generator {
  public:
    /// `directory`: a checkpoint of a language model (nn/language_model.h), or model.safetensors and
    /// config.json of another project. Throws UserError, naming the file, for anything else and for a
    /// tokenizer with another vocabulary.
    Generator(Device& device, const std::filesystem::path& directory, const GeneratorOptions& options = {});
    ~Generator();
    Generator(Generator&&) noexcept;

    /// Continues the prompt. `show` is called with each new part, in whole characters. A prompt of another
    /// length than the last is planned anew. Throws UserError for a prompt that is empty or longer than the
    /// context, and for options out of range.
    std::string text(std::string_view prompt, const TextOptions& options = {},
                     const std::function<void(std::string_view)>& show = {});
    /// Answers a chat: JSON of messages (data/chat/chat_file.h) that ends with a question.
    std::string answer(std::string_view chat, const TextOptions& options = {},
                       const std::function<void(std::string_view)>& show = {});

  private:
    struct Parts;
    std::unique_ptr<Parts> parts_;
};

}  // namespace mantissa
