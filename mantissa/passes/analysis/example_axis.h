// Whether examples of a batch stand alone: whether each one's part of a result follows from its part of the
// inputs, and from nothing else. Then a result may be computed for some examples at a time.
//
// The axis of the examples is followed from the inputs through every operation, composites by their
// definitions. In an axis of B m elements, example i has the elements i m to (i + 1) m - 1.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "mantissa/graph/tensor.h"

namespace mantissa::inline v0 {

/// Why examples may not stand alone, naming the first operation for which it is not shown; empty if they do.
/// `batched`: inputs whose first axis is the `examples`, two or more. The result's must be, too.
std::string why_examples_mix(Tensor result, std::span<const std::string> batched, std::int64_t examples);

}  // namespace mantissa
