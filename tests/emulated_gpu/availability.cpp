#include "tests/emulated_gpu/availability.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace mantissa::inline v0::cuda::ptx {

namespace {

/// An instruction whose opcode begins with the first word and has all others somewhere behind it.
struct Rule {
    std::vector<std::string_view> words;
    Needs needs;
};

/// PTX ISA 8.5, "PTX ISA Notes" and "Target ISA Notes" of each instruction. The largest needs of those that
/// fit count.
const std::vector<Rule>& rules() {
    static const std::vector<Rule> all{
        {{"tanh"}, {75, false, 70}},
        {{"tanh", "bf16"}, {90, false, 78}},
        {{"tanh", "bf16x2"}, {90, false, 78}},
        {{"ex2", "f16"}, {75, false, 70}},
        {{"ex2", "f16x2"}, {75, false, 70}},
        {{"ex2", "bf16"}, {90, false, 78}},
        {{"ex2", "bf16x2"}, {90, false, 78}},
        {{"fma", "bf16"}, {80, false, 70}},
        {{"fma", "bf16x2"}, {80, false, 70}},
        {{"fma", "relu"}, {80, false, 70}},
        {{"add", "bf16"}, {90, false, 78}},
        {{"add", "bf16x2"}, {90, false, 78}},
        {{"sub", "bf16"}, {90, false, 78}},
        {{"sub", "bf16x2"}, {90, false, 78}},
        {{"mul", "bf16"}, {90, false, 78}},
        {{"mul", "bf16x2"}, {90, false, 78}},
        {{"setp", "bf16"}, {90, false, 78}},
        {{"abs", "bf16"}, {80, false, 70}},
        {{"abs", "bf16x2"}, {80, false, 70}},
        {{"neg", "bf16"}, {80, false, 70}},
        {{"neg", "bf16x2"}, {80, false, 70}},
        {{"min", "NaN"}, {80, false, 70}},
        {{"max", "NaN"}, {80, false, 70}},
        {{"min", "f16"}, {80, false, 70}},
        {{"max", "f16"}, {80, false, 70}},
        {{"min", "f16x2"}, {80, false, 70}},
        {{"max", "f16x2"}, {80, false, 70}},
        {{"min", "bf16"}, {80, false, 70}},
        {{"max", "bf16"}, {80, false, 70}},
        {{"min", "bf16x2"}, {80, false, 70}},
        {{"max", "bf16x2"}, {80, false, 70}},
        {{"cvt", "bf16x2"}, {80, false, 70}},
        {{"cvt", "f16x2"}, {80, false, 70}},
        {{"cvt", "relu"}, {80, false, 70}},
        {{"cvt", "tf32"}, {80, false, 70}},
        {{"cvt", "rn", "tf32"}, {90, false, 78}},
        {{"cvt", "bf16"}, {80, false, 70}},
        {{"cvt", "e4m3x2"}, {89, false, 81}},
        {{"cvt", "e5m2x2"}, {89, false, 81}},
        {{"cp", "async"}, {80, false, 70}},
        {{"cp", "bulk"}, {90, false, 80}},
        {{"ldmatrix"}, {75, false, 65}},
        {{"stmatrix"}, {90, false, 78}},
        {{"mma"}, {75, false, 65}},
        {{"redux"}, {80, false, 70}},
        {{"elect"}, {90, false, 80}},
        {{"activemask"}, {70, false, 62}},
        {{"griddepcontrol"}, {90, false, 78}},
        {{"setmaxnreg"}, {90, true, 80}},
        {{"wgmma"}, {90, true, 80}},
        {{"mbarrier"}, {80, false, 70}},
        {{"barrier", "cluster"}, {90, false, 78}},
        {{"mapa"}, {90, false, 78}},
        {{"getctarank"}, {90, false, 78}},
        {{"st", "async"}, {90, false, 81}},
        {{"red", "async"}, {90, false, 81}},
        {{"multimem"}, {90, false, 81}},
        {{"tensormap"}, {90, true, 83}},
        {{"fence", "proxy", "async"}, {90, false, 80}},
        {{"createpolicy"}, {80, false, 74}},
        {{"atom", "bf16"}, {90, false, 78}},
        {{"atom", "bf16x2"}, {90, false, 78}},
        {{"red", "bf16"}, {90, false, 78}},
        {{"red", "bf16x2"}, {90, false, 78}},
        {{"ld", "L1::no_allocate"}, {70, false, 74}},
        {{"st", "L1::no_allocate"}, {70, false, 74}},
        {{"tcgen05"}, {100, true, 86}},
    };
    return all;
}

}  // namespace

Needs needs_of(const std::vector<std::string>& op) {
    Needs most;
    for (const Rule& rule : rules()) {
        if (op[0] != rule.words[0]) continue;
        const bool fits = std::all_of(rule.words.begin() + 1, rule.words.end(), [&](std::string_view word) {
            return std::find(op.begin() + 1, op.end(), word) != op.end();
        });
        if (!fits) continue;
        most.architecture = std::max(most.architecture, rule.needs.architecture);
        most.own = most.own || rule.needs.own;
        most.version = std::max(most.version, rule.needs.version);
    }
    // To and from BF16, but for the narrowing of FP32.
    const bool converts = op[0] == "cvt" && op.size() >= 3;
    if (converts && (op.back() == "bf16" || (op[op.size() - 2] == "bf16" && op.back() != "f32"))) {
        most.architecture = std::max(most.architecture, 90);
        most.version = std::max(most.version, 78);
    }
    return most;
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

}  // namespace mantissa::cuda::ptx
