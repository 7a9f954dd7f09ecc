// The emulated GPU for programs that are started: the C functions of NVIDIA's driver, cuBLASLt, cuDNN and
// NCCL, each of which calls that of one GPU of the process. EMULATED_GPU has its options; unset: an sm_80.
#include <cstdlib>
#include <functional>
#include <string>

#include "mantissa/base/error.h"
#include "mantissa/device/cuda/libraries.h"
#include "tests/emulated_gpu/emulated_gpu.h"

namespace mantissa::inline v0::cuda {

namespace {

/// A driver that does not start, and says why.
Driver refusing(const std::string& why) {
    Driver driver = EmulatedGpu({}).driver();
    driver.init = [](unsigned) { return Result::invalid_value; };
    driver.get_error_string = [why](Result, const char** text) {
        *text = why.c_str();
        return Result::success;
    };
    return driver;
}

Libraries make_libraries() {
    const char* const asked = std::getenv("EMULATED_GPU");
    try {
        const EmulatedGpu gpu(parse_emulated_gpu(asked && *asked ? asked : "sm_80"));
        return {gpu.driver(), gpu.cublaslt(), gpu.cudnn(), gpu.nccl()};
    } catch (const UserError& error) {
        return {.driver = refusing(error.what()), .blas = {}};
    }
}

/// Never freed: other threads may call while the program exits.
const Libraries& libraries() {
    static const Libraries& made = *new Libraries(make_libraries());
    return made;
}

const Driver& part(const Driver*) { return libraries().driver; }
const CublasLt& part(const CublasLt*) { return libraries().blas; }
const Cudnn& part(const Cudnn*) { return *libraries().dnn; }
const Nccl& part(const Nccl*) { return *libraries().nccl; }

/// A C function of a table's member.
template <auto member>
struct Entry;
template <class Table, class Answer, class... A, std::function<Answer(A...)> Table::*member>
struct Entry<member> {
    static Answer call(A... arguments) {
        return (part(static_cast<const Table*>(nullptr)).*member)(arguments...);
    }
};

// A symbol with the library's name, which goes on to that function.
#define EXPORT(Table, member, symbol)                                                     \
    extern "C" {                                                                          \
    [[gnu::visibility("hidden"), gnu::used]] auto* entry_of_##Table##_##member =          \
        &Entry<&Table::member>::call;                                                     \
    }                                                                                     \
    __asm__(".pushsection .text\n.globl " symbol "\n.type " symbol ", @function\n" symbol \
            ":\n"                                                                         \
            "jmp *entry_of_" #Table "_" #member "(%rip)\n.size " symbol ", . - " symbol "\n.popsection\n");

EXPORT(Driver, init, "cuInit")
EXPORT(Driver, driver_get_version, "cuDriverGetVersion")
EXPORT(Driver, device_get_count, "cuDeviceGetCount")
EXPORT(Driver, device_get, "cuDeviceGet")
EXPORT(Driver, device_get_name, "cuDeviceGetName")
EXPORT(Driver, device_get_attribute, "cuDeviceGetAttribute")
EXPORT(Driver, device_total_mem, "cuDeviceTotalMem_v2")
EXPORT(Driver, device_primary_ctx_retain, "cuDevicePrimaryCtxRetain")
EXPORT(Driver, device_primary_ctx_release, "cuDevicePrimaryCtxRelease_v2")
EXPORT(Driver, ctx_set_current, "cuCtxSetCurrent")
EXPORT(Driver, ctx_synchronize, "cuCtxSynchronize")
EXPORT(Driver, mem_get_info, "cuMemGetInfo_v2")
EXPORT(Driver, mem_alloc, "cuMemAlloc_v2")
EXPORT(Driver, mem_free, "cuMemFree_v2")
EXPORT(Driver, mem_alloc_host, "cuMemAllocHost_v2")
EXPORT(Driver, mem_free_host, "cuMemFreeHost")
EXPORT(Driver, memcpy_htod_async, "cuMemcpyHtoDAsync_v2")
EXPORT(Driver, memcpy_dtoh_async, "cuMemcpyDtoHAsync_v2")
EXPORT(Driver, memcpy_dtod_async, "cuMemcpyDtoDAsync_v2")
EXPORT(Driver, memset_d8_async, "cuMemsetD8Async")
EXPORT(Driver, stream_create, "cuStreamCreate")
EXPORT(Driver, stream_destroy, "cuStreamDestroy_v2")
EXPORT(Driver, stream_synchronize, "cuStreamSynchronize")
EXPORT(Driver, stream_query, "cuStreamQuery")
EXPORT(Driver, stream_wait_event, "cuStreamWaitEvent")
EXPORT(Driver, stream_begin_capture, "cuStreamBeginCapture_v2")
EXPORT(Driver, stream_end_capture, "cuStreamEndCapture")
EXPORT(Driver, event_create, "cuEventCreate")
EXPORT(Driver, event_destroy, "cuEventDestroy_v2")
EXPORT(Driver, event_record, "cuEventRecord")
EXPORT(Driver, event_query, "cuEventQuery")
EXPORT(Driver, event_synchronize, "cuEventSynchronize")
EXPORT(Driver, event_elapsed_time, "cuEventElapsedTime")
EXPORT(Driver, module_load_data_ex, "cuModuleLoadDataEx")
EXPORT(Driver, module_unload, "cuModuleUnload")
EXPORT(Driver, module_get_function, "cuModuleGetFunction")
EXPORT(Driver, func_get_attribute, "cuFuncGetAttribute")
EXPORT(Driver, func_set_attribute, "cuFuncSetAttribute")
EXPORT(Driver, launch_kernel, "cuLaunchKernel")
EXPORT(Driver, occupancy_max_active_blocks_per_multiprocessor, "cuOccupancyMaxActiveBlocksPerMultiprocessor")
EXPORT(Driver, graph_instantiate, "cuGraphInstantiateWithFlags")
EXPORT(Driver, graph_launch, "cuGraphLaunch")
EXPORT(Driver, graph_exec_destroy, "cuGraphExecDestroy")
EXPORT(Driver, graph_destroy, "cuGraphDestroy")
EXPORT(Driver, get_error_name, "cuGetErrorName")
EXPORT(Driver, get_error_string, "cuGetErrorString")

EXPORT(CublasLt, create, "cublasLtCreate")
EXPORT(CublasLt, destroy, "cublasLtDestroy")
EXPORT(CublasLt, get_version, "cublasLtGetVersion")
EXPORT(CublasLt, get_status_name, "cublasLtGetStatusName")
EXPORT(CublasLt, get_status_string, "cublasLtGetStatusString")
EXPORT(CublasLt, matrix_layout_create, "cublasLtMatrixLayoutCreate")
EXPORT(CublasLt, matrix_layout_destroy, "cublasLtMatrixLayoutDestroy")
EXPORT(CublasLt, matrix_layout_set_attribute, "cublasLtMatrixLayoutSetAttribute")
EXPORT(CublasLt, matmul_desc_create, "cublasLtMatmulDescCreate")
EXPORT(CublasLt, matmul_desc_destroy, "cublasLtMatmulDescDestroy")
EXPORT(CublasLt, matmul_desc_set_attribute, "cublasLtMatmulDescSetAttribute")
EXPORT(CublasLt, matmul_preference_create, "cublasLtMatmulPreferenceCreate")
EXPORT(CublasLt, matmul_preference_destroy, "cublasLtMatmulPreferenceDestroy")
EXPORT(CublasLt, matmul_preference_set_attribute, "cublasLtMatmulPreferenceSetAttribute")
EXPORT(CublasLt, matmul_algo_get_heuristic, "cublasLtMatmulAlgoGetHeuristic")
EXPORT(CublasLt, matmul, "cublasLtMatmul")

EXPORT(Cudnn, get_version, "cudnnGetVersion")
EXPORT(Cudnn, get_error_string, "cudnnGetErrorString")
EXPORT(Cudnn, get_last_error_string, "cudnnGetLastErrorString")
EXPORT(Cudnn, create, "cudnnCreate")
EXPORT(Cudnn, destroy, "cudnnDestroy")
EXPORT(Cudnn, set_stream, "cudnnSetStream")
EXPORT(Cudnn, create_descriptor, "cudnnBackendCreateDescriptor")
EXPORT(Cudnn, destroy_descriptor, "cudnnBackendDestroyDescriptor")
EXPORT(Cudnn, finalize, "cudnnBackendFinalize")
EXPORT(Cudnn, set_attribute, "cudnnBackendSetAttribute")
EXPORT(Cudnn, get_attribute, "cudnnBackendGetAttribute")
EXPORT(Cudnn, execute, "cudnnBackendExecute")

EXPORT(Nccl, get_version, "ncclGetVersion")
EXPORT(Nccl, get_unique_id, "ncclGetUniqueId")
EXPORT(Nccl, comm_init_rank, "ncclCommInitRank")
EXPORT(Nccl, comm_destroy, "ncclCommDestroy")
EXPORT(Nccl, comm_abort, "ncclCommAbort")
EXPORT(Nccl, send, "ncclSend")
EXPORT(Nccl, recv, "ncclRecv")
EXPORT(Nccl, group_start, "ncclGroupStart")
EXPORT(Nccl, group_end, "ncclGroupEnd")
EXPORT(Nccl, get_error_string, "ncclGetErrorString")
EXPORT(Nccl, get_last_error, "ncclGetLastError")

}  // namespace

}  // namespace mantissa::cuda
