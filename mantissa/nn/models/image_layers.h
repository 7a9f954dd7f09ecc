// What the networks for pictures have in common.
#pragma once

#include <string_view>

#include "mantissa/nn/layers.h"

namespace mantissa::inline v0::nn {

/// The batch norms of Keras's networks, and those of torchvision's. Keras writes the momentum as 0.99.
inline constexpr BatchNormOptions keras_batch_norm{.epsilon = 1.001e-5, .momentum = 0.01};
inline constexpr BatchNormOptions torch_batch_norm{.epsilon = 1e-5, .momentum = 0.1};

/// Batch normalisation with its parameters and running statistics under a name.
inline Tensor batch_norm(Tensor x, std::string_view name, const Mode& mode, const BatchNormOptions& options,
                         Tensor::Where at = Tensor::Where::current()) {
    const OriginScope scope(x.graph(), name);
    return batch_norm(x.graph(), x, mode, options, at);
}

}  // namespace mantissa::nn
