// What a step on several ranks is said to take: by hand for a small one, and held to steps over slow links.
#include "mantissa/report/rank_estimate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/ranks/part.h"
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
    // 4 MB are a piece, exchanged twice; of two ranks each sends half of it each time.
    const double bytes = 4 << 20;
    const RankEstimate first_hidden =
        estimate_step(plan, seconds, 3, {.bytes_per_second = bytes / 0.25, .latency = 0.1});
    EXPECT_DOUBLE_EQ(first_hidden.travelling, 2 * (0.25 + 0.2));
    EXPECT_DOUBLE_EQ(first_hidden.waiting, 0.45);  // for the second: the first was there before sqrt was done
    EXPECT_DOUBLE_EQ(first_hidden.seconds, 3 + 1 + 1 + 0.45 + 0.5);
    EXPECT_DOUBLE_EQ(first_hidden.hidden(), 0.5);
    // The second leaves when the first has arrived.
    const RankEstimate slow = estimate_step(plan, seconds, 0, {.bytes_per_second = bytes / 2, .latency = 0});
    EXPECT_DOUBLE_EQ(slow.seconds, 1 + 2 + 2 + 0.5);
    // Bytes that are moved here, four times, take their time, too.
    const RankEstimate local = estimate_step(
        plan, seconds, 0, {.bytes_per_second = bytes / 2, .latency = 0, .local_bytes_per_second = 4 * bytes});
    EXPECT_DOUBLE_EQ(local.seconds, 1 + 3 + 3 + 0.5);
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
    EXPECT_NE(table.find("75 %"), std::string::npos) << table;
    EXPECT_NE(table.find("tokens/s"), std::string::npos) << table;
}

}  // namespace
}  // namespace mantissa
