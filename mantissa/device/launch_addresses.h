// The addresses of a bound launch as kernels of the host are given them.
#pragma once

#include <cstddef>
#include <vector>

#include "mantissa/device/device.h"

namespace mantissa::inline v0 {

class LaunchAddresses {
  public:
    explicit LaunchAddresses(const BoundLaunch& bound)
        : launch_(bound.launch), workspace_(bound.workspace.data()) {
        for (const std::span<const std::byte> input : bound.inputs) inputs_.push_back(input.data());
        for (const std::span<std::byte> output : bound.outputs) outputs_.push_back(output.data());
    }

    void run() const { (*launch_)({inputs_, outputs_, workspace_}); }

  private:
    const Launch* launch_;
    std::vector<const std::byte*> inputs_;
    std::vector<std::byte*> outputs_;
    std::byte* workspace_;
};

}  // namespace mantissa
