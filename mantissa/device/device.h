// The offer of a device: memory, copies, kernels to choose from, programs and events. Nothing above this room
// includes a device's own headers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "mantissa/base/expected.h"
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

/// Memory of the host that copies may be queued from and to, freed with the object.
class HostMemory {
  public:
    virtual ~HostMemory() = default;
    virtual std::span<std::byte> bytes() const = 0;
};

/// A queue runs its work in the order of queueing, and beside the other queue unless one is told to wait.
enum class Queue : std::uint8_t {
    work,    ///< programs, and copies that follow on them
    copies,  ///< between the host's memory and the device's
};

/// One operation to be done, for the choice of its kernel.
struct Problem {
    const Op& op;
    std::span<const Type> inputs;
    std::span<const Type> outputs;
    const Attributes& attributes;
    /// Operands that stay as they are from launch to launch, as in a loop.
    std::span<const int> lasting = {};
    /// Operands and outputs may begin at any of their elements. Else all begin at multiples of 16 bytes.
    bool askew = false;
    /// A part of the backward pass, where rows of zeros meet finite numbers or count as if they did.
    bool backward = false;
};

/// Addresses of one launch, in the order of the node's operands and outputs.
struct Operands {
    std::span<const std::byte* const> inputs;
    std::span<std::byte* const> outputs;
    std::byte* workspace = nullptr;
    std::byte* kept = nullptr;  ///< memory that PreparedKernel::keep filled

    template <class T>
    const T* input(std::size_t i) const {
        return reinterpret_cast<const T*>(inputs[i]);
    }
    template <class T>
    T* output(std::size_t i) const {
        return reinterpret_cast<T*>(outputs[i]);
    }
};

/// A kernel prepared for its problem: everything is decided but the addresses.
using Launch = std::function<void(const Operands&)>;

/// A launch and the memory that it works on: all addresses are the device's.
struct BoundLaunch {
    const Launch* launch = nullptr;  ///< must outlive the program
    std::vector<std::span<const std::byte>> inputs;
    std::vector<std::span<std::byte>> outputs;
    std::span<std::byte> workspace = {};
};

/// A copy within the device's memory.
struct BoundCopy {
    std::span<const std::byte> from;
    std::byte* to = nullptr;
};

using BoundStep = std::variant<BoundLaunch, BoundCopy>;

/// Steps bound to memory, to be run again and again: one list of calls, or one graph of a GPU. Queued work
/// may not be done, nor have begun, when the call returns. A program and its memory must outlive it.
class Program {
  public:
    virtual ~Program() = default;
    /// Queues all steps.
    virtual void run() = 0;
    /// Queues one step, for callers that look at its results, or at its time.
    virtual void run_step(std::size_t step) = 0;
};

/// The arithmetic of a kernel.
struct Arithmetic {
    /// The format that it multiplies matrices in, written as in device/format_peaks.h; empty: it multiplies
    /// none.
    std::string multiply = {};
    /// The format that it adds in, where it adds terms of FP32 or shorter.
    DType sums = DType::f32;
    /// The unit that computes: a level of instruction sets, or a matrix unit as Target::bf16_unit names it.
    std::string unit = {};
};

/// A kernel's answer to a problem that it takes.
struct PreparedKernel {
    Launch launch;
    /// Bytes of scratch that a launch needs.
    std::int64_t workspace = 0;
    /// Set where launches read data made from the lasting operands alone: makes them, in so many bytes of
    /// Operands::kept, before the first launch. Other operands and outputs may be missing then.
    Launch keep = {};
    std::int64_t kept = 0;
    /// By output: operands of its size over which it may be written, since each element is read, for the last
    /// time, before anything is written there. Empty: no output may be.
    std::vector<std::vector<int>> may_write_over = {};
    /// The steps of the device for one node, where they are more than a kernel: kernels, and zeros and copies
    /// before them.
    std::int64_t launches = 1;
    /// Arithmetic and bytes, where they are more than the operation's own.
    std::optional<Cost> cost = {};
    /// The library's algorithm that the kernel runs, in words: asked once the device has finished its
    /// kernels. Empty: there is no choice.
    std::function<std::string()> algorithm = {};
    /// Set where the parts of the operation would do, too, and both were measured. The kernel keeps its own
    /// name.
    std::optional<TimeBesideParts> time = {};
};

