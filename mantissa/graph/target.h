// The facts that passes may know of a machine, as plain data. The device fills it in; passes read it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

namespace mantissa::inline v0 {

/// The costs that fusing may count on.
struct FusionCosts {
    /// The least that a fused kernel must save each time that it runs, in bytes moved. Compiling one for the
    /// CPU takes about 3 ms, while memory moves some 30 MB; over a thousand runs that is 30 KB a run.
    std::int64_t min_bytes_saved = 32 << 10;
    /// Operands and outputs of one kernel. Each takes a register for its address; x86-64 has 16 of them.
    std::size_t max_operands = 16;
    /// Instructions on sixteen lanes in the time that memory moves one byte. A core of a CPU runs about 3.5
    /// of them in a nanosecond, while both directions together move some 8 bytes for it.
    double instructions_per_byte = 0.44;
    /// Columns of the widest rows whose sums, one a column, stay on the chip while a kernel goes over rows.
    /// In a kernel of wider rows each row would read and write all sums in memory.
    std::int64_t max_columns_summed = std::numeric_limits<std::int64_t>::max();
};

/// Nanoseconds of one thread: for one kernel of a whole operation, and for its parts, fused without that
/// kernel. Estimated from measurements on one machine, to choose between the two; only their ratio matters.
struct TimeBesideParts {
    std::string kernel;
    double whole = 0, parts = 0;
};

struct Target {
    std::string device = "cpu";
    std::string name = {};  ///< the processor's own words, for reports only; nothing is decided by it
    std::string isa = {};   ///< the instruction-set level in use: generic, avx2, avx512, amx
    int threads = 1;
    std::int64_t l1_bytes = 0;  ///< data cache of one core
    std::int64_t l2_bytes = 0;  ///< of one core
    std::int64_t l3_bytes = 0;  ///< shared
    /// The unit that multiplies BF16 faster than FP32: amx, avx512_bf16, tensor cores; empty: there is none.
    std::string bf16_unit = {};
    std::string fp8_unit = {};            ///< the unit that multiplies FP8; empty: there is none
    std::string reason_of_unit = {};      ///< why that unit, for people; empty where there was no choice
    std::string fastest_policy = "fp32";  ///< the policy whose steps take the least time, with FP32 sums
    bool tf32_beats_fp32 = false;         ///< FP32 operands are multiplied faster where they are rounded
    /// Contractions whose extents are multiples of this end on whole tiles, for all kernels. It is eight
    /// tiles of 16 numbers, and as many BF16 numbers as four cache lines hold.
    std::int64_t extent_multiple = 128;
    /// Alignment of values in memory, in bytes: the CPU's cache line.
    std::int64_t alignment = 64;
    /// Copies between the host's memory and the device's run beside its work, so that the next step's inputs
    /// may travel while one runs.
    bool overlaps_copies = false;
    /// Beginning a kernel costs so much that updates of many parameters are better one
    /// (passes/join_updates.h).
    bool joins_updates = false;
    /// Contractions with the attribute `leaves_zeros_out` take less time for rows of zeros.
    bool leaves_zeros_out = false;
    /// A tensor's largest number is found by the kernel that writes it, where possible: a second reading
    /// would take as long as the writing.
    bool finds_largest_where_written = false;
    FusionCosts fusion = {};
    std::string cannot_compile = {};  ///< why fused nodes have no kernels; empty if they have
    std::string cannot_attach_epilogues =
        {};  ///< why contractions take no compiled epilogue; empty if they do
    /// Why contractions take only the epilogues that a kernel is offered for; empty: they take any.
    std::string attaches_few_epilogues = {};
    std::string epilogues_lose_at_16_bits = {};  ///< why 16-bit products take none; empty if they do
    std::string cannot_widen_codes = {};         ///< why products take no codes and scales; empty if they do
    std::string cannot_multiply_tf32 = {};       ///< why TF32 is forbidden; empty if it is not
};

}  // namespace mantissa
