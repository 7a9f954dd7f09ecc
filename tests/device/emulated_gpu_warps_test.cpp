// Exchange across the lanes of the emulated GPU's warps and the threads of its blocks, held to what it means.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "mantissa/numerics/formats.h"
#include "tests/device/emulated_gpu_harness.h"

namespace mantissa::testing {
namespace {

using cuda::DevicePtr;
using cuda::Result;

/// The 32-bit results of a kernel's threads; `body` leaves its in %r.
std::vector<std::uint32_t> results(const std::string& body, const GpuUnderTest::Launch& launch = {},
                                   const std::string& before = "") {
    GpuUnderTest gpu({.architecture = "sm_80", .threads = 1});
    const std::size_t count = std::size_t{launch.blocks} * launch.threads;
    const DevicePtr out = gpu.upload(std::vector<std::uint32_t>(count, 0));
    const std::string text =
        kernel_text(".reg .b32 %r, %v, %i, %n;\n.reg .b64 %o;\n.reg .pred %q, %s;\n" + body +
                        "\nmov.u32 %n, %ntid.x;\nmad.lo.s32 %i, %block, %n, %tid;\nmul.wide.u32 %o, %i, 4;\n"
                        "add.s64 %o, %p0, %o;\nst.global.u32 [%o], %r;",
                    1);
    const std::size_t entry = text.find(".visible");
    const Result result = gpu.run(text.substr(0, entry) + before + text.substr(entry), "k", launch, {out});
    EXPECT_EQ(result, Result::success) << gpu.report();
    return result == Result::success ? gpu.download<std::uint32_t>(out, count)
                                     : std::vector<std::uint32_t>(count);
}

TEST(EmulatedWarps, Shuffles) {
    const auto up = results("shfl.sync.up.b32 %r|%q, %lane, 3, 0, -1;\n@!%q add.u32 %r, %r, 100;");
    const auto down = results("shfl.sync.down.b32 %r, %lane, 3, 31, -1;");
    const auto butterfly = results("shfl.sync.bfly.b32 %r, %lane, 5, 31, -1;");
    const auto indexed = results("shfl.sync.idx.b32 %r, %lane, 9, 0x181f, -1;");  // segments of eight
    for (std::uint32_t lane = 0; lane < 32; ++lane) {
        EXPECT_EQ(up[lane], lane < 3 ? lane + 100 : lane - 3);
        EXPECT_EQ(down[lane], lane < 29 ? lane + 3 : lane);
        EXPECT_EQ(butterfly[lane], lane ^ 5);
        EXPECT_EQ(indexed[lane], (lane & 24) + 1);
    }
}

TEST(EmulatedWarps, VotesMatchesAndReductions) {
    const std::string low = "setp.lt.u32 %q, %lane, 5;\n";
    const auto all_of = [](const std::string& body) { return results(body)[7]; };
    EXPECT_EQ(all_of(low + "vote.sync.ballot.b32 %r, %q, -1;"), 31u);
    EXPECT_EQ(all_of(low + "vote.sync.ballot.b32 %r, !%q, -1;"), ~31u);
    EXPECT_EQ(all_of(low + "vote.sync.any.pred %s, %q, -1;\nselp.u32 %r, 1, 0, %s;"), 1u);
    EXPECT_EQ(all_of(low + "vote.sync.all.pred %s, %q, -1;\nselp.u32 %r, 1, 0, %s;"), 0u);
    EXPECT_EQ(all_of(low + "vote.sync.uni.pred %s, %q, -1;\nselp.u32 %r, 1, 0, %s;"), 0u);
    EXPECT_EQ(all_of("and.b32 %v, %lane, 3;\nmatch.any.sync.b32 %r, %v, -1;"), 0x88888888u);
    EXPECT_EQ(all_of("match.all.sync.b32 %r|%q, %lane, -1;"), 0u);
    EXPECT_EQ(all_of("redux.sync.add.s32 %r, %lane, -1;"), 496u);
    EXPECT_EQ(all_of("redux.sync.max.u32 %r, %lane, -1;"), 31u);
    EXPECT_EQ(all_of("redux.sync.xor.b32 %r, %lane, -1;"), 0u);
    EXPECT_EQ(all_of(low + "mov.u32 %r, 0;\n@!%q activemask.b32 %r;"), ~31u);
}

/// Collatz: each lane takes another number of steps; then all meet for a shuffle.
TEST(EmulatedWarps, LanesPartAndMeetAgain) {
    const auto got = results(
        "add.u32 %v, %tid, 1;\nmov.u32 %r, 0;\n$loop:\nsetp.eq.u32 %q, %v, 1;\n@%q bra $done;\n"
        "and.b32 %i, %v, 1;\nsetp.eq.u32 %s, %i, 0;\n@%s bra $even;\nmad.lo.u32 %v, %v, 3, 1;\nbra $next;\n"
        "$even:\nshr.u32 %v, %v, 1;\n$next:\nadd.u32 %r, %r, 1;\nbra $loop;\n$done:\n"
        "shfl.sync.idx.b32 %i, %r, 26, 31, -1;\nadd.u32 %r, %r, %i;");
    for (std::uint32_t lane = 0; lane < 32; ++lane) {
        const auto steps = [](std::uint32_t x) {
            std::uint32_t count = 0;
            for (; x != 1; ++count) x = x % 2 ? 3 * x + 1 : x / 2;
            return count;
        };
        EXPECT_EQ(got[lane], steps(lane + 1) + steps(27)) << lane;
    }
}

TEST(EmulatedWarps, FunctionsAndTablesOfBranches) {
    const std::string before =
        ".func (.param .b32 result) twice_and(.param .b32 a, .param .b32 b)\n{\n.reg .b32 %x, %y;\n.reg "
        ".pred %q;\n"
        "ld.param.b32 %x, [a];\nld.param.b32 %y, [b];\nsetp.gt.u32 %q, %x, 9;\n@%q bra $big;\nshl.b32 %x, "
        "%x, 1;\n"
        "$big:\nadd.u32 %x, %x, %y;\nst.param.b32 [result], %x;\nret;\n}\n";
    const auto got = results(
        "{ .param .b32 p0; .param .b32 p1; .param .b32 r0;\nst.param.b32 [p0], %tid;\nst.param.b32 [p1], "
        "1000;\n"
        "call.uni (r0), twice_and, (p0, p1);\nld.param.b32 %r, [r0]; }\nand.b32 %v, %tid, 3;\n"
        "$list: .branchtargets $a, $b, $c, $d;\nbrx.idx %v, $list;\n$a: add.u32 %r, %r, 1;\n$b: add.u32 %r, "
        "%r, 10;\n"
        "$c: add.u32 %r, %r, 100;\n$d:",
        {}, before);
    const std::uint32_t added[] = {111, 110, 100, 0};
    for (std::uint32_t i = 0; i < 32; ++i) EXPECT_EQ(got[i], (i > 9 ? i : 2 * i) + 1000 + added[i % 4]) << i;
}

TEST(EmulatedWarps, BlocksReduceThroughSharedMemoryAndBarriers) {
    const auto got = results(
        "setp.eq.u32 %q, %tid, 63;\n@%q st.shared.u32 [s], %block;\nbar.sync 0;\nld.shared.u32 %v, [s];\n"
        "setp.lt.u32 %q, %tid, 40;\nbar.red.popc.u32 %r, 0, %q;\nadd.u32 %r, %r, %v;\n"
        "bar.red.and.pred %s, 0, %q;\n@%s add.u32 %r, %r, 1000;\nbar.red.or.pred %s, 0, %q;\n@%s add.u32 %r, "
        "%r, 100;",
        {.blocks = 2, .threads = 64}, ".shared .align 4 .b8 s[4];\n");
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], 140 + i / 64) << i;
}

