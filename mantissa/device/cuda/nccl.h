// The functions that we use of NVIDIA's NCCL, which carries bytes between GPUs: one table, declared by
// ourselves and filled from the library when the program runs.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "mantissa/base/expected.h"
#include "mantissa/device/cuda/driver.h"

namespace mantissa::inline v0::cuda {

/// As nccl.h of version 2 numbers them.
enum class NcclResult : int {
    success = 0,
    unhandled_cuda_error = 1,
    system_error = 2,
    internal_error = 3,
    invalid_argument = 4,
    invalid_usage = 5,
    remote_error = 6,
};
enum class NcclType : int { uint8 = 1, f32 = 7 };

/// The id that ranks need to meet.
struct NcclUniqueId {
    char internal[128] = {};
};
using NcclComm = struct NcclCommHandle*;

/// The members have the library's names, arguments and meanings. All are set.
struct Nccl {
    template <class Signature>
    using Call = std::function<Signature>;

    Call<NcclResult(int* version)> get_version;  ///< 10000 times the major number, 100 times the minor one
    Call<NcclResult(NcclUniqueId* id)> get_unique_id;
    Call<NcclResult(NcclComm* comm, int ranks, NcclUniqueId id, int rank)> comm_init_rank;
    Call<NcclResult(NcclComm comm)> comm_destroy;
    Call<NcclResult(NcclComm comm)> comm_abort;
    Call<NcclResult(const void* from, std::size_t count, NcclType type, int peer, NcclComm comm,
                    Stream stream)>
        send;
    Call<NcclResult(void* to, std::size_t count, NcclType type, int peer, NcclComm comm, Stream stream)> recv;
    Call<NcclResult()> group_start;
    Call<NcclResult()> group_end;
    Call<const char*(NcclResult result)> get_error_string;
    Call<const char*(NcclComm comm)> get_last_error;

    std::string name;            ///< as reports call it: "NCCL 2.18.3"
    std::shared_ptr<void> kept;  ///< keeps the library that the functions need
};

/// Calls `visit(member, "ncclName")` for each function.
template <class AnyNccl, class Visit>
void for_each_nccl_function(AnyNccl& table, const Visit& visit) {
    visit(table.get_version, "ncclGetVersion");
    visit(table.get_unique_id, "ncclGetUniqueId");
    visit(table.comm_init_rank, "ncclCommInitRank");
    visit(table.comm_destroy, "ncclCommDestroy");
    visit(table.comm_abort, "ncclCommAbort");
    visit(table.send, "ncclSend");
    visit(table.recv, "ncclRecv");
    visit(table.group_start, "ncclGroupStart");
    visit(table.group_end, "ncclGroupEnd");
    visit(table.get_error_string, "ncclGetErrorString");
    visit(table.get_last_error, "ncclGetLastError");
}

/// 2.16, of the time of CUDA 12: it takes part in graphs, and tells the last failure.
constexpr int min_nccl_version = 21600;

/// The functions of a library, or one line that names the missing library, function or version.
Expected<Nccl> load_nccl(const std::string& library = "libnccl.so.2");

/// Throws UserError unless the result is success, with the attempt and the library's words.
void require(const Nccl& table, NcclResult result, NcclComm comm, const std::string& what);

}  // namespace mantissa::cuda
