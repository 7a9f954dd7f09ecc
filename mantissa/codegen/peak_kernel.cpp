// Products of small matrices whose operands stay in registers, again and again: how many a GPU does a second.
#include <algorithm>

#include "mantissa/base/error.h"
#include "mantissa/codegen/grid_kernel.h"

namespace mantissa::inline v0::codegen {

namespace {

struct PeakMode {
    const char *inputs, *accumulator;
    std::int64_t rows, columns, terms;
};

// PTX ISA, "mma": the largest shape of each that sm_80 has.
constexpr PeakMode peak_modes[] = {{"f64", "f64", 8, 8, 4},    {"tf32", "f32", 16, 8, 8},
                                   {"f16", "f32", 16, 8, 16},  {"f16", "f16", 16, 8, 16},
                                   {"bf16", "f32", 16, 8, 16}, {"s8", "s32", 16, 8, 32}};

}  // namespace

std::vector<PeakKernel> peak_kernels() {
    std::vector<PeakKernel> all;
    for (const PeakMode& mode : peak_modes) all.push_back({mode.inputs, mode.accumulator});
    return all;
}

std::int64_t operations_of_product(const PeakKernel& kernel) {
    const auto* const mode = std::ranges::find_if(peak_modes, [&](const PeakMode& one) {
        return kernel.inputs == one.inputs && kernel.accumulator == one.accumulator;
    });
    check(mode != std::end(peak_modes), "a mode of mma.sync");
    return 2 * mode->rows * mode->columns * mode->terms;
}

}  // namespace mantissa::codegen