TEST(EmulatedWarps, Atomics) {
    GpuUnderTest gpu({.architecture = "sm_80", .threads = 2});
    const DevicePtr out = gpu.upload(std::vector<std::uint32_t>{0, ~0u, 0, 0, 0, 0});
    const std::string body =
        ".reg .b32 %a, %b;\n.reg .f32 %f;\natom.global.add.u32 %a, [%p0], 1;\nred.global.min.u32 [%p0+4], "
        "%tid;\n"
        "red.global.max.s32 [%p0+8], %tid;\ncvt.rn.f32.u32 %f, %tid;\nred.global.add.f32 [%p0+12], %f;\n"
        "atom.global.cas.b32 %b, [%p0+16], 0, 7;\natom.global.inc.u32 %b, [%p0+20], 4;";
    ASSERT_EQ(gpu.run(kernel_text(body, 1), "k", {.blocks = 3, .threads = 64}, {out}), Result::success)
        << gpu.report();
    const auto got = gpu.download<std::uint32_t>(out, 6);
    EXPECT_EQ(got[0], 192u);
    EXPECT_EQ(got[1], 0u);
    EXPECT_EQ(got[2], 63u);
    EXPECT_EQ(std::bit_cast<float>(got[3]), 3.0f * 63 * 32);
    EXPECT_EQ(got[4], 7u);
    EXPECT_EQ(got[5], 192u % 5);
}

