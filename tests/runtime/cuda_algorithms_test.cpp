// The choice of cuBLASLt's algorithm for a product, on the emulated GPU with planted times.
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "mantissa/base/error.h"
#include "mantissa/base/file.h"
#include "mantissa/codegen/compiler.h"
#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/tensor.h"
#include "tests/support/emulated_device.h"
#include "tests/support/planted_clock.h"
#include "tests/support/run_graph.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

using testing::PlantedClock;

class CudaAlgorithms : public ::testing::Test {
  protected:
    void SetUp() override {
        if (std::string reason = codegen::Compiler::refusal(); !reason.empty()) GTEST_SKIP() << reason;
    }
    std::filesystem::path file() const { return directory_ / "algorithms"; }
    std::unique_ptr<Device> device(const PlantedClock& clock) const {
        return clock.device({.algorithms = file()});
    }

  private:
    TemporaryDirectory directory_;
};

/// y = x w, x [batch, 24, 40], w [batch, 40, 16].
Graph product(std::int64_t batch = 1, std::int64_t columns = 16) {
    Graph graph;
    const Tensor x(graph, graph.add_input("x", {DType::f32, {batch, 24, 40}}));
    const Tensor w(graph, graph.add_input("w", {DType::f32, {batch, 40, columns}}));
    graph.add_result("y", matmul(x, w).value());
    return graph;
}

/// The algorithm of the plan's only product.
std::string algorithm_of(Device& device, const Graph& graph = product()) {
    const Plan plan(graph, device);
    return plan.nodes().at(0).algorithm;
}

std::vector<std::byte> result_of(Device& device, const Graph& graph) {
    ReferenceFeed feed;
    for (const NodeId id : graph.inputs()) {
        const auto elements = static_cast<std::size_t>(graph.node(id).outputs[0].shape.elements());
        std::vector<double>& values = feed[graph.node(id).attributes.word("name")];
        for (std::size_t i = 0; i < elements; ++i) values.push_back(1.0 / static_cast<double>(i % 97 + 3));
    }
    return testing::run(graph, feed, device).at(0);
}

/// The rates of the device are measured before any plan, by products of which several algorithms are offered.
TEST_F(CudaAlgorithms, PeaksAreThoseOfTheQuickest) {
    const PlantedClock clock({5, 1, 3}, {.memory = 8 << 20});
    const auto gpu = device(clock);
    const auto scratch = gpu->allocate(1 << 10, "copies");
    gpu->measure_peaks(*scratch);
    // A quarter of the memory has room for three matrices of 256 x 256 in FP32, of 512 x 512 in BF16: five
    // products, each timed as below, of which the quickest is then captured once.
    EXPECT_EQ(clock.take_launches(), (std::vector{5 * 7, 5 * 7 + 5, 5 * 7}));
}

TEST_F(CudaAlgorithms, TheQuickestIsTakenAndRuns) {
    const PlantedClock clock({5, 1, 3});
    const auto gpu = device(clock);
    const auto y = result_of(*gpu, product());
    std::vector<int> launches = clock.take_launches();
    // Each is warmed up, timed once, and then five times for at least 0.2 ms.
    EXPECT_EQ(launches, (std::vector{2 + 5, 2 + 5 + 1, 2 + 5}));
    EXPECT_EQ(result_of(*gpu, product()), y);
    EXPECT_EQ(clock.take_launches(), (std::vector{0, 1, 0})) << "times nothing again, and runs the second";
    // It is another than the first, which an emulated GPU takes whose times mean nothing.
    const testing::EmulatedDevice untimed;
    const std::string first = algorithm_of(*untimed), second = algorithm_of(*gpu);
    const std::string words =
        " of cuBLASLt for 1 x f32[24, 40] x f32[40, 16] -> f32[24, 16], aligned to 16 bytes";
    for (const std::string& text : {first, second}) {
        EXPECT_TRUE(text.starts_with("algorithm ")) << text;
        EXPECT_EQ(text.substr(26), words);
    }
    EXPECT_NE(first, second);
    EXPECT_NE(result_of(*untimed, product()), y) << "its sums are added up otherwise";
}

/// Whole numbers, too; in whatever parts they are added up, the sums are the same.
TEST_F(CudaAlgorithms, ProductsOfBytesAreTimed) {
    Graph graph;
    const Tensor x(graph, graph.add_input("x", {DType::f32, {24, 40}}));
    const Tensor w(graph, graph.add_input("w", {DType::f32, {16, 40}}));
    const Tensor quantized[] = {w};
    const std::vector<Tensor> q = call(graph, "quantize_weight", quantized, {{"format", std::string("s8")}});
    const Tensor operands[] = {x, q[0], q[1]};
    graph.add_result("y",
                     call(graph, "quantized_matmul", operands, {{"multiply", std::string("s8")}})[0].value());
    const PlantedClock clock({5, 1, 3});
    const auto gpu = device(clock);
    const auto y = result_of(*gpu, graph);
    EXPECT_EQ(clock.take_launches(), (std::vector{2 + 5, 2 + 5 + 1, 2 + 5}));
    const Plan plan(graph, *gpu);
    EXPECT_EQ(plan.nodes_of("quantized_matmul").at(0)->algorithm.substr(26),
              " of cuBLASLt for 1 x s8[24, 40] x s8[16, 40]^T -> i32[24, 16], aligned to 16 bytes");
    const testing::EmulatedDevice untimed;
    EXPECT_EQ(result_of(*untimed, graph), y);
}

/// Short launches are timed many at a time.
TEST_F(CudaAlgorithms, ShortOnesAreTimedManyAtATime) {
    const PlantedClock clock({0.001, 0.1, 0.15});
    const auto gpu = device(clock);
    algorithm_of(*gpu);
    EXPECT_EQ(clock.take_launches(), (std::vector{2 + 5 * 100, 2 + 5 * 2, 2 + 5 * 2}));
}

