// Layers: functions that create their parameters under a name and record their computation.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "mantissa/nn/model.h"

namespace mantissa::inline v0 {
class OriginScope;
}

namespace mantissa::inline v0::nn {

/// Names for nodes and parameters recorded while it lives, after the names of the enclosing scopes: in scopes
/// "layer0" and "attention", the weight of a layer "out" is layer0.attention.out.weight.
class Scope {
  public:
    Scope(Graph& graph, std::string_view name);
    Scope(Tensor in_graph_of, std::string_view name);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

  private:
    std::unique_ptr<OriginScope> scope_;
};

/// A parameter named `name` under the graph's scope: in scope h.0, "ln_1.weight" is "h.0.ln_1.weight".
/// Throws UserError if the name is taken.
Tensor parameter(Graph& graph, std::string_view name, Shape shape, const Initializer& initializer,
                 Where at = Where::current());

/// Uniform in +-sqrt(6 / (inputs + outputs)); for filters, each pixel counts. Glorot, Bengio, "Understanding
/// the difficulty of training deep feedforward neural networks", 2010.
Initializer glorot_uniform(std::int64_t inputs, std::int64_t outputs);

struct LinearOptions {
    std::int64_t outputs = 0;          ///< must be given
    double standard_deviation = 0.02;  ///< of the weight's initial values; the bias starts at 0
    bool bias = true;
    std::optional<Initializer> weight = {};  ///< initial weights, instead of normal ones
};

/// y = x W^T + b over the last axis: x [..., C], weight [outputs, C], bias [outputs], y [..., outputs].
Tensor linear(Tensor x, std::string_view name, const LinearOptions& options, Where at = Where::current());

struct Conv2dLayerOptions {
    std::int64_t outputs = 0;                     ///< K; must be given
    std::array<std::int64_t, 2> window = {3, 3};  // R, S
    std::array<std::int64_t, 2> stride = {1, 1};
    std::int64_t padding = 0;  ///< on each side
    bool bias = true;          ///< starts at 0
    std::int64_t dilation = 1, groups = 1;
};

/// x [B, H, W, C] -> [B, (H + 2 padding - (R - 1) dilation - 1) / stride + 1, ..., K]: weight [R, S, C /
/// groups, K], initialized by glorot_uniform, and bias [K].
Tensor conv2d(Tensor x, std::string_view name, const Conv2dLayerOptions& options,
              Where at = Where::current());

struct LayerNormOptions {
    double epsilon = 1e-5;
    bool bias = true;
};

/// Layer normalization over the last axis, with weight (starting at 1) and bias (at 0) of [C].
Tensor layer_norm(Tensor x, std::string_view name, const LayerNormOptions& options = {},
                  Where at = Where::current());

/// RMS normalisation over the last axis, with weight (starting at 1) of [C].
Tensor rms_norm(Tensor x, std::string_view name, double epsilon = 1e-5, Where at = Where::current());

struct CachedAttentionOptions {
    std::int64_t window = 0;  ///< last keys that a query sees; 0: all up to its position
    double cap = 0;           ///< c tanh(x / c) of the scores; 0: no cap
};

/// Keys and values of a whole context, kept between runs while text is generated.
class KeyCache {
  public:
    /// `positions` i32 [B, T], consecutive in each sequence: places, in the context, of the present tokens'
    /// keys and values. `dtype`: format of kept keys and values.
    KeyCache(Tensor positions, std::int64_t context, DType dtype);

    /// Attention of queries q [B, H, T, D] to all kept keys, with k and v [B, G, T, D] put in their places.
    /// The states are cache.SCOPE.k and cache.SCOPE.v, [B, G, context, D], in the graph's scope.
    Tensor attention(Tensor q, Tensor k, Tensor v, double scale,
                     const CachedAttentionOptions& options = {}) const;

  private:
    Tensor with_kept(std::string_view name, Tensor part) const;

    Tensor positions_;
    Tensor starts_;  // i32 [B]: first position of each sequence
    std::int64_t context_;
    DType dtype_;
};

struct BatchNormOptions {
    double epsilon = 1e-5;
    double momentum = 0.1;  ///< a batch's share in the running statistics, as PyTorch counts it
    /// The running variance averages batch variances divided by n - 1, as in PyTorch; else by n, as in Keras.
    bool unbiased = true;
};

/// Batch normalization over all axes but the last: weight (starting at 1) and bias (at 0) of [C]. Training
/// normalises by the batch and blends its statistics into the states running_mean (starting at 0) and
/// running_var (at 1). Evaluation, and training with frozen statistics, normalise by the states. Throws
/// UserError for a momentum outside [0, 1), and in training for an unbiased variance of one element a
/// channel.
Tensor batch_norm(Tensor x, std::string_view name, const Mode& mode, const BatchNormOptions& options = {},
                  Where at = Where::current());

struct RecurrentOptions {
    std::int64_t hidden = 0;  ///< H; must be given
    std::int64_t layers = 1;  ///< each reads the output of the layer before
    bool bias = true;
};

/// Long short-term memory, x [B, T, C] -> [B, T, H], from zero states. Hochreiter, Schmidhuber 1997. Names
/// and order of gates are PyTorch's: weight_ih_l0 [4 H, C], weight_hh_l0 [4 H, H], bias_ih_l0 and bias_hh_l0
/// [4 H], and so on; input, forget, cell, output. All start uniform in +-1 / sqrt(H).
Tensor lstm(Tensor x, std::string_view name, const RecurrentOptions& options, Where at = Where::current());
/// Gated recurrent units, likewise with 3 H: reset, update, new. Cho et al. 2014, with the reset gate applied
/// after the product, as in PyTorch and cuDNN.
Tensor gru(Tensor x, std::string_view name, const RecurrentOptions& options, Where at = Where::current());

/// While training: zero with probability `rate`, else x / (1 - rate). In evaluation x itself.
Tensor dropout(Tensor x, double rate, const Mode& mode, Where at = Where::current());

}  // namespace mantissa::nn
