// Binds the row kernels to their operations.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "mantissa/device/cpu/kernels/row_bindings.h"
#include "mantissa/graph/ignored_targets.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// dy, x.
Launch prepare_gelu_grad(const Problem&, const BoundRows& b) {
    return [b](const Operands& o) {
        gelu_grad(b.kernels, {.count = b.count(), .x = b.in(o, 1), .dy = b.in(o, 0), .dx = b.out(o, 0)},
                  b.pool);
    };
}

/// x, cosines, sines.
Launch prepare_rotary(const Problem& problem, const BoundRows& b) {
    const Shape& x = problem.inputs[0].shape;
    return [b, tokens = x[0] * x[1], sequence = x[1], heads = x[2]](const Operands& o) {
        rotary(b.kernels,
               {.tokens = tokens,
                .sequence = sequence,
                .heads = heads,
                .head_size = b.columns,
                .cosine = o.input<float>(1),
                .sine = o.input<float>(2),
                .x = b.in(o, 0),
                .y = b.out(o, 0)},
               b.pool);
    };
}

/// Columns of logits that are not padding.
std::int64_t classes_of(const Problem& problem, const BoundRows& b) {
    return problem.attributes.has("classes") ? problem.attributes.integer("classes") : b.columns;
}

/// The loss of each row is scratch: only the mean is a result.
Launch prepare_cross_entropy(const Problem& problem, const BoundRows& b) {
    return [b, classes = classes_of(problem, b),
            ignore = ignores_negative(problem.attributes)](const Operands& o) {
        cross_entropy(b.kernels,
                      {.rows = b.rows,
                       .classes = classes,
                       .stride = b.columns,
                       .logits = b.in(o, 0),
                       .targets = o.input<std::int32_t>(1),
                       .ignore_negative = ignore,
                       .loss = reinterpret_cast<float*>(o.workspace),
                       .lse = o.output<float>(1),
                       .mean_loss = o.output<float>(0)},
                      b.pool);
    };
}

/// dloss, logits, targets, log-sum-exp.
Launch prepare_cross_entropy_grad(const Problem& problem, const BoundRows& b) {
    return [b, classes = classes_of(problem, b),
            ignore = ignores_negative(problem.attributes)](const Operands& o) {
        cross_entropy_grad(b.kernels,
                           {.rows = b.rows,
                            .classes = classes,
                            .stride = b.columns,
                            .logits = b.in(o, 1),
                            .targets = o.input<std::int32_t>(2),
                            .ignore_negative = ignore,
                            .lse = o.input<float>(3),
                            .scale = *o.input<float>(0) / static_cast<float>(b.rows),
                            .dlogits = b.out(o, 0)},
                           b.pool);
    };
}

Launch prepare_embedding(const Problem& problem, const BoundRows& b) {
    // Bits are moved, whatever they mean: whole numbers of 32 bits go as FP32.
    const DType moved = problem.inputs[0].dtype == DType::i32 ? DType::f32 : problem.inputs[0].dtype;
    return [b, moved, tokens = problem.inputs[1].shape.elements(),
            vocabulary = problem.inputs[0].shape[0]](const Operands& o) {
        embedding(b.kernels,
                  {.tokens = tokens,
                   .vocabulary = vocabulary,
                   .channels = b.columns,
                   .ids = o.input<std::int32_t>(1),
                   .table = {o.inputs[0], moved},
                   .y = {o.outputs[0], moved}},
                  b.pool);
    };
}

/// dy, ids, and perhaps an addend: unless the gradient lies in the addend's place, it begins as a copy of it.
Launch prepare_embedding_grad(const Problem& problem, const BoundRows& b) {
    return [b, vocabulary = problem.outputs[0].shape[0], bytes = problem.outputs[0].bytes(),
            adds = problem.inputs.size() == 3](const Operands& o) {
        if (adds && o.inputs[2] != o.outputs[0])
            copy(b.kernels, {.bytes = bytes, .source = o.inputs[2], .target = o.outputs[0]}, b.pool);
        embedding_grad(b.kernels,
                       {.tokens = b.rows,
                        .vocabulary = vocabulary,
                        .channels = b.columns,
                        .ids = o.input<std::int32_t>(1),
                        .dy = b.in(o, 0),
                        .dtable = o.output<float>(0),
                        .accumulate = adds ? Accumulate::add : Accumulate::replace,
                        .workspace = reinterpret_cast<std::int32_t*>(o.workspace)},
                       b.pool);
    };
}

