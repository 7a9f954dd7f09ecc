// Gradients of filters on tiles as transposed products, whose images are read in words of two pixels.
#include "mantissa/device/cpu/kernels/swapped_gradient.h"

#include <gtest/gtest.h>

#include <cstring>

#include "mantissa/device/cpu/contraction/pixel_words.h"
#include "tests/device/contraction_reference.h"
#include "tests/device/contraction_twins.h"

namespace mantissa::on_cpu {
namespace {

struct GradientCase {
    const char* name;
    std::int64_t images, channels, filters;
    ConvolutionAxis vertical, horizontal;
};

ConvolutionAxis same(std::int64_t image, std::int64_t filter = 3, std::int64_t dilation = 1) {
    return {.image = image,
            .output = image,
            .filter = filter,
            .dilation = dilation,
            .before = (filter - 1) * dilation / 2};
}

std::vector<GradientCase> cases() {
    const ConvolutionAxis inside{.image = 23, .output = 21, .filter = 3};
    const ConvolutionAxis around{.image = 22, .output = 26, .filter = 3, .before = 3};
    const ConvolutionAxis behind{.image = 24, .output = 26, .filter = 3};
    const ConvolutionAxis cropped{.image = 25, .output = 20, .filter = 3, .before = -2};
    return {{"3x3", 2, 32, 32, same(21), same(21)},
            {"several blocks of channels, filters that fill no tile", 1, 96, 19, same(20), same(24)},
            {"many images, in shares", 8, 32, 16, same(40), same(40)},
            {"far apart", 2, 32, 32, same(40, 3, 2), same(37, 3, 3)},
            {"5x2", 3, 64, 9, same(20, 5), same(33, 2)},
            {"no zeros around, and three of them", 2, 32, 40, inside, around},
            {"zeros behind alone, pixels that no filter meets", 2, 32, 33, behind, cropped},
            {"more than a chunk", 1, 32, 32, same(61), same(58)}};
}

/// x, dy and what is asked for: a gathered and transposed, b as it lies.
struct GradientOperands {
    explicit GradientOperands(const GradientCase& of, Values values)
        : c(of),
          x(DType::bf16, Transpose::no, of.images * of.vertical.image * of.horizontal.image, of.channels,
            {1, 1}, 0),
          dy(DType::bf16, Transpose::no, of.images * of.vertical.output * of.horizontal.output, of.filters,
             {1, 1}, 0) {
        x.fill(values, 1);
        dy.fill(values, 2);
        const std::int64_t row = of.horizontal.image * of.channels;
        problem = {.m = of.vertical.filter * of.horizontal.filter * of.channels,
                   .n = of.filters,
                   .k = of.images * of.vertical.output * of.horizontal.output,
                   .b = dy.layout(),
                   .out = {.leading = of.filters}};
        problem.a = {.dtype = DType::bf16,
                     .transpose = Transpose::yes,
                     .window = ImageWindow{.vertical = of.vertical,
                                           .horizontal = of.horizontal,
                                           .channels = of.channels,
                                           .row_pitch = row,
                                           .pixel_pitch = of.channels,
                                           .image_pitch = of.vertical.image * row}};
    }

    /// The number of x that an element of the filter meets at an output; 0 outside of the image.
    double met(std::int64_t tap_and_channel, std::int64_t output) const {
        const std::int64_t tap = tap_and_channel / c.channels;
        const std::int64_t j = output % c.horizontal.output, i = output / c.horizontal.output;
        const std::int64_t h = c.vertical.image_place(i % c.vertical.output, tap / c.horizontal.filter);
        const std::int64_t w = c.horizontal.image_place(j, tap % c.horizontal.filter);
        if (h < 0 || h >= c.vertical.image || w < 0 || w >= c.horizontal.image) return 0;
        const std::int64_t image = i / c.vertical.output;
        return x.get(0, (image * c.vertical.image + h) * c.horizontal.image + w,
                     tap_and_channel % c.channels);
    }

