// Text that is compared to the letter with a file beside the tests.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace mantissa::testing {

/// Fails if a file of tests/codegen/ has another text, with the command that takes the new one over.
inline void expect_text_of(const std::string& file, const std::string& found) {
    const auto golden = std::filesystem::path(MANTISSA_SOURCE_DIR) / "tests/codegen" / file;
    std::ostringstream expected;
    expected << std::ifstream(golden).rdbuf();
    if (found == expected.str()) return;
    const auto written = std::filesystem::path(MANTISSA_BINARY_DIR) / file;
    std::ofstream(written) << found;
    ADD_FAILURE() << "kernels changed; if that was meant: cp " << written << " " << golden;
}

}  // namespace mantissa::testing
