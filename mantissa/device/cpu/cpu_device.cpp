#include "mantissa/device/cpu/cpu_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "mantissa/base/buffer.h"
#include "mantissa/base/error.h"
#include "mantissa/base/system_memory.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/cpu_target.h"
#include "mantissa/device/cpu/kernels/kernels.h"
#include "mantissa/device/cpu/measured_format_peaks.h"
#include "mantissa/device/cpu/peaks.h"
#include "mantissa/device/launch_addresses.h"

namespace mantissa::inline v0 {

namespace {

class CpuMemory final : public DeviceMemory {
  public:
    CpuMemory(std::size_t bytes, const char* purpose) : buffer_(bytes, purpose) {}
    std::byte* data() const override { return buffer_.data(); }
    std::size_t size() const override { return buffer_.size(); }

  private:
    Buffer buffer_;
};

/// Done when it returns.
class CpuProgram final : public Program {
  public:
    explicit CpuProgram(std::span<const BoundStep> steps) {
        for (const BoundStep& step : steps)
            if (const auto* launch = std::get_if<BoundLaunch>(&step))
                steps_.emplace_back(LaunchAddresses(*launch));
            else
                steps_.emplace_back(std::get<BoundCopy>(step));
    }

    void run() override {
        for (std::size_t step = 0; step < steps_.size(); ++step) run_step(step);
    }
    void run_step(std::size_t step) override {
        if (const auto* launch = std::get_if<LaunchAddresses>(&steps_[step]))
            launch->run();
        else
            copy(std::get<BoundCopy>(steps_[step]));
    }

  private:
    static void copy(const BoundCopy& of) {
        if (!of.from.empty()) std::memcpy(of.to, of.from.data(), of.from.size());
    }

    std::vector<std::variant<LaunchAddresses, BoundCopy>> steps_;
};

class CpuHostMemory final : public HostMemory {
  public:
    CpuHostMemory(std::size_t bytes, const char* purpose) : buffer_(bytes, purpose) {}
    std::span<std::byte> bytes() const override { return {buffer_.data(), buffer_.size()}; }

  private:
    Buffer buffer_;
};

class CpuEvent final : public Event {
  public:
    std::chrono::steady_clock::time_point passed = std::chrono::steady_clock::now();
};

double seconds_since(const Event& event, std::chrono::steady_clock::time_point time) {
    return std::chrono::duration<double>(time - static_cast<const CpuEvent&>(event).passed).count();
}

/// Features that compiled code may use at a level: no more than the hand-written kernels of that level do.
codegen::HostFeatures host_features(on_cpu::Isa isa) {
    codegen::HostFeatures features{.level = std::string(instructions_of(isa)), .bits = {}};
    if (isa >= on_cpu::Isa::avx2) features.bits = {"avx2", "fma", "f16c"};
    if (isa >= on_cpu::Isa::avx512)
        for (const char* bit : {"avx512f", "avx512bw", "avx512dq", "avx512vl"})
            features.bits.emplace_back(bit);
    if (isa >= on_cpu::Isa::avx512 && on_cpu::has_bf16_dot()) features.bits.emplace_back("avx512bf16");
    return features;
}

class CpuDevice final : public Device {
  public:
    CpuDevice(int threads, Ranks* ranks, int threads_to_cut_for, const std::filesystem::path& kernels)
        : pool_(threads),
          isa_(on_cpu::level_of_all(on_cpu::chosen_isa(), ranks)),
          compiler_(host_features(isa_), codegen::KernelFolder(kernels)),
          target_(on_cpu::cpu_target(isa_, threads)) {
        const on_cpu::Context context{pool_, isa_, ranks, threads_to_cut_for};
        on_cpu::add_grouped_convolution_kernels(kernels_, context);
        on_cpu::add_contraction_kernels(kernels_, context);
        on_cpu::add_grouped_contraction_kernels(kernels_, context);
        on_cpu::add_order_kernels(kernels_, context);
        on_cpu::add_loss_kernels(kernels_, context);
        on_cpu::add_attention_kernels(kernels_, context, compiler_);
        on_cpu::add_quantized_kernels(kernels_, context);
        add_row_kernels(kernels_, context);
        add_image_kernels(kernels_, context);
        on_cpu::add_movement_kernels(kernels_, context);
        on_cpu::add_reduction_kernels(kernels_, context);
        on_cpu::add_random_kernels(kernels_, context);
        on_cpu::add_collective_kernels(kernels_, context);
        on_cpu::add_nest_kernels(kernels_, context, compiler_);
        on_cpu::add_fused_contraction_kernels(kernels_, context, compiler_);
        on_cpu::add_elementwise_kernels(kernels_, context, compiler_);
    }

    const Target& target() const override { return target_; }

