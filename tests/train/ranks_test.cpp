// Several ranks train to the bits of one process that makes all of their micro-batches.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <mutex>

#include "mantissa/base/file.h"
#include "mantissa/device/cpu/cpu_target.h"
#include "mantissa/graph/graph.h"
#include "mantissa/nn/layers.h"
#include "mantissa/runtime/non_finite.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/agreement.h"
#include "mantissa/train/checkpoint.h"
#include "mantissa/train/optimizer.h"
#include "mantissa/train/state_tensors.h"
#include "mantissa/train/training_plan.h"
#include "tests/support/error_of.h"
#include "tests/support/random_draws.h"
#include "tests/support/temporary_directory.h"
#include "tests/train/rank_training.h"

namespace mantissa {
namespace {

using testing::options_of;
using testing::run_good_ranks;
using testing::run_ranks;
using testing::small_gpt2;
using testing::Split;
using testing::train;
using testing::Trained;
using testing::what_of;

void expect_same_training(const Trained& got, const Trained& expected, const std::string& what) {
    EXPECT_EQ(got.losses, expected.losses) << what;
    EXPECT_EQ(got.applied, expected.applied) << what;
    EXPECT_TRUE(got.states == expected.states) << what;
}

TEST(RanksTrain, ToTheSameBitsHoweverAStepIsSplit) {
    // Delayed scales travel among ranks.
    const std::vector<std::string> policies{"fp32", "nvfp4", "mxfp8", "fp8-delayed", "bf16", "fp8"};
    for (const std::string& policy : testing::some_of(policies, 3)) {
        const Trained alone = train({.accumulate = 4, .policy = policy});
        ASSERT_EQ(alone.losses.size(), 5u);
        for (const auto& [ranks, accumulate] : {std::pair{2, 2}, {4, 1}})
            expect_same_training(train({.ranks = ranks, .accumulate = accumulate, .policy = policy}), alone,
                                 policy + " on " + std::to_string(ranks));
    }
}

TEST(RanksTrain, ToTheSameBitsWhoeverHoldsTheStates) {
    for (const Optimizer& optimizer : {adamw(), sgd({.momentum = 0.9}), muon()}) {
        // More ranks than two add nothing of a kind of state.
        const int ranks = optimizer.name == "adamw" || testing::sweeps_are_whole() ? 4 : 2;
        const Trained alone = train({.accumulate = ranks, .steps = 3, .optimizer = optimizer});
        for (const States states : {States::whole, States::sharded})
            expect_same_training(
                train({.ranks = ranks, .steps = 3, .states = states, .optimizer = optimizer}), alone,
                optimizer.name + (states == States::whole ? " whole" : " sharded"));
    }
}

TEST(RanksTrain, AnyNumberOfThemWhereEachMakesAPowerOfTwo) {
    expect_same_training(train({.ranks = 3}), train({.accumulate = 3}), "3 ranks");
    expect_same_training(train({.ranks = 3, .accumulate = 2}), train({.accumulate = 6}), "3 ranks of 2");
    // Three micro-batches of a rank are added up in another order than the first three of six: the comparison
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
        expect_same_training(train(split), alone, std::to_string(ranks) + " ranks");
    }
}

TEST(RanksTrain, GoOnFromOneAnothersCheckpoints) {
    const TemporaryDirectory directory;
    const Trained whole = train({.accumulate = 4, .steps = 4});
    std::vector<std::string> files;
    for (const auto& [ranks, accumulate] : {std::pair{1, 4}, {2, 2}, {4, 1}}) {
        const std::filesystem::path saved = directory.path() / std::to_string(ranks);
        train({.ranks = ranks, .accumulate = accumulate, .steps = 2, .save = saved});
        files.push_back(read_file(saved / "state.json") + read_file(saved / "model.safetensors"));
        // A file a rank, of what it has.
        for (int rank = 1; rank <= 4; ++rank)
            EXPECT_EQ(std::filesystem::exists(saved / ("optimizer." + std::to_string(rank) + ".safetensors")),
                      rank < ranks);
    }
    EXPECT_TRUE(files[1] == files[0]);
    EXPECT_TRUE(files[2] == files[0]);
    // As many as are, fewer, more.
    for (const auto& [from, ranks] : {std::pair{2, 2}, {4, 2}, {1, 2}, {2, 4}}) {
        const Trained resumed = train({.ranks = ranks,
                                       .accumulate = 4 / ranks,
                                       .steps = 4,
                                       .resume = directory.path() / std::to_string(from),
                                       .save = directory.path() / "again"});
        EXPECT_TRUE(resumed.states == whole.states) << from << " on " << ranks;
        EXPECT_EQ(resumed.losses, std::vector<float>(whole.losses.begin() + 2, whole.losses.end()));
    }
    // The last of these was saved by four, after some of two, after one of one: all of it is there.
    const Trained alone = train({.accumulate = 4, .steps = 4, .resume = directory.path() / "again"});
    EXPECT_TRUE(alone.states == whole.states);
}

TEST(RanksTrain, ASaveThatOneCannotMakeLeavesWhatWasThere) {
    const TemporaryDirectory directory;
    const std::filesystem::path place = directory / "run";
    const auto thrown = run_ranks(2, [&](Ranks& ranks) {
        const auto device = make_cpu_device({.threads = 1, .ranks = &ranks});
        Trainer trainer(*device, small_gpt2(0), options_of(*device, {}, &ranks));
        save_training(place, trainer);
        // The second sees another disk.
        save_training(ranks.rank() == 0 ? place : directory / "elsewhere" / "run", trainer);
    });
    for (const std::exception_ptr& each : thrown) {
        EXPECT_TRUE(what_of(each).starts_with("rank 1 on ")) << what_of(each);
        EXPECT_NE(what_of(each).find("elsewhere"), std::string::npos) << what_of(each);
    }
    EXPECT_EQ(load_checkpoint(place).warning, "");
    EXPECT_FALSE(std::filesystem::exists(place.string() + ".previous"));
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 1);
}

