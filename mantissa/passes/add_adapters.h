// Adapters of low rank beside the linear layers and convolutions of a trained network, which is frozen.
//
//   %1 = matmul(%x, %w) {transpose_b}
// becomes
//   %1 = matmul(%x, %w) {transpose_b}
//   %2 = matmul(%x, %w.A) {transpose_b}, %3 = mul(%2, scale), %4 = matmul(%3, %w.B) {transpose_b}
//   %5 = add(%1, %4)
//
// A [r, inputs] and B [outputs, r] are parameters in FP32, and B begins at zero. Beside a convolution under
// filters [R, S, C, K], A [R, S, C, r] is one of r filters, and B [1, 1, r, K] multiplies each pixel. The
// frozen weights may be stored in a shorter format, matrices as codes and scales, too. It runs before all
// other passes: differentiation finds no gradient to make for frozen weights, and fusing puts the sum behind
// one of the products.
//
// With a magnitude m [outputs] (DoRA, Liu et al. 2024) the sum is multiplied by m / |W + s B A|, the norm of
// each output's weights, before the bias is added:
//   |W + s B A|^2 = |W|^2 + 2 s B (W A^T) + s^2 B (A A^T B^T), each product summed by output
// so B A is never formed. |W| is a state, written when W is. As in the paper and in PEFT, the norm counts as
// a constant: no gradient flows through it. m begins as |W|.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mantissa/graph/tensor.h"

namespace mantissa::inline v0 {

struct Adapter {
    std::int64_t rank = 0;
    double scale = 1;
    double dropout = 0;
    bool magnitude = false;  ///< DoRA
};

struct AdapterRules {
    /// The adapter of a layer, by its name, as `h.0.attn.c_attn`; none: it has none.
    std::function<std::optional<Adapter>(const std::string& layer)> of;
    /// The format of frozen matrices that only products and embeddings read; none: as they are.
    std::optional<DType> stored = {};
    /// The codes of frozen matrices of linear layers, but the last one and tables: nf4, int4 or int8, which
    /// products widen to `stored`; row_major: none.
    Layout trunk = Layout::row_major;
    /// Random numbers of dropout, values of the graph, and the first operation that takes some; none: nothing
    /// is dropped.
    std::optional<RandomState> random = {};
    std::int64_t first_random_operation = 0;
};

/// The layers of a graph that can have an adapter, by name in their order: linear ones, x [M, inputs] times a
/// parameter W [outputs, inputs], and convolutions under a parameter, of one group.
struct AdaptableLayers {
    std::vector<std::string> names;  ///< without layers tied to an embedding's table
    std::string last;                ///< tied or not; empty: there is none
};
AdaptableLayers adaptable_layers(const Graph& graph);

/// `kept`: values of the graph; each becomes its value in the new graph. Throws UserError for a layer whose
/// weight is not frozen.
Graph add_adapters(const Graph& graph, const AdapterRules& rules, std::span<Value> kept);

/// The name of the layer that has this weight.
std::string layer_of_weight(const std::string& weight);

}  // namespace mantissa
