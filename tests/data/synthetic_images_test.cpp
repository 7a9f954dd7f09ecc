// The benchmark's batch: uniform pixels and classes, the same in every step and for every seed another.
#include "mantissa/data/synthetic_images.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>

namespace mantissa {
namespace {

struct Drawn {
    std::vector<float> pixels;
    std::vector<std::int32_t> classes;
    bool operator==(const Drawn&) const = default;
};

Drawn draw(std::uint64_t seed, std::uint64_t step, std::int64_t classes = 10, std::size_t batch = 64) {
    const nn::ImageSizes sizes{.classes = classes, .image = 9};
    Drawn drawn{std::vector<float>(batch * 9 * 9 * 3, -1.0f), std::vector<std::int32_t>(batch, -1)};
    const std::array inputs = {std::as_writable_bytes(std::span(drawn.pixels)),
                               std::as_writable_bytes(std::span(drawn.classes))};
    SyntheticImages(sizes, seed).fill(step, 0, inputs);
    return drawn;
}

TEST(SyntheticImages, PixelsAreUniformAndOfTheClassesTheLastIsNeverDrawn) {
    const Drawn drawn = draw(7, 0);
    double sum = 0;
    for (const float pixel : drawn.pixels) {
        EXPECT_GE(pixel, 0.0f);
        EXPECT_LT(pixel, 1.0f);
        sum += static_cast<double>(pixel);
    }
    // Deviation sqrt(1/12) of a pixel: four of the mean's.
    EXPECT_NEAR(sum / static_cast<double>(drawn.pixels.size()), 0.5,
                4 * 0.2887 / std::sqrt(static_cast<double>(drawn.pixels.size())));
    const Drawn few = draw(7, 0, 4, 200);
    EXPECT_EQ(std::set<std::int32_t>(few.classes.begin(), few.classes.end()),
              (std::set<std::int32_t>{0, 1, 2}));
    for (const std::int32_t label : draw(7, 0, 2).classes) EXPECT_EQ(label, 0);
}

TEST(SyntheticImages, FollowFromTheSeedAlone) {
    EXPECT_EQ(draw(7, 0), draw(7, 5));
    EXPECT_NE(draw(7, 0).pixels, draw(8, 0).pixels);
    EXPECT_NE(draw(7, 0).classes, draw(8, 0).classes);
    EXPECT_EQ(SyntheticImages({.classes = 10, .image = 9}, 7).description(),
              "synthetic images of 9 x 9 pixels, 10 classes, seed 7");
}

}  // namespace
}  // namespace mantissa
