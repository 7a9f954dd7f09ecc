#include "tests/support/image_cases.h"

#include <algorithm>
#include <iterator>

#include "mantissa/graph/call.h"

namespace mantissa::testing {

std::vector<OpCase> cases_of_convolution(const std::string& name, const Shape& images, const Shape& filter,
                                         const Conv2dOptions& options) {
    std::vector<OpCase> cases;
    Graph sizes;
    const auto input = [&](const char* of, Shape shape) {
        return Tensor(sizes, sizes.add_input(of, {DType::f32, std::move(shape)}));
    };
    const Tensor y = conv2d(input("x", images), input("filter", filter), options);
    const Shape outputs = y.shape();
    const Attributes attributes = sizes.node(y.value().node).attributes;
    const double terms =
        static_cast<double>(filter[0] * filter[1] * (filter[2] + filter[3] / options.groups));
    cases.push_back({"conv2d",
                     fmt::format("conv2d {}", name),
                     {f32(images), f32(filter)},
                     [=](Graph& g, In x) { return call(g, "conv2d", x, attributes); },
                     {1, terms}});
    const Attributes of_input = attributes.with("extents", std::vector<std::int64_t>{images[1], images[2]});
    cases.push_back({"conv2d_input_gradient",
                     fmt::format("conv2d_input_gradient {}", name),
                     {f32(outputs), f32(filter)},
                     [=](Graph& g, In x) { return call(g, "conv2d_input_gradient", x, of_input); },
                     {1, terms}});
    const Attributes of_filter = attributes.with("window", std::vector<std::int64_t>{filter[0], filter[1]});
    cases.push_back({"conv2d_filter_gradient",
                     fmt::format("conv2d_filter_gradient {}", name),
                     {f32(images), f32(outputs)},
                     [=](Graph& g, In x) { return call(g, "conv2d_filter_gradient", x, of_filter); },
                     {1, static_cast<double>(images[0] * outputs[1] * outputs[2])}});
    return cases;
}

namespace {

/// Filters of one channel each: steps of columns with and without a remainder, windows beyond the image, and
/// more pixels than a GPU has threads.
std::vector<OpCase> depthwise_cases() {
    std::vector<OpCase> cases;
    const auto add = [&](const char* name, const Shape& images, std::int64_t rows, std::int64_t columns,
                         Conv2dOptions options) {
        const std::int64_t channels = images[3];
        options.groups = channels;
        std::ranges::move(cases_of_convolution(fmt::format("of each channel, {}", name), images,
                                               {rows, columns, 1, channels}, options),
                          std::back_inserter(cases));
    };
    add("7x7", {2, 9, 19, 64}, 7, 7, {.padding = {3, 3, 3, 3}});
    add("7x7 of small images", {3, 7, 7, 6}, 7, 7, {.padding = {3, 3, 3, 3}});
    add("windows of a pixel", {2, 4, 5, 7}, 1, 1, {});
    add("windows beyond the image", {2, 2, 3, 34}, 7, 5, {.padding = {3, 3, 2, 2}});
    add("of one channel", {2, 6, 11, 1}, 3, 3, {.padding = {1, 1, 1, 1}});
    add("strided and dilated", {2, 12, 23, 10}, 3, 3,
        {.stride = {2, 2}, .padding = {2, 1, 2, 3}, .dilation = {2, 2}});
    add("strides beyond the filter", {2, 9, 20, 5}, 2, 2, {.stride = {3, 3}, .padding = {0, 2, 1, 0}});
    add("wide", {1, 3, 40, 4}, 2, 19, {.padding = {1, 0, 9, 9}});
    add("tall images", {1, 70, 2, 2}, 4, 1, {.padding = {3, 0, 0, 0}});
    add("many channels", {37, 2, 1, 2048}, 9, 9, {.padding = {4, 4, 4, 4}});
    cases.push_back(
        {"conv2d",
         "conv2d of each channel, with a bias",
         {f32({1, 3, 10, 6}), f32({3, 3, 1, 6}), f32({6})},
         [](Graph&, In x) {
             const Conv2dOptions options{.padding = {1, 1, 1, 1}, .groups = x[2].shape()[0], .bias = x[2]};
             return std::vector{conv2d(x[0], x[1], options)};
         },
         {1, 12}});
    // A view of 16-bit numbers that begins inside a 32-bit word.
    cases.push_back({"conv2d",
                     "conv2d of each channel, behind another element",
                     {f32({1 + 3 * 5 * 4}), f32({3, 3, 1, 4})},
                     [](Graph&, In x) {
                         const Tensor images = reshape(slice(x[0], 0, 1, 61), {1, 3, 5, 4});
                         return std::vector{conv2d(images, x[1], {.groups = 4})};
                     },
                     {1, 11}});
    return cases;
}

std::vector<OpCase> convolution_cases() {
    std::vector<OpCase> cases = depthwise_cases();
    const auto add = [&](const char* name, std::int64_t channels, const Shape& filter,
                         const Conv2dOptions& options) {
        std::ranges::move(cases_of_convolution(name, {2, 5, 4, channels}, filter, options),
                          std::back_inserter(cases));
    };
    add("3x3", 5, {3, 3, 5, 4}, {.padding = {1, 1, 1, 1}});
    add("1x1", 5, {1, 1, 5, 3}, {});
    add("1x1 of stride 2", 5, {1, 1, 5, 3}, {.stride = {2, 2}});
    add("3x2 of stride 2 and 3", 3, {3, 2, 3, 5}, {.stride = {2, 3}, .padding = {1, 0, 0, 1}});
    add("2x3, dilated", 3, {2, 3, 3, 2}, {.padding = {2, 1, 2, 3}, .dilation = {3, 2}});
    add("strided and dilated", 2, {3, 2, 2, 3},
        {.stride = {2, 2}, .padding = {2, 2, 0, 0}, .dilation = {2, 3}});
    add("in groups", 6, {3, 3, 2, 9}, {.padding = {1, 1, 1, 1}, .groups = 3});
    add("of each channel", 37, {3, 3, 1, 37}, {.stride = {2, 1}, .padding = {1, 1, 1, 1}, .groups = 37});
    add("of each channel, dilated", 18, {3, 2, 1, 18},
        {.padding = {2, 2, 0, 3}, .dilation = {2, 3}, .groups = 18});
    add("in groups of four", 20, {3, 3, 4, 20}, {.padding = {1, 1, 1, 1}, .groups = 5});
    add("padded beyond the filter", 2, {2, 2, 2, 3}, {.padding = {4, 3, 3, 5}});
    cases.push_back({"conv2d",
                     "conv2d with a bias",
                     {f32({1, 3, 4, 5}), f32({2, 2, 5, 7}), f32({7})},
                     [](Graph&, In x) { return std::vector{conv2d(x[0], x[1], {.bias = x[2]})}; },
                     {1, 21}});
    return cases;
}

/// Cases of one row of statistics, and of several in sequence.
std::vector<OpCase> running_average_cases() {
    const auto history = [](Graph& g, In x) { return call(g, "running_history", x); };
    const auto average = [](Graph& g, In x) { return call(g, "running_average", x, {{"momentum", 0.1}}); };
    return {{"running_average", "running_average", {f32({19}), f32({19})}, average, {2, 4}},
            {"running_average", "running_average of three rows", {f32({19}), f32({3, 19})}, average, {2, 4}},
            {"running_average", "running_average of a matrix", {f32({3, 19}), f32({3, 19})}, average, {2, 4}},
            {"running_history", "running_history", {f32({3, 5}), f32({3})}, history},
            {"running_history", "running_history of two rows", {f32({3, 5}), f32({2, 3})}, history},
            {"running_history", "running_history of one number", {f32({3, 1}), f32({2, 3})}, history}};
}

/// Rows of images are summed one after another; scales have some roundings of their own. In 16 bits, y may
/// round either way: with beta added, it may be small beside the rounded terms.
std::vector<OpCase> batch_norm_cases() {
    const Attributes epsilon{{"epsilon", 1e-5}};
    std::vector<OpCase> cases;
    for (const Shape& x : {Shape{2, 3, 5, 7}, Shape{37, 33}, Shape{1, 4}}) {
        const Operand images = f32(x), scale = f32({x[-1]});
        const double rows = static_cast<double>(x.elements() / x[-1]);
        const std::string note = fmt::format(" of {}", x.text());
        cases.push_back({"batch_norm",
                         "batch_norm" + note,
                         {images, scale, scale},
                         [=](Graph& g, In in) { return call(g, "batch_norm", in, epsilon); },
                         {8, rows, 2}});
        cases.push_back(
            {"batch_norm_grad",
             "batch_norm_grad" + note,
             {images, images, scale},
             [=](Graph& g, In in) {
                 const Tensor beta = constant(g, 0.0, in[2].dtype(), in[2].shape());
                 const auto y = call(g, "batch_norm", std::vector{in[1], in[2], beta}, epsilon);
                 return call(g, "batch_norm_grad", std::vector{in[0], in[1], in[2], y[1], y[3]}, epsilon);
             },
             {16, 2 * rows, 2}});
        cases.push_back({"moments",
                         "moments" + note,
                         {images},
                         [=](Graph& g, In in) { return call(g, "moments", in, epsilon); },
                         {8, rows}});
        cases.push_back({"normalize",
                         "normalize" + note,
                         {images, scale, scale, scale, f32({x[-1]}, Values::positive)},
                         [=](Graph& g, In in) { return call(g, "normalize", in, epsilon); },
                         {8, 4, 2}});
    }
    for (OpCase& each : running_average_cases()) cases.push_back(std::move(each));
    return cases;
}

/// A pool and its gradient. An average sums a window and divides once.
void add_pool_cases(std::vector<OpCase>& cases, const char* op, const char* note, Shape x,
                    const Attributes& attributes, double terms) {
    const std::string gradient = fmt::format("{}_grad", op);
    const auto pool = [=](Graph& g, In in) { return call(g, op, in, attributes); };
    cases.push_back({op, fmt::format("{} {}", op, note), {f32(x)}, pool, {1, terms}});
    cases.push_back(
        {gradient,
         fmt::format("{} {}", gradient, note),
         {f32(x), f32(x)},
         [=](Graph& g, In in) {
             const auto y = pool(g, {in[0]});
             const Attributes own = attributes.with("image", std::vector<std::int64_t>{x[1], x[2]});
             // A gradient of y's shape, made from the second operand.
             const auto dy = pool(g, {in[1]});
             std::vector<Tensor> operands{dy[0]};
             if (y.size() == 2) operands.push_back(y[1]);
             return call(g, gradient, operands, own);
         },
         // dy is stored before it is spread.
         {2, 3 * terms, 2}});
}

std::vector<OpCase> pool_cases() {
    using List = std::vector<std::int64_t>;
    const auto windows = [](List window, List stride, List padding) {
        return Attributes{
            {"window", std::move(window)}, {"stride", std::move(stride)}, {"padding", std::move(padding)}};
    };
    const Attributes overlapping = windows({3, 3}, {2, 2}, {1, 1, 1, 1}),
                     apart = windows({2, 1}, {3, 2}, {0, 1, 0, 0}),
                     whole = windows({2, 2}, {2, 2}, {0, 0, 0, 0});
    std::vector<OpCase> cases;
    for (const char* op : {"max_pool2d", "average_pool2d"}) {
        const bool is_max = std::string_view(op) == "max_pool2d";
        const auto add = [&](const char* note, Shape x, const Attributes& attributes) {
            add_pool_cases(cases, op, note, std::move(x),
                           is_max ? attributes : attributes.with("count_padding", false), is_max ? 0 : 9);
        };
        add("with overlaps and padding", {2, 7, 6, 5}, overlapping);
        add("with gaps", {1, 8, 5, 17}, apart);
        add("of what is left over", {2, 6, 8, 3}, overlapping.with("ceil_mode", true));
        add("of whole windows", {2, 4, 6, 3}, whole);
    }
    cases.push_back({"max_pool2d",
                     "max_pool2d, which of infinities and NaN",
                     {f32({2, 7, 6, 5}, Values::finite_or_not)},
                     [=](Graph& g, In x) { return std::vector{call(g, "max_pool2d", x, overlapping)[1]}; }});
    add_pool_cases(cases, "average_pool2d", "that counts padding", {2, 7, 6, 5},
                   overlapping.with("count_padding", true), 9);
    add_pool_cases(cases, "adaptive_average_pool2d", "to fewer", {2, 7, 5, 4}, {{"extents", List{3, 2}}}, 9);
    add_pool_cases(cases, "adaptive_average_pool2d", "to more", {1, 2, 3, 4}, {{"extents", List{3, 7}}}, 9);
    return cases;
}

}  // namespace

std::vector<OpCase> image_cases() {
    std::vector<OpCase> all = convolution_cases();
    for (auto cases : {batch_norm_cases(), pool_cases()}) std::ranges::move(cases, std::back_inserter(all));
    return all;
}

}  // namespace mantissa::testing
