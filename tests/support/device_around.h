// A device that wraps another one, for tests that change some of its functions.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "mantissa/device/device.h"

namespace mantissa::testing {

class DeviceAround : public Device {
  public:
    explicit DeviceAround(std::unique_ptr<Device> inner) : inner_(std::move(inner)) {}

    const Target& target() const override { return inner_->target(); }
    std::span<const Kernel> kernels(std::string_view op) const override { return inner_->kernels(op); }
    std::unique_ptr<DeviceMemory> allocate(std::size_t bytes, const char* purpose) override {
        return inner_->allocate(bytes, purpose);
    }
    std::unique_ptr<DeviceMemory> allocate_zeroed(std::size_t bytes, const char* purpose) override {
        return inner_->allocate_zeroed(bytes, purpose);
    }
    std::int64_t free_memory() const override { return inner_->free_memory(); }
    void copy_to_device(std::byte* to, std::span<const std::byte> from) override {
        inner_->copy_to_device(to, from);
    }
    void copy_to_host(std::span<std::byte> to, const std::byte* from) override {
        inner_->copy_to_host(to, from);
    }
    Peaks measure_peaks(DeviceMemory& scratch) override { return inner_->measure_peaks(scratch); }
    void compile_kernels() override { inner_->compile_kernels(); }
    std::vector<KernelListing> compiled_kernels() const override { return inner_->compiled_kernels(); }
    FormatPeaks measure_formats() override { return inner_->measure_formats(); }
    std::unique_ptr<Program> bind(std::span<const BoundStep> steps) override { return inner_->bind(steps); }
    std::unique_ptr<HostMemory> allocate_on_host(std::size_t bytes, const char* purpose) override {
        return inner_->allocate_on_host(bytes, purpose);
    }
    void queue_to_device(Queue queue, std::byte* to, std::span<const std::byte> from) override {
        inner_->queue_to_device(queue, to, from);
    }
    void queue_to_host(Queue queue, std::span<std::byte> to, const std::byte* from) override {
        inner_->queue_to_host(queue, to, from);
    }
    std::unique_ptr<Event> record(Queue queue) override { return inner_->record(queue); }
    void queue_wait(Queue queue, const Event& event) override { inner_->queue_wait(queue, event); }
    void wait(const Event& event) override { inner_->wait(event); }
    double seconds_between(const Event& first, const Event& second) override {
        return inner_->seconds_between(first, second);
    }
    void record_threads(bool on) override { inner_->record_threads(on); }
    std::vector<ThreadWork> thread_work(const Event& since) override { return inner_->thread_work(since); }

  private:
    std::unique_ptr<Device> inner_;
};

}  // namespace mantissa::testing
