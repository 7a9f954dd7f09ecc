// Cases of the operations of image networks: convolutions, batch norms and pools.
#pragma once

#include "tests/support/op_case.h"

namespace mantissa::testing {

std::vector<OpCase> image_cases();

/// The three products of one convolution, with images [N, H, W, C] and a filter [R, S, C / groups, K].
std::vector<OpCase> cases_of_convolution(const std::string& name, const Shape& images, const Shape& filter,
                                         const Conv2dOptions& options);

}  // namespace mantissa::testing
