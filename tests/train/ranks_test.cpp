// Several ranks train to the bits of one process that makes all of their micro-steps.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <mutex>

#include "mantissa/base/file.h"
#include "mantissa/data/examples.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/nn/layers.h"
#include "mantissa/train/agreement.h"
#include "mantissa/train/training_checkpoint.h"
#include "tests/support/gpt2_training.h"
#include "tests/support/rank_threads.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

using testing::run_good_ranks;
using testing::run_ranks;
using testing::what_of;

constexpr std::int64_t length = 12;

nn::Model small_gpt2(double dropout) {
    return nn::gpt2_model({.name = "small",
                           .layers = 2,
                           .heads = 2,
                           .channels = 16,
                           .vocabulary = 61,
                           .context = length,
                           .dropout = dropout},
                          length);
}

/// How a step's micro-steps are shared, and what is trained.
struct Split {
    int ranks = 1;
    std::int64_t accumulate = 1;
    std::string policy = "fp32";
    double dropout = 0.1;
    LossScaleOptions loss_scale = {};
    std::int64_t steps = 5;
    std::filesystem::path resume = {}, save = {};
};

/// What every rank has after it, and the losses on the way.
struct Trained {
    std::vector<float> losses;
    std::vector<bool> applied;
    std::map<std::string, std::vector<std::byte>> states;
    friend bool operator==(const Trained&, const Trained&) = default;
};

TrainerOptions options_of(const Device& device, const Split& split, Ranks* ranks) {
    TrainerOptions options{.optimizer = clipped(adamw(), 0.3),
                           .batch = 2,
                           .accumulate = split.accumulate,
                           .loss_scale = split.loss_scale};
    const Policy policy = find_policy(split.policy);
    // Lets LLVM alone, which a sanitised or LLVM-less build lacks; the program's tests have all passes.
    options.pipeline = PipelineOptions{.policy = policy};
    std::vector<std::string> passes = runnable_passes(device.target(), policy);
    choose_passes(options.pipeline, passes);
    options.ranks = ranks;
    return options;
}

Trained train_as(const Split& split, Ranks* ranks) {
    const auto device = make_cpu_device({.threads = 1, .ranks = ranks});
    Trainer trainer(*device, small_gpt2(split.dropout), options_of(*device, split, ranks));
    const TrainerOptions& options = trainer.plan().options();
    std::vector<std::int32_t> tokens, targets;
    for (int i = 0; i < 40 * length; ++i) {
        tokens.push_back((i * i / 5 + 3 * i) % 61);
        targets.push_back((i * i / 3 + i) % 61);
    }
    const Examples examples(
        trainer.model(), {tokens, targets},
        {.batch = 2, .accumulate = options.micro_steps(), .order = BatchOrder::random, .seed = 3});
    BatchBuffer buffer(trainer.model(), 2, options.accumulate, options.first_micro_step());
    if (!split.resume.empty()) resume_training(split.resume, trainer);
    Trained trained;
    while (trainer.steps_done() < split.steps) {
        const StepResult result =
            trainer.step(buffer.fill(examples, static_cast<std::uint64_t>(trainer.steps_done())), 1e-2);
        trained.losses.push_back(result.loss);
        trained.applied.push_back(result.applied);
    }
    for (const State& state : trainer.state().states())
        if (state.kind != State::Kind::gradient)
            trained.states[state.name] = trainer.state().read(state.name);
    if (!split.save.empty() && options.first_micro_step() == 0) save_training(split.save, trainer);
    return trained;
}

/// What all ranks have, which is the same.
Trained train(const Split& split) {
    if (split.ranks == 1) return train_as(split, nullptr);
    std::vector<Trained> all(static_cast<std::size_t>(split.ranks));
    run_good_ranks(split.ranks, [&](Ranks& ranks) {
        all[static_cast<std::size_t>(ranks.rank())] = train_as(split, &ranks);
    });
    for (const Trained& each : all) EXPECT_TRUE(each == all[0]) << "ranks differ";
    return all[0];
}

void expect_same(const Trained& got, const Trained& expected, const std::string& what) {
    EXPECT_EQ(got.losses, expected.losses) << what;
    EXPECT_EQ(got.applied, expected.applied) << what;
    EXPECT_TRUE(got.states == expected.states) << what;
}

TEST(RanksTrain, ToTheSameBitsHoweverAStepIsSplit) {
    for (const std::string policy : {"fp32", "bf16"}) {
        const Trained alone = train({.accumulate = 4, .policy = policy});
        ASSERT_EQ(alone.losses.size(), 5u);
        for (const auto& [ranks, accumulate] : {std::pair{2, 2}, {4, 1}})
            expect_same(train({.ranks = ranks, .accumulate = accumulate, .policy = policy}), alone,
                        policy + " on " + std::to_string(ranks));
    }
}

