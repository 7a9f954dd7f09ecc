// A GPT-2 in training on the emulated GPU: every policy, its bits, its checkpoints, its errors.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>

#include "mantissa/base/error.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/training_checkpoint.h"
#include "mantissa/train/training_plan.h"
#include "tests/support/compiling_test.h"
#include "tests/support/device_around.h"
#include "tests/support/gpt2_training.h"
#include "tests/support/planted_clock.h"
#include "tests/support/random_draws.h"
#include "tests/support/run_graph.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tested_gpu.h"
#include "tests/support/trains_alike.h"
#include "tests/train/training_states.h"

namespace mantissa {
namespace {

using testing::EmulatedDevice;
using testing::TestedGpu;

const SomeTokens& tokens() {
    static const SomeTokens all(2 * 16);
    return all;
}

std::vector<float> losses(Device& device, const Gpt2Training& training, int steps = 3,
                          double learning_rate = 1e-3) {
    Trainer trainer = gpt2_trainer(device, training);
    std::vector<float> all;
    for (int step = 0; step < steps; ++step)
        all.push_back(trainer.step({tokens().tokens, tokens().targets}, learning_rate).loss);
    return all;
}

class CudaTraining : public testing::CompilingTest {};

/// The least passes, those of fused kernels, and all, of which a GPU refuses in FP32 the one that makes
/// attention one operation.
std::vector<std::vector<std::string>> rungs() {
    return {{}, {"simplify", "lay_out", "fuse"}, optional_pass_names()};
}

/// The most that a run may lose or gain by the order of sums, in FP32 (trains_alike.h) and by that of
/// roundings in shorter formats: of the unit roundoff times the loss, 6.2, an eighth, since a loss is a mean
/// over tokens. Seen: a sixtieth.
const std::map<std::string, double> tolerances = {
    {"fp32", 2e-5}, {"tf32", 0x1p-11 * 6.2 / 8}, {"bf16", 0x1p-8 * 6.2 / 8}, {"fp16", 0x1p-11 * 6.2 / 8}};

TEST_F(CudaTraining, LossesAreThoseOfTheCpuUnderEachPolicy) {
    const auto cpu = testing::device_at(testing::levels().back());
    const TestedGpu gpu;
    int turn = 0;  // all passes, and the two kinds of less by turns
    for (const auto& [policy, tolerance] : tolerances) {
        std::vector<std::vector<std::string>> some = rungs();
        if (!testing::sweeps_are_whole()) some.erase(some.begin() + turn++ % 2);
        for (const std::vector<std::string>& passes : some) {
            Gpt2Training training = small_gpt2_training(policy);
            training.passes = passes;
            const std::vector<float> expected = losses(*cpu, training), got = losses(*gpu, training);
            for (std::size_t step = 0; step < expected.size(); ++step)
                EXPECT_NEAR(got[step], expected[step], tolerance)
                    << policy << ", " << passes.size() << " passes, step " << step;
            if (passes.size() > 3 && (policy == "bf16" || testing::sweeps_are_whole())) {
                EXPECT_EQ(losses(*gpu, training), got) << policy << ": another run has other bits";
            }
        }
        // The tolerance bites: an update that is wrong by a twentieth is caught.
        const std::vector<float> right = losses(*cpu, small_gpt2_training(policy)),
                                 wrong = losses(*cpu, small_gpt2_training(policy), 3, 1.05e-3);
        EXPECT_GT(std::abs(right[2] - wrong[2]), tolerance) << policy;
    }
}

/// Code for sm_90a alone, attention by warpgroups.
TEST_F(CudaTraining, LossesByWarpgroupsAreThoseOfTheCpu) {
    const TestedGpu gpu = TestedGpu::by_warpgroups();
    const auto cpu = testing::device_at(testing::levels().back());
    for (const char* const policy : {"bf16", "fp16"}) {
        Gpt2Training training = small_gpt2_training(policy);
        training.passes = optional_pass_names();
        const std::vector<float> expected = losses(*cpu, training), got = losses(*gpu, training);
        for (std::size_t step = 0; step < expected.size(); ++step)
            EXPECT_NEAR(got[step], expected[step], tolerances.at(policy)) << policy << ", step " << step;
    }
}

class CudaTrainingSlow : public CudaTraining {};

/// The tolerances are those of three steps. Seen: a third, under bf16.
TEST_F(CudaTrainingSlow, TwentyStepsAreThoseOfTheCpuUnderEachPolicy) {
    constexpr int steps = 20;
    const auto cpu = testing::device_at(testing::levels().back());
    const TestedGpu gpu;
    for (const auto& [policy, tolerance] : tolerances) {
        Gpt2Training training = small_gpt2_training(policy);
        training.passes = optional_pass_names();
        const std::vector<float> expected = losses(*cpu, training, steps),
                                 got = losses(*gpu, training, steps),
                                 wrong = losses(*cpu, training, steps, 1.05e-3);
        EXPECT_LT(got.back(), got.front() - 1) << policy << " learns nothing";
        bool bites = false;
        for (std::size_t step = 0; step < steps; ++step) {
            EXPECT_NEAR(got[step], expected[step], tolerance) << policy << ", step " << step;
            bites = bites || std::abs(wrong[step] - expected[step]) > tolerance;
        }
        EXPECT_TRUE(bites) << policy << ": a rate that is wrong by a twentieth passes";
        EXPECT_EQ(losses(*gpu, training, steps), got) << policy << ": another run has other bits";
    }
}

TEST_F(CudaTraining, PassesWithoutKernelsAreRefusedWithAReason) {
    const TestedGpu gpu;
    const auto plan_of = [&](const char* policy) {
        Gpt2Training training = small_gpt2_training(policy);
        training.passes = optional_pass_names();
        return gpt2_plan(*gpu, training);
    };
    const auto reason = [](const TrainingPlan& plan, const std::string& pass) {
        for (const PassRefusal& refusal : plan.refused())
            if (refusal.pass == pass) return refusal.reason;
        return std::string();
    };
    const TrainingPlan in_f32 = plan_of("fp32"), in_bf16 = plan_of("bf16");
    const std::string of_f32 = "the device has no kernel for attention of f32: 'attention bf16*bf16+f32";
    EXPECT_EQ(reason(in_f32, "match_attention").substr(0, of_f32.size()), of_f32);
    EXPECT_EQ(reason(in_bf16, "match_attention"), "");
    EXPECT_EQ(reason(in_bf16, "fuse_linear_cross_entropy"), "");
    for (const PlannedNode* node : in_bf16.step().nodes_of("linear_cross_entropy"))
        EXPECT_EQ(node->kernel, "fused linear cross-entropy, cublasLt bf16*bf16+f32 tensor cores");
    EXPECT_FALSE(in_f32.step().nodes_of("linear_cross_entropy").empty());
    // Scores are multiplied in the policy's format all the same.
    for (const PlannedNode* node : in_f32.step().nodes_of("matmul"))
        EXPECT_EQ(node->kernel.substr(0, 22), "cublasLt f32*f32+f32 s");
    for (const char* const op : {"attention", "attention_grad"}) {
        EXPECT_FALSE(in_bf16.step().nodes_of(op).empty());
        for (const PlannedNode* node : in_bf16.step().nodes_of(op))
            EXPECT_EQ(node->kernel, "attention bf16*bf16+f32 tensor cores");
    }
}

/// GELU and its gradient are part of the products before them, in each layer.
TEST_F(CudaTraining, ProductsHaveTheLibrarysEpilogues) {
    const TestedGpu gpu;
    for (const auto& [policy, tolerance] : tolerances) {
        Gpt2Training training = small_gpt2_training(policy);
        training.passes = optional_pass_names();
        const TrainingPlan plan = gpt2_plan(*gpu, training);
        int forward = 0, backward = 0;
        for (const PlannedNode& node : plan.step().nodes()) {
            forward += node.algorithm.find("gelu and its input") != std::string::npos ? 1 : 0;
            backward += node.algorithm.find("gelu's gradient") != std::string::npos ? 1 : 0;
        }
        EXPECT_EQ(forward, 2) << policy;
        EXPECT_EQ(backward, 2) << policy;
    }
}

/// Every kernel of a step, eager and fused, where NVIDIA's assembler is installed.
TEST_F(CudaTrainingSlow, KernelsAreTakenByNvidiasAssembler) {
    const std::string with_path = "PATH=$PATH:/usr/local/cuda/bin ";
    if (std::system((with_path + "sh -c 'command -v ptxas' >/dev/null").c_str()) != 0)
        GTEST_SKIP() << "no ptxas: CUDA's toolkit is not installed";
    const TestedGpu gpu;
    for (const std::vector<std::string>& passes : rungs()) {
        Gpt2Training training = small_gpt2_training("fp16");
        training.passes = passes;
        const TrainingPlan plan = gpt2_plan(*gpu, training);
    }
    const TemporaryDirectory directory;
    const std::string path = (directory.path() / "kernel.ptx").string();
    const std::vector<KernelListing> kernels = (*gpu).compiled_kernels();
    EXPECT_GT(kernels.size(), 50u);
    for (const KernelListing& kernel : kernels) {
        std::ofstream(path) << kernel.assembly;
        const std::string command = with_path + "ptxas -arch=sm_80 -o /dev/null '" + path + "'";
        EXPECT_EQ(std::system(command.c_str()), 0) << kernel.name << "\n" << kernel.pseudo_code;
    }
}

/// Two steps here and two there, from checkpoints, are four steps anywhere.
TEST_F(CudaTraining, CheckpointsCrossBetweenDevices) {
    const Gpt2Training training = small_gpt2_training("fp32");
    const auto cpu = testing::device_at(testing::levels().back());
    const std::vector<float> expected = losses(*cpu, training, 4);
    const auto crossed = [&](Device& first, Device& second) {
        const TemporaryDirectory directory;
        Trainer before = gpt2_trainer(first, training), after = gpt2_trainer(second, training);
        std::vector<float> all;
        for (int step = 0; step < 2; ++step)
            all.push_back(before.step({tokens().tokens, tokens().targets}, 1e-3).loss);
        save_training(directory / "run", before);
        EXPECT_NE(resume_training(directory / "run", after).warning.find("instructions"), std::string::npos);
        for (const State& state : before.state().states())
            EXPECT_EQ(before.state().read(state.name), after.state().read(state.name)) << state.name;
        for (int step = 0; step < 2; ++step)
            all.push_back(after.step({tokens().tokens, tokens().targets}, 1e-3).loss);
        return all;
    };
    const TestedGpu gpu;
    for (const auto& all : {crossed(*cpu, *gpu), crossed(*gpu, *cpu)})
        for (std::size_t step = 0; step < expected.size(); ++step)
            EXPECT_NEAR(all[step], expected[step], 2e-5) << "step " << step;
}

/// Timed algorithms make the same bits in every run, and another's a warning of a line.
TEST_F(CudaTraining, ACheckpointNamesTheAlgorithmsOfItsProducts) {
    const Gpt2Training training = small_gpt2_training("fp32");
    const TemporaryDirectory directory;
    const testing::PlantedClock clock({5, 1, 3});
    const auto device = [&](const char* file) { return clock.device({.algorithms = directory / file}); };
    const auto first = device("algorithms"), again = device("algorithms");
    const std::vector<float> all = losses(*first, training);
    EXPECT_EQ(losses(*again, training), all);
    Trainer before = gpt2_trainer(*first, training);
    before.step({tokens().tokens, tokens().targets}, 1e-3);
    save_training(directory / "run", before);
    const auto warning_on = [&](Device& gpu) {
        Trainer after = gpt2_trainer(gpu, training);
        return resume_training(directory / "run", after).warning;
    };
    EXPECT_EQ(warning_on(*again), "");
    clock.set({5, 3, 1});
    EXPECT_EQ(warning_on(*again), "") << "what was timed is kept";
    const auto other = device("others");
    const std::string warning = warning_on(*other);
    EXPECT_NE(warning.find("state.json: it was trained with algorithms = \""), std::string::npos) << warning;
    EXPECT_NE(warning.find("; losses follow those of one run within roundings, not to the bit"),
              std::string::npos)
        << warning;
    EXPECT_EQ(warning.find("instructions"), std::string::npos) << warning;
    EXPECT_EQ(warning.find('\n'), std::string::npos) << warning;
    const std::vector<float> others = losses(*other, training);
    // Its sums are added up in three parts instead of two, which moves weights, if not always a loss.
    const auto weights_after_a_step = [&](Device& gpu) {
        Trainer trainer = gpt2_trainer(gpu, training);
        trainer.step({tokens().tokens, tokens().targets}, 1e-3);
        return testing::states_of(trainer);
    };
    EXPECT_NE(weights_after_a_step(*other), weights_after_a_step(*first));
    for (std::size_t step = 0; step < all.size(); ++step)
        EXPECT_NEAR(others[step], all[step], tolerances.at("fp32"));
}

/// A device that forgets to wait: what it reads is not there yet.
class Impatient final : public testing::DeviceAround {
  public:
    using DeviceAround::DeviceAround;
    void wait(const Event&) override {}
};

TEST_F(CudaTraining, AWaitThatIsForgottenIsCaught) {
    const Gpt2Training training = small_gpt2_training("fp32");
    EmulatedDevice gpu;
    Impatient hasty(std::move(gpu.device));
    Trainer trainer = gpt2_trainer(hasty, training);
    const auto step = [&] { return trainer.step({tokens().tokens, tokens().targets}, 1e-3).loss; };
    try {
        EXPECT_TRUE(std::isnan(step())) << "a loss was read before it was there";
    } catch (const UserError&) {  // of the driver: the time between events that it has not passed
    }
}

/// A fault in the middle of a run ends it with the driver's words, and the last checkpoint is whole.
TEST_F(CudaTraining, ADriverErrorEndsTheRun) {
    const Gpt2Training training = small_gpt2_training("fp32");
    const TemporaryDirectory directory;
    const EmulatedDevice gpu({.failing = "cuGraphLaunch", .failing_call = 3});
    Trainer trainer = gpt2_trainer(*gpu, training);
    const auto step = [&] { return trainer.step({tokens().tokens, tokens().targets}, 1e-3).loss; };
    step();
    save_training(directory / "run", trainer);
    step();
    try {
        step();
        ADD_FAILURE() << "the third program ran";
    } catch (const UserError& error) {
        EXPECT_STREQ(
            error.what(),
            "starting a program: CUDA_ERROR_LAUNCH_FAILED (719): unspecified launch failure; planted: "
            "call 3 of cuGraphLaunch");
    }
    const auto cpu = testing::device_at(testing::levels().back());
    Trainer rescued = gpt2_trainer(*cpu, training);
    resume_training(directory / "run", rescued);
    EXPECT_EQ(rescued.steps_done(), 1);
}

TEST_F(CudaTraining, MemoryThatIsTooSmallIsRefusedBeforeAnythingRuns) {
    const EmulatedDevice gpu({.memory = std::int64_t{1} << 20});
    try {
        gpt2_trainer(*gpu, small_gpt2_training("fp32"));
        ADD_FAILURE() << "there was room in 1 MB";
    } catch (const UserError& error) {
        EXPECT_NE(std::string(error.what()).find("are available; use a smaller `batch`"), std::string::npos)
            << error.what();
    }
}

}  // namespace
}  // namespace mantissa
