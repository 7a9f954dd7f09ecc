// The emulated GPU's integers of every width against 128-bit arithmetic and bit by bit, at the edges of the
// types and at random.
#include <gtest/gtest.h>

#include "tests/device/emulated_gpu_harness.h"

namespace mantissa::testing {
namespace {

__extension__ typedef __int128 Wide;

struct IntegerType {
    std::string name;
    int bits;
    bool is_signed;

    std::uint64_t mask() const { return bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1; }
    Wide value(std::uint64_t pattern) const {
        const bool negative = is_signed && (pattern >> (bits - 1) & 1) != 0;
        return static_cast<Wide>(pattern & mask()) - (negative ? static_cast<Wide>(1) << bits : 0);
    }
};

const std::vector<IntegerType> integers{{"s16", 16, true},  {"u16", 16, false}, {"s32", 32, true},
                                        {"u32", 32, false}, {"s64", 64, true},  {"u64", 64, false}};

/// Every pair of patterns that are awkward somewhere, and random ones.
std::vector<std::vector<std::uint64_t>> pairs(std::size_t operands = 2) {  // 2 or more
    std::vector<std::uint64_t> edges{0,
                                     1,
                                     2,
                                     3,
                                     5,
                                     31,
                                     32,
                                     33,
                                     63,
                                     64,
                                     0x7f,
                                     0x80,
                                     0x7fff,
                                     0x8000,
                                     0x8001,
                                     0xffff,
                                     0x7fffffff,
                                     0x80000000,
                                     0x80000001,
                                     0xffffffff,
                                     0x7fffffffffffffff,
                                     0x8000000000000000,
                                     ~0ull,
                                     0x0123456789abcdef,
                                     0xfedcba9876543210};
    std::vector<std::vector<std::uint64_t>> all(operands);
    std::uint64_t random = 1;
    for (const std::uint64_t a : edges)
        for (const std::uint64_t b : edges) {
            const auto next = [&] { return random = random * 6364136223846793005u + 1442695040888963407u; };
            all[0].push_back(a);
            all[1].push_back(b);
            for (std::size_t i = 2; i < operands; ++i) all[i].push_back(next() >> 7);
            for (std::size_t i = 0; i < operands; ++i) all[i].push_back(next());
        }
    return all;
}

using IntegerReference = Wide (*)(Wide a, Wide b, Wide c);

struct IntegerOp {
    const char* name;
    std::size_t operands;
    IntegerReference reference;  ///< before it is cut to the type
    bool not_by_zero = false;
};

void expect_like(const IntegerOp& op, const IntegerType& type, const IntegerType& result,
                 const IntegerType& third) {
    GpuUnderTest gpu;
    const auto operands = pairs(std::max<std::size_t>(op.operands, 2));
    static const char* const registers[] = {"%a", "%b", "%c"};
    std::string text = std::string(op.name) + "." + type.name + " %d", types = result.name;
    for (std::size_t i = 0; i < op.operands; ++i) {
        text += std::string(", ") + registers[i];
        types += " " + (i == 2 ? third.name : type.name);
    }
    const auto got = evaluate_all(gpu, text + ";", types, operands);
    for (std::size_t i = 0; i < got.size(); ++i) {
        const Wide a = type.value(operands[0][i]), b = op.operands > 1 ? type.value(operands[1][i]) : Wide{0};
        const Wide c = op.operands > 2 ? third.value(operands[2][i]) : Wide{0};
        if (op.not_by_zero && b == 0) continue;
        const auto expected = static_cast<std::uint64_t>(op.reference(a, b, c)) & result.mask();
        ASSERT_EQ(got[i], expected) << text << std::hex << " of " << operands[0][i] << ", "
                                    << (op.operands > 1 ? operands[1][i] : 0);
    }
}

TEST(EmulatedIntegers, ArithmeticOfEveryWidth) {
    const std::vector<IntegerOp> all{
        {"add", 2, [](Wide a, Wide b, Wide) { return a + b; }},
        {"sub", 2, [](Wide a, Wide b, Wide) { return a - b; }},
        {"mul.lo", 2,
         [](Wide a, Wide b, Wide) {
             return static_cast<Wide>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
         }},
        {"div", 2, [](Wide a, Wide b, Wide) { return a / b; }, true},
        {"rem", 2, [](Wide a, Wide b, Wide) { return a % b; }, true},
        {"min", 2, [](Wide a, Wide b, Wide) { return a < b ? a : b; }},
        {"max", 2, [](Wide a, Wide b, Wide) { return a < b ? b : a; }},
        {"mad.lo", 3,
         [](Wide a, Wide b, Wide c) {
             return static_cast<Wide>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b)) + c;
         }},
        {"sad", 3, [](Wide a, Wide b, Wide c) { return c + (a < b ? b - a : a - b); }}};
    for (const IntegerOp& op : all)
        for (const IntegerType& type : integers) expect_like(op, type, type, type);
    for (const IntegerType& type : integers) {
        if (!type.is_signed) continue;
        expect_like({"abs", 1, [](Wide a, Wide, Wide) { return a < 0 ? -a : a; }}, type, type, type);
        expect_like({"neg", 1, [](Wide a, Wide, Wide) { return -a; }}, type, type, type);
    }
}

