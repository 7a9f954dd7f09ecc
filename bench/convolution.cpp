// Every convolution of ResNet50 (v1.5), VGG19, DenseNet121, ResNeXt50 (32x4d), MobileNetV3-L, EfficientNet-B0
// and ConvNeXt-T at 224 x 224, three products each: the share of its unit's peak, measured right before and
// after, and the bytes of operands and result. Last, for each network, the mean share weighted by FLOPs, with
// all its convolutions run as in a step.
//
// BENCH_BATCH images (4), BENCH_FORMAT f32, tf32, bf16 or f16 (f32), BENCH_NETWORK (all), BENCH_CALLS (5),
// the median counts, or with BENCH_MINIMUM 1 the fastest, BENCH_THREADS (1), BENCH_LEAST share: shapes above
// it are not printed (1: all are), BENCH_LIST (0) 1: prints names and counts, and runs none; BENCH_ONLY:
// shapes with lines that begin with this ("14 x  128 ->   32, 3x3, stride 1, dW"); BENCH_GROUPED (0) 1: only
// grouped ones.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "mantissa/base/clock.h"
#include "mantissa/base/random.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/device/cpu/isa.h"
#include "mantissa/graph/call.h"
#include "mantissa/graph/convolution.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/tensor.h"
#include "mantissa/numerics/formats.h"

namespace mantissa {
namespace {

std::string text_option(const char* name, const std::string& standard) {
    const char* const text = std::getenv(name);
    return text ? text : standard;
}

struct Layer {
    std::int64_t pixels, channels, filters, filter, stride;
    bool reads_images = false;  ///< its input needs no gradient
    std::int64_t groups = 1;

