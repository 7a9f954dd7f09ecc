// A few rows times a matrix of four bits by groups in plain C++.
#include "mantissa/device/cpu/modes/grouped_rows.h"

namespace mantissa::inline v0::on_cpu {

namespace {

float widened(BF16 x) { return __builtin_bit_cast(float, static_cast<std::uint32_t>(x.bits) << 16); }

float sum_of(const GroupedRow& row, const std::uint8_t* b, const BF16* scales, const GroupedRows& p) {
    float total = 0;
    for (std::int64_t group = 0; group < p.groups; ++group) {
        const std::int64_t at = group / groups_together * groups_together + place_of_group(group);
        const std::int8_t* const even = row.numbers + group / 2 * 64 + group % 2 * 16;
        const std::int8_t* const odd = even + 32;
        std::int32_t sum = row.corrections[at];
        const std::int64_t bytes = p.bytes - group * 16 < 16 ? p.bytes - group * 16 : 16;
        for (std::int64_t i = 0; i < 16; ++i) {
            // Of two's complement in four bits, the top bit turned over is the number plus 8.
            const int two = (i < bytes ? b[group * 16 + i] : 0) ^ 0x88;
            sum += even[i] * (two & 15) + odd[i] * (two >> 4);
        }
        total += static_cast<float>(sum) * row.scales[at] * widened(scales[group]);
    }
    return total;
}

}  // namespace

void grouped_rows_generic(const GroupedRows& p) {
    for (std::int64_t j = 0; j < p.cols; ++j)
        for (std::int64_t row = 0; row < p.count; ++row)
            p.sums[row * p.leading + j] = sum_of(p.rows[row], p.b + j * p.bytes, p.scales + j * p.groups, p);
}

}  // namespace mantissa::on_cpu
