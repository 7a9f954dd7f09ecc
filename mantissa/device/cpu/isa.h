// The instruction sets that this CPU offers, which of them kernels shall use, and how large its caches are.
// Everything comes from CPUID feature bits and what the operating system enabled, never from the CPU's name,
// which lies in virtual machines.
#pragma once

#include <cstdint>
#include <string_view>

namespace mantissa::inline v0::on_cpu {

/// Levels of instruction sets; each includes those before it.
enum class Isa : std::uint8_t {
    generic,  ///< plain x86-64
    avx2,     ///< AVX2, FMA, F16C
    avx512,   ///< AVX-512 F, BW, DQ, VL; BF16 where the CPU has it, see Bf16Unit
    amx,      ///< AVX-512 BF16, AMX TILE, BF16, INT8
};

/// "generic", "avx2", "avx512", "amx".
std::string_view name_of(Isa isa);

/// The highest level that CPU and operating system both offer. AMX counts only when the kernel grants its
/// register state, for which this process asks once, here.
Isa best_isa();

/// Makes a level the highest from now on: for tests, which run a level elsewhere, too. Who calls it answers
/// for instructions that the CPU lacks.
void set_best_isa(Isa isa);

/// The level that `name` asks for on a CPU whose highest is `best`. Throws UserError for an unknown name and
/// for a level above `best`, naming both.
Isa isa_from_name(std::string_view name, Isa best);

/// The level kernels shall use: the environment's MANTISSA_ISA (generic, avx2, avx512, amx) if set and not
/// empty, else best_isa(). Throws UserError like isa_from_name().
Isa chosen_isa();

/// The unit that multiplies two BF16 operands without widening them first.
enum class Bf16Unit : std::uint8_t {
    none,         ///< they are widened to FP32
    avx512_bf16,  ///< dot products of pairs (vdpbf16ps), a feature of some CPUs within the level avx512
    amx,          ///< tiles
};

/// "", "avx512_bf16", "amx".
std::string_view name_of(Bf16Unit unit);

/// Whether this CPU has AVX512_BF16 and the level avx512.
bool has_bf16_dot();

// Features of some CPUs within the level avx512, without a name of their own in MANTISSA_ISA.
bool has_avx512_fp16();       ///< FP16 arithmetic in vectors
bool has_avx512_vnni();       ///< dot products of bytes, four at a time
bool has_avx512_vpopcntdq();  ///< counts of ones

/// The unit of a level on a CPU whose highest level is `best`. Where there is AMX, dot products of pairs run
/// at half the speed of FP32 and gain nothing, so that the level avx512 widens there.
constexpr Bf16Unit bf16_unit(Isa isa, Isa best, bool bf16_dot) {
    if (isa == Isa::amx) return Bf16Unit::amx;
    return isa == Isa::avx512 && best == Isa::avx512 && bf16_dot ? Bf16Unit::avx512_bf16 : Bf16Unit::none;
}

/// The unit of a level on this CPU.
Bf16Unit bf16_unit(Isa isa);

/// That of the level among things that are made for each; amx has none of its own.
template <class Made>
Made of_level(Isa isa, Made generic, Made avx2, Made avx512) {
    return isa == Isa::generic ? generic : isa == Isa::avx2 ? avx2 : avx512;
}
/// Where a level has a unit for BF16, its vectors are those of `avx512bf16`, too.
template <class Made>
Made of_level(Isa isa, Made generic, Made avx2, Made avx512, Made avx512bf16) {
    return of_level(isa, generic, avx2, bf16_unit(isa) == Bf16Unit::none ? avx512 : avx512bf16);
}

/// A table of kernels, made by code of its level, so only where it is asked for.
template <auto Make>
const auto& made_once() {
    static const auto made = Make();
    return made;
}

/// Bytes of one core's data caches and of the last level; 0 where the machine has none or does not say.
struct CacheSizes {
    std::int64_t l1d = 0;
    std::int64_t l2 = 0;
    std::int64_t l3 = 0;
};

/// Sizes by CPUID (leaf 4, or AMD's 0x8000001D); what CPUID leaves open, from sysfs.
CacheSizes cache_sizes();

}  // namespace mantissa::on_cpu
