// Plain C++ for kernels over images beside lanes_generic.h: comparisons of maxima, and bytes.
#pragma once

#include "mantissa/device/cpu/rows/lanes_generic.h"

namespace mantissa::inline v0::on_cpu {
namespace {

struct ImageLanes {
    /// Where x takes the place of a maximum: it is larger, or the first NaN.
    MANTISSA_LANES Lanes::Mask wins(Lanes::Float x, Lanes::Float maximum) {
        return Lanes::each<Lanes::Mask>([&](int k) {
            const Lanes::F4 a = x.part[k], b = maximum.part[k];
            return reinterpret_cast<Lanes::I4>(b == b) & ~reinterpret_cast<Lanes::I4>(a <= b);
        });
    }
    /// A mask of the `count` bytes that are `value`; the other lanes are not set.
    MANTISSA_LANES Lanes::Mask are(const std::uint8_t* from, int count, std::uint8_t value) {
        Lanes::Mask mask = {};
        for (int i = 0; i < count; ++i) mask.part[i / 4][i % 4] = from[i] == value ? -1 : 0;
        return mask;
    }
    /// `count` whole numbers from 0 to 255 as bytes.
    MANTISSA_LANES void store(std::uint8_t* to, Lanes::Float a, int count) {
        for (int i = 0; i < count; ++i) to[i] = static_cast<std::uint8_t>(a.part[i / 4][i % 4]);
    }
    /// lanes[index].
    MANTISSA_LANES Lanes::Float permuted(Lanes::Float lanes, const std::int32_t (&index)[16]) {
        Lanes::Float out;
        for (int i = 0; i < 16; ++i) out.part[i / 4][i % 4] = lanes.part[index[i] / 4][index[i] % 4];
        return out;
    }
};

/// A vector of FP32 as wide as registers are. Long sums keep `columns` of them.
struct Vector {
    using Float = Lanes::F4;
    static constexpr int width = 4, columns = 7;
    static constexpr bool twice = false, pairs = false, masks = false;
    MANTISSA_LANES Float zero() { return Float{}; }
    MANTISSA_LANES Float load(const float* from) {
        Float a;
        __builtin_memcpy(&a, from, sizeof a);
        return a;
    }
    /// No load is of less than a vector.
    struct Extent {};
    MANTISSA_LANES Extent extent(int) { return {}; }
    template <class T>
    MANTISSA_LANES Float load_widened(const T* from, Extent) {
        return Lanes::load_part(from, width).part[0];
    }
    MANTISSA_LANES void store(float* to, Float a) { __builtin_memcpy(to, &a, sizeof a); }
    /// For what is used more than once: the compiler would load it as often.
    MANTISSA_LANES Float load_once(const float* from) {
        Float a = load(from);
        asm("" : "+x"(a));
        return a;
    }
    MANTISSA_LANES Float load_broadcast(const float* from) { return Float{*from, *from, *from, *from}; }
    /// Never called: a block has several vectors.
    MANTISSA_LANES Float load_permuted(const float* from, const std::int32_t*) { return load(from); }
    MANTISSA_LANES Float add(Float a, Float b) { return a + b; }
    MANTISSA_LANES Float multiply_add(Float a, Float b, Float c) { return a * b + c; }
};

}  // namespace
}  // namespace mantissa::on_cpu
