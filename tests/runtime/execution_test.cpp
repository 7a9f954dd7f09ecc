// The values that an execution shows, and what a device answers for the passes.
#include "mantissa/runtime/execution.h"
#include "mantissa/graph/graph.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/graph/tensor.h"
#include "mantissa/passes/pipeline.h"
#include "mantissa/runtime/state_block.h"
#include "tests/support/error_of.h"

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

TEST(Execution, AStateThatIsReadBehindItsNewValueIsReplacedAfterTheRun) {
    const auto device = make_cpu_device({.threads = 1});
    Graph graph;
    const Tensor w(graph, graph.add_state({.name = "w", .type = {DType::f32, {3}}, .initializer = {}}));
    const Tensor twice = w * 2.0;
    graph.add_result("read", (w + 1.0).value());
    graph.add_update(graph.find_state("w"), twice.value());
    const Plan plan(std::move(graph), *device);
    ASSERT_EQ(plan.memory().copied_updates.size(), 1u) << "the new value is written over the old one";
    StateBlock state(*device, plan.graph().states());
    const std::vector<float> first{1, 2, 3};
    state.write("w", std::as_bytes(std::span(first)));
    const auto arena = device->allocate(static_cast<std::size_t>(plan.memory().arena_bytes), "arena");
    Execution execution(plan, state, *arena);
    const auto numbers = [](const std::vector<std::byte>& bytes) {
        std::vector<float> all(bytes.size() / sizeof(float));
        std::memcpy(all.data(), bytes.data(), bytes.size());
        return all;
    };
    execution.run();
    EXPECT_EQ(numbers(execution.read_result("read")), (std::vector<float>{2, 3, 4}));
    EXPECT_EQ(numbers(state.read("w")), (std::vector<float>{2, 4, 6}));
    execution.run();
    EXPECT_EQ(numbers(execution.read_result("read")), (std::vector<float>{3, 5, 7}));
    EXPECT_EQ(numbers(state.read("w")), (std::vector<float>{4, 8, 12}));
}

/// A plan for prediction over the states of a training: a state of another name or type is named with its
/// line.
TEST(Execution, StatesInputsAndResultsThatAreNotThereAreNamed) {
    const auto device = make_cpu_device({.threads = 1});
    const auto state = [](const char* name, std::int64_t extent) {
        return State{.name = name, .type = {DType::f32, {extent}}, .initializer = {}};
    };
    const auto plan_with = [&](const State& kept) {
        Graph graph;
        const Tensor x(graph, graph.add_input("x", {DType::f32, {3}}));
        const OriginScope scope(graph, "head");
        const LineScope line(graph, std::source_location::current());
        graph.add_result("y", (Tensor(graph, graph.add_state(kept)) + x).value());
        return Plan(std::move(graph), *device);
    };
    const auto run = [&](const Plan& plan, auto&& body) {
        StateBlock trained(*device, std::vector{state("bias", 3), state("weight", 3)});
        const auto arena = device->allocate(static_cast<std::size_t>(plan.memory().arena_bytes), "arena");
        return testing::error_of([&] {
            Execution execution(plan, trained, *arena);
            body(execution);
        });
    };
    const std::string typo = run(plan_with(state("typo", 3)), [](Execution&) {});
    EXPECT_EQ(typo.find("state (traced in head at execution_test.cpp:"), 0u) << typo;
    EXPECT_NE(typo.find("): there is no state 'typo' among these 2: bias, weight"), std::string::npos)
        << typo;
    EXPECT_NE(run(plan_with(state("bias", 1)), [](Execution&) {})
                  .find("'bias' is f32[1], but f32[3] where it is kept"),
              std::string::npos);
    const Plan plan = plan_with(state("bias", 3));
    const std::vector<float> three(3), two(2);
    EXPECT_EQ(run(plan, [&](Execution& e) { e.set_input("typo", std::span(three)); }),
              "the graph has no input 'typo'");
    EXPECT_EQ(run(plan, [&](Execution& e) { e.set_input("x", std::span(two)); }),
              "input 'x' is f32[3], 12 bytes, got 8");
    EXPECT_EQ(run(plan, [](Execution& e) { e.read_result("typo"); }), "the graph has no result 'typo'");
    EXPECT_EQ(run(plan, [](Execution& e) { e.read_scalar("y"); }),
              "result 'y' is no f32 scalar: it has 12 bytes");
}

TEST(MachineForPasses, AsksTheDevice) {
    ::setenv("NVIDIA_TF32_OVERRIDE", "0", 1);
    const auto device = make_cpu_device({.threads = 1});
    ::unsetenv("NVIDIA_TF32_OVERRIDE");
    const Machine machine = machine_for_passes(*device);
    EXPECT_EQ(machine.target.isa, device->target().isa);
    EXPECT_EQ(machine.target.cannot_multiply_tf32, "NVIDIA_TF32_OVERRIDE=0 forbids TF32");

    Graph graph;
    const auto gelu_of = [&](DType dtype) {
        const Tensor x(graph, graph.add_input(std::string(name_of(dtype)), {dtype, {4}}));
        return graph.node(gelu(x).value().node);
    };
    EXPECT_TRUE(machine.has_kernel(graph, gelu_of(DType::f32)));
    EXPECT_FALSE(machine.has_kernel(graph, gelu_of(DType::f64))) << "it is expanded, then";
}

}  // namespace
}  // namespace mantissa
