// Runs the tests of this program at the level amx where MANTISSA_TEST_TILES is 1 and the CPU has AVX512_BF16,
// but no tiles of its own.
#include <cstdio>
#include <cstdlib>
#include <string_view>

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
    return true;
}();

}  // namespace

}  // namespace mantissa::testing
