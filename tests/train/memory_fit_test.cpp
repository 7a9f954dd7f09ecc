// Settings that a step of adapters gets where those that were given do not fit.
#include "mantissa/train/memory_fit.h"

#include <gtest/gtest.h>

#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/nn/language_model.h"
#include "mantissa/nn/lora.h"
#include "mantissa/numerics/coded_weights.h"
#include "tests/support/device_around.h"
#include "tests/support/rank_threads.h"

namespace mantissa {
namespace {

/// A machine with so much memory.
class SmallMachine : public testing::DeviceAround {
  public:
    explicit SmallMachine(std::int64_t bytes, Ranks* ranks = nullptr)
        : DeviceAround(make_cpu_device({.threads = 1, .ranks = ranks})), bytes_(bytes) {}
    std::int64_t free_memory() const override { return bytes_; }

  private:
    std::int64_t bytes_;
};

constexpr OpenSettings all_open{.trunk = true, .batch = true, .recompute = true};

class FirstThatFits : public ::testing::Test {
  protected:
    static nn::Model model() { return nn::language_model("llama-tiny").on_sequences(64); }
    static std::int64_t bytes(const TrainerOptions& options) {
        SmallMachine machine(0, options.ranks);
        return TrainingPlan(machine, model(), options).memory().total();
    }
    static TrainerOptions fitted(std::int64_t available, TrainerOptions options) {
        SmallMachine machine(available, options.ranks);
        return plan_that_fits(machine, model(), std::move(options)).options();
    }
    TrainerOptions first(std::int64_t available, const OpenSettings& open) const {
        TrainerOptions options = given_;
        options.open = open;
        return fitted(available, options);
    }

    const TrainerOptions given_{.batch = 6,
                                .policy = "bf16",
                                .passes = std::vector<std::string>{"simplify"},
                                .lora = nn::LoraOptions{.rank = 4}};
    const std::int64_t whole_ = bytes(given_);
};

TEST_F(FirstThatFits, ChangesOpenSettingsAloneInTheOrderOfTheirPrice) {
    EXPECT_TRUE(chosen_settings(given_, first(whole_, all_open)).empty());
    EXPECT_TRUE(chosen_settings(given_, first(whole_ - 1, OpenSettings{})).empty());

    TrainerOptions smaller = given_;
    smaller.batch = 3;
    smaller.accumulate = 2;
    const TrainerOptions of_batch = first(whole_ - 1, all_open);
    EXPECT_EQ(of_batch.batch, 3);
    EXPECT_EQ(of_batch.accumulate, 2) << "as many examples a step";
    EXPECT_LT(bytes(smaller), whole_);

    smaller.batch = 1;
    smaller.accumulate = 6;
    const TrainerOptions again = first(bytes(smaller) - 1, all_open);
    EXPECT_EQ(again.recompute, std::set<std::string>{"block"});
    EXPECT_FALSE(has_codes(again.lora->trunk));

    TrainerOptions coded = given_;
    coded.lora->trunk = Layout::int8;
    const std::int64_t with_room = bytes(coded) + bytes(coded) / 32;
    const TrainerOptions int8 = first(with_room, {.trunk = true});
    EXPECT_EQ(int8.lora->trunk, Layout::int8);
    EXPECT_EQ(int8.batch, 6);
    EXPECT_EQ(first(bytes(coded) - 1, {.trunk = true}).lora->trunk, Layout::nf4);

    EXPECT_TRUE(chosen_settings(given_, first(1 << 10, {.recompute = true})).empty())
        << "the state alone is more";
}

TEST_F(FirstThatFits, IsWhatATrainerTrainsAndSaysInALine) {
    SmallMachine machine(whole_ - 1);
    TrainerOptions options = given_;
    EXPECT_THROW(Trainer(machine, model(), options), UserError);
    options.open = all_open;
    const Trainer trainer(machine, model(), options);
    EXPECT_EQ(trainer.plan().options().batch, 3);
    EXPECT_TRUE(choice_text(options, trainer.plan())
                    .starts_with("chosen, since the step as given does not fit: `batch` 3 `accumulate` 2, "
                                 "which needs 0.0"))
        << choice_text(options, trainer.plan());
    options.lora = {};
    EXPECT_THROW(Trainer(machine, model(), options), UserError) << "other steps stay as they are";
}

TEST_F(FirstThatFits, IsTheSameOnRanksWhateverEachHas) {
    testing::run_good_ranks(2, [&](Ranks& ranks) {
        TrainerOptions options = given_;
        options.ranks = &ranks;
        options.open.batch = true;
        const auto needed = [&](std::int64_t batch, std::int64_t accumulate) {
            TrainerOptions each = options;
            each.batch = batch;
            each.accumulate = accumulate;
            return bytes(each);
        };
        // They share a host: each has half of what it sees.
        const std::int64_t whole = 2 * needed(6, 1), half = 2 * needed(3, 2);
        ASSERT_LT(half, whole);
        EXPECT_EQ(fitted(whole, options).batch, 6);
        EXPECT_EQ(fitted(ranks.rank() == 0 ? whole : whole - 2, options).batch, 3);
        EXPECT_EQ(fitted(ranks.rank() == 0 ? half - 2 : whole, options).batch, 1);
    });
}

}  // namespace
}  // namespace mantissa
