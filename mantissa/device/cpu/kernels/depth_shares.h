// Contractions of few sums over a long depth, such as the gradient of a filter, cut along the depth. Uncut,
// they have few blocks to give to threads, and each block goes through all of the depth. Cut, each is a batch
// of contractions, one a thread. Their sums are added in the end, in an order that follows from the shape.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "mantissa/base/thread_pool.h"
#include "mantissa/device/cpu/contraction/contraction.h"

namespace mantissa::inline v0::on_cpu {

class DepthShares {
  public:
    /// The contraction in shares. None where it has enough blocks uncut, a depth that is too short or has no
    /// equal parts, or more work than storing its sums.
    static std::optional<DepthShares> of(const PreparedContraction& whole);

    /// Bytes of scratch with so many threads.
    std::size_t workspace_bytes(int threads) const;
    /// The contraction of all shares; pack_b() of a kept b uses it.
    const PreparedContraction& contraction() const { return contraction_; }

    /// As contract() does it; the workspace is aligned to 64 bytes.
    void run(const ContractionArguments& arguments, std::span<std::byte> workspace, ThreadPool& pool) const;

  private:
    DepthShares(const PreparedContraction& whole, std::int64_t shares);

    std::int64_t shares() const { return contraction_.problem.batch[1]; }
    std::int64_t sums() const { return contraction_.problem.m * contraction_.problem.n; }
    /// Adds so many rows of all shares into the first share's rows, and from there to `out`.
    void add(float* first, std::int64_t rows, std::byte* out) const;

    PreparedContraction contraction_;
    MatrixLayout out_;
};

}  // namespace mantissa::on_cpu
