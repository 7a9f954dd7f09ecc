// A row times a matrix of whole numbers in plain C++.
#include "mantissa/device/cpu/modes/row_mode.h"

namespace mantissa::inline v0::on_cpu {

namespace {

std::int64_t padded(std::int64_t bytes) {
    return (bytes + row_mode_step - 1) / row_mode_step * row_mode_step;
}

void multiply_s8(const RowMode& p) {
    for (std::int64_t j = 0; j < p.cols; ++j) {
        const std::uint8_t* const b = p.b + j * p.bytes;
        std::int32_t sum = 0;
        for (std::int64_t k = 0; k < p.bytes; ++k)
            sum += std::int32_t{p.row[k]} * std::int32_t{static_cast<std::int8_t>(b[k])};
        p.sums[j] = sum;
    }
}

void multiply_s4(const RowMode& p) {
    const std::int8_t* const even = p.row;
    const std::int8_t* const odd = p.row + padded(p.bytes);
    for (std::int64_t j = 0; j < p.cols; ++j) {
        const std::uint8_t* const b = p.b + j * p.bytes;
        std::int32_t sum = 0;
        for (std::int64_t k = 0; k < p.bytes; ++k) {
            // Of two's complement in four bits, the top bit turned over is the number plus 8.
            sum += even[k] * (((b[k] & 15) ^ 8) - 8);
            sum += odd[k] * (((b[k] >> 4) ^ 8) - 8);
        }
        p.sums[j] = sum;
    }
}

}  // namespace

RowModeKernels row_mode_generic() { return {.name = "generic", .s8 = multiply_s8, .s4 = multiply_s4}; }

}  // namespace mantissa::on_cpu