/// C = A B + C through the fragments of mma.sync, on whole numbers, which every order of the sum gives
/// exactly.
struct Product {
    const char* shape;
    const char* type;  ///< of A and B
    int k, run, a, b;  ///< numbers of a register along k; registers
    std::uint32_t (*bits)(int value);
};

std::uint32_t bf16_bits(int value) { return to_bf16(static_cast<float>(value)).bits; }
std::uint32_t fp16_bits(int value) { return to_fp16(static_cast<float>(value)).bits; }
std::uint32_t fp32_bits(int value) { return std::bit_cast<std::uint32_t>(static_cast<float>(value)); }

int a_at(int row, int k) { return (row * 7 + k * 3) % 11 - 5; }
int b_at(int k, int column) { return (column * 5 + k * 2) % 9 - 4; }
int c_at(int row, int column) { return row - 3 * column; }

void expect_product(const Product& product) {
    // Registers as they are read: lane by lane, A's, B's, then C's. Lane 4 g + t: PTX ISA 8.5,
    // section 9.7.14.5.
    std::vector<std::uint32_t> in;
    const int width = product.run == 1 ? 32 : 16;
    for (int lane = 0; lane < 32; ++lane) {
        const int g = lane / 4, t = lane % 4;
        for (int r = 0; r < product.a; ++r) {
            std::uint32_t bits = 0;
            for (int j = 0; j < product.run; ++j)
                bits |= product.bits(a_at(g + (r % 2) * 8, t * product.run + j + (r / 2) * 4 * product.run))
                        << (width * j % 32);
            in.push_back(bits);
        }
        for (int r = 0; r < product.b; ++r) {
            std::uint32_t bits = 0;
            for (int j = 0; j < product.run; ++j)
                bits |= product.bits(b_at(t * product.run + j + r * 4 * product.run, g)) << (width * j % 32);
            in.push_back(bits);
        }
        for (int j = 0; j < 4; ++j) in.push_back(fp32_bits(c_at(g + 8 * (j / 2), 2 * t + j % 2)));
    }
    const int each = product.a + product.b + 4;
    std::string body = ".reg .b64 %x, %y;\n.reg .b32 %a<4>, %b<2>;\n.reg .f32 %c<4>, %d<4>;\n";
    body += fmt::format("mad.wide.u32 %x, %lane, {}, %p0;\nmad.wide.u32 %y, %lane, 16, %p1;\n", 4 * each);
    std::string a, b;
    for (int r = 0; r < each; ++r) {
        const std::string name = r < product.a               ? fmt::format("%a{}", r)
                                 : r < product.a + product.b ? fmt::format("%b{}", r - product.a)
                                                             : fmt::format("%c{}", r - product.a - product.b);
        body += fmt::format("ld.global.b32 {}, [%x+{}];\n", name, 4 * r);
        if (r < product.a) a += (r ? ", " : "") + name;
        if (r >= product.a && r < product.a + product.b) b += (r > product.a ? ", " : "") + name;
    }
    body += fmt::format(
        "mma.sync.aligned.{}.row.col.f32.{}.{}.f32 {{%d0, %d1, %d2, %d3}}, {{{}}}, {{{}}}, {{%c0, %c1, %c2, "
        "%c3}};\nst.global.v4.f32 [%y], {{%d0, %d1, %d2, %d3}};",
        product.shape, product.type, product.type, a, b);
    GpuUnderTest gpu({.architecture = "sm_80", .threads = 1});
    const DevicePtr from = gpu.upload(in), to = gpu.allocate(32 * 16);
    ASSERT_EQ(gpu.run(kernel_text(body, 2), "k", {}, {from, to}), Result::success) << gpu.report();
    const auto got = gpu.download<float>(to, 128);
    for (int lane = 0; lane < 32; ++lane)
        for (int j = 0; j < 4; ++j) {
            const int row = lane / 4 + 8 * (j / 2), column = 2 * (lane % 4) + j % 2;
            int sum = c_at(row, column);
            for (int k = 0; k < product.k; ++k) sum += a_at(row, k) * b_at(k, column);
            EXPECT_EQ(got[static_cast<std::size_t>(4 * lane + j)], static_cast<float>(sum))
                << product.shape << product.type << " row " << row << " column " << column;
        }
}

