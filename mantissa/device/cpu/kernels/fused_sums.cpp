#include "mantissa/device/cpu/kernels/fused_sums.h"

#include <cstring>

#include "mantissa/device/cpu/rows/partition.h"

namespace mantissa::inline v0::on_cpu {

std::vector<codegen::RowSum> sums_of(const codegen::LoopNest& nest) {
    std::vector<codegen::RowSum> sums;
    for (const codegen::Walk& walk : nest.walks) {
        sums.insert(sums.end(), walk.sums.begin(), walk.sums.end());
        sums.insert(sums.end(), walk.row_sums.begin(), walk.row_sums.end());
    }
    return sums;
}

void finish_sums(ThreadPool& pool, const codegen::LoopNest& nest, float* partials, std::int64_t blocks,
                 std::span<std::byte* const> outputs) {
    if (nest.partial_sums == 0) return;
    std::vector<float> totals(nest.partial_sums);
    add_partial_sums(pool, partials, blocks, nest.partial_sums, totals.data(), Accumulate::replace);
    for (const codegen::RowSum& sum : sums_of(nest)) {
        const std::int64_t count = sum.columns ? nest.columns : 1;
        std::memcpy(outputs[sum.output], totals.data() + sum.offset,
                    static_cast<std::size_t>(count) * sizeof(float));
    }
}

}  // namespace mantissa::on_cpu
