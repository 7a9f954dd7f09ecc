// The carrier of bytes between ranks, the processes that train one model together. It offers exchanges, and
// several may be under way. Everything else is made from exchanges (ranks.h).
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/base/function_ref.h"

namespace mantissa::inline v0 {

/// A rank that is gone, or that does not answer.
class LostRank : public UserError {
  public:
    LostRank(int which, const std::string& cause) : UserError(cause), rank(which) {}
    int rank;
};

/// A question that is asked again and again while an exchange is waited for.
struct WaitingFor {
    /// Whether there is other work to do: then the wait ends early.
    FunctionRef<bool()> is_called;
    /// Whether a step waits, so that a core is free to look without a pause.
    FunctionRef<bool()> is_urgent;
};

class Transport {
  public:
    /// Ranks wait for one another for so many seconds.
    explicit Transport(double seconds) : seconds_(seconds) {}
    virtual ~Transport() = default;
    Transport(const Transport&) = delete;
    Transport& operator=(const Transport&) = delete;

    virtual int rank() const = 0;
    virtual int ranks() const = 0;
    /// Begins to send send[r] to rank r and to fill receive[r] with r's bytes, for all r at a time, behind
    /// the exchanges that were begun before. Where a span is empty, nothing passes. A rank's spans for itself
    /// must be empty. All ranks begin the same exchanges in the same order, and agree on the sizes. The spans
    /// are left alone until the exchange is finished. This and the functions below throw LostRank if a rank
    /// is gone.
    virtual void start(std::span<const std::span<const std::byte>> send,
                       std::span<const std::span<std::byte>> receive) = 0;
    /// Lets all exchanges that are under way go on, and returns at once. To be called while the caller does
    /// something else.
    virtual void advance() = 0;
    /// As advance(); and if all bytes of this rank's oldest exchange have passed, that exchange is finished.
    /// Returns -1 then, else the first rank that it waits for.
    virtual int finish_oldest() = 0;
    /// Ends the run on every rank, where the network can; else returns, and the others find this one gone.
    virtual void abort() noexcept = 0;

    /// Waits until the oldest exchange is finished. Returns false where `waiting` called it away. Throws
    /// LostRank where that takes longer than ranks are waited for.
    bool wait_for_oldest(const WaitingFor& waiting);
    /// An exchange, with no other under way.
    void exchange(std::span<const std::span<const std::byte>> send,
                  std::span<const std::span<std::byte>> receive);

    /// Where a host has more ranks than cores, a waiting rank leaves its core to the others at once.
    void set_shares_core(bool shares_core) { shares_core_ = shares_core; }

  private:
    void pause(double waited, bool is_urgent) const;

    double seconds_;
    bool shares_core_ = false;
};

/// Ranks that are connected in pairs by sockets of this machine, for threads of one process, or for processes
/// forked from it; each process keeps one rank. They wait for `seconds`.
std::vector<std::unique_ptr<Transport>> connected_ranks(int ranks, double seconds);

/// One of so many ranks, processes of this machine or threads, that meet under a name which no others use:
/// connected as above. Throws LostRank where one does not come within so many seconds.
std::unique_ptr<Transport> meet_ranks(const std::string& name, int rank, int ranks, double seconds);

/// The first of so many ranks, none of which exists: bytes sent are lost, and receive spans stay as they
/// were. For a look at how long its own part of a step takes.
std::unique_ptr<Transport> silent_transport(int ranks);

}  // namespace mantissa
