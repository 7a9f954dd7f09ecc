// Volumes [N, D, H, W, C] by the operations of images. Planes that a filter reads beside one another become
// channels of one conv2d, which adds them all up in FP32. A pool is one over rows and columns of each plane,
// then one over depth.
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "mantissa/base/whole_units.h"
#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/tensor.h"

namespace mantissa::inline v0::ops {

namespace {

void expect_volumes(std::string_view op, const Tensor& x) {
    if (x.rank() != 5)
        refuse(op, x.graph().origin,
               fmt::format("expected volumes [N, D, H, W, C], got {}", x.type().text()));
}

/// All but the depth's and the bias.
Conv2dOptions options_of_planes(const Conv3dOptions& o) {
    return {.stride = {o.stride[1], o.stride[2]},
            .padding = {o.padding[2], o.padding[3], o.padding[4], o.padding[5]},
            .dilation = {o.dilation[1], o.dilation[2]},
            .groups = o.groups};
}

/// Planes of a filter.
struct Taps {
    std::int64_t begin, end;
    bool operator==(const Taps&) const = default;
};

/// Where planes of the output read the volume.
struct DepthAxis {
    std::int64_t planes, taps, stride, apart, before, outputs;

    DepthAxis(const Tensor& x, const Tensor& filter, const Conv3dOptions& options)
        : planes(x.dim(1)),
          taps(filter.dim(0)),
          stride(options.stride[0]),
          apart(options.dilation[0]),
          before(options.padding[0]) {
        const std::int64_t behind = options.padding[1], padded = planes + before + behind;
        if (stride < 1 || apart < 1 || before < 0 || behind < 0)
            refuse("conv3d", x.graph().origin,
                   fmt::format(
                       "stride and dilation must be 1 or more and padding 0 or more, got {}, {} and {}, {}",
                       stride, apart, before, behind));
        const std::int64_t covered = (taps - 1) * apart + 1;
        if (taps < 1 || covered > padded)
            refuse("conv3d", x.graph().origin,
                   fmt::format("a filter of {} planes that covers {} does not fit {} planes with padding",
                               taps, covered, padded));
        outputs = (padded - covered) / stride + 1;
    }

