#include "mantissa/device/cpu/modes/byte_product.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "mantissa/base/error.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/modes/byte_kernels.h"

namespace mantissa::inline v0::on_cpu {

namespace {

constexpr std::int64_t word_bytes = 4, sum_bytes = 4;

ByteKernel byte_kernel(Isa isa) {
    if (isa == Isa::generic) return byte_kernel_generic();
    if (isa == Isa::amx) return byte_kernel_amx();
    return isa >= Isa::avx512 && has_avx512_vnni() ? byte_kernel_avx512_vnni() : byte_kernel_avx2();
}

/// Facts that follow from a problem and its kernel.
struct BytePlan {
    ByteKernel kernel;
    std::int64_t words = 0;  ///< of a line of a panel
    std::int64_t a_panels = 0, b_panels = 0;
    std::int64_t a_panel_bytes = 0, b_panel_bytes = 0;

    BytePlan(const ByteProduct& problem, Isa isa) : kernel(byte_kernel(isa)) {
        words = align_up(ceil_div(problem.k, word_bytes), kernel.word_unit);
        a_panels = ceil_div(problem.m, kernel.height);
        b_panels = ceil_div(problem.n, kernel.width);
        a_panel_bytes = in_lines(line_bytes() * kernel.height);
        b_panel_bytes = in_lines((line_bytes() + sum_bytes) * kernel.width);
    }
    std::int64_t line_bytes() const { return words * word_bytes; }
    /// Bytes of a line of a worker's scratch.
    std::int64_t row_bytes() const { return in_lines(line_bytes()); }
};

/// A panel to fill with lines of an operand; lines that are missing are zero.
struct BytePanel {
    const BytePlan& plan;
    const std::byte* from;
    std::int64_t k, lines;
    std::byte* row;  ///< scratch
    std::byte* to;

    /// The line as whole words, zeros behind it.
    void stage(std::int64_t line) const {
        if (k > 0) std::memcpy(row, from + line * k, static_cast<std::size_t>(k));
        std::memset(row + k, 0, static_cast<std::size_t>(plan.line_bytes() - k));
    }
    /// Words of the staged line into line `line` of `all`.
    void scatter(std::int64_t all, std::int64_t line, std::byte* into) const {
        for (std::int64_t word = 0; word < plan.words; ++word)
            std::memcpy(into + (word * all + line) * word_bytes, row + word * word_bytes, word_bytes);
    }
    void clear(std::int64_t bytes) const { std::memset(to, 0, static_cast<std::size_t>(bytes)); }

