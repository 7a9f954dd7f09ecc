// Operands of the matrix modes, row by row, into panels: half bytes are widened, compressed rows filled up.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mantissa/device/cpu/modes/matrix_mode.h"
#include "mantissa/device/cpu/modes/mode_kernels.h"
#include "mantissa/device/cpu/sparse.h"

namespace mantissa::inline v0::on_cpu {

/// How many numbers a byte of an operand holds, 1 at least.
std::int64_t numbers_of_byte(MatrixMode mode);

/// Bits of a number in an operand.
std::int64_t operand_bits(MatrixMode mode);

/// Bits of a number in a panel of the kernel.
std::int64_t panel_bits(MatrixMode mode, const ModeKernel& kernel);

/// Whether the first operand may be 2:4 sparse.
bool has_sparse_form(MatrixMode mode);
/// The format of such an operand.
SparseFormat sparse_format_of(MatrixMode mode);

/// An operand as it was given.
struct ModeRows {
    MatrixMode mode = MatrixMode::f64;
    FirstOperand form = FirstOperand::dense;
    const std::byte* data = nullptr;
    const std::uint8_t* positions = nullptr;
    std::int64_t k = 0;
};

ModeRows first_rows(const ModeProblem& problem, const ModeArguments& arguments);
ModeRows second_rows(const ModeProblem& problem, const ModeArguments& arguments);

/// A panel to fill; lines that are missing are zero.
struct ModePanel {
    std::int64_t lines = 0;
    std::int64_t words = 0;
    const ModeKernel* kernel = nullptr;
    std::byte* row = nullptr;  ///< scratch of `words` words, and as many more where the kernel widens
    std::byte* to = nullptr;
};

/// Lines from `row` on, as rows of the product.
void pack_rows(const ModeRows& rows, std::int64_t row, const ModePanel& panel);
/// As columns: what the sums start from, then the lines.
void pack_columns(const ModeRows& rows, std::int64_t row, const ModePanel& panel);

/// Numbers of row `row` of an operand, filled up and without a shift: [k], FP64, FP16, bytes or bits.
void expand_row(const ModeRows& rows, std::int64_t row, std::byte* to);

}  // namespace mantissa::on_cpu
