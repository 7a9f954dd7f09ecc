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
};

}  // namespace
}  // namespace mantissa::on_cpu