template <int bits>
Wide high_half(Wide a, Wide b, Wide c) {
    return (a * b >> bits) + c;
}
/// The high half of a product of 64 bits, which needs all 128.
Wide high_half_of_unsigned(Wide a, Wide b, Wide c) {
    __extension__ typedef unsigned __int128 Bits;
    return static_cast<Wide>(static_cast<Bits>(a) * static_cast<Bits>(b) >> 64) + c;
}

TEST(EmulatedIntegers, HighAndWideProducts) {
    for (const IntegerType& type : integers) {
        const IntegerReference high = type.bits == 16   ? high_half<16>
                                      : type.bits == 32 ? high_half<32>
                                      : type.is_signed  ? high_half<64>
                                                        : high_half_of_unsigned;
        expect_like({"mul.hi", 2, high}, type, type, type);
        expect_like({"mad.hi", 3, high}, type, type, type);
        if (type.bits == 64) continue;
        const IntegerType wide{(type.is_signed ? "s" : "u") + std::to_string(2 * type.bits), 2 * type.bits,
                               type.is_signed};
        expect_like({"mul.wide", 2, [](Wide a, Wide b, Wide) { return a * b; }}, type, wide, wide);
        expect_like({"mad.wide", 3, [](Wide a, Wide b, Wide c) { return a * b + c; }}, type, wide, wide);
    }
}

TEST(EmulatedIntegers, ComparisonsOfEveryWidth) {
    struct Comparison {
        const char* name;
        bool (*holds)(Wide a, Wide b);
    };
    const std::vector<Comparison> all{
        {"eq", [](Wide a, Wide b) { return a == b; }}, {"ne", [](Wide a, Wide b) { return a != b; }},
        {"lt", [](Wide a, Wide b) { return a < b; }},  {"le", [](Wide a, Wide b) { return a <= b; }},
        {"gt", [](Wide a, Wide b) { return a > b; }},  {"ge", [](Wide a, Wide b) { return a >= b; }},
        {"lo", [](Wide a, Wide b) { return a < b; }},  {"ls", [](Wide a, Wide b) { return a <= b; }},
        {"hi", [](Wide a, Wide b) { return a > b; }},  {"hs", [](Wide a, Wide b) { return a >= b; }}};
    GpuUnderTest gpu;
    const auto operands = pairs();
    for (const Comparison& one : all)
        for (const IntegerType& type : integers) {
            const bool unsigned_only =
                one.name[0] == 'h' || (one.name[0] == 'l' && (one.name[1] == 'o' || one.name[1] == 's'));
            if (unsigned_only && type.is_signed) continue;
            const std::string text = "{ .reg .pred q; setp." + std::string(one.name) + "." + type.name +
                                     " q, %a, %b; selp.u32 %d, 1, 0, q; }";
            const auto got = evaluate_all(gpu, text, "u32 " + type.name + " " + type.name, operands);
            for (std::size_t i = 0; i < got.size(); ++i)
                ASSERT_EQ(got[i] != 0, one.holds(type.value(operands[0][i]), type.value(operands[1][i])))
                    << text << std::hex << operands[0][i] << ", " << operands[1][i];
        }
}

/// The bit, or the sign beyond the highest.
bool bit_at(std::uint64_t x, std::uint64_t position, const IntegerType& type) {
    if (position < static_cast<std::uint64_t>(type.bits)) return x >> position & 1;
    return type.is_signed && (x >> (type.bits - 1) & 1) != 0;
}

