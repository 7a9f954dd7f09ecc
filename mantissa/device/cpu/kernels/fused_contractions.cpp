// Fused nodes that start with a contraction: its kernel, with the rest compiled as its epilogue.

#include <algorithm>
#include <numeric>
#include <utility>

#include "mantissa/base/error.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/contraction/contraction.h"
#include "mantissa/device/cpu/kernels/fused_stores.h"
#include "mantissa/device/cpu/kernels/kernels.h"
#include "mantissa/graph/graph.h"
#include "mantissa/passes/analysis/contraction_epilogue.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// The contraction of a fused node, as a problem of its own.
struct Inner {
    explicit Inner(const Problem& fused)
        : body(fused.attributes.body("body").graph()),
          node(body.node(contraction_of(body))),
          inputs(body.input_types(node)),
          backward(fused.backward) {
        for (const Value& input : node.inputs)
            operands.push_back(static_cast<int>(
                std::find(body.inputs().begin(), body.inputs().end(), input.node) - body.inputs().begin()));
        for (int i = 0; i < std::ssize(operands); ++i)
            if (std::ranges::find(fused.lasting, operands[static_cast<std::size_t>(i)]) !=
                fused.lasting.end())
                lasting.push_back(i);
    }

    Problem problem() const {
        return {.op = *node.op,
                .inputs = inputs,
                .outputs = node.outputs,
                .attributes = node.attributes,
                .lasting = lasting,
                .backward = backward};
    }

    const Graph& body;
    const Node& node;
    std::vector<Type> inputs;
    std::vector<int> operands;  ///< of the fused node
    std::vector<int> lasting = {};
    bool backward;
};

/// The unit's parts, with an epilogue of ours in place of the unit's own.
std::vector<ContractionPart> contraction_parts(const Inner& inner, const ContractionUnit& unit) {
    std::vector<ContractionPart> parts = unit.parts(inner.problem());
    for (ContractionPart& part : parts) {
        part.problem.out = {};
        part.problem.epilogue = {};
        part.problem.custom_epilogue = true;
    }
    return parts;
}

/// A part with the blocks of rows that have partial sums of their own, in one entry of the batch and in all.
/// Parts come one after another, and add to the same partial sums.
struct FusedPart {
    FusedPart(const ContractionPart& part, Isa isa)
        : contraction(prepare_contraction(part.problem, isa)),
          pixels(part.rows),
          rows(contraction.rows_of_item()),
          blocks_of_entry(ceil_div(part.problem.m, rows)) {}

    std::int64_t blocks() const { return contraction.problem.entries() * blocks_of_entry; }

    PreparedContraction contraction;
    std::optional<PixelRows> pixels;
    std::int64_t rows, blocks_of_entry;
    std::int64_t kept_at = 0;  ///< where the panels of a kept b lie in Operands::kept
};

std::vector<FusedPart> bound_parts(const Inner& inner, const ContractionUnit& unit) {
    std::vector<FusedPart> parts;
    for (const ContractionPart& part : contraction_parts(inner, unit)) parts.emplace_back(part, unit.isa);
    std::int64_t kept = 0;
    for (FusedPart& part : parts)
        part.kept_at = std::exchange(kept, kept + static_cast<std::int64_t>(part.contraction.kept_bytes()));
    return parts;
}

std::int64_t max_blocks(const std::vector<FusedPart>& parts) {
    std::int64_t most = 0;
    for (const FusedPart& part : parts) most = std::max(most, part.blocks());
    return most;
}

/// Bytes of the workspace of the largest part, in whole cache lines.
std::size_t contraction_workspace(const std::vector<FusedPart>& parts, const ThreadPool& pool) {
    std::size_t most = 0;
    for (const FusedPart& part : parts)
        most = std::max(most, part.contraction.workspace_bytes(pool.threads()));
    return static_cast<std::size_t>(in_lines(static_cast<std::int64_t>(most)));
}

/// Everything that a launch needs but addresses.
struct BoundEpilogue {
    std::shared_ptr<const codegen::FusedKernel> kernel;
    std::vector<FusedPart> parts;
    std::vector<int> contraction_operands, epilogue_operands;  // of the fused node
    StreamedOutputs streamed;
    std::size_t workspace = 0;  // of the contraction, in bytes
    ThreadPool& pool;

    /// Packs a b that is kept.
    void keep(const Operands& operands) const;
    void launch(const Operands& operands) const;
};

/// Arguments of the epilogue.
struct EpilogueCall {
    const BoundEpilogue& bound;
    const FusedPart* part;
    std::vector<const std::byte*> inputs;  // of the compiled function; the first stands for the sums
    std::byte* const* outputs;
    std::uint64_t streamed;
    float* partial_sums;
};

