// Batches of images made ahead of their step, on threads of their own.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>

#include "mantissa/data/image_batches.h"

namespace mantissa::inline v0 {

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
