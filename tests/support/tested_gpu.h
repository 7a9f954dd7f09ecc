// The GPU that tests run on: an emulated one, or the machine's where MANTISSA_TEST_GPU is set, as
// bench/gpu.sh does.
#pragma once

#include <cstdlib>
#include <optional>

#include "tests/support/emulated_device.h"

namespace mantissa::testing {

class TestedGpu {
  public:
    explicit TestedGpu(const cuda::EmulatedGpuOptions& emulated = {}) {
        if (std::getenv("MANTISSA_TEST_GPU"))
            device_ = std::move(*make_cuda_device());
        else
            emulated_.emplace(emulated);
    }
    /// With attention by warpgroups, on an emulated sm_90a, or where the machine's GPU has them.
    static TestedGpu by_warpgroups() {
        const CudaOptions options{.warpgroup_attention = true};
        if (!std::getenv("MANTISSA_TEST_GPU")) return TestedGpu({.architecture = "sm_90a"}, options);
        return TestedGpu(
            std::move(*make_cuda_device(std::move(*cuda::find_libraries(cuda::Alone::yes)), options)));
    }
    Device& operator*() const { return emulated_ ? **emulated_ : *device_; }

  private:
    TestedGpu(const cuda::EmulatedGpuOptions& gpu, const CudaOptions& options) {
        emulated_.emplace(gpu, options);
    }
    explicit TestedGpu(std::unique_ptr<Device> device) : device_(std::move(device)) {}

    std::optional<EmulatedDevice> emulated_;
    std::unique_ptr<Device> device_;
};

}  // namespace mantissa::testing
