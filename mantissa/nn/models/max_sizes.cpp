#include "mantissa/nn/models/max_sizes.h"

#include <fmt/format.h>

#include "mantissa/base/error.h"

namespace mantissa::inline v0::nn {

void require_between(const char* what, std::int64_t value, std::int64_t most) {
    if (value < 1 || value > most)
        throw UserError(fmt::format("a model's {} must be between 1 and {}, got {}", what, most, value));
}

}  // namespace mantissa::nn
