// Inputs that are given while runs are under way: each run has its own, on devices that are late and on one
// that is not.
#include "mantissa/runtime/input_staging.h"
#include "mantissa/graph/graph.h"

#include <gtest/gtest.h>

#include <cmath>

#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/graph/tensor.h"
#include "mantissa/runtime/execution.h"
#include "mantissa/runtime/state_block.h"
#include "tests/support/far_device.h"

namespace mantissa {
namespace {

/// Adds x * y to a state in each run.
struct Sum {
    explicit Sum(std::unique_ptr<Device> on) : device(std::move(on)) {
        Graph graph;
        const Type type{DType::f32, {3}};
        const Tensor x(graph, graph.add_input("x", type)), y(graph, graph.add_input("y", type));
        const Tensor sum(graph, graph.add_state({.name = "sum", .type = type, .initializer = {}}));
        const Tensor next = sum + x * y;
        graph.add_update(0, next.value());
        graph.add_result("first", slice(next, 0, 0, 1).value());
        plan = std::make_unique<Plan>(std::move(graph), *device);
        state = std::make_unique<StateBlock>(*device, plan->graph().states());
        arena = device->allocate(static_cast<std::size_t>(plan->memory().arena_bytes), "arena");
        execution = std::make_unique<Execution>(*plan, *state, *arena);
    }
    void give(const char* name, float number) {
        execution->set_input(name, std::span<const float>(std::vector<float>(3, number)));
    }
    std::vector<float> value() const { return state->read_f32("sum"); }

    std::unique_ptr<Device> device;
    std::unique_ptr<Plan> plan;
    std::unique_ptr<StateBlock> state;
    std::unique_ptr<DeviceMemory> arena;
    std::unique_ptr<Execution> execution;
};

std::vector<std::unique_ptr<Device>> devices() {
    std::vector<std::unique_ptr<Device>> all = testing::far_devices();
    all.push_back(make_cpu_device({.threads = 1}));
    return all;
}

TEST(InputStaging, EachRunHasWhatWasGivenBeforeItAndAfterTheLast) {
    for (std::unique_ptr<Device>& device : devices()) {
        Sum sum(std::move(device));
        float expected = 0;
        for (int round = 0; round < 3; ++round) {
            for (const float x : {1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f, 7.0f}) {
                sum.give("x", -x);
                sum.give("x", x);  // given twice: the last counts
                if (x < 3) sum.give("y", 10 * x);
                sum.execution->start();
                expected += x * 10 * std::min(x, 2.0f);  // from the third run on the y of the second stands
            }
            sum.execution->finish();
            EXPECT_EQ(sum.execution->read_scalar("first"), expected);
            EXPECT_EQ(sum.value(), std::vector<float>(3, expected));
        }
    }
}

TEST(InputStaging, PlansCountTheRoomThatItTakes) {
    Sum direct(make_cpu_device({.threads = 1}));
    EXPECT_EQ(direct.plan->input_bytes(), 2 * direct.device->target().alignment);
    for (std::unique_ptr<Device>& device : testing::far_devices()) {
        Sum staged(std::move(device));
        EXPECT_EQ(staged.plan->input_bytes(), 3 * 2 * 256);
    }
}

TEST(InputStaging, SmallResultsAreThereWhenARunIsDone) {
    for (std::unique_ptr<Device>& device : testing::far_devices()) {
        Sum sum(std::move(device));
        sum.give("x", 2);
        sum.give("y", 3);
        sum.execution->start();
        EXPECT_TRUE(std::isnan(sum.execution->read_scalar("first"))) << "it was not waited for";
        sum.execution->finish();
        EXPECT_EQ(sum.execution->read_scalar("first"), 6);
        const auto never = [](NodeId) { return false; };
        const auto always = [](NodeId) { return true; };
        EXPECT_FALSE(sum.execution->run_while(always, never));
        EXPECT_TRUE(sum.execution->run_while(always, always));
        EXPECT_EQ(sum.execution->read_scalar("first"), sum.value()[0]);
    }
}

}  // namespace
}  // namespace mantissa
