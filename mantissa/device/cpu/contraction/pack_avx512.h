// Packing operands into panels with 512-bit vectors: the panels of words of panel_kernels.h, and the panels
// of tiles of tile_kernels.h.
#pragma once

#include "mantissa/device/cpu/contraction/kernels.h"

namespace mantissa::inline v0::on_cpu {

/// FP32 panels of `Size` lines, of FP32 or BF16, for the sizes that kernels have.
template <int Size>
PanelKernels widened_panels_avx512();
template <>
PanelKernels widened_panels_avx512<8>();
template <>
PanelKernels widened_panels_avx512<32>();
template <>
PanelKernels widened_panels_avx512<48>();
template <>
PanelKernels widened_panels_avx512<96>();

/// Panels of pairs of BF16, likewise.
template <int Size>
PanelKernels paired_panels_avx512();
template <>
PanelKernels paired_panels_avx512<8>();
template <>
PanelKernels paired_panels_avx512<32>();
template <>
PanelKernels paired_panels_avx512<48>();

/// Panels of tiles. Only the BF16 entries are set.
PanelKernels tile_panels_a_avx512();
PanelKernels tile_panels_b_avx512();
/// Packing of operands in two parts.
SplitKernels split_tile_panels_a_avx512bf16();
SplitKernels split_tile_panels_b_avx512bf16();

void gather_avx512(const WindowPiece& piece);
void pack_pixels_avx512(const PixelRun& run);

}  // namespace mantissa::on_cpu
