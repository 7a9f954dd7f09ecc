// Decisions of the fused linear cross-entropy by shapes and level: chunks, products, groups of classes,
// memory.
#include <fmt/format.h>

#include <algorithm>

#include "mantissa/base/error.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/loss/kernel_table.h"
#include "mantissa/device/cpu/loss/linear_cross_entropy.h"

namespace mantissa::inline v0::on_cpu {

namespace {

// Most classes of a product, as a chunk of the contraction's columns: 12 MB of sums for 1,024 tokens.
constexpr std::int64_t max_classes = 3072;

/// Rows of a chunk. Chunks are as few as the most rows allow, and even: a last chunk of few rows would read
/// all of w for them. In multiples of 32, since no level's panels are higher.
std::int64_t rows_of_chunk(const LinearCrossEntropy& p) {
    const std::int64_t chunks = ceil_div(p.rows, p.max_rows_of_chunk);
    return std::min({p.rows, p.max_rows_of_chunk, align_up(ceil_div(p.rows, chunks), 32)});
}

/// Elements between rows of exponentials, for so many tokens: whole cache lines of any format.
std::int64_t stride_of(std::int64_t tokens) { return align_up(tokens, 32); }

/// The three contractions of a chunk. Logits are made as w x^T, so that rows of w are packed block by block,
/// as they lie, and meet an x that stays in L2. Their exponentials become gradients on the way to the others.
struct Products {
    ContractionProblem logits, dx, dw;

