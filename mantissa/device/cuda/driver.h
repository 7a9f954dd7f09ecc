// The CUDA driver's functions as one table, filled from the driver's library when the program runs. Declared
// here from the documented interface, since no toolkit is needed to build: one binary serves machines with a
// GPU and without.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "mantissa/base/expected.h"
#include "mantissa/graph/graph.h"

namespace mantissa::inline v0::cuda {

/// The answer of a function of the driver. Other results are passed on by number.
enum class Result : int {
    success = 0,
    invalid_value = 1,
    out_of_memory = 2,
    not_initialized = 3,
    deinitialized = 4,
    no_device = 100,
    invalid_device = 101,
    invalid_context = 201,
    no_binary_for_gpu = 209,
    invalid_ptx = 218,
    unsupported_ptx_version = 222,
    invalid_handle = 400,
    illegal_state = 401,
    not_found = 500,
    not_ready = 600,
    illegal_address = 700,
    launch_out_of_resources = 701,
    launch_timeout = 702,
    misaligned_address = 716,
    illegal_instruction = 715,
    launch_failed = 719,
    stream_capture_unsupported = 900,
    stream_capture_invalidated = 901,
    stream_capture_unjoined = 904,
    stream_capture_isolation = 905,
};

enum class DeviceAttribute : int {
    max_threads_per_block = 1,
    max_shared_memory_per_block = 8,
    warp_size = 10,
    max_registers_per_block = 12,
    clock_rate = 13,  ///< kHz
    multiprocessor_count = 16,
    memory_clock_rate = 36,        ///< kHz
    global_memory_bus_width = 37,  ///< bits
    l2_cache_size = 38,            ///< bytes
    max_threads_per_multiprocessor = 39,
    compute_capability_major = 75,
    compute_capability_minor = 76,
    max_shared_memory_per_multiprocessor = 81,
    max_registers_per_multiprocessor = 82,
    max_shared_memory_per_block_optin = 97,
    max_blocks_per_multiprocessor = 106,
    reserved_shared_memory_per_block = 111,
};

enum class FunctionAttribute : int {
    max_threads_per_block = 0,
    shared_size_bytes = 1,  ///< static
    const_size_bytes = 2,
    local_size_bytes = 3,  ///< a thread
    registers = 4,         ///< a thread
    ptx_version = 5,
    binary_version = 6,
    max_dynamic_shared_size_bytes = 8,
};

enum class JitOption : int {
    info_log_buffer = 3,
    info_log_buffer_size_bytes = 4,
    error_log_buffer = 5,
    error_log_buffer_size_bytes = 6,
};

enum class CaptureMode : int { global = 0, thread_local_ = 1, relaxed = 2 };

constexpr unsigned stream_non_blocking = 1;
constexpr unsigned event_disable_timing = 2;

using Device = int;
using DevicePtr = std::uint64_t;  ///< an address of the device, which the host must not touch
using Context = struct ContextHandle*;
using Module = struct ModuleHandle*;
using Function = struct FunctionHandle*;
using Stream = struct StreamHandle*;
using Event = struct EventHandle*;
using Graph = struct GraphHandle*;
using GraphExec = struct GraphExecHandle*;

/// The members have the driver's names, arguments and meanings: CUDA Driver API, version 12. All are set.
struct Driver {
    template <class Signature>
    using Call = std::function<Signature>;

    Call<Result(unsigned flags)> init;
    Call<Result(int* version)> driver_get_version;  ///< 1000 times the major one and 10 times the minor one
    Call<Result(int* count)> device_get_count;
    Call<Result(Device* device, int ordinal)> device_get;
    Call<Result(char* name, int length, Device device)> device_get_name;
    Call<Result(int* value, DeviceAttribute attribute, Device device)> device_get_attribute;
    Call<Result(std::size_t* bytes, Device device)> device_total_mem;

    Call<Result(Context* context, Device device)> device_primary_ctx_retain;
    Call<Result(Device device)> device_primary_ctx_release;
    Call<Result(Context context)> ctx_set_current;
    Call<Result()> ctx_synchronize;

    Call<Result(std::size_t* free, std::size_t* total)> mem_get_info;
    Call<Result(DevicePtr* address, std::size_t bytes)> mem_alloc;
    Call<Result(DevicePtr address)> mem_free;
    Call<Result(void** address, std::size_t bytes)> mem_alloc_host;
    Call<Result(void* address)> mem_free_host;
    Call<Result(DevicePtr to, const void* from, std::size_t bytes, Stream stream)> memcpy_htod_async;
    Call<Result(void* to, DevicePtr from, std::size_t bytes, Stream stream)> memcpy_dtoh_async;
    Call<Result(DevicePtr to, DevicePtr from, std::size_t bytes, Stream stream)> memcpy_dtod_async;
    Call<Result(DevicePtr to, unsigned char value, std::size_t bytes, Stream stream)> memset_d8_async;

    Call<Result(Stream* stream, unsigned flags)> stream_create;
    Call<Result(Stream stream)> stream_destroy;
    Call<Result(Stream stream)> stream_synchronize;
    Call<Result(Stream stream)> stream_query;
    Call<Result(Stream stream, Event event, unsigned flags)> stream_wait_event;
    Call<Result(Stream stream, CaptureMode mode)> stream_begin_capture;
    Call<Result(Stream stream, Graph* graph)> stream_end_capture;

