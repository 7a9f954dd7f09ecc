#include "mantissa/device/cpu/rows/order.h"

#include <algorithm>
#include <array>
#include <bit>
#include <span>
#include <utility>

#include "mantissa/base/error.h"
#include "mantissa/numerics/formats.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// A key in the upper half, the element's number in the lower one: numbers of this kind differ, and their
/// order is the one that is asked for, first come first among equal elements.
using Item = std::uint64_t;

/// So few are kept in order while a row is walked once. Random numbers move count log(columns / count) of
/// them, sixteen at a time, which beats four passes of digits up to about here.
constexpr std::int64_t max_kept = 64;

std::uint32_t key_of(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) return 0xffffffffu;
    if (size == 0) return 0x80000000u;
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}
std::uint32_t key_of(BF16 x) { return key_of(to_f32(x)); }
std::uint32_t key_of(FP16 x) { return key_of(to_f32(x)); }
std::uint32_t key_of(std::int32_t x) { return static_cast<std::uint32_t>(x) ^ 0x80000000u; }

template <class T>
Item item_of(const T* row, std::int64_t i, bool descending) {
    const std::uint32_t key = key_of(row[i]);
    return static_cast<Item>(descending ? ~key : key) << 32 | static_cast<std::uint32_t>(i);
}

/// The first of all items, in order, in a walk over the row.
template <class T>
void keep_first(const OrderOfRows& p, const T* row, std::span<Item> kept) {
    std::size_t size = 0;
    for (std::int64_t i = 0; i < p.columns; ++i) {
        const Item item = item_of(row, i, p.descending);
        if (size == kept.size() && item > kept[size - 1]) continue;
        std::size_t at = size < kept.size() ? size++ : size - 1;
        for (; at > 0 && kept[at - 1] > item; --at) kept[at] = kept[at - 1];
        kept[at] = item;
    }
}

/// By the digits of the keys, the last first; a digit that all items share moves none. Returns where they
/// are.
std::span<Item> sorted_by_digits(std::span<Item> items, std::span<Item> other) {
    constexpr std::size_t digits = 256;
    for (unsigned shift = 32; shift < 64; shift += 8) {
        std::array<std::size_t, digits> first{};
        for (const Item item : items) ++first[item >> shift & (digits - 1)];
        if (std::ranges::find(first, items.size()) != first.end()) continue;
        std::size_t before = 0;
        for (std::size_t& of_digit : first) before += std::exchange(of_digit, before);
        for (const Item item : items) other[first[item >> shift & (digits - 1)]++] = item;
        std::swap(items, other);
    }
    return items;
}

template <class T>
void order_row(const OrderOfRows& p, std::int64_t row, std::span<Item> scratch) {
    const T* const x = static_cast<const T*>(p.x) + row * p.columns;
    std::span<Item> items;
    if (p.count <= max_kept) {
        items = scratch.first(static_cast<std::size_t>(p.count));
        keep_first(p, x, items);
    } else {
        items = scratch.first(static_cast<std::size_t>(p.columns));
        for (std::int64_t i = 0; i < p.columns; ++i)
            items[static_cast<std::size_t>(i)] = item_of(x, i, p.descending);
        items = sorted_by_digits(items, scratch.subspan(items.size(), items.size()));
    }
    for (std::int64_t i = 0; i < p.count; ++i)
        p.order[row * p.count + i] =
            static_cast<std::int32_t>(static_cast<std::uint32_t>(items[static_cast<std::size_t>(i)]));
}

/// Items of one thread.
std::int64_t items_of_thread(const OrderOfRows& p) { return p.count <= max_kept ? max_kept : 2 * p.columns; }

}  // namespace

std::int64_t order_workspace(const OrderOfRows& problem, int threads) {
    return threads * items_of_thread(problem) * static_cast<std::int64_t>(sizeof(Item));
}

void order_rows(const OrderOfRows& p, ThreadPool& pool) {
    if (p.count == 0) return;
    constexpr std::int64_t elements_of_block = 1 << 14;
    const std::int64_t rows_of_block = std::max<std::int64_t>(1, elements_of_block / p.columns);
    const auto scratch = static_cast<std::size_t>(items_of_thread(p));
    pool.for_each_block((p.rows + rows_of_block - 1) / rows_of_block, [&](std::int64_t block, int thread) {
        const std::span<Item> own(p.scratch + static_cast<std::size_t>(thread) * scratch, scratch);
        const std::int64_t last = std::min(p.rows, (block + 1) * rows_of_block);
        for (std::int64_t row = block * rows_of_block; row < last; ++row) switch (p.dtype) {
                case DType::f32:
                    order_row<float>(p, row, own);
                    break;
                case DType::bf16:
                    order_row<BF16>(p, row, own);
                    break;
                case DType::f16:
                    order_row<FP16>(p, row, own);
                    break;
                case DType::i32:
                    order_row<std::int32_t>(p, row, own);
                    break;
                default:
                    throw InternalError("rows of f32, bf16, f16 or i32 are sorted");
            }
    });
}

}  // namespace mantissa::on_cpu
