// Messages of Protocol Buffers, written field by field: as much of the wire format as our files need.
// https://protobuf.dev/programming-guides/encoding
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace mantissa::inline v0 {

/// Fields follow one another in the order in which they are added; `field` is the number of the .proto file.
class ProtobufMessage {
  public:
    /// int32, int64, enum: not negative.
    void add_integer(int field, std::uint64_t value);
    void add_double(int field, double value);
    void add_float(int field, float value);
    /// string, bytes, or a message within.
    void add_bytes(int field, std::string_view bytes);
    void add_message(int field, const ProtobufMessage& message) { add_bytes(field, message.bytes()); }
    /// repeated double, packed.
    void add_doubles(int field, std::span<const double> values);

    const std::string& bytes() const { return bytes_; }

  private:
    enum class Wire : std::uint8_t { varint = 0, fixed64 = 1, length = 2, fixed32 = 5 };
    void add_key(int field, Wire wire);
    void add_varint(std::uint64_t value);

    std::string bytes_;
};

/// A number of 4 or 8 bytes in the order of files, the least significant first.
template <class T>
std::string little_endian(T value);

}  // namespace mantissa
