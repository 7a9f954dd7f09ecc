// Products of four warps, wgmma, on the emulated GPU: operands in every layout that a descriptor may say, and
// what is judged of them. Where an element lies is written down here once more, by PTX ISA 8.7, section
// 9.7.15.5.1.2, and CUTLASS's canonical layouts.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/numerics/formats.h"
#include "tests/device/emulated_gpu_harness.h"

namespace mantissa::testing::warpgroups {
namespace {

using cuda::DevicePtr;
using cuda::Result;

constexpr int rows = 64, terms = 32, threads = 128;
constexpr std::uint64_t left_at = 0, right_at = 16384, shared_bytes = 49152;

int a_at(int row, int k) { return (row * 7 + k * 3) % 11 - 5; }
int b_at(int k, int column) { return (column * 5 + k * 2) % 9 - 4; }

/// How an operand lies: `mn`, its row or column, and k side by side in memory or not.
struct Lies {
    bool k_major = true;
    int swizzle = 128;  ///< bytes; 16: none
};

struct Placed {
    std::uint64_t leading = 0, stride = 0;
    std::uint64_t step = 0;                          ///< bytes from 16 terms to the next
    std::function<std::uint64_t(int, int)> at = {};  ///< of mn and k, in bytes
};

/// Patterns of eight rows of `swizzle` bytes lie behind one another, first along the rows.
Placed placed(const Lies& lies, int mn_count) {
    const std::uint64_t row = static_cast<std::uint64_t>(lies.swizzle), numbers = row / 2, pattern = 8 * row;
    const auto swizzled = [=](std::uint64_t at) {
        return at ^ (row == 128  ? (at >> 7 & 7) << 4
                     : row == 64 ? (at >> 7 & 3) << 4
                     : row == 32 ? (at >> 7 & 1) << 4
                                 : 0);
    };
    const auto rows_of = static_cast<std::uint64_t>(lies.k_major ? mn_count : terms);
    const std::uint64_t next = rows_of / 8 * pattern;  // from one row's end to what follows in it
    Placed all{.at = [=](int mn, int k) {
        const auto across = static_cast<std::uint64_t>(lies.k_major ? mn : k);
        const auto along = static_cast<std::uint64_t>(lies.k_major ? k : mn);
        return swizzled(across / 8 * pattern + across % 8 * row + along / numbers * next +
                        along % numbers * 2);
    }};
    all.leading = next;
    all.stride = pattern;
    if (lies.swizzle == 16 && !lies.k_major) std::swap(all.leading, all.stride);
    if (!lies.k_major)
        all.step = 2 * pattern;
    else
        all.step = numbers >= 32 ? 32 : 16 / numbers * next;
    return all;
}

std::uint64_t descriptor(const Placed& of, std::uint64_t at, const Lies& lies) {
    const std::uint64_t mode = lies.swizzle == 128 ? 1 : lies.swizzle == 64 ? 2 : lies.swizzle == 32 ? 3 : 0;
    return at / 16 | of.leading / 16 << 16 | of.stride / 16 << 32 | mode << 62;
}

struct Product {
    int columns = 64;
    std::optional<Lies> left = {};  ///< none: in registers
    Lies right = {};
    bool is_bf16 = true;
};

std::uint16_t bits(int value, bool is_bf16) {
    return is_bf16 ? to_bf16(static_cast<float>(value)).bits : to_fp16(static_cast<float>(value)).bits;
}

/// Shared memory as the kernel is to fill it.
std::vector<std::uint16_t> shared_image(const Product& product) {
    std::vector<std::uint16_t> image(shared_bytes / 2);
    if (product.left) {
        const Placed left = placed(*product.left, rows);
        for (int row = 0; row < rows; ++row)
            for (int k = 0; k < terms; ++k)
                image[(left_at + left.at(row, k)) / 2] = bits(a_at(row, k), product.is_bf16);
    }
    const Placed right = placed(product.right, product.columns);
    for (int column = 0; column < product.columns; ++column)
        for (int k = 0; k < terms; ++k)
            image[(right_at + right.at(column, k)) / 2] = bits(b_at(k, column), product.is_bf16);
    return image;
}

std::string list(const char* name, int from, int count) {
    std::string all;
    for (int i = from; i < from + count; ++i) all += fmt::format("{}{}{}", i == from ? "" : ", ", name, i);
    return "{" + all + "}";
}

/// Copies %p0 to shared memory, multiplies with the left operand's registers of %p1, writes sums to %p2: each
/// begins as 0.5, and is read once it is waited for.
std::string product_text(const Product& product) {
    const int sums = product.columns / 2;
    std::string text = fmt::format(
        ".shared .align 1024 .b8 s[{}];\n.reg .b32 %x<4>, %at, %w<8>;\n.reg .b64 %g, %o, %l, %r;\n.reg .f32 "
        "%d<{}>;\n.reg .pred %q;\nmul.wide.u32 %o, %tid, 16;\nadd.s64 %g, %p0, %o;\nmov.u32 %at, "
        "s;\nmad.lo.u32 "
        "%at, %tid, 16, %at;\n",
        shared_bytes, sums);
    for (std::uint64_t at = 0; at < shared_bytes; at += 16 * threads)
        text += fmt::format("ld.global.v4.b32 {0}, [%g+{1}];\nst.shared.v4.b32 [%at+{1}], {0};\n",
                            list("%x", 0, 4), at);
    text += "mul.wide.u32 %o, %tid, 32;\nadd.s64 %g, %p1, %o;\n";
    for (int i = 0; i < 8; ++i) text += fmt::format("ld.global.b32 %w{}, [%g+{}];\n", i, 4 * i);
    for (int i = 0; i < sums; ++i) text += fmt::format("mov.f32 %d{}, 0f3f000000;\n", i);
    text += "fence.proxy.async.shared::cta;\nbar.sync 0;\nwgmma.fence.sync.aligned;\n";
    const Placed right = placed(product.right, product.columns);
    for (int step = 0; step < terms / 16; ++step) {
        std::string left = list("%w", 4 * step, 4);
        if (product.left) {
            const Placed in = placed(*product.left, rows);
            text += fmt::format(
                "mov.u64 %l, {};\n",
                descriptor(in, left_at + static_cast<std::uint64_t>(step) * in.step, *product.left));
            left = "%l";
        }
        text += fmt::format(
            "mov.u64 %r, {};\nwgmma.mma_async.sync.aligned.m64n{}k16.f32.{}.{} {}, {}, %r, 1, 1, 1{}, {};\n",
            descriptor(right, right_at + static_cast<std::uint64_t>(step) * right.step, product.right),
            product.columns, product.is_bf16 ? "bf16" : "f16", product.is_bf16 ? "bf16" : "f16",
            list("%d", 0, sums), left,
            !product.left           ? ""
            : product.left->k_major ? ", 0"
                                    : ", 1",
            product.right.k_major ? 0 : 1);
    }
    text += "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n";
    text += fmt::format("mul.wide.u32 %o, %tid, {};\nadd.s64 %g, %p2, %o;\n", 4 * sums);
    for (int i = 0; i < sums; ++i) text += fmt::format("st.global.f32 [%g+{}], %d{};\n", 4 * i, i);
    return kernel_text(text, 3, "sm_90a", "8.0");
}

struct Ran {
    Result result;
    std::string report;
    std::vector<float> sums;
};

Ran run_product(const Product& product, const std::string& text, unsigned launched = threads) {
    GpuUnderTest gpu({.architecture = "sm_90a", .threads = 1});
    std::vector<std::uint32_t> registers;
    for (int thread = 0; thread < threads; ++thread)
        for (int step = 0; step < terms / 16; ++step)
            for (int r = 0; r < 4; ++r) {
                const int row = thread / 32 * 16 + thread % 32 / 4 + 8 * (r % 2);
                const int k = 16 * step + 2 * (thread % 4) + 8 * (r / 2);
                registers.push_back(bits(a_at(row, k), product.is_bf16) |
                                    std::uint32_t{bits(a_at(row, k + 1), product.is_bf16)} << 16);
            }
    const auto count = static_cast<std::size_t>(rows * product.columns);
    const DevicePtr image = gpu.upload(shared_image(product)), left = gpu.upload(registers),
                    out = gpu.upload(std::vector<float>(count, 0));
    const Result result = gpu.run(text, "k", {.threads = launched}, {image, left, out});
    return {result, gpu.report(),
            result == Result::success ? gpu.download<float>(out, count) : std::vector<float>(count)};
}

TEST(EmulatedWarpgroups, MultiplyOperandsOfEveryLayout) {
    std::vector<Product> all;
    for (const int swizzle : {16, 32, 64, 128})
        for (const bool k_major : {true, false})
            for (const int columns : {64, 128}) {
                all.push_back({.columns = columns, .right = {k_major, swizzle}});
                all.push_back(
                    {.columns = columns, .left = Lies{k_major, swizzle}, .right = {!k_major, swizzle}});
            }
    all.push_back({.columns = 24, .is_bf16 = false});
    for (const Product& product : all) {
        const Ran ran = run_product(product, product_text(product));
        ASSERT_EQ(ran.result, Result::success) << ran.report;
        const int sums = product.columns / 2;
        for (int thread = 0; thread < threads; ++thread)
            for (int i = 0; i < sums; ++i) {
                const int row = thread / 32 * 16 + thread % 32 / 4 + 8 * (i / 2 % 2);
                const int column = 8 * (i / 4) + 2 * (thread % 4) + i % 2;
                double sum = 0.5;
                for (int k = 0; k < terms; ++k) sum += a_at(row, k) * b_at(k, column);
                ASSERT_EQ(ran.sums[static_cast<std::size_t>(thread * sums + i)], sum)
                    << row << ", " << column << " of " << product.columns << ", swizzle "
                    << product.right.swizzle << (product.right.k_major ? ", by terms" : ", by columns");
            }
    }
}

TEST(EmulatedWarpgroups, FaultsAreCaught) {
    const Product product;
    const std::string whole = product_text(product);
    const auto changed = [&](const std::string& from, const std::string& to) {
        std::string text = whole;
        const std::size_t at = text.find(from);
        EXPECT_NE(at, std::string::npos) << from;
        return text.replace(at, from.size(), to);
    };
    const std::string fence = "wgmma.fence.sync.aligned;", wait = "wgmma.wait_group.sync.aligned 0;",
                      commit = "wgmma.commit_group.sync.aligned;";
    const struct {
        std::string from, to;
        const char* words;
    } faults[] = {
        {fence, "", "no wgmma.fence came before"},
        {fence, fence + "\nmov.f32 %d3, 0f40000000;", "was changed since the last wgmma.fence"},
        {fence, fence + "\nadd.u32 %w2, %w2, 1;", "was changed since the last wgmma.fence"},
        {wait, "", "under way: wgmma.wait_group comes before"},
        {wait, "wgmma.wait_group.sync.aligned 1;", "under way: wgmma.wait_group comes before"},
        {commit, "", "under way: wgmma.wait_group comes before"},
        {wait, "mov.u32 %w5, 0;\n" + wait, "under way: wgmma.wait_group comes before"},
        {wait, fmt::format("st.shared.u32 [%at+{}], %x0;\n", right_at) + wait,
         "which a wgmma.mma_async that is under"},
        {"fence.proxy.async.shared::cta;", "", "with no fence.proxy.async behind it"},
        {"bar.sync 0;", "", "a race with thread"},
        {commit, "setp.gt.u32 %q, %tid, 95;\n@%q exit;\n" + commit,
         "ends while a wgmma.mma_async is under way"},
        {fence, "setp.gt.u32 %q, %tid, 95;\n@%q exit;\n" + fence,
         "of its four warps, of which another made 2"},
        {"{%w0, %w1, %w2, %w3}, %r,", "{%w0, %w1, %w2, %w3}, %o,", "has another descriptor than lane 0"},
    };
    for (const auto& fault : faults) {
        const Ran ran = run_product(product, changed(fault.from, fault.to));
        EXPECT_NE(ran.result, Result::success) << fault.words;
        EXPECT_NE(ran.report.find(fault.words), std::string::npos) << fault.words << ": " << ran.report;
    }
    const Ran short_of_one = run_product(product, whole, 96);
    EXPECT_NE(short_of_one.report.find("a product of four warps, of which the block has fewer"),
              std::string::npos)
        << short_of_one.report;
}

TEST(EmulatedWarpgroups, AreOfOneArchitecture) {
    const auto report_on = [](const char* architecture, const std::string& target) {
        GpuUnderTest gpu({.architecture = architecture, .threads = 1});
        std::string text = product_text({});
        text.replace(text.find("sm_90a"), 6, target);
        cuda::Function function = nullptr;
        EXPECT_NE(gpu.load(text, "k", function), Result::success);
        return gpu.report();
    };
    EXPECT_NE(report_on("sm_90", "sm_90a").find("code for sm_90a runs on sm_90a alone"), std::string::npos);
    EXPECT_NE(report_on("sm_100", "sm_90a").find("code for sm_90a runs on sm_90a alone"), std::string::npos);
    EXPECT_NE(report_on("sm_90a", "sm_90").find("the instruction needs sm_90a"), std::string::npos);
}

}  // namespace
}  // namespace mantissa::testing::warpgroups
