// The instruction sets that this CPU offers, the ones that kernels shall use, and the sizes of its caches.
// The offer comes from CPUID feature bits and the operating system's enabled ones, never from the CPU's name,
// which lies in virtual machines. The choice from the offer comes from measured rates (core_rates.h).
#pragma once

#include <cstdint>
#include <string_view>

namespace mantissa::inline v0::on_cpu {

struct CoreRates;

/// Levels of instruction sets; each includes the levels before it.
enum class Isa : std::uint8_t {
    generic,      ///< plain x86-64
    avx2,         ///< AVX2, FMA, F16C
    avx512,       ///< AVX-512 F, BW, DQ, VL; BF16 operands are widened to FP32
    avx512_bf16,  ///< BF16 operands are multiplied as they are, in pairs (AVX512_BF16's vdpbf16ps)
    amx,          ///< AVX-512 BF16, AMX TILE, BF16, INT8
};

/// The name of a level in MANTISSA_ISA: "generic", "avx2", "avx512-widened", "avx512-bf16", "amx".
std::string_view name_of(Isa isa);

/// The instruction set of a level, as reports and kernels name it: "generic", "avx2", "avx512", "amx".
std::string_view instructions_of(Isa isa);

/// The highest level that CPU and operating system both offer, which may not be the fastest. AMX counts only
/// when the kernel grants its register state, for which this process asks once, here.
Isa best_isa();

/// Makes a level the highest from now on: for tests, which run a level elsewhere, too. The caller answers for
/// instructions that the CPU lacks.
void set_best_isa(Isa isa);

/// The level that `name` asks for on a CPU whose highest is `best`. "avx512" asks for the faster of two by
/// `rates`. Throws UserError for an unknown name and for a level above `best`, naming both.
Isa isa_from_name(std::string_view name, Isa best, const CoreRates& rates);

/// The level kernels shall use: the environment's MANTISSA_ISA if set and not empty, else the fastest by
/// core_rates(). Throws UserError like isa_from_name().
Isa chosen_isa();

/// The unit that multiplies two BF16 operands without widening them first.
enum class Bf16Unit : std::uint8_t {
    none,         ///< they are widened to FP32
    avx512_bf16,  ///< dot products of pairs (vdpbf16ps), a feature of some CPUs within the level avx512
    amx,          ///< tiles
};

/// "", "avx512_bf16", "amx".
std::string_view name_of(Bf16Unit unit);

/// Whether this CPU has AVX512_BF16. Its instruction that rounds to BF16 serves every level from avx512 on,
/// with any unit.
inline bool has_bf16_dot() { return best_isa() >= Isa::avx512_bf16; }

// Features of some CPUs within the level avx512, without a name of their own in MANTISSA_ISA.
bool has_avx512_fp16();       ///< FP16 arithmetic in vectors
bool has_avx512_vnni();       ///< dot products of bytes, four at a time
bool has_byte_dots(Isa isa);  ///< and whether the level uses them
bool has_avx512_vpopcntdq();  ///< counts of ones

/// The unit of a level.
constexpr Bf16Unit bf16_unit(Isa isa) {
    if (isa == Isa::amx) return Bf16Unit::amx;
    return isa == Isa::avx512_bf16 ? Bf16Unit::avx512_bf16 : Bf16Unit::none;
}

/// The level's among objects that are made for each; amx has none of its own.
template <class Made>
Made of_level(Isa isa, Made generic, Made avx2, Made avx512) {
    return isa == Isa::generic ? generic : isa == Isa::avx2 ? avx2 : avx512;
}
/// The vectors of `avx512bf16` round to BF16 by an instruction, where the CPU has it.
template <class Made>
Made of_level(Isa isa, Made generic, Made avx2, Made avx512, Made avx512bf16) {
    return of_level(isa, generic, avx2, has_bf16_dot() ? avx512bf16 : avx512);
}

/// Bytes of one core's data caches and of the last level; 0 where the machine has none or does not say.
struct CacheSizes {
    std::int64_t l1d = 0;
    std::int64_t l2 = 0;
    std::int64_t l3 = 0;
};

/// Sizes by CPUID (leaf 4, or AMD's 0x8000001D); sizes that CPUID leaves open, from sysfs.
CacheSizes cache_sizes();

}  // namespace mantissa::on_cpu
