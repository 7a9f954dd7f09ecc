// The fused linear cross-entropy of a linear layer's logits, a chunk of rows at a time. cuBLASLt makes
// logits, a nest their loss and, over them, their gradients. Two products of these make dx and a term of dw.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "mantissa/base/whole_units.h"
#include "mantissa/device/cuda/kernels/kernels.h"
#include "mantissa/device/cuda/kernels/products.h"
#include "mantissa/device/tf32_refusal.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/ignored_targets.h"
#include "mantissa/graph/tensor.h"

namespace mantissa::inline v0::on_cuda {

namespace {

/// So that products have whole tiles.
constexpr std::int64_t rows_of_chunk_unit = 128;
constexpr std::int64_t workspace_alignment = 256;
constexpr std::int64_t float_bytes = sizeof(float), index_bytes = sizeof(std::int32_t);

/// x [N, C], w [V, C], targets [N], perhaps a seed, of losses by rows two.
struct DescribedLoss {
    std::int64_t rows, channels, columns, classes;
    DType dtype;
    bool tf32, gradients, frozen, ignore_negative, by_rows;
    std::int64_t most_chunks;

    DescribedLoss(const Problem& problem, std::int64_t chunks)
        : rows(problem.inputs[0].shape[0]),
          channels(problem.inputs[0].shape[1]),
          columns(problem.inputs[1].shape[0]),
          classes(problem.attributes.has("classes") ? problem.attributes.integer("classes") : columns),
          dtype(problem.inputs[0].dtype),
          tf32(problem.attributes.has("multiply")),
          gradients(problem.inputs.size() > 3),
          frozen(problem.attributes.has("frozen")),
          ignore_negative(ignores_negative(problem.attributes)),
          by_rows(gives_rows(problem.attributes)),
          most_chunks(chunks) {}

    std::int64_t rows_of_chunk() const {
        return std::min(rows, align_up(ceil_div(rows, most_chunks), rows_of_chunk_unit));
    }
    std::int64_t chunks() const { return ceil_div(rows, rows_of_chunk()); }
    std::int64_t bytes(std::int64_t of_rows, std::int64_t elements) const {
        return of_rows * elements * static_cast<std::int64_t>(size_of(dtype));
    }
};

/// logits [rows, V], targets [rows, 1], the seed -> each row's part of the mean [rows, 1], gradients of the
/// logits: the definitions of cross_entropy and its gradient, but for the sum over rows. Losses by rows,
/// with the log-sum-exp, have seeds [rows, 1].
Graph loss_of_chunk(const DescribedLoss& of, std::int64_t rows) {
    Graph graph;
    const auto input = [&](const char* name, Type type) {
        return Tensor(graph, graph.add_input(name, std::move(type)));
    };
    const auto number = [&](double value) { return constant(graph, value, DType::f32); };
    const Tensor stored = input("logits", {of.dtype, {rows, of.columns}});
    const Tensor targets = input("targets", {DType::i32, {rows, 1}});
    const Tensor column = iota(graph, stored.shape(), -1);
    Tensor logits = cast(stored, DType::f32);
    if (of.classes != of.columns)
        logits = select(less_equal(column, constant(graph, static_cast<double>(of.classes - 1), DType::i32)),
                        logits, number(-std::numeric_limits<double>::infinity()));
    const Tensor highest = max(logits, {-1}, KeepAxes::yes);
    const Tensor log_sum_exp = log(sum(exp(logits - highest), {-1}, KeepAxes::yes)) + highest;
    const Tensor is_target = equal(column, targets);
    const Tensor of_target = sum(select(is_target, logits, number(0)), {-1}, KeepAxes::yes);
    const double share = of.by_rows ? 1.0 : 1.0 / static_cast<double>(of.rows);
    const auto of_counted = [&](Tensor value) {
        if (!of.ignore_negative) return value;
        return select(less_equal(constant(graph, 0, DType::i32), targets), value, number(0));
    };
    const Tensor losses = of_counted((log_sum_exp - of_target) * share);
    if (of.gradients && !of.by_rows) {
        const Tensor seed = input("seed", {DType::f32, {}}) * share;
        const Tensor gradient = (exp(logits - log_sum_exp) - select(is_target, number(1), number(0))) * seed;
        graph.add_result("loss", losses.value());
        graph.add_result("gradients", cast(of_counted(gradient), of.dtype).value());
        return graph;
    }
    graph.add_result("loss", losses.value());
    if (of.gradients) {
        const Type of_row{DType::f32, {rows, 1}};
        const Tensor seed = of_counted(input("seed", of_row)), of_lse = input("seed_of_lse", of_row);
        const Tensor gradient =
            exp(logits - log_sum_exp) * (seed + of_lse) - select(is_target, seed, number(0));
        graph.add_result("gradients", cast(gradient, of.dtype).value());
    }
    if (of.by_rows) graph.add_result("log_sum_exp", log_sum_exp.value());
    return graph;
}

/// The kernels of a chunk of so many rows.
struct LossOfRows {
    PreparedKernel logits, loss, dx, dw, added_dw;

