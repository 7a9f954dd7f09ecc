// `train` as one of several ranks: connection, share of the machine, silence except for the first, and a
// common end.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cli/train_options.h"
#include "mantissa/ranks/ranks.h"

namespace mantissa::cli {

class TrainRanks {
  public:
    /// Connects with the other ranks, if the process was started among several, and waits `seconds` for them.
    explicit TrainRanks(double seconds);

    /// Null if this process is alone.
    Ranks* get() const { return ranks_.get(); }
    int size() const { return ranks_ ? ranks_->size() : 1; }
    int on_this_host() const { return ranks_ ? ranks_->on_this_host() : 1; }
    bool is_first() const { return !ranks_ || ranks_->rank() == 0; }

    /// Threads for this rank if none were requested; from now on its threads keep to their cores. 0: no
    /// limit.
    int share_cores(int asked);
    /// A line about the shares.
    const std::string& shares() const { return shares_; }

    /// Runs `body`. An error ends all ranks; if all know it, one rank prints it.
    void run(const std::function<void()>& body);

    /// The first nonzero number among the ranks'.
    int first_of(int mine);
    /// The first text among the ranks' that is not empty, with the rank in front.
    std::string first_of(const std::string& mine);

  private:
    [[noreturn]] void end_all(const std::string& what);

    std::string started_by_;
    std::unique_ptr<Ranks> ranks_;
    std::string shares_;
};

/// Clears, on other ranks, the options that only the first rank follows.
void leave_to_the_first(TrainOptions& options);

/// Leaves out histograms of gradients, with a message, if each rank has only parts of them. Throws UserError
/// if histograms were requested.
void leave_out_histograms(TrainOptions& options, const TrainRanks& ranks);

}  // namespace mantissa::cli