    Products(const LinearCrossEntropy& p, std::int64_t tokens) {
        const MatrixLayout x{.dtype = p.dtype, .leading = p.channels};
        const MatrixLayout table{.dtype = p.dtype, .leading = p.channels};
        const MatrixLayout chunk{.dtype = p.dtype, .leading = stride_of(tokens), .mapped = true};
        logits = {
            .m = p.rows_of_w(), .n = tokens, .k = p.channels, .a = table, .b = x, .custom_epilogue = true};
        logits.b.transpose = Transpose::yes;
        dx = {.m = tokens, .n = p.channels, .k = p.rows_of_w(), .a = chunk, .b = table, .out = x};
        dx.a.transpose = Transpose::yes;
        dw = {.m = p.rows_of_w(),
              .n = p.channels,
              .k = tokens,
              .a = chunk,
              .b = x,
              .out = {.leading = p.channels}};
        logits.multiply = dx.multiply = dw.multiply = p.multiply;
        logits.threads = dx.threads = dw.threads = p.threads;
    }
};

/// How many classes one product makes.
std::int64_t classes_of_product(const LinearCrossEntropy& p, ContractionProblem logits, Isa isa) {
    // A product that keeps sums of an unfinished depth keeps them of all its classes. Bases of exponentials
    // follow from the answer, so it must not follow from the number of threads.
    logits.threads = 1;
    const std::int64_t chunk = p.rows_of_w() * stride_of(logits.n) * p.element_bytes();
    const auto bytes = static_cast<std::int64_t>(prepare_contraction(logits, isa).workspace_bytes(1));
    return bytes > chunk / 8 ? std::min(p.rows_of_w(), max_classes) : p.rows_of_w();
}

PreparedLossChunk::Gradients prepare_gradients(const Products& products, const LinearCrossEntropy& p,
                                               Isa isa) {
    PreparedLossChunk::Gradients gradients{
        .dx = prepare_contraction(products.dx, isa), .dw = std::nullopt, .added_dw = std::nullopt};
    if (p.frozen) return gradients;
    gradients.dw = prepare_contraction(products.dw, isa);
    ContractionProblem added_dw = products.dw;
    added_dw.store = Store::accumulate;
    if (products.dx.m < p.rows) gradients.added_dw = prepare_contraction(added_dw, isa);
    return gradients;
}

const LossKernels& loss_kernels(Isa isa) {
    return of_level(isa, loss_kernels_generic, loss_kernels_avx2, loss_kernels_avx512,
                    loss_kernels_avx512bf16)();
}

}  // namespace

PreparedLossChunk::PreparedLossChunk(const LinearCrossEntropy& p, std::int64_t chunk_tokens, Isa isa)
    : tokens(chunk_tokens), stride(stride_of(chunk_tokens)) {
    const Products products(p, tokens);
    classes.columns = p.rows_of_w();
    classes.product = classes_of_product(p, products.logits, isa);
    ContractionProblem some = products.logits;
    some.m = classes.product;
    logits = prepare_contraction(some, isa);
    some.m = classes.columns - (classes.products() - 1) * classes.product;
    last_logits = prepare_contraction(some, isa);
    classes.rows = logits_of(0).rows_of_item();
    classes.last_rows = last_logits.rows_of_item();
    if (p.gradients) gradients = prepare_gradients(products, p, isa);
}

LossWorkspace PreparedLinearCrossEntropy::workspace(int threads) const {
    const PreparedLossChunk& chunk = chunks[0];
    std::int64_t groups = 0;
    std::size_t first = 0, others = 0;
    for (const PreparedLossChunk& of : chunks) {
        groups = std::max(groups, of.classes.groups());
        first =
            std::max({first, of.logits.workspace_bytes(threads), of.last_logits.workspace_bytes(threads)});
        if (!of.gradients) continue;
        const auto& [dx, dw, added_dw] = *of.gradients;
        others = std::max(others, dx.workspace_bytes(threads));
        if (dw) others = std::max(others, dw->workspace_bytes(threads));
        if (added_dw) others = std::max(others, added_dw->workspace_bytes(threads));
    }
    const auto lines = [](auto bytes) {
        return static_cast<std::size_t>(in_lines(static_cast<std::int64_t>(bytes)));
    };
    LossWorkspace at{};
    at.bases = problem.gradients ? lines(problem.rows_of_w() * chunk.stride * problem.element_bytes()) : 0;
    at.token_numbers = at.bases + lines(groups * chunk.stride * 4);
    at.losses = at.token_numbers + lines(4 * chunk.tokens * 4);
    at.contraction = at.losses + lines(problem.rows * 4);
    at.sums = at.contraction + lines(first);
    at.order = std::max(at.sums + lines(groups * chunk.stride * 4), at.contraction + others);
    const std::int64_t kept = leaves_rows_out(problem) ? problem.rows : 0;
    const std::size_t rows = lines(kept * problem.channels * problem.element_bytes());
    at.targets = at.order + lines(kept * 4);
    at.x = at.targets + lines(kept * 4);
    at.dx = at.x + rows;
    at.bytes = at.dx + (problem.gradients ? rows : 0);
    return at;
}

const PreparedLossChunk& PreparedLinearCrossEntropy::chunk_of(std::int64_t tokens) const {
    const auto chunk = std::ranges::find(chunks, tokens, &PreparedLossChunk::tokens);
    check(chunk != chunks.end(), "a chunk of logits of so many rows is not prepared");
    return *chunk;
}

std::int64_t PreparedLinearCrossEntropy::rows_of(std::int64_t with_loss) const {
    const std::int64_t most = chunks[0].tokens, in_last = with_loss % most;
    const std::int64_t last = std::min(most, align_up(with_loss > 0 ? in_last : 1, rows_left_out));
    return std::min(problem.rows, with_loss - in_last + last);
}

bool leaves_rows_out(const LinearCrossEntropy& p) {
    return p.ignore_negative && !p.by_rows && p.rows > std::min(rows_left_out, rows_of_chunk(p));
}

std::string refusal(const LinearCrossEntropy& p) {
    if (p.rows < 1 || p.channels < 1 || p.classes < 1) return "it needs one element or more";
    if (p.rows_of_w() < p.classes)
        return fmt::format("{} classes do not lie in {} columns", p.classes, p.columns);
    const Products products(p, rows_of_chunk(p));
    for (const ContractionProblem* product : {&products.logits, &products.dx, &products.dw})
        if (std::string reason = refusal(*product); !reason.empty()) return reason;
    return "";
}

PreparedLinearCrossEntropy prepare_linear_cross_entropy(const LinearCrossEntropy& problem, Isa isa) {
    check(problem.max_rows_of_chunk >= 1, "a chunk of logits has one row or more");
    if (const std::string reason = refusal(problem); !reason.empty())
        throw InternalError("linear_cross_entropy: " + reason);
    const std::int64_t tokens = rows_of_chunk(problem), last = problem.rows % tokens;
    PreparedLinearCrossEntropy prepared{.problem = problem, .kernels = loss_kernels(isa), .chunks = {}};
    prepared.chunks.emplace_back(problem, tokens, isa);
    if (last > 0) prepared.chunks.emplace_back(problem, last, isa);
    if (leaves_rows_out(problem))
        for (std::int64_t rows = rows_left_out; rows < tokens; rows += rows_left_out)
            prepared.chunks.emplace_back(problem, rows, isa);
    return prepared;
}

}  // namespace mantissa::on_cpu
