// Each instruction of the emulated GPU held to known answers: made by hand, or by FP64 for the approximate
// ones.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "tests/device/emulated_gpu_harness.h"

namespace mantissa::testing {
namespace {

struct InstructionCase {
    const char* instruction;
    const char* types;
    std::vector<std::uint64_t> operands;
    std::uint64_t expected;
};

std::uint64_t f(float x) { return std::bit_cast<std::uint32_t>(x); }
std::uint64_t d(double x) { return std::bit_cast<std::uint64_t>(x); }
constexpr std::uint64_t nan32 = 0x7fffffff, inf32 = 0x7f800000;
const float inf = std::numeric_limits<float>::infinity();
constexpr std::uint64_t tiny = 1, minus_tiny = 0x80000001;  // the smallest subnormals

void expect(const std::vector<InstructionCase>& cases, const std::string& target = "sm_80",
            const std::string& version = "7.0") {
    GpuUnderTest gpu({.architecture = target, .threads = 1});
    for (const InstructionCase& one : cases)
        EXPECT_EQ(evaluate(gpu, one.instruction, one.types, one.operands, target, version), one.expected)
            << one.instruction << std::hex << " of " << ::testing::PrintToString(one.operands);
}

TEST(EmulatedInstructions, IntegerArithmetic) {
    expect({{"add.s32 %d, %a, %b;", "s32 s32 s32", {0x7fffffff, 1}, 0x80000000},
            {"add.sat.s32 %d, %a, %b;", "s32 s32 s32", {0x7fffffff, 1}, 0x7fffffff},
            {"add.sat.s32 %d, %a, -7;", "s32 s32", {0x80000001}, 0x80000000},
            {"sub.u16 %d, %a, %b;", "u16 u16 u16", {3, 5}, 0xfffe},
            {"sub.sat.s32 %d, %a, %b;", "s32 s32 s32", {0x80000000, 1}, 0x80000000},
            {"add.u64 %d, %a, 0x100000000;", "u64 u64", {0xffffffff}, 0x1ffffffff},
            {"mul.lo.s32 %d, %a, %b;", "s32 s32 s32", {0x10001, 0x10001}, 0x20001},
            {"mul.hi.s32 %d, %a, %b;", "s32 s32 s32", {0xffffffff, 5}, 0xffffffff},
            {"mul.hi.u32 %d, %a, %b;", "u32 u32 u32", {0xffffffff, 5}, 4},
            {"mul.hi.u64 %d, %a, %b;", "u64 u64 u64", {~0ull, ~0ull}, ~0ull - 1},
            {"mul.hi.s64 %d, %a, %b;", "s64 s64 s64", {~0ull, ~0ull}, 0},
            {"mul.wide.s32 %d, %a, %b;", "s64 s32 s32", {0xffffffff, 3}, ~0ull - 2},
            {"mul.wide.u32 %d, %a, %b;", "u64 u32 u32", {0xffffffff, 3}, 0x2fffffffd},
            {"mul.wide.u16 %d, %a, %b;", "u32 u16 u16", {0xffff, 0xffff}, 0xfffe0001},
            {"mad.lo.s32 %d, %a, %b, %c;", "s32 s32 s32 s32", {7, 6, 5}, 47},
            {"mad.wide.s32 %d, %a, %b, %c;", "s64 s32 s32 s64", {0xffffffff, 4, 10}, 6},
            {"mad.wide.u16 %d, %a, %b, %c;", "u32 u16 u16 u32", {0xffff, 2, 3}, 0x20001},
            {"mad.hi.u32 %d, %a, %b, %c;", "u32 u32 u32 u32", {0x80000000, 4, 1}, 3},
            {"mul24.lo.u32 %d, %a, %b;", "u32 u32 u32", {0xff000003, 5}, 15},
            {"div.s32 %d, %a, %b;",
             "s32 s32 s32",
             {static_cast<std::uint32_t>(-7), 2},
             static_cast<std::uint32_t>(-3)},
            {"rem.s32 %d, %a, %b;", "s32 s32 s32", {static_cast<std::uint32_t>(-7), 2}, 0xffffffff},
            {"div.s32 %d, %a, %b;", "s32 s32 s32", {0x80000000, 0xffffffff}, 0x80000000},
            {"div.u64 %d, %a, %b;", "u64 u64 u64", {~0ull, 10}, ~0ull / 10},
            {"rem.u32 %d, %a, %b;", "u32 u32 u32", {0xffffffff, 10}, 5},
            {"min.s32 %d, %a, %b;", "s32 s32 s32", {0xffffffff, 1}, 0xffffffff},
            {"min.u32 %d, %a, %b;", "u32 u32 u32", {0xffffffff, 1}, 1},
            {"max.s64 %d, %a, %b;", "s64 s64 s64", {~0ull, 1}, 1},
            {"abs.s32 %d, %a;", "s32 s32", {0xfffffffb}, 5},
            {"neg.s16 %d, %a;", "s16 s16", {5}, 0xfffb},
            {"sad.u32 %d, %a, %b, %c;", "u32 u32 u32 u32", {3, 10, 100}, 107},
            {"dp4a.s32.s32 %d, %a, %b, %c;", "s32 s32 s32 s32", {0xff020304, 0x01020304, 10}, 38},
            {"dp4a.u32.u32 %d, %a, %b, %c;", "u32 u32 u32 u32", {0xff020304, 0x01020304, 10}, 294}});
}

TEST(EmulatedInstructions, Bits) {
    expect({{"and.b32 %d, %a, %b;", "b32 b32 b32", {0xff00ff00, 0x0ff00ff0}, 0x0f000f00},
            {"or.b16 %d, %a, %b;", "b16 b16 b16", {0xf0, 0x0f}, 0xff},
            {"xor.b64 %d, %a, %b;", "b64 b64 b64", {~0ull, 1}, ~0ull - 1},
            {"not.b32 %d, %a;", "b32 b32", {0xff}, 0xffffff00},
            {"cnot.b32 %d, %a;", "b32 b32", {0}, 1},
            {"shl.b32 %d, %a, %b;", "b32 b32 u32", {1, 31}, 0x80000000},
            {"shl.b32 %d, %a, %b;", "b32 b32 u32", {1, 32}, 0},
            {"shr.s32 %d, %a, %b;", "s32 s32 u32", {0x80000000, 40}, 0xffffffff},
            {"shr.u32 %d, %a, %b;", "u32 u32 u32", {0x80000000, 31}, 1},
            {"shr.u64 %d, %a, 3;", "u64 u64", {0x80}, 0x10},
            {"shr.s16 %d, %a, 4;", "s16 s16", {0x8000}, 0xf800},
            {"shf.l.wrap.b32 %d, %a, %b, %c;", "b32 b32 b32 u32", {0x80000000, 1, 33}, 3},
            {"shf.r.wrap.b32 %d, %a, %b, %c;", "b32 b32 b32 u32", {2, 1, 1}, 0x80000001},
            {"shf.l.clamp.b32 %d, %a, %b, %c;", "b32 b32 b32 u32", {7, 1, 40}, 7},
            {"shf.r.clamp.b32 %d, %a, %b, %c;", "b32 b32 b32 u32", {7, 9, 32}, 9},
            {"bfe.u32 %d, %a, %b, %c;", "u32 u32 u32 u32", {0xabcd1234, 16, 1}, 1},
            {"bfe.s32 %d, %a, %b, %c;", "s32 s32 u32 u32", {0x00000080, 4, 4}, 0xfffffff8},
            {"bfe.u32 %d, %a, %b, %c;", "u32 u32 u32 u32", {0xffffffff, 28, 16}, 15},
            {"bfe.s32 %d, %a, %b, %c;", "s32 s32 u32 u32", {0x80000000, 28, 16}, 0xfffffff8},
            {"bfe.u32 %d, %a, %b, %c;", "u32 u32 u32 u32", {0xffffffff, 0, 0}, 0},
            {"bfe.u64 %d, %a, %b, %c;", "u64 u64 u32 u32", {0xabcd000000000000, 48, 16}, 0xabcd},
            {"bfi.b32 %d, %a, %b, %c, %e;", "b32 b32 b32 u32 u32", {0xff, 0, 8, 4}, 0xf00},
            {"bfi.b32 %d, %a, %b, %c, %e;", "b32 b32 b32 u32 u32", {0xff, 7, 33, 4}, 7},
            {"brev.b32 %d, %a;", "b32 b32", {1}, 0x80000000},
            {"popc.b64 %d, %a;", "u32 b64", {~0ull}, 64},
            {"clz.b32 %d, %a;", "u32 b32", {0}, 32},
            {"bfind.u32 %d, %a;", "u32 u32", {0x00100000}, 20},
            {"bfind.s32 %d, %a;", "u32 s32", {0xffffffff}, 0xffffffff},
            {"prmt.b32 %d, %a, %b, %c;", "b32 b32 b32 b32", {0x33221100, 0x77665544, 0x7410}, 0x77441100},
            {"prmt.b32 %d, %a, %b, 0x5410;", "b32 b32 b32", {0x0000aaaa, 0x0000bbbb}, 0xbbbbaaaa},
            {"prmt.b32 %d, %a, %b, 0x000b;", "b32 b32 b32", {0x80000000, 0}, 0x000000ff},
            {"prmt.b32.f4e %d, %a, %b, %c;", "b32 b32 b32 b32", {0x33221100, 0x77665544, 1}, 0x44332211},
            {"lop3.b32 %d, %a, %b, %c, 0xe8;", "b32 b32 b32 b32", {0xff00, 0xf0f0, 0xcccc}, 0xfcc0},
            {"lop3.b32 %d, %a, %b, %c, 0x96;", "b32 b32 b32 b32", {0xff00, 0xf0f0, 0xcccc}, 0xc33c},
            {"{ .reg .pred q; setp.lo.u32 q, %a, %b; selp.b32 %d, %a, %b, q; }", "b32 b32 b32", {9, 4}, 4},
            {"slct.s32.s32 %d, %a, %b, %c;", "s32 s32 s32 s32", {1, 2, 0xffffffff}, 2},
            {"slct.u32.f32 %d, %a, %b, %c;", "u32 u32 u32 f32", {1, 2, 0x80000000}, 1},
            {"slct.u32.f32 %d, %a, %b, %c;", "u32 u32 u32 f32", {1, 2, nan32}, 2},
            {"set.lt.u32.f32 %d, %a, %b;", "u32 f32 f32", {f(1), f(2)}, 0xffffffff},
            {"set.lt.f32.f32 %d, %a, %b;", "f32 f32 f32", {f(1), f(2)}, f(1)},
            {"mov.b32 %d, {%a, %b};", "b32 b16 b16", {0x1234, 0xabcd}, 0xabcd1234},
            {"mov.b64 %d, {%a, %b};", "b64 b32 b32", {0x1234, 0xabcd}, 0xabcd00001234},
            {"{ .reg .b32 low; mov.b64 {low, %d}, %a; }", "b32 b64", {0xabcd00001234}, 0xabcd}});
}

TEST(EmulatedInstructions, Fp32) {
    expect(
        {{"add.f32 %d, %a, %b;", "f32 f32 f32", {f(1), f(0x1p-24f)}, f(1)},
         {"add.rp.f32 %d, %a, %b;", "f32 f32 f32", {f(1), f(0x1p-24f)}, f(1 + 0x1p-23f)},
         {"add.rz.f32 %d, %a, %b;", "f32 f32 f32", {f(-1), f(-0x1p-24f)}, f(-1)},
         {"add.rm.f32 %d, %a, %b;", "f32 f32 f32", {f(-1), f(-0x1p-24f)}, f(-1 - 0x1p-23f)},
         {"add.f32 %d, %a, %b;", "f32 f32 f32", {inf32, f(-inf)}, nan32},
         {"add.f32 %d, %a, %b;", "f32 f32 f32", {tiny, tiny}, 2},
         {"add.ftz.f32 %d, %a, %b;", "f32 f32 f32", {minus_tiny, minus_tiny}, 0x80000000},
         {"sub.f32 %d, %a, %b;", "f32 f32 f32", {0x7fc12345, f(1)}, nan32},
         {"mul.f32 %d, %a, %b;", "f32 f32 f32", {f(3), f(0x1p-149f)}, 3},
         {"mul.ftz.f32 %d, %a, %b;", "f32 f32 f32", {f(0x1p-100f), f(0x1p-30f)}, 0},
         {"mul.sat.f32 %d, %a, %b;", "f32 f32 f32", {f(3), f(5)}, f(1)},
         {"mul.sat.f32 %d, %a, %b;", "f32 f32 f32", {nan32, f(5)}, 0},
         {"fma.rn.f32 %d, %a, %b, %c;",
          "f32 f32 f32 f32",
          {f(1 + 0x1p-12f), f(1 - 0x1p-12f), f(-1)},
          f(-0x1p-24f)},
         {"fma.rz.f32 %d, %a, %b, %c;", "f32 f32 f32 f32", {f(1), f(-0x1p-30f), f(1)}, f(1 - 0x1p-24f)},
         {"mad.rn.f32 %d, %a, %b, %c;", "f32 f32 f32 f32", {f(2), f(3), f(4)}, f(10)},
         {"div.rn.f32 %d, %a, %b;", "f32 f32 f32", {f(1), f(3)}, f(1.0f / 3)},
         {"div.rp.f32 %d, %a, %b;", "f32 f32 f32", {f(1), f(10)}, 0x3dcccccd},
         {"div.rz.f32 %d, %a, %b;", "f32 f32 f32", {f(1), f(10)}, 0x3dcccccc},
         {"div.rn.f32 %d, %a, %b;", "f32 f32 f32", {f(1), 0x80000000}, f(-inf)},
         {"rcp.rn.f32 %d, %a;", "f32 f32", {f(3)}, f(1.0f / 3)},
         {"sqrt.rn.f32 %d, %a;", "f32 f32", {f(2)}, f(std::sqrt(2.0f))},
         {"sqrt.rn.f32 %d, %a;", "f32 f32", {f(-1)}, nan32},
         {"sqrt.rp.f32 %d, %a;", "f32 f32", {f(2)}, f(std::nextafter(std::sqrt(2.0f), 2.0f))},
         {"abs.f32 %d, %a;", "f32 f32", {f(-2)}, f(2)},
         {"neg.ftz.f32 %d, %a;", "f32 f32", {tiny}, 0x80000000},
         {"min.f32 %d, %a, %b;", "f32 f32 f32", {nan32, f(1)}, f(1)},
         {"min.NaN.f32 %d, %a, %b;", "f32 f32 f32", {nan32, f(1)}, nan32},
         {"min.f32 %d, %a, %b;", "f32 f32 f32", {0, 0x80000000}, 0x80000000},
         {"max.f32 %d, %a, %b;", "f32 f32 f32", {0x80000000, 0}, 0},
         {"max.ftz.f32 %d, %a, %b;", "f32 f32 f32", {f(-3), tiny}, 0},
         {"copysign.f32 %d, %a, %b;", "f32 f32 f32", {f(-1), f(3)}, f(-3)},
         {"{ .reg .pred q; setp.lt.f32 q, %a, %b; selp.u32 %d, 1, 0, q; }", "u32 f32 f32", {nan32, f(1)}, 0},
         {"{ .reg .pred q; setp.ltu.f32 q, %a, %b; selp.u32 %d, 1, 0, q; }", "u32 f32 f32", {nan32, f(1)}, 1},
         {"{ .reg .pred q; setp.gt.ftz.f32 q, %a, %b; selp.u32 %d, 1, 0, q; }", "u32 f32 f32", {tiny, 0}, 0},
         {"{ .reg .pred q; setp.gt.f32 q, %a, %b; selp.u32 %d, 1, 0, q; }", "u32 f32 f32", {tiny, 0}, 1},
         {"{ .reg .pred q; setp.ne.f32 q, %a, %a; selp.u32 %d, 1, 0, q; }", "u32 f32", {nan32}, 0},
         {"{ .reg .pred q; setp.neu.f32 q, %a, %a; selp.u32 %d, 1, 0, q; }", "u32 f32", {nan32}, 1},
         {"{ .reg .pred q, r; setp.lt.s32 q|r, %a, %b; selp.u32 %d, 1, 2, r; }", "u32 s32 s32", {1, 2}, 2},
         {"{ .reg .pred q; setp.eq.u32 q, %a, 1; setp.eq.and.u32 q, %b, 2, !q; selp.u32 %d, 1, 0, q; }",
          "u32 u32 u32",
          {7, 2},
          1},
         {"{ .reg .pred q; testp.subnormal.f32 q, %a; selp.u32 %d, 1, 0, q; }", "u32 f32", {tiny}, 1},
         {"{ .reg .pred q; testp.finite.f32 q, %a; selp.u32 %d, 1, 0, q; }", "u32 f32", {inf32}, 0}});
}

TEST(EmulatedInstructions, Fp64) {
    expect({{"add.f64 %d, %a, %b;", "f64 f64 f64", {d(1), d(0x1p-60)}, d(1)},
            {"add.rp.f64 %d, %a, %b;", "f64 f64 f64", {d(1), d(0x1p-60)}, d(1 + 0x1p-52)},
            {"fma.rn.f64 %d, %a, %b, %c;",
             "f64 f64 f64 f64",
             {d(1 + 0x1p-30), d(1 - 0x1p-30), d(-1)},
             d(-0x1p-60)},
            {"div.rn.f64 %d, %a, %b;", "f64 f64 f64", {d(1), d(3)}, d(1.0 / 3)},
            {"rcp.rn.f64 %d, %a;", "f64 f64", {d(4)}, d(0.25)},
            {"sqrt.rn.f64 %d, %a;", "f64 f64", {d(2)}, d(std::sqrt(2.0))},
            {"max.f64 %d, %a, 0d3FF0000000000000;", "f64 f64", {d(-4)}, d(1)},
            {"neg.f64 %d, %a;", "f64 f64", {d(-4)}, d(4)}});
}

// FP16: 0x3c00 is 1, 0x7bff 65504, 1 the smallest subnormal. BF16: 0x3f80 is 1.
TEST(EmulatedInstructions, SixteenBits) {
    expect({{"add.f16 %d, %a, %b;", "f16 f16 f16", {0x3c00, 0x1000}, 0x3c00},  // 1 + 2^-11: a tie, to even
            {"add.f16 %d, %a, %b;", "f16 f16 f16", {0x7bff, 0x7bff}, 0x7c00},
            {"mul.f16 %d, %a, %b;", "f16 f16 f16", {0x0001, 0x3800}, 0},  // half the smallest: to even
            {"fma.rn.f16 %d, %a, %b, %c;", "f16 f16 f16 f16", {0x3c01, 0x3c01, 0xbc02}, 0x0010},
            {"fma.rn.f16x2 %d, %a, %b, %c;",
             "b32 b32 b32 b32",
             {0x3c004000, 0x40003c00, 0x3c003c00},
             0x42004200},
            {"fma.rn.relu.f16 %d, %a, %b, %c;", "f16 f16 f16 f16", {0x3c00, 0xbc00, 0}, 0},
            {"fma.rn.bf16 %d, %a, %b, %c;", "b16 b16 b16 b16", {0x4000, 0x4040, 0x3f80}, 0x40e0},
            {"fma.rn.bf16x2 %d, %a, %b, %c;", "b32 b32 b32 b32", {0x3f804000, 0x40003f80, 0}, 0x40004000},
            {"max.NaN.bf16 %d, %a, %b;", "b16 b16 b16", {0x7fc0, 0x3f80}, 0x7fff},
            {"neg.bf16x2 %d, %a;", "b32 b32", {0x3f80bf80}, 0xbf803f80},
            {"{ .reg .pred q; setp.lt.f16 q, %a, %b; selp.u32 %d, 1, 0, q; }",
             "u32 f16 f16",
             {0xbc00, 0x0001},
             1}});
    expect({{"add.bf16 %d, %a, %b;", "b16 b16 b16", {0x3f80, 0x3f80}, 0x4000},
            {"mul.bf16x2 %d, %a, %b;", "b32 b32 b32", {0x40404000, 0x3f804000}, 0x40404080}},
           "sm_90", "7.8");
}

TEST(EmulatedInstructions, Conversions) {
    expect({{"cvt.u32.u16 %d, %a;", "u32 u16", {0xffff}, 0xffff},
            {"cvt.s32.s16 %d, %a;", "s32 s16", {0xffff}, 0xffffffff},
            {"cvt.s64.s32 %d, %a;", "s64 s32", {0x80000000}, 0xffffffff80000000},
            {"cvt.u16.u32 %d, %a;", "u16 u32", {0x12345678}, 0x5678},
            {"cvt.sat.u16.s32 %d, %a;", "u16 s32", {0xffffffff}, 0},
            {"cvt.s32.s8 %d, %a;", "s32 u32", {0x1ff}, 0xffffffff},
            {"cvt.u8.u32 %d, %a;", "u32 u32", {0x1234}, 0x34},
            {"cvt.rn.f32.s32 %d, %a;", "f32 s32", {0x01000001}, f(16777216)},
            {"cvt.rp.f32.s32 %d, %a;", "f32 s32", {0x01000001}, f(16777218)},
            {"cvt.rn.f32.u64 %d, %a;", "f32 u64", {~0ull}, f(0x1p64f)},
            {"cvt.rz.f32.u64 %d, %a;", "f32 u64", {~0ull}, f(0x1.fffffep63f)},
            {"cvt.rn.f32.s64 %d, %a;", "f32 s64", {0x8000008000000001}, f(-0x1.fffffep62f)},
            {"cvt.rn.f64.u64 %d, %a;", "f64 u64", {~0ull}, d(0x1p64)},
            {"cvt.rz.f64.s64 %d, %a;", "f64 s64", {0x7fffffffffffffff}, d(0x1.fffffffffffffp62)},
            {"cvt.rzi.s32.f32 %d, %a;", "s32 f32", {f(-2.9f)}, 0xfffffffe},
            {"cvt.rni.s32.f32 %d, %a;", "s32 f32", {f(2.5f)}, 2},
            {"cvt.rmi.s32.f32 %d, %a;", "s32 f32", {f(-2.1f)}, 0xfffffffd},
            {"cvt.rpi.s32.f32 %d, %a;", "s32 f32", {f(2.1f)}, 3},
            {"cvt.rzi.s32.f32 %d, %a;", "s32 f32", {f(3e9f)}, 0x7fffffff},
            {"cvt.rzi.u32.f32 %d, %a;", "u32 f32", {f(-1)}, 0},
            {"cvt.rzi.s32.f32 %d, %a;", "s32 f32", {nan32}, 0},
            {"cvt.rzi.u64.f64 %d, %a;", "u64 f64", {d(0x1p63)}, 0x8000000000000000},
            {"cvt.rmi.f32.f32 %d, %a;", "f32 f32", {f(-1.5f)}, f(-2)},
            {"cvt.rni.f32.f32 %d, %a;", "f32 f32", {f(0.5f)}, 0},
            {"cvt.sat.f32.f32 %d, %a;", "f32 f32", {f(7)}, f(1)},
            {"cvt.ftz.f32.f32 %d, %a;", "f32 f32", {minus_tiny}, 0x80000000},
            {"cvt.rn.f32.f64 %d, %a;", "f32 f64", {d(0.1)}, f(0.1f)},
            {"cvt.rz.f32.f64 %d, %a;", "f32 f64", {d(0.1)}, 0x3dcccccc},
            {"cvt.rm.f32.f64 %d, %a;", "f32 f64", {d(-1e300)}, f(-inf)},
            {"cvt.rz.f32.f64 %d, %a;", "f32 f64", {d(1e300)}, 0x7f7fffff},
            {"cvt.f64.f32 %d, %a;", "f64 f32", {f(0.5f)}, d(0.5)},
            {"cvt.rn.f16.f32 %d, %a;", "f16 f32", {f(65520)}, 0x7c00},
            {"cvt.rz.f16.f32 %d, %a;", "f16 f32", {f(65520)}, 0x7bff},
            {"cvt.rn.f16.f32 %d, %a;", "f16 f32", {f(0x1p-25f)}, 0},
            {"cvt.rn.f16.f32 %d, %a;", "f16 f32", {f(0x1.8p-25f)}, 1},
            {"cvt.rn.f16.f32 %d, %a;", "f16 f32", {nan32}, 0x7fff},
            {"cvt.f32.f16 %d, %a;", "f32 f16", {0x0001}, f(0x1p-24f)},
            {"cvt.f32.f16 %d, %a;", "f32 f16", {0xfc00}, f(-inf)},
            {"cvt.rn.bf16.f32 %d, %a;", "b16 f32", {0x3f808000}, 0x3f80},
            {"cvt.rn.bf16.f32 %d, %a;", "b16 f32", {0x3f818000}, 0x3f82},
            {"cvt.rn.relu.bf16.f32 %d, %a;", "b16 f32", {f(-1)}, 0},
            {"cvt.rn.bf16x2.f32 %d, %a, %b;", "b32 f32 f32", {f(1), f(2)}, 0x3f804000},
            {"cvt.rz.f16x2.f32 %d, %a, %b;", "b32 f32 f32", {f(1), f(2)}, 0x3c004000},
            {"cvt.rna.tf32.f32 %d, %a;", "b32 f32", {0x3f801000}, 0x3f802000}});
    expect({{"cvt.f32.bf16 %d, %a;", "f32 b16", {0xbf80}, f(-1)},
            {"cvt.rn.satfinite.e4m3x2.f32 %d, %a, %b;", "b16 f32 f32", {f(1), f(1000)}, 0x387e}},
           "sm_90", "8.1");
}

TEST(EmulatedInstructions, ApproximationsOfSixteenBits) {
    GpuUnderTest gpu({.architecture = "sm_90", .threads = 1});
    // 0x3e00 is 1.5, 0x3fc0 as BF16: 2^1.5 = 2.828, tanh(1.5) = 0.905.
    const auto half = [&](const char* text, const char* types, std::uint64_t x) {
        return std::bit_cast<float>(
            static_cast<std::uint32_t>(evaluate(gpu, text, types, {x}, "sm_90", "7.8")));
    };
    const char* const ex2 = "{ .reg .b16 h; ex2.approx.f16 h, %a; cvt.f32.f16 %d, h; }";
    const char* const tanh = "{ .reg .b16 h; tanh.approx.f16 h, %a; cvt.f32.f16 %d, h; }";
    const char* const ex2_bf16 = "{ .reg .b16 h; ex2.approx.ftz.bf16 h, %a; cvt.f32.bf16 %d, h; }";
    const char* const tanh_bf16 = "{ .reg .b16 h; tanh.approx.bf16 h, %a; cvt.f32.bf16 %d, h; }";
    EXPECT_NEAR(half(ex2, "f32 f16", 0x3e00), std::exp2(1.5), std::exp2(1.5) * std::exp2(-9.9));
    EXPECT_NEAR(half(tanh, "f32 f16", 0x3e00), std::tanh(1.5), std::exp2(-10.987));
    EXPECT_NEAR(half(ex2_bf16, "f32 bf16", 0x3fc0), std::exp2(1.5), std::exp2(1.5) * 0x1p-7);
    EXPECT_NEAR(half(tanh_bf16, "f32 bf16", 0x3fc0), std::tanh(1.5), 0x1p-8);
    EXPECT_NE(half(ex2, "f32 f16", 0x3e00), 2.828125f);        // the nearest
    EXPECT_NE(half(ex2_bf16, "f32 bf16", 0x3fc0), 2.828125f);  // the nearest
}

/// A value within the stated error that is not the correctly rounded one; those of the tables are exact.
TEST(EmulatedInstructions, ApproximationsAreWithinTheirErrorAndNoBetter) {
    struct Promise {
        const char* instruction;
        double (*exact)(double);
        double absolute, relative;
        std::vector<float> operands;
    };
    const std::vector<float> many{0.1f, 0.7f, 1.1f, 1.9f, 3.0f, 17.3f, 1e-20f, 1e20f};
    const std::vector<float> angles{-6.2f, -3.0f, -1.0f, 0.1f, 0.5f, 1.5f, 3.1f, 6.0f};
    const std::vector<Promise> all{
        {"ex2.approx.ftz.f32",
         [](double x) { return std::exp2(x); },
         0,
         0x1p-22,
         {-20.3f, -1.5f, 0.3f, 1.7f, 99.1f}},
        {"lg2.approx.f32",
         [](double x) { return std::log2(x); },
         0,
         0x1p-22,
         {2.5f, 17.3f, 0.3f, 1e-20f, 1e20f}},
        {"lg2.approx.f32", [](double x) { return std::log2(x); }, 0x1p-22, 0, {0.7f, 1.1f, 1.9f}},
        {"rcp.approx.ftz.f32", [](double x) { return 1 / x; }, 0, 0x1p-23, many},
        {"sqrt.approx.f32", [](double x) { return std::sqrt(x); }, 0, 0x1p-23, many},
        {"rsqrt.approx.f32", [](double x) { return 1 / std::sqrt(x); }, 0, std::exp2(-22.9), many},
        {"sin.approx.f32", [](double x) { return std::sin(x); }, std::exp2(-20.5), 0, angles},
        {"cos.approx.f32", [](double x) { return std::cos(x); }, std::exp2(-20.5), 0, angles},
        {"tanh.approx.f32",
         [](double x) { return std::tanh(x); },
         0,
         0x1p-11,
         {-3.0f, -0.4f, 0.01f, 1.0f, 2.5f}}};
    GpuUnderTest gpu;
    for (const Promise& promise : all)
        for (const float x : promise.operands) {
            const std::string text = std::string(promise.instruction) + " %d, %a;";
            const auto got =
                std::bit_cast<float>(static_cast<std::uint32_t>(evaluate(gpu, text, "f32 f32", {f(x)})));
            const double exact = promise.exact(x);
            EXPECT_LE(std::fabs(got - exact), promise.absolute + promise.relative * std::fabs(exact))
                << text << x;
            EXPECT_NE(got, static_cast<float>(exact)) << text << x;
            EXPECT_EQ(f(got), evaluate(gpu, text, "f32 f32", {f(x)})) << "the same every time";
        }
    const auto quotient = std::bit_cast<float>(
        static_cast<std::uint32_t>(evaluate(gpu, "div.approx.f32 %d, %a, %b;", "f32 f32 f32", {f(2), f(3)})));
    EXPECT_NE(quotient, 2.0f / 3);
    EXPECT_NEAR(quotient, 2.0 / 3, 0x1p-23);
}

TEST(EmulatedInstructions, ApproximationsOfSpecialValuesAreExact) {
    expect({{"ex2.approx.f32 %d, %a;", "f32 f32", {0}, f(1)},
            {"ex2.approx.f32 %d, %a;", "f32 f32", {f(-inf)}, 0},
            {"ex2.approx.f32 %d, %a;", "f32 f32", {inf32}, inf32},
            {"ex2.approx.ftz.f32 %d, %a;", "f32 f32", {f(-140)}, 0},
            {"lg2.approx.f32 %d, %a;", "f32 f32", {0x80000000}, f(-inf)},
            {"lg2.approx.f32 %d, %a;", "f32 f32", {f(-1)}, nan32},
            {"rcp.approx.ftz.f32 %d, %a;", "f32 f32", {minus_tiny}, f(-inf)},
            {"rsqrt.approx.f32 %d, %a;", "f32 f32", {inf32}, 0},
            {"sqrt.approx.f32 %d, %a;", "f32 f32", {0x80000000}, 0x80000000},
            {"sin.approx.f32 %d, %a;", "f32 f32", {inf32}, nan32},
            {"tanh.approx.f32 %d, %a;", "f32 f32", {f(-inf)}, f(-1)},
            {"div.approx.f32 %d, %a, %b;", "f32 f32 f32", {f(1), f(0x1p127f)}, 0},
            {"div.approx.f32 %d, %a, %b;", "f32 f32 f32", {inf32, f(0x1p127f)}, nan32},
            {"div.full.f32 %d, %a, %b;", "f32 f32 f32", {f(1), inf32}, 0}});
}

TEST(EmulatedInstructions, CopiesAndPredicates) {
    expect({{"{ .reg .pred q, r, s; setp.eq.u32 q, %a, 1; setp.eq.u32 r, %b, 1; xor.pred s, q, r; not.pred "
             "s, s;\n"
             "@s mov.u32 %d, 5;\n@!s mov.u32 %d, 6; }",
             "u32 u32 u32",
             {1, 0},
             6},
            {"mov.u32 %d, WARP_SZ;", "u32", {0}, 32},
            {"mov.f32 %d, 0f3F800000;", "f32", {0}, f(1)},
            {"{ .reg .b64 x; cvta.to.global.u64 x, %p0; ld.global.u32 %d, [x]; }", "u32 u32", {77}, 77},
            {"{ .reg .b64 x, y; .local .align 8 .b8 depot[16]; mov.u64 y, depot; cvta.local.u64 x, y;\n"
             "st.local.u32 [y+4], %a; ld.u32 %d, [x+4]; }",
             "u32 u32",
             {78},
             78}});
}

}  // namespace
}  // namespace mantissa::testing
