// Dot products of BF16 pairs in plain C++: the same panels and order of sums as vdpbf16ps, every lane checked
// by the array that it goes to. Runs the kernels on any CPU, under the sanitizers too.
#include <array>
#include <bit>
#include <cstring>

#include "mantissa/device/cpu/contraction/dot_kernels.h"
#include "mantissa/device/cpu/contraction/pack_plain.h"
#include "mantissa/device/cpu/contraction/panel_kernels.h"
#include "tests/device/contraction_twins.h"

namespace mantissa::inline v0::on_cpu {

namespace {

struct TwinLanes {
    static constexpr int width = 16;
    static constexpr int depth_of_word = 2;
    static constexpr int rows_broadcast_by_fma = 0;
    using Sums = std::array<float, 16>;
    using Words = std::array<std::uint32_t, 16>;

    static Sums zero() { return {}; }
    static Words load_words(const std::byte* panel) {
        Words words;
        std::memcpy(words.data(), panel, sizeof words);
        return words;
    }
    static Words broadcast(const std::byte* word) {
        std::uint32_t pair;
        std::memcpy(&pair, word, sizeof pair);
        Words words;
        words.fill(pair);
        return words;
    }
    /// The odd product of a pair is added first, then the even one.
    static Sums multiply_add(Words row, Words column, Sums sums) {
        for (std::size_t i = 0; i < 16; ++i) {
            sums.at(i) += high(row.at(i)) * high(column.at(i));
            sums.at(i) += low(row.at(i)) * low(column.at(i));
        }
        return sums;
    }
    static Sums multiply_add_broadcast(const std::byte* row, Words column, Sums sums) {
        return multiply_add(broadcast(row), column, sums);
    }
    static Sums add(Sums a, Sums b) {
        for (std::size_t i = 0; i < 16; ++i) a.at(i) += b.at(i);
        return a;
    }
    static Sums load(const float* from) { return load_first(from, width); }
    static void store(float* to, Sums a) { store_first(to, a, width); }
    static void stream(float* to, Sums a) { store(to, a); }
    static Sums load_first(const float* from, std::int64_t count) {
        Sums a{};
        for (std::int64_t i = 0; i < count; ++i) a.at(static_cast<std::size_t>(i)) = from[i];
        return a;
    }
    static void store_first(float* to, Sums a, std::int64_t count) {
        for (std::int64_t i = 0; i < count; ++i) to[i] = a.at(static_cast<std::size_t>(i));
    }

  private:
    static float low(std::uint32_t pair) { return std::bit_cast<float>(pair << 16); }
    static float high(std::uint32_t pair) { return std::bit_cast<float>(pair & 0xffff0000U); }
};

template <int Size>
constexpr PanelKernels panels() {
    constexpr auto along = PanelSource::along_depth, across = PanelSource::across_depth;
    using Half = std::uint16_t;
    return {{{nullptr, pack_plainly<Half, Half, Size, 2, along>},
             {nullptr, pack_plainly<Half, Half, Size, 2, across>}}};
}

}  // namespace

ContractionKernels contraction_kernels_dot_twin() {
    using Product = PanelProduct<TwinLanes, dot_height, 3>;
    ContractionKernels kernels = dot_kernels();
    kernels.width = Product::width;
    kernels.finish = finish_block_generic;
    kernels.multiply = Product::multiply<>;
    kernels.multiply_in_place = Product::multiply_in_place<>;
    kernels.multiply_across = Product::multiply_across<>;
    kernels.pack_a = panels<dot_height>();
    kernels.pack_b = panels<Product::width>();
    return kernels;
}

}  // namespace mantissa::on_cpu
