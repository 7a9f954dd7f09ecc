// How well a network for pictures tells classes apart on pictures that it did not learn from.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "mantissa/base/function_ref.h"
#include "mantissa/data/picture_batches.h"
#include "mantissa/train/forward.h"
#include "mantissa/train/trainer.h"

namespace mantissa::inline v0 {

struct PictureScores {
    std::int64_t pictures = 0, top1 = 0, top5 = 0;  ///< right at the first guess, among the first five
    double total_loss = 0;                          ///< cross-entropy, summed over the pictures

    /// Adds a picture whose classes have these scores. Equal scores rank by class; one that is no number
    /// ranks before all, so that a network that broke is right about nothing but by chance.
    void add(std::span<const double> scores, std::int32_t label);

    double loss() const { return total_loss / static_cast<double>(pictures); }
    double top1_share() const { return static_cast<double>(top1) / static_cast<double>(pictures); }
    double top5_share() const { return static_cast<double>(top5) / static_cast<double>(pictures); }
};

/// Runs a trainer's network forward, in the trainer's precision and on its parameters as they are.
class PictureScorer {
  public:
    /// `trainer`, of a network for pictures, must outlive this. Throws UserError if the memory does not
    /// suffice.
    explicit PictureScorer(const Trainer& trainer);
    ~PictureScorer();

    /// The scores of all pictures, or of those of the first steps; what was skipped does not count. Read on
    /// so many threads; `made` hears of batches that are done, of how many. Throws UserError for a picture
    /// that cannot be decoded, and if none is left.
    PictureScores score(const PictureBatches& pictures, std::uint64_t most_steps, int threads,
                        FunctionRef<void(std::uint64_t done, std::uint64_t of)> made);

  private:
    void add(const Batch& batch, PictureScores& scores);

    std::unique_ptr<Forward> forward_;
};

}  // namespace mantissa
