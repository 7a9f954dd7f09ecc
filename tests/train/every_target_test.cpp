// Validation counts every target once, whatever the batch: held against the scores of a model that reads
// token after token, summed in FP64.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "mantissa/data/packed_documents.h"
#include "mantissa/data/text_windows.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/nn/decoder/family.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/generate.h"
#include "mantissa/train/optimizer.h"
#include "mantissa/train/perplexity.h"
#include "mantissa/train/token_generator.h"
#include "mantissa/train/trainer.h"
#include "mantissa/train/training_plan.h"
#include "tests/support/gpt2.h"

namespace mantissa {
namespace {

constexpr std::int64_t validated_window = 16;

/// No multiple of a batch or of a sequence: 19 windows, the last of 5 targets.
std::vector<std::int32_t> text_of_windows() {
    std::vector<std::int32_t> tokens;
    for (int i = 0; i < 18 * validated_window + 6; ++i) tokens.push_back((i * i * 3 + 11 * i + 5) % 60);
    return tokens;
}

double validation_loss(Trainer& trainer, const nn::Model& model, const BatchSource& source,
                       std::int64_t batch, std::uint64_t* counted = nullptr) {
    BatchBuffer buffer(model, batch);
    double total = 0, targets = 0;
    for (std::uint64_t step = 0; step < source.steps_per_epoch(); ++step) {
        const auto of_step = static_cast<double>(source.counted(step));
        total += of_step * static_cast<double>(trainer.evaluate(buffer.fill(source, step)).loss);
        targets += of_step;
    }
    if (counted) *counted = static_cast<std::uint64_t>(targets);
    return total / targets;
}

/// Sum over all targets of windows of T tokens, each read token by token.
double loss_by_hand(Device& device, const nn::LanguageModel& model, const StateBlock& parameters,
                    const std::vector<std::int32_t>& text) {
    TokenGenerator generator(device, model, 1);
    generator.allocate(parameters);
    double total = 0;
    std::vector<float> scores;
    for (std::size_t i = 0; i + 1 < text.size(); ++i) {
        scores = i % validated_window == 0 ? generator.prompt(std::span(text).subspan(i, 1))
                                           : generator.next(text[i]);
        total -= log_probability(scores, text[i + 1]);
    }
    return total / static_cast<double>(text.size() - 1);
}

TEST(EveryTarget, CountsOnceWhateverTheBatch) {
    const auto device = make_cpu_device({.threads = 2});
    const std::vector<std::int32_t> text = text_of_windows();
    const TokenStream stream(text);
    const nn::Gpt2Config gpt2{.name = "small",
                              .layers = 2,
                              .heads = 2,
                              .channels = 32,
                              .vocabulary = 61,
                              .context = validated_window};
    nn::DecoderConfig llama = nn::decoder_config("llama-tiny");
    llama.parts.vocabulary = 61;
    llama.parts.context = validated_window;
    for (const nn::LanguageModel& language :
         {nn::gpt2_language_model(gpt2), nn::decoder_language_model(llama)}) {
        const nn::Model model = language.on_sequences(validated_window);
        double by_hand = 0;
        for (const std::int64_t batch : {1, 3, 8, 64}) {
            Trainer trainer(TrainingPlan(*device, model, {.batch = batch, .seed = 7}));
            const TextWindows source(stream, stream.all(), validated_window, {.batch = batch, .all = true});
            std::uint64_t counted = 0;
            const double loss = validation_loss(trainer, model, source, batch, &counted);
            EXPECT_EQ(counted, text.size() - 1);
            if (by_hand == 0) {
                by_hand = loss_by_hand(*device, language, trainer.state(), text);
                const Perplexity found = perplexity(*device, language, find_policy("fp32"), trainer.state(),
                                                    {.stream = TokenStream(text)});
                EXPECT_EQ(found.tokens, std::ssize(text) - 1);
                EXPECT_NEAR(found.loss, by_hand, 1e-6);
            }
            // A mean of losses near 4 that were summed in FP32, whose last place is 2.4e-7.
            EXPECT_NEAR(loss, by_hand, 1e-6) << language.name << ", batch " << batch;
        }
    }
}

/// Ends of documents are no targets, whether they stand within the text or at its end.
TEST(EveryTarget, OfPackedDocumentsCountsOnceWhateverTheBatch) {
    const auto device = make_cpu_device({.threads = 2});
    std::vector<std::int32_t> text = text_of_windows();
    for (std::size_t i = 6; i < text.size(); i += 23) text[i] = 60;
    const TokenStream stream(text);
    const DocumentEnds ends(stream, {{60}});
    const nn::Gpt2Config config{.name = "small",
                                .layers = 1,
                                .heads = 2,
                                .channels = 32,
                                .vocabulary = 61,
                                .context = validated_window};
    const nn::Model model = nn::gpt2_model(config, validated_window, nn::Documents::packed);
    double first = 0;
    for (const std::int64_t batch : {1, 3, 8, 64}) {
        Trainer trainer(TrainingPlan(*device, model, {.batch = batch, .seed = 7}));
        const PackedDocuments source(stream, ends, stream.all(), validated_window,
                                     {.batch = batch, .all = true});
        std::uint64_t counted = 0;
        const double loss = validation_loss(trainer, model, source, batch, &counted);
        EXPECT_EQ(counted, text.size() - 1 - ends.among({0, text.size() - 1}));
        if (first == 0) first = loss;
        EXPECT_NEAR(loss, first, 1e-6) << batch;
    }
}

TEST(EveryTarget, AWindowThatIsShorterThanAllHasAPlaceForEachOfItsTokens) {
    const TokenStream stream(std::vector<std::int32_t>{5, 6, 7});
    const TextWindows source(stream, stream.all(), 4, {.batch = 2, .all = true});
    EXPECT_EQ(source.steps_per_epoch(), 1u);
    EXPECT_EQ(source.counted(0), 2u);
    std::vector<std::int32_t> tokens(8), targets(8);
    source.fill(0, 0, tokens, targets);
    EXPECT_EQ(tokens, (std::vector<std::int32_t>{5, 6, 0, 0, 0, 0, 0, 0}));
    EXPECT_EQ(targets, (std::vector<std::int32_t>{6, 7, -1, -1, -1, -1, -1, -1}));
}

}  // namespace
}  // namespace mantissa
