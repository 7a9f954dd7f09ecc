#include "mantissa/device/discrete/discrete_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "mantissa/base/error.h"
#include "mantissa/device/discrete/address_space.h"
#include "mantissa/device/discrete/work_queue.h"
#include "mantissa/device/launch_addresses.h"

namespace mantissa::inline v0 {

namespace {

void fill_with_poison(std::byte* memory, std::size_t bytes) {
    constexpr std::uint64_t words = poison * std::uint64_t{0x0001'0001'0001'0001};
    const std::size_t whole = bytes / sizeof words * sizeof words;
    for (std::size_t i = 0; i < whole; i += sizeof words) std::memcpy(memory + i, &words, sizeof words);
    if (whole < bytes) std::memcpy(memory + whole, &words, bytes - whole);
}

bool overlap(std::span<const std::byte> a, std::span<const std::byte> b) {
    return a.data() < b.data() + b.size() && b.data() < a.data() + a.size();
}

/// Memory of the kernels' device under an address of its own.
class DiscreteMemory final : public DeviceMemory {
  public:
    DiscreteMemory(std::unique_ptr<DeviceMemory> held, const char* purpose, std::shared_ptr<AddressSpace> in)
        : held_(std::move(held)), space_(std::move(in)) {
        address_ = space_->add({held_->data(), held_->size()}, purpose);
    }
    ~DiscreteMemory() override { space_->remove(address_); }
    DiscreteMemory(const DiscreteMemory&) = delete;
    DiscreteMemory& operator=(const DiscreteMemory&) = delete;

    std::byte* data() const override { return address_; }
    std::size_t size() const override { return held_->size(); }

  private:
    std::unique_ptr<DeviceMemory> held_;
    std::shared_ptr<AddressSpace> space_;
    std::byte* address_;
};

/// Memory of the host that copies may be queued from and to.
using HostRanges = std::vector<std::span<std::byte>>;

/// What lies behind addresses of the device, as the device of the kernels knows it.
class MemoryBehind final : public DeviceMemory {
  public:
    explicit MemoryBehind(std::span<std::byte> memory) : memory_(memory) {}
    std::byte* data() const override { return memory_.data(); }
    std::size_t size() const override { return memory_.size(); }

  private:
    std::span<std::byte> memory_;
};

class DiscreteHostMemory final : public HostMemory {
  public:
    DiscreteHostMemory(std::unique_ptr<HostMemory> held, std::shared_ptr<HostRanges> known)
        : held_(std::move(held)), known_(std::move(known)) {
        known_->push_back(held_->bytes());
    }
    ~DiscreteHostMemory() override {
        std::erase_if(*known_, [&](auto range) { return range.data() == held_->bytes().data(); });
    }
    DiscreteHostMemory(const DiscreteHostMemory&) = delete;
    DiscreteHostMemory& operator=(const DiscreteHostMemory&) = delete;

    std::span<std::byte> bytes() const override { return held_->bytes(); }

  private:
    std::unique_ptr<HostMemory> held_;
    std::shared_ptr<HostRanges> known_;
};

class DiscreteEvent final : public Event {
  public:
    explicit DiscreteEvent(std::shared_ptr<QueueMark> at) : mark(std::move(at)) {}
    std::shared_ptr<QueueMark> mark;
};

const QueueMark& mark_of(const Event& event) { return *static_cast<const DiscreteEvent&>(event).mark; }

const Event& passed(const Event& event) {
    check(mark_of(event).passed != nullptr, "the device has passed an event whose time is asked for");
    return *mark_of(event).passed;
}

/// Runs steps in the memory behind their addresses.
class Runner {
  public:
    explicit Runner(const AddressSpace& space) : space_(space) {}

    void operator()(const BoundCopy& copy) const {
        if (copy.from.empty()) return;
        std::memcpy(space_.memory_at(copy.to, copy.from.size(), "a copy writes"),
                    behind(copy.from, "a copy reads").data(), copy.from.size());
    }

    void operator()(const BoundLaunch& bound) const {
        BoundLaunch here{.launch = bound.launch, .inputs = {}, .outputs = {}};
        for (const std::span<const std::byte> input : bound.inputs)
            here.inputs.emplace_back(behind(input, "a launch reads"));
        for (const std::span<std::byte> output : bound.outputs) {
            here.outputs.push_back(behind(output, "a launch writes"));
            const auto over = [&](std::span<const std::byte> input) { return overlap(output, input); };
            if (std::ranges::none_of(bound.inputs, over))
                fill_with_poison(here.outputs.back().data(), output.size());
        }
        here.workspace = behind(bound.workspace, "a launch works");
        fill_with_poison(here.workspace.data(), here.workspace.size());
        LaunchAddresses(here).run();
    }

  private:
    std::span<std::byte> behind(std::span<const std::byte> range, std::string_view who) const {
        return {space_.memory_at(range.data(), range.size(), who), range.size()};
    }

    const AddressSpace& space_;
};

class DiscreteDevice final : public Device {
  public:
    explicit DiscreteDevice(std::unique_ptr<Device> kernels)
        : kernels_(std::move(kernels)), work_(*kernels_), copies_(*kernels_) {
        target_ = kernels_->target();
        target_.isa += " (discrete, emulated)";
        target_.alignment = AddressSpace::alignment;
        target_.overlaps_copies = true;
    }

    const Target& target() const override { return target_; }
    std::span<const Kernel> kernels(std::string_view op) const override { return kernels_->kernels(op); }

    std::int64_t free_memory() const override { return kernels_->free_memory(); }
    std::unique_ptr<DeviceMemory> allocate(std::size_t bytes, const char* purpose) override {
        std::unique_ptr<DeviceMemory> memory = kernels_->allocate(bytes, purpose);
        fill_with_poison(memory->data(), memory->size());
        return std::make_unique<DiscreteMemory>(std::move(memory), purpose, space_);
    }
    std::unique_ptr<DeviceMemory> allocate_zeroed(std::size_t bytes, const char* purpose) override {
        return std::make_unique<DiscreteMemory>(kernels_->allocate_zeroed(bytes, purpose), purpose, space_);
    }

    void copy_to_device(std::byte* to, std::span<const std::byte> from) override {
        work_.run_all();
        write(to, from);
    }
    void copy_to_host(std::span<std::byte> to, const std::byte* from) override {
        work_.run_all();
        read(to, from);
    }

    Peaks measure_peaks(DeviceMemory& scratch) override {
        work_.run_all();
        MemoryBehind behind({space_->memory_at(scratch.data(), scratch.size(), "measuring"), scratch.size()});
        return kernels_->measure_peaks(behind);
    }
    void finish_kernels() override { kernels_->finish_kernels(); }
    std::vector<KernelListing> made_kernels() const override { return kernels_->made_kernels(); }
    FormatPeaks measure_formats() override { return kernels_->measure_formats(); }

    std::unique_ptr<Program> bind(std::span<const BoundStep> steps) override;

    using Steps = std::vector<BoundStep>;
    void queue(const std::shared_ptr<const Steps>& steps, std::size_t step) {
        work_.add([this, steps, step] { std::visit(Runner(*space_), (*steps)[step]); });
    }

    std::unique_ptr<HostMemory> allocate_on_host(std::size_t bytes, const char* purpose) override {
        return std::make_unique<DiscreteHostMemory>(kernels_->allocate_on_host(bytes, purpose), host_);
    }
    void queue_to_device(Queue queue, std::byte* to, std::span<const std::byte> from) override {
        require_on_host(from);
        of(queue).add([=, this] { write(to, from); });
        begin_early_or_late();
    }
    void queue_to_host(Queue queue, std::span<std::byte> to, const std::byte* from) override {
        require_on_host(to);
        fill_with_poison(to.data(), to.size());
        of(queue).add([=, this] { read(to, from); });
        begin_early_or_late();
    }

    std::unique_ptr<Event> record(Queue queue) override {
        return std::make_unique<DiscreteEvent>(of(queue).add_mark());
    }
    void queue_wait(Queue queue, const Event& event) override {
        of(queue).add_wait(static_cast<const DiscreteEvent&>(event).mark);
    }
    void wait(const Event& event) override { WorkQueue::run_to(mark_of(event)); }
    double seconds_between(const Event& first, const Event& second) override {
        return kernels_->seconds_between(passed(first), passed(second));
    }

    void record_threads(bool on) override { kernels_->record_threads(on); }
    std::vector<ThreadWork> thread_work(const Event& since) override {
        return kernels_->thread_work(passed(since));
    }

  private:
    WorkQueue& of(Queue queue) { return queue == Queue::work ? work_ : copies_; }

    /// Copies beside the work begin as soon as they may, or as late: both are right, and each finds faults
    /// that the other hides.
    void begin_early_or_late() {
        if (++copies_queued_ % 3 != 0) copies_.run_what_may();
    }

    void write(std::byte* to, std::span<const std::byte> from) const {
        if (from.empty()) return;
        std::memcpy(space_->memory_at(to, from.size(), "a copy from the host"), from.data(), from.size());
    }
    void read(std::span<std::byte> to, const std::byte* from) const {
        if (to.empty()) return;
        std::memcpy(to.data(), space_->memory_at(from, to.size(), "a copy to the host"), to.size());
    }

    void require_on_host(std::span<const std::byte> range) const {
        const auto holds = [&](std::span<std::byte> known) {
            return known.data() <= range.data() && range.data() + range.size() <= known.data() + known.size();
        };
        check(range.empty() || std::ranges::any_of(*host_, holds),
              "copies are queued from and to memory of allocate_on_host");
    }

    std::unique_ptr<Device> kernels_;
    Target target_;
    std::shared_ptr<AddressSpace> space_ = std::make_shared<AddressSpace>();
    std::shared_ptr<HostRanges> host_ = std::make_shared<HostRanges>();
    WorkQueue work_, copies_;
    int copies_queued_ = 0;
};

class DiscreteProgram final : public Program {
  public:
    DiscreteProgram(DiscreteDevice& device, std::span<const BoundStep> steps)
        : device_(device),
          steps_(std::make_shared<const DiscreteDevice::Steps>(steps.begin(), steps.end())) {}

    void run() override {
        for (std::size_t step = 0; step < steps_->size(); ++step) run_step(step);
    }
    void run_step(std::size_t step) override { device_.queue(steps_, step); }

  private:
    DiscreteDevice& device_;
    std::shared_ptr<const DiscreteDevice::Steps> steps_;
};

std::unique_ptr<Program> DiscreteDevice::bind(std::span<const BoundStep> steps) {
    return std::make_unique<DiscreteProgram>(*this, steps);
}

}  // namespace

bool discrete_emulation_asked() {
    const char* const value = std::getenv("MANTISSA_EMULATE_DISCRETE");
    const std::string_view asked = value ? value : "";
    if (asked.empty() || asked == "0") return false;
    if (asked == "1") return true;
    throw UserError(fmt::format("MANTISSA_EMULATE_DISCRETE is '{}'; expected 0 or 1", asked));
}

std::unique_ptr<Device> make_discrete_device(std::unique_ptr<Device> kernels) {
    return std::make_unique<DiscreteDevice>(std::move(kernels));
}

}  // namespace mantissa
