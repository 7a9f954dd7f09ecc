// Driver of sums up to each element.
#include "mantissa/device/cpu/rows/partition.h"
#include "mantissa/device/cpu/rows/rows.h"

namespace mantissa::inline v0::on_cpu {

void running_sums(const RowKernels& kernels, const RunningSums& p, ThreadPool& pool, Stores wanted) {
    const std::int64_t row_bytes = p.columns * float_bytes;
    ProblemCheck check("cumsum");
    check.size("rows", p.rows).size("columns", p.columns).input("x", p.x, p.rows * row_bytes);
    const Stores stores = check.output("y", p.y, p.rows * row_bytes).finish(wanted);
    constexpr std::int64_t together = 2;  // rows that one walk takes
    for_each_range(pool, p.rows, together * rows_per_block(2 * together * row_bytes),
                   [&](Range rows, std::int64_t) { kernels.element.running_sums(p, rows, stores); });
}

}  // namespace mantissa::on_cpu
