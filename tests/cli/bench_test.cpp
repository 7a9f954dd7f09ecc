// `mantissa bench`: the tutorial's lines, what stands for which precision, and words for wrong options.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>

#include "mantissa/formats/safetensors.h"
#include "tests/cli/run_program.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

using testing::last_line;
using testing::Ran;
using testing::run;

const std::string tiny_bench =
    "bench --width 2 --image-size 32 --classes 5 --batch-size 2 --num-warmup-batches 2 "
    "--num-batches-per-iter 1 --num-iters 2 --passes none --quiet ";

TEST(BenchCommand, PrintsTheTutorialsLines) {
    const Ran ran = run(tiny_bench + "--disable-tf32");
    ASSERT_EQ(ran.status, 0) << ran.output;
    const std::regex lines(
        "Model: ResNet50\nBatch size: 2\nPrecision: fp32\nloss: \\d+\\.\\d{4}\nloss: \\d+\\.\\d{4}\n"
        "Iter #0: \\d+\\.\\d img/sec\nIter #1: \\d+\\.\\d img/sec\nImg/sec: \\d+\\.\\d \\+-\\d+\\.\\d\n");
    EXPECT_TRUE(std::regex_search(ran.output, lines)) << ran.output;
    EXPECT_EQ(ran.output.find("the tutorial's are"), std::string::npos) << "all sizes were given";
    EXPECT_NE(
        ran.output.find("ResNet50, 26,005 parameters (27,665 with running statistics, as Keras counts)"),
        std::string::npos)
        << ran.output;
}

TEST(BenchCommand, SizesThatWereNotGivenAreSaid) {
    const Ran ran = run("bench --width 2 --image-size 32 --classes 5 --passes none --quiet --policy fp32");
    ASSERT_EQ(ran.status, 0) << ran.output;
    EXPECT_NE(ran.output.find("Batch size: 16\n"), std::string::npos) << ran.output;
    EXPECT_NE(ran.output.find("10 iterations of 10 batches: about "), std::string::npos) << ran.output;
    EXPECT_NE(ran.output.find("the tutorial's are --batch-size 128 --num-warmup-batches 2 "
                              "--num-batches-per-iter 10 --num-iters 10\n"),
              std::string::npos)
        << ran.output;
}

TEST(BenchCommand, OptionsOfTheTutorialStandForPrecisions) {
    const std::pair<std::string, std::string> cases[] = {{"", "tf32"},
                                                         {"--disable-tf32", "fp32"},
                                                         {"--mixed-prec", "fp16"},
                                                         {"--mixed-prec --disable-tf32", "fp16"},
                                                         {"--policy bf16", "bf16"}};
    for (const auto& [given, precision] : cases) {
        const Ran ran = run(tiny_bench + given);
        EXPECT_NE(ran.output.find("Precision: " + precision + "\n"), std::string::npos) << given << "\n"
                                                                                        << ran.output;
    }
    const Ran forbidden =
        testing::run_in_shell("NVIDIA_TF32_OVERRIDE=0 " MANTISSA_BINARY_DIR "/mantissa " + tiny_bench);
    EXPECT_NE(forbidden.output.find("Precision: fp32\n"), std::string::npos) << forbidden.output;
}

TEST(BenchCommand, ComparesThePrecisionsInOneTable) {
    const TemporaryDirectory directory;
    const std::string path = (directory / "bench.json").string();
    const Ran ran = run(tiny_bench + "--model VGG19 --compare --json " + path);
    ASSERT_EQ(ran.status, 0) << ran.output;
    std::ifstream file(path);
    const auto json = nlohmann::json::parse(file);
    std::vector<std::string> precisions;
    for (const auto& result : json["results"]) {
        precisions.push_back(result["precision"]);
        EXPECT_NEAR(result["losses"][0], json["results"][0]["losses"][0], 0.02);
        EXPECT_NE(ran.output.find(fmt::format("\nVGG19  {:<9}", precisions.back())), std::string::npos)
            << ran.output;
    }
    EXPECT_EQ(precisions, (std::vector<std::string>{"fp32", "tf32", "bf16", "fp16"}));
    EXPECT_NE(ran.output.find("1099.8"), std::string::npos) << "the A100's rows\n" << ran.output;
}

