// A few rows times a matrix of four bits by groups in plain C++.
#include "mantissa/device/cpu/modes/grouped_rows.h"
#include "mantissa/device/cpu/modes/row_scales.h"
#include "mantissa/numerics/formats.h"

namespace mantissa::inline v0::on_cpu {

namespace {

constexpr std::int64_t words_of_group = words_together / groups_together;

void quantize_fours(const float* x, std::int64_t fours, FourOfX* to, std::int64_t stride) {
    for (std::int64_t four = 0; four < fours; ++four, x += numbers_together, to += stride)
        for (std::int64_t word = 0; word < words_together; ++word) {
            const RowScale scale =
                scale_of(x + word / words_of_group * words_of_group * 8, words_of_group * 8, 127.0f);
            std::int32_t sum = 0;
            for (std::int64_t i = word * 4; i < word * 4 + 4; ++i) {
                to->even[i] = to_s8(x[2 * i] * scale.factor);
                to->odd[i] = to_s8(x[2 * i + 1] * scale.factor);
                sum += to->even[i] + to->odd[i];
            }
            to->corrections[word] = -8 * sum;
            to->scales[word] = scale.scale;
        }
}

float sum_of(const FourOfX* x, const std::uint8_t* b, const BF16* scales, const GroupedRows& p) {
    float total = 0;
    for (std::int64_t group = 0; group < p.groups; ++group) {
        const FourOfX& four = x[group / groups_together * p.count];
        const std::int64_t first = group % groups_together * words_of_group;
        std::int32_t sum = 0;
        for (std::int64_t word = first; word < first + words_of_group; ++word) sum += four.corrections[word];
        for (std::int64_t i = 0; i < words_of_group * 4; ++i) {
            const std::int64_t at = group * words_of_group * 4 + i;
            // The top bit of two's complement in four bits, turned over, makes the number plus 8.
            const int two = (at < p.bytes ? b[at] : 0) ^ 0x88;
            sum += four.even[first * 4 + i] * (two & 15) + four.odd[first * 4 + i] * (two >> 4);
        }
        total += static_cast<float>(sum) * four.scales[first] * to_f32(scales[group]);
    }
    return total;
}

void multiply_grouped_rows(const GroupedRows& p) {
    for (std::int64_t j = 0; j < p.cols; ++j)
        for (std::int64_t row = 0; row < p.count; ++row)
            p.sums[row * p.leading + j] = sum_of(p.x + row, p.b + j * p.bytes, p.scales + j * p.groups, p);
}

}  // namespace

GroupedRowsKernels grouped_rows_generic() {
    return {.name = "generic", .quantize = quantize_fours, .multiply = multiply_grouped_rows};
}

}  // namespace mantissa::on_cpu
