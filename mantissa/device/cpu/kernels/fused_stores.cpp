#include "mantissa/device/cpu/kernels/fused_stores.h"

#include <algorithm>

#include "mantissa/device/cpu/rows/partition.h"

namespace mantissa::inline v0::on_cpu {

StreamedOutputs::StreamedOutputs(const Problem& problem, std::int64_t columns) {
    for (std::size_t i = 0; i < problem.outputs.size(); ++i) {
        const auto bytes = columns * static_cast<std::int64_t>(size_of(problem.outputs[i].dtype));
        if (problem.outputs[i].bytes() >= streaming_bytes && bytes % 64 == 0) large_ |= std::uint64_t{1} << i;
    }
}

std::uint64_t StreamedOutputs::of(const Operands& operands) const {
    std::uint64_t streamed = large_;
    for (std::size_t i = 0; i < operands.outputs.size(); ++i)
        if (reinterpret_cast<std::uintptr_t>(operands.outputs[i]) % 64 != 0 ||
            std::find(operands.inputs.begin(), operands.inputs.end(), operands.outputs[i]) !=
                operands.inputs.end())
            streamed &= ~(std::uint64_t{1} << i);
    return streamed;
}

}  // namespace mantissa::on_cpu
