// The rate of a mode of multiplying matrices on matrices in memory, packing and storing included: the modes
// that models run in, contractions and products of bytes.
#pragma once

#include <optional>
#include <string_view>

#include "mantissa/base/thread_pool.h"
#include "mantissa/device/cpu/isa.h"

namespace mantissa::inline v0::on_cpu {

/// Operations a second, a multiply-add counted as two: the best of a few turns. Of 1,024 columns, 768 deep,
/// and as many rows (16 ... 1,024) as take `operations` or less. None for other modes.
std::optional<double> whole_rate(std::string_view inputs, std::string_view accumulator, double operations,
                                 ThreadPool& pool, Isa isa);

}  // namespace mantissa::on_cpu
