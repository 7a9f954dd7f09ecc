// The contraction's inner kernels in plain C++, for any x86-64 CPU and as a model for the others.
#include <bit>

#include "mantissa/device/cpu/contraction/kernels.h"

namespace mantissa::cpu {

namespace {

// Sixteen SSE registers: 4 x 2 of four sums each, two of b, and room for a.
constexpr int height = 4;
constexpr int width = 8;
using Four = float __attribute__((vector_size(16), aligned(4)));

void multiply(const Tile& tile) {
    Four sums[height][2] = {};
    const auto* const b = static_cast<const float*>(tile.b);
    for (std::int64_t k = 0; k < tile.depth; ++k) {
        const float* const a = static_cast<const float*>(tile.a) + k * height;
        const Four b0 = *reinterpret_cast<const Four*>(b + k * width);
        const Four b1 = *reinterpret_cast<const Four*>(b + k * width + 4);
        for (int i = 0; i < height; ++i) {
            sums[i][0] += a[i] * b0;
            sums[i][1] += a[i] * b1;
        }
    }
    for (std::int64_t i = 0; i < tile.rows; ++i) {
        float* const row = tile.c + i * tile.ldc;
        for (std::int64_t j = 0; j < tile.cols; ++j) {
            const float sum = sums[i][j / 4][j % 4];
            row[j] = tile.accumulate ? row[j] + sum : sum;
        }
    }
}

float widen(float value) { return value; }
float widen(std::uint16_t bf16) { return std::bit_cast<float>(std::uint32_t{bf16} << 16); }

template <class Element, int Size, PanelSource Source>
void pack(const PanelCopy& copy) {
    const auto* const source = static_cast<const Element*>(copy.source);
    auto* const panel = static_cast<float*>(copy.panel);
    const std::int64_t line_step = Source == PanelSource::along_depth ? copy.stride : 1;
    const std::int64_t depth_step = Source == PanelSource::along_depth ? 1 : copy.stride;
    for (std::int64_t k = 0; k < copy.depth; ++k)
        for (std::int64_t line = 0; line < Size; ++line)
            panel[k * Size + line] =
                line < copy.lines ? widen(source[line * line_step + k * depth_step]) : 0.0F;
}

template <int Size>
constexpr PanelKernels panel_kernels() {
    return {
        {{pack<float, Size, PanelSource::along_depth>, pack<std::uint16_t, Size, PanelSource::along_depth>},
         {pack<float, Size, PanelSource::across_depth>,
          pack<std::uint16_t, Size, PanelSource::across_depth>}}};
}

}  // namespace

ContractionKernels contraction_kernels_generic() {
    return {.height = height,
            .width = width,
            .multiply = multiply,
            .pack_a = panel_kernels<height>(),
            .pack_b = panel_kernels<width>()};
}

}  // namespace mantissa::cpu