Launch prepare_cumsum(const Problem& problem, const BoundRows& b) {
    return [b, from_end = problem.attributes.flag("from_end")](const Operands& o) {
        running_sums(b.kernels,
                     {.rows = b.rows,
                      .columns = b.columns,
                      .from_end = from_end,
                      .x = o.input<float>(0),
                      .y = o.output<float>(0)},
                     b.pool);
    };
}

std::int64_t global_norm_workspace(const Problem& problem) {
    std::int64_t bytes = 0;
    for (const Type& type : problem.inputs)
        bytes = std::max(bytes, squared_norm_workspace(type.shape.elements()));
    return bytes;
}

Launch prepare_global_norm(const Problem& problem, const BoundRows& b) {
    const std::vector<Type> gradients(problem.inputs.begin(), problem.inputs.end());
    return [=](const Operands& o) {
        double total = 0;
        bool finite = true;
        for (std::size_t i = 0; i < gradients.size(); ++i) {
            const SquaredNormResult norm = squared_norm(b.kernels,
                                                        {.count = gradients[i].shape.elements(),
                                                         .x = {o.inputs[i], gradients[i].dtype},
                                                         .workspace = reinterpret_cast<double*>(o.workspace)},
                                                        b.pool);
            total += norm.sum;
            finite = finite && norm.finite;
        }
        *o.output<float>(0) = static_cast<float>(std::sqrt(total));
        *o.output<bool>(1) = finite;
    };
}

/// Sums over leading axes: the gradient of a bias or of anything broadcast along the front.
std::string refuse_unless_leading_sum(const Problem& problem) {
    if (problem.outputs[0].dtype != DType::f32)
        return fmt::format("it writes f32, not {}", name_of(problem.outputs[0].dtype));
    std::vector<std::int64_t> axes = problem.attributes.list("axes");
    std::sort(axes.begin(), axes.end());
    for (std::size_t i = 0; i < axes.size(); ++i)
        if (axes[i] != static_cast<std::int64_t>(i)) return "it sums over leading axes only";
    if (problem.outputs[0].shape.elements() < 2) return "it is made for rows of two columns or more";
    return "";
}

ColumnSum column_sum_of(const Problem& problem) {
    const std::int64_t channels = problem.outputs[0].shape.elements();
    ColumnSum sum;
    sum.rows = problem.inputs[0].shape.elements() / channels;
    sum.channels = channels;
    return sum;
}

Launch prepare_column_sum(const Problem& problem, const BoundRows& b) {
    return [b, fixed = column_sum_of(problem)](const Operands& o) {
        ColumnSum sum = fixed;
        sum.x = b.in(o, 0);
        sum.sum = o.output<float>(0);
        sum.workspace = reinterpret_cast<float*>(o.workspace);
        column_sum(b.kernels, sum, b.pool);
    };
}

std::string refuse_permutation(const Problem& problem) {
    const std::size_t element = size_of(problem.inputs[0].dtype);
    if (element != 2 && element != 4) return "it moves elements of 2 or 4 bytes";
    const int rank = problem.inputs[0].shape.rank();
    if (rank < 1 || rank > Permute::max_rank) return fmt::format("it takes 1 to {} axes", Permute::max_rank);
    return problem.inputs[0].shape.elements() == 0 ? "it needs one element or more" : "";
}

Launch prepare_permute(const Problem& problem, const BoundRows& b) {
    Permute fixed;
    fixed.rank = problem.inputs[0].shape.rank();
    fixed.element_size = static_cast<int>(size_of(problem.inputs[0].dtype));
    for (int axis = 0; axis < fixed.rank; ++axis) {
        fixed.extents[axis] = problem.inputs[0].shape[axis];
        fixed.axes[axis] = static_cast<int>(problem.attributes.list("order")[axis]);
    }
    return [b, fixed](const Operands& o) {
        Permute permutation = fixed;
        permutation.source = o.inputs[0];
        permutation.target = o.outputs[0];
        permute(b.kernels, permutation, b.pool);
    };
}

std::string refuse_losses_of_rows(const Problem& problem) {
    if (gives_rows(problem.attributes)) return "it gives the mean of all rows, not the loss of each";
    return refuse_empty_or_wide(problem);
}

std::string refuse_sixteen_bit_table(const Problem& problem) {
    if (problem.outputs[0].dtype != DType::f32) return "it adds in f32";
    return refuse_empty_or_wide(problem);
}

