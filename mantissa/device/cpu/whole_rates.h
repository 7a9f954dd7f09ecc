// What a mode of multiplying matrices does on matrices in memory: a contraction or a matrix mode, packing and
// storing included, with a dense and with a 2:4 sparse first operand.
#pragma once

#include <optional>
#include <string_view>

#include "mantissa/base/thread_pool.h"
#include "mantissa/device/cpu/isa.h"

namespace mantissa::inline v0::on_cpu {

/// Operations a second, a multiply-add counted as two and zeros as if they were multiplied.
struct WholeRates {
    std::optional<double> dense = {};
    std::optional<double> sparse = {};  ///< none of a mode without that form
};

/// The best of a few turns, in each of which the dense and the sparse product are made. Of 1,024 columns, 768
/// deep, and as many rows (16 ... 1,024) as take `operations` or less. Throws InternalError for formats that
/// no mode has.
WholeRates whole_rates(std::string_view inputs, std::string_view accumulator, double operations,
                       ThreadPool& pool, Isa isa);

}  // namespace mantissa::on_cpu
