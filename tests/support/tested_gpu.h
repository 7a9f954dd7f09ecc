// The GPU that tests run on: an emulated one, or the machine's where MANTISSA_TEST_GPU is set, as
// bench/gpu.sh does.
#pragma once

#include <cstdlib>
#include <optional>

#include "tests/support/emulated_device.h"

namespace mantissa::testing {

class TestedGpu {
  public:
    TestedGpu() {
        if (std::getenv("MANTISSA_TEST_GPU"))
            device_ = std::move(*make_cuda_device());
        else
            emulated_.emplace();
    }
    Device& operator*() const { return emulated_ ? **emulated_ : *device_; }

  private:
    std::optional<EmulatedDevice> emulated_;
    std::unique_ptr<Device> device_;
};

}  // namespace mantissa::testing
