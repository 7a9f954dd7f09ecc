#include "mantissa/train/text_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "mantissa/base/error.h"
#include "mantissa/data/chat/chat_encoder.h"
#include "mantissa/formats/hf_token_ids.h"
#include "mantissa/graph/graph.h"

namespace mantissa::inline v0 {

StopSequences::StopSequences(std::vector<std::string> words) : words_(std::move(words)) {
    for (const std::string& word : words_)
        if (word.empty()) throw UserError("a word at which the text ends must have a character or more");
}

std::string StopSequences::push(std::string_view part) {
    if (found_) return "";
    held_ += part;
    std::size_t end = held_.npos, held = 0;  // of the first word; bytes at the end that may begin a word
    for (const std::string& word : words_) {
        end = std::min(end, held_.find(word));
        for (std::size_t length = std::min(word.size() - 1, held_.size()); length > held; --length)
            if (held_.ends_with(std::string_view(word).substr(0, length))) held = length;
    }
    found_ = end != held_.npos;
    std::string shown = held_.substr(0, found_ ? end : held_.size() - held);
    held_ = found_ ? "" : held_.substr(shown.size());
    return shown;
}

std::string StopSequences::finish() { return std::exchange(held_, ""); }

namespace {

Tokenizer fitting(Tokenizer tokenizer, const nn::LanguageModel& model) {
    if (tokenizer.vocabulary() > model.vocabulary)
        throw UserError(
            fmt::format("{} has {} tokens, the vocabulary of {} only {}; give the tokenizer that "
                        "it was trained with",
                        tokenizer.parts().source, tokenizer.vocabulary(), model.name, model.vocabulary));
    return tokenizer;
}

std::vector<TokenId> ends_of(const ModelFile& file, const Tokenizer& tokenizer) {
    std::vector<TokenId> ends;
    for (const std::int64_t id : read_hf_token_ids(file.directory()).ends)
        if (id < tokenizer.vocabulary()) ends.push_back(static_cast<TokenId>(id));
    if (ends.empty()) ends.assign(tokenizer.ends().begin(), tokenizer.ends().end());
    return ends;
}

}  // namespace

TextModel::TextModel(Device& device, const ModelFile& file, Tokenizer tokenizer,
                     std::optional<SpecialsInText> specials)
    : device_(device),
      model_(file.model()),
      tokenizer_(fitting(std::move(tokenizer), model_)),
      reading_(file.reading()),
      parameters_(device, TokenGenerator(device, model_, 1).parameters()),
      ends_(ends_of(file, tokenizer_)) {
    reading_.specials = specials.value_or(reading_.specials);
    file.load(parameters_);
}

GenerateOptions TextModel::options(SamplingOptions sampling, std::int64_t length,
                                   FullContext full_context) const {
    if (sampling.tokens == 0) sampling.tokens = tokenizer_.vocabulary();
    return {.sampling = sampling,
            .length = length,
            .last_tokens = ends_,
            .full_context = full_context,
            .kept_first = std::ssize(tokenizer_.first_tokens(reading_))};
}

GenerateOptions TextModel::answer_options(SamplingOptions sampling, std::int64_t length,
                                          FullContext full_context) const {
    GenerateOptions made = options(sampling, length, full_context);
    const std::vector<TokenId> ends = ChatEncoder(tokenizer_).end_tokens();
    made.last_tokens.insert(made.last_tokens.end(), ends.begin(), ends.end());
    return made;
}

std::unique_ptr<TokenGenerator> TextModel::generator(std::vector<std::int64_t> prompt_tokens,
                                                     const GenerateOptions& options, const Policy& policy,
                                                     std::int64_t texts) const {
    const std::int64_t longest = std::ranges::max(prompt_tokens), context = model_.used_context();
    if (options.full_context == FullContext::slides && longest <= context &&
        longest + options.length > context)
        prompt_tokens.push_back(slid_length(context));
    return std::make_unique<TokenGenerator>(device_, model_, prompt_tokens, policy, texts);
}

}  // namespace mantissa
