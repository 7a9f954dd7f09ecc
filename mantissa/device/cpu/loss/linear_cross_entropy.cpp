#include "mantissa/device/cpu/loss/linear_cross_entropy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "mantissa/base/error.h"
#include "mantissa/base/rounding.h"
#include "mantissa/device/cpu/loss/kernel_table.h"
#include "mantissa/device/cpu/rows/rows.h"
#include "mantissa/numerics/formats.h"

namespace mantissa::cpu {

namespace {

constexpr std::int64_t line = 64;  // bytes of a cache line

// What does not stay in an L2 of 2 MB until it is read again.
constexpr std::int64_t streaming_from = 2 << 20;

// Tokens whose sums one thread adds up, in whole lines of FP32.
constexpr std::int64_t tokens_of_block = 64;

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

/// Elements between rows of exponentials, for so many tokens: whole cache lines of any format.
std::int64_t stride_of(std::int64_t tokens) { return rounded_up(tokens, line / 2); }

/// The three contractions of a chunk. Logits are made as w x^T, so that rows of w are packed block by block,
/// as they lie, and meet an x that stays in L2. Their exponentials become gradients on the way to the others.
struct Products {
    ContractionProblem logits, dx, dw;

    Products(const LinearCrossEntropy& p, std::int64_t tokens) {
        const MatrixLayout x{.dtype = p.dtype, .leading = p.channels};
        const MatrixLayout table{.dtype = p.dtype, .leading = p.channels};
        const MatrixLayout chunk{.dtype = p.dtype, .leading = stride_of(tokens), .mapped = true};
        logits = {
            .m = columns_of(p), .n = tokens, .k = p.channels, .a = table, .b = x, .custom_epilogue = true};
        logits.b.transpose = Transpose::yes;
        dx = {.m = tokens, .n = p.channels, .k = columns_of(p), .a = chunk, .b = table, .out = x};
        dx.a.transpose = Transpose::yes;
        dw = {.m = columns_of(p),
              .n = p.channels,
              .k = tokens,
              .a = chunk,
              .b = x,
              .out = {.leading = p.channels}};
        logits.multiply = dx.multiply = dw.multiply = p.multiply;
    }
};

/// How classes are cut: into those that one product makes, and these into groups whose exponentials have
/// bases of their own, those that reach the epilogue in order, on one thread.
struct ClassGroups {
    std::int64_t columns, product, rows = 0, last_rows = 0;

    ClassGroups(const ContractionProblem& logits, const LinearCrossEntropy& p, Isa isa)
        : columns(logits.m), product(logits.m) {
        // A product that keeps sums of an unfinished depth keeps them of all its classes.
        const std::int64_t chunk = columns * stride_of(logits.n) * element_bytes(p);
        if (static_cast<std::int64_t>(workspace_bytes(logits, isa, 1)) > chunk / 8)
            product = std::min(columns, most_classes);
        rows = rows_of_item(of_product(logits, 0), isa);
        last_rows = rows_of_item(of_product(logits, products() - 1), isa);
    }

    std::int64_t products() const { return (columns + product - 1) / product; }
    /// The part of the problem for all classes that is for some.
    ContractionProblem of_product(ContractionProblem logits, std::int64_t index) const {
        logits.m = std::min(product, columns - index * product);
        return logits;
    }
    std::int64_t rows_at(std::int64_t row) const {
        return row / product + 1 == products() ? last_rows : rows;
    }
    std::int64_t group_of(std::int64_t row) const {
        return row / product * ((product + rows - 1) / rows) + row % product / rows_at(row);
    }
    std::int64_t begin_of(std::int64_t row) const { return row - row % product % rows_at(row); }
    std::int64_t end_of(std::int64_t row) const {
        return std::min(begin_of(row) + rows_at(row), (row / product + 1) * product);
    }
    std::int64_t groups() const { return group_of(columns - 1) + 1; }

  private:
    /// As a chunk of the contraction's columns: 12 MB of sums for 1,024 tokens.
    static constexpr std::int64_t most_classes = 3072;
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
    std::size_t bases, token_numbers, losses, contraction, sums, bytes;