    GradientCase c;
    Operand x, dy;
    ContractionProblem problem;
};

struct TileUnit {
    const char* name;
    ContractionKernels kernels;
};

std::vector<TileUnit> tile_units() {
    std::vector<TileUnit> units{{"the twin of tiles", contraction_kernels_tile_twin()}};
    if (best_isa() >= Isa::amx) units.push_back({"tiles", contraction_kernels_amx()});
    return units;
}

/// [taps and channels, filters]
std::vector<float> gradient(GradientOperands& operands, const ContractionKernels& kernels, int threads) {
    ThreadPool pool(threads, threads);
    operands.problem.threads = threads;
    const auto swapped =
        SwappedGradient::of(prepare_contraction(operands.problem, kernels), std::min(best_isa(), Isa::avx2));
    std::vector<float> out(static_cast<std::size_t>(operands.problem.sums()), NAN);
    if (!swapped) {
        ADD_FAILURE() << "operands are not swapped";
        return out;
    }
    const std::size_t bytes = swapped->workspace_bytes(threads);
    const Buffer workspace(bytes);
    std::memset(workspace.data(), 0xff, bytes);
    swapped->run({.a = operands.x.data(), .b = operands.dy.data(), .out = out.data()},
                 {workspace.data(), bytes}, pool);
    return out;
}

TEST(SwappedGradient, IsExactOnWholeNumbers) {
    for (const TileUnit& unit : tile_units())
        for (const GradientCase& c : cases()) {
            SCOPED_TRACE(std::string(unit.name) + ", " + c.name);
            GradientOperands operands(c, Values::whole);
            const std::vector<float> out = gradient(operands, unit.kernels, 2);
            std::vector<double> sums(static_cast<std::size_t>(c.filters));
            for (std::int64_t i = 0; i < operands.problem.m; ++i) {
                std::ranges::fill(sums, 0);
                for (std::int64_t k = 0; k < operands.problem.k; ++k)
                    if (const double number = operands.met(i, k); number != 0)
                        for (std::int64_t j = 0; j < c.filters; ++j)
                            sums[static_cast<std::size_t>(j)] += number * operands.dy.get(0, k, j);
                for (std::int64_t j = 0; j < c.filters; ++j)
                    ASSERT_EQ(out[static_cast<std::size_t>(i * c.filters + j)],
                              sums[static_cast<std::size_t>(j)])
                        << "row " << i << ", filter " << j;
            }
        }
}

TEST(SwappedGradient, HasTheSameBitsForAnyNumberOfThreads) {
    for (const TileUnit& unit : tile_units())
        for (const GradientCase& c : cases()) {
            SCOPED_TRACE(std::string(unit.name) + ", " + c.name);
            GradientOperands operands(c, Values::normal);
            const std::vector<float> one = gradient(operands, unit.kernels, 1);
            const std::vector<float> many = gradient(operands, unit.kernels, 5);
            EXPECT_EQ(std::memcmp(one.data(), many.data(), one.size() * sizeof(float)), 0);
        }
}

/// Products with the zeros between rows would make NaN of it, also where the filter's element never meets it.
TEST(SwappedGradient, KeepsAnInfinityOutOfElementsThatDoNotMeetIt) {
    for (const TileUnit& unit : tile_units())
        for (const std::size_t index : {0U, 6U}) {
            const GradientCase c = cases()[index];
            SCOPED_TRACE(std::string(unit.name) + ", " + c.name);
            GradientOperands operands(c, Values::whole);
            auto* const pixels = static_cast<std::uint16_t*>(operands.x.data());
            pixels[(c.horizontal.image - 1) * c.channels + 5] = 0x7f80;  // row 0, last column, channel 5
            const std::vector<float> out = gradient(operands, unit.kernels, 2);
            std::vector<float> whole(out.size(), NAN);
            ThreadPool pool(2);
            contract_in_new_workspace(operands.problem,
                                      {.a = operands.x.data(), .b = operands.dy.data(), .out = whole.data()},
                                      pool, unit.kernels);
            std::int64_t finite = 0;
            for (std::size_t i = 0; i < out.size(); ++i) {
                finite += std::isfinite(whole[i]);
                ASSERT_TRUE(out[i] == whole[i] || (std::isnan(out[i]) && std::isnan(whole[i]))) << i;
            }
            EXPECT_GT(finite, std::ssize(out) - std::ssize(out) / c.channels);
        }
}

TEST(SwappedGradient, IsForWindowsOfWholeBlocksWithoutStridesAndFewZeros) {
    const auto is_swapped = [](const GradientCase& c, const ContractionKernels& kernels, auto change) {
        ContractionProblem problem = GradientOperands(c, Values::whole).problem;
        change(problem);
        return SwappedGradient::of(prepare_contraction(problem, kernels), Isa::generic).has_value();
    };
    const auto as_it_is = [](ContractionProblem&) {};
    const ContractionKernels tiles = contraction_kernels_tile_twin();
    EXPECT_TRUE(is_swapped({"", 2, 32, 32, same(21), same(21)}, tiles, as_it_is));
    EXPECT_FALSE(is_swapped({"", 2, 32, 32, same(21), same(21)}, contraction_kernels_dot_twin(), as_it_is));
    EXPECT_FALSE(is_swapped({"", 2, 48, 32, same(21), same(21)}, tiles, as_it_is)) << "half a block";
    EXPECT_FALSE(is_swapped({"", 2, 32, 512, same(7), same(7)}, tiles, as_it_is)) << "too many zeros";
    EXPECT_FALSE(is_swapped({"", 2, 32, 32, same(21, 1), same(21, 1)}, tiles, as_it_is)) << "one tap";
    const ConvolutionAxis strided{.image = 21, .output = 11, .filter = 3, .stride = 2, .before = 1};
    EXPECT_FALSE(is_swapped({"", 2, 32, 32, strided, strided}, tiles, as_it_is));
    EXPECT_FALSE(is_swapped({"", 2, 32, 32, same(21), same(21)}, tiles, [](ContractionProblem& problem) {
        problem.store = Store::accumulate;
    })) << "sums are added to what there is";
}

/// Words of pixels change no bit: the sums are those of the same operands written out.
TEST(PixelWords, GiveTheSumsOfPanels) {
    for (const TileUnit& unit : tile_units())
        for (const GradientCase& c : cases()) {
            SCOPED_TRACE(std::string(unit.name) + ", " + c.name);
            // As many outputs along each axis as leave zeros behind them, of a and of the images.
            GradientCase wide = c;
            for (ConvolutionAxis* axis : {&wide.vertical, &wide.horizontal})
                axis->output = std::max(axis->image, axis->output) + axis->filter * axis->dilation;
            const GradientOperands images(wide, Values::normal);
            const std::int64_t m = c.filters, n = images.problem.m, k = images.problem.k;
            GradientOperands narrow(c, Values::normal);
            ContractionProblem problem{.m = m, .n = n, .k = k, .b = images.problem.a, .out = {.leading = n}};
            problem.b.transpose = Transpose::no;
            problem.a = narrow.dy.layout();
            problem.a.transpose = Transpose::yes;
            problem.a.window = {
                .vertical = {.image = c.vertical.output, .output = wide.vertical.output, .filter = 1},
                .horizontal = {.image = c.horizontal.output, .output = wide.horizontal.output, .filter = 1},
                .channels = m,
                .row_pitch = c.horizontal.output * m,
                .pixel_pitch = m,
                .image_pitch = c.vertical.output * c.horizontal.output * m};
            ASSERT_TRUE(PixelWords::of(problem, unit.kernels));
            Operand a(DType::bf16, Transpose::no, m, k, {1, 1}, 0),
                b(DType::bf16, Transpose::no, k, n, {1, 1}, 0);
            auto* const dense_a = static_cast<std::uint16_t*>(a.data());
            auto* const dense_b = static_cast<std::uint16_t*>(b.data());
            for (std::int64_t at = 0; at < k; ++at) {
                const std::int64_t j = at % wide.horizontal.output;
                const std::int64_t i = at / wide.horizontal.output % wide.vertical.output;
                const std::int64_t image = at / wide.horizontal.output / wide.vertical.output;
                const bool there = j < c.horizontal.output && i < c.vertical.output;
                const std::int64_t row = (image * c.vertical.output + i) * c.horizontal.output + j;
                for (std::int64_t line = 0; line < m; ++line)
                    dense_a[line * k + at] =
                        there ? bf16_bits(static_cast<float>(narrow.dy.get(0, row, line))) : 0;
                for (std::int64_t column = 0; column < n; ++column)
                    dense_b[at * n + column] = bf16_bits(static_cast<float>(images.met(column, at)));
            }
            const auto sums = [&](const ContractionProblem& of, const void* from_a, const void* from_b) {
                std::vector<float> out(static_cast<std::size_t>(m * n), NAN);
                ThreadPool pool(3, 3);
                contract_in_new_workspace(of, {.a = from_a, .b = from_b, .out = out.data()}, pool,
                                          unit.kernels);
                return out;
            };
            GradientOperands x(wide, Values::normal);
            const std::vector<float> words = sums(problem, narrow.dy.data(), x.x.data());
            problem.a = a.layout();
            problem.b = b.layout();
            const std::vector<float> panels = sums(problem, a.data(), b.data());
            EXPECT_EQ(std::memcmp(words.data(), panels.data(), words.size() * sizeof(float)), 0);
        }
}

}  // namespace
}  // namespace mantissa::on_cpu
