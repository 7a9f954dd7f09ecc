// Launches and copies on a GPU as one graph, which is captured when it first runs; a step alone is queued as
// it is.
#pragma once

#include <span>
#include <variant>
#include <vector>

#include "mantissa/device/cuda/kernels/kernels.h"
#include "mantissa/device/launch_addresses.h"

namespace mantissa::inline v0::on_cuda {

class CudaProgram final : public Program {
  public:
    /// The context must outlive it.
    CudaProgram(const Context& context, std::span<const BoundStep> steps);
    ~CudaProgram() override;
    CudaProgram(const CudaProgram&) = delete;
    CudaProgram& operator=(const CudaProgram&) = delete;

    void run() override;
    void run_step(std::size_t step) override;

  private:
    void capture();

    const Context& context_;
    std::vector<std::variant<LaunchAddresses, BoundCopy>> steps_;
    cuda::GraphExec graph_ = nullptr;
};

}  // namespace mantissa::on_cuda
