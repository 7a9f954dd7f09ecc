// Runs the tests of this program at the level amx where MANTISSA_TEST_TILES is 1 and the CPU has AVX512_BF16,
// but no tiles of its own.
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "mantissa/device/cpu/core_rates.h"
#include "mantissa/device/cpu/isa.h"
#include "tests/emulated_tiles/tile_emulator.h"

namespace mantissa::testing {

namespace {

[[maybe_unused]] const bool lent = [] {
    const char* const asked = std::getenv("MANTISSA_TEST_TILES");
    if (!asked || std::string_view(asked) != "1") return false;
    if (!on_cpu::has_bf16_dot() || __builtin_cpu_supports("amx-tile")) {
        std::fprintf(stderr,
                     "MANTISSA_TEST_TILES is 1, but this CPU lacks AVX512_BF16 or has tiles of its own\n");
        std::exit(1);
    }
    emulate_tiles();
    on_cpu::set_best_isa(on_cpu::Isa::amx);
    on_cpu::set_core_rates(on_cpu::CoreRates{.f32_fma = 1, .bf16_dot = 0.5, .bf16_tiles = 16});
    return true;
}();

}  // namespace

}  // namespace mantissa::testing
