// The emulated driver's streams: everything runs as late as it may, and elsewhere.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>

#include "mantissa/graph/graph.h"
#include "tests/device/emulated_gpu_harness.h"
#include "tests/support/error_of.h"

namespace mantissa::testing {
namespace {

using cuda::DevicePtr;
using cuda::Driver;
using cuda::Event;
using cuda::Graph;
using cuda::GraphExec;
using cuda::Result;
using cuda::Stream;

struct Streams : ::testing::Test {
    GpuUnderTest gpu{{.architecture = "sm_80", .memory = 1 << 20, .threads = 1}};
    const Driver& driver = gpu.driver();
    Stream first = gpu.stream(), second = nullptr;
    std::uint32_t* pinned = nullptr;  // [16]
    DevicePtr memory = gpu.allocate(64);

    void SetUp() override {
        ASSERT_EQ(driver.stream_create(&second, cuda::stream_non_blocking), Result::success);
        void* host = nullptr;
        ASSERT_EQ(driver.mem_alloc_host(&host, 64), Result::success);
        pinned = static_cast<std::uint32_t*>(host);
    }
    Event event() {
        Event made = nullptr;
        EXPECT_EQ(driver.event_create(&made, 0), Result::success);
        return made;
    }
    void fill(std::uint32_t value) {
        for (int i = 0; i < 16; ++i) pinned[i] = value;
    }
};
using EmulatedStreams = Streams;

TEST_F(EmulatedStreams, PinnedMemoryIsReadAndWrittenWhenTheCopyRuns) {
    fill(1);
    EXPECT_EQ(driver.memcpy_htod_async(memory, pinned, 64, first), Result::success);
    fill(2);
    EXPECT_EQ(driver.stream_synchronize(first), Result::success);
    EXPECT_EQ(gpu.download<std::uint32_t>(memory, 1)[0], 2u);  // too early changed: the copy shows it
    EXPECT_EQ(driver.memcpy_dtoh_async(pinned, memory, 64, first), Result::success);
    pinned[0] = 77;
    EXPECT_EQ(pinned[0], 77u);  // not there yet
    EXPECT_EQ(driver.stream_synchronize(first), Result::success);
    EXPECT_EQ(pinned[0], 2u);
}

TEST_F(EmulatedStreams, PageableMemoryIsReadAtOnce) {
    std::vector<std::uint32_t> values(16, 5);
    EXPECT_EQ(driver.memcpy_htod_async(memory, values.data(), 64, first), Result::success);
    values.assign(16, 6);
    EXPECT_EQ(gpu.download<std::uint32_t>(memory, 16), std::vector<std::uint32_t>(16, 5));
}

TEST_F(EmulatedStreams, OneStreamDoesNotWaitForTheOther) {
    fill(3);
    EXPECT_EQ(driver.memset_d8_async(memory, 0, 64, second), Result::success);
    EXPECT_EQ(driver.stream_synchronize(second), Result::success);
    EXPECT_EQ(driver.memcpy_htod_async(memory, pinned, 64, first), Result::success);
    EXPECT_EQ(driver.memcpy_dtoh_async(pinned, memory, 64, second), Result::success);
    EXPECT_EQ(driver.stream_synchronize(second), Result::success);
    EXPECT_EQ(pinned[0], 0u);  // the first stream's copy has not run
}

TEST_F(EmulatedStreams, AnEventOrdersThem) {
    fill(4);
    const Event copied = event();
    EXPECT_EQ(driver.memcpy_htod_async(memory, pinned, 64, first), Result::success);
    EXPECT_EQ(driver.event_record(copied, first), Result::success);
    EXPECT_EQ(driver.stream_wait_event(second, copied, 0), Result::success);
    EXPECT_EQ(driver.memcpy_dtoh_async(pinned + 8, memory, 32, second), Result::success);
    pinned[8] = 0;
    EXPECT_EQ(driver.event_query(copied), Result::not_ready);
    EXPECT_EQ(pinned[8], 0u);
    EXPECT_EQ(driver.stream_synchronize(second), Result::success);
    EXPECT_EQ(pinned[8], 4u);
    EXPECT_EQ(driver.event_query(copied), Result::success);
}

TEST_F(EmulatedStreams, EventsHaveTimesOnceTheyWerePassed) {
    const Event start = event(), end = event();
    float milliseconds = -1;
    EXPECT_EQ(driver.event_record(start, first), Result::success);
    EXPECT_EQ(driver.memset_d8_async(memory, 1, 64, first), Result::success);
    EXPECT_EQ(driver.event_record(end, first), Result::success);
    EXPECT_EQ(driver.event_elapsed_time(&milliseconds, start, end), Result::not_ready);
    EXPECT_EQ(driver.event_synchronize(end), Result::success);
    EXPECT_EQ(driver.event_elapsed_time(&milliseconds, start, end), Result::success);
    EXPECT_GE(milliseconds, 0);
}

TEST_F(EmulatedStreams, AQuestionIsFirstAnsweredWithNo) {
    EXPECT_EQ(driver.stream_query(first), Result::success);
    EXPECT_EQ(driver.memset_d8_async(memory, 1, 64, first), Result::success);
    EXPECT_EQ(driver.stream_query(first), Result::not_ready);
    EXPECT_EQ(driver.stream_query(first), Result::success);
}

TEST_F(EmulatedStreams, FreedBeforeTheWorkRan) {
    EXPECT_EQ(driver.memset_d8_async(memory, 1, 64, first), Result::success);
    EXPECT_EQ(driver.mem_free(memory), Result::success);
    EXPECT_EQ(driver.stream_synchronize(first), Result::illegal_address);
    EXPECT_NE(gpu.report().find("a memset: 64 bytes at"), std::string::npos) << gpu.report();
}

TEST_F(EmulatedStreams, PinnedMemoryFreedBeforeTheCopyRan) {
    EXPECT_EQ(driver.memcpy_htod_async(memory, pinned, 64, first), Result::success);
    EXPECT_EQ(driver.mem_free_host(pinned), Result::success);
    EXPECT_EQ(driver.stream_synchronize(first), Result::illegal_address);
    EXPECT_NE(gpu.report().find("were freed before it ran"), std::string::npos) << gpu.report();
}

TEST_F(EmulatedStreams, WhatWasNeverWrittenIsNotCopiedToTheHost) {
    EXPECT_EQ(driver.memset_d8_async(memory, 1, 32, first), Result::success);
    EXPECT_EQ(driver.memcpy_dtoh_async(pinned, memory, 64, first), Result::success);
    EXPECT_EQ(driver.stream_synchronize(first), Result::illegal_address);
    EXPECT_NE(gpu.report().find("byte 32 of allocation 1 (64 bytes"), std::string::npos) << gpu.report();
}

TEST_F(EmulatedStreams, GraphsReplayWhatWasCaptured) {
    cuda::Function function = nullptr;
    ASSERT_EQ(
        gpu.load(
            kernel_text(".reg .b32 %v;\nld.global.u32 %v, [%p0];\nadd.u32 %v, %v, %tid;\nadd.u32 %v, %v, 1;\n"
                        "st.global.u32 [%p0], %v;",
                        1),
            "k", function),
        Result::success);
    Graph graph = nullptr;
    GraphExec exec = nullptr;
    const Event forked = event(), joined = event();
    const DevicePtr other = gpu.allocate(64);
    std::uint64_t address = memory;
    void* parameters[] = {&address};
    EXPECT_EQ(driver.memset_d8_async(memory, 0, 64, first), Result::success);
    EXPECT_EQ(driver.stream_begin_capture(first, cuda::CaptureMode::global), Result::success);
    EXPECT_EQ(driver.launch_kernel(function, 1, 1, 1, 1, 1, 1, 0, first, parameters, nullptr),
              Result::success);
    EXPECT_EQ(driver.event_record(forked, first), Result::success);
    EXPECT_EQ(driver.stream_wait_event(second, forked, 0), Result::success);
    EXPECT_EQ(driver.memcpy_dtod_async(other, memory, 64, second), Result::success);
    EXPECT_EQ(driver.event_record(joined, second), Result::success);
    EXPECT_EQ(driver.stream_wait_event(first, joined, 0), Result::success);
    EXPECT_EQ(driver.stream_end_capture(first, &graph), Result::success);
    EXPECT_EQ(driver.graph_instantiate(&exec, graph, 0), Result::success);
    address = 0;  // the captured one counts
    for (int i = 0; i < 3; ++i) EXPECT_EQ(driver.graph_launch(exec, first), Result::success);
    EXPECT_EQ(gpu.download<std::uint32_t>(memory, 1)[0], 3u);
    EXPECT_EQ(gpu.download<std::uint32_t>(other, 1)[0], 3u);
    EXPECT_EQ(driver.graph_destroy(graph), Result::success);
    EXPECT_EQ(driver.graph_exec_destroy(exec), Result::success);
}

TEST_F(EmulatedStreams, ACaptureRefusesToWait) {
    Graph graph = nullptr;
    EXPECT_EQ(driver.stream_begin_capture(first, cuda::CaptureMode::global), Result::success);
    EXPECT_EQ(driver.stream_synchronize(first), Result::stream_capture_unsupported);
    EXPECT_EQ(driver.stream_end_capture(first, &graph), Result::stream_capture_invalidated);
    EXPECT_EQ(driver.stream_begin_capture(first, cuda::CaptureMode::global), Result::success);
    DevicePtr more = 0;
    EXPECT_EQ(driver.mem_alloc(&more, 16), Result::stream_capture_unsupported);
    EXPECT_EQ(driver.stream_end_capture(first, &graph), Result::stream_capture_invalidated);
}

TEST_F(EmulatedStreams, ACaptureThatIsNotJoinedIsRefused) {
    Graph graph = nullptr;
    const Event forked = event();
    EXPECT_EQ(driver.stream_begin_capture(first, cuda::CaptureMode::global), Result::success);
    EXPECT_EQ(driver.event_record(forked, first), Result::success);
    EXPECT_EQ(driver.stream_wait_event(second, forked, 0), Result::success);
    EXPECT_EQ(driver.memset_d8_async(memory, 0, 64, second), Result::success);
    EXPECT_EQ(driver.stream_end_capture(first, &graph), Result::stream_capture_unjoined);
}

TEST_F(EmulatedStreams, MemoryIsAsLargeAsWasAskedFor) {
    std::size_t free = 0, total = 0;
    EXPECT_EQ(driver.mem_get_info(&free, &total), Result::success);
    EXPECT_EQ(total, std::size_t{1} << 20);
    EXPECT_EQ(free, total - 256);
    DevicePtr more = 0;
    EXPECT_EQ(driver.mem_alloc(&more, free + 1), Result::out_of_memory);
    EXPECT_EQ(driver.mem_alloc(&more, free), Result::success);
    EXPECT_EQ(driver.mem_free(more), Result::success);
    EXPECT_EQ(driver.mem_free(more), Result::invalid_value);
}

/// Two thirds of the addresses that are reserved at a time, again and again: none comes twice.
TEST(EmulatedMemory, AddressesAreNotUsedTwice) {
    GpuUnderTest gpu({.architecture = "sm_80", .memory = std::int64_t{1} << 36, .threads = 1});
    std::vector<DevicePtr> all;
    for (int i = 0; i < 6; ++i) {
        all.push_back(gpu.allocate(std::size_t{40} << 30));
        EXPECT_EQ(gpu.driver().mem_free(all.back()), Result::success);
    }
    std::sort(all.begin(), all.end());
    for (std::size_t i = 0; i + 1 < all.size(); ++i) EXPECT_GE(all[i + 1] - all[i], std::size_t{40} << 30);
    // Each is known for what it was.
    for (const DevicePtr one : all) EXPECT_EQ(gpu.driver().mem_free(one), Result::invalid_value);
}

TEST_F(EmulatedStreams, AnUnknownStreamIsRefused) {
    EXPECT_EQ(driver.memset_d8_async(memory, 0, 64, nullptr), Result::invalid_handle);
}

using EmulatedGpuDeathTest = EmulatedStreams;
TEST_F(EmulatedGpuDeathTest, TheHostCannotTouchItsMemory) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "under a sanitizer: it handles the fault";
#endif
    ASSERT_EQ(gpu.driver().memset_d8_async(memory, 0, 64, first), Result::success);
    ASSERT_EQ(gpu.driver().stream_synchronize(first), Result::success);
    const volatile char* const there = reinterpret_cast<const volatile char*>(memory);
    EXPECT_EXIT(std::exit(*there), ::testing::KilledBySignal(SIGSEGV), "");
}

TEST(EmulatedGpuOptions, AreRead) {
    const auto options =
        cuda::parse_emulated_gpu("sm_90a,memory=2G,races=off,threads=3,instructions=9,fail=cuLaunchKernel:7");
    EXPECT_EQ(options.architecture, "sm_90a");
    EXPECT_EQ(options.memory, std::int64_t{2} << 30);
    EXPECT_FALSE(options.races);
    EXPECT_EQ(options.threads, 3);
    EXPECT_EQ(options.max_instructions, 9);
    EXPECT_EQ(options.failing, "cuLaunchKernel");
    EXPECT_EQ(options.failing_call, 7);
}

TEST(EmulatedGpuOptions, AreRefusedWithWhatIsKnown) {
    const auto words = [](const char* text) { return error_of([&] { cuda::parse_emulated_gpu(text); }); };
    EXPECT_EQ(words("sm_12"),
              "EMULATED_GPU is 'sm_12': the architecture 'sm_12' is not known; known are sm_80, "
              "sm_86, sm_89, "
              "sm_90, sm_90a, sm_100; expected an architecture and options, as in "
              "sm_80,memory=2G,races=off,threads=1,fail=cuLaunchKernel:100");
    EXPECT_NE(words("sm_80,memory=lots").find("'lots' is no number from 1 on"), std::string::npos);
    EXPECT_NE(words("sm_80,speed=9").find("'speed=9' is not known"), std::string::npos);
}

TEST(EmulatedGpuOptions, APlantedErrorComesWhenItIsDue) {
    auto options = cuda::parse_emulated_gpu("sm_80,threads=1,fail=cuMemsetD8Async:2");
    cuda::EmulatedGpu gpu(options);
    const Driver driver = gpu.driver();
    Stream stream = nullptr;
    DevicePtr memory = 0;
    ASSERT_EQ(driver.stream_create(&stream, 0), Result::success);
    ASSERT_EQ(driver.mem_alloc(&memory, 16), Result::success);
    EXPECT_EQ(driver.memset_d8_async(memory, 0, 16, stream), Result::success);
    EXPECT_EQ(driver.memset_d8_async(memory, 0, 16, stream), Result::launch_failed);
    EXPECT_EQ(driver.stream_synchronize(stream), Result::launch_failed);
    EXPECT_EQ(
        cuda::words_of(driver, Result::launch_failed),
        "CUDA_ERROR_LAUNCH_FAILED (719): unspecified launch failure; planted: call 2 of cuMemsetD8Async");
}

}  // namespace
}  // namespace mantissa::testing
