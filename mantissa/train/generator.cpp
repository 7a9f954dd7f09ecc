#include "mantissa/train/generator.h"

#include <fmt/format.h>

#include <utility>

#include "mantissa/base/error.h"
#include "mantissa/data/chat/chat_encoder.h"
#include "mantissa/data/tokenizer_files.h"
#include "mantissa/train/text_model.h"

namespace mantissa::inline v0 {

namespace {

Tokenizer tokenizer_of(const ModelFile& file, const std::string& given) {
    const std::filesystem::path& beside = file.directory();
    if (given.empty() && !holds_tokenizer(beside))
        throw UsageError(
            fmt::format("{}: there is no tokenizer beside the weights; give the one they were trained "
                        "with as `tokenizer`, or \"{}\" if it was bytes{}",
                        beside.string(), bytes_word, unread_tokenizer(beside)));
    return named_tokenizer(given.empty() ? beside.string() : given);
}

TextModel model_of(Device& device, ModelFile file, const GeneratorOptions& options) {
    if (!options.adapter.empty()) file.adapt(options.adapter);
    return {device, file, tokenizer_of(file, options.tokenizer), options.specials};
}

}  // namespace

struct Generator::Parts {
    TextModel model;
    Policy policy;
    std::unique_ptr<TokenGenerator> generator = {};  ///< for prompts as long as the last
    std::pair<std::size_t, FullContext> planned = {};

    TokenGenerator& generator_for(std::size_t prompt_tokens, const GenerateOptions& options) {
        const std::pair wanted{prompt_tokens, options.full_context};
        if (!generator || planned != wanted) {
            generator.reset();  // frees its memory before the next one takes memory
            GenerateOptions of_any_length = options;
            of_any_length.length = model.model().used_context();
            auto made = model.generator({static_cast<std::int64_t>(prompt_tokens)}, of_any_length, policy);
            made->allocate(model.parameters());
            generator = std::move(made);
            planned = wanted;
        }
        return *generator;
    }

    std::string write(const std::vector<TokenId>& tokens, const GenerateOptions& options,
                      const std::vector<std::string>& stop,
                      const std::function<void(std::string_view)>& show) {
        TextWriter writer(model.tokenizer(), stop);
        const auto shown = [&](const std::string& part) {
            if (show && !part.empty()) show(part);
        };
        generate(generator_for(tokens.size(), options), tokens, options, [&](TokenId token) {
            shown(writer.push(token));
            return writer.goes_on();
        });
        shown(writer.finish());
        return writer.text();
    }
};

Generator::Generator(Device& device, const std::filesystem::path& directory, const GeneratorOptions& options)
    : parts_(new Parts{.model = model_of(device, ModelFile(directory), options), .policy = options.policy}) {}

Generator::~Generator() = default;
Generator::Generator(Generator&&) noexcept = default;

namespace {

void validate(const TextOptions& options) {
    if (options.length < 1)
        throw UsageError(fmt::format("`length` must be 1 token or more, got {}", options.length));
    mantissa::validate(options.sampling);
}

}  // namespace

std::string Generator::text(std::string_view prompt, const TextOptions& options,
                            const std::function<void(std::string_view)>& show) {
    validate(options);
    const TextModel& model = parts_->model;
    return parts_->write(model.prompt_tokens(prompt),
                         model.options(options.sampling, options.length, options.full_context), options.stop,
                         show);
}

std::string Generator::answer(std::string_view chat, const TextOptions& options,
                              const std::function<void(std::string_view)>& show) {
    validate(options);
    const TextModel& model = parts_->model;
    const ChatFile file = parse_chats(chat, "the chat");
    if (file.chats.size() != 1)
        throw UserError(fmt::format("the chat: expected one, got {}", file.chats.size()));
    return parts_->write(ChatEncoder(model.tokenizer()).prompt(file.chats[0]).tokens,
                         model.answer_options(options.sampling, options.length, options.full_context),
                         options.stop, show);
}

}  // namespace mantissa
