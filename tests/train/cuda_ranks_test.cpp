// Ranks on emulated GPUs, which exchange by the emulated NCCL: the bits of one GPU that makes all
// micro-steps, and of ranks on CPUs what is summed.
#include <gtest/gtest.h>

#include <cstring>

#include "mantissa/codegen/compiler.h"
#include "mantissa/graph/tensor.h"
#include "tests/support/run_graph.h"
#include "tests/train/rank_training.h"

namespace mantissa {
namespace {

using testing::device_of;
using testing::run_good_ranks;
using testing::run_ranks;
using testing::Split;
using testing::train;
using testing::Trained;

class CudaRanks : public ::testing::Test {
  protected:
    void SetUp() override {
        if (std::string reason = codegen::Compiler::refusal(); !reason.empty()) GTEST_SKIP() << reason;
    }
};

/// Terms of unlike sizes, of which no sum is the same in another order.
ReferenceFeed terms_of(int rank) {
    ReferenceFeed feed;
    for (const auto& [name, count] : {std::pair{"a", 1}, {"b", 7}, {"c", 5003}}) {
        std::vector<double>& values = feed[name];
        for (int i = 0; i < count; ++i)
            values.push_back(static_cast<float>(std::sin(1.7 * i + 3 * rank) * std::pow(10, (i + rank) % 5)));
    }
    return feed;
}

/// What every rank has of the sums.
std::vector<std::vector<std::vector<std::byte>>> sums_of(int count, bool on_gpus) {
    std::vector<std::vector<std::vector<std::byte>>> all(static_cast<std::size_t>(count));
    run_good_ranks(count, [&](Ranks& ranks) {
        Graph graph;
        std::vector<Tensor> terms;
        for (const auto& [name, values] : terms_of(0))
            terms.emplace_back(
                graph, graph.add_input(name, {DType::f32, {static_cast<std::int64_t>(values.size())}}));
        const Attributes exchange{{"ranks", std::int64_t{count}}, {"sum", std::int64_t{0}}};
        const std::vector<Tensor> sums =
            call(graph, "all_reduce_wait", call(graph, "all_reduce_start", terms, exchange), exchange);
        for (std::size_t i = 0; i < sums.size(); ++i)
            graph.add_result("sum" + std::to_string(i), sums[i].value());
        const auto device = device_of({.on_gpus = on_gpus}, &ranks);
        all[static_cast<std::size_t>(ranks.rank())] = testing::run(graph, terms_of(ranks.rank()), *device);
    });
    return all;
}

TEST_F(CudaRanks, SumsHaveTheBitsOfRanksOnCpus) {
    for (const int count : {2, 3, 4}) {
        const auto on_cpus = sums_of(count, false), on_gpus = sums_of(count, true);
        for (std::size_t rank = 0; rank < on_gpus.size(); ++rank)
            EXPECT_TRUE(on_gpus[rank] == on_cpus[0]) << "rank " << rank << " of " << count;
    }
    // The comparison bites: added up in the order of ranks, many sums of four are others.
    std::vector<std::vector<double>> terms;
    for (int rank = 0; rank < 4; ++rank) terms.push_back(terms_of(rank)["c"]);
    int others = 0;
    for (std::size_t i = 0; i < terms[0].size(); ++i) {
        const auto term = [&](std::size_t rank) { return static_cast<float>(terms[rank][i]); };
        const float in_order = ((term(0) + term(1)) + term(2)) + term(3);
        others += in_order != (term(0) + term(1)) + (term(2) + term(3)) ? 1 : 0;
    }
    EXPECT_GT(others, 100);
}

TEST_F(CudaRanks, TrainToTheSameBitsHoweverAStepIsSplit) {
    for (const std::string policy : {"fp32", "bf16"}) {
        Split split{.accumulate = 2, .policy = policy, .steps = 3, .states = States::whole, .on_gpus = true};
        const Trained alone = train(split);
        split.ranks = 2;
        split.accumulate = 1;
        const Trained two = train(split);
        EXPECT_EQ(two.losses, alone.losses) << policy;
        EXPECT_TRUE(two.states == alone.states) << policy;
        EXPECT_NE(two.losses[2], two.losses[0]);
    }
}

/// The numbers of the CPU's ranks, but for what their kernels round otherwise.
TEST_F(CudaRanks, TrainAsRanksOnCpusDo) {
    Split split{.ranks = 2, .accumulate = 1, .steps = 3, .states = States::whole};
    const Trained on_cpus = train(split);
    split.on_gpus = true;
    const Trained on_gpus = train(split);
    for (std::size_t step = 0; step < 3; ++step)
        EXPECT_NEAR(on_gpus.losses[step], on_cpus.losses[step], 2e-4);
}

/// The first to find out says so; nobody waits for ever.
TEST_F(CudaRanks, ARankThatIsGoneEndsTheOthers) {
    const auto thrown = run_ranks(
        2,
        [](Ranks& ranks) {
            testing::RankRun run({.ranks = 2, .accumulate = 1, .states = States::whole, .on_gpus = true},
                                 &ranks);
            run.step();
            if (ranks.rank() == 1) return;
            run.step();
        },
        5);
    EXPECT_EQ(testing::what_of(thrown[1]), "");
    EXPECT_NE(testing::what_of(thrown[0]).find("NCCL: rank 1: it has ended"), std::string::npos)
        << testing::what_of(thrown[0]);
}

}  // namespace
}  // namespace mantissa
