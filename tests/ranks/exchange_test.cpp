// Pieces of sums and gathers travel while others are added up: how many, in which order, within which memory,
// and what is left where one is lost.
#include "mantissa/ranks/exchange.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "mantissa/base/clock.h"
#include "mantissa/base/random.h"
#include "tests/support/delayed_transport.h"
#include "tests/support/rank_threads.h"

namespace mantissa {
namespace {

using testing::what_of;

/// The questions to a transport, and what was under way meanwhile.
struct Seen {
    int under_way = 0, most = 0;
    int finished = 0, alone = 0;      ///< exchanges; those behind which no other was under way
    int looks = 0;                    ///< at what travels, while something else was done
    std::vector<std::size_t> starts;  ///< bytes that each exchange sends
};

/// Another transport's exchanges, counted; one of them may find a rank lost.
class CountingTransport final : public Transport {
  public:
    CountingTransport(std::unique_ptr<Transport> under, Seen& seen, int lost_behind = -1)
        : Transport(60), under_(std::move(under)), seen_(seen), lost_behind_(lost_behind) {}

    int rank() const override { return under_->rank(); }
    int ranks() const override { return under_->ranks(); }
    void start(std::span<const std::span<const std::byte>> send,
               std::span<const std::span<std::byte>> receive) override {
        seen_.most = std::max(seen_.most, ++seen_.under_way);
        std::size_t bytes = 0;
        for (const auto& each : send) bytes += each.size();
        seen_.starts.push_back(bytes);
        under_->start(send, receive);
    }
    void advance() override {
        if (seen_.under_way > 0) ++seen_.looks;
        under_->advance();
    }
    int finish_oldest() override {
        if (seen_.finished == lost_behind_) throw LostRank(1, "it was cut off");
        const int late = under_->finish_oldest();
        if (late >= 0) return late;
        ++seen_.finished;
        if (--seen_.under_way == 0) ++seen_.alone;
        return late;
    }
    void abort() noexcept override { under_->abort(); }

