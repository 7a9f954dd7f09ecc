// Shared by the kernels for dot products of BF16 pairs and their checked twin in plain C++. In an anonymous
// namespace, since a source compiled for one instruction set includes it.
#pragma once

#include "mantissa/device/cpu/contraction/kernels.h"

namespace mantissa::inline v0::on_cpu {

namespace {

// The tile of FP32 on AVX-512: a dot product is one instruction, as a multiply-add is.
constexpr int dot_height = 8;

/// All members but the functions and the width. A word is two elements, so that twice the depth of FP32 fills
/// the same caches. A 3x3 filter's depth up to 1,536 is one chunk: with two, sums in FP32 went to memory and
/// back.
inline ContractionKernels dot_kernels() {
    return {.height = dot_height, .depth_unit = 2, .max_depth = 768, .whole_depth = 1536, .element_bytes = 2};
}

}  // namespace

}  // namespace mantissa::on_cpu
