#include "mantissa/device/cpu/modes/matrix_mode.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "mantissa/base/error.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/modes/mode_kernels.h"
#include "mantissa/device/cpu/modes/pack_mode.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// What follows from a problem and its kernel.
struct Plan {
    ModeKernel kernel;
    std::int64_t words = 0;  ///< of a line of a panel
    std::int64_t a_panels = 0, b_panels = 0;
    std::int64_t a_panel_bytes = 0, b_panel_bytes = 0;

    std::int64_t line_bytes() const { return words * kernel.word_bytes; }
    /// Of a worker's scratch: a line, and the numbers that are widened to it.
    std::int64_t row_bytes() const { return in_lines(line_bytes()) * (kernel.widen ? 2 : 1); }
};

Plan plan_of(const ModeProblem& problem, Isa isa) {
    Plan plan{.kernel = mode_kernel(problem.mode, isa)};
    const ModeKernel& kernel = plan.kernel;
    const std::int64_t word_bits = 8 * kernel.word_bytes;
    plan.words =
        rounded_up(parts_of(panel_bits(problem.mode, kernel) * problem.k, word_bits), kernel.word_unit);
    plan.a_panels = parts_of(problem.m, kernel.height);
    plan.b_panels = parts_of(problem.n, kernel.width);
    plan.a_panel_bytes = in_lines(plan.line_bytes() * kernel.height);
    plan.b_panel_bytes = in_lines((plan.line_bytes() + kernel.sum_bytes) * kernel.width);
    return plan;
}

/// Packs both operands: a panel a block. Lines go through a row of their own in the workspace.
void pack(const ModeProblem& problem, const ModeArguments& arguments, const Plan& plan, std::byte* a,
          std::byte* b, std::byte* rows, ThreadPool& pool) {
    const ModeKernel& kernel = plan.kernel;
    const ModeRows first = first_rows(problem, arguments), second = second_rows(problem, arguments);
    pool.for_each_block(plan.a_panels + plan.b_panels, [&](std::int64_t block, int worker) {
        ModePanel panel{.words = plan.words, .kernel = &kernel, .row = rows + worker * plan.row_bytes()};
        if (block < plan.a_panels) {
            const std::int64_t row = block * kernel.height;
            panel.lines = std::min(kernel.height, problem.m - row);
            panel.to = a + block * plan.a_panel_bytes;
            pack_rows(first, row, panel);
        } else {
            const std::int64_t row = (block - plan.a_panels) * kernel.width;
            panel.lines = std::min(kernel.width, problem.n - row);
            panel.to = b + (block - plan.a_panels) * plan.b_panel_bytes;
            pack_columns(second, row, panel);
        }
    });
}

/// Blocks of about 192 rows and 16 panels of columns: the rows of a stay in L2 while each panel of b passes.
void multiply_panels(const ModeProblem& problem, const ModeArguments& arguments, const Plan& plan,
                     const std::byte* a, const std::byte* b, ThreadPool& pool) {
    const ModeKernel& kernel = plan.kernel;
    const std::int64_t high = 192 / kernel.height, wide = 16;
    const std::int64_t down = (plan.a_panels + high - 1) / high, across = (plan.b_panels + wide - 1) / wide;
    const auto* const c = static_cast<const std::byte*>(arguments.c);
    auto* const d = static_cast<std::byte*>(arguments.d);
    pool.for_each_block(down * across, [&](std::int64_t block, int) {
        if (kernel.begin) kernel.begin();
        const std::int64_t a_first = block / across * high, a_end = std::min(a_first + high, plan.a_panels);
        const std::int64_t b_first = block % across * wide, b_end = std::min(b_first + wide, plan.b_panels);
        for (std::int64_t j = b_first; j < b_end; ++j)
            for (std::int64_t i = a_first; i < a_end; ++i) {
                const std::int64_t row = i * kernel.height, col = j * kernel.width;
                const std::int64_t at = (row * problem.n + col) * kernel.sum_bytes;
                kernel.multiply({.a = a + i * plan.a_panel_bytes,
                                 .b = b + j * plan.b_panel_bytes,
                                 .words = plan.words,
                                 .c = c ? c + at : nullptr,
                                 .d = d + at,
                                 .leading = problem.n,
                                 .rows = std::min(kernel.height, problem.m - row),
                                 .cols = std::min(kernel.width, problem.n - col)});
            }
        if (kernel.end) kernel.end();
    });
}

