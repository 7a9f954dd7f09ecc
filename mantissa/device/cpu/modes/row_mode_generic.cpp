// A few rows times a matrix of bytes in plain C++.
#include "mantissa/device/cpu/modes/row_mode.h"

namespace mantissa::inline v0::on_cpu {

namespace {

void multiply_s8(const RowMode& p) {
    for (std::int64_t j = 0; j < p.cols; ++j)
        for (std::int64_t r = 0; r < p.count; ++r) {
            const std::int8_t* const row = p.rows + r * p.row_stride;
            const std::uint8_t* const b = p.b + j * p.bytes;
            std::int32_t sum = 0;
            for (std::int64_t k = 0; k < p.bytes; ++k)
                sum += std::int32_t{row[k]} * std::int32_t{static_cast<std::int8_t>(b[k])};
            p.sums[r * p.leading + j] = sum;
        }
}

}  // namespace

RowModeKernels row_mode_generic() { return {.name = "generic", .s8 = multiply_s8}; }

}  // namespace mantissa::on_cpu
