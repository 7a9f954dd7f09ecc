#include "mantissa/device/cuda/emulator/architecture.h"

#include <fmt/format.h>

namespace mantissa::inline v0::cuda {

const std::vector<Architecture>& architectures() {
    constexpr std::int64_t gib = std::int64_t{1} << 30;
    constexpr int kib = 1024, mib = 1024 * 1024;
    // CUDA C++ Programming Guide, table of compute capabilities; the cards' data sheets.
    static const std::vector<Architecture> all{{"sm_80", 80, false, "A100", 108, 40 * gib, 164 * kib,
                                                163 * kib, 2048, 32, 1'410'000, 1'215'000, 5120, 40 * mib},
                                               {"sm_86", 86, false, "A40", 84, 48 * gib, 100 * kib, 99 * kib,
                                                1536, 16, 1'740'000, 7'251'000, 384, 6 * mib},
                                               {"sm_89", 89, false, "L40", 142, 48 * gib, 100 * kib, 99 * kib,
                                                1536, 24, 2'490'000, 9'001'000, 384, 96 * mib},
                                               {"sm_90", 90, false, "H100", 132, 80 * gib, 228 * kib,
                                                227 * kib, 2048, 32, 1'980'000, 2'619'000, 5120, 50 * mib},
                                               {"sm_90a", 90, true, "H100", 132, 80 * gib, 228 * kib,
                                                227 * kib, 2048, 32, 1'980'000, 2'619'000, 5120, 50 * mib},
                                               {"sm_100", 100, false, "B200", 148, 180 * gib, 228 * kib,
                                                227 * kib, 2048, 32, 1'965'000, 3'996'000, 8192, 126 * mib}};
    return all;
}

const Architecture* find_architecture(const std::string& name) {
    for (const Architecture& one : architectures())
        if (one.name == name) return &one;
    return nullptr;
}

std::string target_refusal(const std::string& target, const Architecture& gpu) {
    if (!target.starts_with("sm_")) return fmt::format("'{}' is no target", target);
    const bool own = target.ends_with("a");
    const int number = std::atoi(target.c_str() + 3);
    if (own && (number != gpu.number || !gpu.own))
        return fmt::format("code for {} runs on {} alone, and this GPU is {}", target, target, gpu.name);
    if (number > gpu.number) return fmt::format("code for {} does not run on {}", target, gpu.name);
    return "";
}

}  // namespace mantissa::cuda
