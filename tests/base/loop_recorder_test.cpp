#include "mantissa/base/loop_recorder.h"

#include <gtest/gtest.h>

#include "mantissa/base/thread_pool.h"

namespace mantissa {
namespace {

void work_for(double seconds) {
    for (const double end = LoopRecorder::seconds_on_core() + seconds;
         LoopRecorder::seconds_on_core() < end;) {
    }
}

TEST(LoopRecorder, HasTheTimeOfEachBlockOfTheLoopsWhileItExists) {
    ThreadPool pool(1);
    const auto loop = [&](std::int64_t blocks) {
        pool.for_each_block(blocks, [](std::int64_t block, int) { work_for(block == 1 ? 3e-3 : 1e-4); });
    };
    loop(2);
    std::vector<RecordedLoop> loops;
    {
        LoopRecorder recorder;
        loop(3);
        loop(1);
        loops = recorder.take();
        EXPECT_TRUE(recorder.take().empty());
    }
    loop(2);
    EXPECT_EQ(LoopRecorder::of_this_thread(), nullptr);
    ASSERT_EQ(loops.size(), 2u);
    ASSERT_EQ(loops[0].blocks.size(), 3u);
    ASSERT_EQ(loops[1].blocks.size(), 1u);
    EXPECT_GE(loops[0].blocks[0], 100e-6);
    EXPECT_GE(loops[0].blocks[1], 3000e-6);
    EXPECT_NEAR(loops[0].blocks[0] + loops[0].blocks[1] + loops[0].blocks[2], loops[0].seconds, 1e-6);
    EXPECT_TRUE(loops[0].waits.empty());
}

TEST(LoopRecorder, KnowsForWhichBlockAnotherWaits) {
    ThreadPool pool(1);
    LoopRecorder recorder;
    int counter = 0, other = 0;
    pool.for_each_block(6, [&](std::int64_t block, int) {
        LoopRecorder& of_this = *LoopRecorder::of_this_thread();
        if (block < 2) of_this.reached(&counter, block + 1);
        if (block == 2) of_this.awaits(&counter, 1);
        if (block == 3) of_this.awaits(&counter, 2);
        if (block == 3) of_this.awaits(&counter, 2);  // said once
        if (block == 4) {
            of_this.reached(&other, 1);
            of_this.awaits(&other, 1);     // its own
            of_this.reached(&counter, 1);  // begins anew
            of_this.awaits(&counter, 1);
        }
        if (block == 5) {
            of_this.awaits(&counter, 0);  // holds from the beginning, whoever counted before
            of_this.reached(&counter, 2);
            of_this.awaits(&counter, 2, 2);  // both steps, of which one is its own
        }
    });
    const std::vector<RecordedLoop> loops = recorder.take();
    ASSERT_EQ(loops.size(), 1u);
    ASSERT_EQ(loops[0].waits.size(), 3u);
    EXPECT_EQ(loops[0].waits[0].block, 2);
    EXPECT_EQ(loops[0].waits[0].awaited, 0);
    EXPECT_EQ(loops[0].waits[1].block, 3);
    EXPECT_EQ(loops[0].waits[1].awaited, 1);
    EXPECT_EQ(loops[0].waits[2].block, 5);
    EXPECT_EQ(loops[0].waits[2].awaited, 4);
}

}  // namespace
}  // namespace mantissa