    bool operator==(const Layer&) const = default;
};

using Layers = std::vector<Layer>;

Layers resnet50() {
    Layers all{{224, 3, 64, 7, 2, true}};
    std::int64_t pixels = 56, channels = 64;
    const std::int64_t blocks[] = {3, 4, 6, 3};
    for (int stage = 0; stage < 4; ++stage)
        for (std::int64_t block = 0; block < blocks[stage]; ++block) {
            const std::int64_t width = std::int64_t{64} << stage, stride = stage > 0 && block == 0 ? 2 : 1;
            all.push_back({pixels, channels, width, 1, 1});
            all.push_back({pixels, width, width, 3, stride});
            all.push_back({pixels / stride, width, 4 * width, 1, 1});
            if (block == 0) all.push_back({pixels, channels, 4 * width, 1, stride});
            pixels /= stride;
            channels = 4 * width;
        }
    return all;
}

Layers vgg19() {
    Layers all;
    std::int64_t pixels = 224, channels = 3;
    const std::int64_t repeats[] = {2, 2, 4, 4, 4}, widths[] = {64, 128, 256, 512, 512};
    for (int stage = 0; stage < 5; ++stage, pixels /= 2)
        for (std::int64_t i = 0; i < repeats[stage]; ++i) {
            all.push_back({pixels, channels, widths[stage], 3, 1, channels == 3});
            channels = widths[stage];
        }
    return all;
}

Layers densenet121() {
    Layers all{{224, 3, 64, 7, 2, true}};
    std::int64_t pixels = 56, channels = 64;
    for (const std::int64_t layers : {6, 12, 24, 16}) {
        for (std::int64_t i = 0; i < layers; ++i, channels += 32) {
            all.push_back({pixels, channels, 128, 1, 1});
            all.push_back({pixels, 128, 32, 3, 1});
        }
        if (layers == 16) break;
        all.push_back({pixels, channels, channels / 2, 1, 1});
        channels /= 2;
        pixels /= 2;
    }
    return all;
}

/// ResNet20 for CIFAR.
Layers resnet20() {
    Layers all{{32, 3, 16, 3, 1, true}};
    std::int64_t pixels = 32, channels = 16;
    for (int stage = 0; stage < 3; ++stage)
        for (int block = 0; block < 3; ++block) {
            const std::int64_t width = std::int64_t{16} << stage, stride = stage > 0 && block == 0 ? 2 : 1;
            all.push_back({pixels, channels, width, 3, stride});
            pixels /= stride;
            all.push_back({pixels, width, width, 3, 1});
            channels = width;
        }
    return all;
}

/// ResNeXt50 32x4d.
Layers resnext50() {
    Layers all = resnet50();
    for (std::size_t i = 1; i < all.size(); ++i)
        if (all[i].filter == 3) {
            all[i - 1].filters *= 2;
            all[i] = {all[i].pixels, 2 * all[i].channels, 2 * all[i].filters, 3, all[i].stride, false, 32};
            all[i + 1].channels *= 2;
        }
    return all;
}

/// A block of MobileNets: 1x1 to more channels, one filter per channel, 1x1 to fewer.
struct Bottleneck {
    std::int64_t filter, expanded, outputs, stride;
};

/// Blocks after a stem that leaves 112 x 112 pixels. Squeeze and excitation, one small product per image, is
/// left out.
Layers bottlenecks(std::int64_t stem, const std::vector<Bottleneck>& blocks, std::int64_t last) {
    Layers all{{224, 3, stem, 3, 2, true}};
    std::int64_t pixels = 112, channels = stem;
    for (const Bottleneck& block : blocks) {
        if (block.expanded != channels) all.push_back({pixels, channels, block.expanded, 1, 1});
        all.push_back(
            {pixels, block.expanded, block.expanded, block.filter, block.stride, false, block.expanded});
        pixels /= block.stride;
        all.push_back({pixels, block.expanded, block.outputs, 1, 1});
        channels = block.outputs;
    }
    all.push_back({pixels, channels, last, 1, 1});
    return all;
}

Layers mobilenet_v3_large() {
    return bottlenecks(16,
                       {{3, 16, 16, 1},
                        {3, 64, 24, 2},
                        {3, 72, 24, 1},
                        {5, 72, 40, 2},
                        {5, 120, 40, 1},
                        {5, 120, 40, 1},
                        {3, 240, 80, 2},
                        {3, 200, 80, 1},
                        {3, 184, 80, 1},
                        {3, 184, 80, 1},
                        {3, 480, 112, 1},
                        {3, 672, 112, 1},
                        {5, 672, 160, 2},
                        {5, 960, 160, 1},
                        {5, 960, 160, 1}},
                       960);
}

Layers efficientnet_b0() {
    struct Stage {
        std::int64_t filter, stride, outputs, blocks;
    };
    std::vector<Bottleneck> blocks{{3, 32, 16, 1}};
    for (const Stage& stage :
         {Stage{3, 2, 24, 2}, {5, 2, 40, 2}, {3, 2, 80, 3}, {5, 1, 112, 3}, {5, 2, 192, 4}, {3, 1, 320, 1}})
        for (std::int64_t i = 0; i < stage.blocks; ++i)
            blocks.push_back(
                {stage.filter, 6 * blocks.back().outputs, stage.outputs, i == 0 ? stage.stride : 1});
    return bottlenecks(32, blocks, 1280);
}

Layers convnext_tiny() {
    Layers all{{224, 3, 96, 4, 4, true}};
    std::int64_t pixels = 56, channels = 96;
    for (const std::int64_t blocks : {3, 3, 9, 3}) {
        for (std::int64_t i = 0; i < blocks; ++i) {
            all.push_back({pixels, channels, channels, 7, 1, false, channels});
            all.push_back({pixels, channels, 4 * channels, 1, 1});
            all.push_back({pixels, 4 * channels, channels, 1, 1});
        }
        if (pixels == 7) break;
        all.push_back({pixels, channels, 2 * channels, 2, 2});
        channels *= 2;
        pixels /= 2;
    }
    return all;
}

struct Format {
    DType stored = DType::f32;
    std::string multiply = {};
};

Format format_of(const std::string& name) {
    if (name == "tf32") return {DType::f32, "tf32"};
    if (name == "bf16") return {DType::bf16};
    if (name == "f16") return {DType::f16};
    return {};
}

enum class Product { forward, input_gradient, filter_gradient };
constexpr const char* names[] = {"forward", "dX", "dW"};

/// A product of a layer, bound to the first kernel that takes it, with operands of its own.
class Bound {
  public:
    Bound(Device& device, const Layer& layer, Product product, std::int64_t batch, const Format& format) {
        const std::int64_t padding = layer.filter % 2 == 0 ? 0 : layer.filter / 2;
        Graph graph;
        const auto input = [&](const char* name, Shape shape) {
            return Tensor(graph, graph.add_input(name, {format.stored, std::move(shape)}));
        };
        const Tensor x = input("x", {batch, layer.pixels, layer.pixels, layer.channels});
        const Tensor filter =
            input("filter", {layer.filter, layer.filter, layer.channels / layer.groups, layer.filters});
        Tensor y = conv2d(x, filter,
                          {.stride = {layer.stride, layer.stride},
                           .padding = {padding, padding, padding, padding},
                           .groups = layer.groups,
                           .multiply = format.multiply});
        flops = static_cast<double>(graph.node(y.value().node)
                                        .op
                                        ->cost(graph.input_types(graph.node(y.value().node)), {&y.type(), 1},
                                               graph.node(y.value().node).attributes)
                                        .flops);
        const Attributes attributes = graph.node(y.value().node).attributes;
        const Tensor dy = input("dy", y.shape());
        if (product == Product::input_gradient)
            y = call1("conv2d_input_gradient", {dy, filter},
                      attributes.with("extents", std::vector<std::int64_t>{layer.pixels, layer.pixels}));
        if (product == Product::filter_gradient)
            y = call1("conv2d_filter_gradient", {x, dy},
                      attributes.with("window", std::vector<std::int64_t>{layer.filter, layer.filter})
                          .with("output", DType::f32));
        bind(device, graph, graph.node(y.value().node));
    }

