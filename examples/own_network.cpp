// A network of one's own, against the installed headers: a two-layer perceptron that learns XOR. The model is
// ordinary C++ over symbolic tensors; the engine differentiates, plans and runs it.
#include <cstdio>
#include <vector>

#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/nn/layers.h"
#include "mantissa/passes/pipeline.h"
#include "mantissa/runtime/execution.h"
#include "mantissa/train/adamw.h"

using namespace mantissa;

int main() {
    // The model: records its forward pass and returns the loss.
    const auto model = [](Graph& graph) {
        const Tensor x(graph, graph.add_input("x", {DType::f32, {4, 2}}));
        const Tensor y(graph, graph.add_input("y", {DType::f32, {4, 1}}));
        const Tensor hidden = tanh(nn::linear(x, "hidden", {.outputs = 8, .standard_deviation = 1.0}));
        const Tensor error = nn::linear(hidden, "output", {.outputs = 1, .standard_deviation = 1.0}) - y;
        return mean(error * error, {0, 1});
    };

    // The training step: differentiated, with AdamW, planned for this CPU.
    const auto device = make_cpu_device();
    const PipelineOptions pipeline = pipeline_on(*device, {});
    const Plan plan(build_training_step(model, adamw_update({.weight_decay = 0}), pipeline).graph, *device);
    StateBlock state(*device, plan.graph().states());
    state.initialize(/*seed=*/1);
    const auto arena = device->allocate(static_cast<std::size_t>(plan.memory().arena_bytes), "arena");
    Execution step(plan, state, *arena);

    const std::vector<float> x{0, 0, 0, 1, 1, 0, 1, 1}, y{0, 1, 1, 0}, learning_rate{0.05f};
    step.set_input("x", std::span<const float>(x));
    step.set_input("y", std::span<const float>(y));
    step.set_input("learning_rate", std::span<const float>(learning_rate));
    for (int i = 0; i <= 200; ++i) {
        step.run();
        if (i % 50 == 0)
            std::printf("step %3d  loss %.6f\n", i, static_cast<double>(step.read_scalar("loss")));
    }
    return step.read_scalar("loss") < 1e-3f ? 0 : 1;
}