void run_epilogue(float* sums, std::int64_t ld, std::int64_t row0, std::int64_t col0, std::int64_t rows,
                  std::int64_t cols, const void* args) {
    const auto& call = *static_cast<const EpilogueCall*>(args);
    const FusedPart& part = *call.part;
    const codegen::FusedKernel& kernel = *call.bound.kernel;
    const std::int64_t m = part.contraction.problem.m, entry = row0 / m, row = row0 % m;
    const std::int64_t block = entry * part.blocks_of_entry + row / part.rows;
    codegen::FusedArguments arguments{
        .inputs = call.inputs.data(), .outputs = call.outputs, .first = row0, .last = row0 + rows};
    arguments.streamed = call.streamed;
    arguments.partial_sums = call.partial_sums + block * kernel.nest.partial_sums;
    arguments.sums = sums;
    arguments.leading = ld;
    arguments.first_column = col0;
    arguments.last_column = col0 + cols;
    if (!part.pixels) return kernel.function(&arguments);
    for (std::int64_t i = 0; i < rows; ++i) {
        arguments.sums = sums + i * ld;
        arguments.first = part.pixels->of(row0 + i);
        arguments.last = arguments.first + 1;
        kernel.function(&arguments);
    }
}

void BoundEpilogue::keep(const Operands& operands) const {
    for (const FusedPart& part : parts)
        pack_b(part.contraction, operands.inputs[contraction_operands[1]],
               {operands.kept + part.kept_at, part.contraction.kept_bytes()}, pool);
}

void BoundEpilogue::launch(const Operands& operands) const {
    const codegen::LoopNest& nest = kernel->nest;
    check(kernel->function != nullptr, "fused kernels are compiled before they are launched");
    float* const partial_sums = reinterpret_cast<float*>(operands.workspace + workspace);
    const std::int64_t blocks = max_blocks(parts);
    std::fill_n(partial_sums, blocks * nest.partial_sums, 0.0f);
    EpilogueCall call{.bound = *this,
                      .part = nullptr,
                      .inputs = {nullptr},
                      .outputs = operands.outputs.data(),
                      .streamed = streamed.of(operands),
                      .partial_sums = partial_sums};
    for (int operand : epilogue_operands) call.inputs.push_back(operands.inputs[operand]);
    const auto input = [&](std::size_t i) { return operands.inputs[contraction_operands[i]]; };
    for (const FusedPart& part : parts) {
        call.part = &part;
        const std::byte* const b =
            part.contraction.kept_bytes() > 0 ? operands.kept + part.kept_at : input(1);
        contract(part.contraction, {.a = input(0), .b = b, .epilogue = run_epilogue, .epilogue_args = &call},
                 {operands.workspace, workspace}, pool);
    }
    finish_sums(pool, nest, partial_sums, blocks, operands.outputs);
}

std::string refuse(const Problem& problem, const ContractionUnit& unit) {
    if (std::string reason = codegen::Compiler::refusal(); !reason.empty()) return reason;
    if (contraction_of(problem.attributes.body("body").graph()) < 0) return "it starts with no contraction";
    const Inner inner(problem);
    if (std::string reason = unit.refusal(inner.problem()); !reason.empty()) return reason;
    for (const ContractionPart& part : contraction_parts(inner, unit)) {
        if (part.repeats > 1) return "an epilogue goes over all columns, groups of filters have some";
        if (std::string reason = refusal(part.problem); !reason.empty()) return reason;
    }
    return nest_of_epilogue(contraction_epilogue(inner.body)->graph).reason();
}

Kernel fused_contraction_kernel(const Context& context, const ContractionUnit& unit,
                                codegen::Compiler& compiler) {
    ThreadPool& pool = context.pool;
    const auto prepare = [unit, &pool, &compiler](const Problem& problem) -> Expected<PreparedKernel> {
        if (std::string reason = refuse(problem, unit); !reason.empty()) return Unexpected{reason};
        const Inner inner(problem);
        std::vector<FusedPart> parts = bound_parts(inner, unit);
        const std::size_t workspace = contraction_workspace(parts, pool);
        const std::shared_ptr<const codegen::FusedKernel> kernel = compiler.add(inner.body);
        // A row is stored tile by tile.
        const std::int64_t columns = std::gcd(kernel->nest.columns, parts[0].contraction.kernels.width);
        const std::int64_t sums =
            max_blocks(parts) * kernel->nest.partial_sums * static_cast<std::int64_t>(sizeof(float));
        const BoundEpilogue bound{.kernel = kernel,
                                  .parts = std::move(parts),
                                  .contraction_operands = inner.operands,
                                  .epilogue_operands = contraction_epilogue(inner.body)->operands,
                                  .streamed = StreamedOutputs(problem, columns),
                                  .workspace = workspace,
                                  .pool = pool};
        PreparedKernel prepared{.launch = [bound](const Operands& operands) { bound.launch(operands); },
                                .workspace = static_cast<std::int64_t>(workspace) + sums};
        for (const FusedPart& part : bound.parts)
            prepared.kept += static_cast<std::int64_t>(part.contraction.kept_bytes());
        if (prepared.kept > 0) prepared.keep = [bound](const Operands& operands) { bound.keep(operands); };
        return prepared;
    };
    return {.name = unit.name + ", compiled epilogue", .arithmetic = unit.arithmetic, .prepare = prepare};
}

}  // namespace

void add_fused_contraction_kernels(KernelTable& table, const Context& context, codegen::Compiler& compiler) {
    for (const ContractionUnit& unit : contraction_units(context.isa, context.threads))
        table["fused"].push_back(fused_contraction_kernel(context, unit, compiler));
}

}  // namespace mantissa::on_cpu
