// The result of a validation in the course of training.
#pragma once

#include <cstdint>
#include <optional>

#include "mantissa/train/picture_scores.h"

namespace mantissa::cli {

struct Validation {
    double loss = 0;
    std::uint64_t batches = 0;
    std::optional<PictureScores> scores = {};  ///< of a network for pictures
};

}  // namespace mantissa::cli
