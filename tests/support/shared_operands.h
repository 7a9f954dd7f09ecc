// A model of one operation, applied twice in sequence. Its operands are shared, equal, or depend on each
// other: this breaks gradients that are looked up by value, or that follow more than their own path.
#pragma once

#include <algorithm>
#include <set>

#include "mantissa/base/random.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/tensor.h"
#include "tests/support/op_case.h"

namespace mantissa::testing {

/// Outputs that only serve the gradient (means, a loss's log-sum-exp) are not differentiated.
inline std::size_t differentiated_outputs(const OpCase& test, std::size_t outputs) {
    static const std::set<std::string> first_only = {"layer_norm", "rms_norm", "cross_entropy", "batch_norm",
                                                     "max_pool2d"};
    return first_only.contains(test.op) ? 1 : outputs;
}

/// A case with integer results, as an index of the maximum, has no gradient.
inline bool has_gradient(const OpCase& test) {
    return find_op(test.op).gradient && is_floating(Recorded(test).outputs[0].dtype());
}

/// The origin of a layer's operand.
enum class Operands { states, equal, computed, random };

class SharedOperands {
  public:
    SharedOperands(const OpCase& test, Operands operands, std::uint64_t seed)
        : test_(test), operands_(operands), seed_(seed) {}

    /// Records the model, with a state for each floating-point operand, and returns its loss.
    Tensor loss(Graph& graph) const {
        RandomStream random{.seed = seed_, .step = 1, .operation = 0};
        std::uint64_t next = 0;
        const auto below = [&](std::size_t limit) { return random.bits(next++) % limit; };
        std::vector<Tensor> given;
        for (std::size_t i = 0; i < test_.operands.size(); ++i) {
            const Type& type = test_.operands[i].type;
            const std::string name = fmt::format("x{}", i);
            given.emplace_back(graph, is_floating(type.dtype)
                                          ? graph.add_state({.name = name, .type = type, .initializer = {}})
                                          : graph.add_input(name, type));
        }
        Tensor flow, loss;
        for (const char* const layer : {"h.0", "h.1"}) {
            const OriginScope scope(graph, layer);
            flow = joined(test_.build(graph, operands_of_layer(given, flow, below)));
            const Tensor weights = cos(cast(iota(graph, flow.shape(), 0), flow.dtype()));
            const Tensor part = mean(flow * weights, {0});
            loss = loss ? loss + part : part;
        }
        return cast(loss, DType::f32);
    }

    /// Values for states and inputs.
    ReferenceFeed feed() const {
        ReferenceFeed feed;
        for (std::size_t i = 0; i < test_.operands.size(); ++i)
            feed[fmt::format("x{}", i)] = values_of(test_.operands[i], static_cast<std::uint32_t>(seed_ + i));
        return feed;
    }

  private:
    template <class Below>
    std::vector<Tensor> operands_of_layer(In given, Tensor flow, const Below& below) const {
        std::vector<Tensor> operands;
        for (std::size_t i = 0; i < given.size(); ++i) {
            const Tensor& own = given[i];
            const bool positive = test_.operands[i].values == Values::positive;
            if (!is_floating(own.dtype())) {
                operands.push_back(own);
                continue;
            }
            std::vector<std::size_t> equal, earlier;
            for (std::size_t j = 0; j < i; ++j) {
                if (!is_floating(given[j].dtype())) continue;
                earlier.push_back(j);
                if (own.type() == given[j].type() && (!positive || is_positive(j))) equal.push_back(j);
            }
            Operands how = operands_;
            if (how == Operands::random) how = static_cast<Operands>(below(3));
            Tensor x = own;
            if (how == Operands::equal && !equal.empty()) {
                operands.push_back(operands[equal[below(equal.size())]]);
                continue;
            }
            if (how != Operands::states && !earlier.empty())
                x = tanh(fitted(operands[earlier[below(earlier.size())]], own.shape())) + x * 0.5;
            else if (flow && earlier.empty())
                x = x + tanh(fitted(flow, own.shape()));
            operands.push_back(positive ? x * x + 0.25 : x);
        }
        return operands;
    }

    bool is_positive(std::size_t operand) const { return test_.operands[operand].values == Values::positive; }

    /// All elements of the differentiated outputs, in a row.
    Tensor joined(In outputs) const {
        std::vector<Tensor> rows;
        for (std::size_t i = 0; i < differentiated_outputs(test_, outputs.size()); ++i)
            if (is_floating(outputs[i].dtype())) rows.push_back(cast(reshape(outputs[i], {-1}), DType::f32));
        return concat(rows, 0);
    }

    /// The elements of x, repeated, in another shape.
    static Tensor fitted(Tensor x, const Shape& shape) {
        Tensor row = reshape(x, {-1});
        while (row.dim(0) < shape.elements()) row = concat(std::vector{row, row}, 0);
        return reshape(slice(row, 0, 0, shape.elements()), shape);
    }

    const OpCase& test_;
    Operands operands_;
    std::uint64_t seed_;
};

}  // namespace mantissa::testing
