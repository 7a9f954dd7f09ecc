// Blocks of zeros that a contraction leaves out: no bit changes but for what they would have met, at every
// level, and they are left out indeed.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "tests/device/contraction_reference.h"
#include "tests/device/contraction_twins.h"
#include "tests/device/levels.h"

namespace mantissa::on_cpu {
namespace {

constexpr float nan_of_test = std::numeric_limits<float>::quiet_NaN();

enum class ZerosIn { rows_of_a, columns_of_b, depth_of_a, depth_of_b };

/// A product in which the second half of each stretch is padding: zeros in one operand.
struct PaddedProduct {
    std::array<std::int64_t, 2> batch = {1, 1};
    std::int64_t m = 1, n = 1, k = 1;
    ZerosIn zeros = ZerosIn::rows_of_a;
    Transpose ta = Transpose::no, tb = Transpose::no;
    DType type = DType::f32, out_type = DType::f32;
    Store store = Store::overwrite;
    Multiply multiply = Multiply::as_stored;
    int threads = 1;
    std::int64_t stretch = 100;

    bool is_padding(std::int64_t at) const { return at % stretch >= stretch / 2; }
};

/// Where a contraction runs: the level's kernels, or some.
struct Where {
    Isa isa = Isa::generic;
    const ContractionKernels* kernels = nullptr;
};

/// The output, with zeros left out or not. `beside`: what the zeros' partners along the depth are there.
std::vector<float> product_of(const PaddedProduct& p, const Where& where, bool leaves_out,
                              std::optional<float> beside = {}) {
    Operand a(p.type, p.ta, p.m, p.k, p.batch, 3), b(p.type, p.tb, p.k, p.n, p.batch, 1);
    Operand out(p.out_type, Transpose::no, p.m, p.n, p.batch, 0);
    a.fill(Values::normal, 1);
    b.fill(Values::normal, 2);
    out.fill(Values::normal, 3);
    const std::int64_t entries = p.batch[0] * p.batch[1];
    for (std::int64_t entry = 0; entry < entries; ++entry) {
        for (std::int64_t i = 0; i < p.m; ++i)
            for (std::int64_t k = 0; k < p.k; ++k) {
                const float sign = (i + k) % 3 == 0 ? -0.0f : 0.0f;
                if (p.is_padding(p.zeros == ZerosIn::rows_of_a ? i : k)) {
                    if (p.zeros == ZerosIn::rows_of_a || p.zeros == ZerosIn::depth_of_a)
                        a.set(entry, i, k, sign);
                    else if (p.zeros == ZerosIn::depth_of_b && beside)
                        a.set(entry, i, k, *beside);
                }
            }
        for (std::int64_t k = 0; k < p.k; ++k)
            for (std::int64_t j = 0; j < p.n; ++j)
                if (p.is_padding(p.zeros == ZerosIn::columns_of_b ? j : k)) {
                    if (p.zeros == ZerosIn::columns_of_b || p.zeros == ZerosIn::depth_of_b)
                        b.set(entry, k, j, 0);
                    else if (p.zeros == ZerosIn::depth_of_a && beside)
                        b.set(entry, k, j, *beside);
                }
    }
    const ContractionProblem problem{.batch = p.batch,
                                     .m = p.m,
                                     .n = p.n,
                                     .k = p.k,
                                     .a = a.layout(),
                                     .b = b.layout(),
                                     .out = out.layout(),
                                     .store = p.store,
                                     .multiply = p.multiply,
                                     .leaves_zeros_out = leaves_out,
                                     .threads = p.threads};
    ThreadPool pool(2);
    const ContractionArguments arguments{.a = a.data(), .b = b.data(), .out = out.data()};
    if (where.kernels)
        contract_in_new_workspace(problem, arguments, pool, *where.kernels);
    else
        contract_in_new_workspace(problem, arguments, pool, where.isa);
    std::vector<float> sums;
    for (std::int64_t entry = 0; entry < entries; ++entry)
        for (std::int64_t i = 0; i < p.m; ++i)
            for (std::int64_t j = 0; j < p.n; ++j) sums.push_back(static_cast<float>(out.get(entry, i, j)));
    return sums;
}

/// The shapes of a gradient's products: rows of zeros, and zeros along the depth in either operand.
std::vector<PaddedProduct> padded_products() {
    std::vector<PaddedProduct> all;
    for (const ZerosIn zeros :
         {ZerosIn::rows_of_a, ZerosIn::columns_of_b, ZerosIn::depth_of_a, ZerosIn::depth_of_b})
        for (const DType type : {DType::f32, DType::bf16}) {
            const PaddedProduct one{.m = 70, .n = 100, .k = 210, .zeros = zeros, .type = type};
            for (const Transpose transpose : {Transpose::no, Transpose::yes}) {
                all.push_back(one);
                all.back().ta = all.back().tb = transpose;
            }
            all.push_back(one);
            all.back().store = Store::accumulate;
            all.push_back(one);
            all.back().threads = 16;
            // Several chunks at every level; columns whose blocks read the same rows; a batch.
            all.push_back({.m = 20, .n = 60, .k = 1700, .zeros = zeros, .type = type, .out_type = type});
            all.push_back({.m = 60, .n = 800, .k = 60, .zeros = zeros, .type = type});
            all.push_back({.batch = {2, 5}, .m = 20, .n = 30, .k = 110, .zeros = zeros, .type = type});
        }
    all.push_back({.m = 60, .n = 70, .k = 200, .zeros = ZerosIn::depth_of_a, .multiply = Multiply::tf32});
    return all;
}

void expect_same_bits(const PaddedProduct& p, const Where& where) {
    const std::vector<float> all = product_of(p, where, false), some = product_of(p, where, true);
    ASSERT_EQ(all.size(), some.size());
    std::size_t differ = 0;
    for (std::size_t i = 0; i < all.size(); ++i)
        differ += std::bit_cast<std::uint32_t>(all[i]) != std::bit_cast<std::uint32_t>(some[i]);
    EXPECT_EQ(differ, 0U) << name_of(where.isa) << " m " << p.m << " n " << p.n << " k " << p.k << " zeros "
                          << static_cast<int>(p.zeros);
}

TEST(ContractionZeros, LeavingThemOutChangesNoBit) {
    for (const PaddedProduct& p : padded_products())
        for (const Isa isa : testable_levels()) expect_same_bits(p, {.isa = isa});
}

TEST(ContractionZeros, LeavingThemOutChangesNoBitOfTheTwins) {
    const ContractionKernels tiles = contraction_kernels_tile_twin(), pairs = contraction_kernels_dot_twin();
    for (const PaddedProduct& p : padded_products())
        if (p.type == DType::bf16)
            for (const ContractionKernels* kernels : {&tiles, &pairs})
                expect_same_bits(p, {.kernels = kernels});
}

bool any_nan(const std::vector<float>& sums) {
    return std::ranges::any_of(sums, [](float sum) { return std::isnan(sum); });
}

/// Blocks of 32 that are padding are left out: a NaN that they would meet is met by none.
TEST(ContractionZeros, WholeBlocksOfThemMeetNothing) {
    const ContractionKernels tiles = contraction_kernels_tile_twin(), pairs = contraction_kernels_dot_twin();
    for (const ZerosIn zeros : {ZerosIn::depth_of_a, ZerosIn::depth_of_b})
        for (const DType type : {DType::f32, DType::bf16}) {
            const PaddedProduct p{.m = 40, .n = 70, .k = 128, .zeros = zeros, .type = type, .stretch = 64};
            std::vector<Where> places;
            for (const Isa isa : testable_levels()) places.push_back({.isa = isa});
            if (type == DType::bf16) places.insert(places.end(), {{.kernels = &tiles}, {.kernels = &pairs}});
            for (const Where& where : places) {
                EXPECT_TRUE(any_nan(product_of(p, where, false, nan_of_test)));
                EXPECT_FALSE(any_nan(product_of(p, where, true, nan_of_test))) << name_of(where.isa);
                EXPECT_EQ(product_of(p, where, true, nan_of_test), product_of(p, where, true));
            }
        }
}

}  // namespace
}  // namespace mantissa::on_cpu
