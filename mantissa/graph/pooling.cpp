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
    const auto is_set = [&](const char* name) { return attributes.has(name) && attributes.flag(name); };
    const bool counts_padding = is_set("count_padding"), ceil_mode = is_set("ceil_mode");
    const std::int64_t end = extent + after;
    std::vector<PoolSpan> spans;
    for (std::int64_t start = -before;; start += stride) {
        const bool left_over = ceil_mode && start < extent && start - stride + window < end;
        if (start + window > end && !left_over) break;
        const std::int64_t first = std::max<std::int64_t>(start, 0), last = std::min(start + window, extent);
        spans.push_back({.start = start,
                         .first = first,
                         .last = last,
                         .count = counts_padding ? std::min(start + window, end) - start : last - first});
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
