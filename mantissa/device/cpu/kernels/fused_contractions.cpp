// Fused nodes that start with a contraction: its kernel, with the rest compiled as its epilogue.
#include <fmt/format.h>

#include <algorithm>

#include "mantissa/base/error.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/contraction/contraction.h"
#include "mantissa/device/cpu/kernels/fused_sums.h"
#include "mantissa/device/cpu/kernels/kernels.h"
#include "mantissa/passes/contraction_tail.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// The contraction of a fused node, as a problem of its own.
struct Inner {
    explicit Inner(const Problem& fused)
        : body(fused.attributes.body("body").graph()),
          node(body.node(contraction_of(body))),
          inputs(body.input_types(node)) {
        for (const Value& input : node.inputs)
            operands.push_back(static_cast<int>(
                std::find(body.inputs().begin(), body.inputs().end(), input.node) - body.inputs().begin()));
    }

    Problem problem() const { return {*node.op, inputs, node.outputs, node.attributes}; }

    const Graph& body;
    const Node& node;
    std::vector<Type> inputs;
    std::vector<int> operands;  ///< of the fused node
};

/// As the unit does it, with an epilogue of ours in place of what it would do with the sums.
ContractionProblem contraction_problem(const Inner& inner, const ContractionUnit& unit) {
    ContractionProblem contraction = mantissa::on_cpu::contraction_problem(inner.problem());
    contraction.multiply = unit.multiply;
    contraction.out = {};
    contraction.epilogue = {};
    contraction.custom_epilogue = true;
    return contraction;
}

/// How many blocks of rows have partial sums of their own, in one entry of the batch and in all.
struct RowBlocks {
    explicit RowBlocks(const PreparedContraction& contraction)
        : rows(contraction.rows_of_item()),
          per_entry(parts_of(contraction.problem.m, rows)),
          all(contraction.problem.entries() * per_entry) {}

    std::int64_t rows, per_entry, all;
};

/// Everything that a launch needs but addresses.
struct BoundTail {
    std::shared_ptr<const codegen::FusedKernel> kernel;
    PreparedContraction contraction;
    RowBlocks blocks;
    std::vector<int> contraction_operands, tail_operands;  // of the fused node
    std::size_t workspace = 0;                             // of the contraction, in bytes
    ThreadPool& pool;

    void launch(const Operands& operands) const;
};

/// What the epilogue is given.
struct TailCall {
    const BoundTail& bound;
    std::vector<const std::byte*> inputs;  // of the compiled function; the first stands for the sums
    std::byte* const* outputs;
    float* partial_sums;
};

void run_tail(float* sums, std::int64_t ld, std::int64_t row0, std::int64_t col0, std::int64_t rows,
              std::int64_t cols, const void* args) {
    const auto& call = *static_cast<const TailCall*>(args);
    const BoundTail& bound = call.bound;
    const std::int64_t m = bound.contraction.problem.m, entry = row0 / m, row = row0 % m;
    const std::int64_t block = entry * bound.blocks.per_entry + row / bound.blocks.rows;
    codegen::FusedArguments arguments{
        .inputs = call.inputs.data(), .outputs = call.outputs, .first = row0, .last = row0 + rows};
    arguments.partial_sums = call.partial_sums + block * bound.kernel->nest.partial_sums;
    arguments.sums = sums;
    arguments.leading = ld;
    arguments.first_column = col0;
    arguments.last_column = col0 + cols;
    bound.kernel->function(&arguments);
}

void BoundTail::launch(const Operands& operands) const {
    const codegen::LoopNest& nest = kernel->nest;
    check(kernel->function != nullptr, "fused kernels are compiled before they are launched");
    float* const partial_sums = reinterpret_cast<float*>(operands.workspace + workspace);
    std::fill_n(partial_sums, blocks.all * nest.partial_sums, 0.0f);
    TailCall call{.bound = *this,
                  .inputs = {nullptr},
                  .outputs = operands.outputs.data(),
                  .partial_sums = partial_sums};
    for (int operand : tail_operands)
        call.inputs.push_back(operands.inputs[static_cast<std::size_t>(operand)]);
    const auto input = [&](std::size_t i) {
        return operands.inputs[static_cast<std::size_t>(contraction_operands[i])];
    };
    contract(contraction, {.a = input(0), .b = input(1), .epilogue = run_tail, .epilogue_args = &call},
             {operands.workspace, workspace}, pool);
    finish_sums(pool, nest, partial_sums, blocks.all, operands.outputs);
}

std::string refuse(const Problem& problem, const ContractionUnit& unit) {
    if (std::string reason = codegen::Compiler::refusal(); !reason.empty()) return reason;
    if (contraction_of(problem.attributes.body("body").graph()) < 0) return "it starts with no contraction";
    const Inner inner(problem);
    if (std::string reason = unit.refusal(inner.problem()); !reason.empty()) return reason;
    if (std::string reason = refusal(contraction_problem(inner, unit), unit.isa); !reason.empty())
        return reason;
    return nest_of_tail(contraction_tail(inner.body)->graph).reason();
}

/// Bytes of the contraction's workspace, in whole cache lines.
std::size_t contraction_workspace(const PreparedContraction& contraction, const ThreadPool& pool) {
    return static_cast<std::size_t>(
        in_lines(static_cast<std::int64_t>(contraction.workspace_bytes(pool.threads()))));
}

Kernel make_kernel(const Context& context, const ContractionUnit& unit, codegen::Compiler& compiler) {
    ThreadPool& pool = context.pool;
    const auto prepare = [unit, &pool, &compiler](const Problem& problem) -> Launch {
        const Inner inner(problem);
        const PreparedContraction contraction =
            prepare_contraction(contraction_problem(inner, unit), unit.isa);
        const BoundTail bound{.kernel = compiler.add(inner.body),
                              .contraction = contraction,
                              .blocks = RowBlocks(contraction),
                              .contraction_operands = inner.operands,
                              .tail_operands = contraction_tail(inner.body)->operands,
                              .workspace = contraction_workspace(contraction, pool),
                              .pool = pool};
        return [bound](const Operands& operands) { bound.launch(operands); };
    };
    const auto workspace = [unit, &pool](const Problem& problem) {
        const Inner inner(problem);
        const PreparedContraction contraction =
            prepare_contraction(contraction_problem(inner, unit), unit.isa);
        const std::int64_t sums = RowBlocks(contraction).all * codegen::lower(inner.body).partial_sums *
                                  static_cast<std::int64_t>(sizeof(float));
        return static_cast<std::int64_t>(contraction_workspace(contraction, pool)) + sums;
    };
    return {.name = unit.name + ", compiled tail",
            .refusal = [unit](const Problem& problem) { return refuse(problem, unit); },
            .prepare = prepare,
            .workspace = workspace};
}

}  // namespace

void add_fused_contraction_kernels(KernelTable& table, const Context& context, codegen::Compiler& compiler) {
    for (const ContractionUnit& unit : contraction_units(context.isa))
        table["fused"].push_back(make_kernel(context, unit, compiler));
}

}  // namespace mantissa::on_cpu
