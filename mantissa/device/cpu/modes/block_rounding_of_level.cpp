// Vectors that compilers lower to any machine. They are handed on by reference:
// by value they would be passed differently by each instruction set.
#include "mantissa/device/cpu/modes/block_rounding.h"

#include <type_traits>
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
typedef std::uint64_t Longs __attribute__((vector_size(4 * lanes)));

using Scale = BlockRounding::Scale;

constexpr std::int32_t sign_bit = INT32_MIN, exponent_field = 0x7f800000, fraction_field = 0x007fffff;
constexpr std::int32_t quiet_nan = 0x7fc00000, half_of_one = 1 << 22;
constexpr int turned = 16;                       // numbers of a Hadamard transform
constexpr int group = strip_columns, words = 4;  // of one block of Philox a lane
constexpr int longest = 128;                     // numbers of a block, at most
constexpr int beside = 4;                        // pairs of vectors of columns that are rounded together

/// A number of 16 bits in each lane, to the upper half of its lane and back. Compilers take longer ways.
[[gnu::always_inline]] inline void widen(Words& to, const BF16* from) {
#if defined(__AVX512F__)
    to = reinterpret_cast<Words>(
        _mm512_maskz_cvtepu16_epi32(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(from))));
#else
    Halves halves;
    __builtin_memcpy(&halves, from, sizeof halves);
    to = __builtin_convertvector(halves, Words);
#endif
    to <<= 16;
}
[[gnu::always_inline]] inline void narrow(BF16* to, const Words& from) {
#if defined(__AVX512F__)
    _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(to),
                        _mm512_maskz_cvtepi32_epi16(0xffff, reinterpret_cast<__m512i>(from >> 16)));
#else
    const Halves halves = __builtin_convertvector(from >> 16, Halves);
    __builtin_memcpy(to, &halves, sizeof halves);
#endif
}

/// Numbers that are rounded at once: one vector, or two. Of two vectors of BF16 the first has the even ones.
[[gnu::always_inline]] inline void load(Floats (&to)[1], const float* x) {
    __builtin_memcpy(&to, x, sizeof to);
}
[[gnu::always_inline]] inline void load(Floats (&to)[2], const float* x) {
    __builtin_memcpy(&to, x, sizeof to);
}
[[gnu::always_inline]] inline void load(Floats (&to)[1], const BF16* x) {
    Words upper;
    widen(upper, x);
    to[0] = reinterpret_cast<Floats>(upper);
}
[[gnu::always_inline]] inline void load(Floats (&to)[2], const BF16* x) {
    Words both;
    __builtin_memcpy(&both, x, sizeof both);
    to[0] = reinterpret_cast<Floats>(both << 16);
    to[1] = reinterpret_cast<Floats>(both & 0xffff0000u);
}

template <int... i>
[[gnu::always_inline]] inline void take_alternate(Words (&to)[2], const Words (&from)[2],
                                                  std::integer_sequence<int, i...>) {
    to[0] = __builtin_shufflevector(from[0], from[1], (2 * i)...);
    to[1] = __builtin_shufflevector(from[0], from[1], (2 * i + 1)...);
}

/// A random word for each number, in the order of `load`.
template <class X, int vectors>
[[gnu::always_inline]] inline void load_bits(Words (&to)[vectors], const std::uint32_t* bits) {
    if constexpr (vectors == 2 && sizeof(X) == 2) {
        Words from[2];
        __builtin_memcpy(&from, bits, sizeof from);
        take_alternate(to, from, std::make_integer_sequence<int, lanes>{});
    } else {
        __builtin_memcpy(&to, bits, sizeof to);
    }
}