TEST(RanksTrain, APartThatIsMissingIsNamed) {
    const TemporaryDirectory directory;
    const std::filesystem::path place = directory / "run";
    train({.ranks = 2, .accumulate = 2, .steps = 1, .save = place});
    std::filesystem::remove(place / "optimizer.1.safetensors");
    EXPECT_THROW(train({.accumulate = 4, .steps = 2, .resume = place}), UserError);
    // As where a manifest was made without it.
    const LoadedCheckpoint whole = [&] {
        train({.ranks = 2, .accumulate = 2, .steps = 1, .save = place});
        return load_checkpoint(place);
    }();
    const SafetensorsFile* const first = &*whole.optimizer;
    const SavedStates half({&first, 1});
    const TensorSpec state{"adamw.m.h.0.mlp.c_fc.weight", DType::f32, {256, 64}};
    const auto refusal = [&](const SavedStates& saved) {
        return testing::error_of([&] { saved.require(state); });
    };
    EXPECT_NE(refusal(half).find("tensor 'adamw.m.h.0.mlp.c_fc.weight' is missing or is not f32[256, 64]"),
              std::string::npos);
    const std::vector<const SafetensorsFile*> both{first, &whole.optimizer_of_ranks.at(0)};
    EXPECT_EQ(refusal(SavedStates(both)), "no error");
    const std::vector<const SafetensorsFile*> twice{first, first, both[1]};
    EXPECT_NE(refusal(SavedStates(twice)), "no error");
}

TEST(RanksTrain, HoldAPartOfTheStates) {
    const auto bytes_of = [](const TrainingPlan& plan) {
        std::int64_t bytes = 0;
        for (const State& state : plan.step().graph().states())
            if (state.kind == State::Kind::optimizer) bytes += state.type.bytes();
        return bytes;
    };
    const auto device = make_cpu_device({.threads = 1});
    const TrainingPlan alone(*device, small_gpt2(0), options_of(*device, {}, nullptr));
    run_good_ranks(4, [&](Ranks& ranks) {
        const auto own = make_cpu_device({.threads = 1, .ranks = &ranks});
        const TrainingPlan sharded(*own, small_gpt2(0), options_of(*own, {}, &ranks));
        const TrainingPlan whole(*own, small_gpt2(0), options_of(*own, {.states = States::whole}, &ranks));
        EXPECT_EQ(bytes_of(whole), bytes_of(alone));
        // Matrices are nearly all of it; tables of 61 and 12 rows, and what is no matrix, are not cut in
        // four.
        std::int64_t cut = 0;
        for (const State& state : alone.step().graph().states())
            if (state.kind == State::Kind::optimizer && state.type.shape.elements() >= 4096)
                cut += state.type.bytes();
        EXPECT_EQ(bytes_of(sharded), bytes_of(alone) - cut + cut / 4);
        EXPECT_LT(bytes_of(sharded), bytes_of(alone) / 2);
        EXPECT_EQ(whole.memory().state - sharded.memory().state, cut - cut / 4);
        ranks.meet();
    });
}