    Workspace(const LinearCrossEntropy& p, Isa isa, int threads) {
        const std::int64_t chunk = rows_of_chunk(p), last = p.rows % chunk;
        std::int64_t groups = 0;
        std::size_t first = 0, others = 0;
        for (const std::int64_t tokens : {chunk, last == 0 ? chunk : last}) {
            const Products of(p, tokens);
            const ClassGroups classes(of.logits, p, isa);
            groups = std::max(groups, classes.groups());
            for (std::int64_t i = 0; i < classes.products(); ++i)
                first = std::max(first, workspace_bytes(classes.of_product(of.logits, i), isa, threads));
            if (p.gradients)
                others = std::max(
                    {others, workspace_bytes(of.dx, isa, threads), workspace_bytes(of.dw, isa, threads)});
        }
        const auto lines = [](auto size) {
            return static_cast<std::size_t>(rounded_up(static_cast<std::int64_t>(size), line));
        };
        const std::int64_t stride = stride_of(chunk);
        bases = p.gradients ? lines(columns_of(p) * stride * element_bytes(p)) : 0;
        token_numbers = bases + lines(groups * stride * 4);
        losses = token_numbers + lines(4 * chunk * 4);
        contraction = losses + lines(p.rows * 4);
        sums = contraction + lines(first);
        bytes = std::max(sums + lines(groups * stride * 4), contraction + others);
    }
};

/// One chunk of tokens: its exponentials, and what is known of each token.
struct Chunk {
    const LossKernels& kernels;
    Exponentials exponentials;
    ClassGroups classes;
    std::int64_t tokens;
    const std::int32_t* targets;  // [tokens]
    std::int32_t* by_target;      // [tokens]: the tokens in the order of their targets
    float* target_logits;         // [tokens], then the gradients there
    float* totals;                // [tokens]
    float* total_bases;           // [tokens]

