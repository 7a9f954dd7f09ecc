// The gradient of a convolution's filter on a GPU's matrix units, as plain data: how the work is cut.
//
// dw[r, s, c, k] sums x[n, i stride_h - top + r dilation_h, j stride_w - left + s dilation_w, c] dy[n, i, j,
// k] over all places (n, i, j) of dy. The places lie one after the other, line by line; a line has `pitch`
// places, and the places behind dy's own are zeros. A line of x has stride_w times as many pixels. So the
// window of every place of a stage lies the same way in shared memory, whatever the line, and the pixel of
// tap s lies s dilation_w behind tap 0's.
//
// A block has 64 or 32 channels, as many filters and some rows of taps, and goes over the stages of its part.
// A stage brings its places of dy, and the rows of pixels that they meet: shared by all taps of a row and,
// where two lines of dy are taken together, by their neighbouring taps. A warp keeps the sums of 16 channels
// and 32 filters in registers. Warps that are left over take other places of the stage.
#pragma once

#include <cstdint>
#include <string>

#include "mantissa/graph/convolution.h"
#include "mantissa/numerics/dtype.h"

namespace mantissa::inline v0::codegen {

/// Shared memory of a block for one stage.
struct FilterGradientStage {
    std::int64_t places = 0;      ///< of dy; 0: too few fit
    std::int64_t lines = 1;       ///< of dy, with equally many places
    std::int64_t pixel_rows = 0;  ///< of x
    std::int64_t pixels = 0;      ///< of each row of x
    std::int64_t buffers = 0;     ///< one is multiplied while the others are filled

    std::int64_t columns() const { return places / lines; }
    std::int64_t rows() const { return places + pixel_rows * pixels; }
};

/// Parameters: x [N, H, W, C], dy [N, Ho, Wo, K], and FP32 sums [sums, R, S, C, K].
struct FilterGradientKernel {
    Convolution of = {};
    DType dtype = DType::bf16;  ///< of x and dy, or FP16
    std::int64_t parts = 1;     ///< of the places; at most `stages`

    static constexpr std::int64_t channels_of_warp = 16, filters_of_warp = 32, warps = 8;
    /// Numbers that are moved at a time: 16 bytes.
    static constexpr std::int64_t moved = 8;

    /// Channels, and filters, of a block.
    std::int64_t channel_tile() const { return of.channels <= 32 ? 32 : 64; }
    std::int64_t filter_tile() const { return of.filters <= 32 ? 32 : 64; }
    /// Warps that share out a stage's places, with sums of their own.
    std::int64_t shares() const {
        return warps * channels_of_warp * filters_of_warp / (channel_tile() * filter_tile());
    }
    std::int64_t sums() const { return parts * shares(); }
    /// Bytes from one row in shared memory to the next.
    std::int64_t row_bytes() const;

    std::int64_t lines() const { return of.images * of.vertical.output; }
    std::int64_t pitch() const;
    std::int64_t tap_rows() const;  ///< of a block
    FilterGradientStage stage() const;
    std::int64_t stages() const;
    std::int64_t stages_of_part() const;
    /// Blocks of a part.
    std::int64_t channel_tiles() const;
    std::int64_t filter_tiles() const;
    std::int64_t tap_tiles() const { return of.vertical.filter / tap_rows(); }
    std::int64_t tiles() const { return channel_tiles() * filter_tiles() * tap_tiles(); }
};

std::string text_of(const FilterGradientKernel& kernel);

/// Why there is no such kernel for these sizes, or why products as TF32 are as quick; empty if there is one.
std::string refuse_filter_gradient(const FilterGradientKernel& kernel);

}  // namespace mantissa::codegen
