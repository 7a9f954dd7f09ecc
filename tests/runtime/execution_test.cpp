// What an execution shows of its values, and what a device answers for the passes.
#include "mantissa/runtime/execution.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/graph/tensor.h"
#include "mantissa/passes/pipeline.h"

namespace mantissa {
namespace {

/// Adds 1 to each of the numbers x, a few more than one piece.
struct AddsOne {
    std::vector<float> x = std::vector<float>((1 << 16) + 5);
    std::unique_ptr<Device> device = make_cpu_device({.threads = 1});
    std::unique_ptr<Plan> plan;
    Value y;

    AddsOne() {
        std::iota(x.begin(), x.end(), 0.0f);
        Graph graph;
        const Type type{DType::f32, {static_cast<std::int64_t>(x.size())}};
        y = (Tensor(graph, graph.add_input("x", type)) + 1.0).value();
        graph.add_result("y", y);
        plan = std::make_unique<Plan>(std::move(graph), *device);
    }

    template <class Look>
    void look_after(Look&& look) {
        StateBlock state(*device, plan->graph().states());
        const auto arena = device->allocate(static_cast<std::size_t>(plan->memory().arena_bytes), "arena");
        Execution execution(*plan, state, *arena);
        execution.set_input("x", std::span<const float>(x));
        execution.run();
        look(execution);
    }
};

TEST(Execution, ShowsAValueInPiecesThatTogetherAreAllOfIt) {
    AddsOne adds;
    adds.look_after([&](const Execution& execution) {
        std::vector<std::int64_t> firsts;
        std::vector<float> all;
        EXPECT_TRUE(
            execution.read_in_pieces(adds.y, [&](std::int64_t first, std::span<const std::byte> bytes) {
                firsts.push_back(first);
                std::vector<float> numbers(bytes.size() / sizeof(float));
                std::memcpy(numbers.data(), bytes.data(), bytes.size());
                all.insert(all.end(), numbers.begin(), numbers.end());
                return true;
            }));
        EXPECT_EQ(firsts, (std::vector<std::int64_t>{0, 1 << 16}));
        std::vector<float> expected = adds.x;
        for (float& number : expected) number += 1;
        EXPECT_EQ(all, expected);
    });
}

TEST(Execution, ReadsNoFurtherThanAsked) {
    AddsOne adds;
    adds.look_after([&](const Execution& execution) {
        int pieces = 0;
        EXPECT_FALSE(execution.read_in_pieces(adds.y, [&](std::int64_t, std::span<const std::byte>) {
            ++pieces;
            return false;
        }));
        EXPECT_EQ(pieces, 1);
    });
}

TEST(PipelineOn, AsksTheDeviceAndKeepsWhatWasChosen) {
    ::setenv("NVIDIA_TF32_OVERRIDE", "0", 1);
    const auto device = make_cpu_device({.threads = 1});
    ::unsetenv("NVIDIA_TF32_OVERRIDE");
    const PipelineOptions options = pipeline_on(*device, {.policy = find_policy("bf16"), .lay_out = true});
    EXPECT_TRUE(options.lay_out);
    EXPECT_EQ(options.policy.low, DType::bf16);
    EXPECT_EQ(options.extent_multiple, device->target().extent_multiple);
    EXPECT_EQ(options.cannot_fuse, device->target().cannot_compile);
    EXPECT_EQ(options.cannot_multiply_tf32, "NVIDIA_TF32_OVERRIDE=0 forbids TF32");

    Graph graph;
    const auto gelu_of = [&](DType dtype) {
        const Tensor x(graph, graph.add_input(std::string(name_of(dtype)), {dtype, {4}}));
        return graph.node(gelu(x).value().node);
    };
    EXPECT_TRUE(options.has_kernel(graph, gelu_of(DType::f32)));
    EXPECT_FALSE(options.has_kernel(graph, gelu_of(DType::f64))) << "it is expanded, then";
}

}  // namespace
}  // namespace mantissa
