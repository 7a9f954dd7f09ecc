// Drivers of cross-entropy and embedding, and of their gradients: checks of targets and ids, blocks, the
// mean.
#include <fmt/format.h>

#include <cstring>

#include "mantissa/base/error.h"
#include "mantissa/device/cpu/rows/partition.h"
#include "mantissa/device/cpu/rows/rows.h"

namespace mantissa::inline v0::on_cpu {

namespace {

constexpr std::int64_t id_bytes = sizeof(std::int32_t);

[[noreturn]] void refuse_id(const char* kernel, const char* what, std::int32_t id, std::int64_t position,
                            std::int64_t limit, const char* question) {
    throw UserError(fmt::format("{}: {} {} at position {} is out of range, expected 0 to {}; {}?", kernel,
                                what, id, position, limit - 1, question));
}

/// The first bad one is named, whatever the threads: a quick pass over few bytes beside the kernel's own.
void check_ids(const char* kernel, const std::int32_t* ids, std::int64_t count, std::int64_t limit) {
    for (std::int64_t i = 0; i < count; ++i)
        if (ids[i] < 0 || ids[i] >= limit)
            refuse_id(kernel, "id", ids[i], i, limit,
                      "is the table too short, or was the text tokenized with another vocabulary");
}

/// Counts the tokens of each row, and puts them in order behind the counts. One thread: some nanoseconds a
/// token, beside a row of the table that it moves.
void sort_tokens(const EmbeddingGrad& p) {
    std::int32_t* const first = p.workspace;
    std::int32_t* const sorted = first + p.vocabulary + 2;
    std::memset(first, 0, static_cast<std::size_t>((p.vocabulary + 2) * id_bytes));
    // A row's count stands two places behind, its beginning one place, until its tokens are placed.
    for (std::int64_t t = 0; t < p.tokens; ++t) ++first[p.ids[t] + 2];
    for (std::int64_t row = 2; row <= p.vocabulary; ++row) first[row] += first[row - 1];
    for (std::int64_t t = 0; t < p.tokens; ++t) sorted[first[p.ids[t] + 1]++] = static_cast<std::int32_t>(t);
}

/// Blocks of rows with about as many tokens and rows in each: frequent tokens have low numbers.
class BlocksOfTokens {
  public:
    explicit BlocksOfTokens(const EmbeddingGrad& p)
        : problem_(p), per_block_(rows_per_block(p.channels * float_bytes)) {}

    std::int64_t count() const {
        return (problem_.vocabulary + problem_.tokens + per_block_ - 1) / per_block_;
    }
    /// The first row before which there are `block` blocks of rows and tokens.
    std::int64_t first_row(std::int64_t block) const {
        std::int64_t low = 0, high = problem_.vocabulary;
        while (low < high) {
            const std::int64_t middle = (low + high) / 2;
            if (problem_.first_of_row()[middle] + middle < block * per_block_)
                low = middle + 1;
            else
                high = middle;
        }
        return low;
    }

