// Images as the public face has them: classes, batches of training, and what is held out.
#include "mantissa/data/images.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "mantissa/base/error.h"
#include "mantissa/data/image_batches.h"

namespace mantissa {
namespace {

/// Ten images of each of three colours.
const char* const pictures = MANTISSA_SOURCE_DIR "/tests/fixtures/248ad45/pictures";

TEST(Images, HoldOutATenthAndTrainOnTheRest) {
    const Images images(pictures, {.image = 8, .resize = 8, .batches = {.batch = 9}});
    EXPECT_EQ(images.classes(), (std::vector<std::string>{"blue", "green", "red"}));
    EXPECT_EQ(images.training().steps_per_epoch(), 3u);
    const auto held_out = images.held_out();
    EXPECT_EQ(held_out.classes, (std::vector<std::int32_t>{0, 2}));  // by their names
    EXPECT_EQ(held_out.pixels.size(), 2u * 8 * 8 * 3);
    const ImageSplit split = open_images(pictures, {.hold_out = HoldOut::by_name});
    const ImageBatches all(split.validation, {.batches = {.batch = 2},
                                              .cut = {.image = 8, .resize = 8},
                                              .use = ImageBatchOptions::Use::validation});
    std::vector<float> pixels(held_out.pixels.size());
    std::vector<std::int32_t> classes(2);
    const std::vector<std::span<std::byte>> inputs{std::as_writable_bytes(std::span(pixels)),
                                                   std::as_writable_bytes(std::span(classes))};
    all.fill(0, 0, inputs);
    EXPECT_EQ(held_out.pixels, pixels);
    EXPECT_EQ(held_out.classes, classes);
}

TEST(Images, SayWhatIsMissing) {
    try {
        Images("no such folder");
        FAIL();
    } catch (const UserError& error) {
        EXPECT_NE(std::string(error.what()).find("no such folder"), std::string::npos);
    }
}

}  // namespace
}  // namespace mantissa
