#include "mantissa/formats/npy.h"

#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/base/random.h"

namespace mantissa {
namespace {

std::string npy(const std::string& dictionary, std::size_t data, char major = 1) {
    std::string header = dictionary + "\n";
    std::string file = "\x93NUMPY" + std::string{major, '\0'};
    file.push_back(static_cast<char>(header.size()));
    file.push_back(static_cast<char>(header.size() >> 8));
    if (major > 1) file += std::string(2, '\0');
    return file + header + std::string(data, 'x');
}

NpyArray parsed(const std::string& file) { return parse_npy(std::as_bytes(std::span(file)), "t.npy"); }

std::string npy_verdict(const std::string& file) {
    const std::vector<char> exact(file.begin(), file.end());
    try {
        parse_npy(std::as_bytes(std::span(exact)), "t.npy");
    } catch (const UserError& error) {
        const std::string message = error.what();
        EXPECT_EQ(message.rfind("t.npy: ", 0), 0u) << message;
        return message.substr(7);
    }
    return "accepted";
}

const std::string good = "{'descr': '<u2', 'fortran_order': False, 'shape': (3,), }";

TEST(Npy, ReadsWhatNumPyWrites) {
    for (const char major : {char{1}, char{2}, char{3}}) {
        const std::string file = npy(good, 6, major);
        const NpyArray array = parsed(file);
        EXPECT_EQ(array.kind, 'u');
        EXPECT_EQ(array.item_size, 2u);
        EXPECT_FALSE(array.fortran_order);
        EXPECT_EQ(array.shape, std::vector<std::uint64_t>{3});
        EXPECT_EQ(array.count, 3u);
        EXPECT_EQ(array.data.size(), 6u);
    }
    // Keys in any order, no trailing comma, double quotes, more dimensions, none, or a 0.
    EXPECT_EQ(parsed(npy("{\"shape\":(2, 3), 'descr':'|u1','fortran_order':True}", 6)).shape.size(), 2u);
    EXPECT_TRUE(parsed(npy("{'shape':(2,3),'descr':'|u1','fortran_order':True}", 6)).fortran_order);
    EXPECT_EQ(parsed(npy("{'shape': (), 'descr': '<f8', 'fortran_order': False}", 8)).count, 1u);
    EXPECT_EQ(parsed(npy("{'shape': (4, 0,), 'descr': '<i4', 'fortran_order': False}", 0)).count, 0u);
}

TEST(Npy, RefusesWithTheReason) {
    EXPECT_EQ(npy_verdict("PK\3\4 not numpy"), "not a .npy file: does not begin with \\x93NUMPY");
    EXPECT_EQ(npy_verdict(""), "not a .npy file: does not begin with \\x93NUMPY");
    EXPECT_EQ(npy_verdict("\x93NUMPY"), ".npy header cut short");
    EXPECT_EQ(npy_verdict(npy(good, 6).substr(0, 40)), ".npy header cut short");
    EXPECT_EQ(npy_verdict(npy(good, 6, 4)), ".npy format version 4.0; 1.0, 2.0 and 3.0 can be read");
    EXPECT_EQ(npy_verdict(npy(good + std::string(10'000, ' '), 6)),
              ".npy header of 10058 bytes, the limit is 10000");
    EXPECT_EQ(npy_verdict(npy(good, 5)),
              "shape (3) of 2-byte elements needs 6 bytes, the file has 5 after its header");
    EXPECT_EQ(npy_verdict(npy(good, 7)),
              "shape (3) of 2-byte elements needs 6 bytes, the file has 7 after its header");
    EXPECT_EQ(npy_verdict(npy("{'descr':'<u2','fortran_order':False,'shape':(9223372036854775808,2,0)}", 0)),
              "shape (9223372036854775808, 2, 0) of 2-byte elements needs more than 2^64 bytes, the file has "
              "0 after its header");
}

TEST(Npy, RefusesHeadersThatAreNotPlainArrays) {
    const auto with = [](const std::string& dictionary) {
        const std::string text = npy_verdict(npy(dictionary, 6));
        return text.substr(text.find(": ") + 2);
    };
    const std::string rest = ", 'fortran_order': False, 'shape': (3,)}";
    EXPECT_EQ(with("{'descr': '>u2'" + rest), "'descr': expected little-endian numbers ('<')");
    EXPECT_EQ(with("{'descr': '|O'" + rest), "'descr': expected a number type like '<u2'");
    EXPECT_EQ(with("{'descr': '|O8'" + rest), "'descr': expected a number type like '<u2'");
    EXPECT_EQ(with("{'descr': ''" + rest), "'descr': expected a number type like '<u2'");
    EXPECT_EQ(with("{'descr': [('a', '<u2')]" + rest),
              "expected a string; only plain arrays of numbers can be read");
    EXPECT_EQ(with("{'descr': '<u2'"), "expected ','");
    EXPECT_EQ(with("{'descr': '<u2'}"), "'fortran_order' is missing");
    EXPECT_EQ(with("{'descr': '<u2', 'descr': '<u2'" + rest), "'descr' appears twice");
    EXPECT_EQ(with("{'x': 1, 'descr': '<u2'" + rest), "unknown key");
    EXPECT_EQ(with(good + "x"), "text after the dictionary");
    EXPECT_EQ(with("{'descr': '<u2', 'fortran_order': 0, 'shape': (3,)}"),
              "'fortran_order': expected True or False");
    EXPECT_EQ(with("{'descr': '<u2', 'fortran_order': False, 'shape': (3)}"),
              "'shape': expected a tuple, (N,)");
    EXPECT_EQ(with("{'descr': '<u2', 'fortran_order': False, 'shape': (-3,)}"),
              "'shape': expected unsigned integers");
    EXPECT_EQ(with("{'descr': '<u2', 'fortran_order': False, 'shape': (1 3)}"), "'shape': expected ','");
    EXPECT_EQ(with("{'descr': '<u2', 'fortran_order': False, 'shape': (3,"),
              "'shape': expected unsigned integers");
    EXPECT_EQ(with(""), "expected '{'");
}

TEST(Npy, SurvivesMutations) {
    const RandomStream random{.seed = 9};
    int refused = 0;
    for (std::uint64_t trial = 0; trial < 20'000; ++trial) {
        std::string file = npy(good, 6);
        const auto words = random.block(trial);
        for (std::uint32_t change = 0; change <= words[0] % 2; ++change)
            file[words[1 + change] % file.size()] = static_cast<char>(words[1 + change] >> 24);
        if (words[3] % 3 == 0) file.resize(words[3] / 3 % file.size());
        refused += npy_verdict(file) != "accepted";
    }
    EXPECT_GT(refused, 10'000);
}

}  // namespace
}  // namespace mantissa