TEST(RanksTrain, AnyNumberOfThemWhereEachMakesAPowerOfTwo) {
    expect_same(train({.ranks = 3}), train({.accumulate = 3}), "3 ranks");
    expect_same(train({.ranks = 3, .accumulate = 2}), train({.accumulate = 6}), "3 ranks of 2");
    // Three micro-steps of a rank are added up in another order than the first three of six: the comparison
    // would find it.
    EXPECT_FALSE(train({.ranks = 2, .accumulate = 3}) == train({.accumulate = 6}));
}

TEST(RanksTrain, SkipTheSameStepsAndLowerTheSameScale) {
    // Doubles its scale after every good step, so that FP16 overflows now and then.
    const LossScaleOptions scale{
        .kind = LossScaleOptions::Kind::dynamic, .initial = 0x1p17, .growth = 8, .interval = 1};
    Split split{.accumulate = 4, .policy = "fp16", .loss_scale = scale, .steps = 8};
    const Trained alone = train(split);
    // In the middle: a good one before it, and one after.
    const auto bad = std::find(alone.applied.begin() + 1, alone.applied.end(), false);
    ASSERT_NE(bad, alone.applied.end());
    ASSERT_NE(std::find(alone.applied.begin(), bad, true), bad);
    ASSERT_NE(std::find(bad, alone.applied.end(), true), alone.applied.end());
    for (const auto& [ranks, accumulate] : {std::pair{2, 2}, {4, 1}}) {
        split.ranks = ranks;
        split.accumulate = accumulate;
        expect_same(train(split), alone, std::to_string(ranks) + " ranks");
    }
}

TEST(RanksTrain, GoOnFromOneAnothersCheckpoints) {
    const TemporaryDirectory directory;
    const Trained whole = train({.accumulate = 4, .steps = 6});
    std::vector<std::string> files;
    for (const auto& [ranks, accumulate] : {std::pair{1, 4}, {2, 2}, {4, 1}}) {
        const std::filesystem::path saved = directory.path() / std::to_string(ranks);
        train({.ranks = ranks, .accumulate = accumulate, .steps = 3, .save = saved});
        std::string all;
        for (const char* name : {"state.json", "model.safetensors", "optimizer.safetensors"})
            all += read_file(saved / name);
        files.push_back(all);
    }
    EXPECT_TRUE(files[1] == files[0]);
    EXPECT_TRUE(files[2] == files[0]);
    for (const auto& [ranks, accumulate] : {std::pair{1, 4}, {2, 2}, {4, 1}}) {
        const Trained resumed =
            train({.ranks = ranks, .accumulate = accumulate, .steps = 6, .resume = directory.path() / "4"});
        EXPECT_TRUE(resumed.states == whole.states) << ranks;
        EXPECT_EQ(resumed.losses, std::vector<float>(whole.losses.begin() + 3, whole.losses.end()));
    }
}

TEST(RanksTrain, BeginSumsBeforeTheBackwardPassEnds) {
    run_good_ranks(2, [](Ranks& ranks) {
        const auto device = make_cpu_device({.threads = 1, .ranks = &ranks});
        TrainerOptions options = options_of(*device, {.accumulate = 2}, &ranks);
        options.pipeline.distribution.bucket_bytes = 1000;
        const TrainingPlan plan(*device, small_gpt2(0), options);
        std::int64_t first = -1, last = -1, backward = -1;
        std::size_t sums = 0;
        for (const PlannedNode& planned : plan.step().nodes()) {
            const Node& node = plan.step().graph().node(planned.node);
            if (node.op->name == "all_reduce_start") {
                if (first < 0) first = planned.node;
                last = planned.node;
                ++sums;
            } else if (node.op->name.ends_with("_grad") || node.op->name == "matmul") {
                backward = planned.node;
            }
        }
        EXPECT_GT(sums, 5u);
        EXPECT_LT(first, backward);
        EXPECT_GT(last, first);
        EXPECT_EQ(plan.memory().exchange, ranks.bytes());
        ranks.meet();
    });
}

