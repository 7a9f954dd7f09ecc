// Rooflines on paper: cards by their data sheets, and a plan's lines, sums and shares by rates that one can
// follow.
#include "mantissa/report/paper_roofline.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/device/cuda/cuda_device.h"
#include "mantissa/device/cuda/planned/planned_gpu.h"
#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/tensor.h"
#include "tests/support/compiling_test.h"

namespace mantissa {
namespace {

constexpr double tera = 1e12;

void expect_sheet(const std::string& accelerator, const CardRates& published) {
    const Card card = card_of(accelerator);
    EXPECT_NEAR(card.sheet.f32, published.f32 * tera, 0.01 * published.f32 * tera) << accelerator;
    EXPECT_NEAR(card.sheet.tf32, published.tf32 * tera, 0.01 * published.tf32 * tera) << accelerator;
    EXPECT_NEAR(card.sheet.sixteen_bits, published.sixteen_bits * tera, 0.01 * published.sixteen_bits * tera)
        << accelerator;
    EXPECT_NEAR(card.sheet.memory, published.memory * tera, 0.01 * published.memory * tera) << accelerator;
    EXPECT_NEAR(card.sheet.fp8, published.fp8 * tera, 0.01 * published.fp8 * tera) << accelerator;
}

TEST(PaperRoofline, CardsHaveTheRatesOfTheirDataSheets) {
    expect_sheet("a100", {.f32 = 19.5, .tf32 = 156, .sixteen_bits = 312, .memory = 2.039, .fp8 = 0});
    expect_sheet("h100", {.f32 = 66.9, .tf32 = 494.5, .sixteen_bits = 989, .memory = 3.35, .fp8 = 1979});
    expect_sheet("h200", {.f32 = 66.9, .tf32 = 494.5, .sixteen_bits = 989, .memory = 4.8, .fp8 = 1979});
    expect_sheet("b200", {.f32 = 75, .tf32 = 1125, .sixteen_bits = 2250, .memory = 8, .fp8 = 4500});
    EXPECT_EQ(card_of("a100").architecture, "sm_80");
    EXPECT_EQ(card_of("h100").architecture, "sm_90");
}

TEST(PaperRoofline, OnlyTheCardThatWasMeasuredHasMeasuredRates) {
    EXPECT_FALSE(card_of("a100").measured || card_of("h100").measured);
    const Card card = card_of("h200");
    ASSERT_TRUE(card.measured);
    EXPECT_DOUBLE_EQ(card.measured->sixteen_bits, 790 * tera);
    EXPECT_NEAR(card.measured->tf32 / card.sheet.tf32, 790 * tera / card.sheet.sixteen_bits, 1e-12);
    EXPECT_LT(card.measured->memory, card.sheet.memory);
}

TEST(PaperRoofline, AnUnknownCardIsAnErrorThatNamesThoseThatAreKnown) {
    try {
        card_of("v100");
        FAIL() << "it was found";
    } catch (const UserError& error) {
        EXPECT_STREQ(error.what(), "there is no accelerator 'v100'; there are: a100, h100, h200, b200");
    }
}

/// A graph of squares of 64: x + y, and its product with y twice.
Graph two_products_and_a_sum() {
    Graph graph;
    const Tensor x(graph, graph.add_input("x", {DType::f32, {64, 64}}));
    const Tensor y(graph, graph.add_input("y", {DType::f32, {64, 64}}));
    graph.add_result("z", matmul(matmul(x + y, y), y).value());
    return graph;
}

constexpr double flops_of_product = 2.0 * 64 * 64 * 64, bytes_of_three = 3.0 * 64 * 64 * 4;

/// A product takes 1 ms of arithmetic and 0.1 ms of memory, a sum 0.1 ms of memory.
const Card round_card{.name = "a round card",
                      .architecture = "",
                      .sheet = {.f32 = flops_of_product / 1e-3,
                                .tf32 = 1e30,
                                .sixteen_bits = 10 * flops_of_product / 1e-3,
                                .memory = bytes_of_three / 1e-4}};

/// The table for a card, a list of words a line.
struct ReadTable {
    std::string text;
    std::vector<std::vector<std::string>> lines;

