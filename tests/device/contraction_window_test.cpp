// Operands that are gathered from images as they are packed, or read there in place, on every kind of kernel:
// the product is that of the same matrix written out.
#include <gtest/gtest.h>

#include <vector>

#include "mantissa/device/cpu/contraction/in_place.h"
#include "mantissa/device/cpu/contraction/tiles_in_place.h"
#include "tests/device/contraction_reference.h"
#include "tests/device/contraction_twins.h"
#include "tests/device/levels.h"

namespace mantissa::on_cpu {
namespace {

struct WindowCase {
    DType type;
    std::int64_t images, n, channels, pitch;
    ConvolutionAxis vertical, horizontal;
};

/// Images with gaps between pixels, whole numbers, and the matrix that their window is, stored densely.
struct Gathered {
    explicit Gathered(const WindowCase& c) {
        window = {.vertical = c.vertical, .horizontal = c.horizontal, .channels = c.channels};
        window.pixel_pitch = c.pitch;
        window.row_pitch = c.horizontal.image * c.pitch;
        window.image_pitch = c.vertical.image * window.row_pitch;
        rows = c.images * window.rows_of_image();
        Operand image(c.type, Transpose::no, 1, c.images * window.image_pitch, {1, 1}, 0);
        image.fill(Values::whole, 1);
        pixels.assign(static_cast<const std::byte*>(image.data()),
                      static_cast<const std::byte*>(image.data()) +
                          c.images * window.image_pitch * static_cast<std::int64_t>(size_of(c.type)));
        for (std::int64_t row = 0; row < rows; ++row)
            for (std::int64_t column = 0; column < window.columns(); ++column)
                dense.push_back(element(image, row, column));
    }

    double element(const Operand& image, std::int64_t row, std::int64_t column) const {
        const std::int64_t j = row % window.horizontal.output, i = row / window.horizontal.output;
        const std::int64_t channel = column % window.channels, tap = column / window.channels;
        const std::int64_t h =
            window.vertical.image_place(i % window.vertical.output, tap / window.horizontal.filter);
        const std::int64_t w = window.horizontal.image_place(j, tap % window.horizontal.filter);
        if (h < 0 || h >= window.vertical.image || w < 0 || w >= window.horizontal.image) return 0;
        const std::int64_t n = i / window.vertical.output;
        return image.get(0, 0,
                         n * window.image_pitch + h * window.row_pitch + w * window.pixel_pitch + channel);
    }

