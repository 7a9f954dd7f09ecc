#include "mantissa/device/cpu/kernels/strided_loops.h"

#include "mantissa/base/error.h"

namespace mantissa::inline v0::on_cpu {

StridedLoops::StridedLoops(const std::vector<std::int64_t>& extents,
                           const std::vector<std::vector<std::int64_t>>& strides) {
    check(strides.size() <= max_loop_operands, "loops have up to four operands");
    for (std::size_t axis = 0; axis < extents.size(); ++axis) {
        Axis next{extents[axis], {}};
        for (std::size_t i = 0; i < strides.size(); ++i) next.strides[i] = strides[i][axis];
        if (next.extent == 1) continue;
        bool behind = !outer.empty();
        for (std::size_t i = 0; behind && i < strides.size(); ++i)
            behind = outer.back().strides[i] == next.strides[i] * next.extent;
        if (behind) {
            outer.back().extent *= next.extent;
            outer.back().strides = next.strides;
        } else {
            outer.push_back(next);
        }
    }
    if (!outer.empty()) {
        inner = outer.back();
        outer.pop_back();
    }
    for (const Axis& axis : outer) rows *= axis.extent;
}

StridedLoops::Strides StridedLoops::row_start(std::int64_t row) const {
    Strides start{};
    for (std::size_t axis = outer.size(); axis-- > 0;) {
        const std::int64_t index = row % outer[axis].extent;
        row /= outer[axis].extent;
        for (std::size_t i = 0; i < max_loop_operands; ++i) start[i] += index * outer[axis].strides[i];
    }
    return start;
}

std::vector<std::int64_t> broadcast_strides(const Shape& operand, const Shape& shape) {
    const std::vector<std::int64_t> dense = operand.strides();
    std::vector<std::int64_t> strides(shape.rank());
    for (int back = 1; back <= operand.rank(); ++back)
        if (operand[-back] != 1)
            strides[strides.size() - static_cast<std::size_t>(back)] =
                dense[dense.size() - static_cast<std::size_t>(back)];
    return strides;
}

}  // namespace mantissa::on_cpu
