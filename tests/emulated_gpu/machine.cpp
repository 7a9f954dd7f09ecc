// Memory, modules and launches of the emulated machine; its streams are machine_streams.cpp's.
#include "tests/emulated_gpu/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "mantissa/base/error.h"
#include "mantissa/base/whole_units.h"
#include "tests/emulated_gpu/availability.h"
#include "tests/emulated_gpu/launch.h"
#include "tests/emulated_gpu/machine_handles.h"

namespace mantissa::inline v0::cuda {

namespace {

constexpr int newest_ptx = 87;

}  // namespace

Machine::Machine(const EmulatedGpuOptions& options)
    : architecture_(&known_architecture(options.architecture)), options_(options) {
    memory_ = std::make_unique<DeviceMemory>(options.memory ? options.memory : architecture_->memory);
    pool_ = options.threads ? std::make_unique<ThreadPool>(options.threads) : std::make_unique<ThreadPool>();
}

Machine::~Machine() = default;

Result Machine::fail(Result result, const std::string& words) {
    broken_ = result;
    report_ = words;
    for (auto& [handle, stream] : streams_) stream->queue.clear();
    return result;
}

std::string Machine::report() const {
    const std::lock_guard lock(mutex_);
    return report_;
}

void Machine::count(bool on) {
    const std::lock_guard lock(mutex_);
    counting_ = on;
}

std::vector<LaunchCount> Machine::take_counts() {
    const std::lock_guard lock(mutex_);
    return std::exchange(counts_, {});
}

Result Machine::mem_get_info(std::size_t* free, std::size_t* total) {
    *total = static_cast<std::size_t>(memory_->total());
    *free = static_cast<std::size_t>(memory_->total() - memory_->used());
    return Result::success;
}

Result Machine::mem_alloc(DevicePtr* address, std::size_t bytes) {
    if (const Result result = refuse_in_capture(); result != Result::success) return result;
    if (bytes == 0) return Result::invalid_value;
    *address = memory_->allocate(static_cast<std::int64_t>(bytes), "allocation");
    return *address ? Result::success : Result::out_of_memory;
}

/// Work that still is to run meets memory that is gone: the real driver may wait for it here, and need not.
Result Machine::mem_free(DevicePtr address) {
    if (const Result result = refuse_in_capture(); result != Result::success) return result;
    if (address == 0) return Result::success;
    return memory_->free(address) ? Result::success : Result::invalid_value;
}

Result Machine::mem_alloc_host(void** address, std::size_t bytes) {
    if (const Result result = refuse_in_capture(); result != Result::success) return result;
    if (bytes == 0) return Result::invalid_value;
    Pages pages(static_cast<std::int64_t>(bytes));
    std::memset(pages.data(), 0xff, bytes);  // what was never written reads as NaN
    *address = pages.data();
    const std::byte* const key = pages.data();
    pinned_[key] = {bytes, std::move(pages)};
    return Result::success;
}

Result Machine::mem_free_host(void* address) {
    if (const Result result = refuse_in_capture(); result != Result::success) return result;
    return pinned_.erase(static_cast<const std::byte*>(address)) ? Result::success : Result::invalid_value;
}

bool Machine::pinned(const void* address, std::size_t bytes) const {
    const auto* const at = static_cast<const std::byte*>(address);
    auto after = pinned_.upper_bound(at);
    if (after == pinned_.begin()) return false;
    --after;
    return static_cast<std::size_t>(at - after->first) + bytes <= after->second.first;
}

void Machine::check_pinned(const void* address, std::size_t bytes, const char* what) const {
    if (!pinned(address, bytes))
        throw ptx::Fault{Result::illegal_address,
                         fmt::format("{}: the {} bytes of host memory at {} were freed before it ran", what,
                                     bytes, address)};
}

const Allocation& Machine::bytes_at(DevicePtr address, std::size_t bytes, const char* what) const {
    if (const std::string why = memory_->fault(address, static_cast<std::int64_t>(bytes)); !why.empty())
        throw ptx::Fault{Result::illegal_address,
                         fmt::format("{}: {} bytes at {:#x}, {}", what, bytes, address, why)};
    return *memory_->at_or_before(address);
}

void Machine::check_written(const Allocation& there, DevicePtr address, std::size_t bytes,
                            const char* what) const {
    if (options_.sampled) return;
    const std::uint8_t* const written = there.written() + (address - there.address);
    if (const auto* const gap = std::find(written, written + bytes, 0); gap != written + bytes)
        throw ptx::Fault{Result::illegal_address,
                         fmt::format("{}: byte {} of {} was never written", what,
                                     static_cast<std::int64_t>(address - there.address) + (gap - written),
                                     name_of(there))};
}

Result Machine::call_library(Stream stream, std::function<void()> work) {
    if (!known(stream)) return Result::invalid_handle;
    if (!options_.sampled) enqueue(stream, std::move(work));
    return Result::success;
}

const std::byte* Machine::read_by_library(DevicePtr address, std::size_t bytes, const char* what) const {
    const Allocation& there = bytes_at(address, bytes, what);
    check_written(there, address, bytes, what);
    return there.data() + (address - there.address);
}

std::byte* Machine::written_by_library(DevicePtr address, std::size_t bytes, const char* what) {
    const Allocation& there = bytes_at(address, bytes, what);
    std::memset(there.written() + (address - there.address), byte_written, bytes);
    return there.data() + (address - there.address);
}

Result Machine::memcpy_htod(DevicePtr to, const void* from, std::size_t bytes, Stream stream) {
    if (!known(stream)) return Result::invalid_handle;
    constexpr const char* what = "a copy from the host";
    const auto copy = [this, to, bytes](const void* source) {
        const Allocation& there = bytes_at(to, bytes, what);
        std::memcpy(there.data() + (to - there.address), source, bytes);
        std::memset(there.written() + (to - there.address), byte_written, bytes);
    };
    if (streams_[stream]->capture || pinned(from, bytes)) {
        const bool was_pinned = pinned(from, bytes);
        enqueue(stream, [this, copy, from, bytes, was_pinned] {
            if (was_pinned) check_pinned(from, bytes, what);
            copy(from);
        });
    } else {  // pageable memory has been read when the call returns
        const auto* const start = static_cast<const std::byte*>(from);
        enqueue(stream, [copy, kept = std::vector<std::byte>(start, start + bytes)] { copy(kept.data()); });
    }
    return Result::success;
}

Result Machine::memcpy_dtoh(void* to, DevicePtr from, std::size_t bytes, Stream stream) {
    if (!known(stream)) return Result::invalid_handle;
    const bool was_pinned = pinned(to, bytes);
    enqueue(stream, [this, to, from, bytes, was_pinned] {
        constexpr const char* what = "a copy to the host";
        if (was_pinned) check_pinned(to, bytes, what);
        const Allocation& there = bytes_at(from, bytes, what);
        check_written(there, from, bytes, what);
        std::memcpy(to, there.data() + (from - there.address), bytes);
    });
    // Pageable memory has been written when the call returns.
    if (was_pinned || streams_[stream]->capture) return Result::success;
    return drain(stream);
}

Result Machine::memcpy_dtod(DevicePtr to, DevicePtr from, std::size_t bytes, Stream stream) {
    if (!known(stream)) return Result::invalid_handle;
    enqueue(stream, [this, to, from, bytes] {
        constexpr const char* what = "a copy within the device";
        const Allocation& source = bytes_at(from, bytes, what);
        const Allocation& there = bytes_at(to, bytes, what);
        std::memmove(there.data() + (to - there.address), source.data() + (from - source.address), bytes);
        std::memmove(there.written() + (to - there.address), source.written() + (from - source.address),
                     bytes);
    });
    return Result::success;
}

Result Machine::memset_d8(DevicePtr to, unsigned char value, std::size_t bytes, Stream stream) {
    if (!known(stream)) return Result::invalid_handle;
    enqueue(stream, [this, to, value, bytes] {
        const Allocation& there = bytes_at(to, bytes, "a memset");
        std::memset(there.data() + (to - there.address), value, bytes);
        std::memset(there.written() + (to - there.address), byte_written, bytes);
    });
    return Result::success;
}

Result Machine::module_load(Module* module, const char* text, unsigned options, const JitOption* names,
                            void** values) {
    auto made = std::make_unique<ModuleHandle>();
    Result result = Result::success;
    try {
        const ptx::TextModule parsed = ptx::parse(text);
        result = !ptx::target_refusal(parsed.target, *architecture_).empty() ? Result::no_binary_for_gpu
                 : parsed.version > newest_ptx                               ? Result::unsupported_ptx_version
                                                                             : Result::invalid_ptx;
        made->program = std::make_shared<const ptx::Program>(
            ptx::decode(parsed, *architecture_, [&](const ptx::Variable& variable) {
                const DevicePtr at =
                    memory_->allocate(std::max<std::int64_t>(variable.size, 1), "variable " + variable.name);
                if (at == 0) throw ptx::TextError{variable.line, "there is no memory for its variables"};
                const Allocation& there = *memory_->at_or_before(at);
                std::memcpy(there.data(), variable.bytes.data(), variable.bytes.size());
                // A variable without values begins with zeros.
                std::memset(there.written(), byte_written, static_cast<std::size_t>(variable.size));
                made->variables.push_back(at);
                return at;
            }));
    } catch (const ptx::TextError& error) {
        for (const DevicePtr at : made->variables) memory_->free(at);
        report_ = error.line ? fmt::format("PTX line {}: {}", error.line, error.message) : error.message;
        char* log = nullptr;
        std::size_t room = 0;
        for (unsigned i = 0; i < options; ++i) {
            if (names[i] == JitOption::error_log_buffer) log = static_cast<char*>(values[i]);
            if (names[i] == JitOption::error_log_buffer_size_bytes)
                room = reinterpret_cast<std::size_t>(values[i]);
        }
        if (log && room > 0) log[report_.copy(log, room - 1)] = 0;
        return result == Result::success ? Result::invalid_ptx : result;
    }
    *module = made.get();
    modules_[made.get()] = std::move(made);
    return Result::success;
}

Result Machine::module_unload(Module module) {
    const auto found = modules_.find(module);
    if (found == modules_.end()) return Result::invalid_handle;
    for (const DevicePtr at : found->second->variables) memory_->free(at);
    modules_.erase(found);
    return Result::success;
}

Result Machine::module_get_function(Function* function, Module module, const char* name) {
    const auto found = modules_.find(module);
    if (found == modules_.end()) return Result::invalid_handle;
    const auto kernel = found->second->program->kernels.find(name);
    if (kernel == found->second->program->kernels.end()) return Result::not_found;
    FunctionHandle& made = found->second->functions[name];
    made.program = found->second->program.get();
    made.kernel = &kernel->second;
    *function = &made;
    return Result::success;
}

Result Machine::func_get_attribute(int* value, FunctionAttribute attribute, Function function) {
    const ptx::Kernel& kernel = *function->kernel;
    switch (attribute) {
        case FunctionAttribute::max_threads_per_block:
            *value = kernel.max_threads ? kernel.max_threads : 1024;
            return Result::success;
        case FunctionAttribute::shared_size_bytes:
            *value = static_cast<int>(kernel.static_shared);
            return Result::success;
        case FunctionAttribute::const_size_bytes:
            *value = 0;
            return Result::success;
        case FunctionAttribute::local_size_bytes:
            *value = static_cast<int>(kernel.local);
            return Result::success;
        case FunctionAttribute::registers:
            *value = std::min(kernel.registers, 255);
            return Result::success;
        case FunctionAttribute::ptx_version:
            *value = std::atoi(function->program->target.c_str() + 3);
            return Result::success;
        case FunctionAttribute::binary_version:
            *value = architecture_->number;
            return Result::success;
        case FunctionAttribute::max_dynamic_shared_size_bytes:
            *value = static_cast<int>(
                std::max(function->max_dynamic_shared, shared_without_asking - kernel.static_shared));
            return Result::success;
    }
    return Result::invalid_value;
}

Result Machine::func_set_attribute(Function function, FunctionAttribute attribute, int value) {
    if (attribute != FunctionAttribute::max_dynamic_shared_size_bytes || value < 0 ||
        value + function->kernel->static_shared > architecture_->shared_per_block)
        return Result::invalid_value;
    function->max_dynamic_shared = value;
    return Result::success;
}

/// Whether a block of so many threads with so much shared memory can be launched.
Result Machine::occupied(Function function, std::int64_t threads, std::int64_t dynamic_shared) const {
    const ptx::Kernel& kernel = *function->kernel;
    if (threads < 1 || threads > 1024 || (kernel.max_threads && threads > kernel.max_threads))
        return Result::invalid_value;
    const std::int64_t most =
        std::max(function->max_dynamic_shared, shared_without_asking - kernel.static_shared);
    return dynamic_shared > most ? Result::invalid_value : Result::success;
}

Result Machine::launch(Function function, ptx::Dimensions grid, ptx::Dimensions block, unsigned shared_bytes,
                       Stream stream, void** parameters) {
    if (!known(stream) || !function) return Result::invalid_handle;
    const ptx::Kernel& kernel = *function->kernel;
    const bool fits = block.x && block.y && block.z && block.x <= 1024 && block.y <= 1024 && block.z <= 64 &&
                      grid.x && grid.y && grid.z && grid.x <= 0x7fffffff && grid.y <= 65535 &&
                      grid.z <= 65535 && grid.count() <= 0xffffffff;
    if (!fits) return Result::invalid_value;
    if (const Result result = occupied(function, static_cast<std::int64_t>(block.count()), shared_bytes);
        result != Result::success)
        return result;
    const int* const required = kernel.required_threads;
    if (required[0] && (static_cast<int>(block.x) != required[0] ||
                        static_cast<int>(block.y) != required[1] || static_cast<int>(block.z) != required[2]))
        return Result::invalid_value;
    ptx::LaunchedKernel launched{.program = function->program,
                                 .kernel = &kernel,
                                 .grid = grid,
                                 .block = block,
                                 .dynamic_shared = shared_bytes,
                                 .memory = memory_.get(),
                                 .races = options_.races,
                                 .sampled = options_.sampled,
                                 .max_instructions = options_.max_instructions};
    launched.parameters.resize(static_cast<std::size_t>(kernel.parameter_bytes));
    for (std::size_t i = 0; i < kernel.parameters.size(); ++i) {
        if (!parameters || !parameters[i]) return Result::invalid_value;
        std::memcpy(launched.parameters.data() + kernel.parameters[i].offset, parameters[i],
                    static_cast<std::size_t>(kernel.parameters[i].size));
    }
    // The module lives on while its work is to run.
    std::shared_ptr<const ptx::Program> kept;
    for (const auto& [handle, module] : modules_)
        if (module->program.get() == function->program) kept = module->program;
    enqueue(stream, [this, launched, kept]() mutable {
        launched.number = ++launches_;
        launched.counted = counting_;
        LaunchCount count;
        ptx::run_launch(*pool_, launched, count);
        if (counting_) counts_.push_back(std::move(count));
    });
    return Result::success;
}

Result Machine::occupancy(int* blocks, Function function, int threads, std::size_t dynamic_shared) {
    *blocks = 0;
    const auto dynamic = static_cast<std::int64_t>(dynamic_shared);
    if (occupied(function, threads, dynamic) != Result::success) return Result::success;
    const std::int64_t warps = ceil_div(threads, ptx::warp_lanes);
    const std::int64_t shared = function->kernel->static_shared + dynamic + reserved_shared;
    const std::int64_t registers =
        std::clamp<std::int64_t>(align_up(function->kernel->registers, 8), 16, 255) * warps * ptx::warp_lanes;
    const std::int64_t all[] = {architecture_->blocks_per_multiprocessor,
                                architecture_->threads_per_multiprocessor / (warps * ptx::warp_lanes),
                                architecture_->shared_per_multiprocessor / shared, 65536 / registers};
    *blocks = static_cast<int>(*std::min_element(std::begin(all), std::end(all)));
    return Result::success;
}

Result Machine::device_attribute(int* value, DeviceAttribute attribute) const {
    const std::optional<int> known = attribute_of(*architecture_, attribute);
    if (!known) return Result::invalid_value;
    *value = *known;
    return Result::success;
}

}  // namespace mantissa::cuda