    ImageWindow window;
    std::int64_t rows = 0;
    std::vector<std::byte> pixels;
    std::vector<double> dense;
};

/// Gathered as a, as it is and transposed. `how`: a level or a set of kernels.
template <class How>
void expect_exact_gathered(const WindowCase& c, Transpose transpose, ThreadPool& pool, const How& how) {
    const Gathered gathered(c);
    const bool swapped = transpose == Transpose::yes;
    const std::int64_t columns = gathered.window.columns();
    const std::int64_t m = swapped ? columns : gathered.rows, k = swapped ? gathered.rows : columns;
    Operand b(c.type, Transpose::no, k, c.n, {1, 1}, 2);
    b.fill(Values::whole, 2);
    ContractionProblem problem{.m = m, .n = c.n, .k = k, .b = b.layout()};
    problem.a = {.dtype = c.type, .transpose = transpose, .window = gathered.window};
    problem.out = {.leading = c.n};
    std::vector<float> out(static_cast<std::size_t>(m * c.n), NAN);
    contract_in_new_workspace(problem, {.a = gathered.pixels.data(), .b = b.data(), .out = out.data()}, pool,
                              how);
    for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < c.n; ++j) {
            double sum = 0;
            for (std::int64_t x = 0; x < k; ++x)
                sum += gathered.dense[static_cast<std::size_t>(swapped ? x * columns + i : i * columns + x)] *
                       b.get(0, x, j);
            ASSERT_EQ(out[static_cast<std::size_t>(i * c.n + j)], sum) << "row " << i << ", column " << j;
        }
}

/// 3 x 3 with edges on all sides, backward steps, neighbours that are one run, few channels and many.
std::vector<WindowCase> window_cases(DType type) {
    const ConvolutionAxis same{.image = 6, .output = 6, .filter = 3, .before = 1};
    const ConvolutionAxis backward{.image = 5, .output = 5, .filter = 3, .dilation = -1, .before = -1};
    const ConvolutionAxis strided{
        .image = 5, .output = 3, .filter = 2, .stride = 2, .dilation = 3, .before = 2};
    // Words of pixels of two images, or of two halves of one: more than a chunk, with gaps between rows that
    // windows meet, beyond the image, and smaller than the window.
    const ConvolutionAxis long_one{.image = 21, .output = 21, .filter = 3, .before = 1};
    const ConvolutionAxis sparse{.image = 13, .output = 4, .filter = 2, .stride = 4, .before = 1};
    const ConvolutionAxis apart{.image = 8, .output = 6, .filter = 3, .dilation = 3, .before = 2};
    const ConvolutionAxis tiny{.image = 1, .output = 2, .filter = 5, .before = 3};
    // Tiles whose sixteen rows are neighbours, cross a row, leave the image by both sides or whole, or are
    // too few; chunks of the depth that end within a tap.
    const ConvolutionAxis wide{.image = 36, .output = 36, .filter = 3, .before = 1};
    const ConvolutionAxis wide_strided{.image = 45, .output = 23, .filter = 3, .stride = 2, .before = 1};
    const ConvolutionAxis wide_backward{.image = 40, .output = 42, .filter = 3, .dilation = -2, .before = -3};
    const ConvolutionAxis beyond{.image = 5, .output = 33, .filter = 3, .dilation = 9, .before = 20};
    const ConvolutionAxis tall{.image = 3, .output = 2, .filter = 7, .before = 3};
    const ConvolutionAxis one{.image = 19, .output = 19, .filter = 1};
    return {{type, 2, 33, 32, 32, same, same},
            {type, 2, 40, 64, 70, backward, same},
            {type, 1, 17, 3, 3, same, same},
            {type, 2, 9, 12, 12, same, same},
            {type, 3, 5, 18, 18, strided, backward},
            {type, 2, 50, 96, 96, same, strided},
            {type, 3, 33, 32, 32, same, wide},
            {type, 1, 31, 64, 70, strided, wide_strided},
            {type, 2, 32, 32, 40, backward, wide_backward},
            {type, 2, 9, 32, 32, same, beyond},
            {type, 1, 17, 256, 256, tall, one},

            {type, 2, 33, 8, 8, long_one, long_one},
            {type, 1, 33, 16, 19, same, long_one},
            {type, 3, 49, 24, 24, sparse, apart},
            {type, 4, 7, 8, 8, apart, strided},
            {type, 3, 5, 8, 8, tiny, same},
            {type, 1, 5, 8, 8, long_one, same}};
}

TEST(ContractionWindow, GivesTheProductOfTheMatrixAtEveryLevel) {
    ThreadPool pool(2);
    for (const Isa isa : testable_levels())
        for (const DType type : {DType::f32, DType::bf16})
            for (const WindowCase& c : window_cases(type))
                for (const Transpose transpose : {Transpose::no, Transpose::yes}) {
                    SCOPED_TRACE(std::string(name_of(isa)) + " " + std::string(mantissa::name_of(type)));
                    expect_exact_gathered(c, transpose, pool, isa);
                    if (::testing::Test::HasFatalFailure()) return;
                }
}

/// The kernels of BF16 units on their checked twins, whatever this CPU has.
TEST(ContractionWindow, GivesTheProductOfTheMatrixOnTheTwinsOfUnits) {
    ThreadPool pool(2);
    for (const ContractionKernels& twin : {contraction_kernels_dot_twin(), contraction_kernels_tile_twin()})
        for (const WindowCase& c : window_cases(DType::bf16))
            for (const Transpose transpose : {Transpose::no, Transpose::yes}) {
                expect_exact_gathered(c, transpose, pool, twin);
                if (::testing::Test::HasFatalFailure()) return;
            }
}

ContractionProblem problem_of(const WindowCase& c) {
    const Gathered gathered(c);
    ContractionProblem problem{.m = gathered.rows, .n = c.n, .k = gathered.window.columns()};
    problem.a = {.dtype = c.type, .window = gathered.window};
    problem.b = {.dtype = c.type, .leading = c.n};
    problem.out = {.leading = c.n};
    return problem;
}

TEST(ContractionWindow, IsReadInPlaceWherePixelsHaveChannelsEnough) {
    const auto in_place = [](const ContractionProblem& problem, const ContractionKernels& kernels) {
        return reads_a_in_place(problem, kernels);
    };
    const ContractionProblem wide = problem_of(window_cases(DType::f32)[0]),
                             thin = problem_of(window_cases(DType::f32)[2]);
    EXPECT_TRUE(in_place(wide, contraction_kernels_generic()));
    EXPECT_FALSE(in_place(thin, contraction_kernels_generic()));
    const ContractionProblem pairs = problem_of(window_cases(DType::bf16)[0]);
    EXPECT_TRUE(in_place(pairs, contraction_kernels_dot_twin()));
    EXPECT_FALSE(in_place(pairs, contraction_kernels_generic())) << "they are widened";
    EXPECT_FALSE(in_place(pairs, contraction_kernels_tile_twin()));
    const auto of_tiles = [&](const auto& change) {
        ContractionProblem problem = problem_of(window_cases(DType::bf16)[6]);
        change(problem);
        return TilesInPlace::of(problem, contraction_kernels_tile_twin()).has_value();
    };
    EXPECT_TRUE(of_tiles([](ContractionProblem&) {}));
    EXPECT_FALSE(of_tiles([](ContractionProblem& p) { p.n = 160; })) << "copied once for many columns";
    EXPECT_FALSE(of_tiles([](ContractionProblem& p) { p.a.window->channels = 48; }));
    EXPECT_FALSE(of_tiles([](ContractionProblem& p) { p.a.window->horizontal.output = 15; }));
    ContractionProblem transposed = wide;
    transposed.a.transpose = Transpose::yes;
    EXPECT_FALSE(in_place(transposed, contraction_kernels_generic()));
    EXPECT_TRUE(reads_a_across(transposed, contraction_kernels_generic()));
    EXPECT_FALSE(reads_a_across(wide, contraction_kernels_generic()));
    transposed.a.window->channels = 33;
    EXPECT_FALSE(reads_a_across(transposed, contraction_kernels_generic())) << "a tile of two taps";
    ContractionProblem across_pairs = pairs;
    across_pairs.a.transpose = Transpose::yes;
    across_pairs.k = pairs.m;
    EXPECT_TRUE(reads_a_across(across_pairs, contraction_kernels_dot_twin()));
    EXPECT_FALSE(reads_a_across(across_pairs, contraction_kernels_generic())) << "they are widened";
    const ContractionProblem odd = problem_of(window_cases(DType::bf16).back());
    ContractionProblem alone = odd;
    alone.a.transpose = Transpose::yes;
    alone.k = odd.m;
    EXPECT_FALSE(reads_a_across(alone, contraction_kernels_dot_twin())) << "an image of 21 rows has no pairs";
}

TEST(ContractionWindow, RefusalsGiveTheReason) {
    const auto refused = [](auto change) {
        ContractionProblem problem = problem_of(window_cases(DType::f32)[0]);
        change(problem);
        return refusal(problem);
    };
    EXPECT_EQ(refused([](ContractionProblem&) {}), "");
    EXPECT_NE(refused([](ContractionProblem& p) { p.k = 7; }).find("its window has 288 columns"),
              std::string::npos);
    EXPECT_NE(refused([](ContractionProblem& p) { p.a.window->channels = 0; }).find("an extent below 1"),
              std::string::npos);
    EXPECT_EQ(refused([](ContractionProblem& p) { p.a.mapped = true; }),
              "a cannot be mapped and gathered at once");
    EXPECT_EQ(refused([](ContractionProblem& p) { p.out.window = p.a.window; }),
              "only a and b can be gathered, not the output");
}

}  // namespace
}  // namespace mantissa::on_cpu
