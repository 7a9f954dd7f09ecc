// The three products of a convolution on whole numbers: exactly what plain loops give, at every level, in
// every format, for awkward sizes.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "mantissa/base/random.h"
#include "mantissa/codegen/compiler.h"
#include "mantissa/graph/call.h"
#include "mantissa/graph/convolution.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/tensor.h"
#include "mantissa/runtime/plan.h"
#include "tests/support/error_of.h"
#include "tests/support/random_draws.h"
#include "tests/support/run_graph.h"
#include "tests/support/tested_gpu.h"

namespace mantissa {
namespace {

using testing::device_at;
using testing::levels;
using testing::loaded;
using testing::run;

/// Draws sizes, one after another.
class Draw {
  public:
    explicit Draw(std::uint64_t seed) : random_{.seed = seed} {}
    std::int64_t operator()(std::int64_t least, std::int64_t most) {
        return least + static_cast<std::int64_t>(random_.bits(next_++) %
                                                 static_cast<std::uint32_t>(most - least + 1));
    }

  private:
    RandomStream random_;
    std::uint64_t next_ = 0;
};

struct ConvolutionCase {
    Shape x, filter;
    Conv2dOptions options;
    bool bias = false;
};

/// The filter, and images that it fits with little room.
void set_sizes(ConvolutionCase& c, Draw& draw, Shape filter) {
    const auto extent = [&](int axis) {
        const auto at = static_cast<std::size_t>(axis);
        const std::int64_t covered = (filter[axis] - 1) * c.options.dilation[at] + 1;
        const std::int64_t padding = c.options.padding[2 * at] + c.options.padding[2 * at + 1];
        return std::max<std::int64_t>(1, covered - padding + draw(0, 11));
    };
    c.x = {draw(1, 3), extent(0), extent(1), filter[2] * c.options.groups};
    c.filter = std::move(filter);
}

/// Sizes at the edges of panels and below, strides beyond the filter, padding beyond the image, groups.
ConvolutionCase random_case(Draw& draw) {
    ConvolutionCase c;
    c.options.groups = draw(0, 4) == 0 ? draw(2, 3) : 1;
    const std::int64_t channels = draw(0, 5) == 0 ? draw(30, 70) : draw(1, 9);
    const std::int64_t filters = draw(0, 5) == 0 ? draw(30, 70) : draw(1, 9);
    const std::int64_t r = draw(1, 4), s = draw(1, 4);
    for (std::int64_t& number : c.options.stride) number = draw(1, 3);
    for (std::int64_t& number : c.options.dilation) number = draw(0, 2) == 0 ? draw(2, 3) : 1;
    for (std::int64_t& number : c.options.padding) number = draw(0, 1) * draw(0, 5);
    set_sizes(c, draw, {r, s, channels, filters * c.options.groups});
    c.bias = draw(0, 2) == 0;
    return c;
}

std::vector<double> whole_numbers(const Shape& shape, std::uint32_t which) {
    const RandomStream random{.seed = 5, .operation = which};
    std::vector<double> values(static_cast<std::size_t>(shape.elements()));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(random.bits(i) % 7) - 3;
    return values;
}

/// Plain loops over the definition: window(x, filter, y) for each pixel that a group's outputs meet, with the
/// first of its channels, of its filters' elements and of its outputs.
template <class Window>
void for_each_window(const Convolution& of, Window&& window) {
    const auto pixel = [](const ConvolutionAxis& axis, std::int64_t place, std::int64_t tap) {
        const std::int64_t at = axis.image_place(place, tap);
        return at < axis.image ? at : -1;
    };
    std::int64_t y = 0;
    for (std::int64_t n = 0; n < of.images; ++n)
        for (std::int64_t i = 0; i < of.vertical.output; ++i)
            for (std::int64_t j = 0; j < of.horizontal.output; ++j, y += of.filters)
                for (std::int64_t r = 0; r < of.vertical.filter; ++r)
                    for (std::int64_t s = 0; s < of.horizontal.filter; ++s) {
                        const std::int64_t h = pixel(of.vertical, i, r), w = pixel(of.horizontal, j, s);
                        if (h < 0 || w < 0) continue;
                        const std::int64_t x =
                            ((n * of.vertical.image + h) * of.horizontal.image + w) * of.channels;
                        const std::int64_t tap =
                            (r * of.horizontal.filter + s) * of.group_channels() * of.filters;
                        for (std::int64_t group = 0; group < of.groups; ++group)
                            window(x + group * of.group_channels(), tap + group * of.group_filters(),
                                   y + group * of.group_filters());
                    }
}

/// A convolution and its gradients as plain loops have them, and as graphs.
class Products {
  public:
    explicit Products(const ConvolutionCase& c) : case_(c) {
        const std::vector<Type> types{{DType::f32, c.x}, {DType::f32, c.filter}};
        Graph sizes;
        const Tensor y = conv2d({sizes, sizes.add_input("x", types[0])},
                                {sizes, sizes.add_input("filter", types[1])}, without_bias());
        attributes_ = sizes.node(y.value().node).attributes;
        of_ = convolution_of(types, attributes_);
        x_ = whole_numbers(of_.x_shape(), 1);
        filter_ = whole_numbers(of_.filter_shape(), 2);
        dy_ = whole_numbers(of_.y_shape(), 3);
        bias_ = whole_numbers({of_.filters}, 4);
        compute();
        feed_ = {{"x", x_}, {"filter", filter_}, {"dy", dy_}, {"bias", bias_}};
    }

