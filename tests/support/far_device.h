// A device that detects use as host memory: the emulated GPU, with more of device.h's promises enforced.
//
//   memory of the device       cannot be touched by the host
//   work that is queued        runs when a caller waits for it, not earlier
//   a copy beside the work     runs as late as it may, or as early: each finds faults that the other hides
//   a copy to the host         lands on NaN, so that an early read does not find an older value
//   memory of the host         for queued copies must come from allocate_on_host
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/codegen/compiler.h"
#include "tests/support/device_around.h"
#include "tests/support/emulated_device.h"

namespace mantissa::testing {

enum class CopiesRun { late, early };

class FarDevice final : public DeviceAround {
  public:
    explicit FarDevice(CopiesRun copies) : DeviceAround(EmulatedDevice().device), copies_(copies) {}

    std::unique_ptr<HostMemory> allocate_on_host(std::size_t bytes, const char* purpose) override {
        auto memory = DeviceAround::allocate_on_host(bytes, purpose);
        known_.push_back(memory->bytes());  // a reused address is listed twice
        return memory;
    }
    void queue_to_device(Queue queue, std::byte* to, std::span<const std::byte> from) override {
        require_on_host(from);
        DeviceAround::queue_to_device(queue, to, from);
        if (queue == Queue::copies && copies_ == CopiesRun::early) wait(*record(Queue::copies));
    }
    void queue_to_host(Queue queue, std::span<std::byte> to, const std::byte* from) override {
        require_on_host(to);
        std::memset(to.data(), 0xff, to.size());
        DeviceAround::queue_to_host(queue, to, from);
    }

  private:
    void require_on_host(std::span<const std::byte> range) const {
        const auto holds = [&](std::span<std::byte> known) {
            return known.data() <= range.data() && range.data() + range.size() <= known.data() + known.size();
        };
        check(range.empty() || std::ranges::any_of(known_, holds),
              "copies are queued from and to memory of allocate_on_host");
    }

    CopiesRun copies_;
    std::vector<std::span<std::byte>> known_;
};

/// Both kinds; empty if no compiler makes their kernels.
inline std::vector<std::unique_ptr<Device>> far_devices() {
    std::vector<std::unique_ptr<Device>> devices;
    if (!codegen::Compiler::refusal().empty()) return devices;
    for (const CopiesRun copies : {CopiesRun::late, CopiesRun::early})
        devices.push_back(std::make_unique<FarDevice>(copies));
    return devices;
}

}  // namespace mantissa::testing
