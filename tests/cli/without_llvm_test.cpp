// The program of a build without LLVM: everything but the rungs that compile works, and says what is missing.
#include <gtest/gtest.h>

#include <filesystem>

#include "mantissa/codegen/compiler.h"
#include "tests/cli/run_program.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

using testing::last_line;
using testing::Ran;

/// Where this build has LLVM, the program beside it that was linked without.
Ran run(const std::string& arguments) {
    const std::string program =
        codegen::Compiler::refusal().empty() ? "/mantissa_without_llvm " : "/mantissa ";
    return testing::run_in_shell(MANTISSA_BINARY_DIR + program + arguments);
}

const std::string reason =
    "this build has no compiler for fused kernels; build with -DMANTISSA_LLVM=ON and LLVM 19 installed";
const std::string small = " --model gpt2-tiny --batch 1 --sequence 16 ";

TEST(WithoutLlvm, TheLadderLeavesOutTheRungsThatCompileAndSaysSo) {
    const Ran ran = run("ladder --steps 2 --repeats 1" + small);
    ASSERT_EQ(ran.status, 0) << ran.output;
    EXPECT_NE(ran.output.find("without the rungs from compiled on: " + reason + "\n"), std::string::npos)
        << ran.output;
    EXPECT_NE(ran.output.find("\nbf16 "), std::string::npos) << ran.output;
    for (const char* rung : {"\ncompiled ", "\nflash ", "\nnice ", "\nloss "})
        EXPECT_EQ(ran.output.find(rung), std::string::npos) << ran.output;
}

TEST(WithoutLlvm, ARungThatCompilesIsRefused) {
    for (const char* rung : {"compiled", "flash", "nice", "loss"}) {
        const Ran ran = run("ladder --steps 2 --repeats 1 --rungs " + std::string(rung) + small);
        EXPECT_EQ(ran.status, 1) << ran.output;
        EXPECT_NE(last_line(ran.output).find(reason), std::string::npos) << ran.output;
    }
}

TEST(WithoutLlvm, TrainsAndGenerates) {
    const TemporaryDirectory directory;
    const std::string checkpoint = (directory.path() / "ckpt").string();
    const Ran trained = run("train --steps 2 --checkpoint " + checkpoint + small);
    ASSERT_EQ(trained.status, 0) << trained.output;
    EXPECT_NE(trained.output.find("without fused kernels: " + reason + "\n"), std::string::npos)
        << trained.output;
    const Ran generated = run("generate --prompt Once --length 4 --checkpoint " + checkpoint);
    EXPECT_EQ(generated.status, 0) << generated.output;
    for (const std::string& what :
         {std::string("--passes fuse"), "--dump-target sm_80 --dump " + directory.path().string()}) {
        const Ran refused = run("train --steps 1 " + what + small);
        EXPECT_EQ(refused.status, what.starts_with("--dump-target") ? 2 : 1) << refused.output;
        EXPECT_NE(last_line(refused.output).find(reason), std::string::npos) << refused.output;
    }
}

TEST(WithoutLlvm, Explains) {
    const Ran plain = run("explain --passes simplify" + small), all = run("explain --policy bf16" + small);
    EXPECT_EQ(plain.status, 0) << plain.output;
    EXPECT_EQ(plain.output.find(reason), std::string::npos) << plain.output;
    EXPECT_EQ(all.status, 0) << all.output;
    EXPECT_NE(all.output.find("\npasses: match_attention, chunk_loss, simplify, pad, lay_out\n"),
              std::string::npos)
        << all.output;
    EXPECT_NE(all.output.find("without fused kernels: " + reason + "\n"), std::string::npos) << all.output;
    const Ran fused = run("explain --passes fuse" + small);
    EXPECT_EQ(fused.status, 1) << fused.output;
    EXPECT_NE(last_line(fused.output).find(reason), std::string::npos) << fused.output;
}

}  // namespace
}  // namespace mantissa
