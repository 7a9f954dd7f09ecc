// The emulated GPU's FP32 in every rounding against 113-bit arithmetic, its 16-bit formats against numerics/,
// and conversions of both: at the edges of the formats and at random.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "mantissa/numerics/formats.h"
#include "tests/device/emulated_gpu_harness.h"

namespace mantissa::testing {
namespace {

__extension__ typedef __float128 Quad;
using OperandBits = std::vector<std::vector<std::uint64_t>>;

enum class Way { nearest, zero, down, up };
struct NamedWay {
    const char* name;
    Way way;
};
constexpr NamedWay ways[] = {{"rn", Way::nearest}, {"rz", Way::zero}, {"rm", Way::down}, {"rp", Way::up}};

/// The FP32 number of a sum: `value`, and the sign of what it lacks of the exact result.
float to_float(Quad value, int rest, Way way) {
    if (value != value) return std::numeric_limits<float>::quiet_NaN();
    auto found = static_cast<float>(value);
    if (std::isinf(found) && (value > 1e300 || value < -1e300)) return found;  // it was infinite
    const Quad error = value - static_cast<Quad>(found);
    const int side = error > 0 ? 1 : error < 0 ? -1 : rest;  // of the exact result
    if (side == 0) return found;
    const float beside = std::nextafter(found, side > 0 ? HUGE_VALF : -HUGE_VALF);
    if (way == Way::up) return side > 0 ? beside : found;
    if (way == Way::down) return side < 0 ? beside : found;
    if (way == Way::zero) return (side < 0) == (found > 0) && found != 0 ? beside : found;
    // The nearest was found but for a tie that `rest` decides.
    const Quad half = (static_cast<Quad>(beside) - static_cast<Quad>(found)) / 2;
    const bool tie = error == half && !std::isinf(found) && !std::isinf(beside);
    return tie && rest != 0 && (rest > 0) == (half > 0) ? beside : found;
}

int sign_of(Quad x) { return x > 0 ? 1 : x < 0 ? -1 : 0; }

/// a + b with what was cut off.
float added(Quad a, Quad b, Way way) {
    const Quad sum = a + b;
    if (sum != sum || sum - sum != 0) return to_float(sum, 0, way);
    const auto minus = [](Quad x) { return std::signbit(static_cast<double>(x)); };
    if (sum == 0 && (a != 0 || minus(a) != minus(b))) return way == Way::down ? -0.0f : 0.0f;
    const Quad back = sum - a;
    return to_float(sum, sign_of((a - (sum - back)) + (b - back)), way);
}

float as_float(std::uint64_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits)); }
std::uint32_t bits_of(float x) { return std::isnan(x) ? 0x7fffffff : std::bit_cast<std::uint32_t>(x); }
float flush(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }

OperandBits triples() {
    const std::vector<std::uint32_t> edges{0,          0x80000000, 1,          0x80000001, 0x007fffff,
                                           0x00800000, 0x80800000, 0x00800001, 0x3f800000, 0xbf800000,
                                           0x3f800001, 0x3f7fffff, 0x33800000, 0x34000000, 0xb3800000,
                                           0x4b800000, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000,
                                           0x7fc00000, 0x20000000, 0x1f800001, 0x5f800000, 0x40490fdb};
    OperandBits all(3);
    std::uint64_t random = 7;
    const auto next = [&] {
        return static_cast<std::uint32_t>((random = random * 6364136223846793005u + 1442695040888963407u) >>
                                          32);
    };
    for (const std::uint32_t a : edges)
        for (const std::uint32_t b : edges) {
            all[0].push_back(a);
            all[1].push_back(b);
            all[2].push_back(edges[next() % edges.size()]);
            for (auto& one : all) one.push_back(next());
            for (auto& one : all)
                one.push_back((next() & 0x807fffff) | (next() % 40 + 107) << 23);  // of like size
        }
    return all;
}

using FloatReference = float (*)(float a, float b, float c, Way way);

void expect_rounded(const std::string& op, std::size_t operands, FloatReference reference) {
    GpuUnderTest gpu;
    OperandBits numbers = triples();
    numbers.resize(operands);
    for (const NamedWay& way : ways)
        for (const bool ftz : {false, true}) {
            const std::string text = op + "." + way.name + (ftz ? ".ftz" : "") + ".f32 %d, %a" +
                                     (operands > 1 ? ", %b" : "") + (operands > 2 ? ", %c" : "") + ";";
            std::string types = "f32";
            for (std::size_t i = 0; i < operands; ++i) types += " f32";
            const auto got = evaluate_all(gpu, text, types, numbers);
            for (std::size_t i = 0; i < got.size(); ++i) {
                float x[3] = {};
                for (std::size_t k = 0; k < operands; ++k)
                    x[k] = ftz ? flush(as_float(numbers[k][i])) : as_float(numbers[k][i]);
                const float result = reference(x[0], x[1], x[2], way.way);
                ASSERT_EQ(got[i], bits_of(ftz ? flush(result) : result))
                    << text << std::hexfloat << " of " << x[0] << ", " << x[1] << ", " << x[2];
            }
        }
}

