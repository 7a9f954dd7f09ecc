// Vectors that compilers lower to any machine. They are handed on by reference:
// by value they would be passed differently by each instruction set.
#include "mantissa/device/cpu/modes/block_rounding.h"

#include <utility>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace mantissa::inline v0::on_cpu {
namespace {

// One register: longer vectors are lowered to loads and stores. No bit depends on their number.
#if defined(__AVX512F__)
constexpr int lanes = 16;
#elif defined(__AVX2__)
constexpr int lanes = 8;
#else
constexpr int lanes = 4;
#endif
typedef float Floats __attribute__((vector_size(4 * lanes)));
typedef std::int32_t Ints __attribute__((vector_size(4 * lanes)));
typedef std::uint16_t Halves __attribute__((vector_size(2 * lanes)));
typedef std::uint32_t Words __attribute__((vector_size(4 * lanes)));
[[maybe_unused]] typedef std::uint64_t Longs __attribute__((vector_size(4 * lanes)));

using Scale = BlockRounding::Scale;

constexpr std::int32_t sign_bit = INT32_MIN, exponent_field = 0x7f800000, fraction_field = 0x007fffff;
constexpr int turned = 16;            // numbers of a Hadamard transform
constexpr int group = 64, words = 4;  // columns that one block of Philox a lane serves; its words

/// The first `count` numbers from `from`, zeros behind them.
template <class Vector>
[[gnu::always_inline]] inline void load_part(Vector& to, const void* from, int count) {
    if (count == lanes) {
        __builtin_memcpy(&to, from, sizeof to);
        return;
    }
    to = Vector{};
    __builtin_memcpy(&to, from, sizeof(Vector) / lanes * static_cast<unsigned>(count));
}

[[gnu::always_inline]] inline void load(Floats& to, const float* x, int count) { load_part(to, x, count); }
[[gnu::always_inline]] inline void load(Floats& to, const BF16* x, int count) {
    Halves halves;
    load_part(halves, x, count);
    to = reinterpret_cast<Floats>(__builtin_convertvector(halves, Words) << 16);
}

template <class X>
[[gnu::always_inline]] inline const X* numbers_of(const BlockRounding& p) {
    if constexpr (sizeof(X) == sizeof(float))
        return p.wide;
    else
        return p.x;
}

/// As bits: a maximum of whole numbers, of which infinities and NaN are the largest.
[[gnu::always_inline]] inline void raise(Ints& largest, const Floats& x) {
    const Ints size = reinterpret_cast<Ints>(x) & ~sign_bit;
    largest = size > largest ? size : largest;
}

[[gnu::always_inline]] inline std::int32_t largest_lane(const Ints& of) {
    std::int32_t most = 0;
    for (int i = 0; i < lanes; ++i) most = of[i] > most ? of[i] : most;
    return most;
}

/// Factors of a block's numbers before and after they are rounded. Powers of two are two factors each: one
/// alone could be subnormal or infinite.
struct Factors {
    Floats down[2] = {}, up[2] = {};
};
template <Scale rule>
constexpr int factors_of = rule == Scale::up || rule == Scale::floor ? 2 : 1;

[[gnu::always_inline]] inline void power_of_two(Floats& to, const Ints& exponent) {
    to = reinterpret_cast<Floats>((exponent + 127) << 23);
}

/// Adding and subtracting 1.5 x 2^23 units rounds to whole units, ties to even.
[[gnu::always_inline]] inline void to_grid(Floats& size, float max, float min_normal, float grid) {
    size = size < max ? size : Floats{} + max;
    Floats binade = reinterpret_cast<Floats>(reinterpret_cast<Ints>(size) & exponent_field);
    binade = binade > min_normal ? binade : Floats{} + min_normal;
    const Floats magic = binade * grid;
    size = (size + magic) - magic;
}

/// `e8m0_of` on whole numbers, or `two_level_scale`.
template <Scale rule>
[[gnu::always_inline]] inline void set_factors(const BlockRounding& p, const Ints& largest,
                                               Factors& factors) {
    const Ints exponent = largest >> 23;
    if constexpr (rule == Scale::two_level) {
        const Ints flushed = exponent == 0 ? Ints{} : largest;
        Floats decode = reinterpret_cast<Floats>(flushed) * (p.tensor_scale * (1.0f / 6.0f));
        to_grid(decode, 448.0f, 0x1p-6f, 0x1.8p20f);
        const Floats encode = 1.0f / (decode * (1.0f / p.tensor_scale));
        constexpr float most = 0x1.fffffep127f;
        factors.down[0] = encode < most ? encode : Floats{} + most;
        factors.up[0] = decode;
    } else if constexpr (rule == Scale::tensor) {
        factors.down[0] = Floats{} + p.tensor_scale;
    } else {
        const Floats fraction = reinterpret_cast<Floats>((largest & fraction_field) | 0x3f800000);
        const Ints share = reinterpret_cast<Ints>(fraction * (1.0f / p.max));
        Ints code = rule == Scale::floor ? exponent - p.max_exponent
                                         : exponent - 127 + ((share + fraction_field) >> 23);
        code = (exponent == 0) | (code < 0) ? Ints{} : code;
        code = code > 254 ? Ints{} + 254 : code;
        const Ints half = (code - 127) >> 1, rest = code - 127 - half;
        power_of_two(factors.down[0], -half);
        power_of_two(factors.down[1], -rest);
        power_of_two(factors.up[0], half);
        power_of_two(factors.up[1], rest);
    }
    if constexpr (rule != Scale::tensor) {
        const Ints nan = Ints{} + 0x7fc00000;
        Floats& last = factors.up[factors_of<rule> - 1];
        last = largest >= exponent_field ? reinterpret_cast<Floats>(nan) : last;
    }
}

/// Up with the probability of the distance from the lower value, by the upper 24 bits.
[[gnu::always_inline]] inline void to_grid_at_random(const BlockRounding& p, Floats& size,
                                                     const Words& random) {
    size = size < p.max ? size : Floats{} + p.max;
    Floats binade = reinterpret_cast<Floats>(reinterpret_cast<Ints>(size) & exponent_field);
    binade = binade > p.min_normal ? binade : Floats{} + p.min_normal;
    const Ints unit = reinterpret_cast<Ints>(binade) - (p.fraction_bits << 23);
    const Floats units = size * reinterpret_cast<Floats>((254 << 23) - unit);
    const Floats whole = __builtin_convertvector(__builtin_convertvector(units, Ints), Floats);
    const Floats draw = __builtin_convertvector(reinterpret_cast<Ints>(random >> 8), Floats) * 0x1p-24f;
    const Floats up = draw < units - whole ? Floats{} + 1.0f : Floats{};
    size = (whole + up) * reinterpret_cast<Floats>(unit);
}

template <Scale rule, bool random>
[[gnu::always_inline]] inline void store_rounded(const BlockRounding& p, const Floats& x,
                                                 const Factors& factors, const Words& bits, BF16* y,
                                                 int count) {
    Floats scaled = x * factors.down[0];
    if constexpr (factors_of<rule> == 2) scaled *= factors.down[1];
    const Ints sign = reinterpret_cast<Ints>(x) & sign_bit;
    Floats value = reinterpret_cast<Floats>(reinterpret_cast<Ints>(scaled) & ~sign_bit);
    if constexpr (random)
        to_grid_at_random(p, value, bits);
    else
        to_grid(value, p.max, p.min_normal, p.to_grid);
    if constexpr (rule != Scale::tensor) value *= factors.up[0];
    if constexpr (factors_of<rule> == 2) value *= factors.up[1];
    const Words stored = reinterpret_cast<Words>(reinterpret_cast<Ints>(value) | sign);
    const Halves rounded = __builtin_convertvector(stored >> 16, Halves);
    if (count == lanes)
        __builtin_memcpy(y, &rounded, sizeof rounded);
    else
        __builtin_memcpy(y, &rounded, sizeof(BF16) * static_cast<unsigned>(count));
}

/// The upper and lower halves of products of 32-bit lanes with a number.
[[gnu::always_inline]] inline void multiply_wide(const Words& a, std::uint32_t by, Words& high, Words& low) {
    low = a * by;
#if defined(__AVX512F__)
    const __m512i m = _mm512_set1_epi32(static_cast<int>(by));
    const Longs even = reinterpret_cast<Longs>(_mm512_maskz_mul_epu32(0xff, reinterpret_cast<__m512i>(a), m));
    const Longs odd = reinterpret_cast<Longs>(
        _mm512_maskz_mul_epu32(0xff, reinterpret_cast<__m512i>(reinterpret_cast<Longs>(a) >> 32), m));
    high = reinterpret_cast<Words>((even >> 32) | (odd & 0xffffffff00000000u));
#elif defined(__AVX2__)
    const __m256i m = _mm256_set1_epi32(static_cast<int>(by));
    const Longs even = reinterpret_cast<Longs>(_mm256_mul_epu32(reinterpret_cast<__m256i>(a), m));
    const Longs odd = reinterpret_cast<Longs>(
        _mm256_mul_epu32(reinterpret_cast<__m256i>(reinterpret_cast<Longs>(a) >> 32), m));
    high = reinterpret_cast<Words>((even >> 32) | (odd & 0xffffffff00000000u));
#else
    for (int i = 0; i < lanes; ++i) high[i] = static_cast<std::uint32_t>((std::uint64_t{a[i]} * by) >> 32);
#endif
}

/// Random bits of 64 columns of a row: `rounding_bits`, of a block of Philox a lane the four words.
void draw_group(const BlockRounding& p, std::int64_t row, std::int64_t column, std::uint32_t* to) {
    const std::int64_t columns = p.inner == 1 ? p.depth : p.inner;
    const std::int64_t first = (row * ((columns + group - 1) / group) + column / group) * 16;
    static constexpr std::uint32_t counting[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    for (int part = 0; part < 16; part += lanes) {
        // The first is a multiple of 16: no lane carries.
        Words counted, c[words];
        __builtin_memcpy(&counted, counting + part, sizeof counted);
        c[0] = counted + static_cast<std::uint32_t>(first);
        c[1] = Words{} + static_cast<std::uint32_t>(static_cast<std::uint64_t>(first) >> 32);
        c[2] = Words{} + p.operation;
        c[3] = Words{} + p.step;
        std::uint32_t key[2] = {p.key[0], p.key[1]};
        for (int round = 0; round < 10; ++round) {
            Words high0, low0, high1, low1;
            multiply_wide(c[0], 0xd2511f53u, high0, low0);
            multiply_wide(c[2], 0xcd9e8d57u, high1, low1);
            c[0] = high1 ^ c[1] ^ key[0];
            c[1] = low1;
            c[2] = high0 ^ c[3] ^ key[1];
            c[3] = low0;
            key[0] += 0x9e3779b9u;
            key[1] += 0xbb67ae85u;
        }
        for (int word = 0; word < words; ++word)
            __builtin_memcpy(to + word * 16 + part, &c[word], sizeof(Words));
    }
}

/// `hadamard` of numerics/short_formats.h in each lane.
[[gnu::always_inline]] inline void turn(Floats (&x)[turned]) {
    constexpr bool negative[turned] = {false, false, false, true,  false, true,  true, true,
                                       true,  true,  true,  false, true,  false, true, true};
    for (int i = 0; i < turned; ++i)
        if (negative[i]) x[i] = -x[i];
    for (int half = 1; half < turned; half *= 2)
        for (int i = 0; i < turned; ++i) {
            if (i & half) continue;
            const Floats a = x[i], b = x[i + half];
            x[i] = a + b;
            x[i + half] = a - b;
        }
    for (int i = 0; i < turned; ++i) {
        // To BF16, ties to even; a NaN stays one.
        const Floats quarter = x[i] * 0.25f;
        const Words bits = reinterpret_cast<Words>(quarter);
        const Words rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u;
        x[i] = quarter == quarter ? reinterpret_cast<Floats>(rounded) : quarter;
    }
}

[[gnu::always_inline]] inline int part(std::int64_t rest) {
    return rest < lanes ? static_cast<int>(rest) : lanes;
}

[[gnu::always_inline]] inline bool lies_along(const BlockRounding& p) { return p.inner == 1 && !p.square; }

/// A block across lines: its first number in the first of the columns, and how many rows it has.
struct Place {
    std::int64_t line, first, rows;
};

[[gnu::always_inline]] inline void place_of(const BlockRounding& p, std::int64_t strip, Place& place) {
    const std::int64_t blocks = (p.depth + p.block - 1) / p.block;
    place.line = strip / blocks * p.depth;
    place.first = strip % blocks * p.block;
    place.rows = p.block < p.depth - place.first ? p.block : p.depth - place.first;
}

/// The numbers of up to 16 rows, turned.
template <class X>
[[gnu::always_inline]] inline void load_turned(const X* x, std::int64_t stride, int count,
                                               Floats (&to)[turned]) {
    for (int k = 0; k < turned; ++k) load(to[k], x + k * stride, count);
    turn(to);
}

/// One vector of columns of a block across lines: each lane has a block of its own.
template <class X, Scale rule, bool random>
[[gnu::always_inline]] inline void round_columns(const BlockRounding& p, const Place& place, std::int64_t c,
                                                 int count, const std::uint32_t* draws) {
    const std::int64_t start = (place.line + place.first) * p.inner + c;
    const X* const x = numbers_of<X>(p) + start;
    const bool turns = rule == Scale::two_level && p.hadamard && place.rows == turned;
    Ints largest{};
    Floats rows[turned], number;
    Factors factors;
    Words bits{};
    if constexpr (rule == Scale::two_level)
        if (turns) {
            load_turned(x, p.inner, count, rows);
            for (int k = 0; k < turned; ++k) raise(largest, rows[k]);
        }
    if (rule != Scale::tensor && !turns)
        for (std::int64_t k = 0; k < place.rows; ++k) {
            load(number, x + k * p.inner, count);
            raise(largest, number);
        }
    set_factors<rule>(p, largest, factors);
    for (std::int64_t k = 0; k < place.rows; ++k) {
        if (turns)
            number = rows[k];
        else
            load(number, x + k * p.inner, count);
        if constexpr (random) __builtin_memcpy(&bits, draws + k * group, sizeof bits);
        store_rounded<rule, random>(p, number, factors, bits, p.y + start + k * p.inner, count);
    }
}

template <class X, Scale rule, bool random>
void round_across(const BlockRounding& p, std::int64_t strip) {
    Place place;
    place_of(p, strip, place);
    std::uint32_t draws[random ? turned * group : 1];
    for (std::int64_t c = 0; c < p.inner; c += lanes) {
        if constexpr (random)
            if (c % group == 0)
                for (std::int64_t k = 0; k < place.rows; ++k)
                    draw_group(p, place.line + place.first + k, c, draws + k * group);
        if (p.inner - c >= lanes)
            round_columns<X, rule, random>(p, place, c, lanes, random ? draws + c % group : draws);
        else
            round_columns<X, rule, random>(p, place, c, part(p.inner - c),
                                           random ? draws + c % group : draws);
    }
}

/// Square blocks: a strip is a row of them.
template <class X, Scale rule>
void round_square(const BlockRounding& p, std::int64_t strip) {
    Place place;
    place_of(p, strip, place);
    for (std::int64_t from = 0; from < p.inner; from += p.block) {
        const std::int64_t to = from + p.block < p.inner ? from + p.block : p.inner;
        Ints largest{};
        Floats x;
        Factors factors;
        for (std::int64_t k = 0; k < place.rows; ++k)
            for (std::int64_t c = from; c < to; c += lanes) {
                load(x, numbers_of<X>(p) + (place.first + k) * p.inner + c, part(to - c));
                raise(largest, x);
            }
        set_factors<rule>(p, Ints{} + largest_lane(largest), factors);
        for (std::int64_t k = 0; k < place.rows; ++k)
            for (std::int64_t c = from; c < to; c += lanes) {
                const std::int64_t at = (place.first + k) * p.inner + c;
                load(x, numbers_of<X>(p) + at, part(to - c));
                store_rounded<rule, false>(p, x, factors, Words{}, p.y + at, part(to - c));
            }
    }
}

/// Numbers of a block along a line, turned where it is whole.
template <class X>
void load_line(const X* x, std::int64_t count, bool turns, float* to) {
    for (std::int64_t k = 0; k < count; k += lanes) {
        Floats number;
        load(number, x + k, part(count - k));
        __builtin_memcpy(to + k, &number, sizeof(float) * static_cast<unsigned>(part(count - k)));
    }
    if (!turns || count != turned) return;
    Floats numbers[turned];
    for (int k = 0; k < turned; ++k) numbers[k] = Floats{} + to[k];
    turn(numbers);
    for (int k = 0; k < turned; ++k) to[k] = numbers[k][0];
}

/// The largest of lane b is that of vectors[b]: halves of lanes are joined until one is left.
template <int width, int... i>
[[gnu::always_inline]] inline void join_largest(Ints (&vectors)[lanes], std::integer_sequence<int, i...>) {
    for (int v = 0; v < lanes / width; v += 2) {
        const Ints &a = vectors[v], &b = vectors[v + 1];
        const Ints low = __builtin_shufflevector(a, b, (i / width % 2 == 0 ? i : lanes + i - width)...);
        const Ints high = __builtin_shufflevector(a, b, (i / width % 2 == 0 ? i + width : lanes + i)...);
        vectors[v / 2] = low > high ? low : high;
    }
    if constexpr (2 * width < lanes) join_largest<2 * width>(vectors, std::integer_sequence<int, i...>{});
}

/// Blocks along a line: all lanes have one. The scales of some blocks are made at once.
template <class X, Scale rule, bool random>
void round_along(const BlockRounding& p, std::int64_t line) {
    const std::int64_t begin = line * p.depth, at_once = lanes * p.block;
    const X* const x = numbers_of<X>(p) + begin;
    const bool turns = rule == Scale::two_level && p.hadamard;
    float turned_line[lanes * turned];
    std::uint32_t draws[group];
    for (std::int64_t g = 0; g < p.depth; g += at_once) {
        Ints of_blocks[lanes] = {};
        Floats number;
        for (int b = 0; rule != Scale::tensor && b < lanes && g + b * p.block < p.depth; ++b) {
            const std::int64_t first = g + b * p.block;
            const std::int64_t last = first + p.block < p.depth ? first + p.block : p.depth;
            if (turns) load_line(x + first, last - first, true, turned_line + b * turned);
            for (std::int64_t k = first; k < last; k += lanes) {
                if (turns)
                    load(number, turned_line + b * turned + (k - first), part(last - k));
                else
                    load(number, x + k, part(last - k));
                raise(of_blocks[b], number);
            }
        }
        join_largest<1>(of_blocks, std::make_integer_sequence<int, lanes>{});
        Factors all;
        set_factors<rule>(p, of_blocks[0], all);
        for (int b = 0; b < lanes && g + b * p.block < p.depth; ++b) {
            Factors factors;
            for (int half = 0; half < factors_of<rule>; ++half) {
                factors.down[half] = Floats{} + all.down[half][b];
                factors.up[half] = Floats{} + all.up[half][b];
            }
            const std::int64_t first = g + b * p.block;
            const std::int64_t last = first + p.block < p.depth ? first + p.block : p.depth;
            for (std::int64_t k = first; k < last; k += lanes) {
                Words bits{};
                if constexpr (random) {
                    if (k % group == 0) draw_group(p, line, k, draws);
                    __builtin_memcpy(&bits, draws + k % group, sizeof bits);
                }
                if (turns)
                    load(number, turned_line + b * turned + (k - first), part(last - k));
                else
                    load(number, x + k, part(last - k));
                store_rounded<rule, random>(p, number, factors, bits, p.y + begin + k, part(last - k));
            }
        }
    }
}

template <class X, Scale rule, bool random>
void round_strip(const BlockRounding& p, std::int64_t strip) {
    if constexpr (!random)
        if (p.square) return round_square<X, rule>(p, strip);
    lies_along(p) ? round_along<X, rule, random>(p, strip) : round_across<X, rule, random>(p, strip);
}

template <class X>
void round_strip(const BlockRounding& p, std::int64_t strip) {
    switch (p.rule) {
        case Scale::up:
            return round_strip<X, Scale::up, false>(p, strip);
        case Scale::floor:
            return round_strip<X, Scale::floor, false>(p, strip);
        case Scale::tensor:
            return round_strip<X, Scale::tensor, false>(p, strip);
        case Scale::two_level:
            break;
    }
    p.random ? round_strip<X, Scale::two_level, true>(p, strip)
             : round_strip<X, Scale::two_level, false>(p, strip);
}

/// Numbers that lie together, whatever their blocks.
template <class X>
void raise_over(const BlockRounding& p, std::int64_t begin, std::int64_t count, Ints& largest) {
    const X* const x = numbers_of<X>(p) + begin;
    Ints of[4] = {};
    Floats number;
    std::int64_t k = 0;
    for (; k + 4 * lanes <= count; k += 4 * lanes)
        for (int i = 0; i < 4; ++i) {
            load(number, x + k + i * lanes, lanes);
            raise(of[i], number);
        }
    for (; k < count; k += lanes) {
        load(number, x + k, part(count - k));
        raise(of[0], number);
    }
    for (const Ints& each : of) largest = each > largest ? each : largest;
}

template <class X>
void raise_strip(const BlockRounding& p, std::int64_t strip, Ints& largest) {
    const bool along = lies_along(p);
    Place place;
    if (along)
        place = {strip * p.depth, 0, p.depth};
    else
        place_of(p, strip, place);
    const std::int64_t start = (place.line + place.first) * p.inner;
    if (!p.hadamard || (!along && place.rows != turned))
        return raise_over<X>(p, start, place.rows * p.inner, largest);
    const X* const x = numbers_of<X>(p) + start;
    if (along) {
        float numbers[turned];
        for (std::int64_t k = 0; k < p.depth; k += turned) {
            const std::int64_t count = turned < p.depth - k ? turned : p.depth - k;
            load_line(x + k, count, true, numbers);
            for (int i = 0; i < count; ++i) raise(largest, Floats{} + numbers[i]);
        }
        return;
    }
    Floats rows[turned];
    for (std::int64_t c = 0; c < p.inner; c += lanes) {
        load_turned(x + c, p.inner, part(p.inner - c), rows);
        for (int k = 0; k < turned; ++k) raise(largest, rows[k]);
    }
}

}  // namespace

void MANTISSA_OF_LEVEL(round_strips)(const BlockRounding& p, std::int64_t first, std::int64_t last) {
    for (std::int64_t strip = first; strip < last; ++strip)
        p.wide ? round_strip<float>(p, strip) : round_strip<BF16>(p, strip);
}

std::int32_t MANTISSA_OF_LEVEL(largest_of_strips)(const BlockRounding& p, std::int64_t first,
                                                  std::int64_t last) {
    Ints largest{};
    for (std::int64_t strip = first; strip < last; ++strip)
        p.wide ? raise_strip<float>(p, strip, largest) : raise_strip<BF16>(p, strip, largest);
    return largest_lane(largest);
}

}  // namespace mantissa::on_cpu
