#include "tests/emulated_gpu/emulated_gpu.h"

#include <fmt/format.h>

#include <charconv>
#include <cstring>

#include "mantissa/base/error.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/graph/graph.h"
#include "tests/emulated_gpu/emulated_nccl.h"
#include "tests/emulated_gpu/machine.h"
#include "tests/emulated_gpu/run_libraries.h"

namespace mantissa::inline v0::cuda {

namespace {

[[noreturn]] void refuse_options(std::string_view text, const std::string& why) {
    throw UserError(
        fmt::format("EMULATED_GPU is '{}': {}; expected an architecture and options, as in "
                    "sm_80,memory=2G,races=off,threads=1,fail=cuLaunchKernel:100",
                    text, why));
}

std::int64_t number(std::string_view text, std::string_view whole) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < 1)
        refuse_options(whole, fmt::format("'{}' is no number from 1 on", text));
    return value;
}

std::int64_t bytes(std::string_view text, std::string_view whole) {
    const std::int64_t unit = text.ends_with('G') ? 1 << 30 : text.ends_with('M') ? 1 << 20 : 1;
    if (unit > 1) text.remove_suffix(1);
    return number(text, whole) * unit;
}

void read_option(std::string_view option, std::string_view whole, EmulatedGpuOptions& options) {
    const std::size_t equals = option.find('=');
    const std::string_view name = option.substr(0, equals);
    const std::string_view value = equals == std::string_view::npos ? "" : option.substr(equals + 1);
    if (name == "memory") {
        options.memory = bytes(value, whole);
    } else if (name == "races" && (value == "on" || value == "off")) {
        options.races = value == "on";
    } else if (name == "threads") {
        options.threads = static_cast<int>(number(value, whole));
    } else if (name == "instructions") {
        options.max_instructions = number(value, whole);
    } else if (name == "fail" && value.find(':') != std::string_view::npos) {
        options.failing = value.substr(0, value.find(':'));
        options.failing_call = number(value.substr(value.find(':') + 1), whole);
    } else {
        refuse_options(whole, fmt::format("'{}' is not known", option));
    }
}

struct NamedResult {
    Result result;
    const char* name;
    const char* text;
};

