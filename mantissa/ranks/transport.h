// What carries bytes between ranks, the processes that train one model together: one exchange, from which
// everything else is made (ranks.h), so that a network is a matter of one function.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mantissa/base/error.h"

namespace mantissa::inline v0 {

/// A rank that is gone, or that does not answer.
class LostRank : public UserError {
  public:
    LostRank(int which, const std::string& cause) : UserError(cause), rank(which) {}
    int rank;
};

class Transport {
  public:
    virtual ~Transport() = default;

    virtual int rank() const = 0;
    virtual int ranks() const = 0;
    /// Sends send[r] to rank r and fills receive[r] with what r sends, for all r at a time; where a span is
    /// empty, nothing passes. What a rank would send itself must be empty. Both ends must agree on the sizes.
    /// Returns when all that this rank sends and receives has passed. Throws LostRank if a rank is gone, or
    /// nothing passed for as long as ranks are waited for.
    virtual void exchange(std::span<const std::span<const std::byte>> send,
                          std::span<const std::span<std::byte>> receive) = 0;
    /// Ends the run on every rank, where the network can; else returns, and the others find this one gone.
    virtual void abort() noexcept = 0;
};

/// Ranks that are connected in pairs by sockets of this machine: for threads of one process, or for processes
/// that it is forked into, of which each keeps one. They wait for so many seconds.
std::vector<std::unique_ptr<Transport>> connected_ranks(int ranks, double seconds);

/// One of so many ranks, processes of this machine or threads, that meet under a name which no others use:
/// connected as above. Throws LostRank where one does not come within so many seconds.
std::unique_ptr<Transport> meet_ranks(const std::string& name, int rank, int ranks, double seconds);

/// The first of so many ranks of which the others do not exist: what it sends is lost, and what it receives
/// stays as it was. For a look at how long its own part of a step takes.
std::unique_ptr<Transport> silent_transport(int ranks);

}  // namespace mantissa
