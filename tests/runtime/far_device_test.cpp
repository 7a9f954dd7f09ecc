// Who takes a device for the host is found: each fault, planted; and all that the runtime does with addresses
// of a device, done on one that the host cannot touch.
#include "tests/support/far_device.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "mantissa/graph/graph.h"
#include "mantissa/graph/tensor.h"
#include "mantissa/runtime/execution.h"
#include "mantissa/runtime/state_block.h"

namespace mantissa {
namespace {

using testing::CopiesRun;
using testing::FarDevice;

class FarDeviceTest : public ::testing::TestWithParam<CopiesRun> {
  protected:
    void SetUp() override {
        if (std::string reason = codegen::Compiler::refusal(); !reason.empty()) GTEST_SKIP() << reason;
        device = std::make_unique<FarDevice>(GetParam());
        x = device->allocate_zeroed(8, "x");
        y = device->allocate_zeroed(8, "y");
        pinned = device->allocate_on_host(8, "a number");
        const BoundStep step = BoundCopy{.from = {x->data(), 8}, .to = y->data()};
        x_to_y = device->bind({&step, 1});
    }
    double& number() { return *reinterpret_cast<double*>(pinned->bytes().data()); }
    double value(const DeviceMemory& memory) {
        double value = 0;
        device->copy_to_host(std::as_writable_bytes(std::span<double>(&value, 1)), memory.data());
        return value;
    }

    std::unique_ptr<Device> device;
    std::unique_ptr<DeviceMemory> x, y;
    std::unique_ptr<HostMemory> pinned;
    std::unique_ptr<Program> x_to_y;
};

INSTANTIATE_TEST_SUITE_P(CopiesRun, FarDeviceTest, ::testing::Values(CopiesRun::late, CopiesRun::early),
                         [](const auto& of) { return of.param == CopiesRun::late ? "late" : "early"; });

TEST_P(FarDeviceTest, WhoReadsAResultTooEarlyReadsNaN) {
    number() = 5;
    device->queue_to_host(Queue::work, pinned->bytes(), x->data());
    EXPECT_TRUE(std::isnan(number()));
    device->wait(*device->record());
    EXPECT_EQ(number(), 0);
}

TEST_P(FarDeviceTest, ACopyThatDoesNotWaitForTheWorkComesBeforeIt) {
    number() = 3;
    x_to_y->run();
    device->queue_to_device(Queue::copies, x->data(), pinned->bytes());
    device->wait(*device->record());
    EXPECT_EQ(value(*y), GetParam() == CopiesRun::early ? 3 : 0) << "what was to be read is written over";
}

TEST_P(FarDeviceTest, WorkThatDoesNotWaitForACopyComesBeforeIt) {
    number() = 3;
    device->queue_to_device(Queue::copies, x->data(), pinned->bytes());
    x_to_y->run();
    device->wait(*device->record());
    EXPECT_EQ(value(*y), GetParam() == CopiesRun::late ? 0 : 3);
}

TEST_P(FarDeviceTest, EachWaitsForTheOther) {
    number() = 3;
    x_to_y->run();
    device->queue_wait(Queue::copies, *device->record());
    device->queue_to_device(Queue::copies, x->data(), pinned->bytes());
    device->wait(*device->record());
    EXPECT_EQ(value(*y), 0);
    device->queue_wait(Queue::work, *device->record(Queue::copies));
    x_to_y->run();
    EXPECT_EQ(value(*y), 3);
}

TEST_P(FarDeviceTest, CopiesAreQueuedFromMemoryOfItsOwnOnTheHost) {
    double own = 0;
    const auto bytes = std::as_writable_bytes(std::span<double>(&own, 1));
    const auto expect_refused = [](const auto& action) {
        try {
            action();
            ADD_FAILURE() << "taken";
        } catch (const InternalError& error) {
            const std::string words = error.what();
            EXPECT_NE(words.find("copies are queued from and to memory of allocate_on_host"),
                      std::string::npos)
                << words;
        }
    };
    expect_refused([&] { device->queue_to_device(Queue::copies, x->data(), bytes); });
    expect_refused([&] { device->queue_to_host(Queue::work, bytes, x->data()); });
}

/// States `a` and `b` of 40 numbers; a run makes b twice as large, and a what b was and 1.
TEST_P(FarDeviceTest, StatesAreReadAndWrittenByCopies) {
    Graph graph;
    const auto state = [&](const char* name, double mean) {
        return Tensor(graph, graph.add_state({.name = name,
                                              .type = {DType::f32, {2, 20}},
                                              .initializer = {.mean = mean},
                                              .zero_rows = 1}));
    };
    state("a", 1);
    const Tensor b = state("b", 2);
    graph.add_update(0, (b + 1.0).value());
    graph.add_update(1, (b * 2.0).value());
    const Plan plan(graph, *device);
    StateBlock block(*device, plan.graph().states());
    block.initialize(1);
    const auto arena = device->allocate(static_cast<std::size_t>(plan.memory().arena_bytes), "arena");
    Execution execution(plan, block, *arena);
    EXPECT_EQ(block.read_f32("a"), std::vector<float>(40, 1));
    std::vector<float> values(40);
    std::iota(values.begin(), values.end(), 0.0F);
    block.write("b", std::as_bytes(std::span<const float>(values)));
    execution.run();
    for (float& number : values) ++number;
    EXPECT_EQ(block.read_f32("a"), values);
    float last = 0;
    block.read("b", 39 * 4, std::as_writable_bytes(std::span<float>(&last, 1)));
    EXPECT_EQ(last, 78);
    State row = plan.graph().states()[0];
    row.type.shape = {1, 20};
    EXPECT_EQ(StateBlock(*device, std::span<const State>(&row, 1), block, 1).read_f32("a"),
              std::vector<float>(values.begin() + 20, values.end()));
}

/// The sum x + 1 in every way in which a run can be started and its results be had.
TEST_P(FarDeviceTest, ValuesOfARunAreReadByCopies) {
    Graph graph;
    const Tensor in(graph, graph.add_input("x", {DType::f32, {40}}));
    const Value sum = (in + 1.0).value();
    graph.add_result("sum", sum);
    graph.add_result("first", slice(Tensor(graph, sum), 0, 0, 1).value());
    const Plan plan(graph, *device);
    StateBlock state(*device, plan.graph().states());
    const auto arena = device->allocate(static_cast<std::size_t>(plan.memory().arena_bytes), "arena");
    Execution execution(plan, state, *arena);
    const auto expect_sum = [&](float expected) {
        std::vector<float> all(40);
        const std::vector<std::byte> bytes = execution.read_result("sum");
        std::memcpy(all.data(), bytes.data(), bytes.size());
        EXPECT_EQ(all, std::vector<float>(40, expected));
        EXPECT_EQ(execution.read_scalar("first"), expected);
        EXPECT_TRUE(execution.read_in_pieces(sum, [&](std::int64_t, std::span<const std::byte> piece) {
            return std::memcmp(piece.data(), all.data(), piece.size()) == 0;
        }));
    };
    const auto give = [&](float number) {
        execution.set_input("x", std::span<const float>(std::vector<float>(40, number)));
    };
    give(1);
    execution.run();
    expect_sum(2);
    give(2);
    Profile profile;
    execution.run(&profile);
    EXPECT_EQ(profile.size(), plan.nodes().size());
    expect_sum(3);
    give(3);
    execution.start();
    give(4);
    execution.finish();
    expect_sum(4);
    execution.run();
    expect_sum(5);
}

}  // namespace
}  // namespace mantissa
