#include "mantissa/device/cpu/attention/kept.h"

#include <fmt/format.h>

#include "mantissa/base/error.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/contraction/kernels.h"
#include "mantissa/device/cpu/rows/rows.h"
#include "mantissa/numerics/formats.h"

namespace mantissa::inline v0::on_cpu {

namespace {

RowProductKernels row_products(Isa isa) {
    if (isa == Isa::generic) return row_product_generic();
    return isa == Isa::avx2 ? row_product_avx2() : row_product_avx512();
}

std::int64_t floats_in_lines(std::int64_t floats) { return rounded_up(floats, 16); }

/// A worker's memory in floats: the query or the result, then the scores.
std::int64_t floats_of_worker(const KeptAttention& p) {
    return floats_in_lines(p.head_size) + floats_in_lines(p.keys);
}

void read_query(const KeptAttention& p, std::int64_t row, float* to) {
    for (std::int64_t d = 0; d < p.head_size; ++d)
        to[d] = p.dtype == DType::bf16 ? to_f32(static_cast<const BF16*>(p.q)[row * p.head_size + d])
                                       : static_cast<const float*>(p.q)[row * p.head_size + d];
}

void write_result(const KeptAttention& p, std::int64_t row, const float* from) {
    for (std::int64_t d = 0; d < p.head_size; ++d) {
        if (p.dtype == DType::bf16)
            static_cast<BF16*>(p.o)[row * p.head_size + d] = to_bf16(from[d]);
        else
            static_cast<float*>(p.o)[row * p.head_size + d] = from[d];
    }
}

}  // namespace

std::int64_t kept_attention_workspace(const KeptAttention& size, int threads) {
    return threads * floats_of_worker(size) * static_cast<std::int64_t>(sizeof(float));
}

void kept_attention(const KeptAttention& p, ThreadPool& pool, Isa isa) {
    check(p.dtype == DType::f32 || p.dtype == DType::bf16, "kept keys are f32 or bf16");
    for (std::int64_t t = 0; t < p.queries; ++t)
        if (p.positions[t] < 0 || p.positions[t] >= p.keys)
            throw UserError(
                fmt::format("kept_attention: position {} lies outside of the {} keys that are kept",
                            p.positions[t], p.keys));
    const RowProductKernels products = row_products(isa);
    const RowKernels& rows = row_kernels(isa);
    const std::size_t type = p.dtype == DType::bf16 ? 1 : 0;
    const auto head_bytes = p.keys * p.head_size * static_cast<std::int64_t>(size_of(p.dtype));
    const auto in_head = [&](const void* tensor, std::int64_t head) {
        return static_cast<const std::byte*>(tensor) + head * head_bytes;
    };
    pool.for_each_block(p.heads * p.queries, [&](std::int64_t item, int worker) {
        const std::int64_t head = item / p.queries / p.group, keys = p.positions[item % p.queries] + 1;
        float* const row = p.workspace + worker * floats_of_worker(p);
        float* const scores = row + floats_in_lines(p.head_size);
        read_query(p, item, row);
        products[static_cast<std::size_t>(PanelSource::along_depth)][type]({.row = row,
                                                                            .b = in_head(p.k, head),
                                                                            .stride = p.head_size,
                                                                            .depth = p.head_size,
                                                                            .cols = keys,
                                                                            .sums = scores});
        for (std::int64_t key = 0; key < keys; ++key) scores[key] *= p.scale;
        softmax(rows, {.rows = 1, .columns = keys, .x = {scores}, .y = {scores}}, pool);
        products[static_cast<std::size_t>(PanelSource::across_depth)][type]({.row = scores,
                                                                             .b = in_head(p.v, head),
                                                                             .stride = p.head_size,
                                                                             .depth = keys,
                                                                             .cols = p.head_size,
                                                                             .sums = row});
        write_result(p, item, row);
    });
}

}  // namespace mantissa::on_cpu