    /// visit(token) for each of these tokens that has one of these classes for a target.
    template <class Visit>
    void for_targets(Range wanted, Range some, Visit visit) const {
        const auto first = std::lower_bound(
            by_target, by_target + tokens, wanted.first,
            [&](std::int32_t token, std::int64_t target) { return targets[token] < target; });
        for (auto at = first; at < by_target + tokens && targets[*at] < wanted.last; ++at)
            if (some.first <= *at && *at < some.last) visit(*at);
    }
};

/// Logits of classes from `first` on.
struct LogitProduct {
    const Chunk& chunk;
    std::int64_t first;
};

void make_exponentials(float* sums, std::int64_t ld, std::int64_t row0, std::int64_t col0, std::int64_t rows,
                       std::int64_t cols, const void* args) {
    const auto& product = *static_cast<const LogitProduct*>(args);
    const Chunk& chunk = product.chunk;
    const std::int64_t row = product.first + row0;
    chunk.for_targets({row, row + rows}, {col0, col0 + cols}, [&](std::int32_t token) {
        chunk.target_logits[token] = sums[(chunk.targets[token] - row) * ld + token - col0];
    });
    chunk.kernels.exponentials(chunk.exponentials, {.logits = sums,
                                                    .leading = ld,
                                                    .row = row,
                                                    .column = col0,
                                                    .rows = rows,
                                                    .columns = cols,
                                                    .group = chunk.classes.group_of(row),
                                                    .group_begin = chunk.classes.begin_of(row)});
}

void store_as(DType type, void* to, std::int64_t at, float value) {
    if (type == DType::f32)
        static_cast<float*>(to)[at] = value;
    else if (type == DType::bf16)
        static_cast<BF16*>(to)[at] = to_bf16(value);
    else
        static_cast<FP16*>(to)[at] = to_fp16(value);
}

/// Gradients of [classes, tokens], cut where a group of classes ends.
void make_gradients(const MappedPart& part, const void* args) {
    const Chunk& chunk = *static_cast<const Chunk*>(args);
    const Exponentials& e = chunk.exponentials;
    const auto bytes = static_cast<std::int64_t>(size_of(e.y.type));
    for (std::int64_t r = 0, next = 0; r < part.rows; r = next) {
        const std::int64_t group = chunk.classes.group_of(part.row + r);
        next = std::min(part.rows, chunk.classes.end_of(part.row + r) - part.row);
        chunk.kernels.logit_gradients(
            {.y = static_cast<const std::byte*>(part.from) + r * part.from_leading * bytes,
             .y_leading = part.from_leading,
             .to = static_cast<std::byte*>(part.to) + r * part.to_leading * bytes,
             .to_leading = part.to_leading,
             .type = e.y.type,
             .rows = next - r,
             .columns = part.columns,
             .factors = e.bases + group * e.stride + part.column});
    }
    chunk.for_targets({part.row, part.row + part.rows}, {part.column, part.column + part.columns},
                      [&](std::int32_t token) {
                          const std::int64_t row = chunk.targets[token] - part.row;
                          store_as(e.y.type, part.to, row * part.to_leading + token - part.column,
                                   chunk.target_logits[token]);
                      });
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
            const std::int64_t tokens = std::min(most, p_.rows - first);
            const Products products(p_, tokens);
            const Chunk chunk = chunk_of(products, first, tokens);
            forward(products, chunk, first);
            finish_tokens(chunk, losses_ + first);
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

    Chunk chunk_of(const Products& products, std::int64_t first, std::int64_t tokens) const {
        float* const of_tokens = numbers(places_.token_numbers);
        const std::int64_t stride = stride_of(tokens);
        Chunk chunk{
            .kernels = loss_kernels(isa_),
            .exponentials = {.classes = p_.classes,
                             .y = {p_.gradients ? memory_ : nullptr, p_.dtype},
                             .stride = stride,
                             .streaming = columns_of(p_) * stride * element_bytes(p_) >= streaming_from,
                             .sums = numbers(places_.sums),
                             .bases = numbers(places_.bases)},
            .classes = ClassGroups(products.logits, p_, isa_),
            .tokens = tokens,
            .targets = o_.targets + first,
            .by_target = reinterpret_cast<std::int32_t*>(of_tokens),
            .target_logits = of_tokens + tokens,
            .totals = of_tokens + 2 * tokens,
            .total_bases = of_tokens + 3 * tokens};
        std::iota(chunk.by_target, chunk.by_target + tokens, 0);
        std::sort(chunk.by_target, chunk.by_target + tokens, [&](std::int32_t a, std::int32_t b) {
            return std::pair(chunk.targets[a], a) < std::pair(chunk.targets[b], b);
        });
        return chunk;
    }

    /// The losses of tokens; bases of groups become the factors of gradients, logits of targets the gradients
    /// there.
    void finish_tokens(const Chunk& chunk, float* losses) {
        const Exponentials& e = chunk.exponentials;
        const TokenTotals totals{.groups = chunk.classes.groups(),
                                 .stride = e.stride,
                                 .sums = e.sums,
                                 .bases = e.bases,
                                 .scale = o_.seed / static_cast<float>(p_.rows),
                                 .totals = chunk.totals,
                                 .total_bases = chunk.total_bases};
        const std::int64_t blocks = (chunk.tokens + tokens_of_block - 1) / tokens_of_block;
        pool_.for_each_block(blocks, [&](std::int64_t block, int) {
            const Range tokens{block * tokens_of_block,
                               std::min(chunk.tokens, (block + 1) * tokens_of_block)};
            chunk.kernels.token_totals(totals, tokens);
            for (std::int64_t token = tokens.first; token < tokens.last; ++token)
                losses[token] = finish_token(chunk, token, totals.scale);
        });
    }

    static float finish_token(const Chunk& chunk, std::int64_t token, float scale) {
        constexpr double ln_of_2 = 0.693147180559945309;
        // With the factor that exponents were made with, so that its rounding, 2^-26 of a logit, cancels.
        const double exponent =
            static_cast<double>(chunk.target_logits[token]) * static_cast<double>(log2_of_e);
        const double log_of_target = (exponent - static_cast<double>(chunk.total_bases[token])) * ln_of_2 -
                                     std::log(static_cast<double>(chunk.totals[token]));
        chunk.target_logits[token] = static_cast<float>(std::expm1(log_of_target)) * scale;
        return static_cast<float>(-log_of_target);
    }

    void forward(const Products& products, const Chunk& chunk, std::int64_t first) {
        for (std::int64_t i = 0; i < chunk.classes.products(); ++i) {
            const LogitProduct product{chunk, i * chunk.classes.product};
            multiply(chunk.classes.of_product(products.logits, i),
                     {.a = static_cast<const std::byte*>(o_.w) + offset(product.first),
                      .b = x_at(first),
                      .epilogue = make_exponentials,
                      .epilogue_args = &product});
        }
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
    std::byte* memory_;  // at its start the exponentials, [columns, chunk]
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
