// Faults planted in the plain data that kernels of nests are made of, and in how a kernel is called. The
// right kernel gives what a loop in FP64 gives; each fault moves a result further than that bound.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "mantissa/codegen/compiler.h"
#include "mantissa/graph/tensor.h"
#include "mantissa/numerics/formats.h"

namespace mantissa {
namespace {
namespace planted_faults {

using codegen::LoopNest;
using codegen::Step;

constexpr std::int64_t rows = 5, columns = 37;  // two vectors and a tail; pairs of rows and one
constexpr double bound = 1e-4;                  // sums of 37 numbers below 1,000, and an exponential

/// The softmax of h, rounded to bf16 in between, and sums of h over the rows: h = x gamma + shift, with gamma
/// by column and shift by row.
Graph body() {
    Graph graph;
    const auto given = [&](const char* name, Shape shape) {
        return Tensor(graph, graph.add_input(name, {DType::f32, std::move(shape)}));
    };
    const Tensor x = given("x", {rows, columns}), gamma = given("gamma", {columns}),
                 shift = given("shift", {rows, 1});
    const Tensor h = cast(cast(x * gamma + shift, DType::bf16), DType::f32);
    const Tensor e = exp(h - max(h, {-1}, KeepAxes::yes));
    graph.add_result("y", (e / sum(e, {-1}, KeepAxes::yes)).value());
    graph.add_result("sums", sum(h, {0}).value());
    return graph;
}

/// Numbers of few bits: h is exact in FP32, and rounded in bf16.
struct Numbers {
    std::vector<float> x, gamma, shift;

    /// With a row more than there are.
    Numbers() : x((rows + 1) * columns), gamma(columns), shift(rows + 1) {
        for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 37 % 1009) / 1024 - 0.5f;
        for (std::size_t i = 0; i < gamma.size(); ++i) gamma[i] = static_cast<float>(1 + i % 3);
        for (std::size_t i = 0; i < shift.size(); ++i) shift[i] = static_cast<float>(i) / 4 - 3;
    }
};

/// Softmax by rows, and the sums.
struct Results {
    std::vector<double> y, sums;
};

Results expected(const Numbers& of) {
    Results results{.y = {}, .sums = std::vector<double>(columns)};
    for (std::size_t r = 0; r < rows; ++r) {
        std::vector<double> e;
        double highest = -std::numeric_limits<double>::infinity(), total = 0;
        for (std::size_t c = 0; c < columns; ++c) {
            const float h = of.x[r * columns + c] * of.gamma[c] + of.shift[r];
            e.push_back(static_cast<double>(to_f32(to_bf16(h))));
            results.sums[c] += e.back();
            highest = std::fmax(highest, e.back());
        }
        for (double& h : e) total += h = std::exp(h - highest);
        for (const double h : e) results.y.push_back(h / total);
    }
    return results;
}

/// The rows that a call is told to make.
struct Call {
    std::int64_t first = 0, last = rows;
};

Results made_by(const LoopNest& nest, const Numbers& of, const Call& call = {}) {
    ThreadPool pool(1);
    codegen::Compiler compiler(codegen::HostFeatures{});
    const auto kernel = compiler.add(nest);
    compiler.compile_pending(pool);
    std::vector<float> y((rows + 1) * columns),
        workspace(static_cast<std::size_t>(scratch_floats(nest) + nest.partial_sums) + 64);
    auto* const aligned =
        reinterpret_cast<float*>((reinterpret_cast<std::uintptr_t>(workspace.data()) + 63) / 64 * 64);
    const std::array from{reinterpret_cast<const std::byte*>(of.x.data()),
                          reinterpret_cast<const std::byte*>(of.gamma.data()),
                          reinterpret_cast<const std::byte*>(of.shift.data())};
    const std::array to{reinterpret_cast<std::byte*>(y.data()), static_cast<std::byte*>(nullptr)};
    const codegen::FusedArguments arguments{.inputs = from.data(),
                                            .outputs = to.data(),
                                            .first = call.first,
                                            .last = call.last,
                                            .scratch = aligned + nest.partial_sums,
                                            .partial_sums = aligned};
    kernel->function(&arguments);
    return {{y.begin(), y.begin() + rows * columns}, {aligned, aligned + columns}};
}

/// Whether some result is further from the right one than the bound, or no number.
bool is_caught(const Results& got, const Results& right) {
    const auto differs = [](const std::vector<double>& a, const std::vector<double>& b) {
        for (std::size_t i = 0; i < b.size(); ++i)
            if (!(std::fabs(a[i] - b[i]) <= bound)) return true;
        return false;
    };
    return differs(got.y, right.y) || differs(got.sums, right.sums);
}

class PlantedFaults : public ::testing::Test {
  protected:
    void SetUp() override {
        if (const std::string reason = codegen::Compiler::refusal(); !reason.empty()) GTEST_SKIP() << reason;
        ASSERT_FALSE(is_caught(made_by(nest, numbers), right)) << pseudo_code(nest);
    }

