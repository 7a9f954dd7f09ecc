// Values that are computed again instead of kept: the same numbers, less memory.
#include "mantissa/passes/recompute.h"
#include "mantissa/graph/graph.h"

#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/nn/decoder/family.h"
#include "mantissa/passes/simplify.h"
#include "mantissa/train/trainer.h"
#include "mantissa/train/training_plan.h"
#include "tests/support/count_nodes.h"
#include "tests/support/gpt2_training.h"
#include "tests/support/passes.h"
#include "tests/support/random_draws.h"

namespace mantissa {
namespace {

using testing::count;

Gpt2Training tiny(const std::set<std::string>& what, const std::string& policy, bool fuse = false) {
    Gpt2Training options{.model = nn::gpt2_config("gpt2-tiny"), .batch = 2, .sequence = 64};
    options.model.dropout = 0.1;  // its masks must come out the same
    options.policy = find_policy(policy);
    options.recompute = what;
    options.passes = testing::plain_and({{"fuse", fuse}});
    return options;
}

std::vector<StepResult> steps(Trainer& trainer) {
    std::vector<std::int32_t> tokens(2 * 64), targets(tokens.size());
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        tokens[i] = static_cast<std::int32_t>(i * 37 % 509);
        targets[i] = static_cast<std::int32_t>(i * 53 % 499);
    }
    std::vector<StepResult> results;
    for (int step = 0; step < 3; ++step) results.push_back(trainer.step({tokens, targets}, 1e-3));
    return results;
}

TEST(Recompute, KeepsEveryBitOfAStepAndLessMemory) {
    const auto device = make_cpu_device({.threads = 2});
    for (const char* policy : testing::some_of<const char*>({"bf16", "fp32"}, 2)) {
        Trainer kept = gpt2_trainer(*device, tiny({}, policy));
        const auto expected = steps(kept);
        for (const std::string& what : recomputable()) {
            Trainer again = gpt2_trainer(*device, tiny({what}, policy));
            EXPECT_LT(again.plan().memory().arena, kept.plan().memory().arena) << what << ", " << policy;
            const auto found = steps(again);
            for (std::size_t i = 0; i < found.size(); ++i) {
                EXPECT_EQ(found[i].loss, expected[i].loss) << what << ", " << policy;
                EXPECT_EQ(found[i].gradient_norm, expected[i].gradient_norm) << what << ", " << policy;
            }
        }
    }
}

TEST(Recompute, NormsAreThoseOfLlamaToo) {
    const auto device = make_cpu_device({.threads = 2});
    std::vector<std::vector<StepResult>> found;
    std::vector<std::int64_t> arenas;
    for (const std::set<std::string>& what : {std::set<std::string>{}, {"norm"}, {"block"}}) {
        TrainerOptions options{.batch = 2};
        options.recompute = what;
        Trainer trainer(*device, nn::decoder_model(nn::decoder_config("llama-tiny"), 64), options);
        found.push_back(steps(trainer));
        arenas.push_back(trainer.plan().memory().arena);
    }
    for (const std::size_t changed : {1u, 2u}) {
        EXPECT_LT(arenas[changed], arenas[0]);
        for (std::size_t i = 0; i < found[0].size(); ++i)
            EXPECT_EQ(found[changed][i].loss, found[0][i].loss) << changed;
    }
}

/// Fused, sums go in another order; see Gpt2Kernels.TrainAsTheEagerStepDoes for the tolerance.
TEST(Recompute, FusesToo) {
    const auto device = make_cpu_device({.threads = 2});
    if (!device->target().cannot_compile.empty()) GTEST_SKIP() << device->target().cannot_compile;
    Trainer kept = gpt2_trainer(*device, tiny({}, "fp32", true));
    const auto expected = steps(kept);
    for (const std::string& what : recomputable()) {
        Trainer again = gpt2_trainer(*device, tiny({what}, "fp32", true));
        EXPECT_LE(again.plan().memory().arena, kept.plan().memory().arena) << what;
        const auto found = steps(again);
        for (std::size_t i = 0; i < found.size(); ++i) {
            EXPECT_NEAR(found[i].loss, expected[i].loss, 2e-5) << what;
            EXPECT_NEAR(found[i].gradient_norm, expected[i].gradient_norm,
                        1e-4 * static_cast<double>(expected[i].gradient_norm));
        }
    }
}

/// y = gelu(x w) v in a block, with the gradient of v computed from gelu's output.
Graph small_step() {
    Graph graph;
    const Type square{DType::f32, {8, 8}};
    const Tensor x(graph, graph.add_input("x", square)), w(graph, graph.add_input("w", square)),
        v(graph, graph.add_input("v", square)), dy(graph, graph.add_input("dy", square));
    Tensor hidden, y;
    {
        const OriginScope scope(graph, "h.0");
        hidden = gelu(matmul(x, w));
        y = matmul(hidden, v);
    }
    graph.add_result("y", y.value());
    Origin backward = graph.origin;
    backward.stage = Stage::backward;
    const OriginScope scope(graph, backward);
    graph.add_result("dv", matmul(hidden, dy, {.transpose_a = true}).value());
    return graph;
}

TEST(Recompute, StandsBeforeItsReaderAndSimplifyLeavesItThere) {
    const Graph graph = small_step();
    const Recomputation gelu = recompute(graph, {"gelu"});
    verify(gelu.graph, "recompute");
    EXPECT_EQ(gelu.nodes, 1);
    EXPECT_EQ(count(simplify(gelu.graph), "gelu"), 2);
    EXPECT_EQ(count(simplify(gelu.graph), "matmul"), 3);
    const Recomputation block = recompute(graph, {"block"});
    EXPECT_EQ(block.nodes, 2);  // what leaves the block is kept
    EXPECT_EQ(count(simplify(block.graph), "matmul"), 4);
    EXPECT_EQ(block.flops - gelu.flops, 2 * 8 * 8 * 8);
    EXPECT_EQ(recompute(graph, {}).nodes, 0);
}

TEST(Recompute, NamesWhatTheForwardPassLacks) {
    Graph graph;
    const Tensor x(graph, graph.add_input("x", {DType::f32, {4, 8}}));
    graph.add_result("y", gelu(x).value());
    const Recomputation again = recompute(graph, {"gelu", "norm", "block"});
    ASSERT_EQ(again.refused.size(), 2u);
    EXPECT_EQ(again.refused[0].text(), "block: the forward pass has none");
    EXPECT_EQ(again.refused[1].text(), "norm: the forward pass has none");
}

TEST(Recompute, RefusesWhatItDoesNotKnow) {
    try {
        recompute(small_step(), {"gelu", "everything"});
        FAIL();
    } catch (const UserError& error) {
        EXPECT_STREQ(error.what(), "'everything' cannot be recomputed; what can: gelu, norm, softmax, block");
    }
}

}  // namespace
}  // namespace mantissa
