// Products with one of cuBLASLt's epilogues: fused nodes whose body is a matmul and GELU, which may keep its
// input, or GELU's gradient, and perhaps its sums over rows, the gradient of a bias.
//
// A body is known by its primitives: they are compared with the primitives of the operation's definition.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "mantissa/device/cuda/kernels/products.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/tensor.h"
#include "mantissa/passes/analysis/contraction_epilogue.h"
#include "mantissa/passes/expand.h"
#include "mantissa/passes/simplify.h"

namespace mantissa::inline v0::on_cuda {

namespace {

/// A product and its epilogue, in primitives. Inputs are the product's, then GELU's where its gradient is
/// made; results y and the product.
struct EpiloguePattern {
    Graph graph;

    Value y() const { return graph.results()[0].value; }
    Value product() const { return graph.results()[1].value; }
};

/// `made`: the type of the epilogue's output.
EpiloguePattern pattern_of(const Graph& body, const Node& matmul, const Type& made, bool gradient) {
    Graph graph;
    std::vector<Value> inputs;
    for (const Value& input : matmul.inputs)
        inputs.push_back(graph.add_input(fmt::format("in{}", inputs.size()), body.type(input)));
    const Tensor product(graph, {graph.add("matmul", std::move(inputs), matmul.attributes), 0});
    const Tensor sums = product.shape() == made.shape ? product : reshape(product, made.shape);
    if (gradient) {
        const Value of_gelu = graph.add_input("of_gelu", made);
        graph.add_result("y", {graph.add("gelu_grad", {sums.value(), of_gelu}, {}), 0});
    } else {
        graph.add_result("y", gelu(sums).value());
    }
    graph.add_result("product", product.value());
    return {simplify(expand(graph, [](const Graph&, const Node&) { return true; }))};
}

/// Values of a pattern and of a body that are computed alike.
class Alike {
  public:
    Alike(const Graph& pattern, const Graph& body) : pattern_(pattern), body_(body) {}

    bool operator()(Value pattern, Value body) {
        const auto [known, is_new] = found_.try_emplace(pattern, body);
        if (!is_new) return known->second == body;
        const Node &ours = pattern_.node(pattern.node), &theirs = body_.node(body.node);
        if (pattern.output != body.output || ours.op != theirs.op ||
            pattern_.type(pattern) != body_.type(body))
            return false;
        if (ours.op->name == "input") return true;
        if (ours.attributes != theirs.attributes || ours.inputs.size() != theirs.inputs.size()) return false;
        for (std::size_t i = 0; i < ours.inputs.size(); ++i)
            if (!(*this)(ours.inputs[i], theirs.inputs[i])) return false;
        return true;
    }

    /// The input of the body that stands for one of the pattern.
    std::size_t operand(std::size_t input) const {
        const Value found = found_.at({pattern_.inputs()[input], 0});
        return static_cast<std::size_t>(std::ranges::find(body_.inputs(), found.node) -
                                        body_.inputs().begin());
    }

