// Batches of the images of a set, for an image network: decoded, cut and normalised. A row of a batch depends
// on seed, step and row alone. Also batches made ahead of their step, on threads of their own.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "mantissa/data/batch.h"
#include "mantissa/data/image_cut.h"
#include "mantissa/data/image_set.h"

namespace mantissa::inline v0 {

/// Treatment of an image that cannot be decoded.
enum class BadImage : std::uint8_t {
    stop,  ///< it is an error
    skip   ///< the next good image replaces it; validation leaves it out
};

struct ImageBatchOptions {
    BatchOptions batches = {};
    ImageCut cut = {};
    /// Training: every image once an epoch. Validation: every image once, cut from the middle; rows after the
    /// last image are zeros of the class no_class.
    enum class Use : std::uint8_t { training, validation } use = Use::training;
    // Settings of training.
    bool random_place = true;  ///< of the cut; else the middle
    bool random_flip = true;
    std::int64_t padding = 0;  ///< black pixels around the image, with a random place
    BadImage bad = BadImage::stop;
};

class ImageBatches final : public BatchSource {
  public:
    static constexpr std::int32_t no_class = -1;

    /// `set` must outlive this. Throws UserError if a training step takes more images than there are.
    ImageBatches(const ImageSet& set, const ImageBatchOptions& options);

    /// The inputs of nn::image_model: `images` f32 [B, H, W, 3] and `targets` i32 [B]. Throws UserError for
    /// an image that cannot be decoded, or if all are skipped.
    void fill(std::uint64_t step, std::int64_t micro_batch,
              std::span<const std::span<std::byte>> inputs) const override;
    /// Fills row `row` of the N B rows of a step, f32 [H, W, 3], and returns its class. Thread-safe.
    std::int32_t fill_row(std::uint64_t step, std::uint64_t row, std::span<float> pixels) const;

    std::uint64_t rows_per_step() const { return per_step_; }
    std::int64_t values_per_row() const { return 3 * options_.cut.image * options_.cut.image; }
    /// Rounded up in validation.
    std::uint64_t steps_per_epoch() const override;
    std::string description() const override;
    DataPlace place_at(std::uint64_t step) const override { return reading_.place_at(step); }
    std::string go_on_from(const DataPlace& place) override { return reading_.go_on_from(place); }
    const ImageSet& set() const { return *set_; }

    /// Reasons for the images skipped in the first `steps` steps, each reported once.
    std::vector<std::string> take_skipped(std::uint64_t steps) const;

  private:
    std::int32_t fill_from(std::uint64_t index, const CutPlace& place, std::span<float> pixels) const;
    bool is_bad(std::uint64_t index, std::uint64_t step) const;
    void skip(std::uint64_t index, std::uint64_t step, const std::string& why) const;
    CutPlace place_of(std::uint64_t step, std::uint64_t row) const;

    const ImageSet* set_;
    ImageBatchOptions options_;
    std::uint64_t per_step_;
    ReadingOrder reading_;

    struct Skipped {
        std::string why;
        std::uint64_t step = 0;  ///< the first step without it
        bool told = false;
    };
    /// Reports of skipped images; no batch depends on them.
    mutable std::mutex mutex_;
    mutable std::map<std::uint64_t, Skipped> skipped_;  ///< by index of the image
};

struct ImageReaderOptions {
    int threads = 1;
    int ahead = 2;  ///< steps that may be ready, besides the taken ones
    int kept = 1;   ///< last taken steps that stay valid
    /// Rows read of each step: a rank's, [first_row, first_row + rows); 0 rows: all.
    std::uint64_t first_row = 0, rows = 0;
    /// The range of steps to read.
    std::uint64_t first = 0, end = std::numeric_limits<std::uint64_t>::max();
};

class ImageReader {
  public:
    /// Starts reading; `batches` must outlive this.
    ImageReader(const ImageBatches& batches, const ImageReaderOptions& options);
    /// Stops once each thread is done with its present image.
    ~ImageReader();

    /// Waits for the inputs of the next step, [N, B, H, W, 3] and [N, B], or of the selected rows; they stay
    /// valid until `kept` more steps are taken. Throws, again at each call, the error of the step's first
    /// failing image.
    Batch next();

    /// Bytes held by a reader of these batches.
    static std::int64_t bytes(const ImageBatches& batches, const ImageReaderOptions& options = {});

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace mantissa
