// The program of a build without LLVM, libjpeg and libpng: everything but the rungs that compile and what
// reads such images works, and says what is missing.
#include <gtest/gtest.h>

#include <filesystem>

#include "mantissa/codegen/compiler.h"
#include "tests/cli/run_program.h"
#include "tests/support/image_files.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

using testing::last_line;
using testing::Ran;

/// Where this build has LLVM, the program beside it that was linked without.
Ran run_without_llvm(const std::string& arguments) {
    const std::string program =
        codegen::Compiler::refusal().empty() ? "/mantissa_without_llvm " : "/mantissa ";
    return testing::run_in_shell(MANTISSA_BINARY_DIR + program + arguments);
}

const std::string reason =
    "this build has no compiler for its kernels, so a step takes many times as long; build with "
    "-DMANTISSA_LLVM=ON and LLVM 19 installed";
const std::string gpt2_tiny = " --model gpt2-tiny --batch 1 --sequence 16 ";

TEST(WithoutLlvm, TheLadderLeavesOutTheRungsThatCompileAndSaysSo) {
    const Ran ran = run_without_llvm("ladder --steps 2 --repeats 1" + gpt2_tiny);
    ASSERT_EQ(ran.status, 0) << ran.output;
    EXPECT_NE(ran.output.find("without the rungs from compiled on: " + reason + "\n"), std::string::npos)
        << ran.output;
    EXPECT_NE(ran.output.find("\nbf16 "), std::string::npos) << ran.output;
    for (const char* rung : {"\ncompiled ", "\nflash ", "\nnice ", "\nloss "})
        EXPECT_EQ(ran.output.find(rung), std::string::npos) << ran.output;
}

TEST(WithoutLlvm, ARungThatCompilesIsRefused) {
    for (const char* rung : {"compiled", "flash", "nice", "loss"}) {
        const Ran ran =
            run_without_llvm("ladder --steps 2 --repeats 1 --rungs " + std::string(rung) + gpt2_tiny);
        EXPECT_EQ(ran.status, 1) << ran.output;
        EXPECT_NE(last_line(ran.output).find(reason), std::string::npos) << ran.output;
    }
}

TEST(WithoutLlvm, TrainsAndGenerates) {
    const TemporaryDirectory directory;
    const std::string checkpoint = (directory.path() / "ckpt").string();
    const Ran trained = run_without_llvm("train --steps 2 --checkpoint " + checkpoint + gpt2_tiny);
    ASSERT_EQ(trained.status, 0) << trained.output;
    EXPECT_NE(trained.output.find("without fused kernels: " + reason + "\n"), std::string::npos)
        << trained.output;
    const Ran generated = run_without_llvm("generate --prompt Once --length 4 --checkpoint " + checkpoint);
    EXPECT_EQ(generated.status, 0) << generated.output;
    for (const std::string& what :
         {std::string("--passes fuse"), "--dump-target sm_80 --dump " + directory.path().string()}) {
        const Ran refused = run_without_llvm("train --steps 1 " + what + gpt2_tiny);
        EXPECT_EQ(refused.status, what.starts_with("--dump-target") ? 2 : 1) << refused.output;
        EXPECT_NE(last_line(refused.output).find(reason), std::string::npos) << refused.output;
    }
}

TEST(WithoutLlvm, Explains) {
    const Ran plain = run_without_llvm("explain --passes simplify" + gpt2_tiny),
              all = run_without_llvm("explain --policy bf16" + gpt2_tiny);
    EXPECT_EQ(plain.status, 0) << plain.output;
    EXPECT_EQ(plain.output.find(reason), std::string::npos) << plain.output;
    EXPECT_EQ(all.status, 0) << all.output;
    EXPECT_NE(
        all.output.find("\npasses: match_attention, fuse_linear_cross_entropy, simplify, pad, lay_out\n"),
        std::string::npos)
        << all.output;
    EXPECT_NE(all.output.find("without fused kernels: " + reason + "\n"), std::string::npos) << all.output;
    const Ran fused = run_without_llvm("explain --passes fuse" + gpt2_tiny);
    EXPECT_EQ(fused.status, 1) << fused.output;
    EXPECT_NE(last_line(fused.output).find(reason), std::string::npos) << fused.output;
}

TEST(WithoutLlvm, ImagesThatNeedALibraryAreRefusedAndCifar10sAreNot) {
    if (!codegen::Compiler::refusal().empty()) GTEST_SKIP() << codegen::Compiler::refusal();
    const TemporaryDirectory directory;
    for (int i = 0; i < 4; ++i)
        testing::write_file(directory / "set" / (i < 2 ? "a" : "b") / (std::to_string(i) + ".png"),
                            testing::png_of(2, 2, testing::smooth_image(2, 2)));
    const std::string train = "train --model ResNet20 --width 2 --batch 2 --steps 1 --images ";
    const Ran png = run_without_llvm(train + (directory / "set").string());
    EXPECT_EQ(png.status, 1) << png.output;
    EXPECT_NE(
        last_line(png.output)
            .find(
                ".png: this build reads no PNG: libpng was missing when it was built (libpng-dev on Debian)"),
        std::string::npos)
        << png.output;
    testing::write_file(directory / "cifar" / "data_batch_1.bin",
                        testing::cifar_record(0, 0) + testing::cifar_record(1, 0));
    const Ran cifar = run_without_llvm(train + (directory / "cifar").string());
    EXPECT_EQ(cifar.status, 0) << cifar.output;
}

}  // namespace
}  // namespace mantissa
