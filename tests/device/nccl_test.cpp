// NCCL as a table: what is missing is one line; the emulated one passes what was sent and refuses what the
// real one does.
#include "mantissa/device/cuda/nccl.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/device/emulated_gpu_harness.h"

namespace mantissa::testing {
namespace {

using cuda::DevicePtr;
using cuda::Nccl;
using cuda::NcclComm;
using cuda::NcclResult;
using cuda::NcclType;
using cuda::NcclUniqueId;
using cuda::Result;

TEST(Nccl, WhatIsMissingIsOneLine) {
    EXPECT_EQ(
        cuda::load_nccl("libno_nccl.so").reason(),
        "there is no NCCL here (libno_nccl.so cannot be loaded), by which ranks on GPUs exchange; install "
        "libnccl2, or take `device` cpu");
    EXPECT_EQ(cuda::load_nccl("libc.so.6").reason(),
              "NCCL (libc.so.6) has no function ncclGetVersion; 2.16.0 or newer is needed");
}

/// One of two emulated GPUs, connected with the other.
struct Peer {
    Peer(int number, const NcclUniqueId& id) : rank(number), nccl(gpu.gpu().nccl()) {
        EXPECT_EQ(nccl.comm_init_rank(&comm, 2, id, rank), NcclResult::success);
    }
    ~Peer() { EXPECT_EQ(nccl.comm_destroy(comm), NcclResult::success); }
    void* at(DevicePtr address) const { return reinterpret_cast<void*>(address); }
    Result wait() { return gpu.driver().stream_synchronize(stream); }

    int rank;
    GpuUnderTest gpu{{.architecture = "sm_80", .threads = 1}};
    Nccl nccl;
    NcclComm comm = nullptr;
    cuda::Stream stream = gpu.stream();
};

void as_two(const std::function<void(Peer&)>& body) {
    NcclUniqueId id;
    ASSERT_EQ(cuda::EmulatedGpu({}).nccl().get_unique_id(&id), NcclResult::success);
    std::vector<std::thread> threads;
    for (const int rank : {0, 1})
        threads.emplace_back([&, rank] {
            Peer peer(rank, id);
            body(peer);
        });
    for (std::thread& thread : threads) thread.join();
}

TEST(Nccl, PassesWhatWasSentInItsOrder) {
    as_two([](Peer& peer) {
        const std::uint32_t own = static_cast<std::uint32_t>(100 * peer.rank), other = 100 - own;
        const DevicePtr first = peer.gpu.upload(std::vector<std::uint32_t>{own, own + 1}),
                        second = peer.gpu.upload(std::vector<std::uint32_t>{own + 2}),
                        got = peer.gpu.allocate(12);
        const Nccl& nccl = peer.nccl;
        const int to = 1 - peer.rank;
        EXPECT_EQ(nccl.group_start(), NcclResult::success);
        EXPECT_EQ(nccl.send(peer.at(first), 2, NcclType::f32, to, peer.comm, peer.stream),
                  NcclResult::success);
        EXPECT_EQ(nccl.recv(peer.at(got + 4), 8, NcclType::uint8, to, peer.comm, peer.stream),
                  NcclResult::success);
        EXPECT_EQ(nccl.send(peer.at(second), 1, NcclType::f32, to, peer.comm, peer.stream),
                  NcclResult::success);
        EXPECT_EQ(nccl.recv(peer.at(got), 1, NcclType::f32, to, peer.comm, peer.stream), NcclResult::success);
        EXPECT_EQ(nccl.group_end(), NcclResult::success);
        ASSERT_EQ(peer.wait(), Result::success) << peer.gpu.report();
        EXPECT_EQ(peer.gpu.download<std::uint32_t>(got, 3),
                  (std::vector<std::uint32_t>{other + 2, other, other + 1}));
    });
}

TEST(Nccl, RefusesWhatTheRealOneRefuses) {
    as_two([](Peer& peer) {
        const DevicePtr place = peer.gpu.upload(std::vector<std::uint32_t>{1});
        const Nccl& nccl = peer.nccl;
        EXPECT_EQ(nccl.send(peer.at(place), 1, NcclType::f32, 2, peer.comm, peer.stream),
                  NcclResult::invalid_argument);
        EXPECT_STREQ(nccl.get_last_error(peer.comm), "a peer that is no rank");
        EXPECT_EQ(nccl.send(peer.at(place), 1, NcclType::f32, 0, nullptr, peer.stream),
                  NcclResult::invalid_argument);
        EXPECT_EQ(nccl.group_end(), NcclResult::invalid_usage);
        EXPECT_THROW(require(nccl, NcclResult::invalid_usage, peer.comm, "trying"), UserError);
        // Memory that nobody wrote is not sent.
        const DevicePtr never = peer.gpu.allocate(4);
        EXPECT_EQ(nccl.send(peer.at(never), 1, NcclType::f32, 1 - peer.rank, peer.comm, peer.stream),
                  NcclResult::success);
        EXPECT_NE(peer.wait(), Result::success);
        EXPECT_NE(peer.gpu.report().find("ncclSend"), std::string::npos) << peer.gpu.report();
    });
}

}  // namespace
}  // namespace mantissa::testing
