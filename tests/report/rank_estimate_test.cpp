// The estimated time of a step on several ranks: by hand for a small one, and held to steps over slow links.
#include "mantissa/report/rank_estimate.h"
#include "mantissa/graph/graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/ranks/shard.h"
#include "mantissa/runtime/execution.h"
#include "mantissa/train/training_plan.h"
#include "tests/support/delayed_transport.h"
#include "tests/support/rank_threads.h"
#include "tests/train/rank_training.h"

namespace mantissa {
namespace {

using testing::options_of;
using testing::RankRun;
using testing::small_gpt2;

/// Two gradients of 4 MB, each summed as soon as it is made; then both are read.
Graph two_sums() {
    Graph graph;
    const Tensor x(graph, graph.add_input("x", {DType::f32, {1 << 20}}));
    const Tensor a = exp(x), b = sqrt(a);
    const std::vector<ReducedTerm> terms{{a, a.value().node}, {b, b.value().node}};
    const std::vector<Tensor> sums = all_reduced(graph, terms, {.ranks = 2, .bucket_bytes = 1});
    graph.add_result("sum", tanh(sums[0] + sums[1]).value());
    return distribute(graph);
}

TEST(RankEstimate, IsTheLongerOfLaunchesAndTheLinkBetweenAwaitedOnes) {
    Ranks ranks(silent_transport(2));
    const auto device = make_cpu_device({.threads = 1, .ranks = &ranks});
    const Plan plan(two_sums(), *device);
    std::vector<double> seconds;
    std::string order;
    for (const PlannedNode& planned : plan.nodes()) {
        const std::string_view op = plan.graph().node(planned.node).op->name;
        seconds.push_back(op == "exp" || op == "sqrt" ? 1 : op == "tanh" ? 0.5 : 0);
        order += std::string(op) + " ";
    }
    ASSERT_TRUE(order.starts_with("exp all_reduce_start sqrt all_reduce_start all_reduce_wait ")) << order;
    // 4 MB are two pieces, exchanged twice, of which each of two ranks sends half: in 1/16 s. The second
    // piece's terms travel in the latency of the first's, and its sums are the last to arrive.
    const double bytes = 4 << 20, latency = 0.1;
    const RankEstimate first_hidden =
        estimate_step(plan, seconds, 3, {.bytes_per_second = bytes / 0.25, .latency = latency});
    const double sum = 3 * 0.0625 + 2 * latency;
    EXPECT_NEAR(first_hidden.travelling, 2 * sum, 1e-12);
    EXPECT_NEAR(first_hidden.waiting, sum,
                1e-12);  // for the second: the first was there before sqrt was done
    EXPECT_NEAR(first_hidden.seconds, 3 + 1 + 1 + sum + 0.5, 1e-12);
    EXPECT_NEAR(first_hidden.hidden(), 0.5, 1e-12);
    // The second leaves when the first has left.
    const RankEstimate slow = estimate_step(plan, seconds, 0, {.bytes_per_second = bytes / 2, .latency = 0});
    EXPECT_DOUBLE_EQ(slow.seconds, 1 + 2 + 2 + 0.5);
    // Bytes are copied and added while others travel: the link waits for the first piece to be copied (1/4
    // s), and the end for the last one to be put back.
    const RankEstimate local = estimate_step(
        plan, seconds, 0, {.bytes_per_second = bytes / 2, .latency = 0, .local_bytes_per_second = 4 * bytes});
    EXPECT_DOUBLE_EQ(local.seconds, 1 + 0.25 + 2 + 2 + 0.25 + 0.5);
    // Whole, each sum is copied, travels, is added up, travels, and is put back, and the next one waits for
    // that.
    const RankEstimate whole = estimate_step(plan, seconds, 0,
                                             {.bytes_per_second = bytes / 2,
                                              .latency = 0,
                                              .local_bytes_per_second = 4 * bytes,
                                              .in_pieces = false});
    EXPECT_DOUBLE_EQ(whole.seconds, 1 + 2 * (0.5 + 1 + 0.375 + 1 + 0.5) + 0.5);
    // A core is busy a fourth of the time with what is sent and received. So sqrt, while the first sum
    // travels, takes 4/3 s on that core alone, and 8/7 s where two threads share the loss. The link ends when
    // it did.
    RankLink busy{
        .bytes_per_second = bytes / 2, .latency = 0, .core_seconds_per_byte = 0.25 / bytes, .threads = 1};
    EXPECT_NEAR(estimate_step(plan, seconds, 0, busy).waiting, slow.waiting - 1.0 / 3, 1e-12);
    EXPECT_NEAR(estimate_step(plan, seconds, 0, busy).seconds, slow.seconds, 1e-12);
    busy.threads = 2;
    EXPECT_NEAR(estimate_step(plan, seconds, 0, busy).waiting, slow.waiting - 1.0 / 7, 1e-12);
    // Beside a wide link only the part of sqrt beside it is slower: a core is always busy for the first 1/4
    // s.
    const RankLink wide{
        .bytes_per_second = 4 * bytes, .latency = 0, .core_seconds_per_byte = 0.1 / bytes, .threads = 1};
    EXPECT_NEAR(estimate_step(plan, seconds, 0, wide).seconds, 1 + 1 + 0.25 * 0.8 + 0.25 + 0.5, 1e-12);
}

/// Seconds of a step over a link: predicted from launches without one, and as it runs.
std::pair<double, double> predicted_and_measured(int count, const testing::Split& split, RankLink link) {
    double predicted = 0;
    {
        Ranks ranks(silent_transport(count));
        RankRun run(split, &ranks);
        run.step();
        const Plan& plan = run.trainer.plan().step();
        Profile profile;
        run.step(&profile);
        predicted = estimate_step(plan, profile, 0, link).seconds;
    }
    std::vector<std::unique_ptr<Transport>> transports = connected_ranks(count, 60);
    std::vector<double> measured(transports.size());
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < transports.size(); ++rank)
        threads.emplace_back([&, rank] {
            Ranks ranks(std::make_unique<testing::DelayedTransport>(std::move(transports[rank]), link.latency,
                                                                    link.bytes_per_second));
            RankRun run(split, &ranks);
            run.step();
            std::vector<double> seconds;
            for (int i = 0; i < 3; ++i) seconds.push_back(run.step().seconds);
            std::ranges::sort(seconds);
            measured[rank] = seconds[1];
            ranks.meet();
        });
    for (std::thread& thread : threads) thread.join();
    return {predicted, *std::ranges::max_element(measured)};
}

TEST(RankEstimate, IsWhatAStepOverASlowLinkTakes) {
    // So slow that the link is what takes time: what else this machine does meanwhile is small beside it.
    // Once its latency, once its bytes; with few exchanges and with many.
    for (const auto& [ranks, bucket, link] :
         {std::tuple{2, std::int64_t{40000}, RankLink{.bytes_per_second = 1e9, .latency = 0.02}},
          {2, std::int64_t{1} << 30, RankLink{.bytes_per_second = 1e9, .latency = 0.05}},
          {4, std::int64_t{40000}, RankLink{.bytes_per_second = 1e9, .latency = 0.02}},
          {2, std::int64_t{40000}, RankLink{.bytes_per_second = 1e6, .latency = 1e-3}},
          {4, std::int64_t{1} << 30, RankLink{.bytes_per_second = 1e6, .latency = 1e-3}}}) {
        const auto [predicted, measured] =
            predicted_and_measured(ranks, {.ranks = ranks, .bucket_bytes = bucket}, link);
        EXPECT_NEAR(measured / predicted, 1, 0.1)
            << ranks << " ranks, " << bucket << ", " << link.latency << ": " << predicted << " s predicted, "
            << measured << " measured";
    }
}

TEST(RankEstimate, TableNamesTheBest) {
    const RankEstimate slow{.seconds = 0.2, .travelling = 0.1, .waiting = 0.1};
    const RankEstimate better{.seconds = 0.1, .travelling = 0.1, .waiting = 0.025};
    const std::string table =
        rank_table({{"buckets of 4 MB", slow, 100}, {"buckets of 16 MB", better, 200}}, "tokens");
    EXPECT_NE(table.find("best: buckets of 16 MB\n"), std::string::npos) << table;
    EXPECT_NE(rank_table({{"a", slow, 100}, {"b", slow, 200.1}, {"c", slow, 200.2}}, "").find("best: b\n"),
              std::string::npos);
    EXPECT_NE(rank_table({{"a", slow, 200.1}, {"b", slow, 200.2}}, "tokens").find("\nall are as good\n"),
              std::string::npos);
    EXPECT_NE(table.find("75 %"), std::string::npos) << table;
    EXPECT_NE(table.find("tokens/s"), std::string::npos) << table;
}

}  // namespace
}  // namespace mantissa
