// Code for the host that is kept in a folder: the next compiler takes it, if it is what it would make.
#include <gtest/gtest.h>

#include <array>
#include <fstream>

#include "mantissa/base/file.h"
#include "mantissa/codegen/compiler.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/tensor.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

namespace fs = std::filesystem;

/// x + addend.
Graph addition(double addend) {
    Graph body;
    const Tensor x(body, body.add_input("x", {DType::f32, {64}}));
    body.add_result("y", (x + addend).value());
    return body;
}

/// How many of the two kernels the folder had, which must give 1 + 2 and 1 + 3.
std::int64_t found_in(const fs::path& folder, const codegen::HostFeatures& features = {}) {
    ThreadPool pool(2);
    codegen::Compiler compiler(features, codegen::KernelFolder(folder));
    const auto by_two = compiler.add(addition(2)), by_three = compiler.add(addition(3));
    compiler.compile_pending(pool);
    for (const auto& [kernel, wanted] : {std::pair(by_two, 3.0f), std::pair(by_three, 4.0f)}) {
        const std::array<float, 3> x{1, 1, 1};
        std::array<float, 3> y{};
        const auto* from = reinterpret_cast<const std::byte*>(x.data());
        auto* to = reinterpret_cast<std::byte*>(y.data());
        const codegen::FusedArguments arguments{.inputs = &from, .outputs = &to, .first = 0, .last = 3};
        kernel->function(&arguments);
        EXPECT_EQ(y, (std::array{wanted, wanted, wanted}));
    }
    return compiler.found();
}

std::vector<fs::path> files_in(const fs::path& folder) {
    std::vector<fs::path> files;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder))
        if (entry.is_regular_file()) files.push_back(entry.path());
    return files;
}

class KeptKernels : public ::testing::Test {
  protected:
    void SetUp() override {
        if (const std::string reason = codegen::Compiler::refusal(); !reason.empty()) GTEST_SKIP() << reason;
        EXPECT_EQ(found_in(directory.path()), 0);
        files = files_in(directory.path());
        ASSERT_EQ(files.size(), 2U);
    }

    void put(const fs::path& file, const std::string& text) const {
        std::ofstream(file, std::ios::trunc | std::ios::binary) << text;
    }

    TemporaryDirectory directory;
    std::vector<fs::path> files;
};

TEST_F(KeptKernels, AreTakenByTheNextCompiler) {
    EXPECT_EQ(found_in(directory.path()), 2);
    EXPECT_EQ(files_in(directory.path()).size(), 2U);
}

TEST_F(KeptKernels, DamagedFilesAreMadeAgain) {
    const std::string whole = read_file(files[0]);
    std::string flipped = whole;
    flipped[whole.size() / 2] = static_cast<char>(flipped[whole.size() / 2] ^ 1);
    for (const std::string& damaged : {std::string(), whole.substr(0, 40), whole.substr(0, whole.size() - 1),
                                       flipped, read_file(files[1])}) {
        put(files[0], damaged);
        EXPECT_EQ(found_in(directory.path()), 1) << damaged.size() << " bytes";
        EXPECT_EQ(read_file(files[0]), whole) << "made again";
    }
}

TEST_F(KeptKernels, AreNotTakenForOtherInstructions) {
    EXPECT_EQ(found_in(directory.path(), {.level = "sse4", .bits = {"sse4.1"}}), 0);
    EXPECT_EQ(found_in(directory.path()), 2);
}

TEST(KeptKernelsNowhere, WithoutAFolderNothingIsKept) {
    if (const std::string reason = codegen::Compiler::refusal(); !reason.empty()) GTEST_SKIP() << reason;
    EXPECT_EQ(found_in({}), 0);
    EXPECT_EQ(found_in({}), 0);
}

}  // namespace
}  // namespace mantissa
