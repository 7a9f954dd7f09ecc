#include "mantissa/device/cuda/cuda_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <variant>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/base/file.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/device/cuda/gpu_ranks.h"
#include "mantissa/device/cuda/kernels/kernels.h"
#include "mantissa/device/cuda/measured_rates.h"
#include "mantissa/device/launch_addresses.h"
#include "mantissa/device/tf32_refusal.h"
#include "mantissa/ranks/ranks.h"

namespace mantissa::inline v0 {

namespace {

using cuda::DeviceAttribute;
using cuda::Driver;
using cuda::Result;

constexpr std::int64_t gpu_alignment = 256;  // of memory from cuMemAlloc

class GpuMemory final : public DeviceMemory {
  public:
    GpuMemory(const Driver& driver, cuda::DevicePtr address, std::size_t bytes)
        : driver_(driver), address_(address), bytes_(bytes) {}
    ~GpuMemory() override { driver_.mem_free(address_); }
    GpuMemory(const GpuMemory&) = delete;
    GpuMemory& operator=(const GpuMemory&) = delete;

    std::byte* data() const override { return reinterpret_cast<std::byte*>(address_); }
    std::size_t size() const override { return bytes_; }

  private:
    const Driver& driver_;
    cuda::DevicePtr address_;
    std::size_t bytes_;
};

class PinnedMemory final : public HostMemory {
  public:
    PinnedMemory(const Driver& driver, std::span<std::byte> bytes) : driver_(driver), bytes_(bytes) {}
    ~PinnedMemory() override { driver_.mem_free_host(bytes_.data()); }
    PinnedMemory(const PinnedMemory&) = delete;
    PinnedMemory& operator=(const PinnedMemory&) = delete;

    std::span<std::byte> bytes() const override { return bytes_; }

  private:
    const Driver& driver_;
    std::span<std::byte> bytes_;
};

/// Launches and copies as one graph, which is captured when it first runs; a step alone is queued as it is.
class CudaProgram final : public Program {
  public:
    CudaProgram(const on_cuda::Context& context, std::span<const BoundStep> steps) : context_(context) {
        for (const BoundStep& step : steps)
            if (const auto* bound = std::get_if<BoundLaunch>(&step))
                steps_.emplace_back(LaunchAddresses(*bound));
            else
                steps_.emplace_back(std::get<BoundCopy>(step));
    }
    ~CudaProgram() override {
        if (graph_) context_.driver.graph_exec_destroy(graph_);
    }
    CudaProgram(const CudaProgram&) = delete;
    CudaProgram& operator=(const CudaProgram&) = delete;

    void run() override {
        if (!graph_) capture();
        require(context_.driver, context_.driver.graph_launch(graph_, context_.work), "starting a program");
    }
    void run_step(std::size_t step) override {
        if (const auto* bound = std::get_if<LaunchAddresses>(&steps_[step])) return bound->run();
        const auto& copy = std::get<BoundCopy>(steps_[step]);
        on_cuda::queue_copy(context_, copy.to, copy.from.data(), copy.from.size());
    }

  private:
    void capture() {
        const Driver& driver = context_.driver;
        require(driver, driver.stream_begin_capture(context_.work, cuda::CaptureMode::thread_local_),
                "recording a program");
        cuda::Graph graph = nullptr;
        try {
            for (std::size_t step = 0; step < steps_.size(); ++step) run_step(step);
        } catch (...) {
            driver.stream_end_capture(context_.work, &graph);
            if (graph) driver.graph_destroy(graph);
            throw;
        }
        require(driver, driver.stream_end_capture(context_.work, &graph), "recording a program");
        const Result result = driver.graph_instantiate(&graph_, graph, 0);
        driver.graph_destroy(graph);
        require(driver, result, "making a program's graph");
    }

    const on_cuda::Context& context_;
    std::vector<std::variant<LaunchAddresses, BoundCopy>> steps_;
    cuda::GraphExec graph_ = nullptr;
};

class GpuEvent final : public Event {
  public:
    explicit GpuEvent(const Driver& driver) : driver_(driver) {
        require(driver_, driver_.event_create(&handle, 0), "an event");
    }
    ~GpuEvent() override { driver_.event_destroy(handle); }
    GpuEvent(const GpuEvent&) = delete;
    GpuEvent& operator=(const GpuEvent&) = delete;

    cuda::Event handle = nullptr;