/// The weights at the end of one run are what another begins with.
TEST(BenchCommand, WeightsGoOutAndInUnderTorchvisionsNames) {
    const TemporaryDirectory directory;
    const std::string first = (directory / "first.safetensors").string(),
                      second = (directory / "second.safetensors").string();
    ASSERT_EQ(run(tiny_bench + "--policy fp32 --save " + first).status, 0);
    const SafetensorsFile file(first);
    EXPECT_EQ(file.view("conv1.weight").shape, (std::vector<std::int64_t>{2, 3, 7, 7}));
    EXPECT_EQ(file.view("layer4.2.bn3.running_var").shape, (std::vector<std::int64_t>{64}));
    EXPECT_EQ(file.view("fc.weight").shape, (std::vector<std::int64_t>{5, 64}));
    const auto losses = [](const std::string& output) {
        const std::size_t begin = output.find("loss: ");
        return output.substr(begin, output.find("Iter") - begin);
    };
    const Ran drawn = run(tiny_bench + "--policy fp32"),
              again = run(tiny_bench + "--policy fp32 --from " + first),
              third = run(tiny_bench + "--policy fp32 --from " + first + " --save " + second);
    ASSERT_EQ(again.status, 0) << again.output;
    EXPECT_NE(losses(drawn.output), losses(again.output));
    EXPECT_EQ(losses(third.output), losses(again.output));
    const std::string other = last_line(run(tiny_bench + "--model VGG19 --from " + first).output);
    for (const char* part : {" tensors do not fit: missing \"features.0.weight\", ",
                             "; unknown \"bn1.bias\", ", "; expected a state dict of VGG19 under"})
        EXPECT_NE(other.find(part), std::string::npos) << part << "\n" << other;
}

TEST(BenchCommand, WrongOptionsAreNamedInOneLine) {
    const std::pair<std::string, std::string> cases[] = {
        {"--model ResNet5",
         "--model: there is no network 'ResNet5'; there are: ResNet50, ResNet50v1.5, VGG19, DenseNet121, "
         "ResNet20, ResNet56"},
        {"--image-size 31",
         "--image-size: ResNet50: the image size must be 32 or more, and at most 16384, got 31"},
        {"--classes 1", "--classes: ResNet50: the classes must be 2 or more, and at most 16777216, got 1"},
        {"--width 7", "--width: ResNet50: the width must be even, got 7"},
        {"--batch-size 0", "--batch-size must be 1 or more, and at most 2147483647, got 0"},
        {"--num-warmup-batches 0", "--num-warmup-batches must be 1 or more, and at most 2147483647, got 0"},
        {"--num-batches-per-iter -1",
         "--num-batches-per-iter must be 1 or more, and at most 2147483647, got -1"},
        {"--num-iters 0", "--num-iters must be 1 or more, and at most 2147483647, got 0"},
        {"--num-iters 3000000000", "--num-iters must be 1 or more, and at most 2147483647, got 3000000000"},
        {"--policy bf16 --mixed-prec", "--policy bf16 says the precision; leave out --mixed-prec"},
        {"--policy bf16 --disable-tf32", "--policy bf16 says the precision; leave out --disable-tf32"},
        {"--compare --mixed-prec", "--compare runs every precision; leave out --mixed-prec"},
        {"--compare --policy fp32", "--compare runs every precision; leave out --policy"}};
    for (const auto& [given, expected] : cases) {
        const Ran ran = run("bench " + given);
        EXPECT_EQ(ran.status, 2) << ran.output;
        EXPECT_EQ(last_line(ran.output), "mantissa: " + expected) << given;
    }
}

TEST(BenchCommand, ABatchThatDoesNotFitTheMemoryIsRefusedBeforeItIsTaken) {
    const Ran ran = run("bench --batch-size 1000000 --policy bf16 --quiet");
    EXPECT_EQ(ran.status, 2) << ran.output;
    const std::string line = last_line(ran.output);
    EXPECT_TRUE(line.starts_with("mantissa: --batch-size 1000000: a step of ResNet50 in bf16 needs "))
        << line;
    EXPECT_TRUE(line.ends_with(" GB are available; give fewer, or a smaller --image-size or --width"))
        << line;
}

}  // namespace
}  // namespace mantissa
