// Attention on a GPU's matrix units, on the emulated one, in sizes of several tiles: against the reference,
// with the same bits each time, and what it refuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"
#include "tests/support/attention_cases.h"
#include "tests/support/compiling_test.h"
#include "tests/support/kernel_errors.h"
#include "tests/support/random_draws.h"
#include "tests/support/tested_gpu.h"

namespace mantissa {
namespace {

using testing::OpCase;
using testing::Recorded;
using testing::TestedGpu;

class CudaAttention : public testing::CompilingTest {};

struct AttentionSizes {
    const char* name;
    Shape q;  // [B, H, T, D]
    testing::Keys keys;
    bool causal;
};

/// Several tiles of rows and columns, neither whole; heads of whole, half and odd rows of 16 bytes.
std::vector<AttentionSizes> all_sizes() {
    return {{"of GPT-2", {1, 2, 150, 64}, {150}, true},
            {"to all keys", {1, 1, 70, 64}, {200}, false},
            {"behind keys, in groups", {2, 4, 40, 64}, {100, 2}, true},
            {"of large heads", {1, 1, 100, 128}, {100}, true},
            {"of large heads to all keys", {1, 2, 33, 128}, {70, 1}, false},
            {"of 72", {1, 1, 20, 72}, {90}, false},
            {"of 40", {1, 1, 80, 40}, {80}, true},
            {"of 20", {1, 2, 90, 20}, {90}, true},
            {"of one query", {1, 2, 1, 64}, {130, 1}, true}};
}

std::vector<OpCase> attention_cases_in(DType dtype) {
    std::vector<OpCase> all;
    for (const AttentionSizes& sizes : all_sizes())
        for (const auto& make : {testing::attention_case, testing::attention_grad_case})
            all.push_back(*stored_in(dtype, make(sizes.name, sizes.q, sizes.keys, sizes.causal)));
    return all;
}

/// Queries, keys and values in one tensor, as GPT-2's projection leaves them.
OpCase in_one_tensor(DType dtype, bool gradient) {
    const std::int64_t B = 2, T = 70, H = 2, D = 64;
    const Attributes attributes{{"causal", true},
                                {"operands", std::string("qkv:btphd")},
                                {"result", std::string("bthd")},
                                {"scale", 0.125}};
    OpCase test = gradient ? testing::attention_grad_case("in one tensor", {B, H, T, D}, {T}, true)
                           : testing::attention_case("in one tensor", {B, H, T, D}, {T}, true);
    const auto forward = [attributes](Graph& g, testing::In x) {
        return call(g, "attention", x, attributes);
    };
    test.operands = {testing::f32({B, T, 3, H, D})};
    test.build = forward;
    if (gradient) {
        test.operands.insert(test.operands.begin(), testing::f32({B, T, H, D}));
        test.build = [=](Graph& g, testing::In x) {
            const auto y = forward(g, {x[1]});
            return call(g, "attention_grad", std::vector{x[0], x[1], y[0], y[1]}, attributes);
        };
    }
    return *stored_in(dtype, test);
}

bool has_warpgroups(const Device& device) {
    return std::ranges::any_of(device.compiled_kernels(), [](const KernelListing& made) {
        return made.assembly.find("wgmma.mma_async") != std::string::npos;
    });
}

void expect_agreement(const TestedGpu& gpu) {
    for (const DType dtype : {DType::bf16, DType::f16}) {
        std::vector<OpCase> all = attention_cases_in(dtype);
        for (const bool gradient : {false, true}) all.push_back(in_one_tensor(dtype, gradient));
        // In FP16 each fifth, forward and backward by turns.
        for (const OpCase& test : testing::some_of(all, dtype == DType::bf16 ? 1 : 5)) {
            const Recorded recorded(test);
            for (NodeId id = 0; id < static_cast<NodeId>(recorded.graph.size()); ++id)
                EXPECT_TRUE(recorded.graph.node(id).op->name == "input" ||
                            machine_for_passes(*gpu).has_kernel(recorded.graph, recorded.graph.node(id)))
                    << test.name;
            const double worst = worst_ratio(test, recorded.graph, recorded.feed, *gpu);
            EXPECT_LE(worst, 1) << test.name << " in " << name_of(dtype);
        }
    }
}

TEST_F(CudaAttention, OfSeveralTilesAgreesWithTheReference) { expect_agreement(TestedGpu()); }

TEST_F(CudaAttention, ByWarpgroupsAgreesWithTheReference) {
    const TestedGpu gpu = TestedGpu::by_warpgroups();
    if (!(*gpu).target().isa.starts_with("sm_90,")) GTEST_SKIP() << "the GPU has no wgmma";
    expect_agreement(gpu);
    EXPECT_TRUE(has_warpgroups(*gpu));
}

/// A user of a Hopper gets the kernels that have run on one.
TEST_F(CudaAttention, NobodyGetsWarpgroupsUnasked) {
    const testing::EmulatedDevice hopper({.architecture = "sm_90a"}),
        older({.architecture = "sm_80"}, {.warpgroup_attention = true});
    const Recorded recorded(in_one_tensor(DType::bf16, false));
    for (const auto* device : {&hopper, &older}) {
        testing::run(recorded.graph, recorded.feed, **device);
        EXPECT_FALSE(has_warpgroups(**device));
    }
}

TEST_F(CudaAttention, ToleranceBites) {
    const TestedGpu gpu;
    OpCase test = *stored_in(DType::bf16, testing::attention_case("causal", {1, 1, 70, 64}, {70}, true));
    const Recorded recorded(test);
    const auto build = test.build;
    test.build = [build](Graph& g, testing::In x) { return build(g, {x[0] * 1.125, x[1], x[2]}); };
    const Recorded wrong(test);
    const auto got = testing::run(wrong.graph, wrong.feed, *gpu);
    const ReferenceRun reference(recorded.graph, recorded.feed);
    EXPECT_GT(worst_ratio(test, DType::bf16, testing::loaded(got[0], DType::bf16),
                          reference[recorded.graph.results()[0].value].values),
              1);
}

TEST_F(CudaAttention, HasTheSameBitsEachTime) {
    const TestedGpu gpu;
    const testing::EmulatedDevice with_one_thread({.threads = 1});
    for (const OpCase& test : {in_one_tensor(DType::bf16, false), in_one_tensor(DType::bf16, true)}) {
        const Recorded recorded(test);
        const auto first = testing::run(recorded.graph, recorded.feed, *gpu);
        EXPECT_EQ(testing::run(recorded.graph, recorded.feed, *gpu), first) << test.name;
        if (std::getenv("MANTISSA_TEST_GPU")) continue;  // of an emulated GPU the threads are the host's
        EXPECT_EQ(testing::run(recorded.graph, recorded.feed, *with_one_thread), first) << test.name;
    }
}

TEST_F(CudaAttention, WhatItRefusesHasAReason) {
    const TestedGpu gpu;
    const auto reason = [&](const OpCase& test) {
        const Recorded recorded(test);
        const Node& node = recorded.graph.node(recorded.outputs[0].value().node);
        std::vector<Type> inputs;
        for (const Value& value : node.inputs) inputs.push_back(recorded.graph.type(value));
        return (*gpu)
            .kernels("attention")[0]
            .prepare({*node.op, inputs, node.outputs, node.attributes})
            .reason();
    };
    const auto of = [](Shape q, DType dtype) {
        return *stored_in(dtype, testing::attention_case("refused", std::move(q), {3}, false));
    };
    EXPECT_EQ(reason(testing::attention_case("in f32", {1, 1, 2, 4}, {3}, false)),
              "it is written for bf16, got f32[1, 1, 2, 4]");
    EXPECT_EQ(reason(of({1, 1, 2, 136}, DType::bf16)),
              "it holds heads of up to 128 elements in registers, got 136");
}

}  // namespace
}  // namespace mantissa