  private:
    const Driver& driver_;
};

/// The GPU's context, which other libraries of the process use, too.
class PrimaryContext {
  public:
    PrimaryContext(const Driver& driver, cuda::Device device) : driver_(driver), device_(device) {
        require(driver_, driver_.device_primary_ctx_retain(&handle, device_), "taking up the GPU");
    }
    ~PrimaryContext() { driver_.device_primary_ctx_release(device_); }
    PrimaryContext(const PrimaryContext&) = delete;
    PrimaryContext& operator=(const PrimaryContext&) = delete;

    cuda::Context handle = nullptr;

  private:
    const Driver& driver_;
    cuda::Device device_;
};

cuda::Event handle_of(const Event& event) { return static_cast<const GpuEvent&>(event).handle; }

/// The driver's answers about the device.
struct Facts {
    Facts(const Driver& driver, cuda::Device device) {
        std::array<char, 256> text = {};
        require(driver, driver.device_get_name(text.data(), static_cast<int>(text.size()) - 1, device),
                "the GPU's name");
        name = text.data();
        const auto ask = [&](DeviceAttribute attribute) {
            int value = 0;
            require(driver, driver.device_get_attribute(&value, attribute, device), "a GPU's attribute");
            return value;
        };
        capability = 10 * ask(DeviceAttribute::compute_capability_major) +
                     ask(DeviceAttribute::compute_capability_minor);
        multiprocessors = ask(DeviceAttribute::multiprocessor_count);
        threads = ask(DeviceAttribute::max_threads_per_multiprocessor);
        clock = 1e3 * ask(DeviceAttribute::clock_rate);
        // Twice a cycle, eight bits a byte.
        bandwidth =
            2e3 * ask(DeviceAttribute::memory_clock_rate) * ask(DeviceAttribute::global_memory_bus_width) / 8;
        l2_bytes = ask(DeviceAttribute::l2_cache_size);
        shared_bytes = ask(DeviceAttribute::max_shared_memory_per_multiprocessor);
    }

