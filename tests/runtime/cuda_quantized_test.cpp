// Quantised weights on a GPU beside the CPU's: in eight bits the same bits, in four the same weights, and
// products within their class; by which kernel; and how often the weights are read.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <utility>

#include "mantissa/base/whole_units.h"
#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"
#include "tests/support/compiling_test.h"
#include "tests/support/kernel_errors.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tested_gpu.h"

namespace mantissa {
namespace {

using testing::OpCase;
using testing::Recorded;
using testing::TestedGpu;

struct Extents {
    std::int64_t rows = 0, columns = 0, depth = 0;
    bool bias = false;
    DType dtype = DType::f32;

    std::string text() const {
        return fmt::format("{} x {} x {} of {}{}", rows, columns, depth, name_of(dtype),
                           bias ? " and a bias" : "");
    }
};

/// All of a quantised product; `weights`: and what it reads of them.
OpCase product_case(const std::string& format, const Extents& of, bool weights) {
    std::vector<testing::Operand> operands{testing::f32({of.rows, of.depth}),
                                           testing::f32({of.columns, of.depth})};
    if (of.bias) operands.push_back(testing::f32({of.columns}));
    operands[0].type.dtype = of.dtype;
    const auto build = [=](Graph& g, const std::vector<Tensor>& x) {
        const auto w = call(g, "quantize_weight", std::vector{x[1]}, {{"format", format}});
        std::vector<Tensor> inputs{x[0], w[0], w[1]};
        if (x.size() == 3) inputs.push_back(x[2]);
        auto y = call(g, "quantized_matmul", inputs, {{"multiply", format}});
        if (weights) y.insert(y.end(), w.begin(), w.end());
        return y;
    };
    // As in op_cases.cpp: groups are added up one after the other, in lanes.
    const double groups = format == "s8" ? 0 : static_cast<double>(ceil_div(of.depth, 32) + 1);
    return {"quantized_matmul", of.text(), operands, build, {4, (of.bias ? 4 : 0) + groups}};
}

/// Each way that a kernel may take: whole pieces and single bytes, one warp's rows and several, sums that are
/// scaled where they lie, and last columns that the library does not make.
const Extents shapes[] = {
    {1, 64, 96},
    {8, 300, 64, true},
    {3, 37, 70},
    {1, 2, 31, true},
    {2, 4099, 32},
    {7, 2100, 48},
    {9, 64, 96},
    {19, 50, 64, true},
    {12, 3, 64},
    {20, 37, 70, true},
    {33, 131, 20},
    {5, 8, 1},
    {16, 12, 1028, true},
    {9, 4, 4},
    {1, 16, 4096, true},
    {4, 32, 96, true, DType::bf16},
    {24, 30, 64, false, DType::f16},
};

class CudaQuantized : public testing::CompilingTest {};

TEST_F(CudaQuantized, InEightBitsEverythingHasTheCpusBits) {
    const auto cpu = testing::device_at(testing::levels().back());
    const TestedGpu gpu;
    for (const Extents& of : shapes) {
        const Recorded recorded(product_case("s8", of, true));
        const auto expected = testing::run(recorded.graph, recorded.feed, *cpu);
        EXPECT_TRUE(testing::run(recorded.graph, recorded.feed, *gpu) == expected) << of.text();
        ReferenceFeed altered = recorded.feed;
        altered["x1"].back() *= -1;
        EXPECT_FALSE(testing::run(recorded.graph, altered, *gpu) == expected) << "a weight is seen";
    }
}

TEST_F(CudaQuantized, InFourBitsWeightsAreTheCpusAndProductsInTheirClass) {
    const auto cpu = testing::device_at(testing::levels().back());
    const TestedGpu gpu;
    for (Extents of : shapes) {
        of.depth += of.depth % 2;
        const Recorded recorded(product_case("s4", of, true));
        const auto expected = testing::run(recorded.graph, recorded.feed, *cpu),
                   found = testing::run(recorded.graph, recorded.feed, *gpu);
        for (const std::size_t i : {1u, 2u}) EXPECT_TRUE(found[i] == expected[i]) << of.text();
        const OpCase test = product_case("s4", of, false);
        const Recorded alone(test);
        EXPECT_LE(testing::worst_ratio(test, alone.graph, alone.feed, *gpu), 1) << of.text();
        // A number of the largest group that is off by one would show.
        OpCase strict = test;
        strict.error = {};
        if (of.depth >= 64) {
            EXPECT_GT(testing::worst_ratio(strict, alone.graph, alone.feed, *gpu), 1) << of.text();
        }
    }
}

bool same_or_nan(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
    const std::vector<double> x = testing::loaded<float>(a), y = testing::loaded<float>(b);
    for (std::size_t i = 0; i < x.size(); ++i)
        if (!(x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i])))) return false;
    return x.size() == y.size();
}