TEST(EmulatedWarps, MatrixProducts) {
    expect_product({"m16n8k16", "bf16", 16, 2, 4, 2, bf16_bits});
    expect_product({"m16n8k8", "bf16", 8, 2, 2, 1, bf16_bits});
    expect_product({"m16n8k16", "f16", 16, 2, 4, 2, fp16_bits});
    expect_product({"m16n8k8", "f16", 8, 2, 2, 1, fp16_bits});
    expect_product({"m16n8k8", "tf32", 8, 1, 4, 2, fp32_bits});
    expect_product({"m16n8k4", "tf32", 4, 1, 2, 1, fp32_bits});
}

/// Rows of eight 16-bit numbers: element 16 * row + column of each matrix.
TEST(EmulatedWarps, MatricesFromSharedMemory) {
    for (const bool transposed : {false, true}) {
        const auto got = results(
            fmt::format(
                ".reg .b32 %a<4>, %at, %lo, %hi;\nshl.b32 %at, %tid, 4;\nmov.u32 %v, s;\nadd.u32 %at, %at, "
                "%v;\n"
                "shl.b32 %i, %tid, 4;\n"
                // Thread `tid` writes the row of that number: numbers 16 tid, 16 tid + 1, ...
                "add.u32 %hi, %i, 1;\nprmt.b32 %lo, %i, %hi, 0x5410;\nst.shared.b32 [%at], %lo;\n"
                "add.u32 %lo, %lo, 0x00020002;\nst.shared.b32 [%at+4], %lo;\nadd.u32 %lo, %lo, 0x00020002;\n"
                "st.shared.b32 [%at+8], %lo;\nadd.u32 %lo, %lo, 0x00020002;\nst.shared.b32 [%at+12], "
                "%lo;\nbar.sync 0;\n"
                "ldmatrix.sync.aligned.m8n8.x4{}.shared.b16 {{%a0, %a1, %a2, %a3}}, [%at];\nmov.b32 %r, %a2;",
                transposed ? ".trans" : ""),
            {}, ".shared .align 16 .b8 s[512];\n");
        for (std::uint32_t lane = 0; lane < 32; ++lane) {
            const auto number = [&](std::uint32_t row, std::uint32_t column) {
                return (16 + row) * 16 + column;
            };
            const std::uint32_t g = lane / 4, t = 2 * (lane % 4);
            const std::uint32_t low = transposed ? number(t, g) : number(g, t);
            const std::uint32_t high = transposed ? number(t + 1, g) : number(g, t + 1);
            EXPECT_EQ(got[lane], high << 16 | low) << lane;
        }
    }
}

