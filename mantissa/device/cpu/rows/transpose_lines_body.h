// Whole lines of a transposed matrix, for lanes that transpose 16 x 16. A level's lanes define MANTISSA_LANES
// before they include this file. In an anonymous namespace, so that each level keeps its own copy.
#pragma once

#include <cstdint>

namespace mantissa::inline v0::on_cpu {
namespace {

/// target[c][r] = source[r][c] for as many rows as make a line of the target, and as many columns, strides in
/// elements; put together in L1. Streamed lines are aligned.
template <class L, class T>
MANTISSA_LANES void transpose_lines_by_sixteen(const T* source, std::int64_t source_stride, T* target,
                                               std::int64_t target_stride, bool stream) {
    constexpr int line = 64 / sizeof(T);
    alignas(64) T lines[line][line];
    for (int r = 0; r < line; r += 16)
        for (int c = 0; c < line; c += 16)
            L::transpose16(source + r * source_stride + c, source_stride, &lines[c][r], line);
    for (int c = 0; c < line; ++c) {
        const typename L::Float bits = L::load(reinterpret_cast<const float*>(lines[c]));
        float* const to = reinterpret_cast<float*>(target + c * target_stride);
        if (stream)
            L::stream(to, bits);
        else
            L::store(to, bits);
    }
}

}  // namespace
}  // namespace mantissa::on_cpu
