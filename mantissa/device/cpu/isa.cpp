#include "mantissa/device/cpu/isa.h"

#include <cpuid.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>

#include "mantissa/base/error.h"
#include "mantissa/device/cpu/core_rates.h"

namespace mantissa::inline v0::on_cpu {

namespace {

struct Leaf {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

/// All zeros where the CPU does not know the leaf.
Leaf cpuid(unsigned leaf, unsigned subleaf = 0) {
    Leaf out;
    __get_cpuid_count(leaf, subleaf, &out.eax, &out.ebx, &out.ecx, &out.edx);
    return out;
}

/// Leaf 7, asked for once: kernels are chosen at each launch, and a virtual machine answers after
/// microseconds.
const Leaf& extensions() {
    static const Leaf seven = cpuid(7);
    return seven;
}

constexpr bool has(std::uint64_t word, std::uint64_t bits) { return (word & bits) == bits; }

constexpr unsigned bit(int index) { return 1U << index; }

constexpr unsigned avx512_bf16_bit = bit(5);  // leaf 7, subleaf 1, EAX

/// The register states that the operating system saves (XCR0); 0 without XGETBV.
std::uint64_t enabled_states() {
    if (!has(cpuid(1).ecx, bit(27))) return 0;
    unsigned low = 0, high = 0;
    asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return std::uint64_t{high} << 32 | low;
}

/// Linux lends the tile registers only to processes that ask (arch_prctl, ARCH_REQ_XCOMP_PERM); the grant
/// covers every thread started later and the present one.
bool tile_state_granted() {
    constexpr long request_permission = 0x1023;
    constexpr long tile_data = 18;
    return ::syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

Isa detect() {
    constexpr std::uint64_t avx_state = 0x6;       // XMM, YMM
    constexpr std::uint64_t avx512_state = 0xe6;   // and mask, upper ZMM, ZMM16..31
    constexpr std::uint64_t tile_state = 0x60000;  // tile configuration, tile data
    const std::uint64_t states = enabled_states();
    const Leaf one = cpuid(1), seven = cpuid(7), seven_one = cpuid(7, 1);
    const unsigned fma_avx_f16c = bit(12) | bit(28) | bit(29);
    if (!has(states, avx_state) || !has(one.ecx, fma_avx_f16c) || !has(seven.ebx, bit(5)))
        return Isa::generic;
    const unsigned avx512_f_dq_bw_vl = bit(16) | bit(17) | bit(30) | bit(31);
    if (!has(states, avx512_state) || !has(seven.ebx, avx512_f_dq_bw_vl)) return Isa::avx2;
    const unsigned amx_bf16_tile_int8 = bit(22) | bit(24) | bit(25);
    if (!has(seven_one.eax, avx512_bf16_bit)) return Isa::avx512;
    const bool tiles = has(states, tile_state) && has(seven.edx, amx_bf16_tile_int8);
    return tiles && tile_state_granted() ? Isa::amx : Isa::avx512_bf16;
}

void remember(CacheSizes& sizes, int level, std::int64_t bytes) {
    if (level == 1) sizes.l1d = bytes;
    if (level == 2) sizes.l2 = bytes;
    if (level == 3) sizes.l3 = bytes;
}

CacheSizes cache_sizes_from_cpuid() {
    CacheSizes sizes;
    const bool topology_extensions = has(cpuid(0x80000001).ecx, bit(22));  // AMD
    const unsigned leaf = topology_extensions ? 0x8000001D : 4;
    for (unsigned index = 0; index < 16; ++index) {
        const Leaf cache = cpuid(leaf, index);
        const unsigned type = cache.eax & 31;  // 0 none, 1 data, 2 instructions, 3 both
        if (type == 0) break;
        if (type == 2) continue;
        const std::int64_t ways = (cache.ebx >> 22) + 1;
        const std::int64_t partitions = ((cache.ebx >> 12) & 0x3ff) + 1;
        const std::int64_t line = (cache.ebx & 0xfff) + 1;
        remember(sizes, static_cast<int>((cache.eax >> 5) & 7),
                 ways * partitions * line * (std::int64_t{cache.ecx} + 1));
    }
    return sizes;
}

CacheSizes cache_sizes_from_sysfs() {
    CacheSizes sizes;
    for (int index = 0; index < 8; ++index) {
        const std::string folder = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", index);
        int level = 0;
        std::int64_t kilobytes = 0;
        std::string type;
        if (!(std::ifstream(folder + "level") >> level)) break;
        std::ifstream(folder + "type") >> type;
        std::ifstream(folder + "size") >> kilobytes;
        if (type != "Instruction") remember(sizes, level, kilobytes * 1024);
    }
    return sizes;
}

constinit std::optional<Isa> best_by_order;

constexpr std::array all_levels{Isa::generic, Isa::avx2, Isa::avx512, Isa::avx512_bf16, Isa::amx};

}  // namespace

std::string_view name_of(Isa isa) {
    switch (isa) {
        case Isa::generic:
            return "generic";
        case Isa::avx2:
            return "avx2";
        case Isa::avx512:
            return "avx512-widened";
        case Isa::avx512_bf16:
            return "avx512-bf16";
        case Isa::amx:
            return "amx";
    }
    throw InternalError("an instruction-set level outside of its enumeration");
}

std::string_view instructions_of(Isa isa) {
    return isa == Isa::avx512 || isa == Isa::avx512_bf16 ? "avx512" : name_of(isa);
}

std::string_view name_of(Bf16Unit unit) {
    switch (unit) {
        case Bf16Unit::none:
            return "";
        case Bf16Unit::avx512_bf16:
            return "avx512_bf16";
        case Bf16Unit::amx:
            return "amx";
    }
    throw InternalError("a BF16 unit outside of its enumeration");
}

bool has_avx512_fp16() { return best_isa() >= Isa::avx512 && has(extensions().edx, bit(23)); }

bool has_byte_dots(Isa isa) { return isa >= Isa::avx512 && has_avx512_vnni(); }
bool has_avx512_vnni() { return best_isa() >= Isa::avx512 && has(extensions().ecx, bit(11)); }

bool has_avx512_vpopcntdq() { return best_isa() >= Isa::avx512 && has(extensions().ecx, bit(14)); }

Isa best_isa() {
    static const Isa detected = detect();
    return best_by_order.value_or(detected);
}

void set_best_isa(Isa isa) { best_by_order = isa; }

Isa isa_from_name(std::string_view name, Isa best, const CoreRates& rates) {
    const bool chooses = name == "avx512" && best >= Isa::avx512;
    if (chooses) return fastest_isa(std::min(best, Isa::avx512_bf16), rates);
    for (const Isa isa : all_levels) {
        if (name_of(isa) != name && instructions_of(isa) != name) continue;
        if (isa > best)
            throw UserError(
                fmt::format("MANTISSA_ISA asks for '{}', but this CPU offers '{}' at most; choose a "
                            "lower level or unset it",
                            name, name_of(best)));
        return isa;
    }
    throw UserError(
        fmt::format("MANTISSA_ISA is '{}'; expected generic, avx2, avx512, avx512-widened, avx512-bf16 or "
                    "amx (this CPU offers '{}' at most)",
                    name, name_of(best)));
}

Isa chosen_isa() {
    const char* name = std::getenv("MANTISSA_ISA");
    return name && *name ? isa_from_name(name, best_isa(), core_rates())
                         : fastest_isa(best_isa(), core_rates());
}

CacheSizes cache_sizes() {
    CacheSizes sizes = cache_sizes_from_cpuid();
    if (sizes.l1d == 0 || sizes.l2 == 0) {
        const CacheSizes system = cache_sizes_from_sysfs();
        if (sizes.l1d == 0) sizes.l1d = system.l1d;
        if (sizes.l2 == 0) sizes.l2 = system.l2;
        if (sizes.l3 == 0) sizes.l3 = system.l3;
    }
    return sizes;
}

}  // namespace mantissa::on_cpu