    void run() { launch_({.inputs = inputs_, .outputs = outputs_, .workspace = workspace_.data()}); }

    double flops = 0, bytes = 0;
    std::string kernel;

  private:
    void bind(Device& device, const Graph& graph, const Node& node) {
        const std::vector<Type> types = graph.input_types(node);
        const Problem problem{*node.op, types, node.outputs, node.attributes};
        for (const Kernel& each : device.kernels(node.op->name)) {
            const Expected<PreparedKernel> prepared = each.prepare(problem);
            if (!prepared) continue;
            kernel = each.name;
            launch_ = prepared->launch;
            workspace_ = Buffer(static_cast<std::size_t>(prepared->workspace) + 64);
            break;
        }
        for (const Type& type : types) memory_.push_back(filled(type));
        for (const Type& type : node.outputs) memory_.push_back(filled(type));
        for (std::size_t i = 0; i < memory_.size(); ++i) {
            bytes += static_cast<double>(memory_[i].size());
            if (i < types.size())
                inputs_.push_back(memory_[i].data());
            else
                outputs_.push_back(memory_[i].data());
        }
    }

    /// Small integers, in any format.
    static Buffer filled(const Type& type) {
        Buffer memory(static_cast<std::size_t>(type.bytes()));
        const RandomStream random{.seed = 3};
        const auto fill = [&](auto values, auto&& made) {
            for (std::size_t i = 0; i < values.size(); ++i)
                values[i] = made(static_cast<float>(random.bits(i % 4096) % 9) - 4);
        };
        if (type.dtype == DType::bf16)
            fill(memory.as<BF16>(), [](float x) { return to_bf16(x); });
        else if (type.dtype == DType::f16)
            fill(memory.as<FP16>(), [](float x) { return to_fp16(x); });
        else
            fill(memory.as<float>(), [](float x) { return x; });
        return memory;
    }

    Launch launch_;
    Buffer workspace_{64};
    std::vector<Buffer> memory_;
    std::vector<const std::byte*> inputs_;
    std::vector<std::byte*> outputs_;
};

class Bench {
  public:
    Bench()
        : threads_(on_cpu::option("BENCH_THREADS", 1)),
          device_(make_cpu_device({.threads = threads_})),
          pool_(threads_),
          format_(format_of(text_option("BENCH_FORMAT", "f32"))) {}