    void expect_exact(DType dtype, Device& device) const {
        expect(forward(dtype), y_, "conv2d", device);
        expect_exact_input_gradient(dtype, device);
        expect(filter_gradient(dtype), dfilter_, "conv2d_filter_gradient", device);
    }

    void expect_exact_input_gradient(DType dtype, Device& device) const {
        expect(input_gradient(dtype), dx_, "conv2d_input_gradient", device);
    }

    void expect_exact_filter_gradient(DType dtype, Device& device, const std::string& kernel) const {
        const Plan plan(filter_gradient(dtype), device);
        EXPECT_EQ(plan.nodes().back().kernel, kernel) << text();
        expect(filter_gradient(dtype), dfilter_, "conv2d_filter_gradient", device);
    }

    std::string text() const {
        const std::vector<Type> types{{DType::f32, case_.x}, {DType::f32, case_.filter}};
        return types[0].text() + " " + types[1].text() + " " + attributes_.text();
    }

  private:
    Conv2dOptions without_bias() const {
        Conv2dOptions options = case_.options;
        options.bias.reset();
        return options;
    }

    void compute() {
        y_.assign(dy_.size(), 0);
        dx_.assign(x_.size(), 0);
        dfilter_.assign(filter_.size(), 0);
        // Pixels that no window meets must meet nothing, not even a zero.
        std::vector<bool> met(x_.size());
        const std::int64_t channels = of_.group_channels(), filters = of_.group_filters();
        for_each_window(of_, [&](std::int64_t x, std::int64_t, std::int64_t) {
            std::fill_n(met.begin() + x, channels, true);
        });
        for (std::size_t i = 0; i < x_.size(); ++i)
            if (!met[i]) x_[i] = INFINITY;
        if (case_.bias)
            for (std::size_t i = 0; i < y_.size(); ++i) y_[i] = bias_[i % bias_.size()];
        for_each_window(of_, [&](std::int64_t first, std::int64_t tap, std::int64_t y) {
            for (std::int64_t x = first; x < first + channels; ++x, tap += of_.filters)
                for (std::int64_t k = 0; k < filters; ++k) {
                    y_[y + k] += x_[x] * filter_[tap + k];
                    dx_[x] += dy_[y + k] * filter_[tap + k];
                    dfilter_[tap + k] += dy_[y + k] * x_[x];
                }
        });
    }

    static Tensor input(Graph& graph, const char* name, DType dtype, Shape shape) {
        return {graph, graph.add_input(name, {dtype, std::move(shape)})};
    }

