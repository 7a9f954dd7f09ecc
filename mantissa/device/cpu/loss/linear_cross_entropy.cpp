#include "mantissa/device/cpu/loss/linear_cross_entropy.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "mantissa/base/error.h"
#include "mantissa/device/cpu/loss/kernel_table.h"
#include "mantissa/device/cpu/rows/rows.h"

namespace mantissa::cpu {

namespace {

constexpr std::int64_t line = 64;  // bytes of a cache line

// What does not stay in an L2 of 2 MB until it is read again.
constexpr std::int64_t streaming_from = 2 << 20;

// Rows whose sums one thread adds up: 3 KB each for a vocabulary of 50,257.
constexpr std::int64_t rows_of_block = 32;

std::int64_t rounded_up(std::int64_t size, std::int64_t unit) { return (size + unit - 1) / unit * unit; }

/// As few chunks as the most rows allow, and those even: a last chunk of few rows would read all of w for
/// them. In multiples of 32, since no level's panels are higher.
std::int64_t rows_of_chunk(const LinearCrossEntropy& p) {
    const std::int64_t chunks = (p.rows + p.most_rows_of_chunk - 1) / p.most_rows_of_chunk;
    return std::min({p.rows, p.most_rows_of_chunk, rounded_up((p.rows + chunks - 1) / chunks, 32)});
}

std::int64_t columns_of(const LinearCrossEntropy& p) { return p.columns == 0 ? p.classes : p.columns; }

std::int64_t element_bytes(const LinearCrossEntropy& p) {
    return static_cast<std::int64_t>(size_of(p.dtype));
}

/// Elements between rows of exponentials: whole cache lines, so that every row starts on one.
std::int64_t stride_of(const LinearCrossEntropy& p) {
    return rounded_up(columns_of(p), line / element_bytes(p));
}

/// The three contractions of a chunk. Its exponentials become gradients on their way to the last two.
struct Products {
    ContractionProblem logits, dx, dw;

    Products(const LinearCrossEntropy& p, std::int64_t rows) {
        const MatrixLayout x{.dtype = p.dtype, .leading = p.channels};
        const MatrixLayout table{.dtype = p.dtype, .leading = p.channels};
        const MatrixLayout chunk{.dtype = p.dtype, .leading = stride_of(p), .mapped = true};
        logits = {
            .m = rows, .n = columns_of(p), .k = p.channels, .a = x, .b = table, .custom_epilogue = true};
        logits.b.transpose = Transpose::yes;
        dx = {.m = rows, .n = p.channels, .k = columns_of(p), .a = chunk, .b = table, .out = x};
        dw = {.m = columns_of(p),
              .n = p.channels,
              .k = rows,
              .a = chunk,
              .b = x,
              .out = {.leading = p.channels}};
        dw.a.transpose = Transpose::yes;
        logits.multiply = dx.multiply = dw.multiply = p.multiply;
    }
};

const LossKernels& loss_kernels(Isa isa) {
    switch (isa) {
        case Isa::generic:
            return loss_kernels_generic();
        case Isa::avx2:
            return loss_kernels_avx2();
        case Isa::avx512:
        case Isa::amx:
            return bf16_unit(isa) == Bf16Unit::none ? loss_kernels_avx512() : loss_kernels_avx512_bf16();
    }
    throw InternalError("an instruction-set level outside of its enumeration");
}

/// Where the parts of the workspace begin; at its start are the exponentials. Sums are there as long as the
/// first product, whose own memory lies before them.
struct Workspace {
    std::size_t bases, row_numbers, losses, contraction, sums, bytes;

