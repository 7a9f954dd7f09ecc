// Messages of Protocol Buffers against the bytes of its documentation.
#include "mantissa/formats/tensorboard.h"

#include <gtest/gtest.h>

#include <array>

namespace mantissa {
namespace {

using namespace std::string_literals;

TEST(Protobuf, IntegersAreVarints) {
    ProtobufMessage small, large;
    small.add_integer(1, 150);  // the first example of the encoding guide
    EXPECT_EQ(small.bytes(), "\x08\x96\x01"s);
    large.add_integer(16, 1u << 14);
    EXPECT_EQ(large.bytes(), "\x80\x01\x80\x80\x01"s);
}

TEST(Protobuf, TextsAndMessagesHaveTheirLength) {
    ProtobufMessage text, inner, outer;
    text.add_bytes(2, "testing");
    EXPECT_EQ(text.bytes(), "\x12\x07testing"s);
    inner.add_integer(1, 150);
    outer.add_message(3, inner);
    EXPECT_EQ(outer.bytes(), "\x1a\x03\x08\x96\x01"s);
}

TEST(Protobuf, FloatingNumbersAreLittleEndian) {
    ProtobufMessage message;
    message.add_float(1, 1.0f);
    message.add_double(2, -2.0);
    EXPECT_EQ(message.bytes(), "\x0d\0\0\x80\x3f\x11\0\0\0\0\0\0\0\xc0"s);
    ProtobufMessage packed;
    packed.add_doubles(4, std::array{1.0, 2.0});
    EXPECT_EQ(packed.bytes(), "\x22\x10\0\0\0\0\0\0\xf0\x3f\0\0\0\0\0\0\0\x40"s);
}

}  // namespace
}  // namespace mantissa
