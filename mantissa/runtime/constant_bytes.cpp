#include "mantissa/runtime/constant_bytes.h"

#include <cstring>
#include <span>

#include "mantissa/numerics/scalar.h"

namespace mantissa::inline v0 {

namespace {

template <class T>
std::vector<std::byte> filled(const Type& type, T value) {
    std::vector<std::byte> bytes(type.bytes());
    for (std::size_t i = 0; i < bytes.size(); i += sizeof value) std::memcpy(&bytes[i], &value, sizeof value);
    return bytes;
}

}  // namespace

std::vector<std::byte> constant_bytes(const Node& node) {
    if (node.op->name == "literal") {
        const std::span<const std::byte> bytes = node.attributes.data("values").bytes();
        return {bytes.begin(), bytes.end()};
    }
    const double value = node.attributes.number("value");
    const Type& type = node.outputs[0];
    return with_type(type.dtype, [&]<class T>(T) { return filled(type, stored_as<T>(value)); });
}

}  // namespace mantissa
