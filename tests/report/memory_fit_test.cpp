// Settings that a step of adapters gets where the defaults do not fit.
#include "mantissa/report/memory_fit.h"

#include <gtest/gtest.h>

#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/nn/language_model.h"
#include "mantissa/nn/lora.h"
#include "mantissa/numerics/coded_weights.h"

namespace mantissa {
namespace {

class FirstThatFits : public ::testing::Test {
  protected:
    TrainingPlan planned(const TrainerOptions& options) {
        return {*device_, nn::language_model("llama-tiny").on_sequences(64), options};
    }
    std::int64_t bytes(const TrainerOptions& options) { return planned(options).memory().total(); }
    std::optional<TrainerOptions> first(std::int64_t available, const OpenSettings& open) {
        return first_that_fits(plan_, available, open);
    }

    std::unique_ptr<Device> device_ = make_cpu_device({.threads = 1});
    const TrainerOptions given_{.batch = 6,
                                .policy = "bf16",
                                .passes = std::vector<std::string>{"simplify"},
                                .lora = nn::LoraOptions{.rank = 4}};
    const TrainingPlan plan_ = planned(given_);
};

TEST_F(FirstThatFits, ChangesOpenSettingsAloneInTheOrderOfTheirPrice) {
    const std::int64_t whole = plan_.memory().total();
    const OpenSettings all{.trunk = true, .batch = true, .recompute = true};
    EXPECT_EQ(first(whole, all)->batch, 6);
    EXPECT_FALSE(first(whole - 1, {}));

    TrainerOptions smaller = given_;
    smaller.batch = 3;
    smaller.accumulate = 2;
    const auto of_batch = first(whole - 1, all);
    ASSERT_TRUE(of_batch);
    EXPECT_EQ(of_batch->batch, 3);
    EXPECT_EQ(of_batch->accumulate, 2) << "as many examples a step";
    EXPECT_LT(bytes(smaller), whole);

    smaller.batch = 1;
    smaller.accumulate = 6;
    const auto again = first(bytes(smaller) - 1, all);
    ASSERT_TRUE(again);
    EXPECT_EQ(again->recompute, std::set<std::string>{"block"});
    EXPECT_FALSE(has_codes(again->lora->trunk));

    TrainerOptions coded = given_;
    coded.lora->trunk = Layout::int8;
    const auto int8 = first(bytes(coded), {.trunk = true});
    ASSERT_TRUE(int8);
    EXPECT_EQ(int8->lora->trunk, Layout::int8);
    EXPECT_EQ(int8->batch, 6);
    const auto nf4 = first(bytes(coded) - 1, {.trunk = true});
    ASSERT_TRUE(nf4);
    EXPECT_EQ(nf4->lora->trunk, Layout::nf4);

    EXPECT_FALSE(first(1 << 10, {.recompute = true})) << "the state alone is more";
}

}  // namespace
}  // namespace mantissa
