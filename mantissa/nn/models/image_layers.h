// Shared by the networks for images.
#pragma once

#include "mantissa/nn/layers.h"

namespace mantissa::inline v0::nn {

/// The batch norms of Keras's networks, and those of torchvision's. Keras writes the momentum as 0.99.
inline constexpr BatchNormOptions keras_batch_norm{.epsilon = 1.001e-5, .momentum = 0.01};
inline constexpr BatchNormOptions torch_batch_norm{.epsilon = 1e-5, .momentum = 0.1};

}  // namespace mantissa::nn
