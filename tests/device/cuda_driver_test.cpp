// The table of the driver's functions: what is said where there is none, and that our declarations agree with
// NVIDIA's header where one is installed.
#include "mantissa/device/cuda/driver.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "mantissa/base/error.h"
#include "mantissa/device/cuda/libraries.h"
#include "tests/device/same.h"
#include "tests/emulated_gpu/emulated_gpu.h"

#if __has_include(<cuda.h>)
#include <cuda.h>
#define MANTISSA_TEST_CUDA_HEADER
#endif

namespace mantissa {
namespace {

TEST(CudaDriver, ALibraryThatIsNotThereIsOneLine) {
    const auto driver = cuda::load_driver("libno_such_cuda.so.1");
    EXPECT_FALSE(driver);
    EXPECT_EQ(driver.reason(), "there is no NVIDIA driver here (libno_such_cuda.so.1 cannot be loaded)");
}

TEST(CudaDriver, ALibraryThatLacksAFunctionIsOneLine) {
    const auto driver = cuda::load_driver("libm.so.6");
    EXPECT_FALSE(driver);
    EXPECT_EQ(driver.reason(), "the NVIDIA driver (libm.so.6) has no function cuInit; CUDA 12.0 is needed");
}

/// A library that has all functions, with what they are to answer.
class FakeDriver {
  public:
    FakeDriver(int result_of_init, int version, int devices)
        : library_(dlopen(MANTISSA_FAKE_DRIVER, RTLD_NOW)) {
        if (!library_) throw UserError(dlerror());
        reinterpret_cast<void (*)(int, int, int)>(dlsym(library_, "fake_driver_set"))(result_of_init, version,
                                                                                      devices);
    }
    ~FakeDriver() { dlclose(library_); }
    FakeDriver(const FakeDriver&) = delete;
    FakeDriver& operator=(const FakeDriver&) = delete;

