// The cost of an ugly size on a machine: the affected work, forward and backward, at both sizes in turns.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "mantissa/base/clock.h"
#include "mantissa/base/error.h"
#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/tensor.h"
#include "mantissa/numerics/formats.h"
#include "mantissa/passes/pipeline.h"
#include "mantissa/report/lint.h"
#include "mantissa/report/quantities.h"
#include "mantissa/runtime/execution.h"
#include "mantissa/runtime/state_block.h"

namespace mantissa::inline v0 {

namespace {

/// Enough for every kernel's blocks; half a second on two cores with GPT-2 124M's 50,257 classes.
constexpr std::int64_t max_rows = 512;
constexpr std::int64_t max_pixels = 16384;

Tensor input(Graph& graph, const char* name, DType dtype, Shape shape) {
    return {graph, graph.add_input(name, {dtype, std::move(shape)})};
}

/// y = x w^T, dx = dy w and dw = dy^T x; dw is written in FP32, as parameters' gradients are.
void record_contraction(Graph& graph, const LintProbe& probe) {
    const std::int64_t N = probe.extents[1], K = probe.extents[2];
    const std::int64_t M = probe.extents[0];
    const Tensor x = input(graph, "x", probe.dtype, {M, K}), w = input(graph, "w", probe.dtype, {N, K});
    const Tensor dy = input(graph, "dy", probe.dtype, {M, N});
    const std::string multiply =
        probe.attributes.has("multiply") ? probe.attributes.word("multiply") : std::string();
    graph.add_result("y", matmul(x, w, {.transpose_b = true, .multiply = multiply}).value());
    graph.add_result("dx", matmul(dy, w, {.multiply = multiply}).value());
    graph.add_result(
        "dw", matmul(dy, x, {.transpose_a = true, .output = DType::f32, .multiply = multiply}).value());
}

/// The convolution and both gradients, the filter's in FP32.
void record_convolution(Graph& graph, const LintProbe& probe) {
    const std::vector<std::int64_t>& e = probe.extents;
    const std::int64_t groups = probe.attributes.integer("groups");
    const Tensor x = input(graph, "x", probe.dtype, {e[0], e[1], e[2], e[3]});
    const Tensor filter = input(graph, "filter", probe.dtype, {e[4], e[5], e[3] / groups, e[6]});
    const Tensor y = call1("conv2d", {x, filter}, probe.attributes);
    graph.add_result("y", y.value());
    const Tensor dy = input(graph, "dy", probe.dtype, y.shape());
    graph.add_result("dx", call1("conv2d_input_gradient", {dy, filter},
                                 probe.attributes.with("extents", std::vector<std::int64_t>{e[1], e[2]}))
                               .value());
    graph.add_result(
        "dfilter",
        call1(
            "conv2d_filter_gradient", {x, dy},
            probe.attributes.with("window", std::vector<std::int64_t>{e[4], e[5]}).with("output", DType::f32))
            .value());
}

void record_attention(Graph& graph, const LintProbe& probe) {
    const Shape shape(probe.extents);
    std::vector<Tensor> operands;
    for (const char* name : {"do", "q", "k", "v"}) operands.push_back(input(graph, name, probe.dtype, shape));
    const std::vector<Tensor> forward =
        call(graph, "attention", std::span(operands).subspan(1), probe.attributes);
    operands.insert(operands.end(), forward.begin(), forward.end());
    graph.add_result("o", forward[0].value());
    int index = 0;
    for (const Tensor& gradient : call(graph, "attention_grad", operands, probe.attributes))
        graph.add_result(fmt::format("gradient {}", index++), gradient.value());
}

Graph record(const LintProbe& probe) {
    Graph graph;
    switch (probe.kind) {
        case LintProbe::Kind::contraction:
            record_contraction(graph, probe);
            break;
        case LintProbe::Kind::convolution:
            record_convolution(graph, probe);
            break;
        case LintProbe::Kind::attention:
            record_attention(graph, probe);
            break;
    }
    return graph;
}

/// Numbers of magnitude one and both signs: zeros would multiply faster.
std::vector<std::byte> numbers(const Type& type) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(type.bytes()));
    const std::size_t size = size_of(type.dtype);
    for (std::size_t i = 0; i * size < bytes.size(); ++i) {
        const float value = static_cast<float>(i * 7919 % 257) / 128.0f - 1.0f;
        const BF16 bf16 = to_bf16(value);
        const FP16 f16 = to_fp16(value);
        const void* from = &value;
        if (type.dtype == DType::bf16) from = &bf16;
        if (type.dtype == DType::f16) from = &f16;
        std::memcpy(bytes.data() + i * size, from, size);
    }
    return bytes;
}