TEST_F(CudaAlgorithms, LaterRunsReadItAndTimeNothing) {
    const PlantedClock clock({5, 1, 3});
    const std::string taken = algorithm_of(*device(clock));
    clock.take_launches();
    clock.set({1, 5, 3});
    EXPECT_EQ(algorithm_of(*device(clock)), taken) << "whatever the times are now";
    EXPECT_EQ(clock.take_launches(), (std::vector{0, 0, 0}));
    // Another shape is not known; what is known stays.
    algorithm_of(*device(clock), product(1, 17));
    EXPECT_NE(clock.take_launches(), (std::vector{0, 0, 0}));
    EXPECT_EQ(algorithm_of(*device(clock)), taken);
    EXPECT_EQ(clock.take_launches(), (std::vector{0, 0, 0}));
}

TEST_F(CudaAlgorithms, WithinARunNothingChanges) {
    const PlantedClock clock({5, 1, 3});
    const auto gpu = device(clock);
    const std::string taken = algorithm_of(*gpu);
    clock.set({1, 5, 3});
    std::filesystem::remove(file());
    clock.take_launches();
    EXPECT_EQ(algorithm_of(*gpu), taken);
    EXPECT_EQ(clock.take_launches(), (std::vector{0, 0, 0}));
    EXPECT_NE(algorithm_of(*device(clock)), taken) << "the next run times what is lost";
}

TEST_F(CudaAlgorithms, ADamagedFileIsMadeAgain) {
    const PlantedClock clock({5, 1, 3});
    algorithm_of(*device(clock));
    const std::string whole = read_file(file());
    std::ofstream(file(), std::ios::trunc) << whole.substr(0, whole.size() / 2);
    clock.take_launches();
    algorithm_of(*device(clock));
    EXPECT_NE(clock.take_launches(), (std::vector{0, 0, 0}));
    EXPECT_EQ(read_file(file()), whole);
}

/// Those of another version of the library, or of another GPU, are not taken.
TEST_F(CudaAlgorithms, OfAnotherVersionOrDeviceNothingIsTaken) {
    const PlantedClock clock({5, 1, 3});
    algorithm_of(*device(clock));
    PlantedClock newer({5, 1, 3});
    newer.libraries.blas.get_version = [] { return std::size_t{130200}; };
    algorithm_of(*device(newer));
    EXPECT_NE(newer.take_launches(), (std::vector{0, 0, 0}));
    const PlantedClock another({5, 1, 3}, {.architecture = "sm_90"});
    algorithm_of(*device(another));
    EXPECT_NE(another.take_launches(), (std::vector{0, 0, 0}));
    const std::string text = read_file(file());
    for (const char* const where : {"emulated GPU sm_80 (as A100), cuBLASLt 120803: 1 x f32[24, 40]",
                                    "emulated GPU sm_80 (as A100), cuBLASLt 130200: 1 x f32[24, 40]",
                                    "emulated GPU sm_90 (as H100), cuBLASLt 120803: 1 x f32[24, 40]"})
        EXPECT_NE(text.find(where), std::string::npos) << where << "\n" << text;
}

TEST_F(CudaAlgorithms, WhatDoesNotRunIsNotTaken) {
    const PlantedClock clock({5, 0, 3});
    const auto gpu = device(clock);
    result_of(*gpu, product());
    EXPECT_EQ(clock.take_launches(), (std::vector{2 + 5, 1, 2 + 5 + 1}));
    const PlantedClock none({0, 0, 0});
    try {
        algorithm_of(*none.device());
        ADD_FAILURE() << "an algorithm that does not run was taken";
    } catch (const UserError& error) {
        EXPECT_STREQ(error.what(),
                     "cuBLASLt offers 3 algorithms for 1 x f32[24, 40] x f32[40, 16] -> f32[24, 16], aligned "
                     "to 16 bytes, of which none runs");
    }
}

/// A product that cannot be timed runs by the library's best, which is said and not kept.
TEST_F(CudaAlgorithms, WithoutMemoryTheFirstIsTakenAndNotKept) {
    const PlantedClock clock({5, 1, 3}, {.memory = 1 << 12});
    const std::string taken = algorithm_of(*device(clock));
    EXPECT_NE(taken.find(", not timed for want of memory"), std::string::npos) << taken;
    EXPECT_EQ(clock.take_launches(), (std::vector{0, 0, 0}));
    EXPECT_FALSE(std::filesystem::exists(file()));
}

/// Steps of a batch that no 16 bytes divide allow less than single matrices do.
TEST_F(CudaAlgorithms, AreTimedAtTheAlignmentThatTheBatchHas) {
    const PlantedClock clock({5, 1, 3});
    const auto gpu = device(clock);
    const Graph graph = product(3, 17);
    const std::string taken = algorithm_of(*gpu, graph);
    EXPECT_NE(taken.find("3 x f32[24, 40] x f32[40, 17] -> f32[24, 17], aligned to 16 bytes"),
              std::string::npos)
        << taken;
    Graph odd;
    const Tensor x(odd, odd.add_input("x", {DType::f32, {3, 5, 7}}));
    const Tensor w(odd, odd.add_input("w", {DType::f32, {3, 7, 3}}));
    odd.add_result("y", matmul(x, w).value());
    EXPECT_NE(algorithm_of(*gpu, odd).find("aligned to 4 bytes"), std::string::npos)
        << algorithm_of(*gpu, odd);
    clock.take_launches();
    result_of(*gpu, odd);
    EXPECT_EQ(clock.take_launches(), (std::vector{0, 1, 0}));
}

}  // namespace
}  // namespace mantissa
