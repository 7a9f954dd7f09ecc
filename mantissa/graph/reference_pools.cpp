#include "mantissa/graph/reference_pools.h"

#include <cmath>

#include "mantissa/graph/pooling.h"

namespace mantissa::inline v0::reference {

namespace {

using Values = std::vector<double>;

/// Element (n, h, w, c) of images of a shape.
std::size_t place(const Shape& shape, std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t c) {
    return static_cast<std::size_t>(((n * shape[1] + h) * shape[2] + w) * shape[3] + c);
}

/// One window of one channel.
struct Window {
    PoolSpan rows, columns;
    std::size_t output = 0;
    std::int64_t n = 0, c = 0;

    /// body(element of the image, element of the window) for each that lies inside the image, in order.
    template <class Body>
    void for_each(const Shape& image, std::int64_t width, Body&& body) const {
        for (std::int64_t h = rows.first; h < rows.last; ++h)
            for (std::int64_t w = columns.first; w < columns.last; ++w)
                body(place(image, n, h, w, c), (h - rows.start) * width + (w - columns.start));
    }
    double count() const { return static_cast<double>(rows.count * columns.count); }
};

/// body(window) for every output of a pool of images, in the outputs' order.
template <class Body>
void for_each_window(const Attributes& attributes, const Shape& image, Body&& body) {
    const std::vector<PoolSpan> rows = pool_spans(attributes, 0, image[1]),
                                columns = pool_spans(attributes, 1, image[2]);
    std::size_t output = 0;
    for (std::int64_t n = 0; n < image[0]; ++n)
        for (const PoolSpan& row : rows)
            for (const PoolSpan& column : columns)
                for (std::int64_t c = 0; c < image[3]; ++c) body(Window{row, column, output++, n, c});
}

Values zeros(const Type& type) { return Values(type.shape.elements()); }

/// Elements in a row of a window; never asked of an adaptive pool.
std::int64_t width_of(const Attributes& attributes) {
    return attributes.has("window") ? attributes.list("window")[1] : 0;
}

}  // namespace

std::vector<Values> max_pool2d(const Node& node, Inputs in) {
    Values y = zeros(node.outputs[0]), index = zeros(node.outputs[1]);
    const Shape& image = in[0]->type.shape;
    const std::int64_t width = width_of(node.attributes);
    for_each_window(node.attributes, image, [&](const Window& window) {
        bool any = false;
        double& most = y[window.output];
        window.for_each(image, width, [&](std::size_t from, std::int64_t element) {
            const double x = in[0]->values[from];
            // The first of equal elements stays, and the first NaN.
            const bool wins = !any || x > most || (std::isnan(x) && !std::isnan(most));
            any = true;
            if (!wins) return;
            most = x;
            index[window.output] = static_cast<double>(element);
        });
    });
    return {y, index};
}

std::vector<Values> max_pool2d_grad(const Node& node, Inputs in) {
    Values dx = zeros(node.outputs[0]);
    const Shape& image = node.outputs[0].shape;
    for_each_window(node.attributes, image, [&](const Window& window) {
        window.for_each(image, width_of(node.attributes), [&](std::size_t to, std::int64_t element) {
            if (static_cast<double>(element) == in[1]->values[window.output])
                dx[to] += in[0]->values[window.output];
        });
    });
    return {dx};
}

std::vector<Values> average_pool2d(const Node& node, Inputs in) {
    Values y = zeros(node.outputs[0]);
    const Shape& image = in[0]->type.shape;
    for_each_window(node.attributes, image, [&](const Window& window) {
        double& total = y[window.output];
        window.for_each(image, 0, [&](std::size_t from, std::int64_t) { total += in[0]->values[from]; });
        total /= window.count();
    });
    return {y};
}

std::vector<Values> average_pool2d_grad(const Node& node, Inputs in) {
    Values dx = zeros(node.outputs[0]);
    const Shape& image = node.outputs[0].shape;
    for_each_window(node.attributes, image, [&](const Window& window) {
        window.for_each(image, 0, [&](std::size_t to, std::int64_t) {
            dx[to] += in[0]->values[window.output] / window.count();
        });
    });
    return {dx};
}

}  // namespace mantissa::reference
