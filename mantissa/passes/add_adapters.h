// Adapters of low rank beside the linear layers of a trained network, which is frozen.
//
//   %1 = matmul(%x, %w) {transpose_b}
// becomes
//   %1 = matmul(%x, %w) {transpose_b}
//   %2 = matmul(%x, %w.A) {transpose_b}, %3 = mul(%2, scale), %4 = matmul(%3, %w.B) {transpose_b}
//   %5 = add(%1, %4)
//
// A [r, inputs] and B [outputs, r] are parameters in FP32, and B begins at zero. The frozen matrices may be
// stored in a shorter format, or as codes and scales. It runs before all other passes: differentiation finds
// no gradient to make for what is frozen, and fusing puts the sum behind one of the products.
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
};

struct AdapterRules {
    /// The adapter of a linear layer, by its name, as `h.0.attn.c_attn`; none: it has none.
    std::function<std::optional<Adapter>(const std::string& layer)> of;
    /// The format of frozen matrices that only products and embeddings read; none: as they are.
    std::optional<DType> stored = {};
    /// How those of linear layers lie, but the last one's and those of tables: nf4, int4 or int8, which
    /// products widen to that format; row_major: as all else.
    Layout trunk = Layout::row_major;
    /// Random numbers of dropout, values of the graph, and the first operation that takes some; none: nothing
    /// is dropped.
    std::optional<RandomState> random = {};
    std::int64_t first_random_operation = 0;
};

/// The linear layers of a graph, x [M, inputs] times a parameter W [outputs, inputs], by name in their order.
struct LinearLayers {
    std::vector<std::string> names;  ///< but those that are tied to an embedding's table
    std::string last;                ///< tied or not; empty: there is none
};
LinearLayers linear_layers(const Graph& graph);

/// `kept`: values of the graph; each is replaced by where it is found afterwards. Throws UserError for a
/// layer whose weight is not frozen.
Graph add_adapters(const Graph& graph, const AdapterRules& rules, std::span<Value> kept);

/// The name of a layer whose weight that is.
std::string layer_of_weight(const std::string& weight);

}  // namespace mantissa
