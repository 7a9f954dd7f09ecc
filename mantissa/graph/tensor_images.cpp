// Images [N, H, W, C] read at other places: resized, and sampled where a grid says. Both read rows of
// channels by their numbers, so that gradients are added up where the channels came from.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "mantissa/graph/graph.h"
#include "mantissa/graph/tensor.h"

namespace mantissa::inline v0::ops {

namespace {

void expect_images(std::string_view op, const Tensor& x) {
    if (x.rank() != 4 || !is_floating(x.dtype()))
        refuse(op, x.graph().origin, fmt::format("expected images [N, H, W, C], got {}", x.type().text()));
    if (x.dim(1) == 0 || x.dim(2) == 0)
        refuse(op, x.graph().origin, fmt::format("there is no pixel to read in {}", x.type().text()));
}

/// The places where an axis of so many pixels is read to make so many others.
struct PlacesOfAxis {
    std::vector<double> first, second;  ///< whole numbers
    std::vector<double> part;           ///< of the second

    PlacesOfAxis(std::int64_t from, std::int64_t to, Sampling sampling, bool align_corners) {
        for (std::int64_t i = 0; i < to; ++i) {
            const double at = sampling == Sampling::nearest ? static_cast<double>(i * from / to)
                              : align_corners               ? (to == 1 ? 0 : ratio(i * (from - 1), to - 1))
                                              : std::max(0.0, ratio((2 * i + 1) * from, 2 * to) - 0.5);
            const double before = std::min(std::floor(at), static_cast<double>(from - 1));
            first.push_back(before);
            second.push_back(std::min(before + 1, static_cast<double>(from - 1)));
            part.push_back(at - before);
        }
    }

    bool between_pixels() const {
        return std::ranges::any_of(part, [](double x) { return x != 0; });
    }

  private:
    static double ratio(std::int64_t a, std::int64_t b) {
        return static_cast<double>(a) / static_cast<double>(b);
    }
};

Tensor resized_along(const Tensor& x, int axis, std::int64_t extent, const ResizeOptions& options) {
    if (extent == x.dim(axis)) return x;
    Graph& graph = x.graph();
    const PlacesOfAxis places(x.dim(axis), extent, options.sampling, options.align_corners);
    const auto read = [&](const std::vector<double>& at) {
        return take(x, axis, literal(graph, at, DType::i32, {extent}));
    };
    if (!places.between_pixels()) return read(places.first);
    std::vector<std::int64_t> shape{1, 1, 1, 1};
    shape[static_cast<std::size_t>(axis)] = extent;
    const Tensor part = literal(graph, places.part, DType::f32, Shape(shape));
    const Tensor a = cast(read(places.first), DType::f32), b = cast(read(places.second), DType::f32);
    return a + (b - a) * part;
}

/// Places from -1 to 1 as pixels: -1 and 1 are the middles of the outermost, or their outer edges.
Tensor in_pixels(const Tensor& place, std::int64_t extent, const GridOptions& options) {
    const auto n = static_cast<double>(extent);
    const Tensor pixels =
        options.align_corners ? (place + 1.0) * ((n - 1) / 2) : ((place + 1.0) * n - 1.0) * 0.5;
    return options.outside == Outside::border ? clamp(pixels, 0, n - 1) : pixels;
}

/// One of the pixels around a place: its number along the axis, as f32, whether it is there, and how much of
/// it is taken.
struct Neighbour {
    Tensor number, is_there, part;
};

std::vector<Neighbour> neighbours(const Tensor& pixels, std::int64_t extent, Sampling sampling) {
    Graph& graph = pixels.graph();
    const Tensor none = constant(graph, -1.0), end = constant(graph, static_cast<double>(extent));
    const auto there = [&](const Tensor& number) {
        return logical_and(less(none, number), less(number, end));
    };
    if (sampling == Sampling::nearest) {
        const Tensor number = round(stop_gradient(pixels));
        return {{number, there(number), constant(graph, 1.0)}};
    }
    const Tensor before = floor(stop_gradient(pixels)), behind = before + 1.0;
    const Tensor part = pixels - before;
    return {{before, there(before), 1.0 - part}, {behind, there(behind), part}};
}

}  // namespace

Tensor resize(Tensor x, std::array<std::int64_t, 2> extents, const ResizeOptions& options, Where at) {
    const LineScope line(x.graph(at), at);
    expect_images("resize", x);
    if (extents[0] < 1 || extents[1] < 1)
        refuse("resize", x.graph().origin,
               fmt::format("images have one row and column or more, got {} and {}", extents[0], extents[1]));
    if (options.sampling == Sampling::nearest && options.align_corners)
        refuse("resize", x.graph().origin, "the nearest pixels have no corners to align");
    // FP32 in between, rounded once.
    return cast(resized_along(resized_along(x, 1, extents[0], options), 2, extents[1], options), x.dtype());
}

Tensor grid_sample(Tensor x, Tensor grid, const GridOptions& options, Where at) {
    const LineScope line(x.graph(at), at);
    Graph& graph = x.graph();
    expect_images("grid_sample", x);
    if (grid.rank() != 4 || grid.dim(0) != x.dim(0) || grid.dim(3) != 2 || !is_floating(grid.dtype()))
        refuse("grid_sample", graph.origin,
               fmt::format("the grid must be [{}, rows, columns, 2], got {}", x.dim(0), grid.type().text()));
    const std::int64_t N = x.dim(0), H = x.dim(1), W = x.dim(2), C = x.dim(3), P = grid.dim(1),
                       Q = grid.dim(2);
    if (N * H * W > (std::int64_t{1} << 24))
        refuse("grid_sample", graph.origin,
               fmt::format("{} has more pixels than FP32 counts, 2^24", x.type().text()));
    const Tensor places = cast(grid, DType::f32);
    const auto axis = [&](std::int64_t which, std::int64_t extent) {
        const Tensor place = reshape(slice(places, 3, which, which + 1), {N, P, Q});
        return neighbours(in_pixels(place, extent, options), extent, options.sampling);
    };
    const std::vector<Neighbour> columns = axis(0, W), rows = axis(1, H);
    const Tensor pixels = reshape(x, {N * H * W, C});
    const Tensor first = iota(graph, {N, P, Q}, 0, DType::f32) * static_cast<double>(H * W);
    const Tensor zero = constant(graph, 0.0);
    Tensor y;
    for (const Neighbour& row : rows)
        for (const Neighbour& column : columns) {
            const Tensor there = logical_and(row.is_there, column.is_there);
            const Tensor number = first + row.number * static_cast<double>(W) + column.number;
            const Tensor read = embedding(pixels, cast(select(there, number, zero), DType::i32));
            const Tensor part = reshape(select(there, row.part * column.part, zero), {N, P, Q, 1});
            const Tensor seen = cast(read, DType::f32) * part;
            y = y ? y + seen : seen;
        }
    return cast(y, x.dtype());
}

}  // namespace mantissa::ops
