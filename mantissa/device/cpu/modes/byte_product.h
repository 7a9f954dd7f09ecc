// Products of matrices of signed bytes with sums of 32 bits, as a pure function: it knows nothing of graphs
// and allocates nothing.
//
//     ByteProduct product{.m = 4096, .n = 3072, .k = 768, .a = x, .b = w, .d = y};
//     Buffer workspace(byte_product_workspace(product, isa, pool.threads()));
//     multiply_bytes(product, workspace.as<std::byte>(), pool, isa);
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "mantissa/base/thread_pool.h"
#include "mantissa/device/cpu/isa.h"

namespace mantissa::inline v0::on_cpu {

/// d = a b^T. Rows lie one after another without gaps; no two matrices may overlap.
struct ByteProduct {
    std::int64_t m = 0;
    std::int64_t n = 0;
    std::int64_t k = 0;
    const void* a = nullptr;  // [m, k]
    const void* b = nullptr;  // [n, k]
    void* d = nullptr;        // [m, n], 32 bits
};

/// Why the problem cannot be done; empty if it can: sizes below 0, or a depth at which sums could leave 32
/// bits.
std::string refusal(const ByteProduct& problem);

std::size_t byte_product_workspace(const ByteProduct& problem, Isa isa, int threads);

/// Exact. Throws UserError with the reason of a refusal, InternalError for a workspace that is too small.
void multiply_bytes(const ByteProduct& problem, std::span<std::byte> workspace, ThreadPool& pool, Isa isa);

}  // namespace mantissa::on_cpu
