// The program as a user meets it: what it says to wrong input, and whether it keeps to the memory that it
// announces.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

struct Ran {
    int status = -1;
    std::string output;  ///< standard output and standard error
};

/// Runs `mantissa ARGUMENTS` in a shell.
Ran run(const std::string& arguments) {
    const std::string command = std::string(MANTISSA_BINARY_DIR "/mantissa ") + arguments + " 2>&1";
    std::FILE* pipe = ::popen(command.c_str(), "r");
    Ran ran;
    std::array<char, 4096> buffer;
    while (const std::size_t got = std::fread(buffer.data(), 1, buffer.size(), pipe))
        ran.output.append(buffer.data(), got);
    const int status = ::pclose(pipe);
    ran.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return ran;
}

/// The last line of what was printed.
std::string last_line(const std::string& output) {
    const std::string text = output.substr(0, output.find_last_not_of('\n') + 1);
    return text.substr(text.rfind('\n') + 1);
}

struct BadInput {
    const char* arguments;
    int status;
    const char* says;  ///< part of its one line
};

TEST(Commands, BadInputGetsOneClearLine) {
    const TemporaryDirectory directory;
    const std::string empty = (directory.path() / "empty.txt").string();
    const std::string binary = (directory.path() / "binary.bin").string();
    std::ofstream{empty};
    std::ofstream(binary) << std::string(5000, '\0');
    const BadInput inputs[] = {
        {"ladder --rungs fp31", 1, "there is no rung 'fp31'; there are: fp32"},
        {"ladder --model gpt3", 1, "there is no model 'gpt3'; there are gpt2-tiny"},
        {"ladder --batch 0", 1, "--batch must be 1 or more, got 0"},
        {"ladder --batch -3", 1, "--batch must be 1 or more, got -3"},
        {"ladder --batch 100000000", 1, "100000000"},
        {"ladder --batch 100000000000000000000", 1, "--batch and --sequence must be at most 2147483647"},
        {"ladder --model gpt2-tiny --sequence 300", 1,
         "gpt2-tiny has a context of 256 tokens, a sequence of 300 does not fit"},
        {"ladder --steps 0", 1, "--steps must be 1 or more, got 0"},
        {"ladder --frobnicate", 2, "--frobnicate"},
        {"ladder --device tpu", 1, "--device tpu: this build has cpu only"},
        {"ladder --text /no/such/file.txt", 1, "/no/such/file.txt"},
        {"ladder --skip-pass differentiate", 1, "there is no optional pass 'differentiate'"},
        {"train --threads -1", 1, "threads"},
        {"train --learning-rate -1", 1, "--learning-rate must be 0 or more, got -1"},
        {"train --betas 0.9 1.5", 1, "betas must lie in [0, 1), got 1.5"},
        {"frobnicate", 2, "there is no command 'frobnicate'; there are: ladder, train, explain, tokenize"},
        {"", 2, "subcommand"},
    };
    for (const BadInput& input : inputs) {
        const Ran ran = run(input.arguments);
        EXPECT_EQ(ran.status, input.status) << input.arguments << ": " << ran.output;
        EXPECT_NE(ran.output.find(input.says), std::string::npos) << input.arguments << ": " << ran.output;
        if (input.status == 1) {
            EXPECT_EQ(last_line(ran.output).rfind("mantissa: ", 0), 0u) << ran.output;
        }
    }
    EXPECT_NE(run("train --text " + empty).output.find("empty.txt"), std::string::npos);
    EXPECT_NE(run("train --text " + binary).output.find("binary.bin"), std::string::npos);
    EXPECT_NE(run("train --text " + empty + " --tokens " + empty).output.find("use --text or --tokens"),
              std::string::npos);
}

TEST(Commands, AForcedInstructionSetIsTakenOrRefused) {
    const Ran bad =
        run("train --steps 1; MANTISSA_ISA=avx9000 " MANTISSA_BINARY_DIR "/mantissa train --steps 1");
    EXPECT_EQ(bad.status, 1);
    EXPECT_NE(last_line(bad.output).find("avx9000"), std::string::npos) << bad.output;
}

TEST(Commands, LadderPrintsItsTableAndWritesItsJson) {
    const TemporaryDirectory directory;
    const std::string file = (directory.path() / "ladder.json").string();
    const Ran ran =
        run("ladder --model gpt2-tiny --batch 1 --sequence 64 --steps 8 --repeats 3 --json " + file);
    ASSERT_EQ(ran.status, 0) << ran.output;
    for (const char* part :
         {"common-licenses", "rung", "fp32", "tokens/s", "kernels of matmul", "memory planned"})
        EXPECT_NE(ran.output.find(part), std::string::npos) << part << " is missing in\n" << ran.output;
    const auto json = nlohmann::json::parse(std::ifstream(file));
    EXPECT_EQ(json["command"], "ladder");
    EXPECT_EQ(json["model"]["parameters"], 891648);
    EXPECT_GT(json["machine"]["peaks"]["f32_fma_tflops"].get<double>(), 0);
    ASSERT_EQ(json["rungs"].size(), 2u);
    EXPECT_EQ(json["rungs"][0]["name"], "fp32");
    EXPECT_EQ(json["rungs"][1]["name"], "bf16");
    for (const auto& rung : json["rungs"]) {
        EXPECT_EQ(rung["losses"].size(), 8u);
        EXPECT_LT(rung["losses"].back(), rung["losses"].front());
        EXPECT_EQ(rung["kernels"]["matmul"].size(), 1u);
        for (const char* member : {"ms_per_step", "ms_mad", "tokens_per_second", "speedup", "step_speedup",
                                   "mfu", "share_of_unit_peak", "peak_bytes", "build_ms"})
            EXPECT_TRUE(rung[member].is_number()) << member;
    }
    EXPECT_NE(json["rungs"][0]["losses"], json["rungs"][1]["losses"]);
}

/// The number of megabytes after `label`.
double megabytes_after(const std::string& output, const std::string& label) {
    const std::size_t at = output.find(label);
    EXPECT_NE(at, std::string::npos) << label << " is missing in\n" << output;
    return at == std::string::npos ? 0 : std::stod(output.substr(at + label.size()));
}

TEST(Commands, ResidentMemoryIsWithinFivePercentOfThePlan) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "sanitizers hold memory of their own";
#endif
    const Ran ran = run("train --steps 2");
    ASSERT_EQ(ran.status, 0) << ran.output;
    const double planned = megabytes_after(ran.output, "memory planned: ");
    const double measured = megabytes_after(ran.output, "memory at most: ");
    EXPECT_LE(std::abs(measured - planned), 0.05 * planned) << ran.output;
}

}  // namespace
}  // namespace mantissa
