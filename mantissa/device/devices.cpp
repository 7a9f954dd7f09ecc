#include "mantissa/device/devices.h"

#include <fmt/format.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "mantissa/base/error.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/device/cuda/cuda_device.h"
#include "mantissa/ranks/launched.h"
#include "mantissa/ranks/ranks.h"

namespace mantissa::inline v0 {

Device& cpu(int threads) {
    static std::mutex mutex;
    static std::map<int, std::unique_ptr<Device>> devices;
    const std::lock_guard lock(mutex);
    std::unique_ptr<Device>& device = devices[threads];
    if (!device) device = make_cpu_device({.threads = threads});
    return *device;
}

namespace {

std::unique_ptr<Device> make_gpu(Ranks* ranks) {
    Expected<std::unique_ptr<Device>> made = make_cuda_device(ranks);
    if (!made)
        throw UserError(
            fmt::format("there is no GPU to train on: {}; train on the CPU instead", made.reason()));
    return std::move(*made);
}

}  // namespace

Device& gpu(int index) {
    if (index != 0)
        throw UserError(fmt::format(
            "a process has one GPU, of index 0; set CUDA_VISIBLE_DEVICES={} to have another than the first",
            index));
    static const std::unique_ptr<Device> device = make_gpu(nullptr);
    return *device;
}

namespace {

/// Null where this process is the only one.
std::unique_ptr<Transport> connected(const RankOptions& options) {
    if (!options.name.empty()) {
        if (options.ranks < 1 || options.rank < 0 || options.rank >= options.ranks)
            throw UsageError(
                fmt::format("a rank must be 0 or more and below the number of ranks, got {} of {}",
                            options.rank, options.ranks));
        if (options.ranks == 1) return nullptr;
        return meet_ranks(options.name, options.rank, options.ranks, options.seconds);
    }
    const std::optional<Launched> found = launched();
    return found ? connect(*found, options.seconds) : nullptr;
}

}  // namespace

struct RankGroup::Parts {
    std::unique_ptr<Ranks> ranks = {};                 ///< null: alone
    std::map<int, std::unique_ptr<Device>> cpus = {};  ///< by threads
    std::unique_ptr<Device> gpu = {};
};

RankGroup::RankGroup(const RankOptions& options) : parts_(new Parts) {
    if (std::unique_ptr<Transport> transport = connected(options))
        parts_->ranks = std::make_unique<Ranks>(std::move(transport));
}

RankGroup::~RankGroup() = default;

int RankGroup::rank() const { return parts_->ranks ? parts_->ranks->rank() : 0; }
int RankGroup::size() const { return parts_->ranks ? parts_->ranks->size() : 1; }
RankGroup::operator Ranks*() const { return parts_->ranks.get(); }

Device& RankGroup::cpu(int threads) {
    Ranks* const ranks = *this;
    std::unique_ptr<Device>& device = parts_->cpus[threads];
    if (!device)
        device = make_cpu_device({.threads = ranks ? share_cores(*ranks, threads) : threads, .ranks = ranks});
    return *device;
}

Device& RankGroup::gpu() {
    if (!parts_->gpu) parts_->gpu = make_gpu(*this);
    return *parts_->gpu;
}

}  // namespace mantissa
