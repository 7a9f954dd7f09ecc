// Vectors that compilers lower to any machine. They are handed on by reference:
// by value they would be passed differently by each instruction set.
#include "mantissa/device/cpu/modes/block_rounding.h"

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

constexpr std::int32_t sign_bit = INT32_MIN, exponent_field = 0x7f800000, fraction_field = 0x007fffff;

/// The first `count` numbers from `from`, zeros behind them.
template <class Vector>
[[gnu::always_inline]] inline void load_part(Vector& to, const void* from, int count) {
    to = Vector{};
    constexpr auto size = sizeof(Vector) / lanes;
    if (count == lanes)
        __builtin_memcpy(&to, from, sizeof to);
    else
        __builtin_memcpy(&to, from, size * static_cast<unsigned>(count));
}

[[gnu::always_inline]] inline void load(Floats& to, const BlockRounding& p, std::int64_t at, int count) {
    if (p.wide) return load_part(to, p.wide + at, count);
    Halves halves;
    load_part(halves, p.x + at, count);
    to = reinterpret_cast<Floats>(__builtin_convertvector(halves, Words) << 16);
}

/// As bits: a maximum of whole numbers, of which infinities and NaN are the largest.
[[gnu::always_inline]] inline void raise(Ints& largest, const Floats& x) {
    const Ints size = reinterpret_cast<Ints>(x) & ~sign_bit;
    largest = size > largest ? size : largest;
}

/// Factors of a block's numbers before and after they are rounded. Each is two powers of two: one of them
/// alone could be subnormal or infinite.
struct Factors {
    Floats down[2], up[2];
};

[[gnu::always_inline]] inline void power_of_two(Floats& to, const Ints& exponent) {
    to = reinterpret_cast<Floats>((exponent + 127) << 23);
}

/// The code of the scale, then the factors: `e8m0_of` on whole numbers.
[[gnu::always_inline]] inline void set_factors(const BlockRounding& p, const Ints& largest,
                                               Factors& factors) {
    const Ints exponent = largest >> 23;
    const Floats fraction = reinterpret_cast<Floats>((largest & fraction_field) | 0x3f800000);
    const Ints share = reinterpret_cast<Ints>(fraction * (1.0f / p.max));
    Ints code = p.floor ? exponent - p.max_exponent : exponent - 127 + ((share + fraction_field) >> 23);
    code = (exponent == 0) | (code < 0) ? Ints{} : code;
    code = code > 254 ? Ints{} + 254 : code;
    const Ints half = (code - 127) >> 1, rest = code - 127 - half;
    power_of_two(factors.down[0], -half);
    power_of_two(factors.down[1], -rest);
    power_of_two(factors.up[0], half);
    power_of_two(factors.up[1], rest);
    const Ints nan = Ints{} + 0x7fc00000;
    factors.up[1] = largest >= exponent_field ? reinterpret_cast<Floats>(nan) : factors.up[1];
}

/// Adding and subtracting 1.5 x 2^23 units rounds to whole units, ties to even.
[[gnu::always_inline]] inline void store_rounded(const BlockRounding& p, const Floats& x,
                                                 const Factors& factors, std::int64_t at, int count) {
    const Floats scaled = x * factors.down[0] * factors.down[1];
    const Ints sign = reinterpret_cast<Ints>(x) & sign_bit;
    Floats size = reinterpret_cast<Floats>(reinterpret_cast<Ints>(scaled) & ~sign_bit);
    size = size < p.max ? size : Floats{} + p.max;
    Floats binade = reinterpret_cast<Floats>(reinterpret_cast<Ints>(size) & exponent_field);
    binade = binade > p.min_normal ? binade : Floats{} + p.min_normal;
    const Floats magic = binade * p.to_grid;
    const Floats value = ((size + magic) - magic) * factors.up[0] * factors.up[1];
    const Words bits = reinterpret_cast<Words>(reinterpret_cast<Ints>(value) | sign);
    const Halves rounded = __builtin_convertvector(bits >> 16, Halves);
    if (count == lanes)
        __builtin_memcpy(p.y + at, &rounded, sizeof rounded);
    else
        __builtin_memcpy(p.y + at, &rounded, sizeof(BF16) * static_cast<unsigned>(count));
}

[[gnu::always_inline]] inline int part(std::int64_t rest) {
    return rest < lanes ? static_cast<int>(rest) : lanes;
}

/// Blocks across lines: each lane has a block of its own.
void round_across(const BlockRounding& p, std::int64_t strip) {
    const std::int64_t blocks = (p.depth + p.block - 1) / p.block;
    const std::int64_t first = strip % blocks * p.block;
    const std::int64_t last = first + p.block < p.depth ? first + p.block : p.depth;
    const std::int64_t line = strip / blocks * p.depth;
    for (std::int64_t c = 0; c < p.inner; c += lanes) {
        const int count = part(p.inner - c);
        Ints largest{};
        Floats x;
        for (std::int64_t k = first; k < last; ++k) {
            load(x, p, (line + k) * p.inner + c, count);
            raise(largest, x);
        }
        Factors factors;
        set_factors(p, largest, factors);
        for (std::int64_t k = first; k < last; ++k) {
            load(x, p, (line + k) * p.inner + c, count);
            store_rounded(p, x, factors, (line + k) * p.inner + c, count);
        }
    }
}

/// Blocks along a line: all lanes have one. The scales of some blocks are made at once.
void round_along(const BlockRounding& p, std::int64_t line) {
    const std::int64_t begin = line * p.depth, group = lanes * p.block;
    for (std::int64_t g = 0; g < p.depth; g += group) {
        Ints largest{};
        Floats x;
        for (int b = 0; b < lanes && g + b * p.block < p.depth; ++b) {
            const std::int64_t first = g + b * p.block;
            const std::int64_t last = first + p.block < p.depth ? first + p.block : p.depth;
            Ints of_block{};
            for (std::int64_t k = first; k < last; k += lanes) {
                load(x, p, begin + k, part(last - k));
                raise(of_block, x);
            }
            std::int32_t most = 0;
            for (int i = 0; i < lanes; ++i) most = of_block[i] > most ? of_block[i] : most;
            largest[b] = most;
        }
        Factors of_blocks;
        set_factors(p, largest, of_blocks);
        for (int b = 0; b < lanes && g + b * p.block < p.depth; ++b) {
            Factors factors;
            for (int half = 0; half < 2; ++half) {
                factors.down[half] = Floats{} + of_blocks.down[half][b];
                factors.up[half] = Floats{} + of_blocks.up[half][b];
            }
            const std::int64_t first = g + b * p.block;
            const std::int64_t last = first + p.block < p.depth ? first + p.block : p.depth;
            for (std::int64_t k = first; k < last; k += lanes) {
                const int count = part(last - k);
                load(x, p, begin + k, count);
                store_rounded(p, x, factors, begin + k, count);
            }
        }
    }
}

}  // namespace

void MANTISSA_OF_LEVEL(round_strips)(const BlockRounding& p, std::int64_t first, std::int64_t last) {
    for (std::int64_t strip = first; strip < last; ++strip)
        if (p.inner == 1)
            round_along(p, strip);
        else
            round_across(p, strip);
}

}  // namespace mantissa::on_cpu