    Attributes in_f32(DType dtype) const {
        return dtype == DType::f32 ? attributes_ : attributes_.with("output", DType::f32);
    }

    Graph forward(DType dtype) const {
        Graph graph;
        std::vector<Tensor> inputs{input(graph, "x", dtype, of_.x_shape()),
                                   input(graph, "filter", dtype, of_.filter_shape())};
        if (case_.bias) inputs.push_back(input(graph, "bias", dtype, {of_.filters}));
        graph.add_result("y", call(graph, "conv2d", inputs, in_f32(dtype))[0].value());
        return graph;
    }

    Graph input_gradient(DType dtype) const {
        Graph graph;
        const std::vector<Tensor> inputs{input(graph, "dy", dtype, of_.y_shape()),
                                         input(graph, "filter", dtype, of_.filter_shape())};
        const std::vector<std::int64_t> extents{of_.vertical.image, of_.horizontal.image};
        graph.add_result(
            "dx",
            call(graph, "conv2d_input_gradient", inputs, in_f32(dtype).with("extents", extents))[0].value());
        return graph;
    }

    Graph filter_gradient(DType dtype) const {
        Graph graph;
        const std::vector<Tensor> inputs{input(graph, "x", dtype, of_.x_shape()),
                                         input(graph, "dy", dtype, of_.y_shape())};
        const std::vector<std::int64_t> window{of_.vertical.filter, of_.horizontal.filter};
        graph.add_result(
            "dfilter",
            call(graph, "conv2d_filter_gradient", inputs, in_f32(dtype).with("window", window))[0].value());
        return graph;
    }

    void expect(const Graph& graph, const std::vector<double>& expected, const char* what,
                Device& device) const {
        const std::vector<double> got = loaded(run(graph, feed_, device)[0], DType::f32);
        ASSERT_EQ(got.size(), expected.size());
        for (std::size_t i = 0; i < got.size(); ++i)
            ASSERT_EQ(got[i], expected[i]) << what << ", element " << i << " of " << text();
    }

