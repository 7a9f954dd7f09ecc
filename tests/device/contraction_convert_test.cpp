// Operands that are converted while they are packed: TF32 and FP16 on any machine, by rounding, widening, or
// products of BF16 parts.
#include "mantissa/device/cpu/contraction/convert.h"

#include <gtest/gtest.h>

#include <bit>
#include <cfloat>
#include <cstring>

#include "mantissa/device/cpu/contraction/pack_avx512.h"
#include "mantissa/device/cpu/contraction/packing.h"
#include "mantissa/numerics/formats.h"
#include "tests/device/contraction_reference.h"
#include "tests/device/contraction_twins.h"
#include "tests/device/normal_floats.h"

namespace mantissa::on_cpu {
namespace {

struct NamedKernels {
    std::string name;
    ContractionKernels kernels;
};

bool needs_tiles(Products products) { return products == Products::bf16x3 || products == Products::fp16x4; }

/// Every set of kernels of this CPU, and the twins, made to multiply in a way.
std::vector<NamedKernels> kernels_for(Products products) {
    std::vector<NamedKernels> all;
    const auto add = [&](const char* name, const ContractionKernels& base, const ConvertKernels& convert) {
        all.push_back({name, converted(base, products, convert)});
    };
    if (needs_tiles(products)) {
        add("twin of tiles", contraction_kernels_tile_twin(), convert_kernels_generic());
        if (best_isa() >= Isa::amx) add("tiles", contraction_kernels_amx(), convert_kernels_avx512bf16());
        return all;
    }
    add("generic", contraction_kernels_generic(), convert_kernels_generic());
    if (best_isa() >= Isa::avx2) add("avx2", contraction_kernels_avx2(), convert_kernels_avx2());
    if (best_isa() >= Isa::avx512) add("avx512", contraction_kernels_avx512(), convert_kernels_avx512());
    return all;
}

bool is_fp16(Products products) { return products == Products::fp16_widened || products == Products::fp16x4; }

/// a [m, k] times b [n, k] transposed, dense, in the type that the products take.
std::vector<float> product_of_floats(const std::vector<float>& a, const std::vector<float>& b, std::int64_t m,
                                     std::int64_t n, std::int64_t k, Products products,
                                     const ContractionKernels& kernels, int threads = 2) {
    ThreadPool pool(threads, threads);
    std::vector<FP16> half_a, half_b;
    for (float x : a) half_a.push_back(to_fp16(x));
    for (float x : b) half_b.push_back(to_fp16(x));
    const DType type = is_fp16(products) ? DType::f16 : DType::f32;
    const ContractionProblem problem{.m = m,
                                     .n = n,
                                     .k = k,
                                     .a = {.dtype = type, .leading = k},
                                     .b = {.dtype = type, .transpose = Transpose::yes, .leading = k},
                                     .out = {.leading = n}};
    std::vector<float> out(static_cast<std::size_t>(m * n), NAN);
    const bool halves = type == DType::f16;
    contract_in_new_workspace(problem,
                              {.a = halves ? static_cast<const void*>(half_a.data()) : a.data(),
                               .b = halves ? static_cast<const void*>(half_b.data()) : b.data(),
                               .out = out.data()},
                              pool, kernels);
    return out;
}

/// Root mean square of the error over that of the exact product of the operands as given.
double relative_rms(Products products, const ContractionKernels& kernels, std::int64_t k) {
    constexpr std::int64_t m = 16, n = 50;
    const std::vector<float> a = normal_floats(m * k, {.seed = 11, .operation = 1}),
                             b = normal_floats(n * k, {.seed = 11, .operation = 2});
    const std::vector<float> got = product_of_floats(a, b, m, n, k, products, kernels);
    double error = 0, size = 0;
    for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < n; ++j) {
            double exact = 0;
            for (std::int64_t l = 0; l < k; ++l)
                exact += static_cast<double>(a[static_cast<std::size_t>(i * k + l)]) *
                         static_cast<double>(b[static_cast<std::size_t>(j * k + l)]);
            const double difference = static_cast<double>(got[static_cast<std::size_t>(i * n + j)]) - exact;
            error += difference * difference;
            size += exact * exact;
        }
    return std::sqrt(error / size);
}

TEST(ContractionConverted, ErrorsAreThoseOfTheFormat) {
    struct Bound {
        Products products;
        std::int64_t k;
        double most, least;
    };
    // TF32 rounds each operand to 11 bits: 2.9e-4. Two BF16 parts hold 16 bits of FP32's 24. The lower bounds
    // show that the way asked for ran.
    for (const Bound& bound :
         {Bound{Products::tf32_rounded, 768, 4e-4, 1e-4}, Bound{Products::bf16x3, 768, 1e-5, 1e-6},
          Bound{Products::bf16x3, 3072, 1e-5, 1e-6}})
        for (const NamedKernels& named : kernels_for(bound.products)) {
            const double rms = relative_rms(bound.products, named.kernels, bound.k);
            EXPECT_LT(rms, bound.most) << named.name << ", k " << bound.k;
            EXPECT_GT(rms, bound.least) << named.name << ", k " << bound.k;
        }
}

TEST(ContractionConverted, IsExactOnWholeNumbersAtAwkwardSizes) {
    struct Sizes {
        std::int64_t m, n, k;
    };
    for (const Products products :
         {Products::tf32_rounded, Products::fp16_widened, Products::bf16x3, Products::fp16x4})
        for (const NamedKernels& named : kernels_for(products))
            for (const Sizes& s : {Sizes{1, 1, 1}, {7, 49, 33}, {33, 17, 259}, {2, 65, 1031}}) {
                std::vector<float> a, b;
                for (std::int64_t i = 0; i < s.m * s.k; ++i) a.push_back(static_cast<float>(i * 7 % 9 - 4));
                for (std::int64_t i = 0; i < s.n * s.k; ++i) b.push_back(static_cast<float>(i * 5 % 11 - 5));
                const std::vector<float> got =
                    product_of_floats(a, b, s.m, s.n, s.k, products, named.kernels);
                for (std::int64_t i = 0; i < s.m; ++i)
                    for (std::int64_t j = 0; j < s.n; ++j) {
                        float exact = 0;
                        for (std::int64_t l = 0; l < s.k; ++l)
                            exact += a[static_cast<std::size_t>(i * s.k + l)] *
                                     b[static_cast<std::size_t>(j * s.k + l)];
                        ASSERT_EQ(got[static_cast<std::size_t>(i * s.n + j)], exact) << named.name;
                    }
            }
}

TEST(ContractionConverted, Fp16ProductsAreExact) {
    // 2047 has all 11 bits of FP16 set; its square needs all four products.
    for (const Products products : {Products::fp16_widened, Products::fp16x4})
        for (const NamedKernels& named : kernels_for(products))
            EXPECT_EQ(product_of_floats({2047}, {2047}, 1, 1, 1, products, named.kernels)[0],
                      2047.0f * 2047.0f)
                << named.name;
}

TEST(ContractionConverted, InfinitiesNanAndTheLargestNumberGiveWhatFp32Gives) {
    for (const Products products : {Products::tf32_rounded, Products::bf16x3})
        for (const NamedKernels& named : kernels_for(products)) {
            const auto once = [&](float x, float y) {
                return product_of_floats({x}, {y}, 1, 1, 1, products, named.kernels)[0];
            };
            EXPECT_EQ(once(INFINITY, 2), INFINITY) << named.name;
            EXPECT_EQ(once(-INFINITY, 2), -INFINITY) << named.name;
            EXPECT_TRUE(std::isnan(once(NAN, 2))) << named.name;
            EXPECT_TRUE(std::isnan(once(INFINITY, 0))) << named.name;
            EXPECT_NEAR(once(FLT_MAX, 0.5f) / (FLT_MAX * 0.5f), 1.0f, 1e-3f) << named.name;
            EXPECT_NEAR(once(-FLT_MAX, 1.0f) / -FLT_MAX, 1.0f, 1e-3f) << named.name;
        }
}

TEST(ContractionConverted, AnInfinityIsMultipliedByWholeNumbersAsFp32Does) {
    // Ones and twos have a second part of zero, and infinity times zero is NaN. The infinities lie in
    // different steps of the depth, in the first part of a chunk and in the last; two meet in one sum.
    constexpr std::int64_t m = 40, n = 36;
    const auto at = [](std::int64_t row, std::int64_t k, std::int64_t depth) {
        return static_cast<std::size_t>(row * depth + k);
    };
    for (const std::int64_t k : {33, 100, 800})
        for (const Products products : {Products::bf16x3, Products::fp16x4})
            for (const NamedKernels& named : kernels_for(products)) {
                std::vector<float> a(static_cast<std::size_t>(m * k), 1.0f);
                std::vector<float> b(static_cast<std::size_t>(n * k), 2.0f);
                a[at(3, 1, k)] = INFINITY;
                a[at(35, k - 1, k)] = -INFINITY;
                b[at(5, k - 1, k)] = INFINITY;
                a[at(20, 32, k)] = NAN;
                const std::vector<float> got = product_of_floats(a, b, m, n, k, products, named.kernels);
                for (std::int64_t i = 0; i < m; ++i)
                    for (std::int64_t j = 0; j < n; ++j) {
                        float expected = 0;
                        for (std::int64_t l = 0; l < k; ++l) expected += a[at(i, l, k)] * b[at(j, l, k)];
                        const float sum = got[static_cast<std::size_t>(i * n + j)];
                        EXPECT_TRUE(std::isnan(expected) ? std::isnan(sum) : sum == expected)
                            << named.name << ", k " << k << ": " << sum << " at " << i << ", " << j;
                    }
            }
}

/// Both parts of panels of 32 lines, and a mark for each step of the depth: all that is read of them.
std::vector<std::byte> read_of_panels(const std::vector<std::byte>& panels, std::int64_t depth,
                                      const ContractionKernels& kernels) {
    const std::int64_t steps = kernels.padded(depth) / 32, parts = steps * 2 * 32 * 32 * 2;
    const auto panel_bytes = static_cast<std::size_t>(32 * kernels.line_bytes(depth));
    std::vector<std::byte> read;
    for (std::size_t panel = 0; panel < panels.size(); panel += panel_bytes) {
        const auto first = panels.begin() + static_cast<std::ptrdiff_t>(panel);
        read.insert(read.end(), first, first + parts);
        for (std::int64_t step = 0; step < steps; ++step) read.push_back(*(first + parts + step * 64));
    }
    return read;
}

/// Panels of `lines` x `depth` of an operand whose last number is `last`, written over ones.
std::vector<std::byte> panels_of(Side side, Transpose transpose, DType type, std::int64_t lines,
                                 std::int64_t depth, float last, const ContractionKernels& kernels,
                                 PanelStores stores) {
    const bool along = (transpose == Transpose::yes) == (side == Side::b);
    const std::int64_t columns = along ? depth : lines, leading = columns + 3;
    std::vector<float> numbers =
        normal_floats((along ? lines : depth) * leading, {.seed = 11, .operation = 7});
    numbers[1] = 0x1p-130f;  // which is flushed
    numbers[static_cast<std::size_t>(((along ? lines : depth) - 1) * leading + columns - 1)] = last;
    std::vector<FP16> halves;
    for (const float x : numbers) halves.push_back(to_fp16(x));
    const MatrixLayout layout{.dtype = type, .transpose = transpose, .leading = leading};
    const ContractionProblem problem{.m = lines, .n = lines, .k = depth, .a = layout, .b = layout};
    const OperandPanels panels(problem, side, kernels, stores);
    const auto bytes = static_cast<std::size_t>(panels.padded_lines() * kernels.line_bytes(depth));
    Buffer room(bytes);
    std::memset(room.data(), 0xff, bytes);
    const void* const from = type == DType::f16 ? static_cast<const void*>(halves.data()) : numbers.data();
    panels.pack({.data = from}, 0, {0, lines}, {{0, depth}, room.as<std::byte>().data()});
    const std::span<const std::byte> all = room.as<std::byte>().first(bytes);
    return read_of_panels({all.begin(), all.end()}, depth, kernels);
}

TEST(ContractionConverted, SplitInRegistersOrBeforePackingPanelsAreTheSame) {
    if (!has_bf16_dot()) GTEST_SKIP() << "no AVX512_BF16";
    for (const Products products : {Products::bf16x3, Products::fp16x4}) {
        const ContractionKernels before =
            converted(contraction_kernels_tile_twin(), products, convert_kernels_generic());
        ContractionKernels in_registers = before;
        in_registers.split_a = split_tile_panels_a_avx512bf16();
        in_registers.split_b = split_tile_panels_b_avx512bf16();
        for (const Side side : {Side::a, Side::b})
            for (const Transpose transpose : {Transpose::no, Transpose::yes})
                for (const std::int64_t lines : {1, 17, 32, 70})
                    for (const std::int64_t depth : {1, 31, 64, 167})
                        for (const float last : {1.5f, INFINITY})
                            for (const PanelStores stores : {PanelStores::plain, PanelStores::streaming}) {
                                const DType type = is_fp16(products) ? DType::f16 : DType::f32;
                                EXPECT_EQ(
                                    panels_of(side, transpose, type, lines, depth, last, in_registers,
                                              stores),
                                    panels_of(side, transpose, type, lines, depth, last, before, stores))
                                    << lines << " x " << depth << ", last " << last;
                            }
    }
}

TEST(ContractionConverted, CachesAndThreadsChangeNoBitOfProductsOfParts) {
    // A depth of one chunk, at the edge of what stays in L1, and of several chunks, the last one short.
    for (const Products products : {Products::bf16x3, Products::fp16x4})
        for (const std::int64_t k : {320, 1100}) {
            constexpr std::int64_t m = 70, n = 40;
            const std::vector<float> a = normal_floats(m * k, {.seed = 11, .operation = 4}),
                                     b = normal_floats(n * k, {.seed = 11, .operation = 5});
            const auto sums = [&](const CacheSizes& caches, int threads) {
                return product_of_floats(
                    a, b, m, n, k, products,
                    converted(contraction_kernels_tile_twin(caches), products, convert_kernels_generic()),
                    threads);
            };
            const std::vector<float> expected = sums({.l1d = 48 << 10, .l2 = 2 << 20}, 1);
            for (const CacheSizes& caches :
                 {CacheSizes{.l1d = 32 << 10, .l2 = 256 << 10}, CacheSizes{.l1d = 8 << 10, .l2 = 64 << 10}})
                for (const int threads : {1, 3})
                    EXPECT_EQ(sums(caches, threads), expected)
                        << "L2 of " << caches.l2 << ", " << threads << " threads, k " << k;
        }
}

TEST(ContractionConverted, SizesOfOperandsMustAgreeInKind) {
    const auto refused = [](DType a, DType b, Multiply multiply) {
        return refusal({.m = 1,
                        .n = 1,
                        .k = 1,
                        .a = {.dtype = a, .leading = 1},
                        .b = {.dtype = b, .leading = 1},
                        .out = {.leading = 1},
                        .multiply = multiply});
    };
    EXPECT_EQ(refused(DType::f16, DType::f16, Multiply::as_stored), "");
    EXPECT_EQ(refused(DType::f16, DType::f32, Multiply::as_stored),
              "a is f16 and b is f32; f16 is multiplied by f16 only");
    EXPECT_EQ(refused(DType::bf16, DType::bf16, Multiply::tf32),
              "a is bf16 and b is bf16; only f32 is multiplied as another format");
    EXPECT_EQ(refused(DType::f32, DType::f32, Multiply::tf32), "");
}

std::vector<const ConvertKernels*> tables() {
    std::vector<const ConvertKernels*> all = {&convert_kernels_generic()};
    if (best_isa() >= Isa::avx2) all.push_back(&convert_kernels_avx2());
    if (best_isa() >= Isa::avx512) all.push_back(&convert_kernels_avx512());
    if (has_bf16_dot()) all.push_back(&convert_kernels_avx512bf16());
    return all;
}

TEST(Conversions, OfEveryFp16NumberAreExactAtEveryLevel) {
    std::vector<std::uint16_t> halves(1 << 16);
    for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
    std::vector<float> widened(halves.size());
    std::vector<BF16> hi(halves.size()), lo(halves.size());
    for (const ConvertKernels* table : tables()) {
        void* whole[] = {widened.data()};
        table->widen_fp16(halves.data(), static_cast<std::int64_t>(halves.size()), whole);
        void* parts[] = {hi.data(), lo.data()};
        table->split_fp16(halves.data(), static_cast<std::int64_t>(halves.size()), parts);
        for (std::size_t i = 0; i < halves.size(); ++i) {
            const float exact = to_f32(FP16{halves[i]});
            if (std::isnan(exact)) {
                EXPECT_TRUE(std::isnan(widened[i]) && std::isnan(to_f32(hi[i]))) << i;
                continue;
            }
            ASSERT_EQ(std::bit_cast<std::uint32_t>(widened[i]), std::bit_cast<std::uint32_t>(exact)) << i;
            ASSERT_EQ(to_f32(hi[i]) + to_f32(lo[i]), exact) << i;
        }
    }
}

TEST(Conversions, SplitsOfFp32AreAsCloseAsTheirBitsAllow) {
    std::vector<float> x;
    const RandomStream random{.seed = 3, .operation = 9};
    for (std::uint64_t i = 0; i < 100'000; ++i) {
        const float value = std::bit_cast<float>(random.bits(i));
        if (std::isfinite(value)) x.push_back(value);
    }
    const auto count = static_cast<std::int64_t>(x.size());
    std::vector<std::vector<BF16>> first;
    for (const ConvertKernels* table : tables()) {
        std::vector<std::vector<BF16>> parts(2, std::vector<BF16>(x.size()));
        void* two[] = {parts[0].data(), parts[1].data()};
        table->split_fp32(x.data(), count, two);
        for (std::size_t i = 0; i < x.size(); ++i) {
            const auto part = [&](std::size_t p) { return static_cast<double>(to_f32(parts[p][i])); };
            const double exact = static_cast<double>(x[i]);
            // Lo rounds to 8 bits what hi left; at the end of the range hi is cut, not rounded.
            // Subnormal numbers are nothing, and so are subnormal remainders of hi.
            ASSERT_LE(std::abs(part(0) + part(1) - exact), 0x1p-16 * std::abs(exact) + 0x1p-126) << x[i];
        }
        if (first.empty()) first = parts;
        for (std::size_t p = 0; p < parts.size(); ++p)
            ASSERT_EQ(std::memcmp(parts[p].data(), first[p].data(), x.size() * sizeof(BF16)), 0)
                << "part " << p;
    }
}

TEST(Conversions, ToTf32RoundToNearestEven) {
    const std::vector<float> x = {1.0f, 1.0f + 0x1p-11f, 1.0f + 0x3p-11f, 1.0f + 0x1p-11f + 0x1p-23f,
                                  -3.14159274f};
    const std::vector<float> expected = {1.0f, 1.0f, 1.0f + 0x1p-9f, 1.0f + 0x1p-10f, -3.140625f};
    for (const ConvertKernels* table : tables()) {
        std::vector<float> got(x.size());
        void* parts[] = {got.data()};
        table->tf32(x.data(), static_cast<std::int64_t>(x.size()), parts);
        EXPECT_EQ(got, expected);
    }
}

TEST(Conversions, ToTf32AgreeWithTheScalarOneOnEveryBit) {
    std::vector<float> x;
    const RandomStream random{.seed = 5, .operation = 2};
    for (std::uint32_t exponent = 0; exponent < 256; ++exponent)
        for (std::uint32_t i = 0; i < 500; ++i) {
            // Every other one at a tie, or one beside it.
            std::uint32_t bits = (random.bits(exponent * 500 + i) & 0x807fffffu) | exponent << 23;
            if (i % 2 == 0) bits = ((bits & ~0x1fffu) | 0x1000u) + i / 2 % 3 - 1;
            x.push_back(std::bit_cast<float>(bits));
        }
    for (const ConvertKernels* table : tables()) {
        std::vector<float> got(x.size());
        void* parts[] = {got.data()};
        table->tf32(x.data(), static_cast<std::int64_t>(x.size()), parts);
        for (std::size_t i = 0; i < x.size(); ++i)
            ASSERT_EQ(std::bit_cast<std::uint32_t>(got[i]), std::bit_cast<std::uint32_t>(to_tf32(x[i])))
                << std::hex << std::bit_cast<std::uint32_t>(x[i]);
    }
}

}  // namespace
}  // namespace mantissa::on_cpu
