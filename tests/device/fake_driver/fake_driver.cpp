// A library with the symbols of the CUDA driver that does nothing, so that loading it can be tested: what it
// answers is set by `fake_driver_set`.
namespace {

int start = 0, its_version = 0, its_devices = 0;

}  // namespace

extern "C" {

void fake_driver_set(int result_of_init, int version, int devices) {
    start = result_of_init;
    its_version = version;
    its_devices = devices;
}

int cuInit(unsigned) { return start; }
int cuDriverGetVersion(int* version) { return *version = its_version, 0; }
int cuDeviceGetCount(int* count) { return *count = its_devices, 0; }
int cuGetErrorName(int error, const char** name) { return *name = "CUDA_ERROR_OF_THE_FAKE", error == 0; }
int cuGetErrorString(int error, const char** text) { return *text = "a made up error", error == 0; }
/// The size as the address: arguments arrive.
int mem_alloc(unsigned long long* address, unsigned long bytes) __asm__("cuMemAlloc_v2");
int mem_alloc(unsigned long long* address, unsigned long bytes) { return *address = bytes, 0; }

// Called with arguments that it does not look at.
#define ANSWERS_999(name, symbol) \
    int name() __asm__(symbol);   \
    int name() { return 999; }
ANSWERS_999(me, "name")
ANSWERS_999(device_get, "cuDeviceGet")
ANSWERS_999(device_get_name, "cuDeviceGetName")
ANSWERS_999(device_get_attribute, "cuDeviceGetAttribute")
ANSWERS_999(device_total_mem, "cuDeviceTotalMem_v2")
ANSWERS_999(device_primary_ctx_retain, "cuDevicePrimaryCtxRetain")
ANSWERS_999(device_primary_ctx_release, "cuDevicePrimaryCtxRelease_v2")
ANSWERS_999(ctx_set_current, "cuCtxSetCurrent")
ANSWERS_999(ctx_synchronize, "cuCtxSynchronize")
ANSWERS_999(mem_get_info, "cuMemGetInfo_v2")
ANSWERS_999(mem_free, "cuMemFree_v2")
ANSWERS_999(mem_alloc_host, "cuMemAllocHost_v2")
ANSWERS_999(mem_free_host, "cuMemFreeHost")
ANSWERS_999(memcpy_htod_async, "cuMemcpyHtoDAsync_v2")
ANSWERS_999(memcpy_dtoh_async, "cuMemcpyDtoHAsync_v2")
ANSWERS_999(memcpy_dtod_async, "cuMemcpyDtoDAsync_v2")
ANSWERS_999(memset_d8_async, "cuMemsetD8Async")
ANSWERS_999(stream_create, "cuStreamCreate")
ANSWERS_999(stream_destroy, "cuStreamDestroy_v2")
ANSWERS_999(stream_synchronize, "cuStreamSynchronize")
ANSWERS_999(stream_query, "cuStreamQuery")
ANSWERS_999(stream_wait_event, "cuStreamWaitEvent")
ANSWERS_999(stream_begin_capture, "cuStreamBeginCapture_v2")
ANSWERS_999(stream_end_capture, "cuStreamEndCapture")
ANSWERS_999(event_create, "cuEventCreate")
ANSWERS_999(event_destroy, "cuEventDestroy_v2")
ANSWERS_999(event_record, "cuEventRecord")
ANSWERS_999(event_query, "cuEventQuery")
ANSWERS_999(event_synchronize, "cuEventSynchronize")
ANSWERS_999(event_elapsed_time, "cuEventElapsedTime")
ANSWERS_999(module_load_data_ex, "cuModuleLoadDataEx")
ANSWERS_999(module_unload, "cuModuleUnload")
ANSWERS_999(module_get_function, "cuModuleGetFunction")
ANSWERS_999(func_get_attribute, "cuFuncGetAttribute")
ANSWERS_999(func_set_attribute, "cuFuncSetAttribute")
ANSWERS_999(launch_kernel, "cuLaunchKernel")
ANSWERS_999(occupancy_max_active_blocks_per_multiprocessor, "cuOccupancyMaxActiveBlocksPerMultiprocessor")
ANSWERS_999(graph_instantiate_with_flags, "cuGraphInstantiateWithFlags")
ANSWERS_999(graph_launch, "cuGraphLaunch")
ANSWERS_999(graph_exec_destroy, "cuGraphExecDestroy")
ANSWERS_999(graph_destroy, "cuGraphDestroy")
}