    /// The algorithms of the existing products.
    std::string algorithms() const {
        std::string text;
        for (const PreparedKernel* kernel : {&logits, &dx, &dw, &added_dw})
            if (kernel->algorithm) text += (text.empty() ? "" : "; ") + kernel->algorithm();
        return text;
    }

    std::int64_t workspace() const {
        return std::max({logits.workspace, loss.workspace, dx.workspace, dw.workspace, added_dw.workspace});
    }
};

Expected<LossOfRows> loss_of_rows(Context& context, const DescribedLoss& of, std::int64_t rows) {
    if (rows == 1) return Unexpected{"of one row it is no nest"};
    const Product::Matrix x{of.dtype, rows, of.channels}, logits{of.dtype, rows, of.columns},
        w{of.dtype, of.columns, of.channels};
    const auto transposed = [](Product::Matrix matrix) {
        matrix.transposed = true;
        return matrix;
    };
    LossOfRows made;
    std::string reason;
    const auto take = [&](PreparedKernel& to, Expected<PreparedKernel> from) {
        if (from)
            to = std::move(*from);
        else if (reason.empty())
            reason = from.reason();
    };
    take(made.logits, prepare_product(context, {.a = x, .b = transposed(w), .y = logits, .tf32 = of.tf32}));
    take(made.loss, prepare_definition(context, loss_of_chunk(of, rows), NestOutputs::over_operands));
    if (of.gradients) {
        take(made.dx, prepare_product(context, {.a = logits, .b = w, .y = x, .tf32 = of.tf32}));
    }
    if (of.gradients && !of.frozen) {
        const Product::Matrix dw{DType::f32, of.columns, of.channels};
        Product add{.a = transposed(logits), .b = x, .y = dw, .tf32 = of.tf32};
        take(made.dw, prepare_product(context, add));
        add.adds = true;
        take(made.added_dw, prepare_product(context, add));
    }
    if (!reason.empty()) return Unexpected{reason};
    return made;
}

/// Everything decided but addresses.
struct BoundLoss {
    DescribedLoss of;
    LossOfRows chunk, last;
    std::shared_ptr<const GpuKernel> sum;
    std::int64_t sum_blocks = 0;

    std::int64_t losses_at() const {
        return align_up(of.bytes(of.rows_of_chunk(), of.columns), workspace_alignment);
    }
    std::int64_t scratch_at() const {
        return losses_at() + align_up(of.rows * float_bytes, workspace_alignment);
    }
    std::int64_t workspace() const { return scratch_at() + std::max(chunk.workspace(), last.workspace()); }

