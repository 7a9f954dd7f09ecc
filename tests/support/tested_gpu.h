// The GPU of the tests: an emulated one, or the machine's if MANTISSA_TEST_GPU is set, as by bench/gpu.sh.
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
    /// A GPU with attention by warpgroups: an emulated sm_90a, or the machine's if it has them.
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