/// Rows of zeros, of infinities, of NaN and of the smallest numbers, few and many.
TEST_F(CudaQuantized, SpecialNumbersBecomeWhatTheyBecomeOnTheCpu) {
    const auto cpu = testing::device_at(testing::levels().back());
    const TestedGpu gpu;
    const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
    for (const std::int64_t rows : {6, 12}) {
        const Extents of{rows, 8, 64};
        const Recorded recorded(product_case("s8", of, true));
        ReferenceFeed feed = recorded.feed;
        const auto set_row = [&](const char* operand, std::size_t row, double value) {
            for (std::size_t i = 0; i < 64; ++i) feed[operand][64 * row + i] = value;
        };
        for (const char* const operand : {"x0", "x1"}) {
            set_row(operand, 0, 0);
            set_row(operand, 1, 1e-40);  // flushed, as everywhere in kernels
            set_row(operand, 2, -3e38);
            feed[operand][3 * 64 + 5] = inf;
            feed[operand][4 * 64 + 7] = nan;
        }
        const auto expected = testing::run(recorded.graph, feed, *cpu),
                   found = testing::run(recorded.graph, feed, *gpu);
        EXPECT_TRUE(same_or_nan(found[0], expected[0])) << rows;
        EXPECT_TRUE(found[1] == expected[1]) << rows;
        EXPECT_TRUE(same_or_nan(found[2], expected[2])) << rows;
        const std::vector<double> y = testing::loaded<float>(found[0]);
        for (std::size_t i = 3 * 8; i < 5 * 8; ++i) EXPECT_FALSE(std::isfinite(y[i])) << i;
        EXPECT_EQ(y[5], 0) << "a row of zeros";
    }
}

std::string kernel_of_product(const std::string& format, const Extents& of, Device& device) {
    const Recorded recorded(product_case(format, of, false));
    return Plan(recorded.graph, device).kernels_of("quantized_matmul").at(0);
}

TEST_F(CudaQuantized, FewRowsAreReadAsTheyLieAndManyAreTheLibrarys) {
    const testing::EmulatedDevice gpu;
    EXPECT_EQ(kernel_of_product("s8", {8, 64, 96}, *gpu), "dp4a s8*s8+s32 sm_80");
    EXPECT_EQ(kernel_of_product("s8", {9, 64, 96}, *gpu), "cublasLt s8*s8+s32 tensor cores");
    EXPECT_EQ(kernel_of_product("s8", {9, 67, 96}, *gpu), "cublasLt s8*s8+s32 tensor cores");
    EXPECT_EQ(kernel_of_product("s4", {9, 64, 96}, *gpu), "dp4a s4*s8+s32 sm_80");
    const Recorded recorded(product_case("s8", {9, 64, 70}, false));
    const Plan plan(recorded.graph, *gpu);
    const PlannedNode& node = *plan.nodes_of("quantized_matmul").at(0);
    EXPECT_EQ(node.kernel, "dp4a s8*s8+s32 sm_80");
    ASSERT_EQ(node.refused.size(), 1u);
    EXPECT_EQ(node.refused[0].reason,
              "cuBLASLt multiplies bytes in rows of a multiple of 4, and so many, got s8[64, 70]");
}