/// Whole numbers again: FP16 sums, bytes, FP64. Each lane's registers by formula.
TEST(EmulatedWarps, MatrixProductsOfOtherTypes) {
    // A and B all ones in FP16, C two: 16 + 2 in both halves of both registers.
    const auto half = results(
        ".reg .b32 %one, %two, %d0, %d1;\nmov.u32 %one, 0x3c003c00;\nmov.u32 %two, 0x40004000;\n"
        "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%d0, %d1}, {%one, %one, %one, %one}, {%one, "
        "%one}, {%two, %two};\n"
        "xor.b32 %d0, %d0, %d1;\nadd.u32 %r, %d0, %d1;");
    EXPECT_EQ(half[9], 0x4c804c80u);
    // A's row g is g - 3 in every column, B's column g is g: sums of 32 products.
    const auto bytes = results(
        ".reg .b32 %a, %b, %h, %d<4>, %z;\nshr.u32 %i, %lane, 2;\nmul.lo.u32 %b, %i, 0x01010101;\nsub.u32 "
        "%a, %i, 3;\n"
        "and.b32 %a, %a, 255;\nmul.lo.u32 %a, %a, 0x01010101;\nmov.u32 %z, 5;\n"
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%d0, %d1, %d2, %d3}, {%a, %a, %a, %a}, {%b, %b}, "
        "{%z, %z, %z, %z};\n"
        "mov.b32 %r, %d1;");
    for (int lane = 0; lane < 32; ++lane)
        EXPECT_EQ(static_cast<std::int32_t>(bytes[static_cast<std::size_t>(lane)]),
                  32 * (lane / 4 - 3) * (2 * (lane % 4) + 1) + 5);
    // A's row r is r + 1 at k, times B's column c at k, which is k: (r + 1) * (0 + 1 + 2 + 3) + c.
    const auto wide = results(
        ".reg .f64 %a, %b, %c, %d, %e;\nshr.u32 %i, %lane, 2;\nadd.u32 %i, %i, 1;\ncvt.rn.f64.u32 %a, "
        "%i;\nand.b32 %i, %lane, 3;\n"
        "cvt.rn.f64.u32 %b, %i;\nshl.b32 %i, %i, 1;\ncvt.rn.f64.u32 %c, %i;\n"
        "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%d, %e}, {%a}, {%b}, {%c, %c};\ncvt.rzi.u32.f64 "
        "%r, %e;");
    for (std::uint32_t lane = 0; lane < 32; ++lane)
        EXPECT_EQ(wide[lane], (lane / 4 + 1) * 6 + 2 * (lane % 4));
}

/// Matrices that stmatrix lays down ldmatrix picks up.
TEST(EmulatedWarps, MatricesToSharedMemory) {
    GpuUnderTest gpu({.architecture = "sm_90", .threads = 1});
    const DevicePtr out = gpu.allocate(128);
    const std::string body =
        ".shared .align 16 .b8 s[128];\n.reg .b32 %at, %r, %q;\n.reg .b64 %o;\nand.b32 %at, %lane, "
        "7;\nshl.b32 %at, %at, 4;\n"
        "mad.lo.u32 %r, %lane, 0x20002, 0x10000;\nstmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%at], "
        "{%r};\nbar.sync 0;\n"
        "ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%q}, [%at];\nmad.wide.u32 %o, %lane, 4, "
        "%p0;\nst.global.u32 [%o], %q;";
    ASSERT_EQ(gpu.run(kernel_text(body, 1, "sm_90", "7.8"), "k", {}, {out}), Result::success) << gpu.report();
    const auto got = gpu.download<std::uint32_t>(out, 32);
    for (std::uint32_t lane = 0; lane < 32; ++lane) EXPECT_EQ(got[lane], lane * 0x20002 + 0x10000);
}

TEST(EmulatedWarps, CopiesFillWithZerosWhatTheyDoNotRead) {
    const auto got = results(
        "shl.b32 %v, %tid, 4;\nmul.wide.u32 %o, %tid, 0;\nadd.s64 %o, %o, table;\n"
        "cp.async.cg.shared.global [%v], [%o], 16, 4;\ncp.async.commit_group;\ncp.async.wait_group 0;\n"
        "ld.shared.u32 %r, [%v];\nld.shared.u32 %i, [%v+4];\nmad.lo.u32 %r, %r, 10, %i;",
        {}, ".shared .align 16 .b8 s[512];\n.global .align 16 .b32 table[4] = {7, 8, 9, 10};\n");
    EXPECT_EQ(got, std::vector<std::uint32_t>(32, 70));
}

