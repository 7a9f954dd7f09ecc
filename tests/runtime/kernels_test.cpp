// Every operation as the CPU runs it, at every instruction-set level, against the reference.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "mantissa/base/error.h"
#include "mantissa/codegen/compiler.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/device/cpu/isa.h"
#include "mantissa/graph/graph.h"
#include "mantissa/numerics/scalar.h"
#include "mantissa/passes/expand.h"
#include "mantissa/passes/simplify.h"
#include "mantissa/runtime/execution.h"
#include "tests/support/kernel_errors.h"
#include "tests/support/random_draws.h"

namespace mantissa {
namespace {

using testing::device_at;
using testing::levels;
using testing::OpCase;
using testing::Recorded;
using testing::run;
using testing::runnable;
using testing::stored_in;
using testing::worst_ratio;

/// A case of an operation at a level, or on the best one where it names none.
struct CaseAtLevel {
    OpCase test;
    std::string name, level;
    friend std::ostream& operator<<(std::ostream& out, const CaseAtLevel& each) { return out << each.name; }
};

/// The cases by `level`, each once for each level, under names such as softmax_rows_avx2.
std::vector<CaseAtLevel> at_levels(const std::vector<OpCase>& cases) {
    std::vector<CaseAtLevel> all;
    for (const OpCase& test : cases)
        for (const std::string& level : levels()) {
            std::string name = testing::test_name(test) + "_" + level;
            std::ranges::replace(name, '-', '_');
            all.push_back({test, std::move(name), level});
        }
    return all;
}

/// The cases at one level each, by turns: loads and stores of 16 bits are those of a level, whatever is
/// computed between them, and neighbours compute alike. Sweeps that are whole have all levels.
std::vector<CaseAtLevel> at_levels_by_turns(const std::vector<OpCase>& cases) {
    const std::vector<CaseAtLevel> all = at_levels(cases);
    if (testing::sweeps_are_whole()) return all;
    std::vector<CaseAtLevel> some;
    const std::size_t count = levels().size();
    for (std::size_t i = 0; i < cases.size(); ++i) some.push_back(all[i * count + i % count]);
    return some;
}

std::vector<CaseAtLevel> on_best_level(const std::vector<OpCase>& cases) {
    std::vector<CaseAtLevel> all;
    for (const OpCase& test : cases) all.push_back({test, testing::test_name(test), levels().back()});
    return all;
}

/// One device of each level serves all cases.
Device& shared_device(const std::string& level) {
    static std::map<std::string, std::unique_ptr<Device>> devices;
    std::unique_ptr<Device>& device = devices[level];
    if (!device) device = device_at(level);
    return *device;
}

/// Whether a case has an operation whose kernel the compiler makes, whatever else is fused.
bool needs_compiler(const OpCase& test) {
    const Recorded recorded(test);
    const auto is_function = [](const Op& op) {
        return std::ranges::any_of(function_ops(), [&](const Op& of) { return of.name == op.name; });
    };
    for (NodeId id = 0; id < recorded.graph.end(); ++id)
        if (is_function(*recorded.graph.node(id).op)) return true;
    return false;
}

/// Tests with a case each; what is instantiated says how each case is altered.
class KernelCase : public ::testing::TestWithParam<CaseAtLevel> {
  protected:
    void SetUp() override {
        const std::string reason = codegen::Compiler::refusal();
        if (!reason.empty() && needs_compiler(GetParam().test)) GTEST_SKIP() << reason;
    }

