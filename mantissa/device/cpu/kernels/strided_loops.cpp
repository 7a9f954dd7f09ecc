#include "mantissa/device/cpu/kernels/strided_loops.h"

#include "mantissa/base/error.h"
#include "mantissa/device/bind/strided_axes.h"

namespace mantissa::inline v0::on_cpu {

StridedLoops::StridedLoops(std::vector<std::int64_t> extents,
                           std::vector<std::vector<std::int64_t>> strides) {
    check(strides.size() <= max_loop_operands, "loops have up to four operands");
    std::vector<std::vector<std::int64_t>*> by_operand;
    for (std::vector<std::int64_t>& of : strides) by_operand.push_back(&of);
    merge_axes(extents, by_operand);
    for (std::size_t axis = 0; axis < extents.size(); ++axis) {
        Axis next{extents[axis], {}};
        for (std::size_t i = 0; i < strides.size(); ++i) next.strides[i] = strides[i][axis];
        outer.push_back(next);
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

}  // namespace mantissa::on_cpu