  private:
    const EmbeddingGrad& problem_;
    std::int64_t per_block_;
};

}  // namespace

/// In order: a few thousand numbers, for which threads are not worth waking.
float mean_of(const float* values, std::int64_t count) {
    double sum = 0;
    for (std::int64_t i = 0; i < count; ++i) sum += static_cast<double>(values[i]);
    return static_cast<float>(sum / static_cast<double>(count));
}

void check_targets(const char* kernel, const std::int32_t* targets, std::int64_t rows, TargetRange range) {
    for (std::int64_t i = 0; i < rows; ++i)
        if ((targets[i] < 0 && !range.ignore_negative) || targets[i] >= range.classes)
            refuse_id(
                kernel, "target", targets[i], i, range.classes,
                "are there more classes than scores, or was the text tokenized with another vocabulary");
}

void cross_entropy(const RowKernels& kernels, const CrossEntropy& problem, ThreadPool& pool) {
    CrossEntropy p = problem;
    if (p.stride == 0) p.stride = p.classes;
    ProblemCheck check("cross_entropy");
    check.size("rows", p.rows).size("classes", p.classes);
    check.that(p.stride >= p.classes, "stride is less than classes");
    check.input("logits", p.logits, p.rows * p.stride).input("targets", p.targets, p.rows * id_bytes);
    check.output("loss", p.loss, p.rows * float_bytes).output("lse", p.lse, p.rows * float_bytes);
    if (p.mean_loss) check.output("mean_loss", p.mean_loss, float_bytes);
    check.finish();
    check_targets("cross_entropy", p.targets, p.rows,
                  {.classes = p.classes, .ignore_negative = p.ignore_negative});
    for_each_range(pool, p.rows, rows_per_block(p.stride * bytes_of(p.logits.type)),
                   [&](Range rows, std::int64_t) { kernels.cross_entropy(p, rows); });
    if (p.mean_loss) *p.mean_loss = mean_of(p.loss, p.rows);
}

void cross_entropy_grad(const RowKernels& kernels, const CrossEntropyGrad& problem, ThreadPool& pool,
                        Stores wanted) {
    CrossEntropyGrad p = problem;
    if (p.stride == 0) p.stride = p.classes;
    ProblemCheck check("cross_entropy_grad");
    check.size("rows", p.rows).size("classes", p.classes);
    check.that(p.stride >= p.classes, "stride is less than classes");
    check.input("logits", p.logits, p.rows * p.stride).input("targets", p.targets, p.rows * id_bytes);
    check.input("lse", p.lse, p.rows * float_bytes).same_type("dlogits", p.dlogits.type, p.logits.type);
    const Stores stores = check.output("dlogits", p.dlogits, p.rows * p.stride).finish(wanted);
    check_targets("cross_entropy_grad", p.targets, p.rows,
                  {.classes = p.classes, .ignore_negative = p.ignore_negative});
    for_each_range(pool, p.rows, rows_per_block(2 * p.stride * bytes_of(p.logits.type)),
                   [&](Range rows, std::int64_t) { kernels.cross_entropy_grad(p, rows, stores); });
}

void embedding(const RowKernels& kernels, const Embedding& p, ThreadPool& pool, Stores wanted) {
    ProblemCheck check("embedding");
    check.size("tokens", p.tokens).size("vocabulary", p.vocabulary).size("channels", p.channels);
    check.input("ids", p.ids, p.tokens * id_bytes).input("table", p.table, p.vocabulary * p.channels);
    const Stores stores = check.output("y", p.y, p.tokens * p.channels).finish(wanted);
    check_ids("embedding", p.ids, p.tokens, p.vocabulary);
    const std::int64_t row_bytes = p.channels * (bytes_of(p.table.type) + bytes_of(p.y.type));
    for_each_range(pool, p.tokens, rows_per_block(row_bytes),
                   [&](Range tokens, std::int64_t) { kernels.embedding(p, tokens, stores); });
}

std::int64_t embedding_grad_workspace(std::int64_t tokens, std::int64_t vocabulary) {
    return (vocabulary + 2 + tokens) * id_bytes;
}

void embedding_grad(const RowKernels& kernels, const EmbeddingGrad& p, ThreadPool& pool, Stores wanted) {
    ProblemCheck check("embedding_grad");
    check.size("tokens", p.tokens).size("vocabulary", p.vocabulary).size("channels", p.channels);
    check.input("ids", p.ids, p.tokens * id_bytes).input("dy", p.dy, p.tokens * p.channels);
    check.output("workspace", p.workspace, embedding_grad_workspace(p.tokens, p.vocabulary));
    // Rows that are added to are read first, and so are in a cache.
    if (p.accumulate == Accumulate::add) wanted = Stores::plain;
    const Stores stores =
        check.output("dtable", p.dtable, p.vocabulary * p.channels * float_bytes).finish(wanted);
    check_ids("embedding_grad", p.ids, p.tokens, p.vocabulary);
    sort_tokens(p);
    const BlocksOfTokens blocks(p);
    pool.for_each_block(blocks.count(), [&](std::int64_t block, int) {
        kernels.embedding_grad(p, {blocks.first_row(block), blocks.first_row(block + 1)}, stores);
    });
}

}  // namespace mantissa::on_cpu