/// A probe ready to run.
class RunningProbe {
  public:
    RunningProbe(Device& device, const LintProbe& probe)
        : plan_(record(probe), device),
          state_(device, {}),
          arena_(device.allocate(static_cast<std::size_t>(plan_.memory().arena_bytes), "measuring a size")),
          execution_(plan_, state_, *arena_) {
        for (const NodeId id : plan_.graph().inputs()) {
            const Node& node = plan_.graph().node(id);
            execution_.set_input(node.attributes.word("name"),
                                 std::span<const std::byte>(numbers(node.outputs[0])));
        }
        execution_.run();  // the first run touches the memory
    }

    void run() {
        const Stopwatch watch;
        execution_.run();
        milliseconds_.push_back(watch.milliseconds());
    }

    const std::vector<double>& milliseconds() const { return milliseconds_; }

    double flops() const {
        double total = 0;
        for (const PlannedNode& planned : plan_.nodes()) total += static_cast<double>(planned.cost.flops);
        return total;
    }

  private:
    Plan plan_;
    StateBlock state_;
    std::unique_ptr<DeviceMemory> arena_;
    Execution execution_;
    std::vector<double> milliseconds_;
};

/// Limits the rows, unless they are the size in question.
LintProbe shortened(LintProbe probe, const LintProbe& other) {
    if (probe.kind == LintProbe::Kind::contraction && probe.extents[0] == other.extents[0])
        probe.extents[0] = std::min(probe.extents[0], max_rows);
    if (probe.kind == LintProbe::Kind::convolution)
        probe.extents[0] =
            std::clamp<std::int64_t>(max_pixels / (probe.extents[1] * probe.extents[2]), 1, probe.extents[0]);
    return probe;
}

}  // namespace

LintMeasurement measurement_of(const std::vector<double>& ugly, const std::vector<double>& nice,
                               double arithmetic) {
    // Two hundredths: the effect of clock and memory placement on equal work in two runs.
    constexpr double min_noise = 0.02;
    std::vector<double> gains, deviations;
    for (std::size_t i = 0; i < ugly.size(); ++i) gains.push_back(ugly[i] / nice[i] * arithmetic);
    LintMeasurement measurement{.ugly_milliseconds = median(ugly),
                                .nice_milliseconds = median(nice),
                                .work = arithmetic,
                                .gain = median(gains)};
    for (const double gain : gains) deviations.push_back(std::abs(gain - measurement.gain));
    // The median of so few turns is within about two median deviations of the true value.
    measurement.noise = std::max(min_noise, 2 * median(deviations));
    return measurement;
}

LintMeasurement measure_lint(Device& device, const LintFinding& finding, int repeats) {
    if (repeats < 1) throw UserError(fmt::format("repeats must be 1 or more, got {}", repeats));
    RunningProbe ugly(device, shortened(finding.ugly, finding.nice));
    RunningProbe nice(device, shortened(finding.nice, finding.ugly));
    for (int i = 0; i < repeats; ++i) {
        ugly.run();
        nice.run();
    }
    const double arithmetic = finding.rule->gain == LintGain::arithmetic ? nice.flops() / ugly.flops() : 1.0;
    return measurement_of(ugly.milliseconds(), nice.milliseconds(), arithmetic);
}

LintReport run_lint(Device& device, const nn::Model& model, const LintOptions& options) {
    const auto trace = [&](Graph& graph) { return nn::trace_loss(model, graph, options.batch); };
    const BuiltGraph forward = build_evaluation(trace, {.policy = options.policy, .match_attention = true});
    LintReport report{.model = reported(model, nn::facts_of(model, options.batch), options.batch),
                      .policy = options.policy.name,
                      .target = device.target(),
                      .findings = lint(forward.graph, device.target(), options.batch)};
    for (LintFinding& finding : report.findings) {
        if (options.repeats < 1) break;
        if (options.progress)
            options.progress(fmt::format("measuring {} {} against {}", finding.rule->size, finding.extent,
                                         finding.change_to));
        finding.measured = measure_lint(device, finding, options.repeats);
    }
    return report;
}

}  // namespace mantissa
