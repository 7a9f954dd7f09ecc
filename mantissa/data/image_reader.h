// Batches of images made ahead of the step that takes them, on threads of their own.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>

#include "mantissa/data/image_batches.h"

namespace mantissa::inline v0 {

struct ImageReaderOptions {
    int threads = 1;
    int ahead = 2;  ///< steps whose images may lie ready, beside those that were taken
    int kept = 1;   ///< steps that were taken last and whose images are still good
    /// Rows of each step that are read: a rank's, [first_row, first_row + rows); 0 rows: all.
    std::uint64_t first_row = 0, rows = 0;
    /// The steps that will be taken.
    std::uint64_t first = 0, end = std::numeric_limits<std::uint64_t>::max();
};

class ImageReader {
  public:
    /// Begins to read; `batches` must outlive this.
    ImageReader(const ImageBatches& batches, const ImageReaderOptions& options);
    /// Stops, once each thread is done with the image that it is at.
    ~ImageReader();

    /// The inputs of the next step, [N, B, H, W, 3] and [N, B], or those of its rows that are read, as soon
    /// as they are there; good until `kept` more were taken. Throws what a thread threw at a image of this
    /// step, the first of the step, and again at each call.
    Batch next();

    /// Bytes that a reader of these batches holds.
    static std::int64_t bytes(const ImageBatches& batches, const ImageReaderOptions& options = {});

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace mantissa
