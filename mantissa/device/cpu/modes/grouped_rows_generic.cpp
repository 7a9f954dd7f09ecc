// A few rows times a matrix of four bits by groups in plain C++.
#include "mantissa/device/cpu/modes/grouped_rows.h"
#include "mantissa/numerics/formats.h"

namespace mantissa::inline v0::on_cpu {

namespace {

float sum_of(const FourOfX* x, const std::uint8_t* b, const BF16* scales, const GroupedRows& p) {
    constexpr std::int64_t words = words_together / groups_together;
    float total = 0;
    for (std::int64_t group = 0; group < p.groups; ++group) {
        const FourOfX& four = x[group / groups_together * p.count];
        const std::int64_t first = group % groups_together * words;
        std::int32_t sum = 0;
        for (std::int64_t word = first; word < first + words; ++word) sum += four.corrections[word];
        for (std::int64_t i = 0; i < words * 4; ++i) {
            const std::int64_t at = group * words * 4 + i;
            // The top bit of two's complement in four bits, turned over, makes the number plus 8.
            const int two = (at < p.bytes ? b[at] : 0) ^ 0x88;
            sum += four.even[first * 4 + i] * (two & 15) + four.odd[first * 4 + i] * (two >> 4);
        }
        total += static_cast<float>(sum) * four.scales[first] * to_f32(scales[group]);
    }
    return total;
}

}  // namespace

void multiply_grouped_rows_generic(const GroupedRows& p) {
    for (std::int64_t j = 0; j < p.cols; ++j)
        for (std::int64_t row = 0; row < p.count; ++row)
            p.sums[row * p.leading + j] = sum_of(p.x + row, p.b + j * p.bytes, p.scales + j * p.groups, p);
}

}  // namespace mantissa::on_cpu