TEST(EmulatedIntegers, ShiftsAndFieldsBitByBit) {
    GpuUnderTest gpu;
    const auto operands = pairs(4);
    const auto expect = [&](const std::string& text, const std::string& types, auto reference) {
        std::vector<std::vector<std::uint64_t>> used(operands);
        const auto got = evaluate_all(gpu, text, types, used);
        for (std::size_t i = 0; i < got.size(); ++i)
            ASSERT_EQ(got[i], reference(operands[0][i], operands[1][i], operands[2][i], operands[3][i]))
                << text << std::hex << operands[0][i] << ", " << operands[1][i] << ", " << operands[2][i];
    };
    for (const IntegerType& type : integers) {
        const std::string name = type.name, bits = "b" + std::to_string(type.bits);
        const auto bits_of = [&type](auto bit) {
            std::uint64_t x = 0;
            for (int i = 0; i < type.bits; ++i) x |= std::uint64_t{bit(static_cast<std::uint64_t>(i))} << i;
            return x;
        };
        expect("shr." + name + " %d, %a, %b;", name + " " + name + " u32", [&](auto a, auto b, auto, auto) {
            return bits_of([&](std::uint64_t i) { return bit_at(a, i + (b & 0xffffffff), type); });
        });
        expect("shl." + bits + " %d, %a, %b;", name + " " + name + " u32", [&](auto a, auto b, auto, auto) {
            return bits_of([&](std::uint64_t i) {
                return i >= (b & 0xffffffff) && (a >> (i - (b & 0xffffffff)) & 1) != 0;
            });
        });
        if (type.bits == 16) continue;
        expect("bfe." + name + " %d, %a, %b, %c;", name + " " + name + " u32 u32",
               [&](auto a, auto b, auto c, auto) {
                   const std::uint64_t start = b & 255, length = c & 255;
                   const IntegerType field{"",
                                           static_cast<int>(std::min<std::uint64_t>(
                                               start + length, static_cast<std::uint64_t>(type.bits))),
                                           type.is_signed};
                   if (length == 0) return std::uint64_t{0};
                   return bits_of([&](std::uint64_t i) { return bit_at(a, i + start, field); });
               });
        expect("bfi." + bits + " %d, %a, %b, %c, %e;", name + " " + name + " " + name + " u32 u32",
               [&](auto a, auto b, auto c, auto e) {
                   const std::uint64_t start = c & 255, length = e & 255;
                   return bits_of([&](std::uint64_t i) {
                       const bool inside = i >= start && i < start + length;
                       return ((inside ? a >> (i - start) : b >> i) & 1) != 0;
                   });
               });
        expect("brev." + bits + " %d, %a;", name + " " + name, [&](auto a, auto, auto, auto) {
            return bits_of([&](std::uint64_t i) {
                return bit_at(a, static_cast<std::uint64_t>(type.bits) - 1 - i, type);
            });
        });
        expect("popc." + bits + " %d, %a;", "u32 " + name, [&](auto a, auto, auto, auto) {
            std::uint64_t count = 0;
            for (int i = 0; i < type.bits; ++i) count += a >> i & 1;
            return count;
        });
        expect("clz." + bits + " %d, %a;", "u32 " + name, [&](auto a, auto, auto, auto) {
            std::uint64_t count = 0;
            while (count < static_cast<std::uint64_t>(type.bits) &&
                   (a >> (type.bits - 1 - static_cast<int>(count)) & 1) == 0)
                ++count;
            return count;
        });
        expect("bfind." + name + " %d, %a;", "u32 " + name, [&](auto a, auto, auto, auto) {
            const bool sign = type.is_signed && (a >> (type.bits - 1) & 1) != 0;
            for (int i = type.bits - 1; i >= 0; --i)
                if (((a >> i & 1) != 0) != sign) return static_cast<std::uint64_t>(i);
            return std::uint64_t{0xffffffff};
        });
    }
}

TEST(EmulatedIntegers, LogicOfThreeByEveryTable) {
    GpuUnderTest gpu;
    for (std::uint64_t table = 0; table < 256; table += 17) {
        const std::uint64_t a = 0xf0f0cc33aa559966 & 0xffffffff, b = 0x13579bdf, c = 0x0fedcba9;
        std::uint64_t expected = 0;
        for (int i = 0; i < 32; ++i)
            expected |= (table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1)) & 1) << i;
        EXPECT_EQ(evaluate(gpu, "lop3.b32 %d, %a, %b, %c, " + std::to_string(table) + ";", "b32 b32 b32 b32",
                           {a, b, c}),
                  expected);
    }
}

}  // namespace
}  // namespace mantissa::testing
