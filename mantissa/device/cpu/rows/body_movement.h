// Copies, embedding and transposes. See body_loops.h for how this file is used.
#pragma once

#include "mantissa/device/cpu/rows/body_loops.h"

namespace mantissa::inline v0::on_cpu {
namespace {

/// look_ahead(c) fetches elements that are read later.
template <class X, class Y, class LookAhead>
void cast_range(const X* x, Y* y, std::int64_t count, bool stream, LookAhead look_ahead) {
    for_moved_lanes(y, count, stream, [&](std::int64_t c, auto extent) MANTISSA_BODY {
        look_ahead(c);
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

MANTISSA_LANES void copy_run(const char* from, char* to, std::int64_t bytes, const char* ahead,
                             Stores stores) {
    if (may_stream(stores, reinterpret_cast<float*>(to)))
        stream_run(from, to, bytes, ahead);
    else
        __builtin_memcpy(to, from, static_cast<std::size_t>(bytes));
}

void copy_runs(const Runs& p, Stores stores) {
    // The group that lies about 4 KB of traffic ahead; of a single run, the bytes behind it.
    const std::int64_t group_bytes = p.group * p.bytes;
    const std::int64_t groups_ahead =
        group_bytes > 0 && group_bytes < prefetch_bytes ? prefetch_bytes / group_bytes : 1;
    const bool single = p.count == 1 && p.group == 1;
    const std::int64_t ahead = single ? prefetch_bytes : groups_ahead * p.source_stride;
    for (std::int64_t i = 0; i < p.count; ++i)
        for (std::int64_t k = 0; k < p.group; ++k) {
            const char* from = static_cast<const char*>(p.source) + i * p.source_stride + k * p.source_step;
            char* to = static_cast<char*>(p.target) + i * p.target_stride + k * p.target_step;
            copy_run(from, to, p.bytes, from + ahead, stores);
        }
    Lanes::fence();
}

/// Rows of the table lie anywhere, where no hardware looks ahead: those of some tokens later are fetched.
constexpr std::int64_t tokens_ahead = 2;

void embedding_tokens(const Embedding& p, Range tokens, Stores stores) {
    with_types(p.table.type, p.y.type, [&](auto* table_type, auto* y_type) {
        for (std::int64_t t = tokens.first; t < tokens.last; ++t) {
            const auto* table = as(p.table, table_type);
            const std::int64_t later = t + tokens_ahead < tokens.last ? t + tokens_ahead : t;
            auto* y = as(p.y, y_type) + t * p.channels;
            const auto* later_row = table + p.ids[later] * p.channels;
            cast_range(table + p.ids[t] * p.channels, y, p.channels, may_stream(stores, y),
                       [&](std::int64_t c) MANTISSA_BODY { fetch(later_row + c); });
        }
    });
    Lanes::fence();
}

/// A row of the table and `count` tokens of it, `ahead` of which others will be read.
template <int count, class DY>
MANTISSA_LANES void add_tokens(const EmbeddingGrad& p, const std::int32_t* tokens, const std::int32_t* ahead,
                               float* row, Accumulate accumulate, bool stream) {
    const DY* const dy = as(p.dy, static_cast<DY*>(nullptr));
    const DY *from[count], *later[count];
    for (int i = 0; i < count; ++i) {
        from[i] = dy + tokens[i] * p.channels;
        later[i] = dy + ahead[i] * p.channels;
    }
    for_lanes(p.channels, [&](std::int64_t c, auto extent) MANTISSA_BODY {
        for (int i = 0; i < count; ++i) fetch(later[i] + c);
        Float sum = accumulate == Accumulate::add ? load(row + c, extent) : Lanes::constant(0.0f);
        for (int i = 0; i < count; ++i) sum = Lanes::add(sum, load(from[i] + c, extent));
        store(row + c, sum, extent, stream);
    });
}

/// Four tokens at most in one walk over the row; of more, it is in L1 for the next four.
template <class DY>
void add_row(const EmbeddingGrad& p, std::int64_t row_number, Range tokens, std::int64_t last,
             Stores stores) {
    float* const row = p.dtable + row_number * p.channels;
    const std::int32_t* const by_row = p.tokens_by_row();
    Accumulate accumulate = p.accumulate;
    const bool stream = may_stream(stores, row) && tokens.last - tokens.first <= 4;
    for (std::int64_t t = tokens.first; t < tokens.last; t += 4) {
        std::int32_t ahead[4];
        for (std::int64_t i = 0; i < 4; ++i) {
            const std::int64_t later = t + 4 + i;
            ahead[i] = by_row[later < last ? later : t];
        }
        const std::int32_t* const these = by_row + t;
        switch (tokens.last - t) {
            case 1:
                add_tokens<1, DY>(p, these, ahead, row, accumulate, stream);
                break;
            case 2:
                add_tokens<2, DY>(p, these, ahead, row, accumulate, stream);
                break;
            case 3:
                add_tokens<3, DY>(p, these, ahead, row, accumulate, stream);
                break;
            default:
                add_tokens<4, DY>(p, these, ahead, row, accumulate, stream);
        }
        accumulate = Accumulate::add;
    }
}

/// Each row of the table is written once, those without a token, too, where it is no sum.
void embedding_grad_rows(const EmbeddingGrad& p, Range rows, Stores stores) {
    const std::int32_t* const first = p.first_of_row();
    with_type(p.dy.type, [&](auto* type) {
        using DY = std::remove_const_t<std::remove_pointer_t<decltype(type)>>;
        for (std::int64_t row = rows.first; row < rows.last; ++row) {
            if (first[row] < first[row + 1]) {
                add_row<DY>(p, row, {first[row], first[row + 1]}, first[rows.last], stores);
            } else if (p.accumulate == Accumulate::replace) {
                float* const to = p.dtable + row * p.channels;
                const bool stream = may_stream(stores, to);
                for_lanes(p.channels, [&](std::int64_t c, auto extent) MANTISSA_BODY {
                    store(to + c, Lanes::constant(0.0f), extent, stream);
                });
            }
        }
    });
    Lanes::fence();
}

/// A tile of blocks that read whole lines and write whole lines. With each block a part of the next tile,
/// which lies beside this one, is fetched: runs one after another, where the blocks themselves would ask for
/// single lines.
template <class T>
void transpose_tile(const T* source, std::int64_t source_stride, T* target, std::int64_t target_stride,
                    std::int64_t rows, std::int64_t columns, bool stream) {
    constexpr int line = 64 / sizeof(T);
    const std::int64_t blocks = rows / line * (columns / line);
    std::int64_t block = 0, ahead = 0;
    for (std::int64_t c = 0; c < columns; c += line)
        for (std::int64_t r = 0; r < rows; r += line, ++block) {
            for (; ahead * blocks < (block + 1) * rows; ++ahead)
                for (std::int64_t k = 0; k < columns; k += line)
                    fetch(source + ahead * source_stride + columns + k);
            Lanes::transpose_lines(source + r * source_stride + c, source_stride,
                                   target + c * target_stride + r, target_stride, stream);
        }
}

/// Tiles that read 512 bytes of each row and write 256. With strides of whole pages, lines of one column
/// share few sets of L2. So more rows, or longer runs of them, would evict the lines fetched for the next
/// tile (1 KB had 0.85 of the speed). Shorter runs cost memory more.
template <class T>
void transpose_typed(const TransposedPart& p, Stores stores) {
    constexpr std::int64_t line = 64 / sizeof(T);
    constexpr std::int64_t tile_rows = 4 * line;
    constexpr std::int64_t tile_columns = 8 * line;
    const T* source = static_cast<const T*>(p.source);
    T* target = static_cast<T*>(p.target);
    const bool stream = may_stream(stores, target) && p.target_stride % line == 0;
    const std::int64_t whole_rows = p.rows / line * line;
    const std::int64_t whole_columns = p.columns / line * line;
    for (std::int64_t r = 0; r < whole_rows; r += tile_rows)
        for (std::int64_t c = 0; c < whole_columns; c += tile_columns)
            transpose_tile(source + r * p.source_stride + c, p.source_stride,
                           target + c * p.target_stride + r, p.target_stride,
                           whole_rows - r < tile_rows ? whole_rows - r : tile_rows,
                           whole_columns - c < tile_columns ? whole_columns - c : tile_columns, stream);
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
}  // namespace mantissa::on_cpu
