#include "mantissa/device/cpu/cpu_device.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <map>

#include "mantissa/base/buffer.h"
#include "mantissa/base/error.h"
#include "mantissa/device/cpu/kernels/kernels.h"
#include "mantissa/device/cpu/measured_format_peaks.h"
#include "mantissa/device/cpu/peaks.h"
#include "mantissa/device/cpu/tile_emulator.h"

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

class CpuEvent final : public Event {
  public:
    std::chrono::steady_clock::time_point passed = std::chrono::steady_clock::now();
};

double seconds_since(const Event& event, std::chrono::steady_clock::time_point time) {
    return std::chrono::duration<double>(time - static_cast<const CpuEvent&>(event).passed).count();
}

std::string processor_name() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);)
        if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
    return "unknown processor";
}

/// What compiled code may use at a level: no more than the hand-written kernels of that level do.
codegen::HostFeatures host_features(on_cpu::Isa isa) {
    codegen::HostFeatures features{.level = std::string(name_of(isa)), .bits = {}};
    if (isa >= on_cpu::Isa::avx2) features.bits = {"avx2", "fma", "f16c"};
    if (isa >= on_cpu::Isa::avx512)
        for (const char* bit : {"avx512f", "avx512bw", "avx512dq", "avx512vl"})
            features.bits.emplace_back(bit);
    if (isa >= on_cpu::Isa::avx512 && on_cpu::has_bf16_dot()) features.bits.emplace_back("avx512bf16");
    return features;
}

/// Compiled code works on 16 columns at a time. Plain C++ makes tiles of 8, which such code takes twice as
/// long for: a step of GPT-2 tiny, 8 x 256, took 1.11 of the time with tails that it takes without.
std::string refusal_of_tails(on_cpu::Isa isa) {
    if (isa != on_cpu::Isa::generic) return {};
    return "contractions of the level generic make tiles of 8 columns, compiled code works on 16";
}

class CpuDevice final : public Device {
  public:
    explicit CpuDevice(int threads)
        : pool_(threads), isa_(on_cpu::chosen_isa()), compiler_(host_features(isa_)) {
        const on_cpu::CacheSizes caches = on_cpu::cache_sizes();
        target_ = {
            .device = "cpu",
            .name = processor_name(),
            .isa = std::string(name_of(isa_)) + (on_cpu::tile_emulation_asked() ? " (tiles emulated)" : ""),
            .threads = threads,
            .l1_bytes = caches.l1d,
            .l2_bytes = caches.l2,
            .l3_bytes = caches.l3,
            .matrix_unit_bf16 = on_cpu::bf16_unit(isa_) != on_cpu::Bf16Unit::none,
            .bf16_unit = std::string(name_of(on_cpu::bf16_unit(isa_))),
            .cannot_compile = codegen::Compiler::refusal(),
            .cannot_attach_tails = refusal_of_tails(isa_),
            .cannot_multiply_tf32 = on_cpu::tf32_refusal()};
        const on_cpu::Context context{pool_, isa_};
        on_cpu::add_contraction_kernels(kernels_, context);
        on_cpu::add_loss_kernels(kernels_, context);
        on_cpu::add_attention_kernels(kernels_, context);
        on_cpu::add_quantized_kernels(kernels_, context);
        add_row_kernels(kernels_, context);
        add_image_kernels(kernels_, context);
        on_cpu::add_elementwise_kernels(kernels_, context);
        on_cpu::add_movement_kernels(kernels_, context);
        on_cpu::add_reduction_kernels(kernels_, context);
        on_cpu::add_random_kernels(kernels_, context);
        on_cpu::add_fused_kernels(kernels_, context, compiler_);
        on_cpu::add_fused_contraction_kernels(kernels_, context, compiler_);
    }

    const Target& target() const override { return target_; }

    std::span<const Kernel> kernels(std::string_view op) const override {
        const auto entry = kernels_.find(op);
        return entry == kernels_.end() ? std::span<const Kernel>{} : std::span<const Kernel>(entry->second);
    }

    std::unique_ptr<DeviceMemory> allocate(std::size_t bytes, const char* purpose) override {
        return std::make_unique<CpuMemory>(bytes, purpose);
    }

    void copy_to_device(std::byte* to, std::span<const std::byte> from) override {
        if (!from.empty()) std::memcpy(to, from.data(), from.size());
    }
    void copy_to_host(std::span<std::byte> to, const std::byte* from) override {
        if (!to.empty()) std::memcpy(to.data(), from, to.size());
    }
    void copy_on_device(std::byte* to, const std::byte* from, std::size_t bytes) override {
        if (bytes > 0) std::memcpy(to, from, bytes);
    }

    Peaks measure_peaks(DeviceMemory& scratch) override {
        Peaks peaks;
        peaks.f32_fma = on_cpu::measured_fma_peak(pool_, isa_);
        if (const on_cpu::Bf16Unit unit = on_cpu::bf16_unit(isa_); unit != on_cpu::Bf16Unit::none)
            peaks.bf16_matrix = on_cpu::measured_bf16_peak(pool_, unit);
        peaks.copy = on_cpu::measured_copy_bandwidth(pool_, {scratch.data(), scratch.size()}).best();
        return peaks;
    }

    void finish_kernels() override { compiler_.compile_pending(pool_); }

    std::vector<KernelListing> made_kernels() const override {
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

    void launch(const Launch& launch, const Operands& operands) override { launch(operands); }
    std::unique_ptr<Event> record() override { return std::make_unique<CpuEvent>(); }
    void wait(const Event&) override {}  // a launch is done when it returns
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
    return std::make_unique<CpuDevice>(options.threads == 0 ? default_thread_count() : options.threads);
}

Device& cpu() {
    static const std::unique_ptr<Device> device = make_cpu_device();
    return *device;
}

}  // namespace mantissa
