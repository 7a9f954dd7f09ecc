// The ranks that train one model together, as this one sees them: exchanges between steps, and sums of
// gradients that travel on a thread of their own while a step works.
//
// A sum has three steps. In an exchange each rank gets everybody's terms of its own part. It sums them in the
// order of a fixed tree. In a second exchange everybody gets everybody's sums. The sum moves as many bytes as
// a ring, and has the same bits on every rank, however many there are. Each half can be had alone: sums of
// one's own part, and everybody's parts put together.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mantissa/ranks/sharing.h"
#include "mantissa/ranks/transport.h"

namespace mantissa::inline v0 {

class Ranks {
  public:
    /// Every rank makes one, as its first exchange with the others: they tell one another their hosts.
    explicit Ranks(std::unique_ptr<Transport> transport);
    /// Ends work under way; others that wait for this rank find it gone.
    ~Ranks();
    Ranks(const Ranks&) = delete;
    Ranks& operator=(const Ranks&) = delete;

    int rank() const { return rank_; }
    int size() const { return size_; }
    /// As in "rank 1 on host-b".
    std::string name_of(int rank) const;
    const std::string& host_of(int rank) const { return hosts_[static_cast<std::size_t>(rank)]; }
    /// Ranks on the host of this one, itself included.
    int on_this_host() const;

    /// The words of each rank, by rank. All must call it, between sums. This and all functions below throw
    /// LostRank, whose text names rank, host and cause.
    std::vector<std::string> gather(const std::string& mine);
    /// Returns when every rank has called it.
    void meet() { gather(""); }

    /// Begins to replace the numbers by their sums over all ranks. All ranks begin the same sums, of as many
    /// numbers, in the same order. The numbers must stay where they are, and be left alone, until `wait`.
    /// `sum` tells sums apart that are under way at one time. With BF16 on the wire every term is rounded
    /// first, and sums are still of FP32, and travel as such (sharing.h).
    void start_sum(int sum, std::vector<std::span<float>> numbers, Wire wire = Wire::fp32);
    /// Begins to replace the numbers of this rank's part by their sums over all ranks. `by_rank`: the places
    /// of each rank's part; other ranks' parts are only read. Else as `start_sum`.
    void start_sum_of_parts(int sum, std::vector<std::vector<std::span<float>>> by_rank,
                            Wire wire = Wire::fp32);
    /// Begins to bring every rank's part to all: this rank's lies in its places, the others' are filled. Else
    /// as `start_sum`.
    void start_gather(int sum, std::vector<std::vector<std::span<std::byte>>> by_rank);
    /// Returns when the sum is done.
    void wait(int sum);

    /// Returns when nothing travels any more, done or failed: then the numbers of sums that nobody will wait
    /// for may be freed.
    void settle() noexcept;

    /// While alive, sums are this rank's own terms and nothing travels: for a step that the other ranks do
    /// not take.
    class Alone {
      public:
        explicit Alone(Ranks* ranks) : ranks_(ranks) {
            if (ranks_) ++ranks_->alone_;
        }
        ~Alone() {
            if (ranks_) --ranks_->alone_;
        }
        Alone(const Alone&) = delete;
        Alone& operator=(const Alone&) = delete;

      private:
        Ranks* ranks_;
    };

    bool is_alone() const { return alone_ > 0; }

    /// Seconds since the last call while sums travelled, and while a step waited for them.
    struct Time {
        double travelled = 0, waited = 0;
    };
    Time take_time();

    /// Memory that it holds for numbers on their way.
    std::int64_t bytes() const;
    /// Ends the run on every rank.
    void abort() noexcept;

  private:
    struct State;
    void run(const std::function<void()>& job);
    void start(int sum, std::function<void(std::function<void()>)> begin);

    std::unique_ptr<State> state_;
    int rank_, size_, alone_ = 0;
    std::vector<std::string> hosts_;
};

}  // namespace mantissa
