// --device cuda as a user meets it: what it says where there is no GPU, and a run on the emulated one.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>

#include "tests/cli/run_program.h"
#include "tests/support/compiling_test.h"
#include "tests/support/random_draws.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

using testing::Ran;
using testing::run;
using testing::with_emulated_gpu;

constexpr const char* small_model =
    "--device cuda --layers 1 --heads 2 --channels 32 --batch 1 --sequence 16 --steps 2 --quiet";

/// A small training on an emulated GPU.
Ran train_on_gpu(const std::string& gpu) {
    return testing::run_in_shell(with_emulated_gpu(gpu) + "train " + small_model);
}

class CudaCommands : public testing::CompilingTest {};

TEST_F(CudaCommands, WithoutADriverIsOneLine) {
    if (dlopen("libcuda.so.1", RTLD_NOW)) GTEST_SKIP() << "a GPU is here";
    for (const std::string command : {"train ", "ladder ", "explain --batch 1 "}) {
        const Ran ran = run(command + "--device cuda");
        EXPECT_EQ(ran.status, 1) << command;
        EXPECT_EQ(
            ran.output,
            "mantissa: there is no NVIDIA driver here (libcuda.so.1 cannot be loaded), for --device cuda\n");
    }
}

TEST_F(CudaCommands, TrainsOnTheEmulatedGpuAndSaysSo) {
    const Ran ran = train_on_gpu("sm_80");
    EXPECT_EQ(ran.status, 0) << ran.output;
    EXPECT_NE(ran.output.find("bf16 (chosen for this machine; see --policy), emulated GPU sm_80 (as A100), "
                              "sm_80, NVIDIA driver of CUDA 12.8, 108 multiprocessors"),
              std::string::npos)
        << ran.output;
}

/// One after the other, as a user would: micro-batches and validation, a text from the checkpoint, numbers.
TEST_F(CudaCommands, ValidatesGeneratesAndCountsNumbersOnTheEmulatedGpu) {
    const TemporaryDirectory directory;
    const std::string on_gpu = with_emulated_gpu("sm_80"),
                      checkpoint = " --checkpoint " + (directory.path() / "run").string();
    const Ran train = testing::run_in_shell(on_gpu + "train " + small_model + checkpoint +
                                            " --accumulate 2 --validate-every 1 --validate-batches 2");
    EXPECT_EQ(train.status, 0) << train.output;
    EXPECT_NE(train.output.find("over 2 batches"), std::string::npos) << train.output;
    const Ran text =
        testing::run_in_shell(on_gpu + "generate --device cuda --length 8 --prompt The" + checkpoint);
    EXPECT_EQ(text.status, 0) << text.output;
    EXPECT_NE(text.output.find("emulated GPU sm_80 (as A100), sm_80, NVIDIA driver"), std::string::npos)
        << text.output;
    EXPECT_NE(text.output.find("bf16: 8 tokens at "), std::string::npos) << text.output;
    const std::string validation = (directory / "validation").string();
    std::ofstream(validation) << "the cat sat on the mat and looked at the rain";
    for (const std::string& policy : testing::some_of<std::string>({"int4", "int8"}, 2)) {
        const Ran quantised =
            testing::run_in_shell(on_gpu + "generate --device cuda --length 4 --prompt The --policy " +
                                  policy + checkpoint + " --validation " + validation);
        EXPECT_EQ(quantised.status, 0) << quantised.output;
        for (const std::string& words :
             {policy + ": 4 tokens at ", " under " + policy, std::string(" under bf16")})
            EXPECT_NE(quantised.output.find(words), std::string::npos) << quantised.output;
    }
    const Ran numbers = testing::run_in_shell(on_gpu + "numerics " + small_model);
    EXPECT_EQ(numbers.status, 0) << numbers.output;
    EXPECT_NE(numbers.output.find("<- choose this"), std::string::npos) << numbers.output;
}

TEST_F(CudaCommands, TrainsAndExplainsBelowSixteenBitsOnTheEmulatedGpu) {
    const std::string on_gpu = with_emulated_gpu("sm_90");
    const Ran train = testing::run_in_shell(on_gpu + "train --policy nvfp4 " + small_model);
    EXPECT_EQ(train.status, 0) << train.output;
    const Ran explain = testing::run_in_shell(
        on_gpu +
        "explain --device cuda --policy fp8 --layers 1 --heads 2 --channels 32 --batch 1 --sequence 16");
    EXPECT_EQ(explain.status, 0) << explain.output;
    for (const char* words :
         {"fp8*fp8+f32", "fp8: e4m3, one scale for the tensor", "fp8: e5m2, one scale for the tensor"})
        EXPECT_NE(explain.output.find(words), std::string::npos) << explain.output;
    // An A100 multiplies no FP8, an H100 no blocks of MXFP8.
    for (const auto& [options, words] : {std::pair{"h100 --policy mxfp8", "round blocks sm_90"},
                                         {"h100 --policy fp8", "cublasLt fp8*fp8+f32 tensor cores"},
                                         {"a100 --policy fp8", "cublasLt bf16*bf16+f32 tensor cores"}}) {
        const Ran paper = run(std::string("explain --roofline --model gpt2-tiny --batch 1 --for ") + options);
        EXPECT_EQ(paper.status, 0) << paper.output;
        EXPECT_NE(paper.output.find(words), std::string::npos) << paper.output;
    }
}

