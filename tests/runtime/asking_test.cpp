// Asking is not doing: a kernel that refuses, or whose answer nobody holds when kernels are made, leaves no
// code behind.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "mantissa/codegen/compiler.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/runtime/plan.h"
#include "tests/support/op_cases.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tested_gpu.h"

namespace mantissa {
namespace {

using testing::OpCase;
using testing::Recorded;

/// The answers of all kernels to the last node of each case, as passes ask and as a plan does. The problem
/// of a dropped answer was asked twice: what is remembered of it holds nothing either.
std::vector<PreparedKernel> answers(const std::vector<OpCase>& cases, const Device& device) {
    std::vector<PreparedKernel> all;
    for (const OpCase& test : cases) {
        const Recorded recorded(test);
        const Node& node = recorded.graph.node(recorded.outputs[0].value().node);
        machine_for_passes(device).kernel_of(recorded.graph, node);
        const std::vector<Type> inputs = recorded.graph.input_types(node);
        for (const Kernel& kernel : device.kernels(node.op->name))
            if (auto answer = kernel.prepare({*node.op, inputs, node.outputs, node.attributes}))
                all.push_back(std::move(*answer));
    }
    return all;
}

std::ptrdiff_t files_in(const std::filesystem::path& folder) {
    std::filesystem::recursive_directory_iterator entries(folder), none;
    return std::count_if(entries, none, [](const auto& entry) { return entry.is_regular_file(); });
}

TEST(Asking, OnTheCpuCompilesNothingForAKernelThatIsRefusedOrDropped) {
    const TemporaryDirectory kept;
    const auto device = make_cpu_device({.threads = 1, .kernels = kept.path()});
    if (!device->target().cannot_compile.empty()) GTEST_SKIP() << device->target().cannot_compile;
    EXPECT_GT(answers(testing::op_cases(), *device).size(), 100U);
    device->compile_kernels();
    EXPECT_EQ(files_in(kept.path()), 0);
    EXPECT_EQ(device->compiled_kernels().size(), 0U);
    // Held answers are made, and counted.
    std::vector<OpCase> exponential = testing::op_cases();
    std::erase_if(exponential, [](const OpCase& test) { return test.op != "exp"; });
    const std::vector<PreparedKernel> held = answers(exponential, *device);
    device->compile_kernels();
    EXPECT_GT(files_in(kept.path()), 0);
}

TEST(Asking, OnAGpuCompilesNothingForAKernelThatIsRefusedOrDropped) {
    if (std::string reason = codegen::Compiler::refusal(); !reason.empty()) GTEST_SKIP() << reason;
    const testing::TestedGpu gpu;
    const std::size_t before = (*gpu).compiled_kernels().size();
    EXPECT_GT(answers(testing::op_cases(), *gpu).size(), 100U);
    (*gpu).compile_kernels();
    EXPECT_EQ((*gpu).compiled_kernels().size(), before);
}

}  // namespace
}  // namespace mantissa
