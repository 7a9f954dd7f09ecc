// Decodes the faulting tile instruction and does its work. Sources: Intel's Software Developer's Manual,
// volume 2, the entries LDTILECFG to TILEZERO, and volume 1, chapter 18.
#include <immintrin.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <cstdint>

#include "tests/emulated_tiles/tile_emulator.h"

namespace mantissa::testing {

namespace {

struct Tiles {
    bool configured = false;
    std::uint8_t rows[8] = {};
    std::uint16_t bytes[8] = {};  // of a row
    alignas(64) std::uint8_t data[8][16][64] = {};
};

thread_local Tiles tiles;

[[noreturn]] void refuse(const char* why) {
    fprintf(stderr, "emulated tiles: %s\n", why);
    abort();
}

/// A three-byte VEX prefix and what follows it.
struct Instruction {
    int prefix = 0;  // 0 none, 1 66, 2 F3, 3 F2
    int opcode = 0;
    int vvvv = 0;
    int reg = 0;  // of ModRM
    int rm = 0;
    bool memory = false;
    std::uint8_t* base = nullptr;  // of a memory operand, with its displacement
    std::int64_t stride = 0;       // its index times the scale
    std::int64_t length = 0;
};

std::int64_t general_register(const ucontext_t& context, int number) {
    static constexpr int order[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                    REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    return context.uc_mcontext.gregs[order[number]];
}

/// Decodes the bytes at `next` after ModRM: SIB and displacement. `x`, `b` are the prefix's high bits of the
/// numbers.
void decode_address(const ucontext_t& context, const std::uint8_t* start, const std::uint8_t* next, int mod,
                    int x, int b, Instruction& out) {
    std::int64_t address = 0;
    bool relative = false;
    int base = out.rm;
    if (base == 4) {
        const int sib = *next++;
        const int index = (sib >> 3 & 7) | x << 3;
        if (index != 4) out.stride = general_register(context, index) * (1 << (sib >> 6));
        base = sib & 7;
        if (base != 5 || mod != 0) address = general_register(context, base | b << 3);
    } else if (base == 5 && mod == 0) {
        relative = true;
    } else {
        address = general_register(context, base | b << 3);
    }
    if (mod == 1) {
        address += static_cast<std::int8_t>(*next++);
    } else if (mod == 2 || base == 5) {
        std::int32_t displacement = 0;
        memcpy(&displacement, next, sizeof displacement);
        next += sizeof displacement;
        address += displacement;
    }
    out.length = next - start;
    if (relative) address += reinterpret_cast<std::int64_t>(next);
    out.base = reinterpret_cast<std::uint8_t*>(address);
}

/// Whether the bytes at `start` are of the map and the length that tile instructions have.
bool decode(const ucontext_t& context, const std::uint8_t* start, Instruction& out) {
    if (start[0] != 0xc4 || (start[1] & 31) != 2 || (start[2] & 0x84) != 0) return false;  // map 0F38, W0, L0
    const int x = ~start[1] >> 6 & 1, b = ~start[1] >> 5 & 1;
    out.prefix = start[2] & 3;
    out.vvvv = ~start[2] >> 3 & 15;
    out.opcode = start[3];
    const int mod = start[4] >> 6;
    out.reg = start[4] >> 3 & 7;
    out.rm = start[4] & 7;
    out.memory = mod != 3;
    out.length = 5;
    if (out.memory) decode_address(context, start, start + 5, mod, x, b, out);
    return true;
}

void load_configuration(const std::uint8_t* from) {
    tiles = {};
    if (from[0] == 0) return;
    if (from[0] != 1) refuse("ldtilecfg of a palette that is not 1");
    for (int i = 1; i < 64; ++i)
        if ((i < 16 || (i >= 32 && i < 48) || i >= 56) && from[i] != 0)
            refuse("ldtilecfg with a byte set that must be 0");
    for (int tile = 0; tile < 8; ++tile) {
        memcpy(&tiles.bytes[tile], from + 16 + 2 * tile, 2);
        tiles.rows[tile] = from[48 + tile];
        if (tiles.bytes[tile] > 64 || tiles.rows[tile] > 16 ||
            (tiles.bytes[tile] == 0) != (tiles.rows[tile] == 0))
            refuse("ldtilecfg with more than 16 rows of 64 bytes, or with half a shape");
    }
    tiles.configured = true;
}

void need(int tile) {
    if (!tiles.configured || tiles.rows[tile] == 0) refuse("a tile is used that is not configured");
}

void load_rows(int tile, const Instruction& from) {
    need(tile);
    memset(tiles.data[tile], 0, sizeof tiles.data[tile]);
    for (int row = 0; row < tiles.rows[tile]; ++row)
        memcpy(tiles.data[tile][row], from.base + row * from.stride, tiles.bytes[tile]);
}

void store_rows(int tile, const Instruction& to) {
    need(tile);
    for (int row = 0; row < tiles.rows[tile]; ++row)
        memcpy(to.base + row * to.stride, tiles.data[tile][row], tiles.bytes[tile]);
}

void need_product(int sums, int a, int b) {
    need(sums);
    need(a);
    need(b);
    if (sums == a || sums == b || a == b) refuse("a product names a tile twice");
    if (tiles.rows[sums] != tiles.rows[a] || tiles.bytes[sums] != tiles.bytes[b] ||
        tiles.bytes[a] / 4 != tiles.rows[b])
        refuse("a product of tiles whose shapes do not fit");
}

/// Like the hardware's: to nearest, subnormals are 0, whatever MXCSR says; vdpbf16ps promises the same.
void multiply_bf16(int sums, int a, int b) {
    need_product(sums, a, b);
    for (int row = 0; row < tiles.rows[sums]; ++row) {
        __m512 sum = _mm512_load_ps(tiles.data[sums][row]);
        for (int pair = 0; pair < tiles.rows[b]; ++pair) {
            std::int32_t both = 0;
            memcpy(&both, tiles.data[a][row] + 4 * pair, sizeof both);
            const __m512bh left = reinterpret_cast<__m512bh>(_mm512_set1_epi32(both));
            const __m512bh right = reinterpret_cast<__m512bh>(_mm512_load_si512(tiles.data[b][pair]));
            sum = _mm512_dpbf16_ps(sum, left, right);
        }
        _mm512_store_ps(tiles.data[sums][row], sum);
    }
}

void multiply_s8(int sums, int a, int b) {
    need_product(sums, a, b);
    for (int row = 0; row < tiles.rows[sums]; ++row)
        for (int column = 0; column < tiles.bytes[sums] / 4; ++column) {
            std::uint32_t sum = 0;
            memcpy(&sum, tiles.data[sums][row] + 4 * column, sizeof sum);
            for (int k = 0; k < tiles.bytes[a]; ++k) {
                const auto left = static_cast<std::int8_t>(tiles.data[a][row][k]);
                const auto right = static_cast<std::int8_t>(tiles.data[b][k / 4][4 * column + k % 4]);
                sum += static_cast<std::uint32_t>(left * right);
            }
            memcpy(tiles.data[sums][row] + 4 * column, &sum, sizeof sum);
        }
}

/// False where the instruction is none of those that this project uses.
bool execute(const Instruction& in) {
    switch (in.opcode << 4 | in.prefix << 1 | int{in.memory}) {
        case 0x490 | 1:
            load_configuration(in.base);
            return true;
        case 0x490 | 0:
            tiles = {};
            return true;
        case 0x490 | 3 << 1:
            need(in.reg);
            memset(tiles.data[in.reg], 0, sizeof tiles.data[in.reg]);
            return true;
        case 0x4b0 | 3 << 1 | 1:
        case 0x4b0 | 1 << 1 | 1:  // with the hint that it will not be used again
            load_rows(in.reg, in);
            return true;
        case 0x4b0 | 2 << 1 | 1:
            store_rows(in.reg, in);
            return true;
        case 0x5c0 | 2 << 1:
            multiply_bf16(in.reg, in.rm, in.vvvv);
            return true;
        case 0x5e0 | 3 << 1:
            multiply_s8(in.reg, in.rm, in.vvvv);
            return true;
        default:
            return false;
    }
}

/// Does the work of the instruction that faulted, and of those that follow as long as they are tiles', too: a
/// fault takes far longer than what they compute.
void on_illegal_instruction(int, siginfo_t*, void* state) {
    auto& context = *static_cast<ucontext_t*>(state);
    auto& at = context.uc_mcontext.gregs[REG_RIP];
    const auto first = at;
    for (Instruction instruction;
         decode(context, reinterpret_cast<const std::uint8_t*>(at), instruction) && execute(instruction);
         instruction = {})
        at += instruction.length;
    if (at == first) signal(SIGILL, SIG_DFL);  // and it faults again
}

}  // namespace

void emulate_tiles() {
    struct sigaction action = {};
    action.sa_sigaction = on_illegal_instruction;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGILL, &action, nullptr);
}

}  // namespace mantissa::testing
