// Kinds of CPUs met so far, with the data of decisions: the highest level and one core's rates. Tests pretend
// to run on each, so that decisions are tested for absent machines, too.
#pragma once

#include <string>
#include <vector>

#include "mantissa/device/cpu/core_rates.h"

namespace mantissa::testing {

struct MachineKind {
    std::string name;
    on_cpu::Isa best = on_cpu::Isa::generic;
    on_cpu::CoreRates rates = {};
};

/// Rates in GFLOP/s, measured on one machine of each kind.
inline std::vector<MachineKind> machine_kinds() {
    using on_cpu::Isa;
    return {{"generic", Isa::generic},
            {"AVX2", Isa::avx2},
            {"AVX-512", Isa::avx512},
            {"AVX-512, BF16 at twice FP32's rate", Isa::avx512_bf16, {.f32_fma = 118, .bf16_dot = 236}},
            {"AVX-512, BF16 at half of FP32's rate", Isa::avx512_bf16, {.f32_fma = 190, .bf16_dot = 95}},
            {"AMX", Isa::amx, {.f32_fma = 140, .bf16_dot = 70, .bf16_tiles = 2400}}};
}

/// While it lives, this process takes its CPU for one of that kind. Its kernels may not run here: only facts
/// and decisions can be tested.
class Pretend {
  public:
    explicit Pretend(const MachineKind& kind) : before_(on_cpu::best_isa()) {
        on_cpu::set_best_isa(kind.best);
        on_cpu::set_core_rates(kind.rates);
    }
    ~Pretend() {
        on_cpu::set_best_isa(before_);
        on_cpu::set_core_rates({});
    }
    Pretend(const Pretend&) = delete;
    Pretend& operator=(const Pretend&) = delete;

  private:
    on_cpu::Isa before_;
};

}  // namespace mantissa::testing