/// The depth up to which sums of the greatest products stay within 32 bits; of FP64 and FP16, no bound.
std::int64_t most_depth(MatrixMode mode) {
    switch (mode) {
        case MatrixMode::f64:
        case MatrixMode::f16:
            return INT64_MAX;
        case MatrixMode::s8:
            return INT32_MAX / (128 * 128);
        case MatrixMode::s4:
            return INT32_MAX / (8 * 8);
        case MatrixMode::b1_exclusive_or:
        case MatrixMode::b1_conjunction:
            return INT32_MAX;
    }
    throw InternalError("a matrix mode outside of its enumeration");
}

}  // namespace

std::string_view name_of(MatrixMode mode) {
    switch (mode) {
        case MatrixMode::f64:
            return "f64*f64+f64";
        case MatrixMode::f16:
            return "f16*f16+f16";
        case MatrixMode::s8:
            return "s8*s8+s32";
        case MatrixMode::s4:
            return "s4*s4+s32";
        case MatrixMode::b1_exclusive_or:
            return "b1*b1+s32 (xor)";
        case MatrixMode::b1_conjunction:
            return "b1*b1+s32 (and)";
    }
    throw InternalError("a matrix mode outside of its enumeration");
}

std::string refusal(const ModeProblem& problem) {
    const std::string_view name = name_of(problem.mode);
    if (problem.m < 0 || problem.n < 0 || problem.k < 0)
        return fmt::format("{}: M, N and K must be 0 or more, got {}, {} and {}", name, problem.m, problem.n,
                           problem.k);
    const std::int64_t in_byte = numbers_of_byte(problem.mode);
    if (problem.k % in_byte != 0)
        return fmt::format("{} holds {} numbers in a byte: K must be a multiple of {}, got {}", name, in_byte,
                           in_byte, problem.k);
    if (problem.k > most_depth(problem.mode))
        return fmt::format("{}: sums of more than {} products could leave 32 bits, K is {}", name,
                           most_depth(problem.mode), problem.k);
    if (problem.first == FirstOperand::dense) return "";
    if (!has_sparse_form(problem.mode))
        return fmt::format("{} has no form with a 2:4 sparse first operand; f16, s8 and s4 have", name);
    if (problem.k % 4 != 0)
        return fmt::format("{}, 2:4 sparse: K must be a multiple of 4, got {}", name, problem.k);
    return "";
}

std::size_t workspace_bytes(const ModeProblem& problem, Isa isa, int threads) {
    const Plan plan = plan_of(problem, isa);
    return static_cast<std::size_t>(plan.a_panels * plan.a_panel_bytes + plan.b_panels * plan.b_panel_bytes +
                                    threads * plan.row_bytes());
}

void multiply(const ModeProblem& problem, const ModeArguments& arguments, std::span<std::byte> workspace,
              ThreadPool& pool, Isa isa) {
    if (const std::string reason = refusal(problem); !reason.empty()) throw UserError(reason);
    check(workspace.size() >= workspace_bytes(problem, isa, pool.threads()),
          "matrix mode: the workspace is too small");
    if (problem.m == 0 || problem.n == 0) return;
    const Plan plan = plan_of(problem, isa);
    std::byte* const a = workspace.data();
    std::byte* const b = a + plan.a_panels * plan.a_panel_bytes;
    pack(problem, arguments, plan, a, b, b + plan.b_panels * plan.b_panel_bytes, pool);
    multiply_panels(problem, arguments, plan, a, b, pool);
}

}  // namespace mantissa::on_cpu
