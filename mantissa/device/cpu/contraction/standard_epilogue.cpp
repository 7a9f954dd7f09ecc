#include "mantissa/device/cpu/contraction/standard_epilogue.h"

#include <cstring>

#include "mantissa/numerics/elementary.h"
#include "mantissa/numerics/formats.h"

namespace mantissa::cpu {

namespace {

std::int64_t entry_offset(const MatrixLayout& layout, const ContractionProblem& problem, std::int64_t entry) {
    return entry / problem.batch[1] * layout.batch_stride[0] +
           entry % problem.batch[1] * layout.batch_stride[1];
}

void add(float* sums, const void* terms, DType dtype, std::int64_t offset, std::int64_t count) {
    if (dtype == DType::bf16) {
        const auto* const from = static_cast<const BF16*>(terms) + offset;
        for (std::int64_t j = 0; j < count; ++j) sums[j] += to_f32(from[j]);
    } else {
        const auto* const from = static_cast<const float*>(terms) + offset;
        for (std::int64_t j = 0; j < count; ++j) sums[j] += from[j];
    }
}

float gelu_tanh(float x) {
    constexpr float root_two_over_pi = 0.797884560802865F;
    return 0.5F * x * (1 + elementary::tanh(root_two_over_pi * (x + 0.044715F * x * x * x)));
}

void store(const float* sums, void* out, DType dtype, std::int64_t offset, std::int64_t count) {
    if (dtype == DType::bf16) {
        auto* const to = static_cast<BF16*>(out) + offset;
        for (std::int64_t j = 0; j < count; ++j) to[j] = to_bf16(sums[j]);
    } else {
        float* const to = static_cast<float*>(out) + offset;
        if (to != sums) std::memcpy(to, sums, static_cast<std::size_t>(count) * sizeof(float));
    }
}

}  // namespace

bool needs_finishing(const ContractionProblem& problem) {
    const StandardEpilogue& epilogue = problem.epilogue;
    return epilogue.bias || epilogue.residual || epilogue.activation != Activation::none ||
           problem.out.dtype != DType::f32;
}

void finish_standard(float* sums, std::int64_t ld, std::int64_t row0, std::int64_t col0, std::int64_t rows,
                     std::int64_t cols, const void* args) {
    const auto& [problem, arguments] = *static_cast<const StandardEpilogueArguments*>(args);
    const StandardEpilogue& epilogue = problem->epilogue;
    const std::int64_t entry = row0 / problem->m;
    const std::int64_t out_offset = entry_offset(problem->out, *problem, entry);
    const std::int64_t residual_offset = entry_offset(epilogue.residual_layout, *problem, entry);
    for (std::int64_t i = 0; i < rows; ++i) {
        float* const row = sums + i * ld;
        const std::int64_t r = row0 % problem->m + i;
        if (epilogue.bias) add(row, arguments->bias, epilogue.bias_dtype, col0, cols);
        if (epilogue.activation == Activation::gelu_tanh)
            for (std::int64_t j = 0; j < cols; ++j) row[j] = gelu_tanh(row[j]);
        if (epilogue.residual)
            add(row, arguments->residual, epilogue.residual_layout.dtype,
                residual_offset + r * epilogue.residual_layout.leading + col0, cols);
        store(row, arguments->out, problem->out.dtype, out_offset + r * problem->out.leading + col0, cols);
    }
}

}  // namespace mantissa::cpu
