// Arrays that NumPy wrote (bench/peers/npy_fixture.py), as values of an input.
#include "mantissa/data/own_data.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "tests/support/error_of.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

const std::string npy_files = MANTISSA_SOURCE_DIR "/tests/fixtures/npy/";

/// The numbers that the script wrote: i - 2, halved.
std::vector<float> halves() {
    std::vector<float> values;
    for (int i = 0; i < 12; ++i) values.push_back(0.5f * static_cast<float>(i - 2));
    return values;
}

std::string refusal_of_npy(const std::string& name) {
    const std::string said = testing::error_of([&] { NpyFile{npy_files + name}; });
    return said.starts_with(npy_files + name) ? said.substr((npy_files + name).size()) : said;
}

TEST(NpyFileOfNumPy, EachVersionHoldsTheSame) {
    for (const char* const name : {"f4.npy", "f4_version2.npy", "f4_version3.npy", "f8.npy"}) {
        const NpyFile file(npy_files + name);
        EXPECT_EQ(file.shape(), (std::vector<std::int64_t>{3, 4})) << name;
        EXPECT_EQ(file.numbers<float>(), halves()) << name;
    }
    EXPECT_EQ(NpyFile(npy_files + "f4.npy").dtype(), DType::f32);
    EXPECT_EQ(NpyFile(npy_files + "f8.npy").dtype(), DType::f64);
}

TEST(NpyFileOfNumPy, WholeNumbersBecomeEachOther) {
    const std::vector<std::int32_t> expected = {-2, -1, 0, 1, 2};
    const NpyFile labels(npy_files + "i8_of_one_axis.npy");
    EXPECT_EQ(labels.shape(), std::vector<std::int64_t>{5});
    EXPECT_EQ(labels.numbers<std::int32_t>(), expected);
    EXPECT_EQ(NpyFile(npy_files + "i4.npy").numbers<std::int64_t>()[11], 9);
    EXPECT_EQ(NpyFile(npy_files + "u1.npy").numbers<std::int32_t>(),
              (std::vector<std::int32_t>{250, 251, 252, 253, 254, 255, 0, 1, 2, 3, 4, 5}));
    EXPECT_EQ(NpyFile(npy_files + "u1.npy").numbers<float>()[0], 250);
}

TEST(NpyFileOfNumPy, AnInputTakesThemAsTheyAre) {
    const NpyFile file(npy_files + "i4.npy");
    const HostValues values = file;
    EXPECT_EQ(values.dtype, DType::i32);
    ASSERT_EQ(values.bytes.size(), 48u);
    std::int32_t last = 0;
    std::memcpy(&last, values.bytes.data() + 44, 4);
    EXPECT_EQ(last, 9);
}

TEST(NpyFileOfNumPy, SaysWhatAModelTakesOfIt) {
    const nn::InputSpec input = NpyFile(npy_files + "f8.npy").input("x");
    EXPECT_EQ(input.name, "x");
    EXPECT_EQ(input.type(3).text(), "f64[3, 4]");
    EXPECT_EQ(NpyFile(npy_files + "i8_of_one_axis.npy").input("y").type(5).text(), "i64[5]");
    const TemporaryDirectory directory;
    const std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (), }  \n";
    std::ofstream(directory.path() / "one.npy", std::ios::binary)
        << std::string("\x93NUMPY\x01\0", 8) << static_cast<char>(header.size()) << '\0' << header
        << std::string(4, '\0');
    EXPECT_EQ(testing::error_of([&] { NpyFile(directory.path() / "one.npy").input("x"); }),
              (directory.path() / "one.npy").string() + ": holds one number; expected an array of examples");
    EXPECT_EQ(nn::numbers("x", {2, 3}).type(5).text(), "f32[5, 2, 3]");
    EXPECT_EQ(nn::ids("y").type(5).text(), "i32[5]");
    EXPECT_EQ(nn::numbers("edges", {2, 2}, nn::BatchAxis::none).type(5).text(), "f32[2, 2]");
}

TEST(NpyFileOfNumPy, WhatIsLostIsAnError) {
    EXPECT_EQ(testing::error_of([] { NpyFile(npy_files + "i8_large.npy").numbers<std::int32_t>(); }),
              npy_files + "i8_large.npy: element 1 is 2147483648, which i32 cannot hold");
    EXPECT_EQ(testing::error_of([] { NpyFile(npy_files + "i4.npy").numbers<std::uint8_t>(); }),
              npy_files + "i4.npy: element 0 is -2, which u8 cannot hold");
    EXPECT_EQ(testing::error_of([] { NpyFile(npy_files + "f8.npy").numbers<std::int32_t>(); }),
              npy_files + "f8.npy: element 1 is -0.5, which i32 cannot hold");
}

TEST(NpyFileOfNumPy, OtherArraysAreRefusedInWordsThatHelp) {
    EXPECT_EQ(refusal_of_npy("f2.npy"),
              ": holds numbers of type f2; expected f4, f8, i4, i8 or u1: save it with another, as "
              "x.astype(numpy.float32)");
    EXPECT_EQ(refusal_of_npy("f4_fortran.npy"),
              ": is in Fortran's order, the first axis innermost; save it as numpy.ascontiguousarray(x)");
    EXPECT_NE(refusal_of_npy("f4_big_endian.npy").find("expected little-endian numbers"), std::string::npos);
    EXPECT_EQ(refusal_of_npy("none.npy"), ": cannot open: No such file or directory");
}

}  // namespace
}  // namespace mantissa
