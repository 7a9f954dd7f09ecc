// The numbers of a step on the emulated GPU, as `numerics` counts them, are those of the CPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "mantissa/codegen/compiler.h"
#include "mantissa/report/numerics.h"
#include "mantissa/runtime/state_block.h"
#include "tests/support/gpt2_training.h"
#include "tests/support/run_graph.h"
#include "tests/support/tested_gpu.h"
#include "tests/support/trains_alike.h"

namespace mantissa {
namespace {

NumericsReport numbers_on(Device& device) {
    Gpt2Training training = small_gpt2_training("fp32");
    training.loss_scale = traced_loss_scale();
    training.passes.clear();
    const SomeTokens batch(2 * 16);
    Trainer trainer = gpt2_trainer(device, training);
    const std::vector<std::byte> before = trainer.state().read("wte.weight");
    NumericsReport report = measure_numerics(trainer, {batch.tokens, batch.targets});
    EXPECT_TRUE(trainer.state().read("wte.weight") == before);
    EXPECT_EQ(trainer.steps_done(), 0);
    return report;
}

std::int64_t counted(const ExponentHistogram& histogram) {
    return histogram.numbers() + histogram.zeros() + histogram.not_finite();
}

using Histograms = std::map<std::string, std::vector<ExponentHistogram>>;

Histograms by_name(const NumericsOfKind& kind) {
    Histograms all;
    for (const TensorNumerics& tensor : kind.tensors) all[tensor.name].push_back(tensor.histogram);
    return all;
}

/// The largest difference in how many of a tensor's numbers are at most some power of two, as a share. Below
/// 2^-24 there is noise: the gradient of the keys' bias would be 0 in exact numbers.
double difference(const ExponentHistogram& got, const ExponentHistogram& expected) {
    double worst = 0;
    for (int exponent = -24; exponent <= 20; ++exponent)
        worst = std::max(worst,
                         std::abs(static_cast<double>(got.at_most(exponent) - expected.at_most(exponent))));
    return worst / static_cast<double>(std::max<std::int64_t>(1, counted(expected)));
}

/// Compares tensors that both devices make: the GPU takes some operations apart. Rounding moves a number over
/// a power of two now and then: one in a hundred of a tensor at most, or two.
int compared(const NumericsOfKind& got, const NumericsOfKind& expected) {
    const Histograms ours = by_name(got);
    int tensors = 0;
    for (const auto& [name, histograms] : by_name(expected)) {
        const auto found = ours.find(name);
        if (found == ours.end() || found->second.size() != histograms.size()) continue;
        for (std::size_t i = 0; i < histograms.size(); ++i) {
            const ExponentHistogram &one = found->second[i], &other = histograms[i];
            if (counted(one) != counted(other)) continue;
            ++tensors;
            EXPECT_EQ(one.not_finite(), other.not_finite()) << name;
            EXPECT_NEAR(one.greatest(), other.greatest(), 1e-3F * other.greatest()) << name;
            EXPECT_LE(difference(one, other), 0.01 + 2.0 / static_cast<double>(counted(other))) << name;
        }
    }
    return tensors;
}

TEST(CudaNumerics, AreThoseOfTheCpu) {
    if (std::string reason = codegen::Compiler::refusal(); !reason.empty()) GTEST_SKIP() << reason;
    const testing::TestedGpu gpu;
    const auto cpu = testing::device_at(testing::levels().back());
    const NumericsReport got = numbers_on(*gpu), expected = numbers_on(*cpu);
    EXPECT_EQ(compared(got.weights, expected.weights), static_cast<int>(expected.weights.tensors.size()));
    const int activations = compared(got.activations, expected.activations),
              gradients = compared(got.gradients, expected.gradients);
    EXPECT_GT(activations, static_cast<int>(expected.activations.tensors.size()) / 2);
    EXPECT_GT(gradients, static_cast<int>(expected.gradients.tensors.size()) / 2);
    // The comparison bites: the gradients of the two linear layers of a block are told from one another.
    const Histograms both = by_name(got.gradients);
    const auto of_block = [&](const std::string& block) {
        const auto found = both.lower_bound(block + ".mlp.c_fc sum");  // behind it stands the line
        return found->second[0];
    };
    EXPECT_GT(difference(of_block("h.0"), of_block("h.1")), 0.03);
}

}  // namespace
}  // namespace mantissa
