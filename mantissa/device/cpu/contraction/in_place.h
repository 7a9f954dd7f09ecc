// Reading a gathered a where it lies: a tile's rows are pixels, each of whose channels are neighbours in
// memory, so that products broadcast them from there and nothing is packed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mantissa/device/cpu/contraction/kernels.h"
#include "mantissa/device/cpu/contraction/packing.h"
#include "mantissa/device/cpu/contraction/problem.h"

namespace mantissa::inline v0::on_cpu {

/// Whether a is read in place: the kernels can, it is gathered with its channels along the depth, as it is
/// stored and in whole words, and each pixel has enough of them to be worth its address.
bool reads_a_in_place(const ContractionProblem& problem, const ContractionKernels& kernels);

/// The runs of a block of rows in a chunk of the depth, tile after tile. A value, that refers to neither
/// problem nor kernels; what it writes lies in the memory it is given.
class RowsInPlace {
  public:
    RowsInPlace(const ContractionProblem& problem, const ContractionKernels& kernels);

    /// Of all the tiles of so many rows, in a chunk of at most so much depth.
    std::size_t bytes(std::int64_t rows, std::int64_t depth) const;

    /// The runs of every tile of `rows`, `count` a tile.
    struct Runs {
        const RunInPlace* first = nullptr;
        std::int64_t count = 0;
    };
    Runs write(const void* a, std::int64_t entry, PanelRange rows, PanelRange depth, std::byte* memory) const;

  private:
    struct Corner;
    /// Of a tile that begins with row `first`, of which `count` rows are left.
    void find_corners(std::int64_t first, std::int64_t count, Corner* corners) const;
    std::int64_t most_runs(std::int64_t depth) const { return depth / window_.channels + 2; }

    ImageWindow window_;
    MatrixLayout layout_;
    std::int64_t inner_batch_, height_, element_bytes_;
};

}  // namespace mantissa::on_cpu