/// The second run takes the first one's kernels.
TEST_F(CudaCommands, KernelsAreKeptInTheCacheFolder) {
    const TemporaryDirectory directory;
    const auto train = [&] {
        const Ran ran = testing::run_in_shell("XDG_CACHE_HOME=" + directory.path().string() + " " +
                                              with_emulated_gpu("sm_80") + "train " + small_model);
        EXPECT_EQ(ran.status, 0) << ran.output;
    };
    const auto kept = [&] {
        std::map<std::string, std::filesystem::file_time_type> files;
        for (const auto& entry :
             std::filesystem::recursive_directory_iterator(directory.path() / "mantissa/kernels"))
            if (entry.is_regular_file()) files[entry.path().string()] = entry.last_write_time();
        return files;
    };
    train();
    const auto files = kept();
    EXPECT_GT(files.size(), 20U);
    EXPECT_FALSE(std::filesystem::exists(directory.path() / "mantissa/algorithms"))
        << "an emulated GPU's times mean nothing";
    train();
    EXPECT_TRUE(kept() == files) << "nothing was written again";
}

/// The states of gpt2-tiny alone take 10.7 MB.
TEST_F(CudaCommands, MemoryThatIsTooSmallIsRefusedWithWhatFits) {
    const Ran ran = testing::run_in_shell(with_emulated_gpu("sm_80,memory=8M") +
                                          "train --device cuda --batch 1 --sequence 16 --steps 1");
    EXPECT_EQ(ran.status, 1);
    EXPECT_NE(ran.output.find("GB are available; use a smaller --batch"), std::string::npos) << ran.output;
}

TEST_F(CudaCommands, PeaksAreThoseOfTheMatrixUnits) {
    const Ran ran = testing::run_in_shell(with_emulated_gpu("sm_80") + "peaks --device cuda");
    EXPECT_EQ(ran.status, 0) << ran.output;
    // 108 multiprocessors at 1.41 GHz: NVIDIA's 312 TFLOP/s.
    for (const char* const words : {"bf16", "f64", "s8", "311.", "mma.sync"})
        EXPECT_NE(ran.output.find(words), std::string::npos) << ran.output;
}

/// The number before a word of the line that begins so.
double number_before(const std::string& text, const std::string& line, const std::string& word) {
    const std::size_t at = text.find(word, text.find(line));
    EXPECT_NE(at, std::string::npos) << text;
    const std::size_t begin = text.find_last_of(" (", at - 2) + 1;
    return std::stod(text.substr(begin));
}

/// The estimate at 16 x 1,024: 20 ms by the data sheet, 24 by measured rates.
TEST_F(CudaCommands, ThePlanOnPaperIsQuickEnoughForAnH200) {
    const Ran ran = run("explain --roofline --for h200 --policy bf16 --batch 16 --sequence 1024");
    EXPECT_EQ(ran.status, 0) << ran.output;
    const double sheet = number_before(ran.output, "the step:", "ms (");
    EXPECT_LT(sheet, 20) << ran.output;
    EXPECT_LT(number_before(ran.output, "the step:", "ms by measured rates"), 24) << ran.output;
    // A layer has some 30 kernels; parameters have none of their own.
    EXPECT_LT(number_before(ran.output, "the step:", "launches"), 416) << ran.output;
    EXPECT_LT(number_before(ran.output, "its products, attention and update alone", "ms ("), sheet);
    EXPECT_EQ(run("explain --for h200").output,
              "mantissa: --for is for the roofline of a GPU: it needs --roofline\n");
}

TEST_F(CudaCommands, RanksArePredictedFromTheCpusPlan) {
    const Ran ran = run("explain --ranks 4 --link 10 --device cuda");
    EXPECT_EQ(ran.status, 2);
    EXPECT_EQ(
        ran.output,
        "mantissa: --device: a step among ranks is predicted from the CPU's plan, with --on at the published "
        "peaks of an accelerator: leave it out\n");
}

TEST_F(CudaCommands, ADriverThatDoesNotStartSaysWhy) {
    const Ran ran = train_on_gpu("sm_1");
    EXPECT_EQ(ran.status, 1);
    EXPECT_NE(ran.output.find("the NVIDIA driver does not start: CUDA_ERROR_INVALID_VALUE (1): EMULATED_GPU "
                              "is 'sm_1': the architecture 'sm_1' is not known"),
              std::string::npos)
        << ran.output;
}

TEST_F(CudaCommands, ADriverErrorIsToldInItsWords) {
    const Ran ran = train_on_gpu("sm_80,fail=cuGraphLaunch:2");
    EXPECT_EQ(ran.status, 1);
    EXPECT_NE(
        ran.output.find("CUDA_ERROR_LAUNCH_FAILED (719): unspecified launch failure; planted: call 2 of "
                        "cuGraphLaunch"),
        std::string::npos)
        << ran.output;
}

}  // namespace
}  // namespace mantissa