    std::string name;
    int capability = 0, multiprocessors = 0, threads = 0;
    double clock = 0, bandwidth = 0;
    std::int64_t l2_bytes = 0, shared_bytes = 0;
};

/// The architecture that PTX is made for: the newest that the GPU runs. A newer GPU runs an older one's PTX.
std::string architecture_of(int capability, bool has_warpgroups) {
    if (has_warpgroups) return "sm_90a";
    constexpr std::array known = {80, 86, 89, 90};
    int newest = known[0];
    for (const int one : known)
        if (one <= capability) newest = one;
    return fmt::format("sm_{}", newest);
}

Target target_of(const Facts& facts, const Driver& driver) {
    // A launch takes about 2 us; memory moves some megabytes in that time, so sparing one is always worth it.
    constexpr std::int64_t anything = 1;
    // CUDA C++ Programming Guide, arithmetic instructions: lanes of FP32 that a multiprocessor has.
    const double lanes = facts.capability == 80 ? 64 : 128;
    const double vectors = facts.multiprocessors * lanes * facts.clock / 16;
    return {.device = "cuda",
            .name = facts.name,
            .isa = fmt::format("sm_{}, {}", facts.capability, driver.name),
            .threads = facts.multiprocessors,
            .l1_bytes = facts.shared_bytes,
            .l2_bytes = facts.l2_bytes,
            .bf16_unit = "tensor cores",
            .fp8_unit = facts.capability >= 89 ? "tensor cores" : "",
            .fastest_policy = "bf16",
            .tf32_beats_fp32 = true,
            .alignment = gpu_alignment,
            .overlaps_copies = true,
            .joins_updates = true,
            .finds_largest_where_written = true,
            .fusion = {.min_bytes_saved = anything,
                       .max_operands = 32,
                       .instructions_per_byte = facts.bandwidth > 0 ? vectors / facts.bandwidth : 0.5,
                       .max_columns_summed = on_cuda::max_places_of_row * 8},
            .cannot_compile = codegen::Compiler::refusal(),
            .attaches_few_epilogues = "it is none of cuBLASLt's epilogues, which are GELU and its gradient",
            .cannot_widen_codes = "a GPU's products take no trunk as codes; leave it in the policy's format",
            .cannot_multiply_tf32 = tf32_refusal()};
}

/// Ranks must all multiply alike, to the bit, so no rank goes by its own clock.
on_cuda::ProductAlgorithms::Choose choice_of(const CudaOptions& options) {
    using enum on_cuda::ProductAlgorithms::Choose;
    return options.ranks || options.first_algorithms ? the_first : the_quickest;
}

bool has_warpgroups(const Facts& facts, const CudaOptions& options) {
    return options.warpgroup_attention && facts.capability == 90;
}

class CudaDevice final : public Device {
  public:
    CudaDevice(cuda::Libraries libraries, cuda::Device device, const Facts& facts, const CudaOptions& options)
        : libraries_(std::move(libraries)),
          gpu_context_(driver(), device),
          facts_(facts),
          target_(target_of(facts, driver())),
          modules_(driver(),
                   {.architecture = architecture_of(facts.capability, has_warpgroups(facts, options))},
                   codegen::KernelFolder(options.kernels)),
          algorithms_(choice_of(options),
                      fmt::format("{}, cuBLASLt {}: ", facts.name, libraries_.blas.get_version()),
                      on_cuda::AlgorithmFile(options.algorithms)),
          context_{.driver = driver(),
                   .blas = libraries_.blas,
                   .modules = modules_,
                   .algorithms = algorithms_,
                   .unit = fmt::format("sm_{}", facts.capability),
                   .matrix_unit = target_.bf16_unit,
                   .fp8_unit = target_.fp8_unit,
                   .resident_threads = std::int64_t{facts.multiprocessors} * facts.threads,
                   .warpgroup_attention = has_warpgroups(facts, options),
                   .loss_chunks = options.loss_chunks} {
        use();
        require(driver(), driver().stream_create(&context_.work, cuda::stream_non_blocking), "a stream");
        require(driver(), driver().stream_create(&copies_, cuda::stream_non_blocking), "a stream");
        require(libraries_.blas, libraries_.blas.create(&context_.blas_handle), "starting cuBLASLt");
        start_dnn();
        make_reports();
        if (options.ranks) {
            ranks_ = std::make_unique<on_cuda::GpuRanks>(driver(), *libraries_.nccl, *options.ranks);
            context_.ranks = ranks_.get();
        }
        on_cuda::add_contraction_kernels(kernels_, context_);
        on_cuda::add_quantized_kernels(kernels_, context_);
        on_cuda::add_rounding_kernels(kernels_, context_);
        on_cuda::add_convolution_kernels(kernels_, context_);
        on_cuda::add_elementwise_kernels(kernels_, context_);
        on_cuda::add_movement_kernels(kernels_, context_);
        on_cuda::add_embedding_kernels(kernels_, context_);
        on_cuda::add_reduction_kernels(kernels_, context_);
        on_cuda::add_norm_kernels(kernels_, context_);
        on_cuda::add_attention_kernels(kernels_, context_);
        on_cuda::add_pool_kernels(kernels_, context_);
        on_cuda::add_loss_kernels(kernels_, context_);
        on_cuda::add_nest_kernels(kernels_, context_);
        on_cuda::add_collective_kernels(kernels_, context_);
    }

    ~CudaDevice() override {
        ranks_.reset();
        libraries_.blas.destroy(context_.blas_handle);
        if (context_.dnn) context_.dnn->destroy(context_.dnn_handle);
        for (const cuda::Stream stream : {context_.work, copies_}) driver().stream_destroy(stream);
        report_memory_.reset();
        report_on_host_.reset();
    }

    CudaDevice(const CudaDevice&) = delete;
    CudaDevice& operator=(const CudaDevice&) = delete;

    const Target& target() const override { return target_; }

    std::span<const Kernel> kernels(std::string_view op) const override {
        const auto entry = kernels_.find(op);
        return entry == kernels_.end() ? std::span<const Kernel>{} : std::span<const Kernel>(entry->second);
    }

    std::unique_ptr<DeviceMemory> allocate(std::size_t bytes, const char* purpose) override {
        cuda::DevicePtr address = 0;
        const Result result = use().mem_alloc(&address, std::max<std::size_t>(bytes, 1));
        if (result == Result::out_of_memory)
            throw UsageError(
                fmt::format("{}: {} bytes of the GPU's memory are needed, {} are free; a smaller batch, a "
                            "shorter sequence or "
                            "`recompute` takes less",
                            purpose, bytes, free_memory()));
        require(driver(), result, fmt::format("{} bytes of the GPU's memory for {}", bytes, purpose));
        return std::make_unique<GpuMemory>(driver(), address, bytes);
    }
    std::unique_ptr<DeviceMemory> allocate_zeroed(std::size_t bytes, const char* purpose) override {
        std::unique_ptr<DeviceMemory> memory = allocate(bytes, purpose);
        on_cuda::queue_zeros(context_, memory->data(), bytes);
        wait_for_work();  // copies may come before
        return memory;
    }

