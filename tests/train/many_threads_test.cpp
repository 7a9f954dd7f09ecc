// Steps on many more threads than there are cores: the bits of one thread, also while another process holds a
// core, and memory that hardly grows.
#include <gtest/gtest.h>
#include <immintrin.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "mantissa/data/synthetic_images.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/optimizer.h"
#include "mantissa/train/training_plan.h"
#include "tests/support/gpt2_training.h"
#include "tests/train/training_states.h"

namespace mantissa {
namespace {

using testing::TrainedBits;

TrainedBits bits_of_two_steps(Trainer& trainer, const Batch& batch) {
    TrainedBits result;
    for (int step = 0; step < 2; ++step) result.losses.push_back(trainer.step(batch, 1e-3).loss);
    result.states = testing::states_of(trainer);
    return result;
}

nn::ImageModel narrow_resnet20() {
    return nn::image_model("ResNet20", {.classes = 10, .image = 32, .width = 4});
}

TrainingPlan plan_of_text(Device& device) {
    return gpt2_plan(
        device,
        {.model = nn::gpt2_config("gpt2-tiny"), .batch = 2, .sequence = 128, .policy = find_policy("bf16")});
}

TrainingPlan plan_of_images(Device& device) {
    return {device, narrow_resnet20().model, {.optimizer = sgd(), .batch = 4, .policy = find_policy("fp32")}};
}

TrainedBits train_on_text(int threads) {
    const auto device = make_cpu_device({.threads = threads});
    Trainer trainer(plan_of_text(*device));
    std::vector<std::int32_t> tokens(256);
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(i * 37 % 251);
    return bits_of_two_steps(trainer, {tokens, tokens});
}

TrainedBits train_on_images(int threads) {
    const auto device = make_cpu_device({.threads = threads});
    Trainer trainer(plan_of_images(*device));
    BatchBuffer buffer(trainer.model(), 4);
    return bits_of_two_steps(trainer, buffer.fill(SyntheticImages(narrow_resnet20().sizes, 1), 0));
}

/// A process that computes as long as this exists.
class BusyProcess {
  public:
    BusyProcess() : id_(::fork()) {
        if (id_ != 0) return;
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) _mm_pause();
    }
    ~BusyProcess() {
        ::kill(id_, SIGKILL);
        ::waitpid(id_, nullptr, 0);
    }
    BusyProcess(const BusyProcess&) = delete;
    BusyProcess& operator=(const BusyProcess&) = delete;

  private:
    pid_t id_;
};

TEST(ManyThreads, TrainToTheBitsOfOne) {
    const TrainedBits text = train_on_text(1), images = train_on_images(1);
    for (const int threads : {16, 64}) {
        EXPECT_EQ(train_on_text(threads), text) << threads;
        EXPECT_EQ(train_on_images(threads), images) << threads;
    }
}

TEST(ManyThreads, TrainToTheBitsOfOneWhileAnotherProcessHoldsACore) {
    const TrainedBits text = train_on_text(1), images = train_on_images(1);
    const BusyProcess busy;
    for (const int threads : {2, 16}) {
        EXPECT_EQ(train_on_text(threads), text) << threads;
        EXPECT_EQ(train_on_images(threads), images) << threads;
    }
}

/// The memory that each thread beyond the first adds to that planned for a step.
std::int64_t bytes_of_a_thread(TrainingPlan (*plan)(Device&)) {
    const auto bytes = [&](int threads) {
        const auto device = make_cpu_device({.threads = threads});
        return plan(*device).memory().total();
    };
    return (bytes(64) - bytes(1)) / 63;
}

TEST(ManyThreads, AddLittleMemoryEach) {
    constexpr std::int64_t most = 1 << 20;
    EXPECT_LE(bytes_of_a_thread(plan_of_text), most);
    EXPECT_LE(bytes_of_a_thread(plan_of_images), most);
}

}  // namespace
}  // namespace mantissa
