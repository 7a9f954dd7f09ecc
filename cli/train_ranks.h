// `train` as one of several ranks: connected, given its share of the machine, silent unless it is the first,
// and ended with the others.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cli/train_options.h"
#include "mantissa/ranks/ranks.h"

namespace mantissa::cli {

class TrainRanks {
  public:
    /// Connects with the others if the process was started among several, which are waited for so many
    /// seconds.
    explicit TrainRanks(double seconds);

    /// Null where this process is alone.
    Ranks* get() const { return ranks_.get(); }
    int size() const { return ranks_ ? ranks_->size() : 1; }
    int on_this_host() const { return ranks_ ? ranks_->on_this_host() : 1; }
    bool is_first() const { return !ranks_ || ranks_->rank() == 0; }

    /// Threads for this rank where none were asked for; its threads from now on keep to their cores. 0: as
    /// many as there may be.
    int share_cores(int asked);
    /// A line about what was shared.
    const std::string& shares() const { return shares_; }

    /// Runs what is to be done; what goes wrong ends all ranks, and is said by one of them where all know it.
    void run(const std::function<void()>& body);

    /// The first number that is not zero, of those that the ranks give.
    int first_of(int mine);
    /// The same for texts that are not empty, with the rank in front.
    std::string first_of(const std::string& mine);

  private:
    [[noreturn]] void end_all(const std::string& what);

    std::string started_by_;
    std::unique_ptr<Ranks> ranks_;
    std::string shares_;
};

/// Options that only the first rank follows are taken from the others.
void leave_to_the_first(TrainOptions& options);

/// Among ranks that each have parts of the gradients: no histograms of them, which is said. Throws UserError
/// where they were asked for.
void leave_out_histograms(TrainOptions& options, const TrainRanks& ranks);

}  // namespace mantissa::cli
