#include "mantissa/device/cpu/contraction/standard_epilogue.h"

#include <cstddef>

namespace mantissa::inline v0::on_cpu {

namespace {

const void* at(const void* base, DType type, std::int64_t elements) {
    return static_cast<const std::byte*>(base) + elements * static_cast<std::int64_t>(size_of(type));
}

}  // namespace

bool needs_finishing(const ContractionProblem& problem) {
    return problem.epilogue.bias || problem.out.dtype != DType::f32;
}

EpilogueBlock standard_block(const StandardEpilogueArguments& args, std::int64_t row0, std::int64_t col0) {
    const auto& [problem, arguments, kernel, streaming] = args;
    const StandardEpilogue& epilogue = problem->epilogue;
    const MatrixLayout& out = problem->out;
    // Nothing is divided where there is one matrix: this is done for every tile.
    const std::int64_t entry = row0 < problem->m ? 0 : row0 / problem->m, row = row0 - entry * problem->m;
    EpilogueBlock block{.streaming = streaming};
    if (epilogue.bias) {
        block.bias = at(arguments->bias, epilogue.bias_dtype, col0);
        block.bias_dtype = epilogue.bias_dtype;
    }
    block.out = const_cast<void*>(
        at(arguments->out, out.dtype, out.offset_of(entry, problem->batch[1]) + row * out.leading + col0));
    block.out_dtype = out.dtype;
    block.out_ld = out.leading;
    return block;
}

void finish_standard(float* sums, std::int64_t ld, std::int64_t row0, std::int64_t col0, std::int64_t rows,
                     std::int64_t cols, const void* args) {
    const auto& standard = *static_cast<const StandardEpilogueArguments*>(args);
    EpilogueBlock block = standard_block(standard, row0, col0);
    block.sums = sums;
    block.ld = ld;
    block.rows = rows;
    block.cols = cols;
    standard.kernel(block);
}

}  // namespace mantissa::on_cpu
