// A gathered b whose depth runs over pixels, as in a filter's gradient on tiles, packed once for all taps of
// its window. A tile of b has words of two steps of the depth. So pixels lie one behind another, row after
// row with the zeros around them, as words of two neighbours: once from an even pixel on, and once from an
// odd one. Each tap then reads the words that begin so many pixels further on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/contraction/kernels.h"
#include "mantissa/device/cpu/contraction/packing.h"
#include "mantissa/device/cpu/contraction/problem.h"

namespace mantissa::inline v0::on_cpu {

/// Some pixels of one row of an image, or as many zeros, on their way into words: 32 channels of each.
struct PixelRun {
    const std::byte* before = nullptr;  ///< the pixel before the first
    const std::byte* first = nullptr;
    std::int64_t step = 0;  ///< from one pixel to the next, in bytes
    std::int64_t pixels = 0;
    /// Where the words go that end with the first pixel, the third, ..., and with the second, the fourth, ...
    std::byte *to = nullptr, *to_next = nullptr;
};

/// The number of outputs along an axis with which a tap that leaves the image meets zeros: behind the image,
/// or behind the image before it.
std::int64_t outputs_with_zeros(const ConvolutionAxis& axis);

/// A value without references to problem or kernels.
///
/// Packed are blocks of 32 channels: twice [words of two pixels][32].
class PixelWords {
  public:
    /// None where b is not gathered, or not in words: the kernels must interleave and take BF16 as it is. The
    /// window must have whole blocks of channels and no strides. Behind the outputs that meet a pixel of a
    /// there must be enough more, so that a tap which leaves the image meets zeros.
    static std::optional<PixelWords> of(const ContractionProblem& problem, const ContractionKernels& kernels);

    std::int64_t channels() const { return window_.channels; }
    /// Bytes of all words of a chunk of the depth.
    std::int64_t bytes(std::int64_t depth) const {
        return window_.channels / block_channels * block_bytes(depth);
    }
    /// Packs some channels, whole blocks, of the images at `images`.
    void pack(const std::byte* images, PanelRange channels, PanelRange depth, std::byte* to) const;
    /// Bytes from the first of a chunk's words to the panel that begins with this column.
    std::int64_t place(std::int64_t column, std::int64_t depth) const;

    static constexpr std::int64_t block_channels = 32, word_bytes = block_channels * 4;

  private:
    PixelWords(const ContractionProblem& problem, const ContractionKernels& kernels);

    std::int64_t pixels_of_image() const { return window_.rows_of_image(); }
    /// Words of a chunk, from even pixels on or from odd ones: up to the last tap of the last step.
    std::int64_t words(std::int64_t depth) const { return last_tap_ / 2 + kernel_depth(depth) / 2 + 1; }
    std::int64_t kernel_depth(std::int64_t depth) const { return align_up(depth, depth_unit_); }
    std::int64_t block_bytes(std::int64_t depth) const { return 2 * words(depth) * word_bytes; }
    std::int64_t pixels_to(std::int64_t tap) const;
    /// The pixel `place` of all images with the zeros around them; null: a zero. And how many are behind it
    /// in memory, or are zeros too.
    const std::byte* pixel(const std::byte* images, std::int64_t place, std::int64_t& run) const;

    ImageWindow window_;
    PixelRunKernel pack_;
    std::int64_t depth_unit_;
    std::int64_t places_;     ///< pixels of all images, with the zeros around them
    std::int64_t first_tap_;  ///< from an output's place to its first tap's, backwards
    std::int64_t last_tap_;   ///< from there to the last tap's
};

}  // namespace mantissa::on_cpu
