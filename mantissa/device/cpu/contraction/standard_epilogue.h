// The epilogue that comes with the contraction: addend, bias, cast.
#pragma once

#include <cstdint>

#include "mantissa/device/cpu/contraction/epilogue_kernels.h"
#include "mantissa/device/cpu/contraction/problem.h"

namespace mantissa::inline v0::on_cpu {

struct StandardEpilogueArguments {
    const ContractionProblem* problem = nullptr;
    const ContractionArguments* arguments = nullptr;
    EpilogueKernel kernel = nullptr;
    bool streaming = false;
};

/// Whether sums need more than to stay where they are, in an FP32 output.
bool needs_finishing(const ContractionProblem& problem);

/// The epilogue from a row and a column on, without sums and sizes.
EpilogueBlock standard_block(const StandardEpilogueArguments& args, std::int64_t row0, std::int64_t col0);

/// An EpilogueFunction over StandardEpilogueArguments. `sums` may lie in the output itself.
void finish_standard(float* sums, std::int64_t ld, std::int64_t row0, std::int64_t col0, std::int64_t rows,
                     std::int64_t cols, const void* args);

}  // namespace mantissa::on_cpu