    Workspace(const LinearCrossEntropy& p, Isa isa, int threads) {
        const std::int64_t chunk = rows_of_chunk(p), last = p.rows % chunk;
        std::int64_t groups = 0;
        std::size_t first = 0, others = 0;
        for (const std::int64_t rows : {chunk, last == 0 ? chunk : last}) {
            const Products of(p, rows);
            groups = std::max(groups, columns_of_item(of.logits, isa).groups(columns_of(p)));
            first = std::max(first, workspace_bytes(of.logits, isa, threads));
            if (p.gradients)
                others = std::max(
                    {others, workspace_bytes(of.dx, isa, threads), workspace_bytes(of.dw, isa, threads)});
        }
        const auto lines = [](auto size) {
            return static_cast<std::size_t>(rounded_up(static_cast<std::int64_t>(size), line));
        };
        bases = p.gradients ? lines(chunk * stride_of(p) * element_bytes(p)) : 0;
        row_numbers = bases + lines(groups * chunk * 4);
        losses = row_numbers + lines(3 * chunk * 4);
        contraction = losses + lines(p.rows * 4);
        sums = contraction + lines(first);
        bytes = std::max(sums + lines(groups * chunk * 16 * 4), contraction + others);
    }
};

/// 2^difference of two bases, the second not below the first.
float power_of_two(float difference) {
    if (!(difference >= -126)) return difference < 0 ? 0.0f : difference;  // a NaN comes through
    return std::bit_cast<float>((static_cast<std::int32_t>(difference) + 127) << 23);
}

/// One chunk of rows: its exponentials, what is known of each row, and of each group of columns of it.
struct Chunk {
    const LossKernels& kernels;
    Exponentials exponentials;
    ItemColumns columns;
    std::int64_t groups;
    float* totals;     // [rows], then the gradients at the targets
    float* row_bases;  // [rows]
};

void make_exponentials(float* sums, std::int64_t ld, std::int64_t row0, std::int64_t col0, std::int64_t rows,
                       std::int64_t cols, const void* args) {
    const Chunk& chunk = *static_cast<const Chunk*>(args);
    const std::int64_t group = chunk.columns.group_of(col0);
    chunk.kernels.exponentials(chunk.exponentials, {.logits = sums,
                                                    .leading = ld,
                                                    .row = row0,
                                                    .column = col0,
                                                    .rows = rows,
                                                    .columns = cols,
                                                    .group = group,
                                                    .group_begin = chunk.columns.begin_of(group)});
}

/// Of [tokens, columns], cut where a group of columns ends.
void make_gradients(const MappedPart& part, const void* args) {
    const Chunk& chunk = *static_cast<const Chunk*>(args);
    const Exponentials& e = chunk.exponentials;
    const auto bytes = static_cast<std::int64_t>(size_of(e.y.type));
    for (std::int64_t c = 0, next = 0; c < part.columns; c = next) {
        const std::int64_t group = chunk.columns.group_of(part.column + c);
        next = std::min(part.columns, chunk.columns.begin_of(group + 1) - part.column);
        chunk.kernels.logit_gradients({.y = static_cast<const std::byte*>(part.from) + c * bytes,
                                       .y_leading = part.from_leading,
                                       .to = static_cast<std::byte*>(part.to) + c * bytes,
                                       .to_leading = part.to_leading,
                                       .type = e.y.type,
                                       .rows = part.rows,
                                       .columns = next - c,
                                       .column = part.column + c,
                                       .factors = e.bases + group * e.rows + part.row,
                                       .targets = e.targets + part.row,
                                       .target_gradients = chunk.totals + part.row});
    }
}

class Run {
  public:
    Run(const LinearCrossEntropy& problem, const LinearCrossEntropyArguments& arguments,
        std::span<std::byte> workspace, ThreadPool& pool, Isa isa)
        : p_(problem),
          o_(arguments),
          pool_(pool),
          isa_(isa),
          places_(problem, isa, pool.threads()),
          memory_(workspace.data()),
          losses_(numbers(places_.losses)),
          contraction_(workspace.subspan(places_.contraction, places_.bytes - places_.contraction)) {}

    void run() {
        const std::int64_t most = rows_of_chunk(p_);
        for (std::int64_t first = 0; first < p_.rows; first += most) {
            const std::int64_t rows = std::min(most, p_.rows - first);
            const Products products(p_, rows);
            const Chunk chunk = chunk_of(products, first, rows);
            multiply(products.logits,
                     {.a = x_at(first), .b = o_.w, .epilogue = make_exponentials, .epilogue_args = &chunk});
            finish_rows(chunk, losses_ + first);
            if (p_.gradients) backward(products, chunk, first);
        }
        *o_.loss = mean_of(losses_, p_.rows);
    }

  private:
    float* numbers(std::size_t offset) const { return reinterpret_cast<float*>(memory_ + offset); }
    const std::byte* x_at(std::int64_t row) const {
        return static_cast<const std::byte*>(o_.x) + offset(row);
    }
    std::int64_t offset(std::int64_t row) const { return row * p_.channels * element_bytes(p_); }
    void multiply(const ContractionProblem& problem, const ContractionArguments& arguments) {
        contract(problem, arguments, contraction_, pool_, isa_);
    }

    Chunk chunk_of(const Products& products, std::int64_t first, std::int64_t rows) const {
        const ItemColumns columns = columns_of_item(products.logits, isa_);
        float* const of_rows = numbers(places_.row_numbers);
        return {.kernels = loss_kernels(isa_),
                .exponentials = {.rows = rows,
                                 .classes = p_.classes,
                                 .targets = o_.targets + first,
                                 .y = {p_.gradients ? memory_ : nullptr, p_.dtype},
                                 .stride = stride_of(p_),
                                 .streaming = rows * stride_of(p_) * element_bytes(p_) >= streaming_from,
                                 .target_logits = of_rows,
                                 .sums = numbers(places_.sums),
                                 .bases = numbers(places_.bases)},
                .columns = columns,
                .groups = columns.groups(columns_of(p_)),
                .totals = of_rows + rows,
                .row_bases = of_rows + 2 * rows};
    }

