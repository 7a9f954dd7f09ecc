#include "mantissa/device/cpu/loss/linear_cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "mantissa/base/error.h"
#include "mantissa/base/function_ref.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/loss/kernel_table.h"
#include "mantissa/device/cpu/rows/rows.h"
#include "mantissa/numerics/formats.h"

namespace mantissa::inline v0::on_cpu {

namespace {

// Rows of more bytes do not stay in an L2 of 2 MB until they are read again.
constexpr std::int64_t streaming_from = 2 << 20;

// Tokens whose sums one thread adds up, in whole lines of FP32.
constexpr std::int64_t tokens_of_block = 64;

/// One chunk of tokens: its exponentials, and the numbers of each token.
struct Chunk {
    const LossKernels& kernels;
    Exponentials exponentials;
    const ClassGroups& classes;
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
    Run(const PreparedLinearCrossEntropy& prepared, const LinearCrossEntropyArguments& arguments,
        std::span<std::byte> workspace, ThreadPool& pool)
        : prepared_(prepared),
          p_(prepared.problem),
          o_(arguments),
          pool_(pool),
          places_(prepared.workspace(pool.threads())),
          memory_(workspace.data()),
          losses_(numbers(places_.losses)) {
        check(workspace.size() >= places_.bytes, "the workspace of linear_cross_entropy is too small");
        contraction_ = workspace.subspan(places_.contraction, places_.order - places_.contraction);
    }

    void run() {
        const std::int64_t most = prepared_.chunks[0].tokens, rows = rows_to_compute();
        if (rows < p_.rows) gather(rows);
        for (std::int64_t first = 0; first < rows; first += most) {
            const PreparedLossChunk& products = prepared_.chunk_of(std::min(most, rows - first));
            const Chunk chunk = chunk_of(products, first);
            forward(products, chunk, first);
            finish_tokens(chunk, first);
            if (products.gradients) backward(*products.gradients, chunk, first);
        }
        if (rows < p_.rows && p_.gradients) scatter(rows);
        if (p_.by_rows)
            std::copy_n(losses_, p_.rows, o_.loss);
        else
            *o_.loss = mean_of(losses_, p_.rows);
    }

  private:
    std::int64_t rows_to_compute() const {
        if (!leaves_rows_out(p_)) return p_.rows;
        return prepared_.rows_of(
            std::count_if(o_.targets, o_.targets + p_.rows, [](std::int32_t target) { return target >= 0; }));
    }

    /// Puts rows with a loss first, and enough others behind them.
    void gather(std::int64_t rows) {
        order_ = reinterpret_cast<std::int32_t*>(memory_ + places_.order);
        auto* const targets = reinterpret_cast<std::int32_t*>(memory_ + places_.targets);
        std::int32_t* next = order_;
        for (const bool ignored : {false, true})
            for (std::int64_t row = 0; row < p_.rows; ++row)
                if ((o_.targets[row] < 0) == ignored) *next++ = static_cast<std::int32_t>(row);
        for (std::int64_t row = 0; row < rows; ++row) targets[row] = o_.targets[order_[row]];
        const std::byte* const from = x_at(0);
        for_rows([&](std::int64_t row) {
            if (row < rows)
                std::memcpy(memory_ + places_.x + offset(row), from + offset(order_[row]), row_bytes());
        });
        std::fill_n(losses_, p_.rows, 0.0f);
        o_.targets = targets;
        o_.x = memory_ + places_.x;
        dx_ = std::exchange(o_.dx, memory_ + places_.dx);
    }

    void scatter(std::int64_t rows) {
        for_rows([&](std::int64_t row) {
            std::byte* const to = static_cast<std::byte*>(dx_) + offset(order_[row]);
            if (row < rows)
                std::memcpy(to, memory_ + places_.dx + offset(row), row_bytes());
            else
                std::memset(to, 0, row_bytes());
        });
    }

    void for_rows(FunctionRef<void(std::int64_t)> f) {
        pool_.for_each_block(ceil_div(p_.rows, tokens_of_block), [&](std::int64_t block, int) {
            const std::int64_t last = std::min(p_.rows, (block + 1) * tokens_of_block);
            for (std::int64_t row = block * tokens_of_block; row < last; ++row) f(row);
        });
    }

    float* numbers(std::size_t offset) const { return reinterpret_cast<float*>(memory_ + offset); }
    const std::byte* x_at(std::int64_t row) const {
        return static_cast<const std::byte*>(o_.x) + offset(row);
    }
    std::int64_t offset(std::int64_t row) const { return row * p_.channels * p_.element_bytes(); }
    std::size_t row_bytes() const { return static_cast<std::size_t>(offset(1)); }

