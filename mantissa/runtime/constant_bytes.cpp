#include "mantissa/runtime/constant_bytes.h"

#include <cstring>
#include <span>

#include "mantissa/base/error.h"
#include "mantissa/numerics/formats.h"

namespace mantissa::inline v0 {

namespace {

template <class T>
std::vector<std::byte> filled(const Type& type, T value) {
    std::vector<T> values(type.shape.elements(), value);
    std::vector<std::byte> bytes(values.size() * sizeof(T));
    std::memcpy(bytes.data(), values.data(), bytes.size());
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
    switch (type.dtype) {
        case DType::f32:
            return filled(type, static_cast<float>(value));
        case DType::f64:
            return filled(type, static_cast<double>(value));
        case DType::i64:
            return filled(type, static_cast<std::int64_t>(value));
        case DType::i32:
            return filled(type, static_cast<std::int32_t>(value));
        case DType::u8:
            return filled(type, static_cast<std::uint8_t>(value));
        case DType::s8:
            return filled(type, static_cast<std::int8_t>(value));
        case DType::boolean:
            return filled(type, std::uint8_t{value != 0});
        case DType::f16:
            return filled(type, to_fp16(static_cast<float>(value)));
        case DType::bf16:
            return filled(type, to_bf16(static_cast<float>(value)));
    }
    throw InternalError("a storage type outside of its enumeration");
}

}  // namespace mantissa