  private:
    const Graph &pattern_, &body_;
    std::map<Value, Value> found_;
};

/// A fused node as a product: which of its operands and outputs are the product's.
struct FusedProduct {
    Product product;
    std::vector<std::size_t> inputs = {}, outputs = {};
    std::optional<NodeId> sums = {};  ///< in the body, where the library does not make them
    std::size_t output_of_sums = 0;
};

/// The origins of the body's results.
struct Results {
    std::size_t y = 0;
    std::optional<std::size_t> product = {}, sums = {};
};

/// Whether a value is the sum of `y` over all but its last axis.
bool is_sum_of_rows(const Graph& body, Value value, Value y) {
    const Node& node = body.node(value.node);
    if (node.op->name != "sum" || node.attributes.flag("keep")) return false;
    Value summed = node.inputs[0];
    const Shape& shape = body.type(summed).shape;
    std::vector<std::int64_t> rows;
    for (int axis = 0; axis < shape.rank() - 1; ++axis) rows.push_back(axis);
    while (body.node(summed.node).op->name == "reshape") summed = body.node(summed.node).inputs[0];
    return summed == y && node.attributes.list("axes") == rows && shape[-1] == body.type(y).shape[-1];
}

std::optional<Results> results_of(const Graph& body, const EpiloguePattern& pattern, Alike& alike,
                                  std::size_t y) {
    Results results{.y = y};
    for (std::size_t i = 0; i < body.results().size(); ++i) {
        const Value value = body.results()[i].value;
        if (i == y) continue;
        if (!results.product && alike(pattern.product(), value))
            results.product = i;
        else if (!results.sums && is_sum_of_rows(body, value, body.results()[y].value))
            results.sums = i;
        else
            return {};
    }
    return results;
}

/// The fused node as a product with the epilogue of the pattern; nothing where it has another.
std::optional<FusedProduct> as_pattern(const Graph& body, const Product& plain, const Node& matmul,
                                       bool gradient) {
    for (std::size_t y = 0; y < body.results().size(); ++y) {
        const Value made = body.results()[y].value;
        const Type& type = body.type(made);
        if (type.shape.elements() != matmul.outputs[0].shape.elements() ||
            type.dtype != matmul.outputs[0].dtype || type.shape[-1] != matmul.outputs[0].shape[-1])
            continue;
        const EpiloguePattern pattern = pattern_of(body, matmul, type, gradient);
        Alike alike(pattern.graph, body);
        if (!alike(pattern.y(), made)) continue;
        const std::optional<Results> results = results_of(body, pattern, alike, y);
        if (!results || (gradient ? results->product : results->sums)) continue;
        FusedProduct found{.product = plain, .outputs = {y}};
        for (std::size_t i = 0; i < pattern.graph.inputs().size(); ++i)
            found.inputs.push_back(alike.operand(i));
        using enum Product::Epilogue;
        found.product.epilogue = gradient ? gelu_gradient : results->product ? gelu_and_input : gelu;
        if (results->product) found.outputs.push_back(*results->product);
        if (!results->sums) return found;
        const Value sums = body.results()[*results->sums].value;
        if (body.type(sums).dtype == type.dtype) {
            found.product.epilogue = gelu_gradient_and_its_sums;
            found.outputs.push_back(*results->sums);
        } else {
            found.sums = sums.node;
            found.output_of_sums = *results->sums;
        }
        return found;
    }
    return {};
}

Expected<FusedProduct> fused_product(const ProductUnit& unit, const Graph& body) {
    const NodeId contraction = contraction_of(body);
    if (contraction < 0) return Unexpected{"it multiplies nothing"};
    const Node& matmul = body.node(contraction);
    if (matmul.op->name != "matmul") return Unexpected{"cuBLASLt multiplies matrices"};
    const std::vector<Type> inputs = body.input_types(matmul);
    const Expected<Product> plain = product_of(unit, {*matmul.op, inputs, matmul.outputs, matmul.attributes});
    if (!plain) return Unexpected{plain.reason()};
    if (matmul.outputs[0].shape.elements() == 0) return Unexpected{"there is nothing to multiply"};
    if (auto found = as_pattern(body, *plain, matmul, false)) return std::move(*found);
    if (plain->bias) return Unexpected{"the epilogue is none of cuBLASLt's"};
    if (auto found = as_pattern(body, *plain, matmul, true)) return std::move(*found);
    return Unexpected{"the epilogue is none of cuBLASLt's"};
}

/// The sums of a fused node's output, by the first kernel of sums that takes them.
Expected<PreparedKernel> prepare_sums(const KernelTable& table, const Graph& body, NodeId sums) {
    const Node& node = body.node(sums);
    const std::vector<Type> inputs = body.input_types(node);
    std::string reason;
    for (const Kernel& kernel : table.at("sum")) {
        Expected<PreparedKernel> made = kernel.prepare({*node.op, inputs, node.outputs, node.attributes});
        if (made) return made;
        reason = made.reason();
    }
    return Unexpected{std::move(reason)};
}

template <class Pointer>
std::vector<Pointer> chosen_of(std::span<const Pointer> all, const std::vector<std::size_t>& which) {
    std::vector<Pointer> chosen;
    for (const std::size_t one : which) chosen.push_back(all[one]);
    return chosen;
}

Expected<PreparedKernel> prepare_fused(const KernelTable& table, Context& context, const ProductUnit& unit,
                                       const Problem& problem) {
    const Graph& body = problem.attributes.body("body").graph();
    const Expected<FusedProduct> fused = fused_product(unit, body);
    if (!fused) return Unexpected{fused.reason()};
    Expected<PreparedKernel> product = prepare_product(context, fused->product);
    if (!product) return Unexpected{product.reason()};
    PreparedKernel prepared;
    prepared.workspace = product->workspace;
    prepared.algorithm = product->algorithm;
    std::optional<PreparedKernel> sums;
    if (fused->sums) {
        Expected<PreparedKernel> made = prepare_sums(table, body, *fused->sums);
        if (!made) return Unexpected{made.reason()};
        sums = std::move(*made);
        prepared.workspace = std::max(prepared.workspace, sums->workspace);
        prepared.launches += sums->launches;
        // The sums' sources are read again.
        prepared.cost = problem.op.cost(problem.inputs, problem.outputs, problem.attributes);
        prepared.cost->bytes += problem.outputs[fused->outputs[0]].bytes();
    }
    prepared.launch = [fused = *fused, product = product->launch, sums](const Operands& operands) {
        const auto inputs = chosen_of(operands.inputs, fused.inputs);
        const auto outputs = chosen_of(operands.outputs, fused.outputs);
        product({inputs, outputs, operands.workspace});
        if (!sums) return;
        const std::vector<const std::byte*> y{outputs[0]};
        const std::vector<std::byte*> to{operands.outputs[fused.output_of_sums]};
        sums->launch({y, to, operands.workspace});
    };
    return prepared;
}

}  // namespace

void add_fused_product_kernels(KernelTable& table, Context& context) {
    for (const ProductUnit& unit : product_units(context, "cublasLt", context.matrix_unit))
        table["fused"].push_back({.name = unit.name,
                                  .arithmetic = unit.arithmetic,
                                  .prepare = [&table, &context, unit](const Problem& problem) {
                                      return prepare_fused(table, context, unit, problem);
                                  }});
}

}  // namespace mantissa::on_cuda
