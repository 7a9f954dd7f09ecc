// GPT-2's training step, fused: the code of its kernels as golden text, and losses beside the eager step's.
#include <gtest/gtest.h>

#include <set>

#include "mantissa/codegen/loop_nest.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/graph/graph.h"
#include "mantissa/train/training_plan.h"
#include "tests/codegen/golden_text.h"
#include "tests/support/gpt2_training.h"
#include "tests/support/passes.h"
#include "tests/support/trains_alike.h"

namespace mantissa {
namespace {

Gpt2Training tiny(std::int64_t batch, bool fuse) {
    Gpt2Training options;
    options.model = nn::gpt2_config("gpt2-tiny");
    options.batch = batch;
    options.sequence = 64;
    options.passes = testing::plain_and({{"fuse", fuse}});
    return options;
}

/// The pseudo-code of each kernel, once, in the order of first use.
std::string kernels_of(const Graph& graph) {
    std::string text;
    std::set<std::string> seen;
    for (std::size_t id = 0; id < graph.size(); ++id) {
        const Node& node = graph.node(static_cast<NodeId>(id));
        if (node.op->name != "fused") continue;
        const std::string code = codegen::pseudo_code(codegen::lower(node.attributes.body("body").graph()));
        if (seen.insert(code).second) text += "kernel " + std::to_string(seen.size()) + " " + code + "\n";
    }
    return text;
}

class Gpt2Kernels : public ::testing::Test {
  protected:
    void SetUp() override {
        if (!device_->target().cannot_compile.empty()) GTEST_SKIP() << device_->target().cannot_compile;
    }
    std::unique_ptr<Device> device_ = make_cpu_device({.threads = 2});
};

TEST_F(Gpt2Kernels, AreTheseToTheLetter) {
    const TrainingPlan plan = gpt2_plan(*device_, tiny(4, true));
    const std::string found = kernels_of(plan.step().graph());
    testing::expect_text_of("gpt2_tiny_kernels.txt", found);
}

TEST_F(Gpt2Kernels, AreTheSameForANewBatch) {
    const TrainingPlan four = gpt2_plan(*device_, tiny(4, true));
    const std::size_t compiled = device_->compiled_kernels().size();
    const TrainingPlan seven = gpt2_plan(*device_, tiny(7, true));
    EXPECT_EQ(device_->compiled_kernels().size(), compiled);
    EXPECT_LE(compiled, 12u);
}

TEST_F(Gpt2Kernels, TrainAsTheEagerStepDoes) {
    Trainer fused = gpt2_trainer(*device_, tiny(4, true)), eager = gpt2_trainer(*device_, tiny(4, false));
    const SomeTokens batch(4 * 64);
    expect_trains_alike(fused, eager, batch, 4);
    EXPECT_NEAR(fused.evaluate({batch.tokens, batch.targets}).loss,
                eager.evaluate({batch.tokens, batch.targets}).loss, 2e-5);
}

}  // namespace
}  // namespace mantissa
