// Ranks: what they give one another arrives, sums have one order whoever adds, and who is gone is named.
#include "mantissa/ranks/ranks.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <mutex>
#include <numeric>

#include "mantissa/ranks/exchange.h"
#include "tests/support/rank_threads.h"

namespace mantissa {
namespace {

using testing::run_good_ranks;
using testing::run_ranks;
using testing::what_of;

/// Terms of a rank: numbers whose sum depends on the order.
std::vector<float> terms_of(int rank, std::size_t count) {
    std::vector<float> terms(count);
    for (std::size_t i = 0; i < count; ++i)
        terms[i] = std::sin(static_cast<float>(i) * 0.7f + static_cast<float>(rank * rank)) * 3.0f;
    return terms;
}

float tree_of(std::span<const float> terms) {
    if (terms.size() == 1) return terms[0];
    const std::size_t first = std::bit_ceil(terms.size()) / 2;
    return tree_of(terms.first(first)) + tree_of(terms.subspan(first));
}

std::vector<float> expected_sum(int ranks, std::size_t count) {
    std::vector<std::vector<float>> all;
    for (int rank = 0; rank < ranks; ++rank) all.push_back(terms_of(rank, count));
    std::vector<float> sums;
    for (std::size_t i = 0; i < count; ++i) {
        std::vector<float> terms;
        for (const auto& each : all) terms.push_back(each[i]);
        sums.push_back(tree_of(terms));
    }
    return sums;
}

TEST(TreeSum, IsThatOfPairsAndMayLieOverATerm) {
    for (int ranks = 1; ranks <= 9; ++ranks)
        for (std::size_t count : {0u, 1u, 511u, 512u, 1025u}) {
            std::vector<std::vector<float>> all;
            std::vector<const float*> terms;
            for (int rank = 0; rank < ranks; ++rank) all.push_back(terms_of(rank, count));
            for (const auto& each : all) terms.push_back(each.data());
            float* const sum = all.back().data();
            tree_sum(terms, static_cast<std::int64_t>(count), sum);
            EXPECT_EQ(all.back(), expected_sum(ranks, count)) << ranks << " terms of " << count;
        }
}

TEST(TreeSum, HasAnotherOrderThanALoop) {
    const std::size_t count = 1000;
    std::vector<float> in_order(count);
    for (int rank = 0; rank < 4; ++rank) {
        const std::vector<float> terms = terms_of(rank, count);
        for (std::size_t i = 0; i < count; ++i) in_order[i] += terms[i];
    }
    EXPECT_NE(expected_sum(4, count), in_order);
}

TEST(Ranks, GatherWhatEachGivesByRank) {
    run_good_ranks(3, [](Ranks& ranks) {
        const std::string mine(static_cast<std::size_t>(ranks.rank() * 70000),
                               'a' + static_cast<char>(ranks.rank()));
        const std::vector<std::string> all = ranks.gather(mine);
        ASSERT_EQ(all.size(), 3u);
        EXPECT_EQ(all[0], "");
        EXPECT_EQ(all[1], std::string(70000, 'b'));
        EXPECT_EQ(all[2], std::string(140000, 'c'));
        EXPECT_FALSE(ranks.host_of(0).empty());
    });
}

TEST(Ranks, SumAndGatherParts) {
    // By rank: how many numbers of each of two places are its own. More than a share, none, odd ones.
    for (const std::vector<std::pair<std::size_t, std::size_t>>& sizes :
         {std::vector<std::pair<std::size_t, std::size_t>>{{3, 0}, {700001, 5}},
          {{1024, 1024}, {1024, 1024}, {1024, 7}, {0, 0}},
          {{400000, 1}, {400000, 300000}, {12345, 0}}}) {
        const int count = static_cast<int>(sizes.size());
        std::size_t total = 0;
        for (const auto& [a, b] : sizes) total += a + b;
        const std::vector<float> expected = expected_sum(count, total);
        run_good_ranks(count, [&](Ranks& ranks) {
            std::vector<float> numbers = terms_of(ranks.rank(), total);
            std::vector<std::vector<std::span<float>>> by_rank;
            std::vector<std::vector<std::span<std::byte>>> bytes_by_rank;
            std::span<float> rest(numbers);
            for (const auto& [a, b] : sizes) {
                by_rank.push_back({rest.first(a), rest.subspan(a, b)});
                bytes_by_rank.push_back(
                    {std::as_writable_bytes(rest.first(a)), std::as_writable_bytes(rest.subspan(a, b))});
                rest = rest.subspan(a + b);
            }
            const std::vector<float> before = numbers;
            ranks.start_sum_of_parts(4, by_rank);
            ranks.wait(4);
            const auto self = static_cast<std::size_t>(ranks.rank());
            for (std::size_t rank = 0; rank < by_rank.size(); ++rank)
                for (const std::span<float>& part : by_rank[rank]) {
                    const auto at = part.data() - numbers.data();
                    const std::vector<float>& wanted = rank == self ? expected : before;
                    EXPECT_TRUE(std::equal(part.begin(), part.end(), wanted.begin() + at)) << rank;
                }
            ranks.start_gather(5, bytes_by_rank);
            ranks.wait(5);
            EXPECT_TRUE(numbers == expected);
        });
    }
}

TEST(Ranks, SumTheSameBitsForAnySizeAndNumber) {
    // More than a piece, and more ranks than numbers.
    for (const auto& [count, sizes] : {std::pair{1, std::vector<std::size_t>{5, 1, 300}},
                                       {2, {1}},
                                       {3, {17, 0, 2, 1100000, 3}},
                                       {4, {1 << 20}},
                                       {5, {2, 1}}}) {
        const std::size_t total = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
        const std::vector<float> expected = expected_sum(count, total);
        run_good_ranks(count, [&, sizes = sizes](Ranks& ranks) {
            std::vector<float> numbers = terms_of(ranks.rank(), total);
            std::vector<std::span<float>> parts;
            std::size_t at = 0;
            for (std::size_t size : sizes) {
                parts.push_back(std::span(numbers).subspan(at, size));
                at += size;
            }
            ranks.start_sum(7, parts);
            ranks.wait(7);
            EXPECT_TRUE(numbers == expected) << ranks.size() << " ranks, " << total << " numbers";
        });
    }
}

/// To nearest even, of 8 bits, by arithmetic.
float rounded_to_bf16(float value) {
    int exponent = 0;
    const double fraction = std::frexp(static_cast<double>(value), &exponent);
    return static_cast<float>(std::ldexp(std::nearbyint(fraction * 256), exponent - 8));
}

TEST(Ranks, AddTermsInFP32ThatTravelInBF16) {
    constexpr std::size_t total = 1100003;  // more than a piece, in parts that no cache line divides
    for (const int count : {2, 3, 4}) {
        std::vector<std::vector<float>> all;
        for (int rank = 0; rank < count; ++rank) all.push_back(terms_of(rank, total));
        std::vector<float> expected(total);
        // Half a last place of 8 bits of each term; what FP32's additions add to it is a 2^-16th.
        constexpr double bound = 0x1p-8 * (1 + 0x1p-10);
        double worst = 0;
        for (std::size_t i = 0; i < total; ++i) {
            std::vector<float> terms;
            double exact = 0, magnitude = 0;
            for (const std::vector<float>& each : all) {
                terms.push_back(rounded_to_bf16(each[i]));
                exact += static_cast<double>(each[i]);
                magnitude += std::abs(static_cast<double>(each[i]));
            }
            expected[i] = tree_of(terms);
            if (magnitude > 0)
                worst = std::max(worst, std::abs(static_cast<double>(expected[i]) - exact) / magnitude);
        }
        EXPECT_LE(worst, bound);
        EXPECT_GT(worst, bound / 2) << "it would not be noticed if nothing were rounded";
        run_good_ranks(count, [&](Ranks& ranks) {
            const std::vector<float> mine = terms_of(ranks.rank(), total);
            std::vector<float> whole = mine, parts = mine;
            std::vector<std::vector<std::span<float>>> by_rank;
            std::size_t from = 0;
            for (int rank = 0; rank < count; ++rank) {
                const std::size_t end = rank + 1 == count ? total : from + 300007;
                by_rank.push_back({std::span(parts).subspan(from, end - from)});
                from = end;
            }
            ranks.start_sum(1, {std::span(whole).first(5), std::span(whole).subspan(5)}, Wire::bf16);
            ranks.start_sum_of_parts(2, by_rank, Wire::bf16);
            ranks.wait(1);
            ranks.wait(2);
            EXPECT_TRUE(whole == expected);
            const std::span<float> own = by_rank[static_cast<std::size_t>(ranks.rank())][0];
            const auto begin = expected.begin() + (own.data() - parts.data());
            EXPECT_TRUE(std::equal(own.begin(), own.end(), begin));
        });
    }
}

TEST(Ranks, SeveralSumsAreUnderWayAtOneTime) {
    run_good_ranks(2, [](Ranks& ranks) {
        std::vector<std::vector<float>> numbers;
        for (std::size_t sum = 0; sum < 8; ++sum) numbers.push_back(terms_of(ranks.rank(), 1000 + sum));
        for (int sum = 0; sum < 8; ++sum) ranks.start_sum(sum, {numbers[static_cast<std::size_t>(sum)]});
        for (int sum = 7; sum >= 0; --sum) ranks.wait(sum);
        for (std::size_t sum = 0; sum < 8; ++sum) EXPECT_EQ(numbers[sum], expected_sum(2, 1000 + sum));
        EXPECT_GT(ranks.take_time().travelled, 0);
        EXPECT_EQ(ranks.take_time().travelled, 0);
    });
}

TEST(Ranks, NothingTravelsOnceTheyAreSettled) {
    testing::run_good_ranks(2, [](Ranks& ranks) {
        std::vector<float> numbers(std::size_t{1} << 22, static_cast<float>(ranks.rank() + 1));
        ranks.start_sum(0, {numbers});
        ranks.settle();  // a step that threw waits for none of its sums
        EXPECT_EQ(numbers, std::vector<float>(numbers.size(), 3.0F));
        numbers.assign(8, 1.0F);
        ranks.start_sum(0, {numbers});
        ranks.wait(0);
        EXPECT_EQ(numbers, std::vector<float>(8, 2.0F));
    });
}

TEST(Ranks, AloneASumIsItsOwnTerms) {
    run_good_ranks(2, [](Ranks& ranks) {
        std::vector<float> numbers = terms_of(ranks.rank(), 100);
        if (ranks.rank() == 1) {  // the other takes no part
            const Ranks::Alone alone(&ranks);
            ranks.start_sum(0, {numbers});
            ranks.wait(0);
        }
        EXPECT_EQ(numbers, terms_of(ranks.rank(), 100));
        ranks.meet();
    });
}

TEST(Ranks, MeetUnderAName) {
    const std::string name = "mantissa-test-" + std::to_string(::getpid());
    for (const int count : {1, 2, 4}) {
        std::vector<std::string> heard(static_cast<std::size_t>(count));
        std::vector<std::thread> threads;
        // The last one comes first.
        for (int rank = count - 1; rank >= 0; --rank)
            threads.emplace_back([&, rank] {
                Ranks ranks(meet_ranks(name, rank, count, 20));
                for (const std::string& each : ranks.gather(std::to_string(ranks.rank())))
                    heard[static_cast<std::size_t>(rank)] += each;
            });
        for (std::thread& thread : threads) thread.join();
        for (const std::string& each : heard) EXPECT_EQ(each, std::string("0123").substr(0, heard.size()));
    }
}

TEST(Ranks, WhoDoesNotComeIsNamed) {
    const std::string name = "mantissa-test-alone-" + std::to_string(::getpid());
    for (const int rank : {0, 1}) {
        try {
            meet_ranks(name, rank, 2, 0.2);
            ADD_FAILURE() << "rank " << 1 - rank << " came";
        } catch (const LostRank& lost) {
            EXPECT_EQ(lost.rank, 1 - rank);
            EXPECT_STREQ(lost.what(), "it did not come within 0.2 s");
        }
    }
}

TEST(Ranks, OneThatIsGoneIsNamedByAllOthers) {
    const std::vector<std::exception_ptr> thrown = run_ranks(3, [](Ranks& ranks) {
        ranks.meet();
        if (ranks.rank() == 1) return;
        std::vector<float> numbers(1000);
        ranks.start_sum(0, {numbers});
        ranks.wait(0);
    });
    EXPECT_EQ(what_of(thrown[1]), "");
    // The third may hear of the first's end before the second's.
    EXPECT_TRUE(what_of(thrown[0]).starts_with("rank 1 on ")) << what_of(thrown[0]);
    EXPECT_NE(what_of(thrown[0]).find(": it has ended"), std::string::npos) << what_of(thrown[0]);
    EXPECT_NE(what_of(thrown[2]).find(": it has ended"), std::string::npos) << what_of(thrown[2]);
}

TEST(Ranks, OneThatHangsIsNamedAfterTheTimeout) {
    const auto slow = [](double seconds) {
        return [seconds](Ranks& ranks) {
            ranks.meet();
            if (ranks.rank() == 1) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
            ranks.meet();
        };
    };
    const std::vector<std::exception_ptr> late = run_ranks(2, slow(1.5), 0.3);
    EXPECT_TRUE(what_of(late[0]).starts_with("rank 1 on ")) << what_of(late[0]);
    EXPECT_TRUE(what_of(late[0]).ends_with(": no answer within 0.3 s")) << what_of(late[0]);
    for (const std::exception_ptr& each : run_ranks(2, slow(0.3), 20)) EXPECT_EQ(what_of(each), "");
}

}  // namespace
}  // namespace mantissa
