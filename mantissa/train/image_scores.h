// Accuracy of an image network on images that it did not learn from.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "mantissa/base/function_ref.h"
#include "mantissa/data/image_batches.h"
#include "mantissa/train/forward.h"
#include "mantissa/train/trainer.h"

namespace mantissa::inline v0 {

struct ImageScores {
    std::int64_t images = 0, top1 = 0, top5 = 0;  ///< right at the first guess, among the first five
    double total_loss = 0;                        ///< cross-entropy, summed over the images
    std::int64_t classes = 0;
    std::int64_t not_finite = 0;  ///< images with a cross-entropy that is not finite

    /// Adds an image with one score per class. Equal scores rank by class. A score that is not finite ranks
    /// before all, so that a broken network is right only by chance.
    void add(std::span<const double> scores, std::int32_t label);

    double loss() const { return total_loss / static_cast<double>(images); }
    double top1_share() const { return static_cast<double>(top1) / static_cast<double>(images); }
    double top5_share() const { return static_cast<double>(top5) / static_cast<double>(images); }
    /// Whether top5 says anything: there are more than five classes.
    bool has_top5() const { return classes > 5; }
};

/// Runs a trainer's network forward, in the trainer's precision and on its parameters as they are.
class ImageScorer {
  public:
    /// `trainer`, of a network for images, must outlive this. Throws UserError if the memory does not
    /// suffice.
    explicit ImageScorer(const Trainer& trainer);
    ~ImageScorer();

    /// Scores all images, or the images of the first steps. `threads` read them; skipped images do not count.
    /// `made` is told how many batches are done, and of how many. Throws UserError for an image that cannot
    /// be decoded, and if none is left.
    ImageScores score(const ImageBatches& images, std::uint64_t max_steps, int threads,
                      FunctionRef<void(std::uint64_t done, std::uint64_t of)> made);

  private:
    void add(const Batch& batch, ImageScores& scores);

    std::unique_ptr<Forward> forward_;
};

}  // namespace mantissa
