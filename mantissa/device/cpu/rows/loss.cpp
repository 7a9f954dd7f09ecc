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
                   [&](Range rows, std::int64_t) { kernels.softmax.cross_entropy(p, rows); });
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
                   [&](Range rows, std::int64_t) { kernels.softmax.cross_entropy_grad(p, rows, stores); });
}

void embedding(const RowKernels& kernels, const Embedding& p, ThreadPool& pool, Stores wanted) {
    ProblemCheck check("embedding");
    check.size("tokens", p.tokens).size("vocabulary", p.vocabulary).size("channels", p.channels);
    check.input("ids", p.ids, p.tokens * id_bytes).input("table", p.table, p.vocabulary * p.channels);
    const Stores stores = check.output("y", p.y, p.tokens * p.channels).finish(wanted);
    check_ids("embedding", p.ids, p.tokens, p.vocabulary);
    const std::int64_t row_bytes = p.channels * (bytes_of(p.table.type) + bytes_of(p.y.type));
    for_each_range(pool, p.tokens, rows_per_block(row_bytes),
                   [&](Range tokens, std::int64_t) { kernels.element.embedding(p, tokens, stores); });
}

void embedding_grad(const RowKernels& kernels, const EmbeddingGrad& p, ThreadPool& pool) {
    // A block owns rows of the table and takes whole rows of dy, as both lie in memory; each goes through all
    // ids, which a block of 128 of 4,096 tokens hardly notices. Frequent tokens have low numbers: neighbours
    // go apart.
    constexpr int parts = 32;
    ProblemCheck check("embedding_grad");
    check.size("tokens", p.tokens).size("vocabulary", p.vocabulary).size("channels", p.channels);
    check.input("ids", p.ids, p.tokens * id_bytes).input("dy", p.dy, p.tokens * p.channels);
    const std::int64_t bytes = p.vocabulary * p.channels * float_bytes;
    check.output("dtable", p.dtable, bytes).finish();
    check_ids("embedding_grad", p.ids, p.tokens, p.vocabulary);
    if (p.accumulate == Accumulate::replace)
        for_each_range(pool, bytes, block_bytes, [&](Range range, std::int64_t) {
            std::memset(reinterpret_cast<char*>(p.dtable) + range.first, 0,
                        static_cast<std::size_t>(range.last - range.first));
        });
    pool.for_each_block(parts, [&](std::int64_t part, int) {
        kernels.element.embedding_grad(p, static_cast<int>(part), parts);
    });
}

}  // namespace mantissa::on_cpu
