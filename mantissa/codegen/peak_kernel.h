// Products of small matrices whose operands stay in registers, again and again: how many a GPU does a second.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mantissa::inline v0::codegen {

/// One mode of mma.sync. Parameters: u32 for each thread, so that no product is left out, and how often each
/// warp does `peak_products` of them.
struct PeakKernel {
    std::string inputs = "bf16", accumulator = "f32";  ///< as in device/format_peaks.h
    std::int64_t blocks = 1;
};

/// Products whose sums do not wait for one another: enough for a unit that takes 33 cycles for one and
/// begins one in 8.
constexpr int peak_products = 8;

/// The modes that there are.
std::vector<PeakKernel> peak_kernels();
/// Operations of one product, a multiply-add counted as two.
std::int64_t operations_of_product(const PeakKernel& kernel);

}  // namespace mantissa::codegen
