// Ranks on emulated GPUs, which exchange by the emulated NCCL: the bits of one GPU that makes all
// micro-batches, and of ranks on CPUs what is summed.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>

#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/tensor.h"
#include "mantissa/train/optimizer.h"
#include "mantissa/train/training_plan.h"
#include "tests/support/compiling_test.h"
#include "tests/support/random_draws.h"
#include "tests/support/run_graph.h"
#include "tests/support/temporary_directory.h"
#include "tests/train/rank_training.h"

namespace mantissa {
namespace {

using testing::device_of;
using testing::run_good_ranks;
using testing::run_ranks;
using testing::Split;
using testing::train;
using testing::Trained;

class CudaRanks : public testing::CompilingTest {};

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

/// The terms of every rank, as it records them.
using ResultsOfRanks = std::vector<std::vector<std::vector<std::byte>>>;

ResultsOfRanks results_of_ranks(
    int count, bool on_gpus, const std::function<std::vector<Tensor>(Graph&, std::vector<Tensor>)>& record) {
    ResultsOfRanks all(static_cast<std::size_t>(count));
    run_good_ranks(count, [&](Ranks& ranks) {
        Graph graph;
        std::vector<Tensor> terms;
        for (const auto& [name, values] : terms_of(0))
            terms.emplace_back(
                graph, graph.add_input(name, {DType::f32, {static_cast<std::int64_t>(values.size())}}));
        const std::vector<Tensor> results = record(graph, terms);
        for (std::size_t i = 0; i < results.size(); ++i)
            graph.add_result("result" + std::to_string(i), results[i].value());
        const auto device = device_of({.on_gpus = on_gpus}, &ranks);
        all[static_cast<std::size_t>(ranks.rank())] = testing::run(graph, terms_of(ranks.rank()), *device);
    });
    return all;
}

Attributes exchange_of(int count, std::int64_t number = 0) {
    return {{"ranks", std::int64_t{count}}, {"sum", number}};
}

/// Sums of a kind, over so many ranks.
ResultsOfRanks sums_of(const std::string& kind, int count, bool on_gpus, Wire wire = Wire::fp32) {
    return results_of_ranks(count, on_gpus, [&](Graph& graph, const std::vector<Tensor>& terms) {
        const Attributes exchange = exchange_of(count);
        return call(graph, kind + "_wait",
                    call(graph, kind + "_start", terms,
                         wire == Wire::bf16 ? exchange.with("wire", DType::bf16) : exchange),
                    exchange);
    });
}

TEST_F(CudaRanks, SumsHaveTheBitsOfRanksOnCpus) {
    for (const std::string kind : {"all_reduce", "reduce_scatter"})
        for (const int count : {2, 3, 4})
            EXPECT_TRUE(sums_of(kind, count, true) == sums_of(kind, count, false)) << kind << " of " << count;
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

/// Five ranks add sums to what came as it is; four do not.
TEST_F(CudaRanks, TermsInBf16HaveTheBitsOfRanksOnCpus) {
    for (const std::string kind : {"all_reduce", "reduce_scatter"})
        for (const int count : {2, 4, 5}) {
            const ResultsOfRanks sums = sums_of(kind, count, true, Wire::bf16);
            EXPECT_TRUE(sums == sums_of(kind, count, false, Wire::bf16)) << kind << " of " << count;
            EXPECT_FALSE(sums == sums_of(kind, count, true)) << "terms are rounded";
        }
}

TEST_F(CudaRanks, PartsAndWhatIsPutTogetherHaveTheBitsOfRanksOnCpus) {
    for (const int count : {2, 3}) {
        const auto record = [&](Graph& graph, const std::vector<Tensor>& terms) {
            const Tensor part = call1("own_shard", {terms[2]}, {{"ranks", std::int64_t{count}}});
            const std::vector<std::int64_t> shapes{1, 5003, 1, 5003};
            const std::vector<Tensor> begun =
                call(graph, "all_gather_start", std::vector{part, cast(part, DType::bf16)},
                     exchange_of(count).with("shapes", shapes));
            const std::vector<Tensor> rows =
                call(graph, "all_gather_rows_start", terms, exchange_of(count, 1));
            std::vector<Tensor> all = call(graph, "all_gather_wait", begun, exchange_of(count));
            for (const Tensor& each : call(graph, "all_gather_wait", rows, exchange_of(count, 1)))
                all.push_back(each);
            all.push_back(part);
            return all;
        };
        const ResultsOfRanks on_gpus = results_of_ranks(count, true, record);
        EXPECT_TRUE(on_gpus == results_of_ranks(count, false, record)) << count;
        EXPECT_EQ(on_gpus[0][3].size(), static_cast<std::size_t>(count) * 7 * sizeof(float));
        EXPECT_TRUE(on_gpus[0][3] == on_gpus[1][3]) << "all have the rows of all";
        EXPECT_FALSE(on_gpus[0][5] == on_gpus[1][5]) << "parts are others";
    }
}

/// [large, cut, cut, small]: of which ranks have parts, but of the last.
std::vector<std::vector<double>> gradients() {
    std::vector<std::vector<double>> all;
    for (const int count : {40000, 3072, 5000, 17}) {
        std::vector<double>& values = all.emplace_back();
        for (int i = 0; i < count; ++i)
            values.push_back(static_cast<float>(std::sin(1.7 * i + count) * std::pow(10, i % 5)));
    }
    return all;
}

/// The norm that a rank makes of them, or one GPU.
std::vector<std::vector<std::byte>> norm_of(Ranks* ranks, const std::vector<std::vector<double>>& values) {
    Graph graph;
    ReferenceFeed feed;
    std::vector<Tensor> parts;
    std::vector<std::int64_t> cut;
    for (std::size_t i = 0; i < values.size(); ++i) {
        const std::string name = "g" + std::to_string(i);
        const auto elements = static_cast<std::int64_t>(values[i].size());
        feed[name] = values[i];
        const Tensor whole(graph, graph.add_input(name, {DType::f32, {elements}}));
        cut.push_back(elements > 1000 ? elements : 0);
        parts.push_back(ranks && cut.back() > 0
                            ? call1("own_shard", {whole}, {{"ranks", std::int64_t{ranks->size()}}})
                            : whole);
    }
    const std::vector<Tensor> norm = ranks ? call(graph, "norm_of_parts", parts,
                                                  {{"ranks", std::int64_t{ranks->size()}}, {"elements", cut}})
                                           : call(graph, "global_norm", parts);
    graph.add_result("norm", norm[0].value());
    graph.add_result("finite", norm[1].value());
    return testing::run(graph, feed, *device_of({.on_gpus = true}, ranks));
}

TEST_F(CudaRanks, ANormOfPartsHasTheBitsOfOneGpu) {
    std::vector<std::vector<double>> values = gradients();
    const auto alone = norm_of(nullptr, values);
    const auto expect_same = [&](int count, const std::vector<std::vector<std::byte>>& expected) {
        run_good_ranks(count, [&](Ranks& ranks) {
            EXPECT_TRUE(norm_of(&ranks, values) == expected) << ranks.rank() << " of " << count;
        });
    };
    for (const int count : {2, 3, 4}) expect_same(count, alone);
    // An element in the last rank's part alone makes it another, on every rank.
    values[2].back() = 1e30;
    const auto larger = norm_of(nullptr, values);
    EXPECT_FALSE(larger[0] == alone[0]);
    expect_same(2, larger);
    values[2].back() = std::numeric_limits<double>::infinity();
    const auto infinite = norm_of(nullptr, values);
    EXPECT_FALSE(infinite[1] == alone[1]);
    expect_same(2, infinite);
}

TEST_F(CudaRanks, TrainToTheSameBitsHoweverAStepIsSplitAndWhoeverHoldsTheStates) {
    for (const std::string policy : {"fp32", "bf16", "fp8"}) {
        Split split{.accumulate = 2, .policy = policy, .steps = 2, .on_gpus = true};
        // Rows are a multiple of 16, so that products are of FP8.
        if (policy == "fp8") split.architecture = "sm_90", split.batch = 4;
        const Trained alone = train(split);
        split.ranks = 2;
        split.accumulate = 1;
        for (const States states :
             testing::some_of<States>({States::sharded, States::whole}, policy == "fp32" ? 2 : 1)) {
            split.states = states;
            const Trained two = train(split);
            const std::string what = policy + (states == States::whole ? " whole" : " sharded");
            EXPECT_EQ(two.losses, alone.losses) << what;
            EXPECT_TRUE(two.states == alone.states) << what;
            EXPECT_NE(two.losses[1], two.losses[0]);
        }
    }
}

TEST_F(CudaRanks, TrainMuonAndItsMatricesAreWhole) {
    Split split{.accumulate = 2, .steps = 2, .optimizer = muon(), .on_gpus = true};
    const Trained alone = train(split);
    split.ranks = 2;
    split.accumulate = 1;
    EXPECT_TRUE(train(split) == alone);
}

TEST_F(CudaRanks, HoldAPartOfTheStates) {
    run_good_ranks(2, [](Ranks& ranks) {
        const auto bytes_of = [&](States states) {
            const Split split{.ranks = 2, .states = states, .on_gpus = true};
            const auto device = device_of(split, &ranks);
            return TrainingPlan(*device, testing::small_gpt2(0), testing::options_of(*device, split, &ranks))
                .memory()
                .state;
        };
        EXPECT_LT(bytes_of(States::sharded), bytes_of(States::whole) * 3 / 4);
        ranks.meet();
    });
}

TEST_F(CudaRanks, GoOnFromOneAnothersCheckpoints) {
    const TemporaryDirectory directory;
    const std::filesystem::path saved = directory / "two";
    const Split alone{.accumulate = 2, .steps = 4, .on_gpus = true};
    const Trained whole = train(alone);
    Split split = alone;
    split.ranks = 2;
    split.accumulate = 1;
    split.steps = 2;
    split.save = saved;
    train(split);
    EXPECT_TRUE(std::filesystem::exists(saved / "optimizer.1.safetensors")) << "a file a rank";
    const std::vector<float> rest(whole.losses.begin() + 2, whole.losses.end());
    for (const int ranks : {1, 2}) {
        Split resumed = ranks == 1 ? alone : split;
        resumed.steps = 4;
        resumed.resume = saved;
        resumed.save.clear();
        const Trained trained = train(resumed);
        EXPECT_EQ(trained.losses, rest) << ranks;
        EXPECT_TRUE(trained.states == whole.states) << ranks;
    }
    // On the CPU, whose kernels round otherwise.
    Split on_cpu = alone;
    on_cpu.on_gpus = false;
    on_cpu.resume = saved;
    const Trained trained = train(on_cpu);
    ASSERT_EQ(trained.losses.size(), 2u);
    for (std::size_t step = 0; step < 2; ++step) EXPECT_NEAR(trained.losses[step], rest[step], 2e-4);
}

TEST_F(CudaRanks, TrainInBf16OnTheWireWhoeverHoldsTheStates) {
    const Trained exact = train({.accumulate = 2, .steps = 2, .on_gpus = true});
    Split split{.ranks = 2, .steps = 2, .wire = Wire::bf16, .on_gpus = true};
    const Trained sharded = train(split);
    split.states = States::whole;
    EXPECT_TRUE(train(split) == sharded);
    EXPECT_EQ(sharded.losses[0], exact.losses[0]) << "the loss travels as it is";
    EXPECT_FALSE(sharded.states == exact.states);
}

/// The numbers of the CPU's ranks, but for what their kernels round otherwise.
TEST_F(CudaRanks, TrainAsRanksOnCpusDo) {
    Split split{.ranks = 2, .accumulate = 1, .steps = 3};
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
            testing::RankRun run({.ranks = 2, .accumulate = 1, .on_gpus = true}, &ranks);
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
