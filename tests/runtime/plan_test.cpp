// A plan's facts about itself.
#include "mantissa/runtime/plan.h"
#include "mantissa/graph/graph.h"

#include <gtest/gtest.h>

#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/graph/tensor.h"
#include "tests/support/fused_graph.h"

namespace mantissa {
namespace {

/// A name that no operation has is a mistake, and not one of which there are no kernels.
TEST(Plan, KnowsTheNamesOfOperations) {
    const auto device = make_cpu_device({.threads = 1});
    Graph graph;
    const Tensor x(graph, graph.add_input("x", {DType::f32, {2, 2}}));
    graph.add_result("y", matmul(x, x).value());
    const Plan plan(std::move(graph), *device);
    EXPECT_EQ(plan.kernels_of("matmul").size(), 1u);
    EXPECT_TRUE(plan.kernels_of("attention").empty());
    std::string said;
    try {
        plan.kernels_of("matmull");
    } catch (const std::exception& error) {
        said = error.what();
    }
    EXPECT_NE(said.find("there is no operation 'matmull'"), std::string::npos) << said;
}

/// Compiling is most of the time that a plan takes.
TEST(Plan, ThatIsOnlyReadMakesNoKernels) {
    const auto device = make_cpu_device({.threads = 1});
    if (!device->target().cannot_compile.empty()) GTEST_SKIP() << device->target().cannot_compile;
    Graph graph;
    const Tensor x(graph, graph.add_input("x", {DType::f32, {64, 64}}));
    graph.add_result("y", tanh(exp(x) * x).value());
    const Graph fused = testing::fused(graph);
    const auto milliseconds = [&] {
        double sum = 0;
        for (const KernelListing& kernel : device->compiled_kernels()) sum += kernel.milliseconds;
        return sum;
    };
    const Plan read(fused, *device, MakeKernels::no);
    EXPECT_EQ(device->compiled_kernels().size(), 1u) << "it is named";
    EXPECT_EQ(milliseconds(), 0);
    const Plan run(fused, *device);
    EXPECT_GT(milliseconds(), 0);
    EXPECT_EQ(read.text(), run.text());
}

}  // namespace
}  // namespace mantissa