constexpr NamedResult results[] = {
    {Result::success, "CUDA_SUCCESS", "no error"},
    {Result::invalid_value, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {Result::out_of_memory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {Result::not_initialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {Result::deinitialized, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {Result::no_device, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {Result::invalid_device, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {Result::invalid_context, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {Result::no_binary_for_gpu, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available for execution on the device"},
    {Result::invalid_ptx, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {Result::unsupported_ptx_version, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
     "the provided PTX was compiled with an unsupported toolchain."},
    {Result::invalid_handle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {Result::illegal_state, "CUDA_ERROR_ILLEGAL_STATE",
     "the operation cannot be performed in the present state"},
    {Result::not_found, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {Result::not_ready, "CUDA_ERROR_NOT_READY", "device not ready"},
    {Result::illegal_address, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {Result::launch_out_of_resources, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
     "too many resources requested for launch"},
    {Result::launch_timeout, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"},
    {Result::misaligned_address, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {Result::illegal_instruction, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "an illegal instruction was encountered"},
    {Result::launch_failed, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {Result::stream_capture_unsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {Result::stream_capture_invalidated, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {Result::stream_capture_unjoined, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
     "capturing stream has unjoined work"},
    {Result::stream_capture_isolation, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency created on uncaptured work in another stream"},
};

Result name_result(Result error, const char** text, bool name) {
    for (const NamedResult& one : results)
        if (one.result == error) {
            *text = name ? one.name : one.text;
            return Result::success;
        }
    *text = nullptr;
    return Result::invalid_value;
}

}  // namespace

EmulatedGpuOptions parse_emulated_gpu(std::string_view text) {
    EmulatedGpuOptions options;
    const std::size_t comma = std::min(text.find(','), text.size());
    options.architecture = text.substr(0, comma);
    if (!find_architecture(options.architecture)) {
        std::string known;
        for (const Architecture& one : architectures()) known += (known.empty() ? "" : ", ") + one.name;
        refuse_options(text, fmt::format("the architecture '{}' is not known; known are {}",
                                         options.architecture, known));
    }
    for (std::size_t at = comma; at < text.size();) {
        const std::size_t end = std::min(text.find(',', at + 1), text.size());
        read_option(text.substr(at + 1, end - at - 1), text, options);
        at = end;
    }
    return options;
}

struct EmulatedGpu::State {
    explicit State(const EmulatedGpuOptions& asked)
        : options(asked),
          machine(asked),
          blas(make_emulated_cublaslt(
              [this](Stream stream, const MatmulJob& job) {
                  return machine.call_library(stream, [this, job] { run_matmul(machine, job); });
              },
              asked.algorithms, machine.architecture().number >= 89)),
          dnn(make_emulated_cudnn([this](Stream stream, const ConvolutionJob& job) {
              // One thread: others would wait for work, and keep those that run blocks from theirs.
              if (!cpu) cpu = make_cpu_device({.threads = 1});
              return machine.call_library(stream,
                                          [this, job] { convolve(machine, *cpu, job, convolutions++); });
          })),
          nccl(make_emulated_nccl(machine)) {}
    EmulatedGpuOptions options;
    Machine machine;
    std::unique_ptr<mantissa::Device> cpu;
    std::int64_t convolutions = 0;
    CublasLt blas;
    Cudnn dnn;
    Nccl nccl;
    std::int64_t calls_of_failing = 0;
};

EmulatedGpu::EmulatedGpu(const EmulatedGpuOptions& options) : state_(std::make_shared<State>(options)) {}

std::string EmulatedGpu::report() const { return state_->machine.report(); }
void EmulatedGpu::count(bool on) { state_->machine.count(on); }
std::vector<LaunchCount> EmulatedGpu::take_counts() { return state_->machine.take_counts(); }

namespace {

/// Functions that only answer.
void fill_questions(Driver& d, Machine& machine) {
    d.init = [](unsigned) { return Result::success; };
    d.driver_get_version = [](int* version) { return *version = 12080, Result::success; };
    d.device_get_count = [](int* count) { return *count = 1, Result::success; };
    d.device_get = [](Device* device, int ordinal) {
        *device = ordinal;
        return ordinal == 0 ? Result::success : Result::invalid_device;
    };
    d.device_get_name = [&machine](char* name, int length, Device) {
        if (length < 1) return Result::invalid_value;
        const std::string text =
            fmt::format("emulated GPU {} (as {})", machine.architecture().name, machine.architecture().card);
        name[text.copy(name, static_cast<std::size_t>(length) - 1)] = 0;
        return Result::success;
    };
    d.device_get_attribute = [&machine](int* value, DeviceAttribute attribute, Device) {
        return machine.device_attribute(value, attribute);
    };
    d.device_total_mem = [&machine](std::size_t* bytes, Device) {
        std::size_t free = 0;
        return machine.mem_get_info(&free, bytes);
    };
    d.device_primary_ctx_retain = [&machine](Context* context, Device) {
        *context = reinterpret_cast<Context>(&machine);
        return Result::success;
    };
    d.device_primary_ctx_release = [](Device) { return Result::success; };
    d.ctx_set_current = [](Context) { return Result::success; };
    d.get_error_name = [](Result error, const char** name) { return name_result(error, name, true); };
    d.get_error_string = [](Result error, const char** text) { return name_result(error, text, false); };
}

void fill_memory_and_streams(Driver& d, Machine& m) {
    d.ctx_synchronize = [&m] { return m.ctx_synchronize(); };
    d.mem_get_info = [&m](std::size_t* free, std::size_t* total) { return m.mem_get_info(free, total); };
    d.mem_alloc = [&m](DevicePtr* address, std::size_t bytes) { return m.mem_alloc(address, bytes); };
    d.mem_free = [&m](DevicePtr address) { return m.mem_free(address); };
    d.mem_alloc_host = [&m](void** address, std::size_t bytes) { return m.mem_alloc_host(address, bytes); };
    d.mem_free_host = [&m](void* address) { return m.mem_free_host(address); };
    d.memcpy_htod_async = [&m](DevicePtr to, const void* from, std::size_t bytes, Stream stream) {
        return m.memcpy_htod(to, from, bytes, stream);
    };
    d.memcpy_dtoh_async = [&m](void* to, DevicePtr from, std::size_t bytes, Stream stream) {
        return m.memcpy_dtoh(to, from, bytes, stream);
    };
    d.memcpy_dtod_async = [&m](DevicePtr to, DevicePtr from, std::size_t bytes, Stream stream) {
        return m.memcpy_dtod(to, from, bytes, stream);
    };
    d.memset_d8_async = [&m](DevicePtr to, unsigned char value, std::size_t bytes, Stream stream) {
        return m.memset_d8(to, value, bytes, stream);
    };
    d.stream_create = [&m](Stream* stream, unsigned) { return m.stream_create(stream); };
    d.stream_destroy = [&m](Stream stream) { return m.stream_destroy(stream); };
    d.stream_synchronize = [&m](Stream stream) { return m.stream_synchronize(stream); };
    d.stream_query = [&m](Stream stream) { return m.stream_query(stream); };
    d.stream_wait_event = [&m](Stream stream, Event event, unsigned) {
        return m.stream_wait_event(stream, event);
    };
    d.stream_begin_capture = [&m](Stream stream, CaptureMode mode) {
        return m.stream_begin_capture(stream, mode);
    };
    d.stream_end_capture = [&m](Stream stream, Graph* graph) { return m.stream_end_capture(stream, graph); };
    d.event_create = [&m](Event* event, unsigned flags) { return m.event_create(event, flags); };
    d.event_destroy = [&m](Event event) { return m.event_destroy(event); };
    d.event_record = [&m](Event event, Stream stream) { return m.event_record(event, stream); };
    d.event_query = [&m](Event event) { return m.event_query(event); };
    d.event_synchronize = [&m](Event event) { return m.event_synchronize(event); };
    d.event_elapsed_time = [&m](float* milliseconds, Event start, Event end) {
        return m.event_elapsed_time(milliseconds, start, end);
    };
    d.graph_instantiate = [&m](GraphExec* exec, Graph graph, unsigned long long) {
        return m.graph_instantiate(exec, graph);
    };
    d.graph_launch = [&m](GraphExec exec, Stream stream) { return m.graph_launch(exec, stream); };
    d.graph_exec_destroy = [&m](GraphExec exec) { return m.graph_exec_destroy(exec); };
    d.graph_destroy = [&m](Graph graph) { return m.graph_destroy(graph); };
}

void fill_kernels(Driver& d, Machine& m) {
    d.module_load_data_ex = [&m](Module* module, const void* image, unsigned options, JitOption* names,
                                 void** values) {
        return m.module_load(module, static_cast<const char*>(image), options, names, values);
    };
    d.module_unload = [&m](Module module) { return m.module_unload(module); };
    d.module_get_function = [&m](Function* function, Module module, const char* name) {
        return m.module_get_function(function, module, name);
    };
    d.func_get_attribute = [&m](int* value, FunctionAttribute attribute, Function function) {
        return m.func_get_attribute(value, attribute, function);
    };
    d.func_set_attribute = [&m](Function function, FunctionAttribute attribute, int value) {
        return m.func_set_attribute(function, attribute, value);
    };
    d.launch_kernel = [&m](Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                           unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                           Stream stream, void** parameters, void** extra) {
        if (extra) return Result::invalid_value;
        return m.launch(function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes, stream,
                        parameters);
    };
    d.occupancy_max_active_blocks_per_multiprocessor = [&m](int* blocks, Function function, int threads,
                                                            std::size_t dynamic_shared) {
        return m.occupancy(blocks, function, threads, dynamic_shared);
    };
}

}  // namespace

Driver EmulatedGpu::driver() const {
    Driver driver;
    Machine& machine = state_->machine;
    fill_questions(driver, machine);
    fill_memory_and_streams(driver, machine);
    fill_kernels(driver, machine);
    // One call at a time; after a fault everything answers with it; the planted error comes when it is due.
    for_each_function(driver, [&]<class... A>(std::function<Result(A...)>& member, const char* symbol) {
        if (std::string_view(symbol).starts_with("cuGetError")) return;
        member = [call = std::move(member), symbol, state = state_.get()](A... arguments) {
            const std::lock_guard lock(state->machine.mutex());
            if (state->machine.broken() != Result::success) return state->machine.broken();
            if (state->options.failing == symbol && ++state->calls_of_failing == state->options.failing_call)
                return state->machine.fail(
                    Result::launch_failed,
                    fmt::format("planted: call {} of {}", state->calls_of_failing, symbol));
            return call(arguments...);
        };
    });
    // The words on an error go on with what was judged wrong.
    driver.get_error_string = [text_of = std::move(driver.get_error_string), state = state_.get()](
                                  Result error, const char** text) {
        const Result known = text_of(error, text);
        const std::string report = state->machine.report();
        if (report.empty()) return known;
        thread_local std::string words;  // the caller's, until it asks again
        words = fmt::format("{}; {}", *text ? *text : "the driver says no more", report);
        *text = words.c_str();
        return Result::success;
    };
    driver.name = fmt::format("emulated GPU {}", machine.architecture().name);
    driver.kept = state_;
    return driver;
}

namespace {

/// A library's function that returns a status: one call at a time, none after a fault, and the planted error.
template <class Status, class State, class... A>
std::function<Status(A...)> guarded(std::function<Status(A...)> call, std::string_view symbol, State* state) {
    return [call = std::move(call), symbol, state](A... arguments) -> Status {
        const std::lock_guard lock(state->machine.mutex());
        if (state->machine.broken() != Result::success) return Status::execution_failed;
        if (state->options.failing == symbol && ++state->calls_of_failing == state->options.failing_call) {
            state->machine.fail(Result::launch_failed,
                                fmt::format("planted: call {} of {}", state->calls_of_failing, symbol));
            return Status::execution_failed;
        }
        return call(arguments...);
    };
}

}  // namespace

Nccl EmulatedGpu::nccl() const {
    Nccl table = state_->nccl;
    table.name = fmt::format("emulated NCCL on {}", state_->machine.architecture().name);
    table.kept = state_;
    return table;
}

CublasLt EmulatedGpu::cublaslt() const {
    CublasLt table = state_->blas;
    for_each_blas_function(
        table, [&]<class Answer, class... A>(std::function<Answer(A...)>& member, std::string_view symbol) {
            if constexpr (std::is_same_v<Answer, BlasStatus>)
                member = guarded(std::move(member), symbol, state_.get());
        });
    table.name = fmt::format("emulated cuBLASLt on {}", state_->machine.architecture().name);
    table.kept = state_;
    return table;
}

Cudnn EmulatedGpu::cudnn() const {
    Cudnn table = state_->dnn;
    for_each_dnn_function(
        table, [&]<class Answer, class... A>(std::function<Answer(A...)>& member, std::string_view symbol) {
            if constexpr (std::is_same_v<Answer, DnnStatus>)
                member = guarded(std::move(member), symbol, state_.get());
        });
    table.name = fmt::format("emulated cuDNN on {}", state_->machine.architecture().name);
    table.kept = state_;
    return table;
}

}  // namespace mantissa::cuda
