#include "mantissa/numerics/dtype.h"

#include <array>

namespace mantissa::inline v0 {

namespace {

struct Row {
    std::string_view name;
    std::size_t size;
    bool floating;
};

constexpr std::array<Row, 9> rows = {{{"f64", 8, true},
                                      {"f32", 4, true},
                                      {"f16", 2, true},
                                      {"bf16", 2, true},
                                      {"i64", 8, false},
                                      {"i32", 4, false},
                                      {"u8", 1, false},
                                      {"bool", 1, false},
                                      {"s8", 1, false}}};

const Row& row_of(DType type) { return rows[static_cast<std::size_t>(type)]; }

}  // namespace

std::size_t size_of(DType type) { return row_of(type).size; }
std::string_view name_of(DType type) { return row_of(type).name; }
bool is_floating(DType type) { return row_of(type).floating; }

}  // namespace mantissa
