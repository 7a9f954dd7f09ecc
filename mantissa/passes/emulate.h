// Emulation of another machine's numbers: operands of contractions are rounded to a format first.
//
//   %3: f32 = matmul(%x, %w)
// becomes, for bf16,
//   %1: f32 = round_to(%x) {format=bf16}, %2: f32 = round_to(%w) {format=bf16}, %3: f32 = matmul(%1, %2)
//
// It runs after differentiation, so that the operands of the backward pass are rounded, too. Storage, sums
// and everything else stay FP32, and so do the times: an emulation says nothing about the speed of the
// format.
#pragma once

#include <string_view>

#include "mantissa/graph/graph.h"

namespace mantissa::inline v0 {

/// `format`: tf32, bf16 or f16. Contractions that the model's code forced to a format stay as they are.
/// Throws UserError for an operation that multiplies inside of itself, such as attention in one.
Graph emulate(const Graph& graph, std::string_view format);

}  // namespace mantissa
