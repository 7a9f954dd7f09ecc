// Rows of zeros behind a state: kept, viewed by `pad`, and no part of what is read and written.
#include "mantissa/runtime/state_block.h"
#include "mantissa/graph/graph.h"

#include <gtest/gtest.h>

#include <cstring>

#include "mantissa/base/error.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/graph/tensor.h"
#include "mantissa/runtime/execution.h"
#include "tests/support/error_of.h"

namespace mantissa {
namespace {

/// w [3, 2] with two rows of zeros behind it, of which `viewed` are looked at; w doubles in each run.
struct Doubling {
    Graph graph;

    explicit Doubling(std::int64_t viewed = 2) {
        const Tensor w(
            graph,
            graph.add_state(
                {.name = "w", .type = {DType::f32, {3, 2}}, .initializer = {.mean = 1.5}, .zero_rows = 2}));
        graph.add_result("rows", (pad(w, 0, 0, viewed) * 1.0).value());
        graph.add_update(0, (w * 2.0).value());
    }
};

std::vector<float> floats(const std::vector<std::byte>& bytes) {
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
}

/// A weight that is somewhere already is taken from there, and no seed changes it.
TEST(StateBlock, StartsWithTheValuesThatAStateHas) {
    const auto device = make_cpu_device({.threads = 1});
    State given{.name = "given", .type = {DType::f32, {2}}, .initializer = {.mean = 1.5}};
    given.values = [](std::span<std::byte> to) {
        const float values[] = {3, -4};
        ASSERT_EQ(to.size(), sizeof values);
        std::memcpy(to.data(), values, sizeof values);
    };
    const State drawn{.name = "drawn", .type = {DType::f32, {2}}, .initializer = {.mean = 1.5}};
    StateBlock states(*device, std::vector{given, drawn});
    states.initialize(7);
    EXPECT_EQ(floats(states.read("given")), (std::vector<float>{3, -4}));
    EXPECT_EQ(floats(states.read("drawn")), (std::vector<float>{1.5, 1.5}));
}

TEST(StateBlock, RowsOfZerosAreViewedAndNeverWritten) {
    const auto device = make_cpu_device({.threads = 1});
    for (const std::int64_t viewed : {1, 2, 3}) {  // three: more than there are, so a copy
        const Plan plan(Doubling(viewed).graph, *device);
        EXPECT_EQ(plan.kernels_of("pad").size(), viewed == 3 ? 1u : 0u);
        EXPECT_EQ(plan.memory().state_bytes - plan.constant_bytes(), plan.aligned(40));
        StateBlock state(*device, plan.graph().states());
        EXPECT_EQ(state.zero_rows("w"), 2);
        EXPECT_EQ(state.bytes(), plan.aligned(40));
        state.initialize(1);
        const auto arena = device->allocate(static_cast<std::size_t>(plan.memory().arena_bytes), "arena");
        Execution execution(plan, state, *arena);
        for (float value : {1.5f, 3.0f, 6.0f}) {
            EXPECT_EQ(state.read_f32("w"), std::vector<float>(6, value));
            execution.run();
            std::vector<float> rows(6, value);
            rows.resize(static_cast<std::size_t>(6 + 2 * viewed));
            EXPECT_EQ(floats(execution.read_result("rows")), rows);
        }
    }
}

TEST(StateBlock, WithoutThemAPaddedPlanIsRefused) {
    const auto device = make_cpu_device({.threads = 1});
    const Plan plan(Doubling().graph, *device);
    std::vector<State> plain = plan.graph().states();
    plain[0].zero_rows = 1;
    StateBlock state(*device, plain);
    const auto arena = device->allocate(static_cast<std::size_t>(plan.memory().arena_bytes), "arena");
    using testing::error_of;
    EXPECT_NE(error_of<InternalError>([&] {
                  Execution(plan, state, *arena);
              }).find("a padded state lies before rows of zeros"),
              std::string::npos);
    EXPECT_NE(error_of<InternalError>([&] {
                  StateBlock(*device, plan.graph().states(), state);
              }).find("a shared state has rows of zeros"),
              std::string::npos);
}

TEST(StateBlock, UniformNumbersFollowFromSeedNameAndElementAlone) {
    const auto device = make_cpu_device({.threads = 1});
    const Initializer uniform{.kind = Initializer::Kind::uniform, .mean = 0.5, .limit = 0.25};
    const auto numbers = [&](const char* name, std::int64_t count, std::uint64_t seed) {
        Graph graph;
        graph.add_state({.name = name, .type = {DType::f32, {count}}, .initializer = uniform});
        StateBlock state(*device, graph.states());
        state.initialize(seed);
        return state.read_f32(name);
    };
    const std::vector<float> values = numbers("w", 4001, 7);  // the last block of four is cut short
    double sum = 0, squares = 0;
    for (const float value : values) {
        EXPECT_GE(value, 0.25f);
        EXPECT_LT(value, 0.75f);
        const double centred = static_cast<double>(value) - 0.5;
        sum += centred, squares += centred * centred;
    }
    // Deviation 0.25 / sqrt(3) of a number: four of the mean's, and of the variance's.
    EXPECT_NEAR(sum / 4001, 0, 4 * 0.1443 / 63.2);
    EXPECT_NEAR(squares / 4001, 0.0625 / 3, 4 * 0.0186 / 63.2);
    EXPECT_EQ(numbers("w", 3999, 7), std::vector<float>(values.begin(), values.end() - 2));
    EXPECT_NE(numbers("w", 4001, 8), values);
    EXPECT_NE(numbers("v", 4001, 7), values);
}

}  // namespace
}  // namespace mantissa