  private:
    void* library_;
};

TEST(CudaDriver, AWholeLibraryIsLoaded) {
    const FakeDriver fake(0, 12040, 1);
    const auto driver = cuda::load_driver(MANTISSA_FAKE_DRIVER);
    ASSERT_TRUE(driver) << driver.reason();
    EXPECT_EQ(driver->name, "NVIDIA driver of CUDA 12.4");
    cuda::DevicePtr address = 0;
    EXPECT_EQ(driver->mem_alloc(&address, 4711), cuda::Result::success);
    EXPECT_EQ(address, 4711u);
    EXPECT_EQ(driver->ctx_synchronize(), static_cast<cuda::Result>(999));
}

TEST(CudaDriver, WhatIsMissingIsOneLine) {
    const auto reason = [](int result_of_init, int version, int devices) {
        const FakeDriver fake(result_of_init, version, devices);
        return cuda::load_driver(MANTISSA_FAKE_DRIVER).reason();
    };
    EXPECT_EQ(reason(0, 11080, 1), "the NVIDIA driver is of CUDA 11.8; CUDA 12.0 is needed");
    EXPECT_EQ(reason(0, 12040, 0), "the NVIDIA driver has no device");
    EXPECT_EQ(reason(3, 12040, 1),
              "the NVIDIA driver does not start: CUDA_ERROR_OF_THE_FAKE (3): a made up error");
}

/// The emulated GPU, by the files that are looked for where NVIDIA's would be.
TEST(CudaDriver, TheEmulatedGpuStandsInForNvidiasLibraries) {
    const std::string folder = MANTISSA_BINARY_DIR "/emulated_gpu/";
    ::setenv("EMULATED_GPU", "sm_90a,memory=1G", 1);
    const auto driver = cuda::load_driver(folder + "libcuda.so.1");
    ::unsetenv("EMULATED_GPU");
    ASSERT_TRUE(driver) << driver.reason();
    EXPECT_EQ(driver->name, "NVIDIA driver of CUDA 12.8");
    const auto blas = cuda::load_cublaslt(folder + "libcublasLt.so.13");
    const auto dnn = cuda::load_cudnn(folder + "libcudnn.so.9");
    const auto nccl = cuda::load_nccl(folder + "libnccl.so.2");
    ASSERT_TRUE(blas && dnn && nccl) << blas.reason() << dnn.reason() << nccl.reason();
    char name[100] = {};
    ASSERT_EQ(driver->device_get_name(name, sizeof name, 0), cuda::Result::success);
    EXPECT_STREQ(name, "emulated GPU sm_90a (as H100)");
    std::size_t bytes = 0;
    ASSERT_EQ(driver->device_total_mem(&bytes, 0), cuda::Result::success);
    EXPECT_EQ(bytes, std::size_t{1} << 30);
    // All four have one GPU: a library's work runs on the driver's stream.
    cuda::Stream stream = nullptr;
    cuda::DnnHandle handle = nullptr;
    ASSERT_EQ(driver->stream_create(&stream, 0), cuda::Result::success);
    ASSERT_EQ(dnn->create(&handle), cuda::DnnStatus::success);
    EXPECT_EQ(dnn->set_stream(handle, stream), cuda::DnnStatus::success);
}

TEST(CudaDriver, WordsNameTheError) {
    const cuda::Driver driver = cuda::EmulatedGpu({.architecture = "sm_80"}).driver();
    EXPECT_EQ(cuda::words_of(driver, cuda::Result::out_of_memory),
              "CUDA_ERROR_OUT_OF_MEMORY (2): out of memory");
    EXPECT_EQ(cuda::words_of(driver, static_cast<cuda::Result>(4711)),
              "an error without a name (4711): the driver says no more");
    try {
        cuda::require(driver, cuda::Result::not_found, "the kernel");
        FAIL();
    } catch (const UserError& error) {
        EXPECT_STREQ(error.what(), "the kernel: CUDA_ERROR_NOT_FOUND (500): named symbol not found");
    }
}

TEST(CudaDriver, EachFunctionIsNamedOnce) {
    cuda::Driver driver;
    std::set<std::string> symbols;
    std::set<const void*> members;
    cuda::for_each_function(driver, [&](auto& member, const char* symbol) {
        EXPECT_TRUE(symbols.insert(symbol).second) << symbol;
        EXPECT_TRUE(members.insert(&member).second) << symbol;
    });
    EXPECT_EQ(symbols.size(), 46u);
}

#ifdef MANTISSA_TEST_CUDA_HEADER
template <class Ours, class Theirs>
constexpr bool alike =
    sizeof(Ours) == sizeof(Theirs) && std::is_pointer_v<Ours> == std::is_pointer_v<Theirs> &&
    (std::is_pointer_v<Ours> || !std::is_class_v<Theirs>);
template <class Ours, class Theirs>
struct Agree : std::false_type {};
template <class... Ours, class... Theirs>
struct Agree<cuda::Result(Ours...), CUresult(Theirs...)>
    : std::bool_constant<sizeof...(Ours) == sizeof...(Theirs) && (alike<Ours, Theirs> && ...)> {};
template <class Signature>
Signature* signature(const std::function<Signature>&);
template <class Member, class Theirs>
constexpr bool agrees =
    Agree<std::remove_pointer_t<decltype(signature(std::declval<Member>()))>, Theirs>::value;

#define AGREES(member, function) static_assert(agrees<decltype(cuda::Driver::member), decltype(function)>)
AGREES(init, cuInit);
AGREES(driver_get_version, cuDriverGetVersion);
AGREES(device_get_count, cuDeviceGetCount);
AGREES(device_get, cuDeviceGet);
AGREES(device_get_name, cuDeviceGetName);
AGREES(device_get_attribute, cuDeviceGetAttribute);
AGREES(device_total_mem, cuDeviceTotalMem);
AGREES(device_primary_ctx_retain, cuDevicePrimaryCtxRetain);
AGREES(device_primary_ctx_release, cuDevicePrimaryCtxRelease);
AGREES(ctx_set_current, cuCtxSetCurrent);
AGREES(ctx_synchronize, cuCtxSynchronize);
AGREES(mem_get_info, cuMemGetInfo);
AGREES(mem_alloc, cuMemAlloc);
AGREES(mem_free, cuMemFree);
AGREES(mem_alloc_host, cuMemAllocHost);
AGREES(mem_free_host, cuMemFreeHost);
AGREES(memcpy_htod_async, cuMemcpyHtoDAsync);
AGREES(memcpy_dtoh_async, cuMemcpyDtoHAsync);
AGREES(memcpy_dtod_async, cuMemcpyDtoDAsync);
AGREES(memset_d8_async, cuMemsetD8Async);
AGREES(stream_create, cuStreamCreate);
AGREES(stream_destroy, cuStreamDestroy);
AGREES(stream_synchronize, cuStreamSynchronize);
AGREES(stream_query, cuStreamQuery);
AGREES(stream_wait_event, cuStreamWaitEvent);
AGREES(stream_begin_capture, cuStreamBeginCapture);
AGREES(stream_end_capture, cuStreamEndCapture);
AGREES(event_create, cuEventCreate);
AGREES(event_destroy, cuEventDestroy);
AGREES(event_record, cuEventRecord);
AGREES(event_query, cuEventQuery);
AGREES(event_synchronize, cuEventSynchronize);
AGREES(event_elapsed_time, cuEventElapsedTime);
AGREES(module_load_data_ex, cuModuleLoadDataEx);
AGREES(module_unload, cuModuleUnload);
AGREES(module_get_function, cuModuleGetFunction);
AGREES(func_get_attribute, cuFuncGetAttribute);
AGREES(func_set_attribute, cuFuncSetAttribute);
AGREES(launch_kernel, cuLaunchKernel);
AGREES(occupancy_max_active_blocks_per_multiprocessor, cuOccupancyMaxActiveBlocksPerMultiprocessor);
AGREES(graph_instantiate, cuGraphInstantiateWithFlags);
AGREES(graph_launch, cuGraphLaunch);
AGREES(graph_exec_destroy, cuGraphExecDestroy);
AGREES(graph_destroy, cuGraphDestroy);
AGREES(get_error_name, cuGetErrorName);
AGREES(get_error_string, cuGetErrorString);

using cuda::DeviceAttribute;
using cuda::FunctionAttribute;
using cuda::JitOption;
using cuda::Result;
using testing::same;
static_assert(same(Result::success, CUDA_SUCCESS) && same(Result::invalid_value, CUDA_ERROR_INVALID_VALUE) &&
              same(Result::out_of_memory, CUDA_ERROR_OUT_OF_MEMORY) &&
              same(Result::not_initialized, CUDA_ERROR_NOT_INITIALIZED) &&
              same(Result::deinitialized, CUDA_ERROR_DEINITIALIZED) &&
              same(Result::no_device, CUDA_ERROR_NO_DEVICE) &&
              same(Result::invalid_device, CUDA_ERROR_INVALID_DEVICE) &&
              same(Result::invalid_context, CUDA_ERROR_INVALID_CONTEXT) &&
              same(Result::no_binary_for_gpu, CUDA_ERROR_NO_BINARY_FOR_GPU) &&
              same(Result::invalid_ptx, CUDA_ERROR_INVALID_PTX) &&
              same(Result::unsupported_ptx_version, CUDA_ERROR_UNSUPPORTED_PTX_VERSION) &&
              same(Result::invalid_handle, CUDA_ERROR_INVALID_HANDLE) &&
              same(Result::illegal_state, CUDA_ERROR_ILLEGAL_STATE) &&
              same(Result::not_found, CUDA_ERROR_NOT_FOUND) &&
              same(Result::not_ready, CUDA_ERROR_NOT_READY) &&
              same(Result::illegal_address, CUDA_ERROR_ILLEGAL_ADDRESS) &&
              same(Result::launch_out_of_resources, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES) &&
              same(Result::launch_timeout, CUDA_ERROR_LAUNCH_TIMEOUT) &&
              same(Result::misaligned_address, CUDA_ERROR_MISALIGNED_ADDRESS) &&
              same(Result::illegal_instruction, CUDA_ERROR_ILLEGAL_INSTRUCTION) &&
              same(Result::launch_failed, CUDA_ERROR_LAUNCH_FAILED) &&
              same(Result::stream_capture_unsupported, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) &&
              same(Result::stream_capture_invalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) &&
              same(Result::stream_capture_unjoined, CUDA_ERROR_STREAM_CAPTURE_UNJOINED) &&
              same(Result::stream_capture_isolation, CUDA_ERROR_STREAM_CAPTURE_ISOLATION));
static_assert(same(DeviceAttribute::max_threads_per_block, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK) &&
              same(DeviceAttribute::max_shared_memory_per_block,
                   CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK) &&
              same(DeviceAttribute::warp_size, CU_DEVICE_ATTRIBUTE_WARP_SIZE) &&
              same(DeviceAttribute::max_registers_per_block, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK) &&
              same(DeviceAttribute::clock_rate, CU_DEVICE_ATTRIBUTE_CLOCK_RATE) &&
              same(DeviceAttribute::multiprocessor_count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) &&
              same(DeviceAttribute::memory_clock_rate, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE) &&
              same(DeviceAttribute::global_memory_bus_width, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH) &&
              same(DeviceAttribute::l2_cache_size, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE) &&
              same(DeviceAttribute::max_threads_per_multiprocessor,
                   CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR) &&
              same(DeviceAttribute::compute_capability_major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) &&
              same(DeviceAttribute::compute_capability_minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR) &&
              same(DeviceAttribute::max_shared_memory_per_multiprocessor,
                   CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR) &&
              same(DeviceAttribute::max_registers_per_multiprocessor,
                   CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR) &&
              same(DeviceAttribute::max_shared_memory_per_block_optin,
                   CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) &&
              same(DeviceAttribute::max_blocks_per_multiprocessor,
                   CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR) &&
              same(DeviceAttribute::reserved_shared_memory_per_block,
                   CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK));
static_assert(same(FunctionAttribute::max_threads_per_block, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK) &&
              same(FunctionAttribute::shared_size_bytes, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES) &&
              same(FunctionAttribute::const_size_bytes, CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES) &&
              same(FunctionAttribute::local_size_bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES) &&
              same(FunctionAttribute::registers, CU_FUNC_ATTRIBUTE_NUM_REGS) &&
              same(FunctionAttribute::ptx_version, CU_FUNC_ATTRIBUTE_PTX_VERSION) &&
              same(FunctionAttribute::binary_version, CU_FUNC_ATTRIBUTE_BINARY_VERSION) &&
              same(FunctionAttribute::max_dynamic_shared_size_bytes,
                   CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES));
static_assert(same(JitOption::info_log_buffer, CU_JIT_INFO_LOG_BUFFER) &&
              same(JitOption::info_log_buffer_size_bytes, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES) &&
              same(JitOption::error_log_buffer, CU_JIT_ERROR_LOG_BUFFER) &&
              same(JitOption::error_log_buffer_size_bytes, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES));
static_assert(same(cuda::CaptureMode::global, CU_STREAM_CAPTURE_MODE_GLOBAL) &&
              same(cuda::CaptureMode::thread_local_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) &&
              same(cuda::CaptureMode::relaxed, CU_STREAM_CAPTURE_MODE_RELAXED));
static_assert(cuda::stream_non_blocking == CU_STREAM_NON_BLOCKING &&
              cuda::event_disable_timing == CU_EVENT_DISABLE_TIMING);
#endif

}  // namespace
}  // namespace mantissa
