// Commands that take networks for images as they take language models, and what they say of options that
// belong to the other kind.
#include <gtest/gtest.h>

#include "tests/cli/run_program.h"

namespace mantissa {
namespace {

using testing::last_line;
using testing::Ran;
using testing::run;

const std::string small_images = " --image-size 32 --classes 5 --width 4 --batch 2 ";

TEST(NetworksForImages, AreTakenByEachCommandThatLooksAtAStep) {
    const std::pair<std::string, std::string> cases[] = {
        {"explain --model ResNet50 --policy bf16", "bf16 list: conv2d"},
        {"explain --model VGG19 --policy fp32 --roofline --quiet", "conv2d_filter_gradient"},
        {"lint --model DenseNet121 --no-measure", "DenseNet121, 2 images a step"},
        {"numerics --model VGG19 --steps 1 --quiet", "conv2d_filter_gradient"},
        {"numerics converge --model VGG19 --steps 2 --tolerance 1 --policies fp32,bf16 --quiet",
         "all agree with fp32"},
        {"ladder --model VGG19 --rungs fp32,bf16 --steps 1 --repeats 1 --quiet", "images/s"}};
    for (const auto& [command, expected] : cases) {
        const Ran ran = run(command + small_images);
        EXPECT_EQ(ran.status, 0) << command << "\n" << ran.output;
        EXPECT_NE(ran.output.find(expected), std::string::npos) << command << "\n" << ran.output;
    }
}

TEST(NetworksForImages, OptionsOfTheOtherKindAreRefusedByTheirNames) {
    const std::pair<std::string, std::string> cases[] = {
        {"explain --model ResNet50 --layers 3",
         "--model ResNet50: its sizes are --image-size, --classes and --width; the others are of language "
         "models"},
        {"lint --model VGG19 --sequence 64",
         "--model VGG19: its sizes are --image-size, --classes and --width; the others are of language "
         "models"},
        {"ladder --model VGG19 --text /etc/hostname",
         "--model VGG19: trains on images, not on --text, --tokens, --chats or --tokenizer"},
        {"explain --model gpt2-tiny --image-size 64",
         "--image-size, --classes and --width are of ResNet50, ResNet50v1.5, VGG19, DenseNet121, ResNet20, "
         "ResNet56, got --model gpt2-tiny"},
        {"explain --model VGG19 --width 3", "--width: VGG19: the width must be even, got 3"}};
    for (const auto& [command, expected] : cases) {
        const Ran ran = run(command);
        EXPECT_EQ(ran.status, 2) << ran.output;
        EXPECT_EQ(last_line(ran.output), "mantissa: " + expected) << command;
    }
}

}  // namespace
}  // namespace mantissa