/// A product of few rows reads w once in each block, and twice in none: 1.15 times its sectors at most, x's
/// beside.
TEST_F(CudaQuantized, FewRowsReadTheWeightsOnce) {
    testing::EmulatedDevice gpu;
    for (const std::string format : {"s8", "s4"}) {
        const Extents of{8, 4096, 512};
        const Recorded recorded(product_case(format, of, false));
        gpu.gpu.count(true);
        testing::run(recorded.graph, recorded.feed, *gpu);
        std::uint64_t counted = 0;
        for (const cuda::LaunchCount& launch : gpu.gpu.take_counts()) {
            if (!launch.kernel.starts_with("rows_times_")) continue;
            ++counted;
            const int columns = 8 * (format == "s8" ? 4 : 2);  // of eight warps
            EXPECT_EQ(launch.blocks, 4096u / static_cast<unsigned>(columns));
            const double bytes_of_w = columns * (format == "s8" ? 512 + 4 : 256 + 2 * 16),
                         bytes_of_x = 8 * (512 + 4 * (format == "s8" ? 1 : 16));
            // Each of eight warps reads x; of groups in two instructions, each of which touches all of it.
            const double reads_of_x = 8 * (format == "s8" ? 1 : 2);
            for (const cuda::BlockTraffic& block : launch.traffic) {
                EXPECT_LE(static_cast<double>(block.loaded), 1.15 * (bytes_of_w + bytes_of_x) / 32);
                EXPECT_LE(static_cast<double>(block.loads),
                          1.15 * (bytes_of_w + reads_of_x * bytes_of_x) / 32);
                EXPECT_GE(static_cast<double>(block.loads), bytes_of_w / 32) << "it is counted";
            }
        }
        EXPECT_EQ(counted, 1u);
    }
}

int bytes_before(const std::string& words, const std::string& what) {
    const std::size_t end = words.find(what);
    if (end == std::string::npos) return std::numeric_limits<int>::max();
    return std::stoi(words.substr(words.find_last_of(' ', end - 1) + 1));
}

using CudaQuantizedSlow = CudaQuantized;

/// Those of GPT-2 124M's products of one row, of eight and of a prompt. The assembler gives up one register,
/// of 4 bytes, where a block more fits a multiprocessor for it.
TEST_F(CudaQuantizedSlow, NvidiasAssemblerSpillsOneRegisterAtMost) {
    constexpr int max_spilled = 4;
    const std::string with_path = "PATH=$PATH:/usr/local/cuda/bin ";
    if (std::system((with_path + "sh -c 'command -v ptxas' >/dev/null").c_str()) != 0)
        GTEST_SKIP() << "no ptxas: CUDA's toolkit is not installed";
    const testing::EmulatedDevice gpu;
    for (const std::string format : {"s8", "s4"})
        for (const std::int64_t rows : {1, 8, 64})
            for (const auto& [columns, depth] :
                 {std::pair{768, 768}, std::pair{768, 3072}, std::pair{50257, 768}}) {
                const Recorded recorded(product_case(format, {rows, columns, depth, true}, false));
                const Plan plan(recorded.graph, *gpu);  // makes them
            }
    const TemporaryDirectory directory;
    const std::string path = (directory.path() / "kernel.ptx").string(),
                      said = (directory.path() / "said").string();
    const std::vector<KernelListing> kernels = (*gpu).compiled_kernels();
    EXPECT_GT(kernels.size(), 20u);
    for (const KernelListing& kernel : kernels) {
        std::ofstream(path) << kernel.assembly;
        for (const char* const architecture : {"sm_80", "sm_90", "sm_100"}) {
            const std::string knows = fmt::format("{} ptxas --help | grep -qw {}", with_path, architecture);
            if (std::system(knows.c_str()) != 0) continue;  // before CUDA 12.8 there is no sm_100
            const std::string command = fmt::format("{} ptxas -v -arch={} -o /dev/null '{}' 2>'{}'",
                                                    with_path, architecture, path, said);
            EXPECT_EQ(std::system(command.c_str()), 0) << kernel.pseudo_code;
            std::ifstream file(said);
            const std::string words{std::istreambuf_iterator<char>(file), {}};
            EXPECT_LE(bytes_before(words, " bytes spill stores"), max_spilled) << kernel.pseudo_code << words;
            EXPECT_LE(bytes_before(words, " bytes spill loads"), max_spilled) << kernel.pseudo_code << words;
            const std::size_t used = words.find("Used "), end = words.find("registers", used);
            fmt::print("{:<6} {} registers: {}\n", architecture, words.substr(used, end - used),
                       kernel.pseudo_code);
        }
    }
}

}  // namespace
}  // namespace mantissa