    std::int64_t free_memory() const override {
        std::size_t free = 0, total = 0;
        require(driver(), use().mem_get_info(&free, &total), "the GPU's free memory");
        return static_cast<std::int64_t>(free);
    }

    void copy_to_device(std::byte* to, std::span<const std::byte> from) override {
        if (from.empty()) return;
        queue_to_device(Queue::work, to, from);
        wait_for_work();
    }
    void copy_to_host(std::span<std::byte> to, const std::byte* from) override {
        if (to.empty()) return;
        queue_to_host(Queue::work, to, from);
        wait_for_work();
    }

    Peaks measure_peaks(DeviceMemory& scratch) override {
        return on_cuda::measured_rates(*this, {scratch.data(), scratch.size()});
    }
    FormatPeaks measure_formats() override {
        return on_cuda::measured_formats(*this, context_,
                                         {.capability = facts_.capability,
                                          .multiprocessors = facts_.multiprocessors,
                                          .clock = facts_.clock,
                                          .memory = facts_.bandwidth});
    }

    void compile_kernels() override {
        use();
        modules_.finish();
        algorithms_.finish(context_);
    }
    std::vector<KernelListing> compiled_kernels() const override { return modules_.listings(); }

    std::unique_ptr<Program> bind(std::span<const BoundStep> steps) override {
        use();
        if (ranks_) ranks_->allocate();
        return std::make_unique<CudaProgram>(context_, steps);
    }

    std::unique_ptr<HostMemory> allocate_on_host(std::size_t bytes, const char* purpose) override {
        void* address = nullptr;
        const Result result = use().mem_alloc_host(&address, std::max<std::size_t>(bytes, 1));
        if (result == Result::out_of_memory)
            throw UserError(fmt::format("{}: the system gives no {} bytes of memory that stays in place",
                                        purpose, bytes));
        require(driver(), result, fmt::format("{} bytes of pinned memory for {}", bytes, purpose));
        return std::make_unique<PinnedMemory>(driver(), std::span(static_cast<std::byte*>(address), bytes));
    }
    void queue_to_device(Queue queue, std::byte* to, std::span<const std::byte> from) override {
        if (from.empty()) return;
        require(driver(),
                use().memcpy_htod_async(on_cuda::address_of(to), from.data(), from.size(), stream(queue)),
                "a copy to the GPU");
    }
    void queue_to_host(Queue queue, std::span<std::byte> to, const std::byte* from) override {
        if (to.empty()) return;
        require(driver(),
                use().memcpy_dtoh_async(to.data(), on_cuda::address_of(from), to.size(), stream(queue)),
                "a copy from the GPU");
    }

    std::unique_ptr<Event> record(Queue queue) override {
        use();
        auto event = std::make_unique<GpuEvent>(driver());
        require(driver(), driver().event_record(event->handle, stream(queue)), "an event");
        return event;
    }
    void queue_wait(Queue queue, const Event& event) override {
        require(driver(), use().stream_wait_event(stream(queue), handle_of(event), 0),
                "waiting for an event");
    }
    void wait(const Event& event) override {
        require(driver(), use().event_synchronize(handle_of(event)), "the GPU's work");
        look_at_reports();
    }
    double seconds_between(const Event& first, const Event& second) override {
        float milliseconds = 0;
        require(driver(), use().event_elapsed_time(&milliseconds, handle_of(first), handle_of(second)),
                "the time between two events");
        return static_cast<double>(milliseconds) * 1e-3;
    }

  private:
    const Driver& driver() const { return libraries_.driver; }
    /// The driver, with this GPU current for the calling thread.
    const Driver& use() const {
        require(driver(), driver().ctx_set_current(gpu_context_.handle), "taking up the GPU");
        return driver();
    }
    cuda::Stream stream(Queue queue) const { return queue == Queue::work ? context_.work : copies_; }

    void wait_for_work() {
        require(driver(), use().stream_synchronize(context_.work), "the GPU's work");
        look_at_reports();
    }

