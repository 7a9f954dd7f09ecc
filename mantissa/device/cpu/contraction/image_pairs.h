// The pixels of a chunk of the depth as words for dot products of pairs, where the depth runs over pixels, as
// in a filter's gradient. A word holds one channel of two pixels that every tap of the window moves alike: of
// two images, or of the two halves of one. So a pixel is packed once for all taps, which read the words in
// place, and b is packed in the same order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "mantissa/device/cpu/contraction/kernels.h"
#include "mantissa/device/cpu/contraction/packing.h"
#include "mantissa/device/cpu/contraction/problem.h"

namespace mantissa::inline v0::on_cpu {

/// A value without references to problem or kernels.
///
/// Packed rows are counted over all images, or all pairs of them. Each is blocks of as many channels as a
/// tile is high, [channels / height][pixels][height] words.
class ImagePairs {
  public:
    /// None where a's channels are not whole tiles, where there is one tap, or where neither images nor rows
    /// of the output are even in number. The kernels must multiply pairs, in place.
    static std::optional<ImagePairs> of(const ContractionProblem& problem, const ContractionKernels& kernels);

    /// The window as the first pixels of words meet it.
    const ImageWindow& window() const { return window_; }
    /// Words are in groups of so many, which have twice as many rows of b: rows of first pixels, then of
    /// second.
    std::int64_t words_of_group() const { return window_.rows_of_image(); }
    /// The rows of an image that are packed.
    PanelRange image_rows() const { return image_rows_; }
    std::int64_t block_bytes() const { return window_.horizontal.image * height_ * 4; }
    std::int64_t row_bytes() const { return window_.channels / height_ * block_bytes(); }

    /// Packed rows that a chunk of the depth reads.
    PanelRange rows_of(PanelRange depth) const;
    /// Bytes of the packed rows of any chunk of so much depth, of k in all.
    std::int64_t bytes(std::int64_t k, std::int64_t depth) const;
    /// Packs some channels, whole tiles, of the images at `images`.
    void pack(const std::byte* images, PanelRange channels, PanelRange depth, std::byte* to) const;

  private:
    ImagePairs(const ContractionProblem& problem, const ContractionKernels& kernels);
    /// The pixels of a row of one image; null outside of it.
    const std::byte* pixels(const std::byte* images, std::int64_t image, std::int64_t row) const;

    ImageWindow window_;
    std::int64_t height_;
    PanelKernel pack_;
    bool halves_;              ///< of one image
    PanelRange image_rows_;    ///< rows of an image that have a first pixel, or a second
    std::int64_t second_row_;  ///< from the first pixel's row to the second's
};

}  // namespace mantissa::on_cpu
