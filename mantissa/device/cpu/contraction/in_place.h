// Reading a gathered a in place, so that products broadcast it from there and nothing is packed. A tile's
// rows are pixels, whose channels are neighbours in memory along the depth. Or they are channels, which are
// neighbours at each pixel of the depth, or at each pair of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "mantissa/device/cpu/contraction/image_pairs.h"
#include "mantissa/device/cpu/contraction/kernels.h"
#include "mantissa/device/cpu/contraction/packing.h"
#include "mantissa/device/cpu/contraction/problem.h"

namespace mantissa::inline v0::on_cpu {

/// Whether a is read in place. The kernels must be able to. a must be gathered with its channels along the
/// depth, in its stored format and in whole words. And each pixel must have enough channels to be worth its
/// address.
bool reads_a_in_place(const ContractionProblem& problem, const ContractionKernels& kernels);

/// The runs of a block of rows in a chunk of the depth, tile after tile. A value without references to
/// problem or kernels; it writes to the memory that it is given.
class RowsInPlace {
  public:
    RowsInPlace(const ContractionProblem& problem, const ContractionKernels& kernels);

    /// Bytes of all the tiles of so many rows, in a chunk of at most so much depth.
    std::size_t bytes(std::int64_t rows, std::int64_t depth) const;

    /// The runs of every tile of `rows`, `count` a tile.
    struct Runs {
        const RunInPlace* first = nullptr;
        std::int64_t count = 0;
    };
    /// `images`: the images of one entry.
    Runs write(const std::byte* images, PanelRange rows, PanelRange depth, std::byte* memory) const;

  private:
    struct Corner;
    /// Corners of a tile that begins with row `first`; `count` of its rows are in the block.
    void find_corners(std::int64_t first, std::int64_t count, Corner* corners) const;
    std::int64_t max_runs(std::int64_t depth) const { return depth / window_.channels + 2; }

    ImageWindow window_;
    std::int64_t height_, element_bytes_;
};

/// Whether a transposed a is read in place: its channels are in whole tiles, and no two taps of the window
/// share one. Words of one element are read where they lie, and pairs where ImagePairs puts them.
bool reads_a_across(const ContractionProblem& problem, const ContractionKernels& kernels);

/// The steps of each tap of the window that the rows of a block belong to, in a chunk of the depth: pixels of
/// the images, row by row, without pixels outside. A value, as the runs are.
class ChannelsInPlace {
  public:
    ChannelsInPlace(const ContractionProblem& problem, const ContractionKernels& kernels);

    /// None where the images are read as they lie.
    const std::optional<ImagePairs>& pairs() const { return pairs_; }

    /// Bytes for so many rows, in a chunk of at most so much depth.
    std::size_t bytes(std::int64_t rows, std::int64_t depth) const;

    /// The steps of every tap of `rows`, `count` a tap.
    struct Steps {
        const StepsInPlace* first = nullptr;
        std::int64_t count = 0;
        std::int64_t first_row = 0;
        const std::byte* images = nullptr;
    };
    /// `images`: the images of one entry, or the packed pairs of the chunk.
    Steps write(const std::byte* images, PanelRange rows, PanelRange depth, std::byte* memory) const;

    /// Lets a tile that begins with row `row` of the block read the steps.
    void place(const Steps& steps, std::int64_t row, Tile& tile) const;

  private:
    std::int64_t max_runs(std::int64_t words) const { return words / window_.horizontal.output + 2; }
    /// Steps of tap `tap`, pixels `first` to `first + count` of one row of the output.
    StepsInPlace steps_of(std::int64_t tap, std::int64_t output_row, std::int64_t first,
                          std::int64_t count) const;

    std::optional<ImagePairs> pairs_;
    ImageWindow window_;
    PanelRange image_rows_;       ///< existing rows
    std::int64_t depth_of_word_;  ///< in elements
    std::int64_t channels_of_tile_;
    // Distances from each to the next, in bytes.
    std::int64_t image_bytes_, row_bytes_, pixel_bytes_, tile_bytes_;
};

}  // namespace mantissa::on_cpu
