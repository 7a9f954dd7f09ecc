// Bits: logic, shifts, fields, permutations.
#pragma once

#include "tests/emulated_gpu/lane_integers_body.h"

namespace mantissa::inline v0::cuda::ptx {

namespace {

struct And {
    template <class T>
    static T of(T a, T b) {
        return a & b;
    }
};
struct Or {
    template <class T>
    static T of(T a, T b) {
        return a | b;
    }
};
struct Xor {
    template <class T>
    static T of(T a, T b) {
        return a ^ b;
    }
};
struct Not {
    template <class T>
    static T of(T a) {
        return static_cast<T>(~a);
    }
};
struct LogicalNot {
    template <class T>
    static T of(T a) {
        return a == 0;
    }
};
struct Copy {
    template <class T>
    static T of(T a) {
        return a;
    }
};
struct ShiftLeft {
    template <class T>
    static T of(T a, u32 by) {
        return by >= u32(bits_of<T>) ? T{0} : static_cast<T>(a << by);
    }
};
struct ShiftRight {
    template <class T>
    static T of(T a, u32 by) {
        if (by < u32(bits_of<T>)) return static_cast<T>(a >> by);
        return std::is_signed_v<T> && a < 0 ? static_cast<T>(-1) : T{0};
    }
};
struct FunnelLeftWrapped {
    static u32 of(u32 low, u32 high, u32 by) { return u32(((u64{high} << 32 | low) << (by & 31)) >> 32); }
};
struct FunnelRightWrapped {
    static u32 of(u32 low, u32 high, u32 by) { return u32((u64{high} << 32 | low) >> (by & 31)); }
};
struct FunnelLeftClamped {
    static u32 of(u32 low, u32 high, u32 by) { return by >= 32 ? low : FunnelLeftWrapped::of(low, high, by); }
};
struct FunnelRightClamped {
    static u32 of(u32 low, u32 high, u32 by) {
        return by >= 32 ? high : FunnelRightWrapped::of(low, high, by);
    }
};
struct ExtractBits {
    template <class T>
    static T of(T a, u32 position, u32 length) {
        const u32 start = position & 255, count = length & 255;
        if (count == 0) return 0;
        const u32 last = start + count - 1 < u32(bits_of<T>) - 1 ? start + count - 1 : u32(bits_of<T>) - 1;
        const bool sign = std::is_signed_v<T> && (static_cast<u64>(a) >> last & 1) != 0;
        const u64 kept = start < 64 ? static_cast<u64>(static_cast<Unsigned<T>>(a)) >> start : 0;
        const u64 mask = count < 64 ? (u64{1} << count) - 1 : ~u64{0};
        const u32 there = start <= last ? last - start + 1 : 0;  // bits that the number has from there on
        const u64 fill = sign ? (there < 64 ? ~u64{0} << there : 0) : 0;
        return static_cast<T>((kept & mask) | fill);
    }
};
struct ReverseBits {
    template <class T>
    static T of(T a) {
        T out = 0;
        for (int i = 0; i < bits_of<T>; ++i) out = static_cast<T>(out << 1 | (a >> i & 1));
        return out;
    }
};
struct CountOnes {
    template <class T>
    static u32 of(T a) {
        return static_cast<u32>(std::popcount(a));
    }
};
struct LeadingZeros {
    template <class T>
    static u32 of(T a) {
        return static_cast<u32>(std::countl_zero(a));
    }
};
/// The highest bit that differs from the sign; all ones if there is none.
struct HighestBit {
    template <class T>
    static u32 of(T a) {
        auto bits = static_cast<Unsigned<T>>(a);
        if (std::is_signed_v<T> && a < 0) bits = static_cast<Unsigned<T>>(~bits);
        return bits == 0 ? ~u32{0} : u32(bits_of<T> - 1 - std::countl_zero(bits));
    }
};
/// Any function of three bits: bit (a, b, c) of the instruction's table.
template <class T>
void lop3(std::byte* d, const Sources& s) {
    const Lanes<T> a(s.a), b(s.b), c(s.c);
    T out[warp_lanes] = {};
    for (int bit = 0; bit < 8; ++bit) {
        if ((s.number >> bit & 1) == 0) continue;
        const T x = bit & 4 ? T{0} : static_cast<T>(~T{0}), y = bit & 2 ? T{0} : static_cast<T>(~T{0}),
                z = bit & 1 ? T{0} : static_cast<T>(~T{0});
        for (int i = 0; i < warp_lanes; ++i) out[i] |= (a.of[i] ^ x) & (b.of[i] ^ y) & (c.of[i] ^ z);
    }
    std::memcpy(d, out, sizeof out);
}

template <class T>
void insert_bits(std::byte* d, const Sources& s) {
    const Lanes<T> a(s.a), b(s.b);
    const Lanes<u32> position(s.c), length(s.e);
    T out[warp_lanes];
    for (int i = 0; i < warp_lanes; ++i) {
        const u32 start = position.of[i] & 255, count = length.of[i] & 255;
        const T ones = count >= u32(bits_of<T>) ? static_cast<T>(~T{0}) : static_cast<T>((T{1} << count) - 1);
        const T mask = start < u32(bits_of<T>) ? static_cast<T>(ones << start) : T{0};
        const T moved = start < u32(bits_of<T>) ? static_cast<T>(a.of[i] << start) : T{0};
        out[i] = static_cast<T>((b.of[i] & ~mask) | (moved & mask));
    }
    std::memcpy(d, out, sizeof out);
}

/// The byte of the eight that a nibble names; its highest bit spreads that byte's sign.
inline u32 permuted_byte(u64 both, u32 nibble) {
    const u32 byte = u32(both >> (8 * (nibble & 7))) & 255;
    return nibble & 8 ? (byte & 128 ? 255 : 0) : byte;
}

template <int mode>  // 0: by nibbles; f4e, b4e, rc8, ecl, ecr, rc16 in order
void permute(std::byte* d, const Sources& s) {
    const Lanes<u32> a(s.a), b(s.b), c(s.c);
    u32 out[warp_lanes];
    for (int i = 0; i < warp_lanes; ++i) {
        const u64 both = u64{b.of[i]} << 32 | a.of[i];
        const u32 which = c.of[i] & 3;
        u32 result = 0;
        for (u32 byte = 0; byte < 4; ++byte) {
            u32 from = 0;
            if constexpr (mode == 0) from = c.of[i] >> (4 * byte) & 15;
            if constexpr (mode == 1) from = which + byte;
            if constexpr (mode == 2) from = (which - byte) & 7;
            if constexpr (mode == 3) from = which;
            if constexpr (mode == 4) from = byte < which ? which : byte;
            if constexpr (mode == 5) from = byte < which ? byte : which;
            if constexpr (mode == 6) from = 2 * (which & 1) + (byte & 1);
            result |= permuted_byte(both, from) << (8 * byte);
        }
        out[i] = result;
    }
    std::memcpy(d, out, sizeof out);
}

inline void list_bits(const LaneSink& sink) {
    const auto each = [&]<class T>(const char* type, T) {
        sink.function(sink.to, "and", type, two<And, T, T, T>);
        sink.function(sink.to, "or", type, two<Or, T, T, T>);
        sink.function(sink.to, "xor", type, two<Xor, T, T, T>);
        sink.function(sink.to, "not", type, one<Not, T, T>);
        sink.function(sink.to, "cnot", type, one<LogicalNot, T, T>);
        sink.function(sink.to, "mov", type, one<Copy, T, T>);
        sink.function(sink.to, "shl", type, two<ShiftLeft, T, T, u32>);
        sink.function(sink.to, "shr", type, two<ShiftRight, T, T, u32>);
    };
    each("b16", u16{});
    each("b32", u32{});
    each("b64", u64{});
    const auto shifts = [&]<class T>(const char* type, T) {
        sink.function(sink.to, "shr", type, two<ShiftRight, T, T, u32>);
    };
    shifts("u16", u16{});
    shifts("u32", u32{});
    shifts("u64", u64{});
    shifts("s16", i16{});
    shifts("s32", i32{});
    shifts("s64", i64{});
    const auto fields = [&]<class T>(const char* type, T) {
        sink.function(sink.to, "bfe", type, three<ExtractBits, T, T, u32, u32>);
        sink.function(sink.to, "bfind", type, one<HighestBit, u32, T>);
    };
    fields("u32", u32{});
    fields("s32", i32{});
    fields("u64", u64{});
    fields("s64", i64{});
    const auto words = [&]<class T>(const char* type, T) {
        sink.function(sink.to, "brev", type, one<ReverseBits, T, T>);
        sink.function(sink.to, "popc", type, one<CountOnes, u32, T>);
        sink.function(sink.to, "clz", type, one<LeadingZeros, u32, T>);
        sink.function(sink.to, "bfi", type, insert_bits<T>);
    };
    words("b32", u32{});
    words("b64", u64{});
    sink.function(sink.to, "lop3", "b32", lop3<u32>);
    sink.function(sink.to, "shf.l.wrap", "b32", three<FunnelLeftWrapped, u32, u32, u32, u32>);
    sink.function(sink.to, "shf.r.wrap", "b32", three<FunnelRightWrapped, u32, u32, u32, u32>);
    sink.function(sink.to, "shf.l.clamp", "b32", three<FunnelLeftClamped, u32, u32, u32, u32>);
    sink.function(sink.to, "shf.r.clamp", "b32", three<FunnelRightClamped, u32, u32, u32, u32>);
    sink.function(sink.to, "prmt", "b32", permute<0>);
    sink.function(sink.to, "prmt.f4e", "b32", permute<1>);
    sink.function(sink.to, "prmt.b4e", "b32", permute<2>);
    sink.function(sink.to, "prmt.rc8", "b32", permute<3>);
    sink.function(sink.to, "prmt.ecl", "b32", permute<4>);
    sink.function(sink.to, "prmt.ecr", "b32", permute<5>);
    sink.function(sink.to, "prmt.rc16", "b32", permute<6>);
}

}  // namespace

}  // namespace mantissa::cuda::ptx
