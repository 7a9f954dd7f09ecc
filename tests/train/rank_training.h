// Several ranks train a small model, each with its share of a step's micro-batches: what they come to, for
// comparison with one that makes them all.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "mantissa/codegen/kernel_folder.h"
#include "mantissa/data/batch.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/device/cuda/cuda_device.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/training_checkpoint.h"
#include "mantissa/train/training_plan.h"
#include "tests/emulated_gpu/emulated_gpu.h"
#include "tests/support/gpt2_training.h"
#include "tests/support/rank_threads.h"

namespace mantissa::testing {

inline constexpr std::int64_t length = 12;

inline nn::Model small_gpt2(double dropout) {
    return nn::gpt2_model({.name = "small",
                           .layers = 2,
                           .heads = 2,
                           .channels = 64,
                           .vocabulary = 61,
                           .context = length,
                           .dropout = dropout},
                          length);
}

/// How a step's micro-batches are shared, and what is trained.
struct Split {
    int ranks = 1;
    std::int64_t accumulate = 1;
    std::string policy = "fp32";
    double dropout = 0.1;
    LossScaleOptions loss_scale = {};
    std::int64_t steps = 5;
    std::filesystem::path resume = {}, save = {};
    States states = States::sharded;
    Optimizer optimizer = adamw();
    std::int64_t bucket_bytes = 40000;
    Wire wire = Wire::fp32;
    bool on_gpus = false;  ///< emulated ones, each rank its own
    std::string architecture = "sm_80";
    std::int64_t batch = 2;
};

inline std::unique_ptr<Device> device_of(const Split& split, Ranks* ranks) {
    if (!split.on_gpus) return make_cpu_device({.threads = 1, .ranks = ranks});
    const cuda::EmulatedGpu gpu({.architecture = split.architecture, .threads = 1});
    return std::move(*make_cuda_device({gpu.driver(), gpu.cublaslt(), gpu.cudnn(), gpu.nccl()},
                                       {.kernels = codegen::folder_of_kernels(), .ranks = ranks}));
}

/// The states of every rank after it, and the losses on the way.
struct Trained {
    std::vector<float> losses;
    std::vector<bool> applied;
    std::map<std::string, std::vector<std::byte>> states;
    friend bool operator==(const Trained&, const Trained&) = default;
};

inline TrainerOptions options_of(const Device& device, const Split& split, Ranks* ranks) {
    TrainerOptions options{.optimizer = clipped(split.optimizer, 0.3),
                           .batch = split.batch,
                           .accumulate = split.accumulate,
                           .loss_scale = split.loss_scale};
    const Policy policy = find_policy(split.policy);
    // Lets LLVM alone, which a sanitised or LLVM-less build lacks; the program's tests have all passes.
    options.policy = policy;
    std::vector<std::string> passes = runnable_passes(device.target(), policy);
    options.passes = passes;
    options.ranks = ranks;
    options.states = split.states;
    options.bucket_bytes = split.bucket_bytes;
    options.wire = split.wire;
    return options;
}

/// A state, put together where each rank has a part of it.
inline std::vector<std::byte> whole_state(const State& state, const StateBlock& block, Ranks* ranks) {
    std::vector<std::byte> own = block.read(state.name);
    if (!state.shard_of) return own;
    const std::string text(reinterpret_cast<const char*>(own.data()), own.size());
    std::vector<std::byte> all;
    for (const std::string& part : ranks->gather(text)) {
        const auto* bytes = reinterpret_cast<const std::byte*>(part.data());
        all.insert(all.end(), bytes, bytes + part.size());
    }
    const auto used = static_cast<std::size_t>(Type{state.type.dtype, *state.shard_of}.bytes());
    for (std::size_t i = used; i < all.size(); ++i) EXPECT_EQ(all[i], std::byte{0}) << "filled up with zeros";
    all.resize(used);
    return all;
}

/// One rank's training, or that of one process alone.
class RankRun {
  public:
    RankRun(const Split& split, Ranks* ranks)
        : device_(device_of(split, ranks)),
          ranks_(ranks),
          trainer(*device_, small_gpt2(split.dropout), options_of(*device_, split, ranks)),
          examples_(some_examples(trainer.model(), split.batch, trainer.plan().options().micro_batches())),
          buffer_(trainer.model(), split.batch, split.accumulate,
                  trainer.plan().options().first_micro_batch()) {
        if (!split.resume.empty()) resume_training(split.resume, trainer);
    }

    StepResult step(std::vector<double>* profile = nullptr) {
        return trainer.step(buffer_.fill(examples_, static_cast<std::uint64_t>(trainer.steps_done())), 1e-2,
                            profile);
    }

    /// The states that lie in parts, put together.
    std::map<std::string, std::vector<std::byte>> states() const {
        std::map<std::string, std::vector<std::byte>> all;
        for (const State& state : trainer.state().states())
            if (state.kind != State::Kind::gradient)
                all[state.name] = whole_state(state, trainer.state(), ranks_);
        return all;
    }

  private:
    static Examples some_examples(const nn::Model& model, std::int64_t batch, std::int64_t micro_batches) {
        std::vector<std::int32_t> tokens, targets;
        for (int i = 0; i < 40 * length; ++i) {
            tokens.push_back((i * i / 5 + 3 * i) % 61);
            targets.push_back((i * i / 3 + i) % 61);
        }
        return {model,
                {tokens, targets},
                {.batch = batch, .accumulate = micro_batches, .order = BatchOrder::random, .seed = 3}};
    }

    std::unique_ptr<Device> device_;
    Ranks* ranks_;

  public:
    Trainer trainer;

  private:
    Examples examples_;
    BatchBuffer buffer_;
};

inline Trained train_as(const Split& split, Ranks* ranks) {
    RankRun run(split, ranks);
    Trained trained;
    while (run.trainer.steps_done() < split.steps) {
        const StepResult result = run.step();
        trained.losses.push_back(result.loss);
        trained.applied.push_back(result.applied);
    }
    trained.states = run.states();
    if (!split.save.empty()) save_training(split.save, run.trainer);
    return trained;
}

/// The result that all ranks have, which is the same.
inline Trained train(const Split& split) {
    if (split.ranks == 1) return train_as(split, nullptr);
    std::vector<Trained> all(static_cast<std::size_t>(split.ranks));
    run_good_ranks(split.ranks, [&](Ranks& ranks) {
        all[static_cast<std::size_t>(ranks.rank())] = train_as(split, &ranks);
    });
    for (const Trained& each : all) EXPECT_TRUE(each == all[0]) << "ranks differ";
    return all[0];
}

}  // namespace mantissa::testing
