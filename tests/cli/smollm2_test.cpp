// SmolLM2's kind by the commands: a LLaMA whose tokenizer cuts digits apart, as transformers saves it. The
// fixture is made by bench/peers/smollm2_fixture.py.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "mantissa/base/file.h"
#include "tests/cli/run_program.h"
#include "tests/cli/written_files.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

TEST(SmolLm2, AFolderOfTransformersIsPredictedAndContinuedAlike) {
    const std::string folder = std::string(MANTISSA_SOURCE_DIR) + "/tests/fixtures/smollm2";
    const auto expected = nlohmann::json::parse(read_file(folder + "/expected.json"));
    const TemporaryDirectory directory;
    const std::string text = directory / "text.txt", report_path = directory / "report.json";
    std::ofstream(text) << expected["text"].get<std::string>();
    const auto ids = expected["ids"].get<std::vector<int>>();
    const auto prompt_tokens = expected["prompt_tokens"].get<std::size_t>();
    const testing::Ran ran = testing::run(
        "generate --checkpoint " + folder + " --policy fp32 --temperature 0 --full-context end --prompt \"" +
        expected["prompt"].get<std::string>() + "\" --length " + std::to_string(ids.size() - prompt_tokens) +
        " --validation " + text + " --json " + report_path);
    ASSERT_EQ(ran.status, 0) << ran.output;
    const auto report = nlohmann::json::parse(read_file(report_path));
    EXPECT_EQ(report["prompt_tokens"].get<std::size_t>(), prompt_tokens);
    EXPECT_EQ(report["tokens"].get<std::vector<int>>(),
              std::vector<int>(ids.begin() + static_cast<std::ptrdiff_t>(prompt_tokens), ids.end()));
    const auto& validation = report["validation"][0];
    EXPECT_EQ(validation["tokens"], expected["predicted"]);
    EXPECT_NEAR(std::log(validation["perplexity"].get<double>()), expected["loss"].get<double>(), 1e-5);
}

}  // namespace
}  // namespace mantissa