/// A kernel on offer. Kernels of one operation stand in order of preference.
struct Kernel {
    std::string name;  ///< as reports call it: "gemm bf16*bf16+f32 amx"
    Arithmetic arithmetic = {};
    /// The kernel ready for a problem, or why it cannot do it. Asking makes nothing:
    /// `Device::compile_kernels` makes code for the answer, if the answer is still held then.
    std::function<Expected<PreparedKernel>(const Problem&)> prepare;
};

/// A kernel made in process, for people.
struct KernelListing {
    std::string name;
    double milliseconds = 0;  ///< that making it took
    std::string pseudo_code;
    std::string ir;
    std::string assembly;
};

/// A point in a queue's work, with the time at which the device passed it.
class Event {
  public:
    virtual ~Event() = default;
};

/// A thread of the device's at work on one loop of a launch. Seconds since an event.
struct ThreadWork {
    int thread = 0;
    std::int64_t blocks = 0;  ///< of the loop, done by the thread
    double begin = 0, end = 0;
};

/// The highest rates of the device, measured. FLOP/s, and bytes per second with reads and writes counted.
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

    /// Memory with any contents. Throws UserError, naming `purpose`, if there is not enough.
    virtual std::unique_ptr<DeviceMemory> allocate(std::size_t bytes, const char* purpose) = 0;
    /// Memory of zeros.
    virtual std::unique_ptr<DeviceMemory> allocate_zeroed(std::size_t bytes, const char* purpose) = 0;

    /// Bytes that may still be allocated.
    virtual std::int64_t free_memory() const = 0;

    /// Copies between the host's memory and the device's, after all work that was queued before, and done
    /// when they return.
    virtual void copy_to_device(std::byte* to, std::span<const std::byte> from) = 0;
    virtual void copy_to_host(std::span<std::byte> to, const std::byte* from) = 0;

    /// Takes about a tenth of a second. `scratch` is written over; it should be several times the last cache.
    virtual Peaks measure_peaks(DeviceMemory& scratch) = 0;

    /// Called when all kernels of a plan are prepared, before the first launch: makes code for the kernels
    /// that are held, and for no others.
    virtual void compile_kernels() {}
    /// All kernels made in process so far.
    virtual std::vector<KernelListing> compiled_kernels() const { return {}; }

    /// Peaks of every format, with the peaks that the device's facts let one expect. Takes seconds.
    virtual FormatPeaks measure_formats() = 0;

    /// Binds the steps, in the order of their run.
    virtual std::unique_ptr<Program> bind(std::span<const BoundStep> steps) = 0;
    /// Memory of the host for copies that are queued. Throws UserError, naming `purpose`, if there is not
    /// enough.
    virtual std::unique_ptr<HostMemory> allocate_on_host(std::size_t bytes, const char* purpose) = 0;
    /// Queues a copy. The host's bytes lie in such memory and are read, or written, at any time until the
    /// device has passed an event that was queued behind it.
    virtual void queue_to_device(Queue queue, std::byte* to, std::span<const std::byte> from) = 0;
    virtual void queue_to_host(Queue queue, std::span<std::byte> to, const std::byte* from) = 0;

    /// Queues an event behind all work queued there before.
    virtual std::unique_ptr<Event> record(Queue queue) = 0;
    std::unique_ptr<Event> record() { return record(Queue::work); }
    /// Lets work queued there from now on begin when the device has passed the event.
    virtual void queue_wait(Queue queue, const Event& event) = 0;
    /// Returns when the device has passed the event.
    virtual void wait(const Event& event) = 0;
    /// Seconds between two events that the device has passed.
    virtual double seconds_between(const Event& first, const Event& second) = 0;

    /// Whether to record when each thread works, if threads of the host run the launches. At first it is off,
    /// and costs nothing.
    virtual void record_threads(bool) {}
    /// Everything that was recorded since the last call, by thread and then by time; `since` was passed
    /// before.
    virtual std::vector<ThreadWork> thread_work(const Event& since) {
        static_cast<void>(since);
        return {};
    }
};

}  // namespace mantissa
