// The tile instructions of AMX in software: what lets the very code that an AMX machine runs, to the last
// instruction, run on a CPU that lacks them. Each faults there, and the fault's handler does its work: right,
// strict about what the hardware would refuse, and about a thousand times slower. For tests; no time measured
// over it means anything. Every test program is linked with it; MANTISSA_TEST_TILES=1 runs its tests at the
// level amx (lend_tiles.cpp).
#pragma once

namespace mantissa::testing {

/// Takes over SIGILL, once, for the whole process: tile instructions are emulated, anything else stays the
/// fault that it is. Emulates those that the project uses: configuration, loads, stores, zero, products of
/// BF16 and of signed bytes. Needs AVX512_BF16.
void emulate_tiles();

}  // namespace mantissa::testing
