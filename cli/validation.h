// The result of a validation in the course of training.
#pragma once

#include <cstdint>
#include <optional>

#include "mantissa/train/image_scores.h"

namespace mantissa::cli {

struct Validation {
    double loss = 0;
    std::uint64_t batches = 0;
    std::optional<ImageScores> scores = {};  ///< of a network for images
};

}  // namespace mantissa::cli