    /// The step of that operation, of those the so-manieth.
    Step& step(const std::string& op, int which = 0) {
        for (Step& one : nest.steps)
            if (one.op == op && which-- == 0) return one;
        throw std::runtime_error("there is no step " + op + " in\n" + pseudo_code(nest));
    }
    int index_of(const Step& one) const { return static_cast<int>(&one - nest.steps.data()); }
    void expect_caught() const { EXPECT_TRUE(is_caught(made_by(nest, numbers), right)) << pseudo_code(nest); }

    const Numbers numbers;
    const Results right = expected(numbers);
    LoopNest nest = codegen::lower(body());
};

TEST_F(PlantedFaults, AMaximumInPlaceOfASumIsCaught) {
    nest.walks[1].reductions[0].maximum = true;
    expect_caught();
}

TEST_F(PlantedFaults, AReductionOfAnotherValueIsCaught) {
    nest.walks[1].reductions[0].value = step("sub").arguments[0];
    expect_caught();
}

TEST_F(PlantedFaults, ALostCastIsCaught) {
    for (Step& one : nest.steps)
        if (one.op == "cast") one.dtype = DType::f32;
    expect_caught();
}

TEST_F(PlantedFaults, AnOperandOfAnotherRowIsCaught) {
    step("load", 2).access.divide = 2;
    expect_caught();
}

TEST_F(PlantedFaults, AnOperandOfOneRowForAllIsCaught) {
    step("load").access.rows = false;
    expect_caught();
}

TEST_F(PlantedFaults, ASwappedArgumentIsCaught) {
    std::swap(step("sub").arguments[0], step("sub").arguments[1]);
    expect_caught();
}

TEST_F(PlantedFaults, AnotherNumberIsCaught) {
    step("constant").constant *= 1 + 1e-2;
    expect_caught();
}

TEST_F(PlantedFaults, AnotherValueStoredIsCaught) {
    nest.walks.back().stores[0].value = index_of(step("exp_up_to_zero"));
    expect_caught();
}

TEST_F(PlantedFaults, SumsAtAnotherPlaceAreCaught) {
    for (codegen::Walk& walk : nest.walks)
        for (codegen::RowSum& sum : walk.sums) sum.offset += 16;
    nest.partial_sums += 16;
    expect_caught();
}

TEST_F(PlantedFaults, AnotherNumberOfColumnsIsCaught) {
    nest.columns = 32;
    expect_caught();
}

TEST_F(PlantedFaults, ARowThatIsLeftOutIsCaught) {
    EXPECT_TRUE(is_caught(made_by(nest, numbers, {.first = 0, .last = rows - 1}), right));
    EXPECT_TRUE(is_caught(made_by(nest, numbers, {.first = 1, .last = rows}), right));
}

TEST_F(PlantedFaults, ARowMadeTwiceIsCaughtByItsSums) {
    EXPECT_TRUE(is_caught(made_by(nest, numbers, {.first = 0, .last = rows + 1}), right));
}

/// x - max(x) meets a NaN in the maximum alone, where softmax meets it in the sum, too.
TEST(PlantedFaultsInMaxima, ALostNanIsCaught) {
    if (const std::string reason = codegen::Compiler::refusal(); !reason.empty()) GTEST_SKIP() << reason;
    Graph graph;
    const Tensor x(graph, graph.add_input("x", {DType::f32, {1, 40}}));
    graph.add_result("y", (x - max(x, {-1}, KeepAxes::yes)).value());
    LoopNest nest = codegen::lower(graph);
    ThreadPool pool(1);
    codegen::Compiler compiler(codegen::HostFeatures{});
    const auto right = compiler.add(nest);
    nest.walks[0].reductions[0].of_numbers = true;
    const auto faulty = compiler.add(nest);
    compiler.compile_pending(pool);
    const auto last_of = [](const codegen::FusedKernel& kernel) {
        std::array<float, 40> from{}, to{};
        from[1] = std::numeric_limits<float>::quiet_NaN();
        const auto* read = reinterpret_cast<const std::byte*>(from.data());
        auto* written = reinterpret_cast<std::byte*>(to.data());
        const codegen::FusedArguments arguments{.inputs = &read, .outputs = &written, .first = 0, .last = 1};
        kernel.function(&arguments);
        return to.back();
    };
    EXPECT_TRUE(std::isnan(last_of(*right)));
    EXPECT_EQ(last_of(*faulty), 0);
}

}  // namespace planted_faults
}  // namespace
}  // namespace mantissa
