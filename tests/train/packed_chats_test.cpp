// Packed chats: the loss of a batch is the mean over its targets, however the chats lie in sequences.
#include "mantissa/data/packed_documents.h"

#include <gtest/gtest.h>

#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/trainer.h"
#include "mantissa/train/training_plan.h"
#include "tests/support/gpt2.h"
#include "tests/support/rank_threads.h"

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

nn::LanguageModel small_model() {
    return nn::gpt2_language_model(
        {.name = "small", .layers = 2, .heads = 2, .channels = 32, .vocabulary = 61, .context = 48});
}

TEST(PackedChatsTrain, TheLossIsTheMeanOverAllTargets) {
    const auto device = make_cpu_device({.threads = 2});
    const nn::LanguageModel model = small_model();
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

/// A step of four sequences, as so many micro-batches of so many ranks.
struct ChatSplit {
    int ranks = 1;
    std::int64_t batch = 1, accumulate = 1;
};

struct ChatTraining {
    std::vector<float> losses;
    std::vector<std::byte> weights;  // an embedding
};

ChatTraining train_as(const ChatSplit& split, Ranks* ranks) {
    const auto device = make_cpu_device({.threads = 1, .ranks = ranks});
    const nn::Model model = small_model().on_packed_documents(48);
    Trainer trainer(TrainingPlan(*device, model,
                                 {.optimizer = clipped(adamw(), 0.3),
                                  .batch = split.batch,
                                  .accumulate = split.accumulate,
                                  .seed = 7,
                                  .ranks = ranks,
                                  .states = States::whole}));
    const ChatSet set = some_chats();
    const TrainerOptions& options = trainer.plan().options();
    const PackedChats source(set, {0, set.tokens.size()}, 48,
                             {.batch = split.batch,
                              .accumulate = options.micro_batches(),
                              .order = BatchOrder::random,
                              .seed = 3});
    BatchBuffer buffer(model, split.batch, split.accumulate, options.first_micro_batch());
    ChatTraining trained;
    for (std::uint64_t step = 0; step < 6; ++step)
        trained.losses.push_back(trainer.step(buffer.fill(source, step), 1e-2).loss);
    trained.weights = trainer.state().read("wte.weight");
    return trained;
}

ChatTraining train_chats(const ChatSplit& split) {
    if (split.ranks == 1) return train_as(split, nullptr);
    std::vector<ChatTraining> all(static_cast<std::size_t>(split.ranks));
    testing::run_good_ranks(split.ranks, [&](Ranks& ranks) {
        all[static_cast<std::size_t>(ranks.rank())] = train_as(split, &ranks);
    });
    for (const ChatTraining& each : all) EXPECT_TRUE(each.weights == all[0].weights) << "ranks differ";
    return all[0];
}

TEST(PackedChatsTrain, AStepIsTheSameHoweverItIsSplit) {
    const ChatTraining alone = train_chats({.batch = 1, .accumulate = 4});
    for (const ChatSplit& split : {ChatSplit{.ranks = 2, .accumulate = 2}, {.ranks = 4}}) {
        const ChatTraining shared = train_chats(split);
        EXPECT_EQ(shared.losses, alone.losses) << split.ranks;
        EXPECT_TRUE(shared.weights == alone.weights) << split.ranks;
    }
    // Larger micro-batches add up in another order, over the same targets: FP32's rounding of a loss, and
    // what six steps make of it.
    for (const ChatSplit& split :
         {ChatSplit{.batch = 2, .accumulate = 2}, {.batch = 4}, {.ranks = 2, .batch = 2}}) {
        const ChatTraining other = train_chats(split);
        EXPECT_NEAR(other.losses[0], alone.losses[0], 1e-6) << split.batch;
        for (std::size_t step = 1; step < alone.losses.size(); ++step)
            EXPECT_NEAR(other.losses[step], alone.losses[step], 1e-4) << split.batch << " " << step;
    }
    // The mean of the micro-batches' own means would be found.
    const auto device = make_cpu_device({.threads = 1});
    const nn::Model model = small_model().on_packed_documents(48);
    Trainer trainer(TrainingPlan(*device, model, {.batch = 1, .seed = 7}));
    const ChatSet set = some_chats();
    const PackedChats source(set, {0, set.tokens.size()}, 48,
                             {.batch = 1, .order = BatchOrder::random, .seed = 3});
    BatchBuffer buffer(model, 1);
    float mean_of_means = 0;
    for (std::uint64_t step = 0; step < 4; ++step)
        mean_of_means += trainer.evaluate(buffer.fill(source, step)).loss / 4;
    EXPECT_GT(std::abs(mean_of_means - alone.losses[0]), 1e-4);
}

}  // namespace
}  // namespace mantissa
