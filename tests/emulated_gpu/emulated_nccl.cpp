#include "tests/emulated_gpu/emulated_nccl.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <vector>

#include "mantissa/ranks/transport.h"
#include "tests/emulated_gpu/machine.h"

namespace mantissa::inline v0::cuda {

struct NcclCommHandle {
    std::unique_ptr<Transport> transport;
};

namespace {

/// For who does not come, and who does not answer.
constexpr double patience_seconds = 60;

/// A send or a receive.
struct Passing {
    DevicePtr at = 0;
    std::size_t bytes = 0;
    int peer = 0;
    bool is_send = false;
};

std::vector<std::byte> bytes_of(Machine& machine, const std::vector<Passing>& all, int peer) {
    std::vector<std::byte> bytes;
    for (const Passing& one : all) {
        if (!one.is_send || one.peer != peer) continue;
        const std::byte* const from = machine.read_by_library(one.at, one.bytes, "ncclSend");
        bytes.insert(bytes.end(), from, from + one.bytes);
    }
    return bytes;
}

/// Messages to each rank in the order of the sends, and received likewise, all at one time.
void run(Machine& machine, NcclCommHandle& comm, const std::vector<Passing>& all) {
    const int ranks = comm.transport->ranks();
    std::vector<std::vector<std::byte>> sent, received;
    for (int peer = 0; peer < ranks; ++peer) {
        sent.push_back(bytes_of(machine, all, peer));
        std::size_t bytes = 0;
        for (const Passing& one : all)
            if (!one.is_send && one.peer == peer) bytes += one.bytes;
        received.emplace_back(bytes);
    }
    std::vector<std::span<const std::byte>> send(sent.begin(), sent.end());
    const std::vector<std::span<std::byte>> receive(received.begin(), received.end());
    try {
        comm.transport->exchange(send, receive);
    } catch (const LostRank& lost) {
        throw ptx::Fault{Result::launch_failed, fmt::format("NCCL: rank {}: {}", lost.rank, lost.what())};
    }
    std::vector<std::size_t> taken(static_cast<std::size_t>(ranks), 0);
    for (const Passing& one : all) {
        if (one.is_send) continue;
        std::size_t& from = taken[static_cast<std::size_t>(one.peer)];
        std::memcpy(machine.written_by_library(one.at, one.bytes, "ncclRecv"),
                    received[static_cast<std::size_t>(one.peer)].data() + from, one.bytes);
        from += one.bytes;
    }
}

class EmulatedNccl {
  public:
    explicit EmulatedNccl(Machine& machine) : machine_(machine) {}

    static NcclResult unique_id(NcclUniqueId* id) {
        static std::atomic<int> number{0};
        const std::string name = fmt::format("mantissa-nccl-{}-{}", ::getpid(), number++);
        *id = {};
        std::ranges::copy(name, id->internal);
        return NcclResult::success;
    }

    NcclResult begin(NcclComm* comm, int ranks, const NcclUniqueId& id, int rank) {
        if (ranks < 1 || rank < 0 || rank >= ranks) return refuse("no rank of as many");
        try {
            auto made = std::make_unique<NcclCommHandle>();
            made->transport = meet_ranks(id.internal, rank, ranks, patience_seconds);
            *comm = made.get();
            comms_[made.get()] = std::move(made);
        } catch (const UserError& error) {
            last_error_ = error.what();
            return NcclResult::system_error;
        }
        return NcclResult::success;
    }

    NcclResult end(NcclComm comm) {
        return comms_.erase(comm) ? NcclResult::success : refuse("an unknown communicator");
    }

    NcclResult pass(Passing one, NcclType type, NcclComm comm, Stream stream) {
        if (!comms_.contains(comm)) return refuse("an unknown communicator");
        if (one.peer < 0 || one.peer >= comm->transport->ranks()) return refuse("a peer that is no rank");
        if (one.peer == comm->transport->rank()) return refuse("a rank sends itself nothing here");
        if (type != NcclType::uint8 && type != NcclType::f32) return refuse("a type that is not emulated");
        if (type == NcclType::f32) one.bytes *= sizeof(float);
        if (group_ > 0 && !passing_.empty() && (comm != comm_ || stream != stream_))
            return refuse("a group of one communicator and one stream is emulated");
        comm_ = comm;
        stream_ = stream;
        passing_.push_back(one);
        return group_ > 0 ? NcclResult::success : queue();
    }

    NcclResult group_start() {
        ++group_;
        return NcclResult::success;
    }
    NcclResult group_end() {
        if (group_ == 0) return refuse("the end of a group that was not begun", NcclResult::invalid_usage);
        return --group_ > 0 ? NcclResult::success : queue();
    }

    const char* last_error() const { return last_error_.c_str(); }

  private:
    NcclResult refuse(const char* why, NcclResult result = NcclResult::invalid_argument) {
        last_error_ = why;
        return result;
    }

    NcclResult queue() {
        if (passing_.empty()) return NcclResult::success;
        const Result result =
            machine_.call_library(stream_, [&machine = machine_, comm = comm_,
                                            all = std::exchange(passing_, {})] { run(machine, *comm, all); });
        return result == Result::success ? NcclResult::success : NcclResult::unhandled_cuda_error;
    }

    Machine& machine_;
    std::map<NcclComm, std::unique_ptr<NcclCommHandle>> comms_;
    std::vector<Passing> passing_;  // of the group that is open
    NcclComm comm_ = nullptr;
    Stream stream_ = nullptr;
    int group_ = 0;
    std::string last_error_;
};

const char* nccl_words(NcclResult result) {
    switch (result) {
        case NcclResult::success:
            return "no error";
        case NcclResult::unhandled_cuda_error:
            return "unhandled cuda error";
        case NcclResult::system_error:
            return "unhandled system error";
        case NcclResult::internal_error:
            return "internal error";
        case NcclResult::invalid_argument:
            return "invalid argument";
        case NcclResult::invalid_usage:
            return "invalid usage";
        case NcclResult::remote_error:
            return "remote process exited or there was a network error";
    }
    return "unknown result code";
}

DevicePtr address_of(const void* of) { return reinterpret_cast<DevicePtr>(of); }

}  // namespace

Nccl make_emulated_nccl(Machine& machine) {
    const auto nccl = std::make_shared<EmulatedNccl>(machine);
    Nccl table;
    table.get_version = [](int* version) {
        *version = 21805;
        return NcclResult::success;
    };
    table.get_unique_id = EmulatedNccl::unique_id;
    table.comm_init_rank = [nccl](NcclComm* comm, int ranks, const NcclUniqueId& id, int rank) {
        return nccl->begin(comm, ranks, id, rank);
    };
    table.comm_destroy = table.comm_abort = [nccl](NcclComm comm) { return nccl->end(comm); };
    table.send = [nccl](const void* from, std::size_t count, NcclType type, int peer, NcclComm comm,
                        Stream stream) {
        return nccl->pass({address_of(from), count, peer, true}, type, comm, stream);
    };
    table.recv = [nccl](void* to, std::size_t count, NcclType type, int peer, NcclComm comm, Stream stream) {
        return nccl->pass({address_of(to), count, peer, false}, type, comm, stream);
    };
    table.group_start = [nccl] { return nccl->group_start(); };
    table.group_end = [nccl] { return nccl->group_end(); };
    table.get_error_string = nccl_words;
    table.get_last_error = [nccl](NcclComm) { return nccl->last_error(); };
    return table;
}

}  // namespace mantissa::cuda