/// BF16 holds the numbers: their lower halves are zero.
template <class X, int vectors>
[[gnu::always_inline]] inline void store(BF16* y, const Floats (&from)[vectors]) {
    if constexpr (vectors == 2 && sizeof(X) == 2) {
        const Words both = reinterpret_cast<Words>(from[1]) | (reinterpret_cast<Words>(from[0]) >> 16);
        __builtin_memcpy(y, &both, sizeof both);
        return;
    }
    for (int v = 0; v < vectors; ++v) narrow(y + v * lanes, reinterpret_cast<Words>(from[v]));
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

/// Scale, or grid, that the numbers of a lane share. They are rounded where they are, to a grid that a power
/// of two scales; factors before and after are those of other scales, and of powers of two that would leave
/// the range.
struct Share {
    Floats down = {}, up = {};
    Floats top = {};  ///< the largest value
    Ints least = {};  ///< below this number the grid is even
};

template <Scale rule>
constexpr bool is_power_of_two = rule == Scale::up || rule == Scale::floor;

[[gnu::always_inline]] inline void power_of_two(Floats& to, const Ints& exponent) {
    to = reinterpret_cast<Floats>((exponent + 127) << 23);
}

/// Adding and subtracting 1.5 x 2^23 units rounds to whole units, ties to even. `magic`: that, over 1.
[[gnu::always_inline]] inline void to_grid(Floats& size, const Floats& top, const Ints& least,
                                           std::int32_t magic) {
    size = size < top ? size : top;
    Ints binade = reinterpret_cast<Ints>(size) & exponent_field;
    binade = binade > least ? binade : least;
    // Words: an infinity's binade goes beyond whole numbers.
    const Floats whole =
        reinterpret_cast<Floats>(reinterpret_cast<Words>(binade) + static_cast<std::uint32_t>(magic));
    size = (size + whole) - whole;
}

/// `e8m0_of` on whole numbers, or `two_level_scale`. True where `down` and `up` are not 1 though scales are
/// powers of two.
template <Scale rule>
[[gnu::always_inline]] inline bool set_share(const BlockRounding& p, const Ints& largest, Share& share) {
    const Ints exponent = largest >> 23;
    const Floats nan = reinterpret_cast<Floats>(Ints{} + quiet_nan);
    share.top = Floats{} + p.max;
    share.least = reinterpret_cast<Ints>(Floats{} + p.min_normal);
    if constexpr (rule == Scale::tensor) {
        share.down = Floats{} + p.tensor_scale;
        return false;
    } else if constexpr (rule == Scale::two_level) {
        const Ints flushed = exponent == 0 ? Ints{} : largest;
        Floats decode = reinterpret_cast<Floats>(flushed) * (p.tensor_scale * (1.0f / 6.0f));
        to_grid(decode, Floats{} + 448.0f, reinterpret_cast<Ints>(Floats{} + 0x1p-6f),
                (20 << 23) + half_of_one);
        const Floats encode = 1.0f / (decode * (1.0f / p.tensor_scale));
        constexpr float most = 0x1.fffffep127f;
        share.down = encode < most ? encode : Floats{} + most;
        share.up = largest >= exponent_field ? nan : decode;
        return false;
    } else {
        const Floats fraction = reinterpret_cast<Floats>((largest & fraction_field) | 0x3f800000);
        const Ints part = reinterpret_cast<Ints>(fraction * (1.0f / p.max));
        Ints code = rule == Scale::floor ? exponent - p.max_exponent
                                         : exponent - 127 + ((part + fraction_field) >> 23);
        code = code < 0 ? Ints{} : code;
        code = code > 254 ? Ints{} + 254 : code;
        code = exponent == 0 ? Ints{} + 127 : code;  // zeros
        // Far from 1 the grid would leave the range: numbers are brought nearer first.
        const Ints shift = (exponent > 0) & (exponent < 63) ? Ints{} + 64
                           : exponent > 191                 ? Ints{} - 64
                                                            : Ints{};
        const Ints scale = (code - 127 + shift) << 23;
        share.least += scale;
        share.top = reinterpret_cast<Floats>(reinterpret_cast<Ints>(share.top) + scale);
        share.top = largest >= exponent_field ? nan : share.top;
        power_of_two(share.down, shift);
        power_of_two(share.up, -shift);
        return largest_lane(shift & 64) != 0;
    }
}

/// Up with the probability of the distance from the lower value, by the upper 24 bits.
[[gnu::always_inline]] inline void to_grid_at_random(const BlockRounding& p, Floats& size, const Share& share,
                                                     const Words& random) {
    size = size < share.top ? size : share.top;
    Ints binade = reinterpret_cast<Ints>(size) & exponent_field;
    binade = binade > share.least ? binade : share.least;
    const Ints unit = binade - (p.fraction_bits << 23);
    const Floats units = size * reinterpret_cast<Floats>((254 << 23) - unit);
    const Floats whole = __builtin_convertvector(__builtin_convertvector(units, Ints), Floats);
    const Floats draw = __builtin_convertvector(reinterpret_cast<Ints>(random >> 8), Floats) * 0x1p-24f;
    const Floats up = draw < units - whole ? Floats{} + 1.0f : Floats{};
    size = (whole + up) * reinterpret_cast<Floats>(unit);
}

/// `shifts`: scales that are powers of two have factors, too.
template <Scale rule, bool random, bool shifts>
[[gnu::always_inline]] inline void round(const BlockRounding& p, Floats& x, const Share& share,
                                         const Words& bits) {
    const Ints sign = reinterpret_cast<Ints>(x) & sign_bit;
    if constexpr (!is_power_of_two<rule> || shifts) x *= share.down;
    x = reinterpret_cast<Floats>(reinterpret_cast<Ints>(x) & ~sign_bit);
    if constexpr (random)
        to_grid_at_random(p, x, share, bits);
    else
        to_grid(x, share.top, share.least, p.magic);
    if constexpr (rule == Scale::two_level || shifts) x *= share.up;
    x = reinterpret_cast<Floats>(reinterpret_cast<Ints>(x) | sign);
}

/// Products of 32 bits with a number, in 64-bit lanes whose upper halves mean nothing.
[[gnu::always_inline]] inline void multiply_wide(Longs& product, const Longs& a, std::uint32_t by) {
#if defined(__AVX512F__)
    product = reinterpret_cast<Longs>(
        _mm512_maskz_mul_epu32(0xff, reinterpret_cast<__m512i>(a), _mm512_set1_epi32(static_cast<int>(by))));
#elif defined(__AVX2__)
    product = reinterpret_cast<Longs>(
        _mm256_mul_epu32(reinterpret_cast<__m256i>(a), _mm256_set1_epi32(static_cast<int>(by))));
#else
    product = (a & 0xffffffffu) * std::uint64_t{by};
#endif
}

/// Random bits of 64 columns of a row, from column/64 on: `rounding_bits`, of a block of Philox a lane the
/// four words. Even and odd blocks apart, so that products have room.
void draw_group(const BlockRounding& p, std::int64_t row, std::int64_t column, std::uint32_t* to) {
    const std::int64_t columns = p.inner == 1 ? p.depth : p.inner;
    const std::int64_t first = (row * ((columns + group - 1) / group) + column / group) * 16;
    static constexpr std::uint64_t counting[16] = {0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15};
    for (int part = 0; part < 16; part += lanes) {
        Longs c[2][words];
        for (int odd : {0, 1}) {
            // The first is a multiple of 16: no lane carries.
            __builtin_memcpy(&c[odd][0], counting + part / 2 + 8 * odd, sizeof(Longs));
            c[odd][0] += static_cast<std::uint64_t>(first) & 0xffffffffu;
            c[odd][1] = Longs{} + (static_cast<std::uint64_t>(first) >> 32);
            c[odd][2] = Longs{} + p.operation;
            c[odd][3] = Longs{} + p.step;
        }
        std::uint32_t key[2] = {p.key[0], p.key[1]};
        for (int round = 0; round < 10; ++round) {
            for (Longs(&of)[words] : c) {
                Longs a, b;
                multiply_wide(a, of[0], 0xd2511f53u);
                multiply_wide(b, of[2], 0xcd9e8d57u);
                of[0] = (b >> 32) ^ of[1] ^ std::uint64_t{key[0]};
                of[1] = b;
                of[2] = (a >> 32) ^ of[3] ^ std::uint64_t{key[1]};
                of[3] = a;
            }
            key[0] += 0x9e3779b9u;
            key[1] += 0xbb67ae85u;
        }
        for (int word = 0; word < words; ++word) {
            const Longs all = (c[0][word] & 0xffffffffu) | (c[1][word] << 32);
            __builtin_memcpy(to + word * 16 + part, &all, sizeof all);
        }
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

/// 16 numbers that lie together.
void turn_alone(float* numbers) {
    Floats each[turned];
    for (int k = 0; k < turned; ++k) each[k] = Floats{} + numbers[k];
    turn(each);
    for (int k = 0; k < turned; ++k) numbers[k] = each[k][0];
}

/// A pair of vectors of 16 rows, turned.
template <class X>
void load_turned(const X* x, std::int64_t stride, Floats (&to)[turned][2]) {
    for (int k = 0; k < turned; ++k) load(to[k], x + k * stride);
    for (int v = 0; v < 2; ++v) {
        Floats column[turned];
        for (int k = 0; k < turned; ++k) column[k] = to[k][v];
        turn(column);
        for (int k = 0; k < turned; ++k) to[k][v] = column[k];
    }
}

[[gnu::always_inline]] inline bool lies_along(const BlockRounding& p) { return p.inner == 1 && !p.square; }

/// A strip: where its first line begins, the strip's first row from there on, and how many rows it has;
/// across the depth, its columns [column, end).
struct Place {
    std::int64_t line, first, rows, column, end;
};

[[gnu::always_inline]] inline void place_of(const BlockRounding& p, std::int64_t strip, Place& place) {
    if (lies_along(p)) {
        place = {strip * p.depth, 0, 1, 0, p.depth};
        return;
    }
    const std::int64_t parts = (p.inner + p.strip - 1) / p.strip;
    place.column = strip % parts * p.strip;
    place.end = place.column + p.strip < p.inner ? place.column + p.strip : p.inner;
    strip /= parts;
    const std::int64_t blocks = (p.depth + p.block - 1) / p.block;
    place.line = strip / blocks * p.depth * p.inner;
    place.first = strip % blocks * p.block;
    place.rows = p.block < p.depth - place.first ? p.block : p.depth - place.first;
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

/// Numbers of blocks that lie as `from` points at the first of them, with a random word for each.
template <class X>
struct Blocks {
    const X* from = nullptr;
    BF16* to = nullptr;
    std::int64_t stride = 0, to_stride = 0;  ///< of rows
    const std::uint32_t* bits = nullptr;
    std::int64_t rows = 1, columns = 0;  ///< of a block
    int count = 1;                       ///< of blocks, one behind another
};

/// A copy of numbers that are no whole number of vectors, zeros behind each row, and where they are rounded
/// to.
struct Padded {
    float from[longest * longest];
    BF16 to[longest * longest];
    std::uint32_t bits[longest];

    template <class X>
    void read(const X* x, std::int64_t stride, std::int64_t rows, std::int64_t columns, std::int64_t width) {
        for (std::int64_t k = 0; k < rows; ++k)
            for (std::int64_t c = 0; c < width; ++c) {
                // The upper half of a number, if it is BF16.
                char number[sizeof(float)] = {};
                if (c < columns)
                    __builtin_memcpy(number + sizeof(float) - sizeof(X), x + k * stride + c, sizeof(X));
                __builtin_memcpy(from + k * width + c, number, sizeof number);
            }
    }
    void write(BF16* y, std::int64_t stride, std::int64_t rows, std::int64_t columns,
               std::int64_t width) const {
        for (std::int64_t k = 0; k < rows; ++k)
            __builtin_memcpy(y + k * stride, to + k * width,
                             sizeof(BF16) * static_cast<std::size_t>(columns));
    }
};

/// Blocks that lie along lines, as many as lanes at most, each a whole number of `vectors`: their scales are
/// made at once, and all lanes have one.
template <class X, Scale rule, bool random, bool shifts, int vectors>
[[gnu::always_inline]] inline void write_along(const BlockRounding& p, const Blocks<X>& of,
                                               const Share& all) {
    struct {
        float down[lanes], up[lanes], top[lanes];
        std::int32_t least[lanes];
    } share;
    __builtin_memcpy(&share, &all, sizeof share);
    for (std::int64_t row = 0; row < of.rows; ++row)
        for (int b = 0; b < of.count; ++b) {
            Share one = all;
            if constexpr (!is_power_of_two<rule> || shifts) {
                one.down = Floats{} + share.down[b];
                one.up = Floats{} + share.up[b];
            }
            if constexpr (is_power_of_two<rule>) {
                one.top = Floats{} + share.top[b];
                one.least = Ints{} + share.least[b];
            }
            for (std::int64_t c = b * of.columns; c < (b + 1) * of.columns; c += vectors * lanes) {
                Floats numbers[vectors];
                Words bits[vectors] = {};
                load(numbers, of.from + row * of.stride + c);
                if constexpr (random) load_bits<X>(bits, of.bits + c);
                for (int v = 0; v < vectors; ++v) round<rule, random, shifts>(p, numbers[v], one, bits[v]);
                store<X>(of.to + row * of.to_stride + c, numbers);
            }
        }
}

template <class X, Scale rule, bool random, int vectors>
void round_blocks_along(const BlockRounding& p, const Blocks<X>& of) {
    Ints largest[lanes] = {};
    for (std::int64_t row = 0; row < of.rows; ++row)
        for (int b = 0; b < of.count; ++b)
            for (std::int64_t c = b * of.columns; c < (b + 1) * of.columns; c += vectors * lanes) {
                Floats numbers[vectors];
                load(numbers, of.from + row * of.stride + c);
                for (const Floats& each : numbers) raise(largest[b], each);
            }
    join_largest<1>(largest, std::make_integer_sequence<int, lanes>{});
    Share all;
    if (set_share<rule>(p, largest[0], all) && is_power_of_two<rule>)
        write_along<X, rule, random, is_power_of_two<rule>, vectors>(p, of, all);
    else
        write_along<X, rule, random, false, vectors>(p, of, all);
}

/// Blocks that are turned, or no whole number of vectors: one after another.
template <class X, Scale rule, bool random>
void round_padded_along(const BlockRounding& p, const Blocks<X>& of) {
    Padded padded;
    const std::int64_t width = (of.columns + lanes - 1) / lanes * lanes;
    for (int b = 0; b < of.count; ++b) {
        const std::int64_t first = b * of.columns;
        padded.read(of.from + first, of.stride, of.rows, of.columns, width);
        if (p.hadamard && of.columns == turned) turn_alone(padded.from);
        for (int c = 0; random && c < of.columns; ++c) padded.bits[c] = of.bits[first + c];
        round_blocks_along<float, rule, random, 1>(
            p, {padded.from, padded.to, width, width, padded.bits, of.rows, width, 1});
        padded.write(of.to + first, of.to_stride, of.rows, of.columns, width);
    }
}

/// A line, or a row of square blocks.
template <class X, Scale rule, bool random>
void round_along(const BlockRounding& p, const Place& place) {
    const std::int64_t length = p.square ? p.inner : p.depth;
    std::uint32_t bits[random ? lanes * longest + 2 * group : 1];
    for (std::int64_t g = 0; g < length; g += lanes * p.block) {
        const std::int64_t start = place.line + place.first * p.inner + g, left = length - g;
        const std::int64_t whole = left / p.block < lanes ? left / p.block : lanes;
        Blocks<X> of{numbers_of<X>(p) + start, p.y + start, length,  length,
                     bits + g % group,         place.rows,  p.block, static_cast<int>(whole)};
        if constexpr (random)
            for (std::int64_t c = g / group * group; c < length && c < g + lanes * p.block; c += group)
                draw_group(p, place.line / length, c, bits + (c - g / group * group));
        if ((rule == Scale::two_level && p.hadamard) || p.block % lanes != 0)
            round_padded_along<X, rule, random>(p, of);
        else if (p.block % (2 * lanes) == 0)
            round_blocks_along<X, rule, random, 2>(p, of);
        else
            round_blocks_along<X, rule, random, 1>(p, of);
        if (whole == lanes || left % p.block == 0) continue;
        const std::int64_t short_one = whole * p.block;
        of = {of.from + short_one, of.to + short_one, length,        length,
              of.bits + short_one, place.rows,        left % p.block};
        round_padded_along<X, rule, random>(p, of);
    }
}

/// Numbers that have the tensor's scale alone.
template <class X>
void round_line(const BlockRounding& p, std::int64_t line) {
    const X* const x = numbers_of<X>(p) + line * p.depth;
    BF16* const y = p.y + line * p.depth;
    Share share;
    set_share<Scale::tensor>(p, Ints{}, share);
    const auto round_pair = [&](const auto* from, BF16* to) {
        Floats numbers[2];
        load(numbers, from);
        for (Floats& each : numbers) round<Scale::tensor, false, false>(p, each, share, Words{});
        store<std::remove_cv_t<std::remove_pointer_t<decltype(from)>>>(to, numbers);
    };
    std::int64_t k = 0;
    for (; k + 2 * lanes <= p.depth; k += 2 * lanes) round_pair(x + k, y + k);
    if (k == p.depth) return;
    Padded padded;
    padded.read(x + k, 0, 1, p.depth - k, 2 * lanes);
    round_pair(padded.from, padded.to);
    padded.write(y + k, 0, 1, p.depth - k, 0);
}

/// Whole blocks of so many pairs of vectors of columns, in each lane one of its own.
template <class X, Scale rule, bool random, int pairs>
void round_blocks_across(const BlockRounding& p, const Blocks<X>& of) {
    constexpr int width = 2 * lanes;
    const bool turns = rule == Scale::two_level && p.hadamard && of.rows == turned;
    Floats kept[turned][2];
    Ints largest[pairs][2] = {};
    if (turns) {
        load_turned(of.from, of.stride, kept);
        for (const Floats(&row)[2] : kept)
            for (int v = 0; v < 2; ++v) raise(largest[0][v], row[v]);
    } else {
        for (std::int64_t k = 0; k < of.rows; ++k)
            for (int i = 0; i < pairs; ++i) {
                Floats numbers[2];
                load(numbers, of.from + k * of.stride + i * width);
                for (int v = 0; v < 2; ++v) raise(largest[i][v], numbers[v]);
            }
    }
    Share shares[pairs][2];
    bool shifts = false;
    for (int i = 0; i < pairs; ++i)
        for (int v = 0; v < 2; ++v) shifts |= set_share<rule>(p, largest[i][v], shares[i][v]);
    const auto write = [&]<bool shifted>(std::bool_constant<shifted>) {
        for (std::int64_t k = 0; k < of.rows; ++k)
            for (int i = 0; i < pairs; ++i) {
                Floats numbers[2];
                Words bits[2] = {};
                if (turns)
                    __builtin_memcpy(&numbers, &kept[k], sizeof numbers);
                else
                    load(numbers, of.from + k * of.stride + i * width);
                if constexpr (random) load_bits<X>(bits, of.bits + k * group + i * width);
                for (int v = 0; v < 2; ++v)
                    round<rule, random, shifted>(p, numbers[v], shares[i][v], bits[v]);
                store<X>(of.to + k * of.to_stride + i * width, numbers);
            }
    };
    shifts&& is_power_of_two<rule> ? write(std::bool_constant<is_power_of_two<rule>>{})
                                   : write(std::false_type{});
}

template <class X, Scale rule, bool random>
void round_across(const BlockRounding& p, const Place& place) {
    constexpr int width = 2 * lanes;
    std::uint32_t draws[random ? longest * group : 1];
    Blocks<X> of;
    of.stride = of.to_stride = p.inner;
    of.rows = place.rows;
    const bool together = !random && !p.hadamard;
    std::int64_t c = place.column;
    const auto at = [&] {
        if constexpr (random)
            if (c % group == 0)
                for (std::int64_t k = 0; k < place.rows; ++k)
                    draw_group(p, place.line / p.inner + place.first + k, c, draws + k * group);
        const std::int64_t start = place.line + place.first * p.inner + c;
        of.from = numbers_of<X>(p) + start;
        of.to = p.y + start;
        of.bits = draws + (random ? c % group : 0);
    };
    if constexpr (!random)
        for (; together && c + beside * width <= place.end; c += beside * width) {
            at();
            round_blocks_across<X, rule, random, beside>(p, of);
        }
    for (; c + width <= place.end; c += width) {
        at();
        round_blocks_across<X, rule, random, 1>(p, of);
    }
    if (c == place.end) return;
    at();
    Padded padded;
    padded.read(of.from, p.inner, place.rows, place.end - c, width);
    round_blocks_across<float, rule, random, 1>(
        p, {padded.from, padded.to, width, width, of.bits, place.rows, 0, 1});
    padded.write(of.to, p.inner, place.rows, place.end - c, width);
}

template <class X, Scale rule, bool random>
void round_strip(const BlockRounding& p, const Place& place) {
    lies_along(p) || p.square ? round_along<X, rule, random>(p, place)
                              : round_across<X, rule, random>(p, place);
}

template <class X>
void round_strip(const BlockRounding& p, std::int64_t strip) {
    Place place;
    place_of(p, strip, place);
    switch (p.rule) {
        case Scale::tensor:
            return round_line<X>(p, strip);
        case Scale::up:
            return round_strip<X, Scale::up, false>(p, place);
        case Scale::floor:
            return round_strip<X, Scale::floor, false>(p, place);
        case Scale::two_level:
            break;
    }
    p.random ? round_strip<X, Scale::two_level, true>(p, place)
             : round_strip<X, Scale::two_level, false>(p, place);
}

/// Numbers that lie together, whatever their blocks.
template <class X>
void raise_over(const X* x, std::int64_t count, Ints& largest) {
    Ints of[4] = {};
    const auto raise_pair = [](const auto* from, Ints* to) {
        Floats numbers[2];
        load(numbers, from);
        for (int v = 0; v < 2; ++v) raise(to[v], numbers[v]);
    };
    std::int64_t k = 0;
    for (; k + 4 * lanes <= count; k += 4 * lanes) {
        raise_pair(x + k, of);
        raise_pair(x + k + 2 * lanes, of + 2);
    }
    for (; k < count; k += 2 * lanes) {
        if (k + 2 * lanes <= count) {
            raise_pair(x + k, of);
            continue;
        }
        Padded padded;
        padded.read(x + k, 0, 1, count - k, 2 * lanes);
        raise_pair(padded.from, of);
    }
    for (const Ints& each : of) largest = each > largest ? each : largest;
}

template <class X>
void raise_strip(const BlockRounding& p, std::int64_t strip, Ints& largest) {
    Place place;
    place_of(p, strip, place);
    const std::int64_t columns = place.end - place.column;
    const X* const x = numbers_of<X>(p) + place.line + place.first * p.inner + place.column;
    if (!p.hadamard || (!lies_along(p) && place.rows != turned)) {
        for (std::int64_t k = 0; k < place.rows; ++k) raise_over<X>(x + k * p.inner, columns, largest);
        return;
    }
    Padded padded;
    if (lies_along(p)) {
        for (std::int64_t k = 0; k < columns; k += turned) {
            const std::int64_t count = turned < columns - k ? turned : columns - k;
            padded.read(x + k, 0, 1, count, turned);
            if (count == turned) turn_alone(padded.from);
            raise_over<float>(padded.from, turned, largest);
        }
        return;
    }
    Floats rows[turned][2];
    for (std::int64_t c = 0; c < columns; c += 2 * lanes) {
        if (c + 2 * lanes <= columns) {
            load_turned(x + c, p.inner, rows);
        } else {
            padded.read(x + c, p.inner, turned, columns - c, 2 * lanes);
            load_turned(static_cast<const float*>(padded.from), 2 * lanes, rows);
        }
        for (const Floats(&row)[2] : rows)
            for (int v = 0; v < 2; ++v) raise(largest, row[v]);
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