TEST(RanksTrain, WhatDiffersIsRefusedByNameBeforeTheFirstStep) {
    const auto refusal = [](const std::function<void(TrainerOptions&)>& change) {
        const auto thrown = run_ranks(2, [&](Ranks& ranks) {
            const auto device = make_cpu_device({.threads = 1, .ranks = &ranks});
            TrainerOptions options = options_of(*device, {}, &ranks);
            if (ranks.rank() == 1) change(options);
            require_alike(ranks, facts_of({*device, small_gpt2(0), options}));
        });
        EXPECT_EQ(what_of(thrown[0]), what_of(thrown[1]));
        return what_of(thrown[0]);
    };
    EXPECT_EQ(refusal([](TrainerOptions&) {}), "");
    const std::string seed = refusal([](TrainerOptions& options) { options.seed = 5; });
    EXPECT_TRUE(seed.starts_with("ranks differ in seed: rank 1 on ")) << seed;
    EXPECT_NE(seed.find(" has 5, rank 0 on "), std::string::npos) << seed;
    EXPECT_TRUE(refusal([](TrainerOptions& options) {
                    options.pipeline.policy = find_policy("bf16");
                }).starts_with("ranks differ in policy: rank 1 on "));
    EXPECT_TRUE(refusal([](TrainerOptions& options) {
                    options.optimizer.clip = 2;
                }).starts_with("ranks differ in optimizer: rank 1 on "));
    EXPECT_TRUE(refusal([](TrainerOptions& options) {
                    options.pipeline.pad = !options.pipeline.pad;
                    options.pipeline.chunk_loss = !options.pipeline.chunk_loss;
                }).starts_with("ranks differ in plan of a step (checksum): rank 1 on "));
}

TEST(RanksTrain, AWrongByteInOnesParametersIsFoundAndNamed) {
    const auto thrown = run_ranks(3, [](Ranks& ranks) {
        const auto device = make_cpu_device({.threads = 1, .ranks = &ranks});
        Trainer trainer(*device, small_gpt2(0), options_of(*device, {}, &ranks));
        require_same_states(ranks, trainer.state(), 4);
        if (ranks.rank() == 2) {
            std::vector<std::byte> bytes = trainer.state().read("h.1.mlp.c_fc.weight");
            bytes[17] ^= std::byte{1};
            trainer.state().write("h.1.mlp.c_fc.weight", bytes);
        }
        require_same_states(ranks, trainer.state(), 9);
    });
    for (const std::exception_ptr& each : thrown) {
        EXPECT_TRUE(what_of(each).starts_with("after step 9 rank 2 on ")) << what_of(each);
        EXPECT_NE(what_of(each).find(" in h.1.mlp.c_fc.weight: "), std::string::npos) << what_of(each);
    }
}

TEST(RanksTrain, ABadStepIsLookedIntoByEachAlone) {
    // One rank's loss is infinite; the other, whose loss is not, looks too, and neither waits for the other.
    run_good_ranks(2, [](Ranks& ranks) {
        const auto device = make_cpu_device({.threads = 1, .ranks = &ranks});
        const nn::Model model{.name = "product",
                              .inputs = {{"x", DType::f32, {1}}},
                              .loss =
                                  [](Graph& graph, std::span<const Tensor> inputs, const nn::Mode&) {
                                      return sum(inputs[0] * nn::parameter(graph, "w", {1}, {}), {0, 1});
                                  },
                              .configuration = {}};
        Trainer trainer(*device, model, {.batch = 1, .ranks = &ranks});
        const std::vector<float> x{ranks.rank() == 1 ? INFINITY : 1.0f};
        EXPECT_FALSE(trainer.step({x}, 0.1).applied);
        EXPECT_EQ(trainer.first_non_finite({x}, 0.1).has_value(), ranks.rank() == 1);
        const std::vector<float> good{2.0f};
        EXPECT_TRUE(trainer.step({good}, 0.1).applied);
    });
}

TEST(RanksTrain, RunningStatisticsAreRefused) {
    const auto thrown = run_ranks(2, [](Ranks& ranks) {
        const auto device = make_cpu_device({.threads = 1, .ranks = &ranks});
        const nn::Model model{.name = "normed",
                              .inputs = {{"x", DType::f32, {4, 4, 3}}},
                              .loss =
                                  [](Graph& graph, std::span<const Tensor> inputs, const nn::Mode& mode) {
                                      const Tensor y = nn::batch_norm(graph, inputs[0], mode);
                                      return mean(y * y, {0, 1, 2, 3});
                                  },
                              .configuration = {}};
        TrainingPlan(*device, model, {.batch = 2, .ranks = &ranks});
    });
    EXPECT_TRUE(
        what_of(thrown[0]).starts_with("normed normalises by batches, and running statistics such as "))
        << what_of(thrown[0]);
}

}  // namespace
}  // namespace mantissa
