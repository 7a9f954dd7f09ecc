// Layers: functions that create their parameters under a name and record what they do.
#pragma once

#include <string>
#include <string_view>

#include "mantissa/nn/model.h"

namespace mantissa::inline v0::nn {

/// A parameter named `name` under the graph's scope: in scope h.0, "ln_1.weight" is "h.0.ln_1.weight".
/// Throws UserError if the name is taken.
Tensor parameter(Graph& graph, std::string_view name, Shape shape, const Initializer& initializer);

struct LinearOptions {
    std::int64_t outputs = 0;
    double standard_deviation = 0.02;  ///< of the weight's initial values; the bias starts at 0
    bool bias = true;
};

/// y = x W^T + b over the last axis: x [..., C], weight [outputs, C], bias [outputs], y [..., outputs].
Tensor linear(Tensor x, std::string_view name, const LinearOptions& options,
              Tensor::Where at = Tensor::Where::current());

struct LayerNormOptions {
    double epsilon = 1e-5;
    bool bias = true;
};

/// Over the last axis, with weight (starting at 1) and bias (at 0) of [C].
Tensor layer_norm(Tensor x, std::string_view name, const LayerNormOptions& options = {},
                  Tensor::Where at = Tensor::Where::current());

/// While training: zero with probability `rate`, else x / (1 - rate). In evaluation x itself.
Tensor dropout(Tensor x, double rate, const Mode& mode, Tensor::Where at = Tensor::Where::current());

}  // namespace mantissa::nn