TEST(RanksTrain, BeginSumsBeforeTheBackwardPassEnds) {
    run_good_ranks(2, [](Ranks& ranks) {
        const auto device = make_cpu_device({.threads = 1, .ranks = &ranks});
        TrainerOptions options = options_of(*device, {.accumulate = 2}, &ranks);
        const TrainingPlan plan(*device, small_gpt2(0), options);
        std::int64_t first = -1, last = -1, backward = -1;
        std::size_t sums = 0;
        for (const PlannedNode& planned : plan.step().nodes()) {
            const Node& node = plan.step().graph().node(planned.node);
            if (node.op->name == "reduce_scatter_start") {
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

TEST(RanksTrain, HoldPartsOfParametersOfWhichCopiesAloneAreRead) {
    run_good_ranks(4, [](Ranks& ranks) {
        const auto device = make_cpu_device({.threads = 1, .ranks = &ranks});
        const TrainingPlan plan(*device, small_gpt2(0), options_of(*device, {.policy = "bf16"}, &ranks));
        const auto state_of = [&](const char* name) {
            const Graph& graph = plan.step().graph();
            return graph.states()[static_cast<std::size_t>(graph.find_state(name))];
        };
        EXPECT_EQ(state_of("h.0.mlp.c_fc.weight").type, (Type{DType::f32, {4096}}));
        EXPECT_EQ(state_of("h.0.mlp.c_fc.weight").shard_of, (Shape{256, 64}));
        EXPECT_EQ(state_of("bf16.h.0.mlp.c_fc.weight").type, (Type{DType::bf16, {256, 64}}));
        EXPECT_FALSE(state_of("h.0.mlp.c_fc.bias").shard_of);  // is read in FP32
        // The copies that travel back are those that are read.
        std::set<DType> formats;
        for (const PlannedNode& planned : plan.step().nodes()) {
            const Node& node = plan.step().graph().node(planned.node);
            if (node.op->name == "all_gather_start")
                for (const Type& type : node.outputs) formats.insert(type.dtype);
        }
        EXPECT_EQ(formats, std::set{DType::bf16});
        const TrainingPlan whole(*device, small_gpt2(0),
                                 options_of(*device, {.policy = "bf16", .states = States::whole}, &ranks));
        EXPECT_LT(plan.memory().state, whole.memory().state * 45 / 100);
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
                    options.policy = find_policy("bf16");
                }).starts_with("ranks differ in policy: rank 1 on "));
    EXPECT_TRUE(refusal([](TrainerOptions& options) {
                    options.wire = Wire::bf16;
                }).starts_with("ranks differ in gradients on the wire: rank 1 on "));
    EXPECT_TRUE(refusal([](TrainerOptions& options) {
                    options.optimizer.clip = 2;
                }).starts_with("ranks differ in optimizer: rank 1 on "));
    EXPECT_TRUE(refusal([](TrainerOptions& options) {
                    std::erase(*options.passes, "pad");
                    std::erase(*options.passes, "fuse_linear_cross_entropy");
                }).starts_with("ranks differ in plan of a step (checksum): rank 1 on "));
}

TEST(RanksTrain, AllRunOnTheUnitThatRankZeroChose) {
    using on_cpu::Isa;
    const auto thrown = run_ranks(2, [](Ranks& ranks) {
        const Isa mine = ranks.rank() == 0 ? Isa::generic : on_cpu::best_isa();
        EXPECT_EQ(on_cpu::level_of_all(mine, &ranks), Isa::generic);
        // Where rank 0's level is beyond this CPU, it keeps its own.
        const Isa beyond = ranks.rank() == 0 ? Isa::amx : Isa::generic;
        if (on_cpu::best_isa() < Isa::amx) {
            EXPECT_EQ(on_cpu::level_of_all(beyond, &ranks), beyond == Isa::amx ? Isa::amx : Isa::generic);
        }
    });
    for (const auto& each : thrown) EXPECT_EQ(what_of(each), "");
    EXPECT_EQ(on_cpu::level_of_all(Isa::avx2, nullptr), Isa::avx2);
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
        require_same_states(ranks, trainer.state(), 0);  // looking changed nothing
        EXPECT_TRUE(trainer.step({good}, 0.1).applied);
    });
}

}  // namespace
}  // namespace mantissa
