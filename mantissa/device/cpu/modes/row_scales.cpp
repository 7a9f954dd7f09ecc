#include "mantissa/device/cpu/modes/row_scales.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "mantissa/base/error.h"
#include "mantissa/device/cpu/modes/narrowing.h"
#include "mantissa/numerics/formats.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// As bits, so that it is a maximum of whole numbers; a NaN is larger than all else. With a sign, since plain
/// x86-64 compares no others in vectors.
float largest_size(const float* x, std::int64_t count) {
    std::int32_t largest = 0;
    for (std::int64_t i = 0; i < count; ++i)
        largest = std::max(largest, std::bit_cast<std::int32_t>(x[i]) & 0x7fffffff);
    return std::bit_cast<float>(largest);
}

}  // namespace

void widen(ConstView x, std::int64_t first, std::int64_t count, float* to) {
    const auto from = [&](auto* typed) {
        for (std::int64_t i = 0; i < count; ++i) to[i] = to_f32(typed[first + i]);
    };
    if (count == 0) return;
    if (x.type == DType::bf16) return from(static_cast<const BF16*>(x.data));
    if (x.type == DType::f16) return from(static_cast<const FP16*>(x.data));
    check(x.type == DType::f32, "quantised rows are f32, bf16 or f16");
    std::memcpy(to, static_cast<const float*>(x.data) + first,
                static_cast<std::size_t>(count) * sizeof(float));
}

RowScale scale_of(const float* x, std::int64_t count, float most) {
    const float largest = largest_size(x, count);
    return {largest == 0 ? 0 : most / largest, largest / most};
}

std::int64_t columns_of_few_rows(std::int64_t n, std::int64_t bytes) {
    // Some microseconds of reading, and all rows of x pass while it is in L2; but sixteen blocks or more, so
    // that no thread waits long for the last. 64 KB began so often that INT4's products took a tenth longer.
    constexpr std::int64_t block_bytes = 128 << 10, min_blocks = 16;
    const std::int64_t columns = std::min(block_bytes / std::max<std::int64_t>(1, bytes), n / min_blocks);
    return std::max<std::int64_t>(16, columns / 16 * 16);
}

NarrowToS8 narrow_to_s8(Isa isa) {
    return of_level(isa, narrow_to_s8_generic, narrow_to_s8_avx2, narrow_to_s8_avx512);
}

}  // namespace mantissa::on_cpu
