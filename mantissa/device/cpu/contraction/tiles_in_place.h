// Reading a gathered a in place on tiles: sixteen neighbouring pixels of an image are a tile's rows, so many
// bytes apart, for each element of the window. Only where they are not neighbours, or some lie outside of the
// image, are they copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "mantissa/device/cpu/contraction/kernels.h"
#include "mantissa/device/cpu/contraction/packing.h"
#include "mantissa/device/cpu/contraction/problem.h"

namespace mantissa::inline v0::on_cpu {

/// A value, that refers to neither problem nor kernels; what it writes lies in the memory it is given.
class TilesInPlace {
  public:
    /// None where a is not gathered as it is stored, with whole steps of the depth for each pixel, and where
    /// so many columns read a that copying its pixels costs less than reading them apart.
    static std::optional<TilesInPlace> of(const ContractionProblem& problem,
                                          const ContractionKernels& kernels);

    /// Bytes of so many rows, in a chunk of at most so much depth.
    std::size_t bytes(std::int64_t rows, std::int64_t depth) const;

    /// The runs of every panel of `rows`, `count` a panel.
    struct Runs {
        const TileRun* first = nullptr;
        std::int64_t count = 0;
    };
    /// `images`: those of one entry.
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
    /// Whether sixteen pixels are read where they lie, or are all zeros: what their run becomes.
    bool place(const Half& half, const Tap& tap, const std::byte* images, TileRun& run, int index) const;
    /// Copies some of the depth of a tile's rows. Rows behind the last of a have no sums that are wanted.
    void copy(const std::byte* images, PanelRange rows, PanelRange depth, std::byte* to) const;

    ImageWindow window_;
    GatherKernel gather_;
    std::int64_t images_;  ///< elements of all of them
};

}  // namespace mantissa::on_cpu