    /// Lines as rows of the product.
    void pack_rows() const {
        const ByteKernel& kernel = plan.kernel;
        if (lines < kernel.height) clear(plan.line_bytes() * kernel.height);
        for (std::int64_t line = 0; line < lines; ++line) {
            stage(line);
            for (std::int64_t i = 0; i < plan.line_bytes() && kernel.row_shift != 0; ++i)
                row[i] = static_cast<std::byte>(static_cast<int>(row[i]) + kernel.row_shift);
            if (kernel.rows_whole)
                std::memcpy(to + line * plan.line_bytes(), row, static_cast<std::size_t>(plan.line_bytes()));
            else
                scatter(kernel.height, line, to);
        }
    }
    /// As columns: what the sums start from, which is zero but where rows are shifted, then the lines.
    void pack_columns() const {
        const ByteKernel& kernel = plan.kernel;
        const std::int64_t starts = kernel.width * sum_bytes;
        clear(lines < kernel.width ? starts + plan.line_bytes() * kernel.width : starts);
        for (std::int64_t line = 0; line < lines; ++line) {
            stage(line);
            scatter(kernel.width, line, to + starts);
            if (kernel.row_shift == 0) continue;
            std::int32_t sum = 0;
            for (std::int64_t i = 0; i < plan.line_bytes(); ++i) sum += static_cast<std::int8_t>(row[i]);
            const std::int32_t start = -kernel.row_shift * sum;
            std::memcpy(to + line * sum_bytes, &start, sizeof start);
        }
    }
};

/// Packs both operands: a panel a block. Lines go through a row of their own in the workspace.
void pack(const ByteProduct& problem, const BytePlan& plan, std::byte* a, std::byte* b, std::byte* rows,
          ThreadPool& pool) {
    const ByteKernel& kernel = plan.kernel;
    pool.for_each_block(plan.a_panels + plan.b_panels, [&](std::int64_t block, int worker) {
        const bool of_a = block < plan.a_panels;
        const std::int64_t panel = of_a ? block : block - plan.a_panels,
                           size = of_a ? kernel.height : kernel.width, first = panel * size;
        const BytePanel to{
            .plan = plan,
            .from = static_cast<const std::byte*>(of_a ? problem.a : problem.b) + first * problem.k,
            .k = problem.k,
            .lines = std::min(size, (of_a ? problem.m : problem.n) - first),
            .row = rows + worker * plan.row_bytes(),
            .to = of_a ? a + panel * plan.a_panel_bytes : b + panel * plan.b_panel_bytes};
        of_a ? to.pack_rows() : to.pack_columns();
    });
}

/// Blocks of about 192 rows and 16 panels of columns: the rows of a stay in L2 while each panel of b passes.
void multiply_panels(const ByteProduct& problem, const BytePlan& plan, const std::byte* a, const std::byte* b,
                     ThreadPool& pool) {
    const ByteKernel& kernel = plan.kernel;
    const std::int64_t high = 192 / kernel.height, wide = 16;
    const std::int64_t down = ceil_div(plan.a_panels, high), across = ceil_div(plan.b_panels, wide);
    pool.for_each_block(down * across, [&](std::int64_t block, int) {
        if (kernel.begin) kernel.begin();
        const std::int64_t a_first = block / across * high, a_end = std::min(a_first + high, plan.a_panels);
        const std::int64_t b_first = block % across * wide, b_end = std::min(b_first + wide, plan.b_panels);
        for (std::int64_t j = b_first; j < b_end; ++j)
            for (std::int64_t i = a_first; i < a_end; ++i) {
                const std::int64_t row = i * kernel.height, col = j * kernel.width;
                kernel.multiply(
                    {.a = a + i * plan.a_panel_bytes,
                     .b = b + j * plan.b_panel_bytes,
                     .words = plan.words,
                     .d = static_cast<std::byte*>(problem.d) + (row * problem.n + col) * sum_bytes,
                     .leading = problem.n,
                     .rows = std::min(kernel.height, problem.m - row),
                     .cols = std::min(kernel.width, problem.n - col)});
            }
        if (kernel.end) kernel.end();
    });
}

}  // namespace

std::string refusal(const ByteProduct& problem) {
    constexpr std::int64_t max_depth = INT32_MAX / (128 * 128);
    if (problem.m < 0 || problem.n < 0 || problem.k < 0)
        return fmt::format("s8*s8+s32: M, N and K must be 0 or more, got {}, {} and {}", problem.m, problem.n,
                           problem.k);
    if (problem.k > max_depth)
        return fmt::format("s8*s8+s32: sums of more than {} products could leave 32 bits, K is {}", max_depth,
                           problem.k);
    return "";
}

std::size_t byte_product_workspace(const ByteProduct& problem, Isa isa, int threads) {
    const BytePlan plan(problem, isa);
    return static_cast<std::size_t>(plan.a_panels * plan.a_panel_bytes + plan.b_panels * plan.b_panel_bytes +
                                    threads * plan.row_bytes());
}

void multiply_bytes(const ByteProduct& problem, std::span<std::byte> workspace, ThreadPool& pool, Isa isa) {
    if (const std::string reason = refusal(problem); !reason.empty()) throw UserError(reason);
    check(workspace.size() >= byte_product_workspace(problem, isa, pool.threads()),
          "a product of bytes: the workspace is too small");
    if (problem.m == 0 || problem.n == 0) return;
    const BytePlan plan(problem, isa);
    std::byte* const a = workspace.data();
    std::byte* const b = a + plan.a_panels * plan.a_panel_bytes;
    pack(problem, plan, a, b, b + plan.b_panels * plan.b_panel_bytes, pool);
    multiply_panels(problem, plan, a, b, pool);
}

}  // namespace mantissa::on_cpu