    explicit ReadTable(const Card& card, double model_flops = 2 * flops_of_product) {
        const std::unique_ptr<Device> device = make_cpu_device({.threads = 1});
        const Plan plan(two_products_and_a_sum(), *device);
        text = paper_roofline_table(plan, model_flops, card);
        std::istringstream all(text);
        for (std::string line; std::getline(all, line);) {
            std::istringstream words(line);
            lines.emplace_back(std::istream_iterator<std::string>(words),
                               std::istream_iterator<std::string>());
        }
    }
    /// Operation, pass, launches, GFLOP, GB, least ms[, measured], waits for, kernel.
    std::vector<std::string> line_of(const std::string& op) const {
        for (const std::vector<std::string>& line : lines)
            if (!line.empty() && line[0] == op) return line;
        ADD_FAILURE() << "no line of " << op << " in\n" << text;
        return std::vector<std::string>(9);
    }
};

TEST(PaperRoofline, ALineAddsUpTheLeastTimesOfItsLaunchesAndSaysWhatTheyWaitFor) {
    const ReadTable table(round_card);
    const std::vector<std::string> products = table.line_of("matmul"), sum = table.line_of("add");
    EXPECT_EQ(products[2], "2");
    EXPECT_EQ(products[5], "2.000");
    EXPECT_EQ(products[6], "arithmetic");
    EXPECT_EQ(sum[2], "1");
    EXPECT_EQ(sum[5], "0.100");
    EXPECT_EQ(sum[6], "memory");
    EXPECT_LT(table.text.find("matmul"), table.text.find("\nadd")) << "not the longest first";
}

TEST(PaperRoofline, SumsAreOfAllAndOfWhatNoFusionSpares) {
    const ReadTable table(round_card);
    EXPECT_NE(table.text.find("the step: 3 launches, 0.00 TFLOP, 0.00 GB, 2.100 ms\n"), std::string::npos)
        << table.text;
    EXPECT_NE(table.text.find("its products, attention and update alone, each once: 2 launches, 0.00 TFLOP, "
                              "0.00 GB, 2.000 ms\n"),
              std::string::npos)
        << table.text;
    // Two products at the rate of 16 bits take 0.2 ms of the 2.1.
    EXPECT_NE(table.text.find(" in that time: 9.5 %\n"), std::string::npos) << table.text;
}

TEST(PaperRoofline, ShorterFormatsMultiplyProductsOfLinearLayersAndOfConvolutions) {
    Graph graph;
    const Tensor x(graph, graph.add_input("x", {DType::bf16, {1, 8, 8, 64}}));
    const Tensor filter(graph, graph.add_input("filter", {DType::bf16, {1, 1, 64, 64}}));
    const Tensor y(graph, graph.add_input("y", {DType::bf16, {64, 64}}));
    graph.add_result("images", conv2d(x, filter).value());
    graph.add_result("rows", matmul(y, y).value());
    const Card card{.name = "a card of one rate",
                    .architecture = "",
                    .sheet = {.f32 = flops_of_product / 1e-3,
                              .tf32 = flops_of_product / 1e-3,
                              .sixteen_bits = flops_of_product / 1e-3,
                              .memory = 1e30},
                    .shorter = {{"e4m3", 2 * flops_of_product / 1e-3}}};
    const std::unique_ptr<Device> device = make_cpu_device({.threads = 1});
    const std::string text = paper_roofline_table(Plan(graph, *device), 2 * flops_of_product, card);
    EXPECT_NE(text.find("the step: 2 launches, 0.00 TFLOP, 0.00 GB, 2.000 ms\n"), std::string::npos) << text;
    EXPECT_NE(text.find("with layers' products in e4m3 (0 TFLOP/s): 1.000 ms\n"), std::string::npos) << text;
}

class PaperRooflineOfAGpu : public testing::CompilingTest {};

TEST_F(PaperRooflineOfAGpu, ProductsOfFp8HaveARateOfTheirOwn) {
    Graph graph;
    const Type fp8{DType::bf16, {64, 64}, Layout::e4m3};
    const Tensor x(graph, graph.add_input("x", fp8)), y(graph, graph.add_input("y", fp8));
    const Tensor factor(graph, graph.add_input("factor", {DType::f32, {}}));
    graph.add_result("z", call(graph, "scaled_matmul", std::vector{x, y, factor, factor},
                               {{"transpose_a", false}, {"transpose_b", true}})[0]
                              .value());
    const double rate = flops_of_product / 1e-3;
    const Card card{
        .name = "a card",
        .architecture = "sm_90",
        .sheet = {.f32 = rate, .tf32 = rate, .sixteen_bits = rate, .memory = 1e30, .fp8 = 2 * rate},
        .shorter = {{"e2m1", 4 * rate}}};
    const Expected<std::unique_ptr<Device>> device =
        make_cuda_device(cuda::planned_libraries(card.architecture));
    const std::string text = paper_roofline_table(Plan(graph, **device), flops_of_product, card);
    for (const char* words :
         {"the step: 1 launch, 0.00 TFLOP, 0.00 GB, 0.500 ms\n", "cublasLt fp8*fp8+f32 tensor cores\n",
          "with layers' products in e2m1 (0 TFLOP/s): 0.250 ms\n"})
        EXPECT_NE(text.find(words), std::string::npos) << text;
}

TEST(PaperRoofline, MeasuredRatesStandBesideThoseOfTheDataSheet) {
    Card card = round_card;
    card.measured = CardRates{.f32 = card.sheet.f32 / 2,
                              .tf32 = card.sheet.tf32,
                              .sixteen_bits = card.sheet.sixteen_bits / 2,
                              .memory = card.sheet.memory / 4};
    const ReadTable table(card);
    const std::vector<std::string> products = table.line_of("matmul"), sum = table.line_of("add");
    EXPECT_EQ(products[5] + " " + products[6], "2.000 4.000");
    EXPECT_EQ(sum[5] + " " + sum[6], "0.100 0.400");
    EXPECT_NE(table.text.find("2.100 ms (4.400 ms by measured rates)"), std::string::npos) << table.text;
}

}  // namespace
}  // namespace mantissa