    Call<Result(Event* event, unsigned flags)> event_create;
    Call<Result(Event event)> event_destroy;
    Call<Result(Event event, Stream stream)> event_record;
    Call<Result(Event event)> event_query;
    Call<Result(Event event)> event_synchronize;
    Call<Result(float* milliseconds, Event start, Event end)> event_elapsed_time;

    Call<Result(Module* module, const void* image, unsigned options, JitOption* names, void** values)>
        module_load_data_ex;
    Call<Result(Module module)> module_unload;
    Call<Result(Function* function, Module module, const char* name)> module_get_function;
    Call<Result(int* value, FunctionAttribute attribute, Function function)> func_get_attribute;
    Call<Result(Function function, FunctionAttribute attribute, int value)> func_set_attribute;
    Call<Result(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream stream, void** parameters,
                void** extra)>
        launch_kernel;
    Call<Result(int* blocks, Function function, int threads, std::size_t dynamic_shared_bytes)>
        occupancy_max_active_blocks_per_multiprocessor;

    Call<Result(GraphExec* exec, Graph graph, unsigned long long flags)> graph_instantiate;
    Call<Result(GraphExec exec, Stream stream)> graph_launch;
    Call<Result(GraphExec exec)> graph_exec_destroy;
    Call<Result(Graph graph)> graph_destroy;

    Call<Result(Result error, const char** name)> get_error_name;
    Call<Result(Result error, const char** text)> get_error_string;

    /// How reports call it: "NVIDIA driver of CUDA 12.4".
    std::string name;
    /// Keeps the library that the functions need.
    std::shared_ptr<void> kept;
};

/// Calls `visit(member, "cuName")` for each function, with the symbol that the driver's library has.
template <class AnyDriver, class Visit>
void for_each_function(AnyDriver& driver, const Visit& visit) {
    visit(driver.init, "cuInit");
    visit(driver.driver_get_version, "cuDriverGetVersion");
    visit(driver.device_get_count, "cuDeviceGetCount");
    visit(driver.device_get, "cuDeviceGet");
    visit(driver.device_get_name, "cuDeviceGetName");
    visit(driver.device_get_attribute, "cuDeviceGetAttribute");
    visit(driver.device_total_mem, "cuDeviceTotalMem_v2");
    visit(driver.device_primary_ctx_retain, "cuDevicePrimaryCtxRetain");
    visit(driver.device_primary_ctx_release, "cuDevicePrimaryCtxRelease_v2");
    visit(driver.ctx_set_current, "cuCtxSetCurrent");
    visit(driver.ctx_synchronize, "cuCtxSynchronize");
    visit(driver.mem_get_info, "cuMemGetInfo_v2");
    visit(driver.mem_alloc, "cuMemAlloc_v2");
    visit(driver.mem_free, "cuMemFree_v2");
    visit(driver.mem_alloc_host, "cuMemAllocHost_v2");
    visit(driver.mem_free_host, "cuMemFreeHost");
    visit(driver.memcpy_htod_async, "cuMemcpyHtoDAsync_v2");
    visit(driver.memcpy_dtoh_async, "cuMemcpyDtoHAsync_v2");
    visit(driver.memcpy_dtod_async, "cuMemcpyDtoDAsync_v2");
    visit(driver.memset_d8_async, "cuMemsetD8Async");
    visit(driver.stream_create, "cuStreamCreate");
    visit(driver.stream_destroy, "cuStreamDestroy_v2");
    visit(driver.stream_synchronize, "cuStreamSynchronize");
    visit(driver.stream_query, "cuStreamQuery");
    visit(driver.stream_wait_event, "cuStreamWaitEvent");
    visit(driver.stream_begin_capture, "cuStreamBeginCapture_v2");
    visit(driver.stream_end_capture, "cuStreamEndCapture");
    visit(driver.event_create, "cuEventCreate");
    visit(driver.event_destroy, "cuEventDestroy_v2");
    visit(driver.event_record, "cuEventRecord");
    visit(driver.event_query, "cuEventQuery");
    visit(driver.event_synchronize, "cuEventSynchronize");
    visit(driver.event_elapsed_time, "cuEventElapsedTime");
    visit(driver.module_load_data_ex, "cuModuleLoadDataEx");
    visit(driver.module_unload, "cuModuleUnload");
    visit(driver.module_get_function, "cuModuleGetFunction");
    visit(driver.func_get_attribute, "cuFuncGetAttribute");
    visit(driver.func_set_attribute, "cuFuncSetAttribute");
    visit(driver.launch_kernel, "cuLaunchKernel");
    visit(driver.occupancy_max_active_blocks_per_multiprocessor,
          "cuOccupancyMaxActiveBlocksPerMultiprocessor");
    visit(driver.graph_instantiate, "cuGraphInstantiateWithFlags");
    visit(driver.graph_launch, "cuGraphLaunch");
    visit(driver.graph_exec_destroy, "cuGraphExecDestroy");
    visit(driver.graph_destroy, "cuGraphDestroy");
    visit(driver.get_error_name, "cuGetErrorName");
    visit(driver.get_error_string, "cuGetErrorString");
}

/// The first version whose functions the table holds: CUDA 12.0.
constexpr int min_driver_version = 12000;

/// The driver of a library, initialised; or one line that names the missing library, function, version or
/// device.
Expected<Driver> load_driver(const std::string& library = "libcuda.so.1");

/// "CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access was encountered".
std::string words_of(const Driver& driver, Result result);

/// Throws UserError unless the result is success, with the attempt and the driver's words.
void require(const Driver& driver, Result result, const std::string& what);

}  // namespace mantissa::cuda
