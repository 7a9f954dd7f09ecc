// Packed chats: the loss of a batch is the mean over its targets, however the chats lie in sequences.
#include "mantissa/data/packed_chats.h"

#include <gtest/gtest.h>

#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/nn/models/gpt2.h"
#include "mantissa/train/trainer.h"
#include "mantissa/train/training_plan.h"

namespace mantissa {
namespace {

/// Chats of many lengths, of which each third or fourth token is learnt.
ChatSet some_chats() {
    ChatSet set{.starts = {0}};
    std::uint32_t drawn = 7;
    for (std::uint64_t chat = 0; chat < 13; ++chat) {
        const std::size_t size = 3 + chat * 17 % 41;
        for (std::size_t i = 0; i < size; ++i) {
            drawn = drawn * 1664525 + 1013904223;
            set.tokens.push_back(static_cast<TokenId>(drawn >> 20) % 61);
            set.trained.push_back(i % (3 + chat % 2) == 2);
        }
        set.starts.push_back(set.tokens.size());
        set.names.push_back(chat);
    }
    return set;
}

double loss_of(Device& device, const nn::LanguageModel& model, const ChatSet& set, TokenRange range,
               std::int64_t sequence, std::int64_t batch, std::uint64_t* targets) {
    const nn::Model packed = model.on_packed_documents(sequence);
    Trainer trainer(TrainingPlan(device, packed, {.batch = batch, .seed = 7}));
    const PackedChats source(set, range, sequence, {.batch = batch, .all = true});
    BatchBuffer buffer(packed, batch);
    double sum = 0;
    for (std::uint64_t step = 0; step < source.steps_per_epoch(); ++step) {
        const std::uint64_t counted = source.counted(step);
        sum += static_cast<double>(counted) *
               static_cast<double>(trainer.evaluate(buffer.fill(source, step)).loss);
        *targets += counted;
    }
    return sum;
}

TEST(PackedChatsTrain, TheLossIsTheMeanOverAllTargets) {
    const auto device = make_cpu_device({.threads = 2});
    const nn::LanguageModel model = nn::gpt2_language_model(
        {.name = "small", .layers = 2, .heads = 2, .channels = 32, .vocabulary = 61, .context = 48});
    const ChatSet set = some_chats();
    double alone = 0;
    std::uint64_t targets = 0;
    for (std::uint64_t chat = 0; chat < set.chats(); ++chat)
        alone += loss_of(*device, model, set, set.range_of(chat), 48, 1, &targets);
    const double mean = alone / static_cast<double>(targets);
    for (const std::int64_t batch : {1, 2, 16}) {
        std::uint64_t counted = 0;
        const double loss = loss_of(*device, model, set, {0, set.tokens.size()}, 48, batch, &counted);
        EXPECT_EQ(counted, targets);
        EXPECT_NEAR(loss / static_cast<double>(counted), mean, 1e-6) << batch;
    }
    // A mask that is another one gives another loss.
    ChatSet altered = set;
    altered.trained[1] = 1;
    std::uint64_t counted = 0;
    const double other = loss_of(*device, model, altered, {0, set.tokens.size()}, 48, 2, &counted);
    EXPECT_EQ(counted, targets + 1);
    EXPECT_GT(std::abs(other / static_cast<double>(counted) - mean), 1e-6);
}

}  // namespace
}  // namespace mantissa
