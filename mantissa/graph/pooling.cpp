#include "mantissa/graph/pooling.h"

#include <algorithm>

#include "mantissa/base/whole_units.h"

namespace mantissa::inline v0 {

namespace {

std::vector<PoolSpan> adaptive_spans(std::int64_t parts, std::int64_t extent) {
    std::vector<PoolSpan> spans;
    for (std::int64_t i = 0; i < parts; ++i) {
        const std::int64_t first = i * extent / parts, last = ceil_div((i + 1) * extent, parts);
        spans.push_back({.start = first, .first = first, .last = last, .count = last - first});
    }
    return spans;
}

}  // namespace

std::vector<PoolSpan> pool_spans(const Attributes& attributes, int axis, std::int64_t extent) {
    const auto at = static_cast<std::size_t>(axis);
    if (attributes.has("extents")) return adaptive_spans(attributes.list("extents")[at], extent);
    const std::int64_t window = attributes.list("window")[at], stride = attributes.list("stride")[at];
    const std::int64_t before = attributes.list("padding")[2 * at],
                       after = attributes.list("padding")[2 * at + 1];
    const bool counts_padding = attributes.has("count_padding") && attributes.flag("count_padding");
    std::vector<PoolSpan> spans;
    for (std::int64_t start = -before; start + window <= extent + after; start += stride) {
        const std::int64_t first = std::max<std::int64_t>(start, 0), last = std::min(start + window, extent);
        spans.push_back(
            {.start = start, .first = first, .last = last, .count = counts_padding ? window : last - first});
    }
    return spans;
}

std::vector<PoolOutputs> pool_outputs(const std::vector<PoolSpan>& spans, std::int64_t extent) {
    std::vector<PoolOutputs> outputs(extent);
    for (std::size_t output = 0; output < spans.size(); ++output)
        for (std::int64_t i = spans[output].first; i < spans[output].last; ++i) {
            PoolOutputs& own = outputs[i];
            if (own.first == own.last) own.first = static_cast<std::int64_t>(output);
            own.last = static_cast<std::int64_t>(output) + 1;
        }
    return outputs;
}

}  // namespace mantissa
