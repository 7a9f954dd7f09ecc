#include "mantissa/base/thread_pool.h"

#include <gtest/gtest.h>
#include <immintrin.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "mantissa/base/error.h"

namespace mantissa {
namespace {

TEST(ThreadPool, EveryBlockRunsExactlyOnce) {
    for (int threads : {1, 2, 5}) {
        ThreadPool pool(threads);
        for (std::int64_t blocks : {0, 1, 2, 3, 1000}) {
            std::vector<std::atomic<int>> counts(static_cast<std::size_t>(blocks));
            pool.for_each_block(blocks, [&](std::int64_t block, int worker) {
                EXPECT_LT(worker, threads);
                counts[static_cast<std::size_t>(block)]++;
            });
            for (const auto& count : counts) EXPECT_EQ(count.load(), 1);
        }
    }
}

TEST(ThreadPool, ManyShortLoopsInARow) {
    ThreadPool pool(3);
    std::atomic<std::int64_t> total{0};
    for (int loop = 0; loop < 20000; ++loop)
        pool.for_each_block(4, [&](std::int64_t block, int) { total += block; });
    EXPECT_EQ(total.load(), 20000 * 6);
}

/// Loops of random sizes, some of one block, some that throw, some with loops inside: what each must add up
/// to.
void run_random_loops(ThreadPool& pool, int loops, std::uint32_t seed) {
    std::mt19937 random(seed);
    for (int loop = 0; loop < loops; ++loop) {
        const std::int64_t blocks = random() % 4 == 0 ? 1 : random() % 300;
        const std::int64_t thrown = random() % 16 == 0 ? static_cast<std::int64_t>(random() % 300) : -1;
        const bool nested = random() % 16 == 0;
        std::vector<std::int64_t> sums(static_cast<std::size_t>(pool.threads()) *
                                       8);  // a cache line a worker
        const auto body = [&](std::int64_t block, int worker) {
            std::int64_t& sum = sums[static_cast<std::size_t>(worker) * 8];
            if (block == thrown) throw std::runtime_error("thrown");
            if (nested)
                pool.for_each_block(3, [&](std::int64_t, int) { sum += block + 1; });
            else
                sum += 3 * (block + 1);
        };
        bool caught = false;
        try {
            pool.for_each_block(blocks, body);
        } catch (const std::runtime_error&) {
            caught = true;
        }
        ASSERT_EQ(caught, thrown >= 0 && thrown < blocks);
        if (caught) continue;
        ASSERT_EQ(std::accumulate(sums.begin(), sums.end(), std::int64_t{0}), 3 * blocks * (blocks + 1) / 2);
    }
}

TEST(ThreadPool, RandomLoopsOnManyThreads) {
    for (const int threads : {1, 2, 3, 7, 16}) {
        ThreadPool pool(threads, threads);  // all at once, though there are fewer cores
        run_random_loops(pool, 2000, static_cast<std::uint32_t>(threads));
    }
    for (int round = 0; round < 200;
         ++round) {  // pools that end while their threads look for a loop, or begin to
        ThreadPool pool(4, 4);
        run_random_loops(pool, round % 3, static_cast<std::uint32_t>(round));
    }
}

void wait_for(std::chrono::nanoseconds time) {
    for (const auto end = std::chrono::steady_clock::now() + time; std::chrono::steady_clock::now() < end;) {
    }
}

/// About the time that a thread looks before it sleeps.
std::chrono::nanoseconds edge_of_sleep(std::mt19937& random) {
    return std::chrono::nanoseconds(198'000 + random() % 6'000);
}

/// Loops of as many blocks as threads run at once, each of which waits for all others: so threads must come.
/// They just fall asleep as a loop begins: those beyond the cores at once, else behind a pause.
struct Rendezvous {
    int threads, at_once;
    bool pauses;
};

/// In how many loops a thread did not come. A pool is left before it judges whether it is disturbed, and then
/// uses fewer threads.
int loops_that_a_thread_missed(const Rendezvous& of, int loops) {
    using Clock = std::chrono::steady_clock;
    std::mt19937 random(5);
    int missed = 0;
    for (int loop = 0; loop < loops && missed == 0;) {
        ThreadPool pool(of.threads, of.at_once);
        for (Clock::duration in_loops{0};
             in_loops < std::chrono::milliseconds(30) && loop < loops && missed == 0; ++loop) {
            if (of.pauses) wait_for(edge_of_sleep(random));
            std::atomic<int> there{0};
            std::atomic<bool> all{true};
            const auto begin = Clock::now();
            pool.for_each_block(of.at_once, [&](std::int64_t, int) {
                ++there;
                while (there.load() < of.at_once && all.load()) {
                    std::this_thread::yield();
                    if (Clock::now() - begin > std::chrono::seconds(5)) all = false;
                }
            });
            in_loops += Clock::now() - begin;
            missed += !all.load();
        }
    }
    return missed;
}

constexpr Rendezvous rendezvous[] = {{2, 2, true}, {4, 4, true}, {3, 2, false}, {8, 2, false}};

TEST(ThreadPool, NoWakeUpIsLostAsThreadsFallAsleep) {
    for (const Rendezvous& of : rendezvous)
        EXPECT_EQ(loops_that_a_thread_missed(of, of.pauses ? 100 : 1500), 0)
            << of.threads << " threads, " << of.at_once << " at once";
}

TEST(ThreadPoolSlow, NoWakeUpIsLostAsThreadsFallAsleep) {
    for (const Rendezvous& of : rendezvous)
        EXPECT_EQ(loops_that_a_thread_missed(of, of.pauses ? 50'000 : 1'000'000), 0)
            << of.threads << " threads, " << of.at_once << " at once";
}

/// Loops whose last block, another thread's, ends just as the caller falls asleep. A lost wake-up hangs.
void run_loops_at_the_edge_of_sleep(int loops) {
    ThreadPool pool(2, 2);
    std::mt19937 random(5);
    std::atomic<int> done{0};
    for (int loop = 0; loop < loops; ++loop) {
        const auto pause = edge_of_sleep(random), last = edge_of_sleep(random);
        wait_for(pause);
        pool.for_each_block(2, [&](std::int64_t, int worker) {
            if (worker != 0) wait_for(last);
            ++done;
        });
    }
    EXPECT_EQ(done.load(), 2 * loops);
}

TEST(ThreadPool, ThreadsFallAsleepAsLoopsBeginAndEnd) { run_loops_at_the_edge_of_sleep(500); }

TEST(ThreadPoolSlow, ThreadsFallAsleepAsLoopsBeginAndEnd) { run_loops_at_the_edge_of_sleep(50'000); }

/// Loops of two blocks and of one in turns: a thread that comes late to the first must not find the second.
TEST(ThreadPool, ALoopOfOneBlockIsTheCallersAlone) {
    ThreadPool pool(4, 4);
    for (int loop = 0; loop < 20'000; ++loop) {
        pool.for_each_block(2, [](std::int64_t, int) {});
        std::atomic<int> runs{0};
        std::atomic<int> worker{-1};
        pool.for_each_block(1, [&](std::int64_t, int by) {
            ++runs;
            worker = by;
            for (int i = 0; i < 50; ++i) _mm_pause();
        });
        ASSERT_EQ(runs.load(), 1) << "loop " << loop;
        ASSERT_EQ(worker.load(), 0) << "loop " << loop;
    }
}

/// The first block waits for the second, which another thread must find free.
TEST(ThreadPool, BlocksInTurnAreTakenOneAtATime) {
    ThreadPool pool(2, 2);
    std::atomic<bool> begun{false}, seen{false};
    pool.for_each_in_turn(1000, [&](std::int64_t block, int) {
        if (block == 1) begun = true;
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
        while (block == 0 && !seen && std::chrono::steady_clock::now() < end) {
            seen = begun.load();
            std::this_thread::yield();
        }
    });
    EXPECT_TRUE(seen);
}

TEST(ThreadPoolSlow, AMillionRandomLoops) {
    for (const int threads : {2, 3, 16}) {
        ThreadPool pool(threads, threads);
        run_random_loops(pool, 350'000, static_cast<std::uint32_t>(threads));
    }
}

TEST(ThreadPool, MoreThreadsThanCoresSleep) {
    ThreadPool pool(16, 2);
    rusage before{}, after{};
    ::getrusage(RUSAGE_SELF, &before);
    const auto begin = std::chrono::steady_clock::now();
    for (int loop = 0; loop < 2000; ++loop)
        pool.for_each_block(64, [&](std::int64_t, int) {
            for (int i = 0; i < 20; ++i) _mm_pause();
        });
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    ::getrusage(RUSAGE_SELF, &after);
    const auto cpu = [](const rusage& usage) {
        return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
               1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
    };
    EXPECT_LT(cpu(after) - cpu(before), 3.5 * seconds);
}

TEST(ThreadPool, ALoopInsideALoopRunsOnItsOwnThread) {
    ThreadPool pool(2);
    std::atomic<int> inner{0};
    pool.for_each_block(
        4, [&](std::int64_t, int) { pool.for_each_block(3, [&](std::int64_t, int) { inner++; }); });
    EXPECT_EQ(inner.load(), 12);
}

TEST(ThreadPool, TheFirstExceptionReachesTheCallerAndThePoolLivesOn) {
    ThreadPool pool(2);
    EXPECT_THROW(pool.for_each_block(100,
                                     [](std::int64_t block, int) {
                                         if (block == 17) throw std::runtime_error("block 17");
                                     }),
                 std::runtime_error);
    std::atomic<int> count{0};
    pool.for_each_block(10, [&](std::int64_t, int) { count++; });
    EXPECT_EQ(count.load(), 10);
}

TEST(ThreadPool, RecordsWhenEachThreadWorked) {
    using Clock = std::chrono::steady_clock;
    ThreadPool pool(3);
    const auto loop = [&](std::int64_t blocks) {
        pool.for_each_block(blocks, [](std::int64_t, int) {
            for (const auto end = Clock::now() + std::chrono::microseconds(200); Clock::now() < end;) {
            }
        });
    };
    loop(20);
    EXPECT_TRUE(pool.take_record().empty());  // off at first

    pool.record(true);
    const auto begin = Clock::now();
    loop(20);
    const auto middle = Clock::now();
    loop(1);
    const auto end = Clock::now();
    pool.record(false);
    loop(20);

    std::int64_t first = 0, second = 0;
    ThreadPool::Work before;
    for (const ThreadPool::Work& work : pool.take_record()) {
        EXPECT_LE(work.begin, work.end);
        EXPECT_GE(work.begin, begin);
        EXPECT_LE(work.end, end);
        EXPECT_GE(work.end - work.begin, work.blocks * std::chrono::microseconds(200));
        (work.end <= middle ? first : second) += work.blocks;
        EXPECT_LE(before.worker, work.worker);
        if (before.worker == work.worker) {
            EXPECT_LE(before.end, work.begin);
        }
        before = work;
    }
    EXPECT_EQ(first, 20);
    EXPECT_EQ(second, 1);
    EXPECT_TRUE(pool.take_record().empty());
}

TEST(ThreadPool, SubnormalsAreFlushedInsideAndKeptOutside) {
    ThreadPool pool(2);
    const volatile float tiny = 1e-38f;
    std::atomic<int> flushed{0};
    pool.for_each_block(8, [&](std::int64_t, int) { flushed += tiny * 0.5f == 0.0f; });
    EXPECT_EQ(flushed.load(), 8);
    EXPECT_NE(tiny * 0.5f, 0.0f);
}

TEST(ThreadPool, ThreadsThatTheSystemRefusesAreAnErrorAndNoHang) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "under a sanitizer: its own memory is beyond any limit";
#endif
    const auto ask_for_too_many = [] {
        // Room for the stacks of some threads, not of a thousand.
        rlimit little{};
        little.rlim_cur = little.rlim_max = rlim_t{1} << 30;
        ::setrlimit(RLIMIT_AS, &little);
        try {
            ThreadPool pool(1000);
        } catch (const UserError& error) {
            std::fputs(error.what(), stderr);
            std::_Exit(7);
        }
        std::_Exit(0);
    };
    EXPECT_EXIT(ask_for_too_many(), ::testing::ExitedWithCode(7),
                "of 1000 threads the system gave [0-9]+: .*; ask for fewer");
}

TEST(ThreadPool, ThreadCountFollowsTheEnvironmentAndRefusesNonsense) {
    ::setenv("OMP_NUM_THREADS", "3", 1);
    EXPECT_EQ(default_thread_count(), 3);
    for (const char* bad : {"0", "-2", "many", "2x"}) {
        ::setenv("OMP_NUM_THREADS", bad, 1);
        EXPECT_THROW(default_thread_count(), UserError) << bad;
    }
    ::unsetenv("OMP_NUM_THREADS");
    EXPECT_GE(default_thread_count(), 1);
}

}  // namespace
}  // namespace mantissa