    /// A cuDNN that does not start leaves convolutions to our own kernels, and the plan says why.
    void start_dnn() {
        context_.no_dnn = libraries_.dnn.reason();
        if (!libraries_.dnn) return;
        const cuda::Cudnn& dnn = *libraries_.dnn;
        cuda::DnnStatus status = dnn.create(&context_.dnn_handle);
        if (status == cuda::DnnStatus::success) status = dnn.set_stream(context_.dnn_handle, context_.work);
        if (status == cuda::DnnStatus::success)
            context_.dnn = &dnn;
        else
            context_.no_dnn = fmt::format("{} does not start: {}", dnn.name, words_of(dnn, status));
    }

    void make_reports() {
        constexpr std::size_t bytes = 2 * sizeof(std::int32_t);
        report_memory_ = allocate_zeroed(bytes, "reports of kernels");
        report_on_host_ = allocate_on_host(bytes, "reports of kernels");
        context_.report_on_device = on_cuda::address_of(report_memory_->data());
        context_.report_on_host = reinterpret_cast<std::int32_t*>(report_on_host_->bytes().data());
        std::fill_n(context_.report_on_host, 2, 0);
    }

    /// Throws for a fault that a kernel found, once; after it the device works on.
    void look_at_reports() {
        const std::int32_t number = context_.report_on_host ? context_.report_on_host[0] : 0;
        if (number == 0) return;
        const std::int32_t index = context_.report_on_host[1];
        context_.report_on_host[0] = 0;
        on_cuda::queue_zeros(context_, report_memory_->data(), report_memory_->size());
        require(driver(), driver().stream_synchronize(context_.work), "the GPU's work");
        throw UserError(
            fmt::format(fmt::runtime(context_.reports.at(static_cast<std::size_t>(number - 1))), index));
    }

    cuda::Libraries libraries_;
    PrimaryContext gpu_context_;
    Facts facts_;
    Target target_;
    on_cuda::KernelModules modules_;
    on_cuda::ProductAlgorithms algorithms_;
    on_cuda::Context context_;
    std::unique_ptr<on_cuda::GpuRanks> ranks_;
    cuda::Stream copies_ = nullptr;
    on_cuda::KernelTable kernels_;
    std::unique_ptr<DeviceMemory> report_memory_;
    std::unique_ptr<HostMemory> report_on_host_;
};

/// Each rank of one host takes the next GPU; where there are fewer, NCCL says so.
int number_of_gpu(const Driver& driver, const Ranks* ranks) {
    if (!ranks) return 0;
    int before = 0, count = 0;
    for (int rank = 0; rank < ranks->rank(); ++rank)
        before += ranks->host_of(rank) == ranks->host_of(ranks->rank()) ? 1 : 0;
    require(driver, driver.device_get_count(&count), "how many GPUs there are");
    return before % std::max(1, count);
}

}  // namespace

Expected<std::unique_ptr<Device>> make_cuda_device(cuda::Libraries libraries, const CudaOptions& options) {
    const Driver& driver = libraries.driver;
    if (std::string reason = codegen::Compiler::refusal(); !reason.empty())
        return Unexpected{std::move(reason)};
    check(!options.ranks || libraries.nccl, "GPUs among ranks exchange by NCCL");
    cuda::Device device = 0;
    require(driver, driver.device_get(&device, number_of_gpu(driver, options.ranks)), "the GPU");
    const Facts facts(driver, device);
    if (facts.capability < 80)
        return Unexpected{fmt::format("{} has compute capability {}.{}; 8.0 is needed (Ampere or newer)",
                                      facts.name, facts.capability / 10, facts.capability % 10)};
    std::unique_ptr<Device> made = std::make_unique<CudaDevice>(std::move(libraries), device, facts, options);
    return made;
}

Expected<std::unique_ptr<Device>> make_cuda_device(Ranks* ranks) {
    Expected<cuda::Libraries> libraries = cuda::find_libraries(ranks ? cuda::Alone::no : cuda::Alone::yes);
    if (!libraries) return Unexpected{libraries.reason()};
    const std::filesystem::path cache = cache_folder();
    if (cache.empty()) return make_cuda_device(std::move(*libraries), {.ranks = ranks});
    return make_cuda_device(
        std::move(*libraries),
        {.kernels = codegen::folder_of_kernels(), .algorithms = cache / "algorithms", .ranks = ranks});
}

}  // namespace mantissa
