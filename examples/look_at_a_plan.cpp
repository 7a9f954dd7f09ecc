// A plan of a training step, made without running or allocating it: GPT-2 124M on this machine, in BF16 with
// every pass.
#include <cstdio>
#include <map>
#include <string>

#include "mantissa/engine.h"
#include "mantissa/mantissa.h"

int main() {
    const mantissa::nn::Model model = mantissa::nn::language_model("gpt2-124m").on_sequences(1024);
    const mantissa::TrainingPlan plan(mantissa::cpu(), model, {.batch = 4, .policy = "bf16"});

    std::printf("%s: %lld parameters, %.1f GFLOP a step, planned in %.0f ms\n", model.name.c_str(),
                static_cast<long long>(plan.facts().parameters), plan.flops_per_step() / 1e9,
                plan.build_milliseconds());
    const mantissa::MemoryUse memory = plan.memory();
    std::printf("%.2f GB = %.2f state + %.2f activations and gradients + %.2f inputs\n",
                static_cast<double>(memory.total()) / 1e9, static_cast<double>(memory.state) / 1e9,
                static_cast<double>(memory.arena) / 1e9, static_cast<double>(memory.inputs) / 1e9);

    std::map<std::string, int> kernels;
    for (const mantissa::PlannedNode& planned : plan.step().nodes()) ++kernels[planned.kernel];
    for (const auto& [name, times] : kernels) std::printf("%4d x %s\n", times, name.c_str());
    for (const mantissa::PassRefusal& refusal : plan.refused())
        if (refusal.pass != "fuse")
            std::printf("%s left %s: %s\n", refusal.pass.c_str(), refusal.op.c_str(), refusal.reason.c_str());
    return kernels.empty() ? 1 : 0;
}
