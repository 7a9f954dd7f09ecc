#include "mantissa/device/cpu/cpu_target.h"

#include <fstream>
#include <string>

#include "mantissa/codegen/compiler.h"
#include "mantissa/device/cpu/core_rates.h"
#include "mantissa/device/tf32_refusal.h"

namespace mantissa::inline v0::on_cpu {

namespace {

std::string processor_name() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);)
        if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
    return "unknown processor";
}

/// Compiled code works on 16 columns at a time. Plain C++ makes tiles of 8, for which compiled code takes
/// twice as long. A step of GPT-2 tiny, 8 x 256, took 1.11 of the time with epilogues that it takes without.
std::string refusal_of_epilogues(Isa isa) {
    if (isa != Isa::generic) return {};
    return "contractions of the level generic make tiles of 8 columns, compiled code works on 16";
}

/// Tiles finish 16-bit operands before compiled code finishes their sums: it takes one vector after the
/// other, and waits longest for its own results. Kernels of rows, with four in turn, read the sums again and
/// are faster: steps of GPT-2, ResNet50 and DenseNet121 took 0 to 8 % less time without epilogues.
std::string refusal_of_short_epilogues(Isa isa) {
    if (bf16_unit(isa) != Bf16Unit::amx) return {};
    return "tiles multiply 16-bit operands faster than compiled code takes their sums";
}

/// Operands of 16 bits are half the bytes. So they gain where their products are no slower than FP32's and an
/// instruction rounds to them.
std::string fastest_policy(Isa isa) { return isa >= Isa::avx512 && has_bf16_dot() ? "bf16" : "fp32"; }

}  // namespace

Target cpu_target(Isa isa, int threads) {
    const CacheSizes caches = cache_sizes();
    return {.device = "cpu",
            .name = processor_name(),
            .isa = std::string(instructions_of(isa)),
            .threads = threads,
            .l1_bytes = caches.l1d,
            .l2_bytes = caches.l2,
            .l3_bytes = caches.l3,
            .bf16_unit = std::string(name_of(bf16_unit(isa))),
            .reason_of_unit = reason_of_unit(isa, core_rates()),
            .fastest_policy = fastest_policy(isa),
            .tf32_beats_fp32 = splitting_pays(bf16_unit(isa)),
            .leaves_zeros_out = true,
            .cannot_compile = codegen::Compiler::refusal(),
            .cannot_attach_epilogues = refusal_of_epilogues(isa),
            .epilogues_lose_at_16_bits = refusal_of_short_epilogues(isa),
            .cannot_multiply_tf32 = tf32_refusal()};
}

Isa level_of_all(Isa mine, Ranks* ranks) {
    if (!ranks) return mine;
    const std::string first = ranks->gather(std::string(name_of(mine))).front();
    const Isa theirs = isa_from_name(first, Isa::amx, {});
    return theirs <= best_isa() ? theirs : mine;
}

}  // namespace mantissa::on_cpu