    ConvolutionCase case_;
    Attributes attributes_;
    Convolution of_;
    std::vector<double> x_, filter_, dy_, bias_, y_, dx_, dfilter_;
    ReferenceFeed feed_;
};

void expect_exact_on(const std::vector<ConvolutionCase>& cases,
                     const std::map<std::string, Device*>& devices) {
    for (const ConvolutionCase& c : cases) {
        const Products products(c);
        for (const auto& [name, device] : devices)
            for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
                SCOPED_TRACE(name + " " + std::string(name_of(dtype)));
                products.expect_exact(dtype, *device);
                if (::testing::Test::HasFatalFailure()) return;
            }
    }
}

void expect_exact_at_every_level(const std::vector<ConvolutionCase>& cases) {
    std::vector<std::unique_ptr<Device>> devices;
    std::map<std::string, Device*> by_name;
    for (const std::string& level : levels()) {
        devices.push_back(device_at(level));
        by_name[level] = devices.back().get();
    }
    expect_exact_on(cases, by_name);
}

TEST(Convolution, OfAwkwardSizesIsExactOnWholeNumbers) {
    Draw draw(1);
    std::vector<ConvolutionCase> cases;
    for (int i = 0; i < 300; ++i) cases.push_back(random_case(draw));
    expect_exact_at_every_level(cases);
}

/// The kinds of convolution that ResNet50, VGG19 and DenseNet121 have, with fewer channels.
TEST(Convolution, OfTheNetworksKindsIsExactOnWholeNumbers) {
    const auto same = [](std::int64_t stride) {
        return Conv2dOptions{.stride = {stride, stride}, .padding = {1, 1, 1, 1}};
    };
    expect_exact_at_every_level({
        {{1, 30, 30, 3}, {7, 7, 3, 64}, {.stride = {2, 2}, .padding = {3, 3, 3, 3}}},
        {{2, 14, 14, 64}, {3, 3, 64, 64}, same(1)},
        {{2, 14, 14, 40}, {3, 3, 40, 48}, same(2)},
        {{2, 14, 14, 64}, {1, 1, 64, 96}, {}},
        {{2, 14, 14, 64}, {1, 1, 64, 96}, {.stride = {2, 2}}},
        {{2, 7, 7, 128}, {3, 3, 128, 32}, same(1)},
        {{2, 28, 28, 3}, {3, 3, 3, 64}, same(1)},
        {{1, 9, 9, 32}, {3, 3, 1, 32}, {.padding = {1, 1, 1, 1}, .groups = 32}},
    });
}

/// Groups of few channels, which have kernels of their own on a CPU: depthwise, with several filters a
/// channel, groups that fill a vector, do not or are wider; windows up to 7 and beyond, one pixel, padding
/// and dilation beyond the image.
TEST(Convolution, InGroupsOfFewChannelsIsExactOnWholeNumbers) {
    Draw draw(3);
    std::vector<ConvolutionCase> cases{
        {{2, 1, 1, 40}, {3, 3, 1, 40}, {.padding = {1, 1, 1, 1}, .groups = 40}},
        {{1, 3, 2, 17}, {7, 7, 1, 17}, {.padding = {3, 3, 3, 3}, .groups = 17}},
        {{1, 4, 5, 16}, {3, 3, 1, 16}, {.padding = {9, 9, 9, 9}, .dilation = {9, 9}, .groups = 16}},
        {{2, 30, 31, 33}, {7, 7, 1, 33}, {.stride = {2, 2}, .padding = {3, 3, 3, 3}, .groups = 33}},
        {{9, 21, 20, 130}, {3, 3, 1, 130}, {.padding = {1, 1, 1, 1}, .groups = 130}},
        {{1, 3, 40, 5}, {1, 4, 1, 5}, {.padding = {0, 0, 3, 0}, .groups = 5}, true},
        {{1, 8, 9, 6}, {2, 2, 1, 6}, {.stride = {1, 9}, .groups = 6}},
    };
    // Windows of three, whose kernels take a group's channels, or pairs of them or of pixels, from one plane.
    for (const Shape& group : {Shape{2, 2}, Shape{2, 1}, Shape{4, 4}, Shape{8, 8}, Shape{16, 16},
                               Shape{3, 16}, Shape{6, 16}, Shape{16, 5}})
        for (const std::int64_t stride : {1, 2})
            for (const std::int64_t columns : {3, 8, 17, 30})
                cases.push_back(
                    {{2, 6, columns, 3 * group[0]},
                     {3, 3, group[0], 3 * group[1]},
                     {.stride = {stride, stride}, .padding = {1, 1, columns % 2, 1}, .groups = 3}});
    // One group that gives sixteen channels, forward or backward.
    for (const Shape& group : {Shape{16, 16}, Shape{1, 16}, Shape{3, 16}, Shape{16, 7}})
        for (const std::int64_t stride : {1, 2})
            cases.push_back({{2, 7, 21, group[0]},
                             {3, 3, group[0], group[1]},
                             {.stride = {stride, stride}, .padding = {1, 0, 1, 1}}});
    // Depthwise: each window that has a kernel and some that have none, with channels beyond the last whole
    // vector.
    for (const std::int64_t window : {1, 2, 3, 4, 5, 7})
        for (const std::int64_t stride : {1, 2})
            for (const std::int64_t columns : {6, 33}) {
                const std::int64_t channels = columns == 6 ? 44 : 19, beside = window / 2;
                cases.push_back({{1, 7, columns, channels},
                                 {window, window, 1, channels},
                                 {.stride = {stride, stride},
                                  .padding = {beside, columns % 2, beside, beside},
                                  .groups = channels}});
            }
    for (int i = 0; i < 50; ++i) {
        constexpr std::int64_t windows[] = {1, 2, 3, 3, 5, 5, 7, 8};
        constexpr std::int64_t widths[] = {1, 1, 1, 2, 3, 4, 8, 16, 24, 32, 33};
        ConvolutionCase c = random_case(draw);
        const std::int64_t channels = widths[draw(0, 10)];
        const std::int64_t filters = draw(0, 2) == 0 ? widths[draw(0, 10)] : channels;
        c.options.groups = draw(2, channels > 4 ? 3 : 40);
        set_sizes(c, draw, {windows[draw(0, 7)], windows[draw(0, 7)], channels, filters * c.options.groups});
        cases.push_back(c);
    }
    expect_exact_at_every_level(cases);
}

TEST(CudaConvolution, IsExactOnWholeNumbers) {
    if (std::string reason = codegen::Compiler::refusal(); !reason.empty()) GTEST_SKIP() << reason;
    Draw draw(2);
    std::vector<ConvolutionCase> cases{
        {{1, 12, 12, 3}, {7, 7, 3, 16}, {.stride = {2, 2}, .padding = {3, 3, 3, 3}}},
        {{2, 5, 5, 24}, {3, 3, 24, 16}, {.padding = {1, 1, 1, 1}}, true}};
    for (int i = 0; i < 20; ++i) cases.push_back(random_case(draw));
    const testing::TestedGpu gpu;
    expect_exact_on(cases, {{"cuda", &*gpu}});
}

/// By turns in one of the two formats, which differ in one instruction.
void expect_exact_filter_gradients(const std::vector<ConvolutionCase>& cases) {
    const testing::TestedGpu gpu;
    for (std::size_t i = 0; i < cases.size() && !::testing::Test::HasFatalFailure(); ++i) {
        const DType dtype = i % 2 == 0 ? DType::bf16 : DType::f16;
        const std::string name(name_of(dtype));
        Products(cases[i]).expect_exact_filter_gradient(
            dtype, *gpu, "tiles of windows " + name + "*" + name + "+f32 tensor cores");
    }
}

/// Windows of several taps, in tiles of channels and filters that are full and that are not.
TEST(CudaConvolution, FilterGradientsOfTilesAreExactOnWholeNumbers) {
    if (std::string reason = codegen::Compiler::refusal(); !reason.empty()) GTEST_SKIP() << reason;
    const std::vector<ConvolutionCase> cases{
        {{2, 7, 7, 64}, {3, 3, 64, 64}, {.padding = {1, 1, 1, 1}}},
        {{3, 9, 12, 128}, {3, 3, 128, 72}, {.padding = {1, 1, 1, 1}}},
        {{1, 8, 11, 56}, {5, 5, 56, 48}, {.padding = {2, 2, 2, 2}}},
        {{1, 7, 33, 64}, {1, 7, 64, 40}, {.padding = {0, 0, 3, 3}}},
        {{2, 13, 5, 64}, {7, 1, 64, 64}, {.padding = {3, 3, 0, 0}}},
        {{2, 9, 10, 64}, {3, 3, 64, 48}, {.stride = {2, 2}, .padding = {1, 1, 1, 1}}},
        {{2, 11, 14, 64}, {2, 4, 64, 64}, {.stride = {1, 3}, .padding = {0, 1, 2, 0}}},
        {{2, 9, 13, 48}, {3, 3, 48, 64}, {.padding = {2, 2, 2, 2}, .dilation = {2, 2}}},
        {{2, 8, 9, 64}, {3, 2, 64, 64}, {.padding = {0, 3, 4, 0}, .dilation = {1, 3}}},
        {{2, 6, 7, 64}, {4, 3, 64, 64}, {}},
        {{1, 3, 5, 64}, {3, 3, 64, 64}, {}},
        {{1, 20, 70, 64}, {3, 3, 64, 64}, {.padding = {1, 1, 1, 1}}},
        {{3, 5, 6, 64}, {1, 1, 64, 64}, {.padding = {1, 0, 0, 1}}},
        {{2, 9, 30, 32}, {3, 3, 32, 32}, {.padding = {1, 1, 1, 1}}},
        {{1, 9, 70, 24}, {3, 3, 24, 128}, {.padding = {1, 1, 1, 1}}},
        {{2, 9, 10, 128}, {5, 5, 128, 32}, {.padding = {2, 1, 1, 2}}},
        {{1, 17, 41, 64}, {7, 7, 64, 64}, {.stride = {2, 2}, .padding = {3, 3, 3, 3}}},
    };
    expect_exact_filter_gradients(cases);
    // Blocks of several stages.
    expect_exact_filter_gradients(testing::some_of<ConvolutionCase>(
        {
            {{8, 30, 40, 32}, {3, 3, 32, 32}, {.padding = {1, 1, 1, 1}}},
            {{8, 24, 30, 64}, {3, 3, 64, 64}, {.padding = {1, 1, 1, 1}}},
            {{1, 24, 30, 128}, {5, 5, 128, 128}, {.padding = {2, 2, 2, 2}}},
            {{2, 25, 60, 64}, {7, 7, 64, 64}, {.stride = {2, 2}, .padding = {3, 3, 3, 3}}},
        },
        4));
}

/// A filter a channel: columns in steps with and without a remainder, windows from a pixel to more than the
/// image, filters that are taken piece by piece, and pixels that are added up in many parts.
TEST(CudaConvolution, OfEachChannelIsExactOnWholeNumbers) {
    if (std::string reason = codegen::Compiler::refusal(); !reason.empty()) GTEST_SKIP() << reason;
    Draw draw(4);
    std::vector<ConvolutionCase> cases{
        {{2, 9, 19, 64}, {7, 7, 1, 64}, {.padding = {3, 3, 3, 3}, .groups = 64}, true},
        {{1, 3, 70, 6}, {2, 64, 1, 6}, {.padding = {1, 0, 30, 33}, .groups = 6}},
        {{2, 3, 9, 2}, {3, 3, 1, 2}, {.stride = {9, 8}, .padding = {1, 1, 5, 3}, .groups = 2}},
    };
    for (int i = 0; i < testing::random_draws(40, 12); ++i) {
        constexpr std::int64_t windows[] = {1, 2, 3, 4, 5, 7, 9, 17};
        ConvolutionCase c = random_case(draw);
        c.options.groups = draw(0, 3) == 0 ? 32 * draw(1, 2) : draw(1, 40);
        set_sizes(c, draw, {windows[draw(0, 7)], windows[draw(0, 7)], 1, c.options.groups});
        c.x = {c.x[0], c.x[1], c.x[2] + draw(0, 1) * draw(0, 20), c.x[3]};
        cases.push_back(c);
    }
    const testing::TestedGpu gpu;
    expect_exact_on(cases, {{"cuda", &*gpu}});
    for (ConvolutionCase& c : cases) {
        c.options.multiply = "tf32";
        SCOPED_TRACE("tf32");
        Products(c).expect_exact(DType::f32, *gpu);
    }
}

/// So few filters, and so many pixels, that the gradient of the filter is cut along its depth.
TEST(Convolution, OfManyImagesIsExactOnWholeNumbers) {
    const Conv2dOptions same{.padding = {1, 1, 1, 1}};
    expect_exact_at_every_level({
        {{8, 16, 16, 16}, {3, 3, 16, 8}, same},
        {{9, 17, 17, 5}, {2, 3, 5, 7}, same},
        {{16, 16, 16, 24}, {1, 1, 24, 12}, {}},
        {{10, 33, 33, 8}, {3, 3, 8, 8}, {.stride = {2, 2}, .padding = {1, 1, 1, 1}}},
        {{8, 16, 16, 8}, {3, 3, 4, 6}, {.padding = {1, 1, 1, 1}, .groups = 2}},
    });
}

/// Strided, with sums of more than 2 Mi a phase: the gradient of the image, and the zeros that no filter
/// meets, are stored past the caches, in lines where rows are made of them and byte by byte where they are
/// not. Operands of any format have the same sums in FP32, so levels take turns in theirs.
TEST(Convolution, OfLargeStridedImagesIsExactOnWholeNumbers) {
    constexpr DType formats[] = {DType::f16, DType::f32, DType::bf16};
    for (const std::int64_t odd : {0, 1}) {
        const Products products(
            {{8, 92 - odd, 92 + odd, 128 + 2 * odd}, {1, 1, 128 + 2 * odd, 4}, {.stride = {2, 2}}});
        std::size_t turn = 2 * levels().size() + 2;  // BF16 on the best one, which may have tiles
        for (const std::string& level : levels()) {
            SCOPED_TRACE(level);
            products.expect_exact_input_gradient(formats[++turn % 3], *device_at(level));
        }
    }
}

template <class Options>
std::string refusal_of(void (*convolve)(Tensor, Tensor, const Options&), Shape x, Shape filter,
                       const std::type_identity_t<Options>& options) {
    Graph graph;
    return testing::error_of([&] {
        convolve({graph, graph.add_input("x", {DType::f32, std::move(x)})},
                 {graph, graph.add_input("filter", {DType::f32, std::move(filter)})}, options);
    });
}

void expect_says(const std::string& said, const char* what) {
    EXPECT_NE(said.find(what), std::string::npos) << said;
}

TEST(Convolution, BadOperandsAreNamed) {
    const auto planes = [](Tensor x, Tensor filter, const Conv2dOptions& how) { conv2d(x, filter, how); };
    expect_says(refusal_of(+planes, {2, 5, 5, 3}, {3, 3, 4, 8}, {}),
                "the filter must have shape [3, 3, 3, 8]");
    expect_says(refusal_of(+planes, {2, 5, 5, 3}, {6, 3, 3, 8}, {}), "covers 6 does not fit an image of 5");
    expect_says(refusal_of(+planes, {2, 5, 3}, {3, 3, 3, 8}, {}), "x must be floating-point images");
    expect_says(refusal_of(+planes, {2, 5, 5, 3}, {3, 3, 3, 8}, {.stride = {0, 1}}),
                "stride must be 1 or more, got 0");
    expect_says(refusal_of(+planes, {2, 5, 5, 6}, {3, 3, 2, 8}, {.groups = 3}),
                "groups must divide channels and filters");
    expect_says(refusal_of(+planes, {2, 5, 5, 3}, {3, 3, 3, 8}, {.padding = {0, -1, 0, 0}}),
                "padding must be 0 or more");
}

TEST(Convolution, BadOperandsOfVolumesAreNamed) {
    const auto volumes = [](Tensor x, Tensor filter, const Conv3dOptions& how) { conv3d(x, filter, how); };
    const auto back = [](Tensor x, Tensor filter, const Conv3dOptions& how) {
        conv_transpose3d(x, filter, how);
    };
    expect_says(refusal_of(+volumes, {2, 5, 5, 3}, {3, 3, 3, 3, 8}, {}), "expected volumes [N, D, H, W, C]");
    expect_says(refusal_of(+volumes, {2, 4, 5, 5, 3}, {3, 3, 3, 4, 8}, {}), "of 3 channels in 1 groups");
    expect_says(refusal_of(+volumes, {2, 4, 5, 5, 3}, {3, 3, 3, 3, 8}, {.stride = {0, 1, 1}}),
                "must be 1 or more");
    expect_says(refusal_of(+volumes, {2, 4, 5, 5, 3}, {3, 3, 3, 3, 8}, {.padding = {0, -1, 0, 0, 0, 0}}),
                "0 or more");
    expect_says(refusal_of(+volumes, {2, 4, 5, 5, 3}, {3, 3, 3, 3, 8}, {.dilation = {2, 1, 1}}),
                "3 planes that covers 5 does not fit 4 planes");
    expect_says(refusal_of(+volumes, {2, 4, 5, 5, 3}, {3, 7, 3, 3, 8}, {}),
                "covers 7 does not fit an image of 5");
    expect_says(refusal_of(+back, {2, 4, 5, 5, 3}, {3, 3, 8, 3}, {}),
                "expected filters [T, R, S, K / groups, C]");
    expect_says(refusal_of(+back, {2, 1, 5, 5, 3}, {1, 3, 3, 8, 3}, {.padding = {1, 0, 0, 0, 0, 0}}),
                "1 planes at a stride of 1 become 0");
}

}  // namespace
}  // namespace mantissa
