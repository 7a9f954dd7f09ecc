// Packing an operand into the panels of panel_kernels.h, element by element in plain C++: for any CPU, and as
// the reference of the vector versions. Everything is in an anonymous namespace.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/contraction/kernels.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// Equal types are copied bit by bit, BF16 is widened to FP32.
template <class Packed, class Element>
inline Packed packed_element(Element element) {
    if constexpr (sizeof(Packed) == sizeof(Element))
        return element;
    else
        return std::bit_cast<float>(std::uint32_t{element} << 16);
}

/// Lines and depth that the source lacks become zeros, up to a whole panel and a whole word of the depth.
template <class Element, class Packed, int Size, int DepthOfWord, PanelSource Source>
void pack_plainly(const PanelCopy& copy) {
    const auto* const source = static_cast<const Element*>(copy.source);
    const std::int64_t line_step = Source == PanelSource::along_depth ? copy.stride : 1;
    const auto place_of = [&](std::int64_t k) {
        if (Source == PanelSource::along_depth) return k;
        return copy.beside == 0 ? k * copy.stride
                                : k / DepthOfWord * copy.stride + k % DepthOfWord * copy.beside;
    };
    const std::int64_t padded = align_up(copy.depth, DepthOfWord);
    auto* first = static_cast<std::byte*>(copy.panel);
    for (std::int64_t begin = 0; begin < copy.lines; begin += Size, first += copy.panel_bytes) {
        auto* const panel = reinterpret_cast<Packed*>(first);
        for (std::int64_t k = 0; k < padded; ++k)
            for (std::int64_t line = 0; line < Size; ++line) {
                const bool there = begin + line < copy.lines && k < copy.depth;
                panel[(k / DepthOfWord * Size + line) * DepthOfWord + k % DepthOfWord] =
                    there ? packed_element<Packed>(source[(begin + line) * line_step + place_of(k)])
                          : Packed{};
            }
    }
}

}  // namespace

}  // namespace mantissa::on_cpu