  private:
    std::unique_ptr<Transport> under_;
    Seen& seen_;
    int lost_behind_;
};

constexpr std::int64_t piece_numbers = Exchange::piece_bytes / 4;

/// Runs `body` for each of so many ranks on transports that count. Returns what each threw.
std::vector<std::exception_ptr> run_counted(int count, std::vector<Seen>& seen, int lost_behind,
                                            const std::function<void(Ranks&)>& body) {
    std::vector<std::unique_ptr<Transport>> transports = connected_ranks(count, 60);
    std::vector<std::exception_ptr> thrown(transports.size());
    seen.resize(transports.size());
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < transports.size(); ++rank)
        threads.emplace_back([&, rank] {
            try {
                Ranks ranks(std::make_unique<CountingTransport>(std::move(transports[rank]), seen[rank],
                                                                rank == 0 ? lost_behind : -1));
                body(ranks);
            } catch (...) {
                thrown[rank] = std::current_exception();
            }
        });
    for (std::thread& thread : threads) thread.join();
    return thrown;
}

/// Two halves of as many pieces, one a rank.
std::vector<std::vector<std::span<float>>> halves(std::span<float> numbers) {
    return {{numbers.first(numbers.size() / 2)}, {numbers.subspan(numbers.size() / 2)}};
}

TEST(Exchange, PiecesTravelWhileOthersAreAddedUp) {
    constexpr int pieces = 12;
    std::vector<Seen> seen;
    const std::vector<std::exception_ptr> thrown = run_counted(2, seen, -1, [&](Ranks& ranks) {
        std::vector<float> numbers(pieces * piece_numbers, static_cast<float>(ranks.rank() + 1));
        Seen& own = seen[static_cast<std::size_t>(ranks.rank())];
        own = {};
        ranks.start_sum_of_parts(0, halves(numbers));
        ranks.wait(0);
        EXPECT_EQ(own.starts.size(), pieces);
        EXPECT_EQ(own.most, Exchange::pieces_under_way);
        EXPECT_EQ(own.alone, 1) << "behind each but the last another one travels";
        // Each piece is copied and added in steps, and what travels is looked at behind each.
        EXPECT_GT(own.looks, 3 * pieces);
        own = {};
        ranks.start_sum(1, {numbers});
        ranks.wait(1);
        EXPECT_EQ(own.starts.size(), 2 * pieces);
        EXPECT_EQ(own.most, Exchange::pieces_under_way);
        EXPECT_EQ(own.alone, 1);
    });
    for (const std::exception_ptr& each : thrown) EXPECT_EQ(what_of(each), "");
}

TEST(Exchange, HoldsTheMemoryThatItSays) {
    const auto transport = silent_transport(2);
    const auto held = [] { return ::mallinfo2().hblkhd + ::mallinfo2().uordblks; };
    const std::size_t before = held();
    const Exchange exchange(*transport);
    EXPECT_LE(held() - before, static_cast<std::size_t>(Exchange::bytes()) + 100'000);
}

/// Seconds that a sum of so many pieces takes two ranks over a link of so much latency and as many bytes as
/// they like.
double seconds_over(double latency, int pieces) {
    std::vector<std::unique_ptr<Transport>> transports = connected_ranks(2, 60);
    std::vector<double> seconds(2);
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < 2; ++rank)
        threads.emplace_back([&, rank] {
            Ranks ranks(
                std::make_unique<testing::DelayedTransport>(std::move(transports[rank]), latency, 1e12));
            std::vector<float> numbers(static_cast<std::size_t>(pieces * piece_numbers), 1.0F);
            ranks.meet();
            const Stopwatch watch;
            ranks.start_sum_of_parts(0, halves(numbers));
            ranks.wait(0);
            seconds[rank] = watch.seconds();
        });
    for (std::thread& thread : threads) thread.join();
    return std::ranges::max(seconds);
}

TEST(Exchange, LatenciesOfPiecesPassAtATime) {
    constexpr int pieces = 9;
    constexpr double latency = 0.04;
    // One after another they would always take pieces * latency; a busy machine may take longer once.
    double least = seconds_over(latency, pieces);
    for (int i = 0; i < 20 && least >= 0.8 * pieces * latency; ++i)
        least = std::min(least, seconds_over(latency, pieces));
    EXPECT_GE(least, pieces / Exchange::pieces_under_way * latency);
    EXPECT_LT(least, 0.8 * pieces * latency);
}

/// Sums and gathers of all kinds and sizes that come when they come: here at once, there late.
TEST(Exchange, RanksOfAnyPaceMeetInTheSameExchanges) {
    std::vector<Seen> seen;
    constexpr int sums = 40;
    const std::vector<std::exception_ptr> thrown = run_counted(3, seen, -1, [&](Ranks& ranks) {
        const auto mine = static_cast<std::uint64_t>(ranks.rank());
        const auto value = static_cast<float>(ranks.rank() + 1);
        std::vector<std::vector<float>> numbers(sums);
        for (int sum = 0; sum < sums; ++sum) {
            std::vector<float>& own = numbers[static_cast<std::size_t>(sum)];
            const auto drawn = RandomStream{7}.block(static_cast<std::uint64_t>(sum));
            own.assign(3 * (drawn[0] % 3 == 0 ? 500000 + drawn[1] % 500000 : 1 + drawn[1] % 1000), value);
            const std::size_t third = own.size() / 3;
            std::vector<std::vector<std::span<float>>> thirds;
            std::vector<std::vector<std::span<std::byte>>> bytes;
            for (std::size_t rank = 0; rank < 3; ++rank) {
                thirds.push_back({std::span(own).subspan(rank * third, third)});
                bytes.push_back({std::as_writable_bytes(thirds.back()[0])});
            }
            const auto pace =
                RandomStream{8, static_cast<std::uint32_t>(mine)}.block(static_cast<std::uint64_t>(sum));
            std::this_thread::sleep_for(std::chrono::microseconds(pace[0] % 3 == 0 ? pace[1] % 3000 : 0));
            if (drawn[2] % 3 == 0)
                ranks.start_sum(sum, {own});
            else if (drawn[2] % 3 == 1)
                ranks.start_sum_of_parts(sum, thirds);
            else
                ranks.start_gather(sum, bytes);
        }
        for (int sum = 0; sum < sums; ++sum) {
            ranks.wait(sum);
            const std::vector<float>& own = numbers[static_cast<std::size_t>(sum)];
            const auto drawn = RandomStream{7}.block(static_cast<std::uint64_t>(sum));
            for (std::size_t rank = 0; rank < 3; ++rank) {
                const float wanted = drawn[2] % 3 == 0   ? 6
                                     : drawn[2] % 3 == 2 ? static_cast<float>(rank + 1)
                                     : rank == mine      ? 6
                                                         : value;
                const auto begin = own.begin() + static_cast<std::ptrdiff_t>(rank * own.size() / 3);
                EXPECT_TRUE(std::all_of(begin, begin + static_cast<std::ptrdiff_t>(own.size() / 3),
                                        [&](float each) { return each == wanted; }))
                    << "sum " << sum << ", part " << rank << ", on rank " << mine;
            }
        }
    });
    for (const std::exception_ptr& each : thrown) EXPECT_EQ(what_of(each), "");
    for (const Seen& each : seen) EXPECT_LE(each.most, Exchange::pieces_under_way);
    EXPECT_GT(seen[0].most, 1);
}

TEST(Exchange, ARankLostInTheMiddleLeavesWhatHasNotArrived) {
    // The first two exchanges tell hosts.
    constexpr int pieces = 10, arrived = 4;
    std::vector<Seen> seen;
    std::vector<float> numbers(pieces * piece_numbers, 1.0F);
    const std::vector<std::exception_ptr> thrown = run_counted(2, seen, 2 + arrived, [&](Ranks& ranks) {
        std::vector<float> others(ranks.rank() == 0 ? 0 : numbers.size(), 2.0F);
        const std::span<float> own = ranks.rank() == 0 ? numbers : others;
        ranks.start_sum_of_parts(0, halves(own));
        ranks.start_sum(1, {own.first(100)});  // behind it, so it never begins on the first
        try {
            ranks.wait(0);
        } catch (const LostRank&) {
            ranks.settle();
            EXPECT_THROW(ranks.meet(), LostRank);  // nothing travels any more
            throw;
        }
    });
    EXPECT_TRUE(what_of(thrown[0]).starts_with("rank 1 on ")) << what_of(thrown[0]);
    EXPECT_TRUE(what_of(thrown[0]).ends_with(": it was cut off")) << what_of(thrown[0]);
    EXPECT_NE(what_of(thrown[1]).find("rank 0 on "), std::string::npos) << what_of(thrown[1]);
    EXPECT_NE(what_of(thrown[1]).find(": it has ended"), std::string::npos) << what_of(thrown[1]);
    const auto untouched = numbers.begin() + arrived * piece_numbers / 2;
    EXPECT_TRUE(std::all_of(numbers.begin(), untouched, [](float each) { return each == 3; }));
    EXPECT_TRUE(std::all_of(untouched, numbers.end(), [](float each) { return each == 1; }));
}

/// An exchange that is finished when it was looked at so often.
class LateTransport final : public Transport {
  public:
    explicit LateTransport(double patience) : Transport(patience) {}
    int rank() const override { return 0; }
    int ranks() const override { return 3; }
    void start(std::span<const std::span<const std::byte>>, std::span<const std::span<std::byte>>) override {}
    void advance() override {}
    int finish_oldest() override { return ++looks < looks_needed ? 2 : -1; }
    void abort() noexcept override {}

