#include "mantissa/formats/protobuf.h"

#include <bit>

namespace mantissa::inline v0 {

template <class T>
std::string little_endian(T value) {
    std::string bytes;
    for (std::size_t i = 0; i < sizeof value; ++i) bytes += static_cast<char>((value >> 8 * i) & 0xFF);
    return bytes;
}

template std::string little_endian(std::uint32_t);
template std::string little_endian(std::uint64_t);

void ProtobufMessage::add_varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>((value & 0x7F) | 0x80);
    bytes_ += static_cast<char>(value);
}

void ProtobufMessage::add_key(int field, Wire wire) {
    add_varint((static_cast<std::uint64_t>(field) << 3) | static_cast<std::uint64_t>(wire));
}

void ProtobufMessage::add_integer(int field, std::uint64_t value) {
    add_key(field, Wire::varint);
    add_varint(value);
}

void ProtobufMessage::add_double(int field, double value) {
    add_key(field, Wire::fixed64);
    bytes_ += little_endian(std::bit_cast<std::uint64_t>(value));
}

void ProtobufMessage::add_float(int field, float value) {
    add_key(field, Wire::fixed32);
    bytes_ += little_endian(std::bit_cast<std::uint32_t>(value));
}

void ProtobufMessage::add_bytes(int field, std::string_view bytes) {
    add_key(field, Wire::length);
    add_varint(bytes.size());
    bytes_ += bytes;
}

void ProtobufMessage::add_doubles(int field, std::span<const double> values) {
    std::string packed;
    for (const double value : values) packed += little_endian(std::bit_cast<std::uint64_t>(value));
    add_bytes(field, packed);
}

}  // namespace mantissa
