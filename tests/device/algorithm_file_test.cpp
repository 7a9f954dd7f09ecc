// Algorithms that are kept from one run to the next: found as they were kept, or not at all.
#include "mantissa/device/cuda/kernels/product_algorithms.h"

#include <gtest/gtest.h>

#include <fstream>

#include "mantissa/base/file.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

namespace fs = std::filesystem;
using cuda::MatmulAlgorithm;
using on_cuda::AlgorithmFile;

constexpr MatmulAlgorithm one{{1, 2, 3, 4, 5, 6, 7, ~std::uint64_t{0}}}, other{{8, 9}};

TEST(AlgorithmFile, FindsWhatItKeptAndNothingElse) {
    const TemporaryDirectory directory;
    const fs::path place = directory.path() / "not there yet" / "algorithms";
    AlgorithmFile(place).keep({{"a x b", one}, {"c x d", other}});
    const AlgorithmFile file(place);
    EXPECT_EQ(file.find("a x b"), one);
    EXPECT_EQ(file.find("c x d"), other);
    EXPECT_EQ(file.find("a x"), std::nullopt);
    EXPECT_EQ(file.find("b x c"), std::nullopt);
}

TEST(AlgorithmFile, WhatAnotherRunAddedMeanwhileStays) {
    const TemporaryDirectory directory;
    const fs::path place = directory / "algorithms";
    AlgorithmFile(place).keep({{"old", one}});
    AlgorithmFile ours(place);
    AlgorithmFile(place).keep({{"a x b", other}, {"c x d", other}});
    ours.keep({{"a x b", one}, {"old", other}, {"e x f", one}});
    const AlgorithmFile file(place);
    EXPECT_EQ(file.find("a x b"), other) << "theirs came first";
    EXPECT_EQ(file.find("c x d"), other);
    EXPECT_EQ(file.find("old"), other) << "what was found and did not serve is replaced";
    EXPECT_EQ(file.find("e x f"), one);
}

TEST(AlgorithmFile, DamageIsAsIfItWereNotThere) {
    const TemporaryDirectory directory;
    const fs::path place = directory / "algorithms";
    AlgorithmFile(place).keep({{"a x b", one}, {"c x d", other}});
    const std::string whole = read_file(place);
    const auto found_in = [&](const std::string& text) {
        std::ofstream(place, std::ios::trunc) << text;
        const AlgorithmFile file(place);
        return file.find("a x b") || file.find("c x d");
    };
    for (std::size_t i = 0; i < whole.size(); ++i) {
        std::string damaged = whole;
        damaged[i] = static_cast<char>(damaged[i] ^ 1);
        EXPECT_FALSE(found_in(damaged)) << "byte " << i;
        EXPECT_FALSE(found_in(whole.substr(0, i))) << "cut to " << i << " bytes";
    }
    EXPECT_FALSE(found_in(whole + "x"));
    AlgorithmFile(place).keep({{"a x b", one}});
    EXPECT_EQ(AlgorithmFile(place).find("a x b"), one) << "made again";
    EXPECT_TRUE(found_in(whole));
}

TEST(AlgorithmFile, WithoutAPlaceNothingIsKept) {
    for (const char* const place : {"", "/proc/algorithms"}) {
        AlgorithmFile(place).keep({{"a x b", one}});
        EXPECT_EQ(AlgorithmFile(place).find("a x b"), std::nullopt);
    }
}

}  // namespace
}  // namespace mantissa
