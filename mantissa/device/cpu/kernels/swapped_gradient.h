// The gradient of a filter larger than a pixel on tiles, as the transposed product: channels of the output by
// taps and channels of the image. Then the images are the operand b, whose words of two pixels all taps read
// (PixelWords). As operand a, each pixel would be copied and turned for each tap.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "mantissa/device/cpu/isa.h"
#include "mantissa/device/cpu/kernels/depth_shares.h"

namespace mantissa::inline v0::on_cpu {

class SwappedGradient {
  public:
    /// The contraction with its operands swapped. None where there is no window, where b would not be read in
    /// words, and where products with the zeros around small images would cost more than they save.
    static std::optional<SwappedGradient> of(const PreparedContraction& whole, Isa isa);

    /// Bytes of scratch with so many threads.
    std::size_t workspace_bytes(int threads) const;
    /// As contract() does it; the workspace is aligned to 64 bytes.
    void run(const ContractionArguments& arguments, std::span<std::byte> workspace, ThreadPool& pool) const;

  private:
    SwappedGradient(const PreparedContraction& whole, const ContractionProblem& swapped, Isa isa);

    std::size_t bytes_of_sums() const;
    /// Turns the sums and writes them. Returns whether a sum is NaN.
    bool write(const float* sums, void* out, ThreadPool& pool) const;

    PreparedContraction whole_, swapped_;
    std::optional<DepthShares> shares_;  ///< in place of swapped_
    Isa isa_;
};

}  // namespace mantissa::on_cpu