/// Whether an embedding's gradient may be written over its addend.
std::vector<std::vector<int>> write_over_addend(const Problem& problem) {
    if (problem.inputs.size() < 3) return {};
    return {{2}};
}

const RowBinding bindings[] = {
    {"layer_norm_grad",
     prepare_norm_grad<LayerNormGrad, layer_norm_grad>,
     1,
     refuse_empty_or_wide,
     [](const Problem& p) {
         const std::int64_t channels = p.inputs[1].shape[-1];
         return layer_norm_grad_workspace(p.inputs[1].shape.elements() / channels, channels);
     },
     {2, 3, 4}},
    {"gelu_grad", prepare_gelu_grad, 1},
    {"cross_entropy", prepare_cross_entropy, 0, refuse_losses_of_rows,
     [](const Problem& p) { return p.inputs[1].bytes(); }},
    {"cross_entropy_grad", prepare_cross_entropy_grad, 1, refuse_losses_of_rows, no_workspace, {0, 3}},
    {"rotary", prepare_rotary, 0, refuse_empty_or_wide, no_workspace, {1, 2}},
    {"embedding", prepare_embedding},
    {"embedding_grad",
     prepare_embedding_grad,
     0,
     refuse_sixteen_bit_table,
     [](const Problem& p) {
         return embedding_grad_workspace(p.inputs[1].shape.elements(), p.outputs[0].shape[0]);
     },
     {},
     DType::f32,
     write_over_addend},
    {"cumsum", prepare_cumsum, 0, refuse_empty_or_wide, no_workspace, {}, DType::f64},
    {"transpose", prepare_permute, 0, refuse_permutation},
    {"global_norm", prepare_global_norm, 0, refuse_empty_or_wide, global_norm_workspace, {}, DType::f64},
    {"sum", prepare_column_sum, 0, refuse_unless_leading_sum,
     [](const Problem& p) {
         const ColumnSum sum = column_sum_of(p);
         return column_sum_workspace(sum.rows, sum.channels);
     }},
};

/// The problem of a kernel as its launch remembers it. `x` is the operand whose shape is walked.
BoundRows bound_rows(const Context& context, const Problem& problem, const Type& x) {
    const std::int64_t columns = x.shape.rank() == 0 ? 1 : x.shape[-1];
    BoundRows bound{.kernels = row_kernels(context.isa),
                    .pool = context.pool,
                    .rows = columns == 0 ? 0 : x.shape.elements() / columns,
                    .columns = columns};
    for (const Type& type : problem.inputs) bound.inputs.push_back(type.dtype);
    for (const Type& type : problem.outputs) bound.outputs.push_back(type.dtype);
    return bound;
}

}  // namespace

std::string refuse_empty_or_wide(const Problem& problem) {
    for (std::span<const Type> types : {problem.inputs, problem.outputs})
        for (const Type& type : types)
            if (type.dtype == DType::f64)
                return fmt::format("it is written for f32, bf16 and f16, got {}", type.text());
    for (const Type& type : problem.inputs)
        if (type.shape.elements() == 0) return "it needs one element or more";
    return "";
}

void add_bindings(KernelTable& table, const Context& context, const std::string& name,
                  std::span<const RowBinding> all) {
    for (const RowBinding& binding : all) {
        const auto prepare = [=, &binding](const Problem& problem) -> Expected<PreparedKernel> {
            for (std::size_t i : binding.f32_inputs)
                if (problem.inputs[i].dtype != DType::f32)
                    return Unexpected{
                        fmt::format("operand {} must be f32, got {}", i, problem.inputs[i].text())};
            if (std::string reason = binding.refuse(problem); !reason.empty()) return Unexpected{reason};
            const BoundRows bound = bound_rows(context, problem, problem.inputs[binding.shaped_by]);
            return PreparedKernel{.launch = binding.prepare(problem, bound),
                                  .workspace = binding.workspace(problem),
                                  .may_write_over = binding.may_write_over(problem)};
        };
        table[binding.op].push_back({.name = name, .arithmetic = {.sums = binding.sums}, .prepare = prepare});
    }
}

void add_row_kernels(KernelTable& table, const Context& context) {
    add_bindings(table, context, fmt::format("rows {}", row_kernels(context.isa).name), bindings);
}

}  // namespace mantissa::on_cpu
