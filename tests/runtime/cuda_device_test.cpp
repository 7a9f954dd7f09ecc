// An NVIDIA GPU as a device, on the emulated one: memory, copies, programs, events, and what is said where
// something is missing or wrong.
#include "mantissa/device/cuda/cuda_device.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "mantissa/graph/graph.h"
#include "mantissa/graph/tensor.h"
#include "mantissa/runtime/execution.h"
#include "mantissa/runtime/state_block.h"
#include "tests/support/compiling_test.h"
#include "tests/support/emulated_device.h"
#include "tests/support/error_of.h"
#include "tests/support/run_graph.h"

namespace mantissa {
namespace {

using testing::EmulatedDevice;

class CudaDeviceTest : public testing::CompilingTest {};

TEST_F(CudaDeviceTest, SaysWhatItIs) {
    const EmulatedDevice gpu({.architecture = "sm_90a"});
    const Target& target = (*gpu).target();
    EXPECT_EQ(target.device, "cuda");
    EXPECT_EQ(target.name, "emulated GPU sm_90a (as H100)");
    EXPECT_EQ(target.isa, "sm_90, emulated GPU sm_90a");
    EXPECT_EQ(target.alignment, 256);
    EXPECT_TRUE(target.overlaps_copies);
    EXPECT_GT(target.fusion.instructions_per_byte, 0.2);
    EXPECT_LT(target.fusion.instructions_per_byte, 2);
}

TEST_F(CudaDeviceTest, MemoryThatIsNotThereIsNamed) {
    const EmulatedDevice gpu({.memory = 1 << 16});
    EXPECT_LE((*gpu).free_memory(), 1 << 16);
    EXPECT_GT((*gpu).free_memory(), 1 << 15);
    const std::string words = testing::error_of([&] { (*gpu).allocate(1 << 17, "activations"); });
    EXPECT_TRUE(words.starts_with("activations: 131072 bytes of the GPU's memory are needed, ")) << words;
    const auto half = (*gpu).allocate(1 << 14, "half");
    EXPECT_EQ(half->size(), std::size_t{1} << 14);
}

TEST_F(CudaDeviceTest, CopiesComeThereAndBack) {
    const EmulatedDevice gpu;
    const auto memory = (*gpu).allocate_zeroed(64, "numbers");
    std::vector<std::byte> back(64, std::byte{1});
    (*gpu).copy_to_host(back, memory->data());
    EXPECT_EQ(back, std::vector<std::byte>(64));
    const std::vector<std::byte> there(32, std::byte{7});
    (*gpu).copy_to_device(memory->data() + 32, there);
    (*gpu).copy_to_host(back, memory->data());
    EXPECT_EQ(back[31], std::byte{0});
    EXPECT_EQ(back[32], std::byte{7});
}

/// One stream waits for what the other does; neither does more than it was asked to.
TEST_F(CudaDeviceTest, QueuesWaitForEvents) {
    const EmulatedDevice gpu;
    Device& device = *gpu;
    const auto memory = device.allocate_zeroed(8, "a number");
    const auto pinned = device.allocate_on_host(16, "numbers");
    std::memset(pinned->bytes().data(), 5, 16);
    device.queue_to_device(Queue::copies, memory->data(), pinned->bytes().subspan(0, 8));
    const auto copied = device.record(Queue::copies);
    device.queue_wait(Queue::work, *copied);
    device.queue_to_host(Queue::work, pinned->bytes().subspan(8, 8), memory->data());
    std::memset(pinned->bytes().data() + 8, 0, 8);
    const auto done = device.record();
    EXPECT_EQ(pinned->bytes()[8], std::byte{0});
    device.wait(*done);
    EXPECT_EQ(pinned->bytes()[8], std::byte{5});
    EXPECT_GE(device.seconds_between(*copied, *done), 0);
}

TEST_F(CudaDeviceTest, AnIdOutsideTheTableIsNamed) {
    const EmulatedDevice gpu;
    const auto lookup = [&](double id) {
        Graph graph;
        const Tensor table(graph, graph.add_input("table", {DType::f32, {5, 4}}));
        const Tensor ids(graph, graph.add_input("ids", {DType::i32, {3}}));
        graph.add_result("y", embedding(table, ids).value());
        return testing::error_of([&] {
            testing::run(graph, ReferenceFeed{{"table", std::vector<double>(20, 1)}, {"ids", {1, id, 0}}},
                         *gpu);
        });
    };
    EXPECT_EQ(lookup(7), "embedding: id 7 is outside a table of 5 rows");
    EXPECT_EQ(lookup(-1), "embedding: id -1 is outside a table of 5 rows");
    EXPECT_EQ(lookup(4), "no error") << "it was told once";
}

/// The first run records; the others replay. What a program computes from is what lies there when it runs.
TEST_F(CudaDeviceTest, AProgramIsOneGraph) {
    EmulatedDevice gpu;
    gpu.gpu.count(true);
    Graph graph;
    const Tensor x(graph, graph.add_input("x", {DType::f32, {300}}));
    graph.add_result("y", exp(x * 2.0).value());
    const Plan plan(graph, *gpu);
    StateBlock state(*gpu, graph.states());
    const auto arena = (*gpu).allocate(static_cast<std::size_t>(plan.memory().arena_bytes), "arena");
    Execution execution(plan, state, *arena);
    for (const float value : {0.0f, 1.0f}) {
        execution.set_input("x", testing::stored(std::vector<double>(300, value), DType::f32));
        execution.run();
        EXPECT_NEAR(testing::loaded(execution.read_result("y"), DType::f32)[299], std::exp(2 * value), 1e-5);
    }
    EXPECT_EQ(gpu.gpu.take_counts().size(), 4u);  // two kernels, twice
}

TEST_F(CudaDeviceTest, AGpuThatIsTooOldIsRefused) {
    const cuda::EmulatedGpu gpu({});
    cuda::Libraries libraries{gpu.driver(), gpu.cublaslt()};
    libraries.driver.device_get_attribute = [ask = libraries.driver.device_get_attribute](
                                                int* value, cuda::DeviceAttribute attribute,
                                                cuda::Device of) {
        if (attribute != cuda::DeviceAttribute::compute_capability_major) return ask(value, attribute, of);
        return *value = 7, cuda::Result::success;
    };
    const auto device = make_cuda_device(std::move(libraries));
    ASSERT_FALSE(device);
    EXPECT_EQ(device.reason(),
              "emulated GPU sm_80 (as A100) has compute capability 7.0; 8.0 is needed (Ampere or newer)");
}

}  // namespace
}  // namespace mantissa