TEST(EmulatedFloats, EveryRounding) {
    expect_rounded("add", 2, [](float a, float b, float, Way way) { return added(a, b, way); });
    expect_rounded("sub", 2, [](float a, float b, float, Way way) { return added(a, -b, way); });
    expect_rounded("mul", 2, [](float a, float b, float, Way way) { return to_float(Quad{a} * b, 0, way); });
    expect_rounded("fma", 3, [](float a, float b, float c, Way way) {
        const Quad product = Quad{a} * b;
        if (product == 0 && c == 0) {  // the sign of a sum of zeros
            const bool minus = std::signbit(a) != std::signbit(b);
            if (minus == std::signbit(c)) return c;
            return way == Way::down ? -0.0f : 0.0f;
        }
        return added(product, c, way);
    });
    // A quotient that no float is lies further from all of them, and from the middles, than 113 bits resolve.
    expect_rounded("div", 2, [](float a, float b, float, Way way) { return to_float(Quad{a} / b, 0, way); });
    expect_rounded("rcp", 1, [](float a, float, float, Way way) { return to_float(Quad{1} / a, 0, way); });
    expect_rounded("sqrt", 1, [](float a, float, float, Way way) {
        if (a == 0 || std::isnan(a) || a < 0 || std::isinf(a)) return std::sqrt(a);
        return to_float(std::sqrt(static_cast<long double>(a)), 0, way);
    });
}

TEST(EmulatedFloats, TheReferenceBites) {
    EXPECT_EQ(added(1, Quad{0x1p-149f}, Way::up), 1 + 0x1p-23f);
    EXPECT_EQ(added(1, Quad{-0x1p-149f}, Way::zero), 1 - 0x1p-24f);
    EXPECT_EQ(to_float(Quad{1} + 0x1p-24, 1, Way::nearest), 1 + 0x1p-23f);
    EXPECT_EQ(to_float(Quad{1} + 0x1p-24, 0, Way::nearest), 1);
}

TEST(EmulatedFloats, ComparisonsOfFp32) {
    struct Comparison {
        const char* name;
        bool (*holds)(float a, float b);
    };
    const std::vector<Comparison> all{{"eq", [](float a, float b) { return a == b; }},
                                      {"ne", [](float a, float b) { return a < b || a > b; }},
                                      {"lt", [](float a, float b) { return a < b; }},
                                      {"le", [](float a, float b) { return a <= b; }},
                                      {"gt", [](float a, float b) { return a > b; }},
                                      {"ge", [](float a, float b) { return a >= b; }},
                                      {"equ", [](float a, float b) { return !(a < b || a > b); }},
                                      {"neu", [](float a, float b) { return a != b; }},
                                      {"ltu", [](float a, float b) { return !(a >= b); }},
                                      {"leu", [](float a, float b) { return !(a > b); }},
                                      {"gtu", [](float a, float b) { return !(a <= b); }},
                                      {"geu", [](float a, float b) { return !(a < b); }},
                                      {"nan", [](float a, float b) { return std::isunordered(a, b); }},
                                      {"num", [](float a, float b) { return !std::isunordered(a, b); }}};
    GpuUnderTest gpu;
    OperandBits numbers = triples();
    numbers.resize(2);
    for (const Comparison& one : all)
        for (const bool ftz : {false, true}) {
            const std::string text = "{ .reg .pred q; setp." + std::string(one.name) + (ftz ? ".ftz" : "") +
                                     ".f32 q, %a, %b; selp.u32 %d, 1, 0, q; }";
            const auto got = evaluate_all(gpu, text, "u32 f32 f32", numbers);
            for (std::size_t i = 0; i < got.size(); ++i) {
                const float a = as_float(numbers[0][i]), b = as_float(numbers[1][i]);
                ASSERT_EQ(got[i] != 0, ftz ? one.holds(flush(a), flush(b)) : one.holds(a, b))
                    << text << a << ", " << b;
            }
        }
}

std::vector<std::uint64_t> all_sixteen_bit() {
    std::vector<std::uint64_t> all;
    for (std::uint64_t i = 0; i < 65536; ++i) all.push_back(i);
    return all;
}