    std::span<const Kernel> kernels(std::string_view op) const override {
        const auto entry = kernels_.find(op);
        return entry == kernels_.end() ? std::span<const Kernel>{} : std::span<const Kernel>(entry->second);
    }

    std::unique_ptr<DeviceMemory> allocate(std::size_t bytes, const char* purpose) override {
        return allocate_zeroed(bytes, purpose);
    }
    /// The system gives zeros, and takes no memory for them before they are written over.
    std::unique_ptr<DeviceMemory> allocate_zeroed(std::size_t bytes, const char* purpose) override {
        return std::make_unique<CpuMemory>(bytes, purpose);
    }

    std::int64_t free_memory() const override { return available_memory(); }

    /// Copies large memory on all threads: where memory has several nodes, a page is put near the thread that
    /// writes it first. So parameters lie on all nodes, as do values that kernels write first.
    void copy_to_device(std::byte* to, std::span<const std::byte> from) override {
        constexpr std::size_t block = std::size_t{2} << 20;  // a huge page
        if (from.empty()) return;
        if (from.size() <= block) {
            std::memcpy(to, from.data(), from.size());
            return;
        }
        const auto blocks = ceil_div(std::ssize(from), block);
        pool_.for_each_block(blocks, [&](std::int64_t index, int) {
            const std::size_t begin = static_cast<std::size_t>(index) * block;
            std::memcpy(to + begin, from.data() + begin, std::min(block, from.size() - begin));
        });
    }
    void copy_to_host(std::span<std::byte> to, const std::byte* from) override {
        if (!to.empty()) std::memcpy(to.data(), from, to.size());
    }

    Peaks measure_peaks(DeviceMemory& scratch) override {
        Peaks peaks;
        peaks.f32_fma = on_cpu::measured_fma_peak(pool_, isa_);
        if (const on_cpu::Bf16Unit unit = on_cpu::bf16_unit(isa_); unit != on_cpu::Bf16Unit::none)
            peaks.bf16_matrix = on_cpu::measured_bf16_peak(pool_, unit);
        peaks.copy = on_cpu::measured_copy_bandwidth(pool_, {scratch.data(), scratch.size()}).best();
        return peaks;
    }

    void compile_kernels() override { compiler_.compile_pending(pool_); }

    std::vector<KernelListing> compiled_kernels() const override {
        std::vector<KernelListing> listings;
        for (const auto& kernel : compiler_.kernels()) {
            codegen::Listing code = compiler_.list(*kernel);
            listings.push_back({kernel->name, kernel->milliseconds, kernel->text, std::move(code.ir),
                                std::move(code.assembly)});
        }
        return listings;
    }

    FormatPeaks measure_formats() override {
        FormatPeaks peaks = on_cpu::measured_format_peaks(pool_, isa_);
        peaks.device = target_.name;
        return peaks;
    }

    std::unique_ptr<Program> bind(std::span<const BoundStep> steps) override {
        return std::make_unique<CpuProgram>(steps);
    }
    // All of these are done when they return.
    std::unique_ptr<HostMemory> allocate_on_host(std::size_t bytes, const char* purpose) override {
        return std::make_unique<CpuHostMemory>(bytes, purpose);
    }
    void queue_to_device(Queue, std::byte* to, std::span<const std::byte> from) override {
        copy_to_device(to, from);
    }
    void queue_to_host(Queue, std::span<std::byte> to, const std::byte* from) override {
        copy_to_host(to, from);
    }
    std::unique_ptr<Event> record(Queue) override { return std::make_unique<CpuEvent>(); }
    void queue_wait(Queue, const Event&) override {}
    void wait(const Event&) override {}
    double seconds_between(const Event& first, const Event& second) override {
        return seconds_since(first, static_cast<const CpuEvent&>(second).passed);
    }

    void record_threads(bool on) override { pool_.record(on); }
    std::vector<ThreadWork> thread_work(const Event& since) override {
        std::vector<ThreadWork> all;
        for (const ThreadPool::Work& work : pool_.take_record())
            all.push_back({.thread = work.worker,
                           .blocks = work.blocks,
                           .begin = seconds_since(since, work.begin),
                           .end = seconds_since(since, work.end)});
        return all;
    }

  private:
    ThreadPool pool_;
    on_cpu::Isa isa_;
    codegen::Compiler compiler_;
    Target target_;
    on_cpu::KernelTable kernels_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(const CpuOptions& options) {
    if (options.threads < 0)
        throw UserError(fmt::format("threads must be 1 or more, got {}", options.threads));
    const int threads = options.threads == 0 ? default_thread_count() : options.threads;
    return std::make_unique<CpuDevice>(threads, options.ranks,
                                       options.threads_to_cut_for == 0 ? threads : options.threads_to_cut_for,
                                       options.kernels ? *options.kernels : codegen::folder_of_kernels());
}

}  // namespace mantissa
