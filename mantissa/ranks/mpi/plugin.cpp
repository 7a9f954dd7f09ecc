// The transport over MPI, compiled once for each MPI that the machine has headers of.
#include <mpi.h>
#include <sched.h>
#include <time.h>

#include <climits>
#include <cstdio>
#include <vector>

#include "mantissa/ranks/mpi_plugin.h"

namespace {

double seconds_now() { return MPI_Wtime(); }

void describe(int error, char* why, std::size_t size) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(error, text, &length);
    std::snprintf(why, size, "MPI says: %s", text);
}

/// MPI waits by asking without a pause, which would take the core from the threads that compute. So this
/// asks, lets others run, and after a millisecond sleeps between.
void pause_since(double begin) {
    if (seconds_now() - begin < 1e-3) {
        sched_yield();
        return;
    }
    const timespec shortly{0, 50000};
    nanosleep(&shortly, nullptr);
}

struct Under {
    std::vector<MPI_Request> requests;
    std::vector<int> ranks;  // of each

    /// Waits for all. Returns -1, or the rank of the first that failed or has not ended in time.
    int finish(double seconds, char* why, std::size_t why_size) {
        const double begin = seconds_now();
        for (;;) {
            bool all = true;
            for (std::size_t i = 0; i < requests.size(); ++i) {
                if (requests[i] == MPI_REQUEST_NULL) continue;
                int done = 0;
                if (const int error = MPI_Test(&requests[i], &done, MPI_STATUS_IGNORE);
                    error != MPI_SUCCESS) {
                    describe(error, why, why_size);
                    return ranks[i];
                }
                all = all && done;
            }
            if (all) return -1;
            if (seconds_now() - begin > seconds) break;
            pause_since(begin);
        }
        std::snprintf(why, why_size, "no answer within %g s", seconds);
        std::size_t first = 0;
        while (requests[first] == MPI_REQUEST_NULL) ++first;
        return ranks[first];
    }
};

MantissaMpi self;

int exchange(const void* const* send, const std::size_t* send_bytes, void* const* receive,
             const std::size_t* receive_bytes, double seconds, char* why, std::size_t why_size) {
    Under under;
    const auto begin = [&](std::size_t bytes, int rank, auto&& call) {
        if (bytes == 0) return true;
        if (bytes > INT_MAX) {
            std::snprintf(why, why_size, "a message of %zu bytes is more than MPI takes", bytes);
            return false;
        }
        MPI_Request request = MPI_REQUEST_NULL;
        const int error = call(static_cast<int>(bytes), &request);
        if (error != MPI_SUCCESS) {
            describe(error, why, why_size);
            return false;
        }
        under.requests.push_back(request);
        under.ranks.push_back(rank);
        return true;
    };
    for (int rank = 0; rank < self.ranks; ++rank)
        if (!begin(receive_bytes[rank], rank, [&](int bytes, MPI_Request* request) {
                return MPI_Irecv(receive[rank], bytes, MPI_BYTE, rank, 0, MPI_COMM_WORLD, request);
            }))
            return rank;
    // Each begins with the rank behind it, so that not all send to the first at once.
    for (int next = 1; next < self.ranks; ++next) {
        const int rank = (self.rank + next) % self.ranks;
        if (!begin(send_bytes[rank], rank, [&](int bytes, MPI_Request* request) {
                return MPI_Isend(send[rank], bytes, MPI_BYTE, rank, 0, MPI_COMM_WORLD, request);
            }))
            return rank;
    }
    return under.finish(seconds, why, why_size);
}

void abort_all() { MPI_Abort(MPI_COMM_WORLD, 1); }
void finish() { MPI_Finalize(); }

}  // namespace

extern "C" __attribute__((visibility("default"))) const MantissaMpi* MANTISSA_OPEN_MPI(char* why,
                                                                                       std::size_t why_size) {
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
    self.exchange = exchange;
    self.abort = abort_all;
    self.finish = finish;
    return &self;
}
