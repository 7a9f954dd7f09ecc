// Pads parameters as a layout: rows of zeros behind a parameter's own bring the extents of its contractions
// to multiples that the machine likes. The parameter keeps its name, shape, gradient and update.
//
//   %w = state() [50257, 768]      %1 = matmul(%x, %w) {transpose_b}      %2 = cross_entropy(%1, %t)
// becomes
//   %w = state() [50257, 768] {zero_rows=47}                              %0 = pad(%w) {axis=0, after=47}
//   %1 = matmul(%x, %0) {transpose_b}                                     %2 = cross_entropy(%1, %t)
//   {classes=50257}
//
// `pad` is a view, since the state keeps these rows. The zeros are followed from operation to operation: each
// must keep them zeros, sum over them, or leave them out. Any other reader of a value gets a slice without
// them, if that is a view; if it were a copy, the parameter stays as it was, with a reason.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mantissa/graph/graph.h"
#include "mantissa/passes/pass_refusal.h"

namespace mantissa::inline v0 {

struct PadOptions {
    std::int64_t multiple = 128;  ///< Target::extent_multiple
};

struct PaddedParameter {
    std::string name;
    std::int64_t rows = 0;       ///< its own
    std::int64_t zero_rows = 0;  ///< behind them
};

struct Padded {
    Graph graph;
    std::vector<PaddedParameter> padded;  ///< by this run
    std::vector<PassRefusal> refused;     ///< every other parameter
};

Padded pad_parameters(const Graph& graph, const PadOptions& options = {});

}  // namespace mantissa
