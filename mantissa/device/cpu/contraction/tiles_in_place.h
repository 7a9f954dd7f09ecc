// Reading a gathered a in place on tiles: sixteen neighbouring pixels of an image are a tile's rows, so many
// bytes apart, for each element of the window. Pixels are copied only where they are not neighbours, or some
// lie outside of the image.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "mantissa/device/cpu/contraction/kernels.h"
#include "mantissa/device/cpu/contraction/packing.h"
#include "mantissa/device/cpu/contraction/problem.h"

namespace mantissa::inline v0::on_cpu {

/// A value without references to problem or kernels; it writes to the memory that it is given.
class TilesInPlace {
  public:
    /// None unless a is gathered in its stored format, with whole steps of the depth for each pixel. None,
    /// too, where so many columns read a that copying its pixels once is cheaper.
    static std::optional<TilesInPlace> of(const ContractionProblem& problem,
                                          const ContractionKernels& kernels);

    /// Bytes of so many rows, in a chunk of at most so much depth.
    std::size_t bytes(std::int64_t rows, std::int64_t depth) const;

    /// The runs of every panel of `rows`, `count` a panel.
    struct Runs {
        const TileRun* first = nullptr;
        std::int64_t count = 0;
    };
    /// `images`: the images of one entry.
    Runs write(const std::byte* images, PanelRange rows, PanelRange depth, std::byte* memory) const;

    /// The pixels that these rows meet.
    struct Pixels {
        const std::byte* first = nullptr;
        std::int64_t bytes = 0;
    };
    Pixels pixels_of(const std::byte* images, PanelRange rows) const;

  private:
    struct Tap;
    struct Half;
    TilesInPlace(const ContractionProblem& problem, const ContractionKernels& kernels);

    std::int64_t max_runs(std::int64_t depth) const { return depth / window_.channels + 2; }
    Half half_of(PanelRange rows) const;
    /// Makes the run of sixteen pixels, if they are read where they lie or are all zeros; false otherwise.
    bool place(const Half& half, const Tap& tap, const std::byte* images, TileRun& run, int index) const;
    /// Copies some of the depth of a tile's rows. Nobody reads the sums of rows behind the last of a.
    void copy(const std::byte* images, PanelRange rows, PanelRange depth, std::byte* to) const;

    ImageWindow window_;
    GatherKernel gather_;
    std::int64_t images_;  ///< elements of all images
};

}  // namespace mantissa::on_cpu
