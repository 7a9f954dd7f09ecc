// Every operation as a GPU runs it, on the emulated one, against the reference.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>

#include "mantissa/base/error.h"
#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"
#include "mantissa/passes/expand.h"
#include "mantissa/runtime/plan.h"
#include "tests/support/compiling_test.h"
#include "tests/support/emulated_device.h"
#include "tests/support/image_cases.h"
#include "tests/support/kernel_errors.h"
#include "tests/support/random_draws.h"
#include "tests/support/tested_gpu.h"

namespace mantissa {
namespace {

using testing::OpCase;
using testing::Recorded;
using testing::runnable;
using testing::stored_in;
using testing::TestedGpu;
using testing::worst_ratio;

/// The result of a case: its worst error in units of what is allowed and by which of a library's algorithms,
/// or why nothing runs it.
std::string judged(const OpCase& test, Device& device) {
    const Recorded recorded(test);
    try {
        const double worst = worst_ratio(test, recorded.graph, recorded.feed, device);
        if (worst <= 1) return "";
        const Plan plan(testing::runnable(recorded.graph, device), device);
        return fmt::format("off by {} times what is allowed; {}", worst, plan.nodes().back().algorithm);
    } catch (const UserError& error) {
        return error.what();
    }
}

class CudaKernels : public testing::CompilingTest {};

TEST_F(CudaKernels, AgreeWithTheReference) {
    const TestedGpu gpu;
    for (const OpCase& test : testing::op_cases()) EXPECT_EQ(judged(test, *gpu), "") << test.name;
}

/// In how many launches a case's operation runs.
std::int64_t launches_of(Device& device, const Recorded& recorded) {
    const Plan plan(recorded.graph, device);
    std::int64_t launches = 0;
    for (const PlannedNode& node : plan.nodes()) launches += node.launches;
    return launches;
}

/// Parts of one launch have the bits of launches of their own.
TEST_F(CudaKernels, ManySmallTensorsTakeFewLaunches) {
    const TestedGpu gpu;
    int cases = 0;
    for (const OpCase& test : testing::op_cases()) {
        const Recorded recorded(test);
        if (test.name == "75 joined updates") {
            ++cases;
            // 4,096 bytes of parameters hold 33 of them: addresses of 9 operands and 4 outputs, and 2
            // numbers.
            EXPECT_EQ(launches_of(*gpu, recorded), 3);
            const Graph apart = expand(recorded.graph, [](const Graph&, const Node& node) {
                return node.op->name == "joined_updates";
            });
            EXPECT_EQ(testing::run(recorded.graph, recorded.feed, *gpu),
                      testing::run(apart, recorded.feed, *gpu));
        }
        if (test.name == "global_norm of many gradients") {
            ++cases;
            EXPECT_EQ(launches_of(*gpu, recorded), 4);  // two tables, their sum, its root
        }
    }
    EXPECT_EQ(cases, 2);
}

/// Operations that could be taken apart, and then would be right, too.
TEST_F(CudaKernels, TheFusedLinearCrossEntropyIsTakenWhole) {
    const TestedGpu gpu;
    for (const OpCase& test : testing::op_cases()) {
        if (test.op != "linear_cross_entropy") continue;
        const Recorded recorded(test);
        const Node& node = recorded.graph.node(recorded.outputs[0].value().node);
        std::vector<Type> inputs;
        for (const Value& value : node.inputs) inputs.push_back(recorded.graph.type(value));
        const auto prepared =
            (*gpu).kernels(test.op)[0].prepare({*node.op, inputs, node.outputs, node.attributes});
        if (inputs[0].shape[0] == 1)
            EXPECT_EQ(prepared.reason(), "of one row it is no nest");
        else
            EXPECT_TRUE(prepared) << test.name << ": " << prepared.reason();
    }
}

/// The kernel that runs a case's last node, or each one's reason.
std::string kernel_of_case(const OpCase& test, Device& device) {
    const Recorded recorded(test);
    const Node& node = recorded.graph.node(recorded.outputs[0].value().node);
    std::vector<Type> inputs;
    for (const Value& value : node.inputs) inputs.push_back(recorded.graph.type(value));
    std::string reasons;
    for (const Kernel& kernel : device.kernels(node.op->name)) {
        const auto prepared = kernel.prepare({*node.op, inputs, node.outputs, node.attributes});
        if (prepared) return kernel.name;
        reasons += prepared.reason() + "; ";
    }
    return reasons;
}

/// Windows, strides, paddings and sizes that leave pixels over, drawn at random.
TEST_F(CudaKernels, ConvolutionsOfAnyGeometryAgreeWithTheReference) {
    const TestedGpu gpu;
    std::mt19937 random(1);
    const auto draw = [&](int least, int most) {
        return std::uniform_int_distribution<std::int64_t>(least, most)(random);
    };
    for (int draws = testing::random_draws(40); draws > 0; --draws) {
        const std::int64_t groups = draw(0, 3) == 0 ? 2 : 1, channels = draw(1, 4),
                           filters = groups * draw(1, 4);
        const Conv2dOptions options{.stride = {draw(1, 3), draw(1, 3)},
                                    .padding = {draw(0, 2), draw(0, 2), draw(0, 2), draw(0, 2)},
                                    .groups = groups};
        const Shape images{draw(1, 3), draw(4, 9), draw(4, 9), groups * channels},
            filter{draw(1, 3), draw(1, 3), channels, filters};
        const std::string name =
            fmt::format("images {}, filter {}, stride {}, padding {}", images.text(), filter.text(),
                        fmt::join(options.stride, " "), fmt::join(options.padding, " "));
        for (const OpCase& test : testing::cases_of_convolution(name, images, filter, options)) {
            EXPECT_EQ(judged(test, *gpu), "") << test.name;
            EXPECT_EQ(judged(*stored_in(DType::bf16, test), *gpu), "") << test.name << " in bf16";
        }
    }
}

bool is_convolution(const OpCase& test) { return test.op.rfind("conv2d", 0) == 0; }

/// Whether the pixels of the images are rows of a matrix product.
bool is_product(const OpCase& test) {
    return test.name.find(" 1x1") != std::string::npos &&
           (test.op != "conv2d_input_gradient" || test.name.find("stride") == std::string::npos);
}

/// Whether each channel has a filter.
bool is_depthwise(const OpCase& test) { return test.name.find("of each channel") != std::string::npos; }

TEST_F(CudaKernels, ConvolutionsAreCudnnsOrProducts) {
    const testing::EmulatedDevice gpu;
    int products = 0;
    for (const OpCase& test : testing::op_cases()) {
        if (!is_convolution(test) || is_depthwise(test)) continue;
        const std::string library = is_product(test) ? "cublasLt" : "cudnn";
        products += is_product(test) ? 1 : 0;
        EXPECT_EQ(kernel_of_case(test, *gpu), library + " f32*f32+f32 sm_80") << test.name;
        for (const DType dtype : {DType::bf16, DType::f16}) {
            const std::optional<OpCase> shorter = stored_in(dtype, test);
            const std::string name(name_of(dtype));
            EXPECT_EQ(kernel_of_case(*shorter, *gpu), library + " " + name + "*" + name + "+f32 tensor cores")
                << test.name;
        }
    }
    EXPECT_EQ(products, 5);
}

/// Gradients of filters with several taps, in tiles that are full and that are not, by blocks of one stage
/// and of several.
TEST_F(CudaKernels, FilterGradientsInTilesAgreeWithTheReference) {
    struct Sizes {
        Shape images, filter;
        Conv2dOptions options;
    };
    const std::vector<Sizes> all{
        {{2, 14, 14, 64}, {3, 3, 64, 64}, {.padding = {1, 1, 1, 1}}},
        {{2, 7, 7, 128}, {3, 3, 128, 80}, {.padding = {1, 1, 1, 1}}},
        {{2, 9, 10, 64}, {3, 3, 64, 48}, {.stride = {2, 2}, .padding = {0, 1, 2, 0}}},
        {{2, 9, 13, 48}, {3, 3, 48, 64}, {.padding = {2, 2, 2, 2}, .dilation = {2, 2}}},
        {{1, 7, 33, 24}, {1, 7, 24, 64}, {.padding = {0, 0, 3, 3}}},
        {{1, 16, 20, 128}, {5, 5, 128, 64}, {.padding = {2, 2, 2, 2}}},
        {{8, 30, 40, 32}, {3, 3, 32, 32}, {.padding = {1, 1, 1, 1}}},
    };
    const TestedGpu gpu;
    DType dtype = DType::bf16;
    for (const auto& [images, filter, options] : all) {
        OpCase test = testing::cases_of_convolution(fmt::format("{} {}", images.text(), filter.text()),
                                                    images, filter, options)[2];
        const Recorded recorded(test);
        const Node& node = recorded.graph.node(recorded.outputs[0].value().node);
        test.build = [in_f32 = node.attributes.with("output", DType::f32), &op = node.op->name](
                         Graph& graph, const std::vector<Tensor>& inputs) {
            return call(graph, op, inputs, in_f32);
        };
        // By turns in one of the two formats, which differ in one instruction.
        dtype = dtype == DType::bf16 ? DType::f16 : DType::bf16;
        const OpCase shorter = *stored_in(dtype, test);
        const std::string name(name_of(dtype));
        EXPECT_EQ(kernel_of_case(shorter, *gpu),
                  "tiles of windows " + name + "*" + name + "+f32 tensor cores")
            << test.name;
        EXPECT_EQ(judged(shorter, *gpu), "") << test.name << " in " << name;
    }
}

TEST_F(CudaKernels, ConvolutionsOfEachChannelAreOwn) {
    const testing::EmulatedDevice gpu;
    int cases = 0;
    for (const OpCase& test : testing::op_cases()) {
        if (!is_convolution(test) || !is_depthwise(test)) continue;
        ++cases;
        EXPECT_EQ(kernel_of_case(test, *gpu), "depthwise f32*f32+f32 sm_80") << test.name;
        EXPECT_EQ(kernel_of_case(*stored_in(DType::bf16, test), *gpu), "depthwise bf16*bf16+f32 sm_80")
            << test.name;
    }
    EXPECT_EQ(cases, 38);
}

/// Without the library they are slow, and as right.
TEST_F(CudaKernels, WithoutCudnnConvolutionsAreOwn) {
    const cuda::EmulatedGpu emulated({});
    const auto gpu = std::move(
        *make_cuda_device({emulated.driver(), emulated.cublaslt(), Unexpected{"there is no cuDNN here"}}));
    for (const OpCase& test : testing::op_cases()) {
        if (!is_convolution(test) || is_product(test) || is_depthwise(test)) continue;
        EXPECT_EQ(kernel_of_case(test, *gpu), "a thread an element f32*f32+f32 sm_80") << test.name;
        EXPECT_EQ(judged(test, *gpu), "") << test.name;
        EXPECT_EQ(judged(*stored_in(DType::bf16, test), *gpu), "") << test.name;
    }
    const std::vector<OpCase> cases = testing::op_cases();
    const Recorded recorded(*std::ranges::find_if(cases, is_convolution));
    const Node& node = recorded.graph.node(recorded.outputs[0].value().node);
    const std::vector<Type> inputs{recorded.graph.type(node.inputs[0]), recorded.graph.type(node.inputs[1])};
    std::set<std::string> reasons;
    for (const Kernel& kernel : gpu->kernels("conv2d"))
        reasons.insert(kernel.prepare({*node.op, inputs, node.outputs, node.attributes}).reason());
    EXPECT_TRUE(reasons.contains("there is no cuDNN here"));
}

TEST_F(CudaKernels, InSixteenBitsAgreeWithTheReference) {
    const std::set<std::string> fp32_only = {
        "layer_norm", "layer_norm_grad", "embedding_grad", "muon", "adamw", "sgd", "joined_updates"};
    const TestedGpu gpu;
    std::set<std::string> ran;
    DType dtype = DType::bf16;
    for (const OpCase& original : testing::some_of(testing::op_cases(), 3)) {
        if (fp32_only.contains(original.op)) continue;
        const std::optional<OpCase> test = stored_in(dtype, original);
        if (!test) continue;
        EXPECT_EQ(judged(*test, *gpu), "") << test->name << " in " << name_of(dtype);
        ran.insert(test->op);
        dtype = dtype == DType::bf16 ? DType::f16 : DType::bf16;  // by turns
    }
    EXPECT_GE(ran.size(), 30u);
}

}  // namespace
}  // namespace mantissa
