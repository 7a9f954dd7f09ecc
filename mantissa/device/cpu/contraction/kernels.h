// The inner kernels of the contraction, one set for each level of instructions: packing an operand into
// panels, and multiplying two panels. The code around them (blocking, threads, edges of the problem) is
// common to all.
#pragma once

#include <array>
#include <cstdint>

#include "mantissa/device/cpu/isa.h"

namespace mantissa::cpu {

/// One block of sums: c[rows, cols] = (accumulate ? c : 0) + a_panel^T b_panel.
struct Tile {
    const float* a = nullptr;  ///< [depth, panel height], packed
    const float* b = nullptr;  ///< [depth, panel width], packed
    std::int64_t depth = 0;
    float* c = nullptr;
    std::int64_t ldc = 0;
    std::int64_t rows = 0;  ///< 1 ... panel height
    std::int64_t cols = 0;  ///< 1 ... panel width
    bool accumulate = false;
    /// The sums are only written, and too many for the caches: whole lines may go past them.
    bool streaming = false;
    /// The `depth` * 4 floats from here are wanted in L2 soon; kernels may ask for them, and never fault.
    const float* ahead = nullptr;
};

/// Copies `lines` lines of an operand, widened to FP32, into one panel [depth, panel size]; missing lines are
/// 0.
struct PanelCopy {
    const void* source = nullptr;
    std::int64_t stride = 0;
    std::int64_t lines = 0;  ///< 1 ... panel size
    std::int64_t depth = 0;
    float* panel = nullptr;
};

using TileKernel = void (*)(const Tile& tile);
using PanelKernel = void (*)(const PanelCopy& copy);

/// How the source of a panel lies: element (line, depth) at line * stride + depth, or at depth * stride +
/// line.
enum class PanelSource : std::uint8_t { along_depth, across_depth };

/// [PanelSource][0 FP32, 1 BF16]
using PanelKernels = std::array<std::array<PanelKernel, 2>, 2>;

struct ContractionKernels {
    std::int64_t height = 0;  ///< rows of a tile, lines of a panel of a
    std::int64_t width = 0;   ///< columns of a tile, lines of a panel of b
    TileKernel multiply = nullptr;
    PanelKernels pack_a = {};
    PanelKernels pack_b = {};
};

ContractionKernels contraction_kernels_generic();
ContractionKernels contraction_kernels_avx2();
ContractionKernels contraction_kernels_avx512();

}  // namespace mantissa::cpu
