// The outputs of a fused kernel that are stored past the caches.
#pragma once

#include <cstdint>

#include "mantissa/device/cpu/kernels/kernels.h"

namespace mantissa::inline v0::on_cpu {

class StreamedOutputs {
  public:
    /// Finds the large outputs. `columns`, as many as are stored at a time, must be whole cache lines of an
    /// output.
    StreamedOutputs(const Problem& problem, std::int64_t columns);

    /// Those of them, as FusedArguments::streamed has them, that lie on cache lines, and not over an operand,
    /// which was just read and lies in a cache.
    std::uint64_t of(const Operands& operands) const;

  private:
    std::uint64_t large_ = 0;
};

}  // namespace mantissa::on_cpu
