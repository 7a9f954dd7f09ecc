// Launches that hold a prepared contraction: one prepared once serves any addresses, in the workspace that
// the plan asks for and not a byte more.
#include <gtest/gtest.h>

#include <algorithm>

#include "mantissa/base/buffer.h"
#include "mantissa/base/error.h"
#include "mantissa/device/cpu/contraction/prepared.h"
#include "mantissa/device/cpu/kernels/kernels.h"
#include "mantissa/graph/graph.h"
#include "mantissa/runtime/plan.h"
#include "tests/support/fused_graph.h"
#include "tests/support/op_cases.h"
#include "tests/support/run_graph.h"

namespace mantissa {
namespace {

using testing::device_at;
using testing::levels;
using testing::OpCase;
using testing::Recorded;
using testing::stored;

constexpr int threads = 3;

/// The node of a graph that is of this operation, and the kernel that the plan takes for it.
struct Chosen {
    Chosen(const Graph& all, std::string_view op, Device& on) : graph(all), device(on) {
        for (std::size_t id = 0; id < graph.size(); ++id)
            if (graph.node(static_cast<NodeId>(id)).op->name == op)
                node = &graph.node(static_cast<NodeId>(id));
        check(node != nullptr, "the graph has such a node");
        inputs = graph.input_types(*node);
        for (const Kernel& some : device.kernels(op))
            if (!kernel && some.prepare(problem())) kernel = &some;
        check(kernel != nullptr, "a kernel takes it");
    }
    Problem problem() const { return {*node->op, inputs, node->outputs, node->attributes}; }
    PreparedKernel prepared() const { return *kernel->prepare(problem()); }

    const Graph& graph;
    Device& device;
    const Node* node = nullptr;
    const Kernel* kernel = nullptr;
    std::vector<Type> inputs;
};

std::size_t bytes_of(const Type& type) {
    return static_cast<std::size_t>(type.shape.elements()) * size_of(type.dtype);
}

/// The outputs of a launch in memory of its own.
std::vector<std::vector<std::byte>> launched(const Chosen& chosen, const PreparedKernel& prepared,
                                             const ReferenceFeed& feed) {
    constexpr std::size_t guard = 4096;
    std::vector<Buffer> memory;
    std::vector<const std::byte*> inputs;
    std::vector<std::byte*> outputs;
    for (const Value& value : chosen.node->inputs) {
        const Node& source = chosen.graph.node(value.node);
        const std::vector<std::byte> bytes =
            stored(feed.at(source.attributes.word("name")), source.outputs[0].dtype);
        memory.emplace_back(bytes.size());
        std::ranges::copy(bytes, memory.back().data());
        inputs.push_back(memory.back().data());
    }
    for (const Type& type : chosen.node->outputs)
        outputs.push_back(memory.emplace_back(bytes_of(type)).data());
    const auto bytes = static_cast<std::size_t>(prepared.workspace);
    Buffer workspace(bytes + guard);
    std::ranges::fill(workspace.as<std::byte>(), std::byte{0xff});
    prepared.launch({inputs, outputs, workspace.data()});
    const auto behind = workspace.as<std::byte>().subspan(bytes);
    EXPECT_EQ(std::ranges::count(behind, std::byte{0xff}), std::ssize(behind)) << chosen.kernel->name;
    std::vector<std::vector<std::byte>> results;
    for (std::size_t i = 0; i < outputs.size(); ++i)
        results.emplace_back(outputs[i], outputs[i] + bytes_of(chosen.node->outputs[i]));
    return results;
}

/// The same numbers in the opposite order: other operands, of which those that are indices stay in range.
ReferenceFeed reversed(ReferenceFeed feed) {
    for (auto& [name, values] : feed) std::ranges::reverse(values);
    return feed;
}

void expect_the_same(const Graph& graph, std::string_view op, const ReferenceFeed& feed, Device& device) {
    const Chosen chosen(graph, op, device);
    const PreparedKernel kept = chosen.prepared();
    const auto fresh = [&](const ReferenceFeed& of) {
        const PreparedKernel again = chosen.prepared();
        device.compile_kernels();
        return launched(chosen, again, of);
    };
    const ReferenceFeed other = reversed(feed);
    const auto first = fresh(feed), second = fresh(other);
    EXPECT_NE(first, second) << chosen.kernel->name;
    for (int round = 0; round < 2; ++round) {
        EXPECT_EQ(launched(chosen, kept, feed), first) << chosen.kernel->name;
        EXPECT_EQ(launched(chosen, kept, other), second) << chosen.kernel->name;
    }
}

TEST(PreparedLaunch, ServesAnyAddresses) {
    for (const std::string& level : levels()) {
        const auto device = device_at(level, threads);
        for (const OpCase& test : testing::op_cases()) {
            if (test.op != "matmul" && test.op != "linear_cross_entropy") continue;
            if (test.operands.size() > 4) continue;  // seeds of rows, which are computed
            const Recorded recorded(test);
            if (recorded.feed.at("x0").size() > 1)
                expect_the_same(recorded.graph, test.op, recorded.feed, *device);
        }
    }
}

/// gelu(x w^T + bias), and what it adds up to over rows.
OpCase layer(std::int64_t rows, std::int64_t columns, std::int64_t depth) {
    return {"matmul",
            "a layer",
            {testing::f32({rows, depth}), testing::f32({columns, depth}), testing::f32({columns})},
            [](Graph&, testing::In x) {
                const Tensor y = gelu(matmul(x[0], x[1], {.transpose_b = true, .bias = x[2]}));
                return std::vector{y, sum(y, {0})};
            }};
}

TEST(PreparedLaunch, OfAContractionWithATailServesAnyAddresses) {
    if (!codegen::Compiler::refusal().empty()) GTEST_SKIP() << codegen::Compiler::refusal();
    for (const std::string& level : levels()) {
        const auto device = device_at(level, threads);
        for (const OpCase& test : {layer(70, 59, 1000), layer(300, 900, 40)}) {
            const Recorded recorded(test);
            expect_the_same(testing::fused(recorded.graph), "fused", recorded.feed, *device);
        }
    }
}

TEST(PreparedLaunch, AsksForTheWorkspaceThatThePreparedContractionSays) {
    const auto device = device_at(levels().back(), threads);
    for (const OpCase& test : {layer(70, 59, 1000), layer(1, 300, 70), layer(300, 900, 40)}) {
        const Recorded recorded(test);
        const Chosen chosen(recorded.graph, "matmul", *device);
        const auto units = on_cpu::contraction_units(on_cpu::best_isa(), 1);
        const auto unit = std::ranges::find(units, chosen.kernel->name, &on_cpu::ContractionUnit::name);
        ASSERT_NE(unit, units.end());
        const on_cpu::PreparedContraction prepared =
            on_cpu::prepare_contraction(on_cpu::contraction_parts(chosen.problem())[0].problem, unit->isa);
        EXPECT_GT(prepared.workspace_bytes(threads), 0u);
        EXPECT_EQ(static_cast<std::size_t>(chosen.prepared().workspace), prepared.workspace_bytes(threads));
        EXPECT_GT(prepared.workspace_bytes(threads + 1), prepared.workspace_bytes(threads));
    }
}

}  // namespace
}  // namespace mantissa
