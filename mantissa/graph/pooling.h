// The windows of pools. Only this file reads a pool's attributes.
#pragma once

#include <cstdint>
#include <vector>

#include "mantissa/graph/attributes.h"
#include "mantissa/graph/pool_span.h"

namespace mantissa::inline v0 {

/// The windows, by output. `axis` 0 is the image's rows, 1 its columns; `extent` is their number. The
/// attributes are a pool's in graph/ops/pools.cpp, or its gradient's.
///
/// Windows are `window` elements every `stride`, from `padding` before the image to `padding` behind it. A
/// shorter rest makes no output; with `ceil_mode` it makes one, unless it begins behind the image.
/// An adaptive pool cuts the axis into `extents` parts, part i from floor(i extent / parts) to ceil((i + 1)
/// extent / parts), so that neighbours may share an element.
std::vector<PoolSpan> pool_spans(const Attributes& attributes, int axis, std::int64_t extent);

/// The outputs that read each element of the axis; `spans` are the axis's windows.
std::vector<PoolOutputs> pool_outputs(const std::vector<PoolSpan>& spans, std::int64_t extent);

}  // namespace mantissa
