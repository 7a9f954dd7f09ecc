// What passes may know of a machine, as plain data. The device fills it in; passes read it.
#pragma once

#include <cstdint>
#include <string>

namespace mantissa::inline v0 {

struct Target {
    std::string device = "cpu";
    std::string name;  ///< the processor's own words, for reports only; nothing is decided by it
    std::string isa;   ///< the instruction-set level in use: generic, avx2, avx512, amx
    int threads = 1;
    std::int64_t l1_bytes = 0;      ///< data cache of one core
    std::int64_t l2_bytes = 0;      ///< of one core
    std::int64_t l3_bytes = 0;      ///< shared
    bool matrix_unit_bf16 = false;  ///< BF16 operands are multiplied faster than FP32 ones
    std::string bf16_unit = {};     ///< by what: amx, avx512_bf16; empty: by nothing of the kind
    /// Contractions whose extents are multiples of it end on whole tiles, of all kernels alike: it is eight
    /// tiles of 16 numbers, and as many BF16 numbers as four cache lines hold.
    std::int64_t extent_multiple = 128;
    std::string cannot_compile = {};        ///< why fused nodes have no kernels; empty if they have
    std::string cannot_attach_tails = {};   ///< why contractions take no compiled tail; empty if they do
    std::string cannot_multiply_tf32 = {};  ///< why TF32 is forbidden; empty if it is not
};

}  // namespace mantissa
