// Casts, copies, embedding and transposes. See body_loops.h for how this file is used.
#pragma once

#include "mantissa/device/cpu/rows/body_loops.h"

namespace mantissa::cpu {
namespace {

/// `ahead` is what will be read after these elements.
template <class X, class Y>
void cast_range(const X* x, Y* y, std::int64_t count, const X* ahead, bool stream) {
    for_stored_lanes(y, count, stream, [&](std::int64_t c, auto extent) MANTISSA_BODY {
        fetch(ahead + c);
        return load(x + c, extent);
    });
}

/// Loads and stores of FP32 lanes move bits, whatever they mean.
MANTISSA_LANES void stream_run(const char* from, char* to, std::int64_t bytes, const char* ahead) {
    std::int64_t done = 0;
    for (; done + 64 <= bytes; done += 64) {
        __builtin_prefetch(ahead + done);
        Lanes::stream(reinterpret_cast<float*>(to + done),
                      Lanes::load(reinterpret_cast<const float*>(from + done)));
    }
    __builtin_memcpy(to + done, from + done, static_cast<std::size_t>(bytes - done));
}

void copy_runs(const Runs& p, Stores stores) {
    // The run that lies about 4 KB of traffic ahead; of a single one, what follows.
    const std::int64_t runs_ahead = p.bytes > 0 && p.bytes < prefetch_bytes ? prefetch_bytes / p.bytes : 1;
    for (std::int64_t run = 0; run < p.count; ++run) {
        const char* from = static_cast<const char*>(p.source) + run * p.source_stride;
        char* to = static_cast<char*>(p.target) + run * p.target_stride;
        const char* ahead = p.count > 1 ? from + runs_ahead * p.source_stride : ahead_of(from);
        if (may_stream(stores, reinterpret_cast<float*>(to)))
            stream_run(from, to, p.bytes, ahead);
        else
            __builtin_memcpy(to, from, static_cast<std::size_t>(p.bytes));
    }
    Lanes::fence();
}

void cast_elements(const Cast& p, Range range, Stores stores) {
    with_types(p.x.type, p.y.type, [&](auto* x_type, auto* y_type) {
        const auto* x = as(p.x, x_type) + range.first;
        auto* y = as(p.y, y_type) + range.first;
        cast_range(x, y, range.last - range.first, ahead_of(x), may_stream(stores, y));
    });
    Lanes::fence();
}

void embedding_tokens(const Embedding& p, Range tokens, Stores stores) {
    with_types(p.table.type, p.y.type, [&](auto* table_type, auto* y_type) {
        for (std::int64_t t = tokens.first; t < tokens.last; ++t) {
            const auto* table = as(p.table, table_type);
            const std::int64_t next = t + 1 < tokens.last ? t + 1 : t;
            auto* y = as(p.y, y_type) + t * p.channels;
            cast_range(table + p.ids[t] * p.channels, y, p.channels, table + p.ids[next] * p.channels,
                       may_stream(stores, y));
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
    // Rows of the table lie anywhere: those of some tokens later are fetched, 2 KB of them and of dy.
    constexpr std::int64_t tokens_ahead = 4;
    with_type(p.dy.type, [&](auto* type) {
        for (std::int64_t t = 0; t < p.tokens; ++t) {
            const std::int64_t later = t + tokens_ahead < p.tokens ? t + tokens_ahead : t;
            const auto* dy = as(p.dy, type) + t * p.channels + columns.first;
            const auto* later_dy = as(p.dy, type) + later * p.channels + columns.first;
            float* row = p.dtable + p.ids[t] * p.channels + columns.first;
            const float* later_row = p.dtable + p.ids[later] * p.channels + columns.first;
            for_lanes(width, [&](std::int64_t c, auto extent) MANTISSA_BODY {
                __builtin_prefetch(later_row + c, 1);
                __builtin_prefetch(later_dy + c);
                store(row + c, Lanes::add(load(row + c, extent), load(dy + c, extent)), extent, false);
            });
        }
    });
}

/// One line of cache, 64 bytes.
MANTISSA_LANES void store_line(void* to, const void* line, bool stream) {
    const Float bits = Lanes::load(static_cast<const float*>(line));
    if (Lanes::can_stream && stream)
        Lanes::stream(static_cast<float*>(to), bits);
    else
        Lanes::store(static_cast<float*>(to), bits);
}

/// Rows of the source that make a whole line of the target, by 16 columns: put together in L1 first, so that
/// the target is written in whole lines, which a stride of many kilobytes cannot evict half done.
template <class T>
MANTISSA_LANES void transpose_block(const T* source, std::int64_t source_stride, T* target,
                                    std::int64_t target_stride, bool stream) {
    constexpr int line = 64 / sizeof(T);
    alignas(64) T lines[16][line];
    for (int r = 0; r < line; r += 16) {
        for (int k = 0; k < 16; ++k) __builtin_prefetch(source + (r + k) * source_stride + 16);
        Lanes::transpose16(source + r * source_stride, source_stride, &lines[0][r], line);
    }
    for (int c = 0; c < 16; ++c) store_line(target + c * target_stride, lines[c], stream);
}

template <class T>
void transpose_typed(const TransposedPart& p, Stores stores) {
    constexpr int line = 64 / sizeof(T);
    const T* source = static_cast<const T*>(p.source);
    T* target = static_cast<T*>(p.target);
    const bool stream =
        may_stream(stores, reinterpret_cast<const float*>(target)) && p.target_stride % line == 0;
    const std::int64_t whole_rows = p.rows / line * line;
    const std::int64_t whole_columns = p.columns / 16 * 16;
    for (std::int64_t c = 0; c < whole_columns; c += 16)
        for (std::int64_t r = 0; r < whole_rows; r += line)
            transpose_block(source + r * p.source_stride + c, p.source_stride,
                            target + c * p.target_stride + r, p.target_stride, stream);
    for (std::int64_t c = 0; c < p.columns; ++c)
        for (std::int64_t r = c < whole_columns ? whole_rows : 0; r < p.rows; ++r)
            target[c * p.target_stride + r] = source[r * p.source_stride + c];
}

void transpose_part(const TransposedPart& p, Stores stores) {
    if (p.element_size == 2)
        transpose_typed<std::uint16_t>(p, stores);
    else
        transpose_typed<std::uint32_t>(p, stores);
    Lanes::fence();
}

}  // namespace
}  // namespace mantissa::cpu