    int looks = 0, looks_needed = 2;
};

/// How often this thread gave its core away by itself: a sleep does, however busy the machine is.
std::int64_t sleeps_so_far() {
    rusage usage{};
    ::getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
}

/// Sleeps of a hundred waits with one pause each.
std::int64_t sleeps_of_waits(bool shares_core, bool is_urgent) {
    const std::int64_t before = sleeps_so_far();
    for (int wait = 0; wait < 100; ++wait) {
        LateTransport transport(10);
        transport.set_shares_core(shares_core);
        EXPECT_TRUE(transport.wait_for_oldest(
            {.is_called = [] { return false; }, .is_urgent = [&] { return is_urgent; }}));
    }
    return sleeps_so_far() - before;
}

TEST(Transport, PausesWithoutASleepOnlyWhereACoreIsFree) {
    // A sleep that is over before the thread has left its core counts none: 2 of 100 on a busy machine.
    for (const auto& [shares_core, is_urgent] : {std::pair{true, true}, {true, false}, {false, false}})
        EXPECT_GE(sleeps_of_waits(shares_core, is_urgent), 80) << shares_core << is_urgent;
    // A wait that loses its core for a millisecond before its pause sleeps, too.
    EXPECT_LE(sleeps_of_waits(false, true), 50);
}

TEST(Transport, AWaitEndsWhereItIsCalledAwayAndWhereItIsTooLong) {
    LateTransport transport(0.05);
    transport.looks_needed = 1 << 30;
    int asked = 0;
    EXPECT_FALSE(transport.wait_for_oldest(
        {.is_called = [&] { return ++asked == 3; }, .is_urgent = [] { return false; }}));
    EXPECT_EQ(transport.looks, 3);
    try {
        transport.exchange({}, {});
        ADD_FAILURE() << "it waits for ever";
    } catch (const LostRank& lost) {
        EXPECT_EQ(lost.rank, 2);
        EXPECT_STREQ(lost.what(), "no answer within 0.05 s");
    }
}

}  // namespace
}  // namespace mantissa
