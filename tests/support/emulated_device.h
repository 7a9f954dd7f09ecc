// An emulated GPU as a device, with its findings.
#pragma once

#include <memory>
#include <utility>

#include "mantissa/codegen/kernel_folder.h"
#include "mantissa/device/cuda/cuda_device.h"
#include "tests/emulated_gpu/emulated_gpu.h"

namespace mantissa::testing {

struct EmulatedDevice {
    explicit EmulatedDevice(const cuda::EmulatedGpuOptions& options = {}, CudaOptions of_device = {})
        : gpu(options) {
        if (of_device.kernels.empty()) of_device.kernels = codegen::folder_of_kernels();
        device = std::move(*make_cuda_device({gpu.driver(), gpu.cublaslt(), gpu.cudnn()}, of_device));
    }
    Device& operator*() const { return *device; }

    cuda::EmulatedGpu gpu;
    std::unique_ptr<Device> device;
};

}  // namespace mantissa::testing