    void queue(const Context& context, const Operands& o) const {
        std::byte *logits = o.workspace, *losses = o.workspace + losses_at(),
                  *scratch = o.workspace + scratch_at();
        const auto run = [&](const PreparedKernel& kernel, std::vector<const std::byte*> inputs,
                             std::vector<std::byte*> outputs) {
            kernel.launch({inputs, outputs, scratch});
        };
        for (std::int64_t number = 0; number < of.chunks(); ++number) {
            const std::int64_t first = number * of.rows_of_chunk();
            const LossOfRows& kernels = number + 1 == of.chunks() ? last : chunk;
            const std::byte* x = o.inputs[0] + of.bytes(first, of.channels);
            const std::byte* targets = o.inputs[2] + first * index_bytes;
            run(kernels.logits, {x, o.inputs[1]}, {logits});
            const auto of_chunk = [&](auto* rows) { return rows + first * float_bytes; };
            std::vector<const std::byte*> read{logits, targets};
            for (std::size_t seed = 3; seed < o.inputs.size(); ++seed)
                read.push_back(of.by_rows ? of_chunk(o.inputs[seed]) : o.inputs[seed]);
            std::vector<std::byte*> written{of_chunk(of.by_rows ? o.outputs[0] : losses)};
            if (of.gradients) written.push_back(logits);
            if (of.by_rows) written.push_back(of_chunk(o.outputs[o.outputs.size() - 1]));
            run(kernels.loss, std::move(read), std::move(written));
            if (!of.gradients) continue;
            run(kernels.dx, {logits, o.inputs[1]}, {o.outputs[1] + of.bytes(first, of.channels)});
            if (!of.frozen) run(number == 0 ? kernels.dw : kernels.added_dw, {logits, x}, {o.outputs[2]});
        }
        if (!of.by_rows) launch(context, *sum, sum_blocks, {address_of(losses), address_of(o.outputs[0])});
    }
};

/// Logits are written, read by the nest, and their gradients written and read twice. In each chunk two
/// products read w; the first chunk writes dw, and the others read and write it. A nest's second reading of a
/// row comes from the GPU's cache.
Cost cost_of(const Problem& problem, const DescribedLoss& of) {
    Cost cost = problem.op.cost(problem.inputs, problem.outputs, problem.attributes);
    const std::int64_t again = of.chunks() - 1, w = problem.inputs[1].bytes();
    cost.bytes += of.bytes(of.rows, of.columns) * (of.gradients ? 5 : 2) + again * w;
    if (of.gradients) cost.bytes += of.chunks() * w + problem.inputs[0].bytes();
    if (of.gradients && !of.frozen) cost.bytes += 2 * again * problem.outputs[2].bytes();
    return cost;
}

Expected<PreparedKernel> prepare_loss(Context& context, const DescribedLoss& of, const Problem& problem) {
    if (std::min({of.rows, of.channels, of.columns}) == 0) return Unexpected{"it needs one element or more"};
    const std::int64_t rows = of.rows_of_chunk();
    Expected<LossOfRows> chunk = loss_of_rows(context, of, rows);
    if (!chunk) return Unexpected{chunk.reason()};
    Expected<LossOfRows> last = loss_of_rows(context, of, of.rows - (of.chunks() - 1) * rows);
    if (!last) return Unexpected{last.reason()};
    const codegen::GridKernel sum{.name = "sum_of_losses",
                                  .code = codegen::ReductionKernel{.kept = {{1, 1}},
                                                                   .reduced = {{of.rows, 1}},
                                                                   .chunks = 1,
                                                                   .terms_of_chunk = of.rows,
                                                                   .threads = codegen::grid_threads}};
    const BoundLoss bound{of, std::move(*chunk), std::move(*last), context.modules.add(sum),
                          codegen::blocks_of(sum)};
    return PreparedKernel{
        .launch = [&context, bound](const Operands& operands) { bound.queue(context, operands); },
        .workspace = bound.workspace(),
        .launches = of.chunks() * (!of.gradients ? 2
                                   : of.frozen   ? 3
                                                 : 4) +
                    (of.by_rows ? 0 : 1),
        .cost = cost_of(problem, of),
        .algorithm = [bound] { return bound.chunk.algorithms() + "; " + bound.last.algorithms(); }};
}

}  // namespace

void add_loss_kernels(KernelTable& table, Context& context) {
    const auto add = [&](DType dtype, bool tf32) {
        const std::string format(tf32 ? "tf32" : name_of(dtype));
        const std::string unit = dtype == DType::f32 && !tf32 ? context.unit : context.matrix_unit;
        const auto prepare = [&context, dtype, tf32](const Problem& problem) -> Expected<PreparedKernel> {
            const DescribedLoss described(problem, context.loss_chunks);
            if (described.dtype != dtype)
                return Unexpected{
                    fmt::format("it multiplies {}, got {}", name_of(dtype), problem.inputs[0].text())};
            if (described.tf32 != tf32)
                return Unexpected{tf32 ? "it multiplies f32 as tf32, which was not asked for"
                                       : "it multiplies f32 as it is stored, asked for tf32"};
            if (std::string reason = tf32 ? tf32_refusal() : ""; !reason.empty())
                return Unexpected{std::move(reason)};
            return prepare_loss(context, described, problem);
        };
        table["linear_cross_entropy"].push_back(
            {.name = fmt::format("fused linear cross-entropy, cublasLt {}*{}+f32 {}", format, format, unit),
             .arithmetic = {.multiply = format, .unit = unit},
             .prepare = prepare});
    };
    add(DType::f32, false);
    add(DType::f32, true);
    add(DType::bf16, false);
    add(DType::f16, false);
}

}  // namespace mantissa::on_cuda
