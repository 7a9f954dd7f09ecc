// Resizing, cutting and flipping, beside the same written out pixel by pixel.
#include "mantissa/data/image_cut.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/support/image_files.h"

namespace mantissa {
namespace {

constexpr PixelStatistics plain{{0, 0, 0}, {1, 1, 1}};

std::vector<float> cut(const Image& image, const ImageCut& options, const CutPlace& place = {}) {
    std::vector<float> pixels(static_cast<std::size_t>(options.image * options.image * 3), -100.0f);
    cut_image(image, options, place, pixels);
    return pixels;
}

Image image_of(int height, int width) {
    Image image{.height = height, .width = width};
    for (int i = 0; i < height * width * 3; ++i)
        image.pixels.push_back(static_cast<std::uint8_t>(i * 97 % 251));
    return image;
}

/// A channel of the resized image at (y, x): every pixel of the source weighed by a triangle in both
/// directions.
double resized(const Image& from, double height, double width, double y, double x, int channel) {
    const double down = static_cast<double>(from.height) / height,
                 right = static_cast<double>(from.width) / width;
    double sum = 0, weights = 0;
    for (std::int64_t row = 0; row < from.height; ++row)
        for (std::int64_t column = 0; column < from.width; ++column) {
            const auto weight = [](double at, double center, double reach) {
                return std::max(0.0, 1 - std::abs(at + 0.5 - center) / reach);
            };
            const double w = weight(static_cast<double>(row), (y + 0.5) * down, std::max(down, 1.0)) *
                             weight(static_cast<double>(column), (x + 0.5) * right, std::max(right, 1.0));
            sum += w * from.pixels[static_cast<std::size_t>((row * from.width + column) * 3 + channel)];
            weights += w;
        }
    return sum / weights / 255;
}

TEST(ImageCut, TakesAImageOfTheRightSizeAsItIs) {
    const Image image = image_of(4, 4);
    const std::vector<float> pixels = cut(image, {.image = 4, .resize = 4, .pixels = plain});
    for (std::size_t i = 0; i < pixels.size(); ++i)
        EXPECT_EQ(pixels[i], static_cast<float>(image.pixels[i]) / 255.0f) << i;
}

TEST(ImageCut, ResizesLikeTheDefinition) {
    struct Case {
        int height, width;
        std::int64_t image, resize;
        double resized_height, resized_width;
        int top, left;  // of the middle
    };
    // 33 x 57 shrinks to 8 x 13.8, so 13; 3 x 5 grows to 9 x 15; lines of one pixel; odd differences. Sizes
    // and places are those of transformers 5.24: get_resize_output_image_size and center_crop.
    for (const Case& c :
         {Case{33, 57, 8, 8, 8, 13, 0, 2}, Case{57, 33, 5, 8, 13, 8, 4, 1}, Case{3, 5, 7, 9, 9, 15, 1, 4},
          Case{1, 40, 4, 4, 4, 160, 0, 78}, Case{1, 1, 4, 4, 4, 4, 0, 0}, Case{9, 9, 6, 9, 9, 9, 1, 1},
          Case{16, 25, 7, 10, 10, 15, 1, 4}}) {
        const Image image = image_of(c.height, c.width);
        const std::vector<float> pixels = cut(image, {.image = c.image, .resize = c.resize, .pixels = plain});
        std::size_t at = 0;
        for (int y = 0; y < c.image; ++y)
            for (int x = 0; x < c.image; ++x)
                for (int channel = 0; channel < 3; ++channel)
                    ASSERT_NEAR(
                        pixels[at++],
                        resized(image, c.resized_height, c.resized_width, c.top + y, c.left + x, channel),
                        2e-6)
                        << c.height << " x " << c.width << " at " << y << ", " << x;
    }
}

TEST(ImageCut, NormalisesAndMirrors) {
    const Image image = image_of(3, 3);
    const ImageCut options{.image = 3, .resize = 3, .pixels = {{0.5f, 0.25f, 0}, {0.5f, 2, 1}}};
    const std::vector<float> pixels = cut(image, options), flipped = cut(image, options, {.flipped = true});
    for (std::size_t y = 0; y < 3; ++y)
        for (std::size_t x = 0; x < 3; ++x)
            for (std::size_t channel = 0; channel < 3; ++channel) {
                const std::size_t at = (3 * y + x) * 3 + channel;
                const float value = static_cast<float>(image.pixels[at]) / 255.0f;
                EXPECT_EQ(pixels[at], (value - options.pixels.mean[channel]) /
                                          options.pixels.standard_deviation[channel]);
                EXPECT_EQ(flipped[(3 * y + 2 - x) * 3 + channel], pixels[at]);
            }
}

TEST(ImageCut, PlacesReachFromCornerToCornerOfWhatIsPadded) {
    const Image image = image_of(4, 4);
    const ImageCut options{.image = 4, .resize = 4, .pixels = plain};
    const auto pixel = [&](const std::vector<float>& pixels, std::size_t y, std::size_t x) {
        return pixels[(4 * y + x) * 3];
    };
    const auto source = [&](std::size_t y, std::size_t x) {
        return static_cast<float>(image.pixels[(4 * y + x) * 3]) / 255.0f;
    };
    const std::vector<float> first = cut(image, options, {.padding = 2, .down = 0, .right = 0});
    const std::vector<float> last = cut(image, options, {.padding = 2, .down = ~0u, .right = ~0u});
    for (std::size_t y = 0; y < 4; ++y)
        for (std::size_t x = 0; x < 4; ++x) {
            EXPECT_EQ(pixel(first, y, x), y < 2 || x < 2 ? 0.0f : source(y - 2, x - 2));
            EXPECT_EQ(pixel(last, y, x), y > 1 || x > 1 ? 0.0f : source(y + 2, x + 2));
        }
}

}  // namespace
}  // namespace mantissa
