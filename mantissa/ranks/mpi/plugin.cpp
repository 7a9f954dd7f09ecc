// The transport over MPI, compiled once for each MPI that the machine has headers of.
#include <mpi.h>

#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <vector>

#include "mantissa/ranks/mpi_plugin.h"

namespace {

void describe(int error, char* why, std::size_t size) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(error, text, &length);
    std::snprintf(why, size, "MPI says: %s", text);
}

/// A message to a rank or from it.
struct Message {
    std::uint64_t exchange = 0;  ///< its number
    MPI_Request request = MPI_REQUEST_NULL;
};

/// The messages under way, by rank, in the order of the exchanges.
using ByRank = std::vector<std::deque<Message>>;

MantissaMpi self;
ByRank to, from;
std::uint64_t started = 0, finished = 0;  // exchanges

int fail(int error, std::size_t rank, char* why, std::size_t why_size) {
    describe(error, why, why_size);
    return static_cast<int>(rank);
}

/// Forgets the messages in front that have passed.
int pass(std::deque<Message>& messages) {
    for (int done = 1; done && !messages.empty();) {
        if (const int error = MPI_Test(&messages.front().request, &done, MPI_STATUS_IGNORE);
            error != MPI_SUCCESS)
            return error;
        if (done) messages.pop_front();
    }
    return MPI_SUCCESS;
}

int advance(char* why, std::size_t why_size) {
    for (ByRank* const all : {&from, &to})
        for (std::size_t rank = 0; rank < all->size(); ++rank)
            if (const int error = pass((*all)[rank]); error != MPI_SUCCESS)
                return fail(error, rank, why, why_size);
    return -1;
}

int start(const void* const* send, const std::size_t* send_bytes, void* const* receive,
          const std::size_t* receive_bytes, char* why, std::size_t why_size) {
    const auto begin = [&](std::deque<Message>& messages, std::size_t bytes, const auto& call) {
        if (bytes == 0) return true;
        if (bytes > INT_MAX) {
            std::snprintf(why, why_size, "a message of %zu bytes is more than MPI takes", bytes);
            return false;
        }
        MPI_Request request = MPI_REQUEST_NULL;
        const int error = call(static_cast<int>(bytes), &request);
        if (error == MPI_SUCCESS)
            messages.push_back({started, request});
        else
            describe(error, why, why_size);
        return error == MPI_SUCCESS;
    };
    const auto ranks = static_cast<std::size_t>(self.ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank)
        if (!begin(from[rank], receive_bytes[rank], [&](int bytes, MPI_Request* request) {
                return MPI_Irecv(receive[rank], bytes, MPI_BYTE, static_cast<int>(rank), 0, MPI_COMM_WORLD,
                                 request);
            }))
            return static_cast<int>(rank);
    // Each begins with the rank behind it, so that not all send to the first at once.
    for (std::size_t next = 1; next < ranks; ++next) {
        const std::size_t rank = (static_cast<std::size_t>(self.rank) + next) % ranks;
        if (!begin(to[rank], send_bytes[rank], [&](int bytes, MPI_Request* request) {
                return MPI_Isend(send[rank], bytes, MPI_BYTE, static_cast<int>(rank), 0, MPI_COMM_WORLD,
                                 request);
            }))
            return static_cast<int>(rank);
    }
    ++started;
    return -1;
}

/// The first for which the oldest exchange waits; -1 where it waits for none.
int late_rank() {
    const auto waits = [&](const std::deque<Message>& messages) {
        return !messages.empty() && messages.front().exchange == finished;
    };
    for (std::size_t rank = 0; rank < to.size(); ++rank)
        if (waits(to[rank]) || waits(from[rank])) return static_cast<int>(rank);
    return -1;
}

int finish_oldest(int* late, char* why, std::size_t why_size) {
    if (const int lost = advance(why, why_size); lost >= 0) return lost;
    *late = late_rank();
    if (*late < 0) ++finished;
    return -1;
}

/// Open MPI's transport over TCP would have the receiver ask for each large message, and that question queues
/// behind the messages that the receiver sends. Where bytes go both ways, a link stands still for 0.4 of the
/// time. Messages in fragments fill it. A value that the user set stays.
void choose_how_tcp_sends() {
#ifdef OPEN_MPI
    ::setenv("OMPI_MCA_btl_tcp_flags", "send,inplace,need-ack,need-csum", 0);
#endif
}

void abort_all() { MPI_Abort(MPI_COMM_WORLD, 1); }
void end() { MPI_Finalize(); }

}  // namespace

extern "C" __attribute__((visibility("default"))) const MantissaMpi* MANTISSA_OPEN_MPI(char* why,
                                                                                       std::size_t why_size) {
    choose_how_tcp_sends();
    int provided = 0;
    if (const int error = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
        error != MPI_SUCCESS) {
        describe(error, why, why_size);
        return nullptr;
    }
    if (provided < MPI_THREAD_SERIALIZED) {
        std::snprintf(why, why_size,
                      "this MPI may be called from one thread only; mantissa calls it from two");
        return nullptr;
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &self.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &self.ranks);
    to.resize(static_cast<std::size_t>(self.ranks));
    from.resize(to.size());
    self.start = start;
    self.advance = advance;
    self.finish_oldest = finish_oldest;
    self.abort = abort_all;
    self.end = end;
    return &self;
}