    void network(const char* name, const Layers& layers) {
        if (const std::string only = text_option("BENCH_NETWORK", name); only != name) return;
        std::vector<std::pair<Layer, int>> different;
        for (const Layer& layer : layers) {
            const auto known = std::ranges::find(different, layer, &std::pair<Layer, int>::first);
            if (known == different.end())
                different.emplace_back(layer, 1);
            else
                ++known->second;
        }
        double flops = 0, seconds_at_peak = 0, seconds = 0;
        std::map<Product, std::pair<double, double>> by_product;
        for (const auto& [layer, count] : different)
            for (const Product product :
                 {Product::forward, Product::input_gradient, Product::filter_gradient}) {
                if (product == Product::input_gradient && layer.reads_images) continue;
                if (layer.groups == 1 && on_cpu::option("BENCH_GROUPED", 0) != 0) continue;
                if (!text_of(layer, product).starts_with(text_option("BENCH_ONLY", ""))) continue;
                if (on_cpu::option("BENCH_LIST", 0) != 0) {
                    fmt::print("{} {:2} times\n", text_of(layer, product), count);
                    continue;
                }
                const Measured one = measure(layer, product, count);
                flops += count * one.flops;
                seconds += count * one.seconds;
                seconds_at_peak += count * one.seconds * one.share;
                by_product[product].first += count * one.seconds * one.share;
                by_product[product].second += count * one.seconds;
            }
        if (flops == 0) return;
        fmt::print("{}: share of peak {:.3f}", name, seconds_at_peak / seconds);
        for (const auto& [product, times] : by_product)
            fmt::print(", {} {:.3f}", names[static_cast<int>(product)], times.first / times.second);
        fmt::print("; {:.0f} GFLOP/s, {:.2f} images a second of convolutions alone\n", 1e-9 * flops / seconds,
                   static_cast<double>(batch_) / seconds);
        std::fflush(stdout);
    }

  private:
    struct Measured {
        double flops, seconds, share;
    };

    /// Peak of all threads, of the unit that the kernel names.
    double peak(const std::string& kernel) {
        const on_cpu::Bf16Unit unit = on_cpu::bf16_unit(on_cpu::chosen_isa());
        const std::string_view name = on_cpu::name_of(unit);
        if (!name.empty() && kernel.find(name) != std::string::npos)
            return on_cpu::measured_bf16_peak(pool_, unit, 0.01);
        return on_cpu::measured_fma_peak(pool_, on_cpu::chosen_isa(), 0.01);
    }

    static std::string text_of(const Layer& layer, Product product) {
        const std::string groups = layer.groups == 1 ? "" : fmt::format(" {} groups,", layer.groups);
        return fmt::format("{:3} x {:4} -> {:4}, {}x{}, stride {},{} {:7}", layer.pixels, layer.channels,
                           layer.filters, layer.filter, layer.filter, layer.stride, groups,
                           names[static_cast<int>(product)]);
    }

    Measured measure(const Layer& layer, Product product, int count) {
        Bound bound(*device_, layer, product, batch_, format_);
        std::vector<double> seconds;
        double best = peak(bound.kernel);
        bound.run();
        // Back to back, as in a step: between other work, memory is slower for some milliseconds.
        for (int i = 0; i < on_cpu::option("BENCH_CALLS", 5); ++i) {
            const Stopwatch watch;
            bound.run();
            seconds.push_back(watch.seconds());
        }
        best = std::max(best, peak(bound.kernel));
        const bool fastest = on_cpu::option("BENCH_MINIMUM", 0) != 0;
        const double counts = fastest ? *std::ranges::min_element(seconds) : on_cpu::median(seconds);
        const Measured out{bound.flops, counts, bound.flops / counts / best};
        if (out.share < std::atof(text_option("BENCH_LEAST", "2").c_str()))
            fmt::print("{} {:2} times {:8.2f} ms {:6.3f} of peak {:8.1f} MB  {}\n", text_of(layer, product),
                       count, 1e3 * out.seconds, out.share, 1e-6 * bound.bytes, bound.kernel);
        std::fflush(stdout);
        return out;
    }

    int threads_;
    std::unique_ptr<Device> device_;
    ThreadPool pool_;
    Format format_;
    std::int64_t batch_ = on_cpu::option("BENCH_BATCH", 4);
};

}  // namespace
}  // namespace mantissa

int main() {
    mantissa::Bench bench;
    bench.network("ResNet50", mantissa::resnet50());
    bench.network("VGG19", mantissa::vgg19());
    bench.network("DenseNet121", mantissa::densenet121());
    bench.network("ResNet20", mantissa::resnet20());
    bench.network("ResNeXt50", mantissa::resnext50());
    bench.network("MobileNetV3-L", mantissa::mobilenet_v3_large());
    bench.network("EfficientNet-B0", mantissa::efficientnet_b0());
    bench.network("ConvNeXt-T", mantissa::convnext_tiny());
}
