// Matrix modes beyond those of the contraction, which sums in FP32, as pure functions: D = A * B + C of FP64,
// of FP16 summed in FP16, of whole numbers of 8 and 4 bits and of bits. They know nothing of graphs and
// allocate nothing.
//
//     ModeProblem problem{.mode = MatrixMode::s8, .m = 4096, .n = 3072, .k = 768};
//     Buffer workspace(workspace_bytes(problem, isa, pool.threads()));
//     multiply(problem, {.a = x, .b = w, .d = y}, workspace.as<std::byte>(), pool, isa);
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "mantissa/base/thread_pool.h"
#include "mantissa/device/cpu/isa.h"
#include "mantissa/device/cpu/modes/modes.h"

namespace mantissa::inline v0::on_cpu {

/// "f64*f64+f64", "f16*f16+f16", "s8*s8+s32", "s4*s4+s32", "b1*b1+s32 (xor)", "b1*b1+s32 (and)".
std::string_view name_of(MatrixMode mode);

enum class FirstOperand : std::uint8_t {
    dense,
    two_of_four,  ///< compressed, as sparse.h makes it; f16, s8 and s4 only
};

struct ModeProblem {
    MatrixMode mode = MatrixMode::f64;
    FirstOperand first = FirstOperand::dense;
    std::int64_t m = 0;
    std::int64_t n = 0;
    std::int64_t k = 0;
};

/// Rows lie one after another without gaps. d may be c; no other two may overlap.
struct ModeArguments {
    const void* a = nullptr;                  ///< [m, k]; compressed: values [m, k / 2]
    const std::uint8_t* positions = nullptr;  ///< of a compressed first operand
    const void* b = nullptr;                  ///< [n, k]: the transpose of B, so that depth is contiguous
    const void* c = nullptr;                  ///< [m, n], FP64, FP16 or 32 bits; null: zero
    void* d = nullptr;                        ///< [m, n], likewise
};

/// Why the problem cannot be done; empty if it can: sizes below 0, a depth that does not fill bytes or groups
/// of four, a depth at which sums could leave 32 bits, a mode without a sparse form.
std::string refusal(const ModeProblem& problem);

std::size_t workspace_bytes(const ModeProblem& problem, Isa isa, int threads);

/// Whole numbers exactly; FP64 with one rounding a product and sum where the level has FMA, else two; FP16
/// with one rounding to FP16 for each product that is added, in the order of the depth, and one for c, at
/// every level. The same bits for any number of threads. Throws UserError with the reason of a refusal,
/// InternalError for a workspace that is too small.
void multiply(const ModeProblem& problem, const ModeArguments& arguments, std::span<std::byte> workspace,
              ThreadPool& pool, Isa isa);

/// The same, one product after another: what tests compare with.
void multiply_reference(const ModeProblem& problem, const ModeArguments& arguments);

}  // namespace mantissa::on_cpu