    static void expect_reference(const OpCase& test, const std::string& level) {
        const Recorded recorded(test);
        const double worst = worst_ratio(test, recorded.graph, recorded.feed, shared_device(level));
        EXPECT_LE(worst, 1.0) << test.name << " at " << level;
        // With --gtest_output=json:FILE, for tables of errors.
        RecordProperty("share_of_bound", std::to_string(worst));
        RecordProperty("bound", fmt::format("{} ulps, {} sums", test.error.ulps, test.error.sums));
    }
};

std::string name_of_case(const ::testing::TestParamInfo<CaseAtLevel>& each) { return each.param.name; }

using AgreeWithTheReference = KernelCase;
TEST_P(AgreeWithTheReference, Case) { expect_reference(GetParam().test, GetParam().level); }
INSTANTIATE_TEST_SUITE_P(Kernels, AgreeWithTheReference, ::testing::ValuesIn(at_levels(testing::op_cases())),
                         name_of_case);

/// The case with one value, which nobody reads later, for all operands that are alike.
OpCase with_equal_operands(const OpCase& test) {
    OpCase equal = test;
    equal.build = [test](Graph& graph, testing::In x) {
        std::vector<Tensor> operands;
        for (std::size_t i = 0; i < x.size(); ++i) {
            std::size_t first = 0;
            while (test.operands[first].type != test.operands[i].type ||
                   test.operands[first].values != test.operands[i].values)
                ++first;
            const bool computed = is_floating(x[i].dtype()) && x[i].rank() > 0;
            operands.push_back(first < i ? operands[first] : computed ? x[i] * 1.0 : x[i]);
        }
        return test.build(graph, operands);
    };
    return equal;
}

using AgreeWhereOperandsAreOneValue = KernelCase;
TEST_P(AgreeWhereOperandsAreOneValue, Case) {
    expect_reference(with_equal_operands(GetParam().test), GetParam().level);
}
INSTANTIATE_TEST_SUITE_P(Kernels, AgreeWhereOperandsAreOneValue,
                         ::testing::ValuesIn(on_best_level(testing::op_cases())), name_of_case);

/// The cases with FP32 stored in a shorter format. Scales of norms and tables of embeddings are FP32 under
/// every policy, as is what the optimizer holds.
std::vector<OpCase> cases_in(DType dtype) {
    const std::set<std::string> fp32_only = {
        "layer_norm", "layer_norm_grad", "embedding_grad", "muon", "adamw", "sgd", "joined_updates"};
    std::vector<OpCase> all;
    for (const OpCase& original : testing::op_cases()) {
        if (fp32_only.contains(original.op)) continue;
        if (original.op == "round_blocks" && dtype == DType::f16) continue;  // under no policy
        if (std::optional<OpCase> test = stored_in(dtype, original)) all.push_back(*std::move(test));
    }
    return all;
}

using AgreeInSixteenBits = KernelCase;
TEST_P(AgreeInSixteenBits, Case) { expect_reference(GetParam().test, GetParam().level); }
INSTANTIATE_TEST_SUITE_P(KernelsBf16, AgreeInSixteenBits,
                         ::testing::ValuesIn(at_levels_by_turns(cases_in(DType::bf16))), name_of_case);
INSTANTIATE_TEST_SUITE_P(KernelsFp16, AgreeInSixteenBits,
                         ::testing::ValuesIn(at_levels_by_turns(cases_in(DType::f16))), name_of_case);

TEST(Kernels, MostOperationsHaveCasesInSixteenBits) {
    for (const DType dtype : {DType::bf16, DType::f16}) {
        std::set<std::string> ops;
        for (const OpCase& test : cases_in(dtype)) ops.insert(test.op);
        EXPECT_GE(ops.size(), 30u);
    }
}

std::vector<OpCase> composite_cases() {
    std::vector<OpCase> all = testing::op_cases();
    std::erase_if(all, [](const OpCase& test) { return !find_op(test.op).composite(); });
    return all;
}

using DefinitionsRunAsPrimitives = KernelCase;
TEST_P(DefinitionsRunAsPrimitives, Case) {
    const OpCase& test = GetParam().test;
    const Recorded recorded(test);
    const Graph expanded = simplify(expand(recorded.graph, [](const Graph&, const Node&) { return true; }));
    for (std::size_t id = 0; id < expanded.size(); ++id)
        EXPECT_FALSE(expanded.node(static_cast<NodeId>(id)).op->composite());
    // A chain of primitives rounds at each link.
    OpCase chained = test;
    chained.error.ulps += 16;
    chained.error.sums += 16;
    EXPECT_LE(worst_ratio(chained, expanded, recorded.feed, shared_device("generic")), 1.0) << test.name;
}
INSTANTIATE_TEST_SUITE_P(Kernels, DefinitionsRunAsPrimitives,
                         ::testing::ValuesIn(on_best_level(composite_cases())), name_of_case);

TEST(Kernels, TolerancesBite) {
    // An error of 64 ULP of the largest result, the size of a lost guard digit, fails every case that has a
    // tolerance.
    for (const OpCase& test : testing::op_cases()) {
        const Recorded recorded(test);
        const ReferenceRun reference(recorded.graph, recorded.feed);
        for (const Tensor& output : recorded.outputs) {
            std::vector<double> values = reference[output.value()].values;
            for (double& x : values)
                if (!std::isfinite(x)) x = 0;
            auto largest = std::max_element(values.begin(), values.end(),
                                            [](double a, double b) { return std::abs(a) < std::abs(b); });
            std::vector<double> wrong = values;
            wrong[static_cast<std::size_t>(largest - values.begin())] +=
                (1 + std::abs(*largest)) * 256 * 0x1p-23;
            EXPECT_GT(worst_ratio(test, output.dtype(), wrong, values), 1.0) << test.name;
            wrong = values;
            wrong[0] = NAN;
            EXPECT_GT(worst_ratio(test, output.dtype(), wrong, values), 1.0) << test.name;
        }
    }
}

using SameBitsForAnyNumberOfThreads = KernelCase;
TEST_P(SameBitsForAnyNumberOfThreads, Case) {
    static const auto one = device_at(GetParam().level, 1), two = device_at(GetParam().level, 2),
                      three = device_at(GetParam().level, 3);
    const Recorded recorded(GetParam().test);
    const Graph graph = runnable(recorded.graph, *one);
    const auto expected = run(graph, recorded.feed, *one);
    EXPECT_EQ(run(graph, recorded.feed, *two), expected) << "on 2 threads";
    EXPECT_EQ(run(graph, recorded.feed, *three), expected) << "on 3 threads";
}
INSTANTIATE_TEST_SUITE_P(Kernels, SameBitsForAnyNumberOfThreads,
                         ::testing::ValuesIn(on_best_level(testing::op_cases())), name_of_case);

TEST(Kernels, AnIdOutsideTheTableIsNamed) {
    const auto device = device_at(levels().back());
    Graph graph;
    const Tensor table(graph, graph.add_input("table", {DType::f32, {5, 4}}));
    const Tensor ids(graph, graph.add_input("ids", {DType::i32, {3}}));
    graph.add_result("y", embedding(table, ids).value());
    try {
        run(graph, {{"table", std::vector<double>(20)}, {"ids", {1, 7, 0}}}, *device);
        FAIL() << "id 7 of a table of 5 was accepted";
    } catch (const UserError& error) {
        EXPECT_NE(std::string(error.what()).find("7"), std::string::npos) << error.what();
    }
}

TEST(Kernels, ASliceOutsideIsNamed) {
    const auto device = device_at(levels().back());
    for (double start : {-1.0, 4.0}) {
        Graph graph;
        const Tensor x(graph, graph.add_input("x", {DType::f32, {5, 4}}));
        const Tensor part(graph, graph.add_input("part", {DType::f32, {2, 4}}));
        const Tensor at(graph, graph.add_input("start", {DType::i32, {}}));
        graph.add_result("y", write_slice(x, part, at, 0).value());
        const ReferenceFeed feed{
            {"x", std::vector<double>(20)}, {"part", std::vector<double>(8)}, {"start", {start}}};
        try {
            run(graph, feed, *device);
            FAIL() << "rows from " << start << " on were written into 5 rows";
        } catch (const UserError& error) {
            EXPECT_NE(std::string(error.what()).find("is outside an axis of 5"), std::string::npos)
                << error.what();
        }
    }
}

TEST(Kernels, MoreRowsThanThereAreAreNamed) {
    const auto device = device_at(levels().back());
    for (const double second : {-1.0, 3.0}) {
        Graph graph;
        const Tensor x(graph, graph.add_input("x", {DType::f32, {5, 4}}));
        const Tensor w(graph, graph.add_input("w", {DType::f32, {2, 4, 3}}));
        const Tensor counts(graph, graph.add_input("counts", {DType::i32, {2}}));
        graph.add_result("y", grouped_matmul(x, w, counts).value());
        const ReferenceFeed feed{
            {"x", std::vector<double>(20)}, {"w", std::vector<double>(24)}, {"counts", {3, second}}};
        try {
            run(graph, feed, *device);
            FAIL() << second << " rows were taken of 2";
        } catch (const UserError& error) {
            EXPECT_EQ(std::string(error.what()),
                      fmt::format("group 1 has {} rows from row 3 on, and there are 5", second));
        }
    }
}

TEST(Kernels, Tf32RunsWhereItIsAskedForAndNowhereElse) {
    const auto kernels = [](bool tf32) {
        const auto device = device_at(levels().back());
        Graph graph;
        const Tensor x(graph, graph.add_input("x", {DType::f32, {4, 4}}));
        graph.add_result("y", matmul(x, x, {.multiply = tf32 ? "tf32" : ""}).value());
        return Plan(std::move(graph), *device).kernels_of("matmul").at(0);
    };
    EXPECT_TRUE(kernels(false).starts_with("gemm f32*f32+f32 ")) << kernels(false);
    EXPECT_TRUE(kernels(true).starts_with("gemm tf32*tf32+f32 ")) << kernels(true);
    ::setenv("NVIDIA_TF32_OVERRIDE", "0", 1);
    EXPECT_TRUE(kernels(false).starts_with("gemm f32*f32+f32 "));
    try {
        kernels(true);
        ADD_FAILURE() << "TF32 ran, or FP32 under its name";
    } catch (const UserError& error) {
        EXPECT_NE(std::string(error.what()).find("NVIDIA_TF32_OVERRIDE=0 forbids TF32"), std::string::npos)
            << error.what();
    }
    ::unsetenv("NVIDIA_TF32_OVERRIDE");
}

TEST(Kernels, ANodeWithoutAKernelSaysWhy) {
    const auto device = device_at("generic");
    Graph graph;
    const Tensor x(graph, graph.add_input("x", {DType::f64, {4, 4}}));
    graph.add_result("y", matmul(x, x).value());
    try {
        const Plan plan(graph, *device);
        FAIL() << "a matmul of f64 was planned";
    } catch (const UserError& error) {
        EXPECT_EQ(
            std::string(error.what()),
            "cpu has no kernel for %1: f64[4, 4] = matmul(%x, %x) {transpose_a=false, transpose_b=false}; "
            "'gemm f32*f32+f32 generic' says: it multiplies f32, got f64[4, 4]; "
            "'gemm tf32*tf32+f32 generic, rounded' says: it multiplies f32, got f64[4, 4]; "
            "'gemm bf16*bf16+f32 generic, widened' says: it multiplies bf16, got f64[4, 4]; "
            "'gemm f16*f16+f32 generic, widened' says: it multiplies f16, got f64[4, 4]");
    }
}

}  // namespace
}  // namespace mantissa
