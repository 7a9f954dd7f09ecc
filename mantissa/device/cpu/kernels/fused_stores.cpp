#include "mantissa/device/cpu/kernels/fused_stores.h"

#include <algorithm>
#include <cstring>

#include "mantissa/device/cpu/rows/partition.h"

namespace mantissa::inline v0::on_cpu {

StreamedOutputs::StreamedOutputs(const Problem& problem, std::int64_t columns, std::vector<bool> read)
    : read_(std::move(read)) {
    for (std::size_t i = 0; i < problem.outputs.size(); ++i) {
        const auto bytes = columns * static_cast<std::int64_t>(size_of(problem.outputs[i].dtype));
        if (problem.outputs[i].bytes() >= streaming_bytes && bytes % 64 == 0) large_ |= std::uint64_t{1} << i;
    }
}

std::uint64_t StreamedOutputs::of(const Operands& operands) const {
    std::uint64_t streamed = large_;
    for (std::size_t i = 0; i < operands.outputs.size(); ++i) {
        bool is_plain = reinterpret_cast<std::uintptr_t>(operands.outputs[i]) % 64 != 0;
        for (std::size_t k = 0; k < operands.inputs.size(); ++k)
            if (operands.inputs[k] == operands.outputs[i] && (read_.empty() || read_[k])) is_plain = true;
        if (is_plain) streamed &= ~(std::uint64_t{1} << i);
    }
    return streamed;
}

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
    add_partial_sums(pool, partials, blocks, nest.partial_sums, totals.data());
    for (const codegen::RowSum& sum : sums_of(nest)) {
        const std::int64_t count = sum.columns ? nest.columns : 1;
        std::memcpy(outputs[sum.output], totals.data() + sum.offset,
                    static_cast<std::size_t>(count) * sizeof(float));
    }
}

}  // namespace mantissa::on_cpu
