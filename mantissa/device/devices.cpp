#include "mantissa/device/devices.h"

#include <fmt/format.h>

#include <map>
#include <memory>
#include <mutex>

#include "mantissa/base/error.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/device/cuda/cuda_device.h"

namespace mantissa::inline v0 {

Device& cpu(int threads) {
    static std::mutex mutex;
    static std::map<int, std::unique_ptr<Device>> devices;
    const std::lock_guard lock(mutex);
    std::unique_ptr<Device>& device = devices[threads];
    if (!device) device = make_cpu_device({.threads = threads});
    return *device;
}

Device& gpu(int index) {
    if (index != 0)
        throw UserError(fmt::format(
            "a process has one GPU, of index 0; set CUDA_VISIBLE_DEVICES={} to have another than the first",
            index));
    static const std::unique_ptr<Device> device = [] {
        OrReason<std::unique_ptr<Device>> made = make_cuda_device();
        if (!made) throw UserError(fmt::format("there is no GPU to train on: {}; use cpu()", made.reason()));
        return std::move(*made);
    }();
    return *device;
}

}  // namespace mantissa
