// A device for plans that are read and never run: fused kernels are chosen and named, and not compiled, which
// is most of the time that a plan takes.
#pragma once

#include <memory>
#include <vector>

#include "mantissa/device/device.h"

namespace mantissa::cli {

class PlanningDevice final : public Device {
  public:
    /// `device` must live longer.
    explicit PlanningDevice(Device& device) : device_(device) {}

    void finish_kernels() override {}

    const Target& target() const override { return device_.target(); }
    std::span<const Kernel> kernels(std::string_view op) const override { return device_.kernels(op); }
    std::unique_ptr<DeviceMemory> allocate(std::size_t bytes, const char* purpose) override {
        return device_.allocate(bytes, purpose);
    }
    void copy_to_device(std::byte* to, std::span<const std::byte> from) override {
        device_.copy_to_device(to, from);
    }
    void copy_to_host(std::span<std::byte> to, const std::byte* from) override {
        device_.copy_to_host(to, from);
    }
    void copy_on_device(std::byte* to, const std::byte* from, std::size_t bytes) override {
        device_.copy_on_device(to, from, bytes);
    }
    Peaks measure_peaks(DeviceMemory& scratch) override { return device_.measure_peaks(scratch); }
    std::vector<KernelListing> made_kernels() const override { return device_.made_kernels(); }
    FormatPeaks measure_formats() override { return device_.measure_formats(); }
    void launch(const Launch& launch, const Operands& operands) override { device_.launch(launch, operands); }
    std::unique_ptr<Event> record() override { return device_.record(); }
    void wait(const Event& event) override { device_.wait(event); }
    double seconds_between(const Event& first, const Event& second) override {
        return device_.seconds_between(first, second);
    }

  private:
    Device& device_;
};

}  // namespace mantissa::cli
