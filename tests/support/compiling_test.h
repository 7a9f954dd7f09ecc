// Tests that need the compiler.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "mantissa/codegen/compiler.h"

namespace mantissa::testing {

/// Skips its tests where the build has no compiler.
class CompilingTest : public ::testing::Test {
  protected:
    void SetUp() override {
        if (std::string reason = codegen::Compiler::refusal(); !reason.empty()) GTEST_SKIP() << reason;
    }
};

}  // namespace mantissa::testing