TEST(EmulatedWarps, VectorsSmallNumbersAndVariables) {
    const auto got = results(
        ".reg .b32 %a, %b, %c, %d;\n.reg .b16 %h;\n.reg .b64 %x;\nmov.u64 %x, table;\nld.global.v4.b32 {%a, "
        "%b, %c, %d}, [%x];\n"
        "ld.global.s8 %v, [%x+16];\nld.global.u8 %i, [%x+16];\nld.global.s16 %h, [%x+20];\ncvt.s32.s16 %n, "
        "%h;\n"
        "add.u32 %r, %a, %b;\nadd.u32 %r, %r, %c;\nadd.u32 %r, %r, %d;\nadd.u32 %r, %r, %v;\nadd.u32 %r, %r, "
        "%i;\n"
        "add.u32 %r, %r, %n;\nld.const.b32 %a, [fixed+4];\nadd.u32 %r, %r, %a;\nld.global.v2.u16 {%h, _}, "
        "[%x];\n"
        "cvt.u32.u16 %a, %h;\nadd.u32 %r, %r, %a;",
        {},
        ".global .align 16 .b32 table[6] = {1, 10, 100, 1000, 0xfe, 0xfffb};\n.const .align 4 .b32 fixed[2] "
        "= {0, 10000};\n");
    EXPECT_EQ(got[3], 1111u - 2 + 254 - 5 + 10000 + 1);
}

/// Dynamic shared memory lies behind the static; a launch says how much.
TEST(EmulatedWarps, DynamicSharedMemory) {
    const std::string before = ".shared .align 4 .b8 s[16];\n.extern .shared .align 16 .b8 dynamic[];\n";
    const auto got = results(
        "mov.u32 %v, dynamic;\nshl.b32 %i, %tid, 2;\nadd.u32 %i, %i, %v;\nst.shared.u32 [%i], %tid;\n"
        "ld.shared.u32 %r, [%i];\nadd.u32 %r, %r, %v;\nmov.u32 %v, %dynamic_smem_size;\nadd.u32 %r, %r, %v;",
        {.shared = 128}, before);
    EXPECT_EQ(got[5], 5u + 16 + 128);
}

TEST(EmulatedWarps, TrafficIsCountedInSectors) {
    GpuUnderTest gpu({.architecture = "sm_80", .threads = 1});
    const DevicePtr in = gpu.upload(std::vector<float>(1024, 1.0f)), out = gpu.allocate(4096);
    gpu.gpu().count(true);
    const std::string body =
        ".reg .b32 %i;\n.reg .b64 %x, %y;\n.reg .f32 %f;\nmad.lo.u32 %i, %block, 128, %tid;\nmad.wide.u32 "
        "%x, %i, 4, %p0;\n"
        "mad.wide.u32 %y, %i, 4, %p1;\nld.global.f32 %f, [%x];\nld.global.f32 %f, [%x];\nfma.rn.f32 %f, %f, "
        "%f, %f;\n"
        "st.global.f32 [%y], %f;";
    ASSERT_EQ(gpu.run(kernel_text(body, 2), "k", {.blocks = 8, .threads = 128}, {in, out}), Result::success)
        << gpu.report();
    const auto counts = gpu.gpu().take_counts();
    ASSERT_EQ(counts.size(), 1u);
    EXPECT_EQ(counts[0].kernel, "k");
    EXPECT_EQ(counts[0].flops, 2u * 1024);
    ASSERT_EQ(counts[0].traffic.size(), 3u);  // the first, the middle and the last block
    for (const cuda::BlockTraffic& one : counts[0].traffic) {
        EXPECT_EQ(one.loads, 2u * 128 * 4 / 32);
        EXPECT_EQ(one.loaded, 128u * 4 / 32);
        EXPECT_EQ(one.stored, 128u * 4 / 32);
    }
    EXPECT_EQ(counts[0].traffic[1].block, 3u);
}

}  // namespace
}  // namespace mantissa::testing
