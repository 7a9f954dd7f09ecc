// The order of the elements of rows: stable, NaN greatest, zeros equal whatever their sign.
#pragma once

#include <cstdint>

#include "mantissa/base/thread_pool.h"
#include "mantissa/numerics/dtype.h"

namespace mantissa::inline v0::on_cpu {

struct OrderOfRows {
    std::int64_t rows = 0, columns = 0;
    std::int64_t count = 0;  ///< of each row's order, from its beginning
    bool descending = false;
    DType dtype = DType::f32;       ///< f32, bf16, f16 or i32
    const void* x = nullptr;        ///< [rows, columns]
    std::int32_t* order = nullptr;  ///< [rows, count]
    std::uint64_t* scratch = nullptr;
};

/// Bytes of scratch for so many threads.
std::int64_t order_workspace(const OrderOfRows& problem, int threads);
/// A row a thread at a time.
void order_rows(const OrderOfRows& problem, ThreadPool& pool);

}  // namespace mantissa::on_cpu
