// Kernels for a GPU: each is compiled to PTX once, or found in an earlier run's folder. The driver loads it,
// if anybody still wants it when kernels are finished.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mantissa/codegen/grid_kernel.h"
#include "mantissa/codegen/kernel_folder.h"
#include "mantissa/codegen/kernel_requests.h"
#include "mantissa/device/cuda/driver.h"
#include "mantissa/device/device.h"

namespace mantissa::inline v0::on_cuda {

/// A kernel that is loaded or going to be.
struct GpuKernel {
    std::string name;                           ///< of its entry
    std::string text;                           ///< equal kernels have equal texts
    std::function<codegen::Listing()> compile;  ///< none once it is loaded
    cuda::Function function = nullptr;
    double milliseconds = 0;  ///< that making it took
};

class KernelModules {
  public:
    /// The driver must outlive the object.
    KernelModules(const cuda::Driver& driver, codegen::NvptxTarget target, codegen::KernelFolder folder)
        : driver_(driver), target_(std::move(target)), folder_(std::move(folder)) {}
    ~KernelModules();
    KernelModules(const KernelModules&) = delete;
    KernelModules& operator=(const KernelModules&) = delete;

    const codegen::NvptxTarget& target() const { return target_; }

    std::shared_ptr<const GpuKernel> add(codegen::GridKernel kernel);
    /// `compile` gives the kernel of this text, whose entry is `name`.
    std::shared_ptr<const GpuKernel> add(std::string name, const std::string& text,
                                         std::function<codegen::Listing()> compile);
    /// Compiles and loads the kernels that are held. Throws UserError in the driver's words.
    void finish();
    /// The number of modules that were loaded.
    const std::vector<KernelListing>& listings() const { return listings_; }
    /// The number of modules found in the folder.
    std::int64_t found() const { return found_; }

  private:
    codegen::Listing found_or_made(const GpuKernel& kernel);
    void load(GpuKernel& kernel);

    const cuda::Driver& driver_;
    codegen::NvptxTarget target_;
    codegen::KernelFolder folder_;
    std::int64_t found_ = 0;
    codegen::KernelRequests<GpuKernel> requests_;
    std::vector<cuda::Module> modules_;
    std::vector<KernelListing> listings_;
};

}  // namespace mantissa::on_cuda