TEST(EmulatedFloats, WideningOfEverySixteenBitNumber) {
    GpuUnderTest gpu({.architecture = "sm_90", .threads = 1});
    const auto half =
        evaluate_all(gpu, "cvt.f32.f16 %d, %a;", "f32 f16", {all_sixteen_bit()}, "sm_90", "7.8");
    const auto brain =
        evaluate_all(gpu, "cvt.f32.bf16 %d, %a;", "f32 bf16", {all_sixteen_bit()}, "sm_90", "7.8");
    for (std::size_t i = 0; i < 65536; ++i) {
        ASSERT_EQ(half[i], bits_of(to_f32(FP16{static_cast<std::uint16_t>(i)}))) << i;
        ASSERT_EQ(brain[i], bits_of(to_f32(BF16{static_cast<std::uint16_t>(i)}))) << i;
    }
}

/// Each number of the format, the middles between them, and what lies just beside these.
TEST(EmulatedFloats, NarrowingAroundEverySixteenBitNumber) {
    GpuUnderTest gpu;
    const auto around = [](auto widen) {
        std::vector<std::uint64_t> all;
        for (std::uint32_t i = 0; i < 65536; i += 7) {
            const float x = widen(static_cast<std::uint16_t>(i)),
                        y = widen(static_cast<std::uint16_t>(i + 1));
            for (const float one :
                 {x, x / 2 + y / 2, std::nextafter(x / 2 + y / 2, x), std::nextafter(x / 2 + y / 2, y)})
                if (!std::isnan(one)) all.push_back(bits_of(one));
        }
        return all;
    };
    const auto halves = around([](std::uint16_t bits) { return to_f32(FP16{bits}); });
    const auto to_half = evaluate_all(gpu, "cvt.rn.f16.f32 %d, %a;", "f16 f32", {halves});
    for (std::size_t i = 0; i < halves.size(); ++i)
        ASSERT_EQ(to_half[i], to_fp16(as_float(halves[i])).bits) << i;
    const auto brains = around([](std::uint16_t bits) { return to_f32(BF16{bits}); });
    const auto to_brain = evaluate_all(gpu, "cvt.rn.bf16.f32 %d, %a;", "bf16 f32", {brains});
    for (std::size_t i = 0; i < brains.size(); ++i)
        ASSERT_EQ(to_brain[i], to_bf16(as_float(brains[i])).bits) << i;
    const auto cut = evaluate_all(gpu, "cvt.rz.f16.f32 %d, %a;", "f16 f32", {halves});
    for (std::size_t i = 0; i < halves.size(); ++i) {
        const float x = as_float(halves[i]), y = to_f32(FP16{static_cast<std::uint16_t>(cut[i])});
        ASSERT_LE(std::fabs(y), std::fabs(x)) << x;
        ASSERT_TRUE(std::fabs(to_f32(FP16{static_cast<std::uint16_t>(cut[i] + 1)})) > std::fabs(x) ||
                    std::isinf(x))
            << x;
    }
}

TEST(EmulatedFloats, SixteenBitArithmeticRoundsOnce) {
    struct Op {
        const char* name;
        double (*exact)(double a, double b, double c);
        bool brain_before_90;
    };
    const std::vector<Op> all{
        {"add", [](double a, double b, double) { return a + b; }, false},
        {"sub", [](double a, double b, double) { return a - b; }, false},
        {"mul", [](double a, double b, double) { return a * b; }, false},
        {"fma.rn", [](double a, double b, double c) { return std::fma(a, b, c); }, true}};
    GpuUnderTest gpu({.architecture = "sm_90", .threads = 1});
    std::uint64_t random = 3;
    OperandBits numbers(3);
    for (int i = 0; i < 4000; ++i)
        for (auto& one : numbers) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            one.push_back(random >> 48);
        }
    for (const Op& op : all)
        for (const bool brain : {false, true}) {
            const std::string type = brain ? "bf16" : "f16";
            const bool three = std::string(op.name) == "fma.rn";
            const std::string text =
                std::string(op.name) + "." + type + " %d, %a, %b" + (three ? ", %c;" : ";");
            OperandBits used(numbers.begin(), numbers.begin() + (three ? 3 : 2));
            const auto got = evaluate_all(
                gpu, text, type + " " + type + " " + type + (three ? " " + type : ""), used, "sm_90", "7.8");
            const DType dtype = brain ? DType::bf16 : DType::f16;
            for (std::size_t i = 0; i < got.size(); ++i) {
                double x[3];
                for (std::size_t k = 0; k < 3; ++k) {
                    const auto bits = static_cast<std::uint16_t>(numbers[k][i]);
                    x[k] = brain ? to_f32(BF16{bits}) : to_f32(FP16{bits});
                }
                const double expected = rounded_to(op.exact(x[0], x[1], x[2]), dtype);
                const auto bits = static_cast<std::uint16_t>(got[i]);
                const double found = brain ? to_f32(BF16{bits}) : to_f32(FP16{bits});
                if (std::isnan(expected))
                    ASSERT_EQ(bits, 0x7fff) << text;
                else
                    ASSERT_EQ(std::bit_cast<std::uint64_t>(found), std::bit_cast<std::uint64_t>(expected))
                        << text << x[0] << ", " << x[1] << ", " << x[2];
            }
        }
}

