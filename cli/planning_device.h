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
    std::unique_ptr<DeviceMemory> allocate_zeroed(std::size_t bytes, const char* purpose) override {
        return device_.allocate_zeroed(bytes, purpose);
    }
    std::int64_t free_memory() const override { return device_.free_memory(); }
    void copy_to_device(std::byte* to, std::span<const std::byte> from) override {
        device_.copy_to_device(to, from);
    }
    void copy_to_host(std::span<std::byte> to, const std::byte* from) override {
        device_.copy_to_host(to, from);
    }
    Peaks measure_peaks(DeviceMemory& scratch) override { return device_.measure_peaks(scratch); }
    std::vector<KernelListing> made_kernels() const override { return device_.made_kernels(); }
    FormatPeaks measure_formats() override { return device_.measure_formats(); }
    std::unique_ptr<Program> bind(std::span<const BoundStep> steps) override { return device_.bind(steps); }
    std::unique_ptr<HostMemory> allocate_on_host(std::size_t bytes, const char* purpose) override {
        return device_.allocate_on_host(bytes, purpose);
    }
    void queue_to_device(Queue queue, std::byte* to, std::span<const std::byte> from) override {
        device_.queue_to_device(queue, to, from);
    }
    void queue_to_host(Queue queue, std::span<std::byte> to, const std::byte* from) override {
        device_.queue_to_host(queue, to, from);
    }
    std::unique_ptr<Event> record(Queue queue) override { return device_.record(queue); }
    void queue_wait(Queue queue, const Event& event) override { device_.queue_wait(queue, event); }
    void wait(const Event& event) override { device_.wait(event); }
    double seconds_between(const Event& first, const Event& second) override {
        return device_.seconds_between(first, second);
    }

  private:
    Device& device_;
};

}  // namespace mantissa::cli
