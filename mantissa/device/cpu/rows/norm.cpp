// Drivers of the gradients of layer norm and GELU, rotary positions and running sums: checks, blocks of
// rows, sums over blocks.
#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/rows/partition.h"
#include "mantissa/device/cpu/rows/rows.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// Rows whose contributions to dgamma and dbeta are summed one after another, before the tree: few enough for
/// threads to share, many enough for the partial sums to be a hundredth of the traffic.
constexpr std::int64_t grad_rows_per_block = 128;

}  // namespace

std::int64_t layer_norm_grad_workspace(std::int64_t rows, std::int64_t channels) {
    return ceil_div(rows, grad_rows_per_block) * channels * 2 * float_bytes;
}

void layer_norm_grad(const RowKernels& kernels, const LayerNormGrad& p, ThreadPool& pool, Stores wanted) {
    const std::int64_t C = p.channels;
    ProblemCheck check("layer_norm_grad");
    check.size("rows", p.rows).size("channels", C);
    check.input("dy", p.dy, p.rows * C).input("x", p.x, p.rows * C).same_type("dx", p.dx.type, p.x.type);
    check.input("gamma", p.gamma, C * float_bytes).input("mean", p.mean, p.rows * float_bytes);
    check.input("rstd", p.rstd, p.rows * float_bytes);
    check.output("dx", p.dx, p.rows * C).output("dgamma", p.dgamma, C * float_bytes);
    check.output("dbeta", p.dbeta, C * float_bytes);
    check.output("workspace", p.workspace, layer_norm_grad_workspace(p.rows, C));
    const Stores stores = check.finish(wanted);
    const std::int64_t blocks = ceil_div(p.rows, grad_rows_per_block);
    float* dgammas = p.workspace;
    float* dbetas = p.workspace + blocks * C;
    for_each_range(pool, p.rows, grad_rows_per_block, [&](Range rows, std::int64_t block) {
        kernels.layer_norm_grad(p, rows, stores, dgammas + block * C, dbetas + block * C);
    });
    add_partial_sums(pool, dgammas, blocks, C, p.dgamma);
    add_partial_sums(pool, dbetas, blocks, C, p.dbeta);
}

void gelu_grad(const RowKernels& kernels, const GeluGrad& p, ThreadPool& pool, Stores wanted) {
    ProblemCheck check("gelu_grad");
    check.size("count", p.count).input("x", p.x, p.count).input("dy", p.dy, p.count);
    check.same_type("dx", p.dx.type, p.x.type).output("dx", p.dx, p.count);
    const Stores stores = check.finish(wanted);
    for_each_range(pool, p.count, block_elements,
                   [&](Range range, std::int64_t) { kernels.gelu_grad(p, range, stores); });
}

void rotary(const RowKernels& kernels, const Rotary& p, ThreadPool& pool, Stores wanted) {
    const std::int64_t token = p.heads * p.head_size, table = p.sequence * p.head_size / 2;
    ProblemCheck check("rotary");
    check.size("tokens", p.tokens).size("sequence", p.sequence).size("heads", p.heads);
    check.size("head_size", p.head_size);
    check.that(p.head_size % 2 == 0, "head_size is odd");
    check.that(p.tokens % p.sequence == 0, "tokens is not a multiple of sequence");
    check.input("cosine", p.cosine, table * float_bytes).input("sine", p.sine, table * float_bytes);
    check.input("x", p.x, p.tokens * token).same_type("y", p.y.type, p.x.type);
    check.output("y", p.y, p.tokens * token);
    const Stores stores = check.finish(wanted);
    const std::int64_t bytes = 2 * token * static_cast<std::int64_t>(size_of(p.x.type));
    for_each_range(pool, p.tokens, rows_per_block(bytes),
                   [&](Range tokens, std::int64_t) { kernels.rotary(p, tokens, stores); });
}

void running_sums(const RowKernels& kernels, const RunningSums& p, ThreadPool& pool, Stores wanted) {
    const std::int64_t row_bytes = p.columns * float_bytes;
    ProblemCheck check("cumsum");
    check.size("rows", p.rows).size("columns", p.columns).input("x", p.x, p.rows * row_bytes);
    const Stores stores = check.output("y", p.y, p.rows * row_bytes).finish(wanted);
    constexpr std::int64_t together = 2;  // rows that one walk takes
    for_each_range(pool, p.rows, together * rows_per_block(2 * together * row_bytes),
                   [&](Range rows, std::int64_t) { kernels.running_sums(p, rows, stores); });
}

}  // namespace mantissa::on_cpu
