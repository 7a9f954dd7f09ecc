// The windows of pools. Only this file reads a pool's attributes.
#pragma once

#include <cstdint>
#include <vector>

#include "mantissa/graph/attributes.h"
#include "mantissa/graph/pool_span.h"

namespace mantissa::inline v0 {

/// By output. `axis` 0 is the image's rows, 1 its columns; `extent` is how many there are. The attributes are
/// those of a pool in graph/ops/pools.cpp, or of its gradient.
///
/// Windows are `window` elements every `stride`, from `padding` before the image to `padding` behind it; of
/// what is left at the end nothing is made, or with `ceil_mode` one more, unless it begins behind the image.
/// An adaptive pool cuts the axis into `extents` parts, part i from floor(i extent / parts) to ceil((i + 1)
/// extent / parts), so that neighbours may share an element.
std::vector<PoolSpan> pool_spans(const Attributes& attributes, int axis, std::int64_t extent);

/// By element of the axis, of which `spans` are.
std::vector<PoolOutputs> pool_outputs(const std::vector<PoolSpan>& spans, std::int64_t extent);

}  // namespace mantissa
