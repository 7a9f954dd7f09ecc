// Text from checkpoints, through the object that programs have: what the parts beneath it give.
#include "mantissa/train/generator.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/data/tokenizer_files.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/text_model.h"
#include "mantissa/train/trainer.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

constexpr std::int64_t byte_context = 16;

nn::LanguageModel byte_model() {
    return nn::language_model(
        "gpt2-tiny", {.layers = 1, .heads = 2, .channels = 32, .context = byte_context, .vocabulary = 256});
}

/// A checkpoint of a model of bytes that was trained on one sentence.
class SavedText {
  public:
    SavedText() : device_(make_cpu_device({.threads = 2})) {
        Trainer trainer(*device_, byte_model().on_sequences(byte_context), {.batch = 8});
        const std::string sentence = "the fox and the dog; ";
        std::vector<std::int32_t> tokens, targets;
        for (std::size_t i = 0; i < 64 * byte_context; ++i) {
            tokens.push_back(sentence[i % sentence.size()]);
            targets.push_back(sentence[(i + 1) % sentence.size()]);
        }
        const Examples examples = trainer.examples({tokens, targets});
        for (int step = 0; step < 80; ++step) trainer.step(examples, 0.01);
        trainer.save(path());
    }

    Device& device() const { return *device_; }
    std::filesystem::path path() const { return directory_.path() / "run"; }

  private:
    TemporaryDirectory directory_;
    std::unique_ptr<Device> device_;
};

/// The same text by the parts.
std::string by_parts(const SavedText& saved, const std::string& prompt, const SamplingOptions& sampling,
                     std::int64_t length) {
    const TextModel model(saved.device(), ModelFile(saved.path()), byte_tokenizer());
    const std::vector<TokenId> tokens = model.tokenizer().encode_whole(prompt);
    const GenerateOptions options = model.options(sampling, length, FullContext::ends);
    const auto generator = model.generator({std::ssize(tokens)}, options, {});
    generator->allocate(model.parameters());
    return model.tokenizer().decode(
        generate(*generator, tokens, options, [](TokenId) { return true; }).tokens);
}

TEST(Generator, ContinuesWhatATrainerSaved) {
    const SavedText saved;
    Generator generator(saved.device(), saved.path(), {.tokenizer = "bytes"});
    EXPECT_EQ(generator.text("the fox", {.sampling = {.temperature = 0}, .length = 8}), " and the");
    EXPECT_EQ(generator.text("and the", {.sampling = {.temperature = 0}, .length = 4}), " dog");
    // A prompt of another length, drawn.
    for (const std::uint64_t seed : {1U, 2U, 3U}) {
        const SamplingOptions drawn{.temperature = 2, .top_k = 20, .seed = seed};
        EXPECT_EQ(generator.text("th", {.sampling = drawn, .length = 9}), by_parts(saved, "th", drawn, 9));
    }
    EXPECT_NE(by_parts(saved, "th", {.temperature = 2, .seed = 1}, 9),
              by_parts(saved, "th", {.temperature = 2, .seed = 2}, 9));
}

TEST(Generator, ShowsTheTextAsItComesAndStopsAtWords) {
    const SavedText saved;
    Generator generator(saved.device(), saved.path(), {.tokenizer = "bytes"});
    std::string shown;
    int parts = 0;
    const std::string text =
        generator.text("the fox", {.sampling = {.temperature = 0}, .length = 9, .stop = {"the", "cat"}},
                       [&](std::string_view part) { shown += part, ++parts; });
    EXPECT_EQ(text, " and ");
    EXPECT_EQ(shown, text);
    EXPECT_GT(parts, 1);
}

TEST(Generator, TheContextEndsTheTextOrSlides) {
    const SavedText saved;
    Generator generator(saved.device(), saved.path(), {.tokenizer = "bytes"});
    TextOptions options{.sampling = {.temperature = 0}, .length = 40};
    EXPECT_EQ(generator.text("the fox", options).size(), static_cast<std::size_t>(byte_context) - 7 + 1);
    options.full_context = FullContext::slides;
    EXPECT_EQ(generator.text("the fox", options).size(), 40U);
}

TEST(Generator, RunsInEveryFormatOfWeights) {
    const SavedText saved;
    for (const char* policy : {"bf16", "int8"}) {
        Generator generator(saved.device(), saved.path(), {.policy = policy, .tokenizer = "bytes"});
        EXPECT_EQ(generator.text("the fox", {.sampling = {.temperature = 0}, .length = 8}), " and the")
            << policy;
    }
}

TEST(Generator, SaysWhatIsMissingOrOutOfRange) {
    const SavedText saved;
    const auto said = [&](const std::filesystem::path& path, const std::string& tokenizer) {
        return testing::error_of<UserError>(
            [&] { Generator(saved.device(), path, {.tokenizer = tokenizer}); });
    };
    EXPECT_EQ(said(saved.path(), ""),
              saved.path().string() +
                  ": there is no tokenizer beside the weights; give the one they were trained with as "
                  "`tokenizer`, or \"bytes\" if it was bytes");
    EXPECT_EQ(said(saved.path() / "none", "bytes"), (saved.path() / "none").string() + ": does not exist");
    Generator generator(saved.device(), saved.path(), {.tokenizer = "bytes"});
    const auto refused = [&](const std::string& prompt, const TextOptions& options) {
        return testing::error_of<UserError>([&] { generator.text(prompt, options); });
    };
    EXPECT_EQ(refused("a", {.length = 0}), "`length` must be 1 token or more, got 0");
    EXPECT_EQ(refused("", {}), "the prompt is empty; give it one token or more");
    EXPECT_NE(refused("a", {.sampling = {.temperature = -1}}).find("temperature"), std::string::npos);
    EXPECT_EQ(refused(std::string(byte_context + 1, 'a'), {}),
              "the prompt has 17 tokens, run has a context of 16; give a shorter prompt");
    EXPECT_EQ(generator.text("the fox", {.sampling = {.temperature = 0}, .length = 4}), " and")
        << "after errors it goes on";
}

}  // namespace
}  // namespace mantissa
