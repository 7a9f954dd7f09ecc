#include "mantissa/device/cpu/modes/pack_mode.h"

#include <cstring>

#include "mantissa/base/error.h"
#include "mantissa/device/cpu/sparse.h"

namespace mantissa::inline v0::on_cpu {

std::int64_t operand_bits(MatrixMode mode) {
    switch (mode) {
        case MatrixMode::f64:
            return 64;
        case MatrixMode::f16:
            return 16;
        case MatrixMode::s8:
            return 8;
        case MatrixMode::s4:
            return 4;
        case MatrixMode::b1_exclusive_or:
        case MatrixMode::b1_conjunction:
            return 1;
    }
    throw InternalError("a matrix mode outside of its enumeration");
}

namespace {

/// Two bytes of each, the lower half first, extended by their signs.
void widen_halves(const std::byte* from, std::int64_t count, std::byte* to) {
    for (std::int64_t i = 0; i < count / 2; ++i) {
        const auto both = static_cast<unsigned>(from[i]);
        to[2 * i] = static_cast<std::byte>(((both & 0xfu) ^ 8u) - 8u);
        to[2 * i + 1] = static_cast<std::byte>(((both >> 4) ^ 8u) - 8u);
    }
}

/// A compressed row. Half bytes fill the second half of `to` before they are widened from there.
void fill_up(const ModeRows& rows, std::int64_t row, std::byte* to) {
    const SparseFormat format = sparse_format_of(rows.mode);
    const std::byte* const values = rows.data + row * (rows.k / 2 * operand_bits(rows.mode) / 8);
    const std::uint8_t* const positions = rows.positions + row * ((rows.k + 7) / 8);
    if (rows.mode != MatrixMode::s4) return decompress_row(format, values, positions, rows.k, to);
    std::byte* const halves = to + rows.k / 2;
    decompress_row(format, values, positions, rows.k, halves);
    widen_halves(halves, rows.k, to);
}

/// The row as whole words, zeros behind it.
void stage_row(const ModeRows& rows, std::int64_t row, const ModePanel& panel) {
    const ModeKernel& kernel = *panel.kernel;
    const std::int64_t bytes = panel.words * kernel.word_bytes;
    const std::int64_t filled = rows.k * panel_bits(rows.mode, kernel) / 8;
    if (kernel.widen) {
        void* const words = panel.row;
        expand_row(rows, row, panel.row + bytes);
        kernel.widen(panel.row + bytes, rows.k, &words);
    } else {
        expand_row(rows, row, panel.row);
    }
    std::memset(panel.row + filled, 0, static_cast<std::size_t>(bytes - filled));
}

template <class Word>
void scatter(const std::byte* row, std::int64_t words, std::int64_t lines, std::byte* to) {
    for (std::int64_t word = 0; word < words; ++word)
        std::memcpy(to + word * lines * static_cast<std::int64_t>(sizeof(Word)),
                    row + word * static_cast<std::int64_t>(sizeof(Word)), sizeof(Word));
}

/// Words of the staged row into line `line` of `lines`.
void scatter_row(const ModePanel& panel, std::int64_t lines, std::int64_t line, std::byte* to) {
    std::byte* const first = to + line * panel.kernel->word_bytes;
    switch (panel.kernel->word_bytes) {
        case 8:
            return scatter<std::uint64_t>(panel.row, panel.words, lines, first);
        case 4:
            return scatter<std::uint32_t>(panel.row, panel.words, lines, first);
        case 2:
            return scatter<std::uint16_t>(panel.row, panel.words, lines, first);
        default:
            throw InternalError("panels of words that are neither of 2, 4 nor 8 bytes");
    }
}

}  // namespace

std::int64_t numbers_of_byte(MatrixMode mode) {
    const std::int64_t bits = operand_bits(mode);
    return bits < 8 ? 8 / bits : 1;
}

std::int64_t panel_bits(MatrixMode mode, const ModeKernel& kernel) {
    if (mode == MatrixMode::f16) return 8 * kernel.word_bytes;
    return mode == MatrixMode::s4 ? 8 : operand_bits(mode);
}

bool has_sparse_form(MatrixMode mode) {
    return mode == MatrixMode::f16 || mode == MatrixMode::s8 || mode == MatrixMode::s4;
}

SparseFormat sparse_format_of(MatrixMode mode) {
    check(has_sparse_form(mode), "a matrix mode without 2:4 sparse operands");
    return mode == MatrixMode::f16  ? SparseFormat::f16
           : mode == MatrixMode::s8 ? SparseFormat::s8
                                    : SparseFormat::s4;
}

ModeRows first_rows(const ModeProblem& problem, const ModeArguments& arguments) {
    return {.mode = problem.mode,
            .form = problem.first,
            .data = static_cast<const std::byte*>(arguments.a),
            .positions = arguments.positions,
            .k = problem.k};
}

ModeRows second_rows(const ModeProblem& problem, const ModeArguments& arguments) {
    return {.mode = problem.mode, .data = static_cast<const std::byte*>(arguments.b), .k = problem.k};
}

void expand_row(const ModeRows& rows, std::int64_t row, std::byte* to) {
    if (rows.form == FirstOperand::two_of_four) return fill_up(rows, row, to);
    const std::int64_t bytes = rows.k * operand_bits(rows.mode) / 8;
    const std::byte* const from = rows.data + row * bytes;
    if (rows.mode == MatrixMode::s4) return widen_halves(from, rows.k, to);
    if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

void pack_rows(const ModeRows& rows, std::int64_t row, const ModePanel& panel) {
    const std::int64_t height = panel.kernel->height;
    const std::int64_t bytes = panel.words * panel.kernel->word_bytes;
    if (panel.lines < height) std::memset(panel.to, 0, static_cast<std::size_t>(bytes * height));
    for (std::int64_t line = 0; line < panel.lines; ++line) {
        stage_row(rows, row + line, panel);
        if (const int shift = panel.kernel->row_shift; shift != 0)
            for (std::int64_t i = 0; i < bytes; ++i)
                panel.row[i] = static_cast<std::byte>(static_cast<int>(panel.row[i]) + shift);
        if (panel.kernel->rows_whole)
            std::memcpy(panel.to + line * bytes, panel.row, static_cast<std::size_t>(bytes));
        else
            scatter_row(panel, height, line, panel.to);
    }
}

void pack_columns(const ModeRows& rows, std::int64_t row, const ModePanel& panel) {
    const ModeKernel& kernel = *panel.kernel;
    const std::int64_t bytes = panel.words * kernel.word_bytes;
    const std::int64_t starts = kernel.width * kernel.sum_bytes;
    const std::int64_t whole = starts + bytes * kernel.width;
    // What sums start from is zero but where rows are shifted.
    std::memset(panel.to, 0, static_cast<std::size_t>(panel.lines < kernel.width ? whole : starts));
    for (std::int64_t line = 0; line < panel.lines; ++line) {
        stage_row(rows, row + line, panel);
        scatter_row(panel, kernel.width, line, panel.to + starts);
        if (kernel.row_shift == 0) continue;
        std::int32_t sum = 0;
        for (std::int64_t i = 0; i < bytes; ++i) sum += static_cast<std::int8_t>(panel.row[i]);
        const std::int32_t start = -kernel.row_shift * sum;
        std::memcpy(panel.to + line * kernel.sum_bytes, &start, sizeof start);
    }
}

}  // namespace mantissa::on_cpu
