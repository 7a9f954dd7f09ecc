// Four FP32 lanes in plain C++ (vector types that GCC and Clang lower to any machine), as panel_kernels.h
// wants them. The twins for AVX2, AVX-512 and dot products of BF16 have the same members. In an anonymous
// namespace, so that each source keeps its own copy, compiled for its own level.
#pragma once

#include <cstddef>
#include <cstdint>

#define MANTISSA_PANEL_LANES [[gnu::always_inline]] static inline

namespace mantissa::inline v0::on_cpu {
namespace {

struct GenericLanes {
    /// FP32 sums of a vector, and words of 32 bits.
    static constexpr int width = 4;
    /// Elements along the depth in one word of a panel.
    static constexpr int depth_of_word = 1;
    /// The number of a tile's rows that the multiply-add itself broadcasts.
    static constexpr int rows_broadcast_by_fma = 0;
    using Sums = float __attribute__((vector_size(16), aligned(4)));
    using Words = Sums;

    MANTISSA_PANEL_LANES Sums zero() { return Sums{}; }
    MANTISSA_PANEL_LANES Words load_words(const std::byte* panel) {
        Words words;
        __builtin_memcpy(&words, panel, sizeof words);
        return words;
    }
    MANTISSA_PANEL_LANES Words broadcast(const std::byte* word) {
        float value;
        __builtin_memcpy(&value, word, sizeof value);
        return Words{value, value, value, value};
    }
    /// sums + row * column: here multiplied and added apart.
    MANTISSA_PANEL_LANES Sums multiply_add(Words row, Words column, Sums sums) { return sums + row * column; }

    MANTISSA_PANEL_LANES Sums add(Sums a, Sums b) { return a + b; }
    MANTISSA_PANEL_LANES Sums load(const float* from) { return *reinterpret_cast<const Sums*>(from); }
    MANTISSA_PANEL_LANES void store(float* to, Sums a) { *reinterpret_cast<Sums*>(to) = a; }
    /// The first `count` lanes, 1 ... width; nothing beyond is read or written.
    MANTISSA_PANEL_LANES Sums load_first(const float* from, std::int64_t count) {
        Sums a{};
        for (std::int64_t i = 0; i < count; ++i) a[i] = from[i];
        return a;
    }
    MANTISSA_PANEL_LANES void store_first(float* to, Sums a, std::int64_t count) {
        for (std::int64_t i = 0; i < count; ++i) to[i] = a[i];
    }
    /// Past the caches; `to` is aligned to a vector.
    MANTISSA_PANEL_LANES void stream(float* to, Sums a) { store(to, a); }
    /// Hides a value from the compiler, which would leave out unread values: the asm might read and write it.
    template <class Register>
    MANTISSA_PANEL_LANES void hide(Register& a) {
        asm volatile("" : "+x"(a));
    }
};

/// Words of four signed bytes; sums are whole numbers, whose bits FP32's lanes carry.
struct GenericS8Lanes : GenericLanes {
    using Integers = std::uint32_t __attribute__((vector_size(16)));  // so that sums wrap

    MANTISSA_PANEL_LANES Sums multiply_add(Words row, Words column, Sums sums) {
        for (int shift = 0; shift < 32; shift += 8)
            sums = add(sums, reinterpret_cast<Sums>(byte_at(row, shift) * byte_at(column, shift)));
        return sums;
    }
    MANTISSA_PANEL_LANES Sums add(Sums a, Sums b) {
        return reinterpret_cast<Sums>(reinterpret_cast<Integers>(a) + reinterpret_cast<Integers>(b));
    }

  private:
    /// Extended by its sign.
    MANTISSA_PANEL_LANES Integers byte_at(Words words, int shift) {
        return (((reinterpret_cast<Integers>(words) >> shift) & 0xffu) ^ 0x80u) - 0x80u;
    }
};

}  // namespace
}  // namespace mantissa::on_cpu
