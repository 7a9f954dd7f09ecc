// Casts, copies, embedding and transposes. See body_loops.h for how this file is used.
#pragma once

#include "mantissa/device/cpu/rows/body_loops.h"

namespace mantissa::cpu {
namespace {

template <class X, class Y>
void cast_range(const X* x, Y* y, std::int64_t count, bool stream) {
    for_lanes(count, [&](std::int64_t c, auto extent)
                         MANTISSA_BODY { store(y + c, load_ahead(x + c, extent), extent, stream); });
}

/// Loads and stores of FP32 lanes move bits, whatever they mean.
MANTISSA_LANES void stream_run(const char* from, char* to, std::int64_t bytes) {
    std::int64_t done = 0;
    for (; done + 64 <= bytes; done += 64)
        Lanes::stream(reinterpret_cast<float*>(to + done),
                      load_ahead(reinterpret_cast<const float*>(from + done), Whole{}));
    __builtin_memcpy(to + done, from + done, static_cast<std::size_t>(bytes - done));
}

void copy_runs(const Runs& p, Stores stores) {
    for (std::int64_t run = 0; run < p.count; ++run) {
        const char* from = static_cast<const char*>(p.source) + run * p.source_stride;
        char* to = static_cast<char*>(p.target) + run * p.target_stride;
        if (may_stream(stores, reinterpret_cast<float*>(to)))
            stream_run(from, to, p.bytes);
        else
            __builtin_memcpy(to, from, static_cast<std::size_t>(p.bytes));
    }
    Lanes::fence();
}

void cast_elements(const Cast& p, Range range, Stores stores) {
    with_types(p.x.type, p.y.type, [&](auto* x_type, auto* y_type) {
        const auto* x = as(p.x, x_type) + range.first;
        auto* y = as(p.y, y_type) + range.first;
        cast_range(x, y, range.last - range.first, may_stream(stores, y));
    });
    Lanes::fence();
}

void embedding_tokens(const Embedding& p, Range tokens, Stores stores) {
    with_types(p.table.type, p.y.type, [&](auto* table_type, auto* y_type) {
        for (std::int64_t t = tokens.first; t < tokens.last; ++t) {
            const auto* from = as(p.table, table_type) + p.ids[t] * p.channels;
            auto* y = as(p.y, y_type) + t * p.channels;
            cast_range(from, y, p.channels, may_stream(stores, y));
        }
    });
    Lanes::fence();
}

void embedding_grad_columns(const EmbeddingGrad& p, Range columns) {
    const std::int64_t width = columns.last - columns.first;
    if (p.accumulate == Accumulate::replace)
        for (std::int64_t row = 0; row < p.vocabulary; ++row)
            __builtin_memset(p.dtable + row * p.channels + columns.first, 0,
                             static_cast<std::size_t>(width) * sizeof(float));
    with_type(p.dy.type, [&](auto* type) {
        for (std::int64_t t = 0; t < p.tokens; ++t) {
            const auto* dy = as(p.dy, type) + t * p.channels + columns.first;
            float* row = p.dtable + p.ids[t] * p.channels + columns.first;
            for_lanes(width, [&](std::int64_t c, auto extent) MANTISSA_BODY {
                store(row + c, Lanes::add(load(row + c, extent), load(dy + c, extent)), extent, false);
            });
        }
    });
}

template <class T>
void transpose_typed(const TransposedPart& p) {
    const T* source = static_cast<const T*>(p.source);
    T* target = static_cast<T*>(p.target);
    const auto one = [&](std::int64_t r, std::int64_t c) {
        target[c * p.target_stride + r] = source[r * p.source_stride + c];
    };
    std::int64_t r = 0;
    for (; r + 16 <= p.rows; r += 16) {
        std::int64_t c = 0;
        for (; c + 16 <= p.columns; c += 16)
            Lanes::transpose16(source + r * p.source_stride + c, p.source_stride,
                               target + c * p.target_stride + r, p.target_stride);
        for (; c < p.columns; ++c)
            for (int k = 0; k < 16; ++k) one(r + k, c);
    }
    for (; r < p.rows; ++r)
        for (std::int64_t c = 0; c < p.columns; ++c) one(r, c);
}

void transpose_part(const TransposedPart& p, Stores) {
    if (p.element_size == 2)
        transpose_typed<std::uint16_t>(p);
    else
        transpose_typed<std::uint32_t>(p);
}

}  // namespace
}  // namespace mantissa::cpu
