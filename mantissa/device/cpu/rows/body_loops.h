// How row kernels walk over memory: sixteen lanes at a time, the tail without touching memory beyond it, with
// a prefetch ahead. Included by the sources of each instruction-set level, once in each, after its lanes.
#pragma once

#include "mantissa/device/cpu/rows/kernel_table.h"

namespace mantissa::inline v0::on_cpu {
namespace {

using Float = Lanes::Float;
constexpr Lanes lanes{};  // the operations, as numerics/elementary_body.h wants them

struct Whole {};
struct Part {
    int count;
};

/// 4 KB ahead: 1.35 times the speed of none on arrays beyond the caches, where 2 and 8 KB measured the same
/// or less.
constexpr std::int64_t prefetch_bytes = 4096;

template <class T>
MANTISSA_LANES const T* ahead_of(const T* from) {
    return reinterpret_cast<const T*>(reinterpret_cast<const char*>(from) + prefetch_bytes);
}

template <class T>
MANTISSA_LANES Float load(const T* from, Whole) {
    return Lanes::load(from);
}
template <class T>
MANTISSA_LANES Float load(const T* from, Part part) {
    return Lanes::load_part(from, part.count);
}
/// One element, widened.
template <class T>
MANTISSA_LANES float lane_of(const T* from) {
    float widened[16];
    Lanes::store(widened, Lanes::load_part(from, 1));
    return widened[0];
}
MANTISSA_LANES int lanes_in(Whole) { return 16; }
MANTISSA_LANES int lanes_in(Part part) { return part.count; }
/// Loads where memory is touched for the first time; later touches find it in L1 or L2.
template <class T, class Extent>
MANTISSA_LANES Float load_ahead(const T* from, Extent extent) {
    __builtin_prefetch(ahead_of(from));
    return load(from, extent);
}
/// For rows that are walked over more than once: each walk fetches a part of the next rows, so that memory is
/// never idle. Into L2: lines on their way to L1 take the buffers that the walk's own loads and stores need
/// (gradients of softmax and layer norm ran at 0.8 of the speed).
template <class T>
MANTISSA_LANES void fetch(const T* from) {
    __builtin_prefetch(from, 0, 2);
}
template <class T>
MANTISSA_LANES void store(T* to, Float a, Whole, bool stream) {
    if (Lanes::can_stream && stream)
        Lanes::stream(to, a);
    else
        Lanes::store(to, a);
}
template <class T>
MANTISSA_LANES void store(T* to, Float a, Part part, bool) {
    Lanes::store_part(to, a, part.count);
}

/// Lanes beyond a tail hold results computed from zeros; a reduction must not see them.
MANTISSA_LANES Float keep(Float a, Whole, float) { return a; }
MANTISSA_LANES Float keep(Float a, Part part, float other) {
    float kept[16];
    Lanes::store(kept, a);
    for (int i = part.count; i < 16; ++i) kept[i] = other;
    return Lanes::load(kept);
}

/// Streaming needs whole lines of aligned memory: rows that start elsewhere are stored plainly.
template <class T>
MANTISSA_LANES bool may_stream(Stores stores, const T* row) {
    return Lanes::can_stream && stores == Stores::streaming &&
           reinterpret_cast<std::uintptr_t>(row) % 64 == 0;
}

#define MANTISSA_BODY __attribute__((always_inline))

/// body(column, extent) for each sixteen columns.
template <class Body>
MANTISSA_LANES void for_lanes(std::int64_t count, Body body) {
    std::int64_t c = 0;
    for (; c + 16 <= count; c += 16) body(c, Whole{});
    if (c < count) body(c, Part{static_cast<int>(count - c)});
}

/// Thirty-two elements, as they are or rounded.
template <class T>
MANTISSA_LANES void store_two(T* to, Float a, Float b, bool stream) {
    if (Lanes::can_stream && stream)
        Lanes::stream_two(to, a, b);
    else
        Lanes::store_two(to, a, b);
}
/// The same for results of arithmetic: see lanes_of_level.h.
template <class T>
MANTISSA_LANES void store_results(T* to, Float a, Float b, bool stream) {
    store_two(to, a, b, stream);
}
template <class T>
MANTISSA_LANES void store_result(T* to, Float a) {
    Lanes::store(to, a);
}

/// y[c] = value(c, extent). 16-bit numbers are made for a whole line at a time: one rounding to 16 bits and
/// one store serve two vectors.
template <class Y, class Value, class StoreTwo>
MANTISSA_LANES void for_lines(Y* y, std::int64_t count, bool stream, Value value, StoreTwo store_line) {
    std::int64_t first = 0;
    if constexpr (sizeof(Y) == 2)
        for (; first + 32 <= count; first += 32)
            store_line(y + first, value(first, Whole{}), value(first + 16, Whole{}));
    for_lanes(count - first, [&](std::int64_t offset, auto extent) MANTISSA_BODY {
        store(y + first + offset, value(first + offset, extent), extent, stream);
    });
}
/// Stores results of arithmetic.
template <class Y, class Value>
MANTISSA_LANES void for_stored_lanes(Y* y, std::int64_t count, bool stream, Value value) {
    for_lines(y, count, stream, value,
              [&](Y* to, Float a, Float b) MANTISSA_BODY { store_results(to, a, b, stream); });
}
/// Stores numbers that are only moved or rounded, subnormals among them.
template <class Y, class Value>
MANTISSA_LANES void for_moved_lanes(Y* y, std::int64_t count, bool stream, Value value) {
    for_lines(y, count, stream, value,
              [&](Y* to, Float a, Float b) MANTISSA_BODY { store_two(to, a, b, stream); });
}

/// body(column, slot, extent), slot = 0 ... 3 in turn: reductions keep four sums, so that one addition need
/// not wait for the other. The order is a matter of `count` alone.
template <class Body>
MANTISSA_LANES void for_lanes_in_four(std::int64_t count, Body body) {
    std::int64_t c = 0;
    for (; c + 64 <= count; c += 64) {
        body(c, 0, Whole{});
        body(c + 16, 1, Whole{});
        body(c + 32, 2, Whole{});
        body(c + 48, 3, Whole{});
    }
    for (; c + 16 <= count; c += 16) body(c, 0, Whole{});
    if (c < count) body(c, 1, Part{static_cast<int>(count - c)});
}

struct FourSums {
    Float part[4];
    MANTISSA_LANES FourSums zero() {
        const Float z = Lanes::constant(0.0f);
        return {{z, z, z, z}};
    }
    [[gnu::always_inline]] inline void add(int slot, Float a) { part[slot] = Lanes::add(part[slot], a); }
    [[gnu::always_inline]] inline float total() const {
        return Lanes::sum(Lanes::add(Lanes::add(part[0], part[1]), Lanes::add(part[2], part[3])));
    }
};

/// Calls f with a null pointer of the element's type.
template <class F>
MANTISSA_LANES void with_type(DType type, F f) {
    switch (type) {
        case DType::bf16:
            return f(static_cast<BF16*>(nullptr));
        case DType::f16:
            return f(static_cast<FP16*>(nullptr));
        default:  // the driver let nothing else through
            return f(static_cast<float*>(nullptr));
    }
}

template <class F>
MANTISSA_LANES void with_types(DType a, DType b, F f) {
    with_type(a, [&](auto* x) { with_type(b, [&](auto* y) { f(x, y); }); });
}

template <class T>
MANTISSA_LANES const T* as(ConstView view, const T*) {
    return static_cast<const T*>(view.data);
}
template <class T>
MANTISSA_LANES T* as(View view, const T*) {
    return static_cast<T*>(view.data);
}

}  // namespace
}  // namespace mantissa::on_cpu
