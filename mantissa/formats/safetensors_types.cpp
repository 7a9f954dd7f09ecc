// The types that safetensors files may hold, in one table.
#include <algorithm>
#include <array>

#include "mantissa/formats/safetensors.h"

namespace mantissa::inline v0 {

namespace {

struct Row {
    std::string_view name;
    unsigned bits;
    std::optional<DType> dtype;
};

constexpr std::array<Row, 22> rows = {{
    {"BOOL", 8, DType::boolean},
    {"F4", 4, {}},
    {"F6_E2M3", 6, {}},
    {"F6_E3M2", 6, {}},
    {"U8", 8, DType::u8},
    {"I8", 8, DType::s8},
    {"F8_E5M2", 8, {}},
    {"F8_E4M3", 8, {}},
    {"F8_E8M0", 8, {}},
    {"F8_E4M3FNUZ", 8, {}},
    {"F8_E5M2FNUZ", 8, {}},
    {"I16", 16, {}},
    {"U16", 16, {}},
    {"F16", 16, DType::f16},
    {"BF16", 16, DType::bf16},
    {"I32", 32, DType::i32},
    {"U32", 32, {}},
    {"F32", 32, DType::f32},
    {"C64", 64, {}},
    {"F64", 64, DType::f64},
    {"I64", 64, DType::i64},
    {"U64", 64, {}},
}};

const Row* row_of(std::string_view name) {
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const Row& r) { return r.name == name; });
    return row == rows.end() ? nullptr : &*row;
}

}  // namespace

std::optional<DType> dtype_of_safetensors(std::string_view name) {
    const Row* row = row_of(name);
    return row ? row->dtype : std::nullopt;
}

std::string_view safetensors_name_of(DType dtype) {
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const Row& r) { return r.dtype == dtype; });
    return row == rows.end() ? std::string_view() : row->name;
}

unsigned safetensors_bits(std::string_view name) {
    const Row* row = row_of(name);
    return row ? row->bits : 0;
}

}  // namespace mantissa
