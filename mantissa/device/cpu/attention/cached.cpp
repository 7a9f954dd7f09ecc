#include "mantissa/device/cpu/attention/cached.h"

#include <fmt/format.h>

#include <algorithm>

#include "mantissa/base/error.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/contraction/kernels.h"
#include "mantissa/device/cpu/rows/kernel_table.h"
#include "mantissa/device/cpu/rows/rows.h"
#include "mantissa/numerics/formats.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// Keys or values that stay in L2 while all heads that share them read them.
constexpr std::int64_t chunk_bytes = 128 << 10;

RowProductKernels row_products(Isa isa) {
    if (isa == Isa::generic) return row_product_generic();
    return isa == Isa::avx2 ? row_product_avx2() : row_product_avx512();
}

std::int64_t floats_in_lines(std::int64_t floats) { return align_up(floats, 16); }

/// A worker's memory in floats: of each head of queries the query or the result, and the scores; and a part
/// of a result.
std::int64_t floats_of_head(const CachedAttention& p) {
    return floats_in_lines(p.head_size) + floats_in_lines(p.keys);
}
std::int64_t floats_of_worker(const CachedAttention& p) {
    return p.group * floats_of_head(p) + floats_in_lines(p.head_size);
}

void read_query(const CachedAttention& p, std::int64_t row, float* to) {
    for (std::int64_t d = 0; d < p.head_size; ++d)
        to[d] = p.dtype == DType::bf16 ? to_f32(static_cast<const BF16*>(p.q)[row * p.head_size + d])
                                       : static_cast<const float*>(p.q)[row * p.head_size + d];
}

void write_result(const CachedAttention& p, std::int64_t row, const float* from) {
    for (std::int64_t d = 0; d < p.head_size; ++d) {
        if (p.dtype == DType::bf16)
            static_cast<BF16*>(p.o)[row * p.head_size + d] = to_bf16(from[d]);
        else
            static_cast<float*>(p.o)[row * p.head_size + d] = from[d];
    }
}

/// One query of each of the heads that share keys, at one position.
class SharedKeys {
  public:
    /// `item` counts heads of keys, and the queries within each.
    SharedKeys(const CachedAttention& p, Isa isa, std::int64_t item, float* memory)
        : p_(p),
          products_(row_products(isa)),
          key_head_(item / p.queries),
          query_(item % p.queries),
          end_(p.positions[key_head_ / key_heads_of_sequence() * p.queries + query_] + 1),
          begin_(p.window == 0 ? 0 : std::max<std::int64_t>(0, end_ - p.window)),
          chunk_(std::max<std::int64_t>(
              16, chunk_bytes / (p.head_size * static_cast<std::int64_t>(size_of(p.dtype))))),
          memory_(memory) {}

    void score(const RowKernels& rows) const {
        for (std::int64_t member = 0; member < p_.group; ++member)
            read_query(p_, row(member), vector(member));
        for_chunks([&](std::int64_t first, std::int64_t count) {
            for (std::int64_t member = 0; member < p_.group; ++member)
                product(PanelSource::along_depth)({.rows = vector(member),
                                                   .b = rows_of(p_.k, first),
                                                   .stride = p_.head_size,
                                                   .depth = p_.head_size,
                                                   .cols = count,
                                                   .sums = scores(member) + first - begin_});
        });
        for (std::int64_t member = 0; member < p_.group; ++member) {
            float* const x = scores(member);
            const std::int64_t keys = end_ - begin_;
            for (std::int64_t key = 0; key < keys; ++key) x[key] *= p_.scale;
            if (p_.cap > 0) rows.cap(x, keys, p_.cap);
            rows.softmax(x, keys);
        }
    }

    void add_values() const {
        float* const part = memory_ + p_.group * floats_of_head(p_);
        for_chunks([&](std::int64_t first, std::int64_t count) {
            for (std::int64_t member = 0; member < p_.group; ++member) {
                float* const result = vector(member);
                product(PanelSource::across_depth)({.rows = scores(member) + first - begin_,
                                                    .b = rows_of(p_.v, first),
                                                    .stride = p_.head_size,
                                                    .depth = count,
                                                    .cols = p_.head_size,
                                                    .sums = first == begin_ ? result : part});
                for (std::int64_t d = 0; first > begin_ && d < p_.head_size; ++d) result[d] += part[d];
            }
        });
        for (std::int64_t member = 0; member < p_.group; ++member)
            write_result(p_, row(member), vector(member));
    }

  private:
    std::int64_t key_heads_of_sequence() const { return p_.heads / p_.group / p_.sequences; }
    /// The row of q and o.
    std::int64_t row(std::int64_t member) const {
        return (key_head_ * p_.group + member) * p_.queries + query_;
    }
    float* vector(std::int64_t member) const { return memory_ + member * floats_of_head(p_); }
    float* scores(std::int64_t member) const { return vector(member) + floats_in_lines(p_.head_size); }
    const std::byte* rows_of(const void* tensor, std::int64_t first) const {
        return static_cast<const std::byte*>(tensor) +
               (key_head_ * p_.keys + first) * p_.head_size * static_cast<std::int64_t>(size_of(p_.dtype));
    }
    RowProductKernel product(PanelSource source) const {
        return products_[static_cast<std::size_t>(source)][p_.dtype == DType::bf16 ? 1 : 0];
    }
    template <class Body>
    void for_chunks(Body body) const {
        for (std::int64_t first = begin_; first < end_; first += chunk_)
            body(first, std::min(chunk_, end_ - first));
    }

    const CachedAttention& p_;
    RowProductKernels products_;
    std::int64_t key_head_, query_, end_, begin_, chunk_;  // keys from begin_ on up to before end_
    float* memory_;
};

}  // namespace

std::int64_t cached_attention_workspace(const CachedAttention& size, int threads) {
    return threads * floats_of_worker(size) * static_cast<std::int64_t>(sizeof(float));
}

void cached_attention(const CachedAttention& p, ThreadPool& pool, Isa isa) {
    check(p.dtype == DType::f32 || p.dtype == DType::bf16, "kept keys are f32 or bf16");
    for (std::int64_t i = 0; i < p.sequences * p.queries; ++i)
        if (p.positions[i] < 0 || p.positions[i] >= p.keys)
            throw UserError(
                fmt::format("cached_attention: position {} lies outside of the {} keys that are kept",
                            p.positions[i], p.keys));
    const RowKernels& rows = row_kernels(isa);
    pool.for_each_block(p.heads / p.group * p.queries, [&](std::int64_t item, int worker) {
        const SharedKeys keys(p, isa, item, p.workspace + worker * floats_of_worker(p));
        keys.score(rows);
        keys.add_values();
    });
}

}  // namespace mantissa::on_cpu