    /// The losses of rows; bases of groups become the factors of gradients, totals the gradients at targets.
    void finish_rows(const Chunk& chunk, float* losses) {
        const Exponentials& e = chunk.exponentials;
        const RowTotals totals{.rows = e.rows,
                               .groups = chunk.groups,
                               .sums = e.sums,
                               .bases = e.bases,
                               .totals = chunk.totals,
                               .base = chunk.row_bases};
        const float scale = o_.seed / static_cast<float>(p_.rows);
        const std::int64_t blocks = (e.rows + rows_of_block - 1) / rows_of_block;
        pool_.for_each_block(blocks, [&](std::int64_t block, int) {
            const Range rows{block * rows_of_block, std::min(e.rows, (block + 1) * rows_of_block)};
            chunk.kernels.row_totals(totals, rows);
            for (std::int64_t row = rows.first; row < rows.last; ++row)
                losses[row] = finish_row(chunk, row, scale);
        });
    }

    static float finish_row(const Chunk& chunk, std::int64_t row, float scale) {
        const Exponentials& e = chunk.exponentials;
        constexpr double ln_of_2 = 0.693147180559945309;
        // With the factor that exponents were made with, so that its rounding, 2^-26 of a logit, cancels.
        const double exponent = static_cast<double>(e.target_logits[row]) * static_cast<double>(log2_of_e);
        const double log_of_target = (exponent - static_cast<double>(chunk.row_bases[row])) * ln_of_2 -
                                     std::log(static_cast<double>(chunk.totals[row]));
        const float factor = scale / chunk.totals[row];
        for (std::int64_t at = row; at < chunk.groups * e.rows; at += e.rows)
            e.bases[at] = factor * power_of_two(e.bases[at] - chunk.row_bases[row]);
        chunk.totals[row] = static_cast<float>(std::expm1(log_of_target)) * scale;
        return static_cast<float>(-log_of_target);
    }

    void backward(const Products& products, const Chunk& chunk, std::int64_t first) {
        multiply(products.dx, {.a = memory_,
                               .b = o_.w,
                               .out = static_cast<std::byte*>(o_.dx) + offset(first),
                               .map_a = make_gradients,
                               .map_a_args = &chunk});
        ContractionProblem dw = products.dw;
        if (first > 0) dw.store = Store::accumulate;
        multiply(
            dw,
            {.a = memory_, .b = x_at(first), .out = o_.dw, .map_a = make_gradients, .map_a_args = &chunk});
    }

    const LinearCrossEntropy& p_;
    const LinearCrossEntropyArguments& o_;
    ThreadPool& pool_;
    Isa isa_;
    Workspace places_;
    std::byte* memory_;  // at its start the exponentials, [chunk, stride]
    float* losses_;      // [N]
    std::span<std::byte> contraction_;
};

}  // namespace

std::string refusal(const LinearCrossEntropy& p, Isa isa) {
    if (p.rows < 1 || p.channels < 1 || p.classes < 1) return "it needs one element or more";
    if (columns_of(p) < p.classes)
        return fmt::format("{} classes do not lie in {} columns", p.classes, p.columns);
    const Products products(p, rows_of_chunk(p));
    for (const ContractionProblem* product : {&products.logits, &products.dx, &products.dw})
        if (std::string reason = refusal(*product, isa); !reason.empty()) return reason;
    return "";
}

std::size_t workspace_bytes(const LinearCrossEntropy& problem, Isa isa, int threads) {
    return Workspace(problem, isa, threads).bytes;
}

void linear_cross_entropy(const LinearCrossEntropy& problem, const LinearCrossEntropyArguments& arguments,
                          std::span<std::byte> workspace, ThreadPool& pool, Isa isa) {
    check(problem.most_rows_of_chunk >= 1, "a chunk of logits has one row or more");
    if (const std::string reason = refusal(problem, isa); !reason.empty())
        throw InternalError("linear_cross_entropy: " + reason);
    check(workspace.size() >= workspace_bytes(problem, isa, pool.threads()),
          "the workspace of linear_cross_entropy is too small");
    check_targets("linear_cross_entropy", arguments.targets, problem.rows, problem.classes);
    Run(problem, arguments, workspace, pool, isa).run();
}

}  // namespace mantissa::cpu