    Chunk chunk_of(const PreparedLossChunk& products, std::int64_t first) const {
        float* const of_tokens = numbers(places_.token_numbers);
        const std::int64_t tokens = products.tokens, stride = products.stride;
        Chunk chunk{
            .kernels = prepared_.kernels,
            .exponentials = {.classes = p_.classes,
                             .y = {p_.gradients ? memory_ : nullptr, p_.dtype},
                             .stride = stride,
                             .streaming = p_.rows_of_w() * stride * p_.element_bytes() >= streaming_from,
                             .sums = numbers(places_.sums),
                             .bases = numbers(places_.bases)},
            .classes = products.classes,
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
    void finish_tokens(const Chunk& chunk, std::int64_t first) {
        const Exponentials& e = chunk.exponentials;
        const TokenTotals totals{.groups = chunk.classes.groups(),
                                 .stride = e.stride,
                                 .sums = e.sums,
                                 .bases = e.bases,
                                 .scale = p_.by_rows ? 1 : o_.seed / static_cast<float>(p_.rows),
                                 .totals = chunk.totals,
                                 .total_bases = chunk.total_bases};
        const std::int64_t blocks = ceil_div(chunk.tokens, tokens_of_block);
        pool_.for_each_block(blocks, [&](std::int64_t block, int) {
            const Range tokens{block * tokens_of_block,
                               std::min(chunk.tokens, (block + 1) * tokens_of_block)};
            chunk.kernels.token_totals(totals, tokens);
            for (std::int64_t token = tokens.first; token < tokens.last; ++token) {
                float& loss = losses_[order_ ? order_[first + token] : first + token];
                if (p_.by_rows)
                    loss = finish_row(chunk, totals, token, first + token);
                else
                    loss = chunk.targets[token] < 0 ? ignore_token(totals, token)
                                                    : finish_token(chunk, token, totals.scale);
            }
        });
    }

    /// Scales the factors by which a token's exponentials become gradients.
    static void scale_token(const TokenTotals& totals, std::int64_t token, float factor) {
        for (std::int64_t group = 0; group < totals.groups; ++group)
            totals.bases[group * totals.stride + token] *= factor;
    }

    /// The token's exponentials become gradients times 0, whatever they are.
    static float ignore_token(const TokenTotals& totals, std::int64_t token) {
        for (std::int64_t group = 0; group < totals.groups; ++group)
            totals.bases[group * totals.stride + token] = 0;
        return 0;
    }

    /// A loss with seeds of its own: the gradient of a logit is p (seed + the seed of the lse), of the
    /// target's less the seed.
    float finish_row(const Chunk& chunk, const TokenTotals& totals, std::int64_t token, std::int64_t row) {
        constexpr double ln_of_2 = 0.693147180559945309;
        const bool counts = chunk.targets[token] >= 0;
        const float seed = o_.seeds && counts ? o_.seeds[row] : 0, of_lse = o_.seeds ? o_.lse_seeds[row] : 0;
        o_.lse[row] = static_cast<float>(static_cast<double>(chunk.total_bases[token]) * ln_of_2 +
                                         std::log(static_cast<double>(chunk.totals[token])));
        const float all = seed + of_lse;
        if (all == 0)
            ignore_token(totals, token);
        else
            scale_token(totals, token, all);
        if (!counts) return 0;
        const float loss = finish_token(chunk, token, all);
        chunk.target_logits[token] += of_lse;
        return loss;
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

    void forward(const PreparedLossChunk& products, const Chunk& chunk, std::int64_t first) {
        for (std::int64_t i = 0; i < chunk.classes.products(); ++i) {
            const LogitProduct product{chunk, i * chunk.classes.product};
            contract(products.logits_of(i),
                     {.a = static_cast<const std::byte*>(o_.w) + offset(product.first),
                      .b = x_at(first),
                      .epilogue = make_exponentials,
                      .epilogue_args = &product},
                     contraction_, pool_);
        }
    }

    void backward(const PreparedLossChunk::Gradients& products, const Chunk& chunk, std::int64_t first) {
        contract(products.dx,
                 {.a = memory_,
                  .b = o_.w,
                  .out = static_cast<std::byte*>(o_.dx) + offset(first),
                  .map_a = make_gradients,
                  .map_a_args = &chunk},
                 contraction_, pool_);
        if (!products.dw) return;
        contract(
            first > 0 ? *products.added_dw : *products.dw,
            {.a = memory_, .b = x_at(first), .out = o_.dw, .map_a = make_gradients, .map_a_args = &chunk},
            contraction_, pool_);
    }

    const PreparedLinearCrossEntropy& prepared_;
    const LinearCrossEntropy& p_;
    LinearCrossEntropyArguments o_;  // of the rows that are computed
    ThreadPool& pool_;
    LossWorkspace places_;
    std::byte* memory_;  // at its start the exponentials, [columns, chunk]
    float* losses_;      // [N]
    std::span<std::byte> contraction_;
    std::int32_t* order_ = nullptr;  // [N], where rows are left out
    void* dx_ = nullptr;             // of all rows
};

}  // namespace

void linear_cross_entropy(const PreparedLinearCrossEntropy& prepared,
                          const LinearCrossEntropyArguments& arguments, std::span<std::byte> workspace,
                          ThreadPool& pool) {
    Run run(prepared, arguments, workspace, pool);
    const LinearCrossEntropy& problem = prepared.problem;
    check_targets("linear_cross_entropy", arguments.targets, problem.rows,
                  {.classes = problem.classes, .ignore_negative = problem.ignore_negative});
    run.run();
}

}  // namespace mantissa::on_cpu