    std::int64_t place(std::int64_t output, std::int64_t tap) const {
        return output * stride + tap * apart - before;
    }
    /// The taps that meet planes of the volume; the others meet zeros.
    Taps taps_of(std::int64_t output) const {
        const std::int64_t first = -place(output, 0), last = planes - 1 + first;
        return {first > 0 ? ceil_div(first, apart) : 0, last < 0 ? 0 : std::min(taps, last / apart + 1)};
    }
    bool has_only_zeros_somewhere() const {
        for (std::int64_t d = 0; d < outputs; ++d)
            if (taps_of(d).begin >= taps_of(d).end) return true;
        return false;
    }
};

/// `planes` pools [planes, H, W, C], then `depth` pools [N, D, pixels, C].
template <typename Planes, typename Depth>
Tensor pooled(std::string_view op, const Tensor& x, const Planes& planes, const Depth& depth, Where at) {
    const LineScope line(x.graph(at), at);
    expect_volumes(op, x);
    const std::int64_t N = x.dim(0), D = x.dim(1), C = x.dim(4);
    const Tensor flat = planes(reshape(x, {N * D, x.dim(2), x.dim(3), C}));
    const std::int64_t rows = flat.dim(1), columns = flat.dim(2);
    const Tensor y = depth(reshape(flat, {N, D, rows * columns, C}));
    return reshape(y, {N, y.dim(1), rows, columns, C});
}

std::pair<Pool2dOptions, Pool2dOptions> planes_and_depth(const Pool3dOptions& o) {
    return {{.window = {o.window[1], o.window[2]},
             .stride = {o.stride[1], o.stride[2]},
             .padding = {o.padding[2], o.padding[3], o.padding[4], o.padding[5]},
             .count_padding = o.count_padding,
             .ceil_mode = o.ceil_mode},
            {.window = {o.window[0], 1},
             .stride = {o.stride[0], 1},
             .padding = {o.padding[0], o.padding[1], 0, 0},
             .count_padding = o.count_padding,
             .ceil_mode = o.ceil_mode}};
}

}  // namespace

Tensor conv3d(Tensor x, Tensor filter, const Conv3dOptions& options, Where at) {
    const LineScope line(x.graph(at), at);
    expect_volumes("conv3d", x);
    const std::int64_t groups = options.groups;
    if (filter.rank() != 5 || groups < 1 || filter.dim(3) * groups != x.dim(4))
        refuse("conv3d", x.graph().origin,
               fmt::format("expected filters [T, R, S, C / groups, K] of {} channels in {} groups, got {}",
                           x.dim(4), groups, filter.type().text()));
    DepthAxis axis(x, filter, options);
    if (axis.has_only_zeros_somewhere()) {
        x = pad(x, 1, options.padding[0], options.padding[1]);
        axis.planes = x.dim(1);
        axis.before = 0;
    }
    Conv2dOptions of_planes = options_of_planes(options);
    of_planes.bias = options.bias;
    const std::int64_t N = x.dim(0), H = x.dim(2), W = x.dim(3), part = filter.dim(3);
    std::vector<Tensor> all;
    for (std::int64_t d = 0, end = 0; d < axis.outputs; d = end) {
        const Taps taps = axis.taps_of(d);
        while (end < axis.outputs && axis.taps_of(end) == taps) ++end;
        std::vector<Tensor> read;
        for (std::int64_t t = taps.begin; t < taps.end; ++t)
            read.push_back(reshape(slice(x, 1, axis.place(d, t), axis.place(end - 1, t) + 1, axis.stride),
                                   {N * (end - d), H, W, groups, part}));
        const Tensor seen = transpose(slice(filter, 0, taps.begin, taps.end), {1, 2, 0, 3, 4});
        const std::int64_t channels = std::ssize(read) * part;
        const Tensor y =
            conv2d(reshape(concat(read, 4), {N * (end - d), H, W, groups * channels}),
                   reshape(seen, {filter.dim(1), filter.dim(2), channels, filter.dim(4)}), of_planes);
        all.push_back(reshape(y, {N, end - d, y.dim(1), y.dim(2), y.dim(3)}));
    }
    return concat(all, 1);
}

Tensor conv_transpose3d(Tensor x, Tensor filter, const Conv3dOptions& options,
                        std::array<std::int64_t, 3> more, Where at) {
    const LineScope line(x.graph(at), at);
    expect_volumes("conv_transpose3d", x);
    const auto refuse_here = [&](const std::string& why) {
        refuse("conv_transpose3d", x.graph().origin, why);
    };
    if (filter.rank() != 5 || filter.dim(0) < 1)
        refuse_here(fmt::format("expected filters [T, R, S, K / groups, C], got {}", filter.type().text()));
    const std::int64_t N = x.dim(0), D = x.dim(1), T = filter.dim(0), stride = options.stride[0];
    const std::int64_t outputs = (D - 1) * stride - options.padding[0] - options.padding[1] +
                                 (T - 1) * options.dilation[0] + 1 + more[0];
    if (D < 1 || stride < 1 || outputs < 1)
        refuse_here(
            fmt::format("{} planes at a stride of {} become {}, expected 1 or more", D, stride, outputs));
    const Tensor planes = reshape(x, {N * D, x.dim(2), x.dim(3), x.dim(4)});
    Tensor sum;
    for (std::int64_t t = 0; t < T; ++t) {
        const Tensor y = conv_transpose2d(
            planes,
            reshape(slice(filter, 0, t, t + 1), {filter.dim(1), filter.dim(2), filter.dim(3), filter.dim(4)}),
            options_of_planes(options), {more[1], more[2]});
        const std::int64_t rows = y.dim(1), columns = y.dim(2), K = y.dim(3);
        const Tensor apart = reshape(pad(reshape(y, {N, D, 1, rows, columns, K}), 2, 0, stride - 1),
                                     {N, D * stride, rows, columns, K});
        // Plane i of these is plane i + `moved` of the output.
        const std::int64_t moved = t * options.dilation[0] - options.padding[0];
        const std::int64_t first = std::max<std::int64_t>(0, -moved),
                           last = std::min(D * stride, outputs - moved);
        if (first >= last) continue;
        const Tensor there = pad(slice(apart, 1, first, last), 1, first + moved, outputs - (last + moved));
        sum = sum ? sum + there : there;
    }
    if (!sum) refuse_here("no plane of the filter reaches the output");
    return options.bias ? call1("add_bias", {sum, *options.bias}) : sum;
}

Tensor max_pool3d(Tensor x, const Pool3dOptions& options, Where at) {
    const auto [planes, depth] = planes_and_depth(options);
    return pooled(
        "max_pool3d", x, [&](Tensor t) { return max_pool2d(t, planes); },
        [&](Tensor t) { return max_pool2d(t, depth); }, at);
}

Tensor average_pool3d(Tensor x, const Pool3dOptions& options, Where at) {
    const auto [planes, depth] = planes_and_depth(options);
    return pooled(
        "average_pool3d", x, [&](Tensor t) { return average_pool2d(t, planes); },
        [&](Tensor t) { return average_pool2d(t, depth); }, at);
}

Tensor adaptive_average_pool3d(Tensor x, std::array<std::int64_t, 3> extents, Where at) {
    return pooled(
        "adaptive_average_pool3d", x,
        [&](Tensor t) {
            return adaptive_average_pool2d(t, {extents[1], extents[2]});
        },
        [&](Tensor t) {
            return adaptive_average_pool2d(t, {extents[0], t.dim(2)});
        },
        at);
}

}  // namespace mantissa::ops
