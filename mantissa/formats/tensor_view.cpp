#include "mantissa/formats/tensor_view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "mantissa/base/error.h"

namespace mantissa::inline v0 {

std::int64_t element_count(const std::vector<std::int64_t>& shape) {
    std::int64_t count = 1;
    for (const std::int64_t size : shape)
        check(size >= 0 && !__builtin_mul_overflow(count, size, &count), "a shape has a countable size");
    return count;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
    return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace mantissa