TEST(EmulatedFloats, ToIntegersInEveryRoundingAndClamped) {
    struct Target {
        const char* name;
        double low, high;  ///< the largest that is no more than the limit, as a double
        std::uint64_t least, most;
        int bits;
    };
    const std::vector<Target> targets{{"s16", -0x1p15, 0x1p15 - 1, 0x8000, 0x7fff, 16},
                                      {"u16", 0, 0x1p16 - 1, 0, 0xffff, 16},
                                      {"s32", -0x1p31, 0x1p31 - 1, 0x80000000, 0x7fffffff, 32},
                                      {"u32", 0, 0x1p32 - 1, 0, 0xffffffff, 32},
                                      {"s64", -0x1p63, 0x1p63, 0x8000000000000000, 0x7fffffffffffffff, 64},
                                      {"u64", 0, 0x1p64, 0, ~0ull, 64}};
    GpuUnderTest gpu;
    OperandBits numbers = triples();
    numbers.resize(1);
    for (const float x : {0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 32767.5f, 65535.5f, 2147483648.0f, 4294967296.0f,
                          9.2233720e18f, 1.8446744e19f})
        numbers[0].push_back(bits_of(x));
    const auto whole = [](double x, const std::string& way) {
        return way == "rni"   ? std::nearbyint(x)
               : way == "rzi" ? std::trunc(x)
               : way == "rmi" ? std::floor(x)
                              : std::ceil(x);
    };
    for (const Target& target : targets)
        for (const std::string way : {"rni", "rzi", "rmi", "rpi"}) {
            const std::string text = "cvt." + way + "." + target.name + ".f32 %d, %a;";
            const auto got = evaluate_all(gpu, text, std::string(target.name) + " f32", numbers);
            for (std::size_t i = 0; i < got.size(); ++i) {
                const double x = whole(as_float(numbers[0][i]), way);
                std::uint64_t expected = 0;
                if (std::isnan(x))
                    expected = 0;
                else if (x < target.low)
                    expected = target.least;
                else if (x > target.high || x == 0x1p64 || (target.name[0] == 's' && x == 0x1p63))
                    expected = target.most;
                else
                    expected = x < 0 ? 0 - static_cast<std::uint64_t>(-x) : static_cast<std::uint64_t>(x);
                const std::uint64_t mask = target.bits == 64 ? ~0ull : (std::uint64_t{1} << target.bits) - 1;
                ASSERT_EQ(got[i], expected & mask) << text << as_float(numbers[0][i]);
            }
        }
}

TEST(EmulatedFloats, FromIntegersInEveryRounding) {
    GpuUnderTest gpu;
    OperandBits numbers(1);
    std::uint64_t random = 11;
    for (int i = 0; i < 3000; ++i) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        numbers[0].push_back(i < 1000 ? random : random >> (i % 60));
    }
    for (int shift = 0; shift < 63; ++shift)
        for (const std::uint64_t off : {-1ll, 0ll, 1ll})
            numbers[0].push_back((std::uint64_t{0x1000001} << shift >> 1) + off);
    for (const NamedWay& way : ways)
        for (const bool is_signed : {true, false}) {
            const std::string type = is_signed ? "s64" : "u64";
            const auto got = evaluate_all(gpu, std::string("cvt.") + way.name + ".f32." + type + " %d, %a;",
                                          "f32 " + type, numbers);
            for (std::size_t i = 0; i < got.size(); ++i) {
                const Quad x =
                    is_signed ? Quad(static_cast<std::int64_t>(numbers[0][i])) : Quad(numbers[0][i]);
                ASSERT_EQ(got[i], bits_of(to_float(x, 0, way.way))) << type << way.name << numbers[0][i];
            }
        }
}

}  // namespace
}  // namespace mantissa::testing
