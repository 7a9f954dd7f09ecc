// What a device must offer: memory, copies, kernels to choose from, launches and events. Nothing above this
// room includes a device's own headers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/device/format_peaks.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/target.h"

namespace mantissa::inline v0 {

/// Memory of a device, freed with the object. `data` is an address of the device.
class DeviceMemory {
  public:
    virtual ~DeviceMemory() = default;
    virtual std::byte* data() const = 0;
    virtual std::size_t size() const = 0;
};

/// One operation to be done: what kernels are chosen by.
struct Problem {
    const Op& op;
    std::span<const Type> inputs;
    std::span<const Type> outputs;
    const Attributes& attributes;
};

/// Addresses of one launch, in the order of the node's operands and outputs.
struct Operands {
    std::span<const std::byte* const> inputs;
    std::span<std::byte* const> outputs;
    std::byte* workspace = nullptr;

    template <class T>
    const T* input(std::size_t i) const {
        return reinterpret_cast<const T*>(inputs[i]);
    }
    template <class T>
    T* output(std::size_t i) const {
        return reinterpret_cast<T*>(outputs[i]);
    }
};

/// A kernel bound to its problem: everything is decided but the addresses.
using Launch = std::function<void(const Operands&)>;

/// A kernel on offer. Kernels of one operation stand in order of preference.
struct Kernel {
    std::string name;  ///< as reports call it: "f32 gemm avx512 8x48"
    /// Why it cannot do a problem; empty if it can.
    std::function<std::string(const Problem&)> refusal = [](const Problem&) { return std::string(); };
    std::function<Launch(const Problem&)> prepare;
    /// What it adds in, where it adds terms of FP32 or shorter.
    DType sums = DType::f32;
    /// Bytes of scratch that a launch needs.
    std::function<std::int64_t(const Problem&)> workspace = [](const Problem&) { return std::int64_t{0}; };
    /// By output: operands of its size over which it may be written, since each element is read, for the last
    /// time, before anything is written there. Empty: none for any.
    std::function<std::vector<std::vector<int>>(const Problem&)> may_write_over = [](const Problem&) {
        return std::vector<std::vector<int>>();
    };
};

/// A kernel made in process, for people.
struct KernelListing {
    std::string name;
    double milliseconds = 0;  ///< that making it took
    std::string pseudo_code;
    std::string ir;
    std::string assembly;
};

/// A point in the order of launches, with the time at which the device passed it.
class Event {
  public:
    virtual ~Event() = default;
};

/// A thread of the device's at work on one loop of a launch. Seconds since an event.
struct ThreadWork {
    int thread = 0;
    std::int64_t blocks = 0;  ///< of the loop that it did
    double begin = 0, end = 0;
};

/// What the device reaches at most, measured. FLOP/s, and bytes per second with reads and writes counted.
struct Peaks {
    double f32_fma = 0;
    double bf16_matrix = 0;  ///< of the unit that Target::bf16_unit names; 0: none
    double copy = 0;

    double fastest() const { return bf16_matrix > f32_fma ? bf16_matrix : f32_fma; }
};

class Device {
  public:
    virtual ~Device() = default;

    virtual const Target& target() const = 0;
    /// In order of preference; empty if the device has none for the operation.
    virtual std::span<const Kernel> kernels(std::string_view op) const = 0;

    /// Zeroed memory. Throws UserError, naming `purpose`, if there is not enough.
    virtual std::unique_ptr<DeviceMemory> allocate(std::size_t bytes, const char* purpose) = 0;
    virtual void copy_to_device(std::byte* to, std::span<const std::byte> from) = 0;
    virtual void copy_to_host(std::span<std::byte> to, const std::byte* from) = 0;
    virtual void copy_on_device(std::byte* to, const std::byte* from, std::size_t bytes) = 0;

    /// Takes about a tenth of a second. `scratch` is written over; it should be several times the last cache.
    virtual Peaks measure_peaks(DeviceMemory& scratch) = 0;

    /// Called when all kernels of a plan are prepared, before the first launch: makes those that are made in
    /// process.
    virtual void finish_kernels() {}
    /// All that were made in process so far.
    virtual std::vector<KernelListing> made_kernels() const { return {}; }

    /// Peaks of every format, with what the device's facts let one expect. Takes seconds.
    virtual FormatPeaks measure_formats() = 0;

    /// Launches run one after another in the order given; they may return before they are done.
    virtual void launch(const Launch& launch, const Operands& operands) = 0;
    virtual std::unique_ptr<Event> record() = 0;
    /// Returns when the device has passed the event.
    virtual void wait(const Event& event) = 0;
    /// Between two events that were both waited for.
    virtual double seconds_between(const Event& first, const Event& second) = 0;

    /// Whether it is recorded when each thread works, where threads of the host do what is launched. At first
    /// it is not, and costs nothing.
    virtual void record_threads(bool) {}
    /// What was recorded since the last call, by thread and then by time; `since` was passed before.
    virtual std::vector<ThreadWork> thread_work(const Event& since) {
        static_cast<void>(since);
        return {};
    }
};

}  // namespace mantissa
