// Fused nodes, and operations that are a nest by their definition, on the CPU: a compiled function over
// blocks of rows on the thread pool. The blocks follow from the shapes; sums over rows are made a block and
// then added in a fixed tree.
#include <algorithm>

#include "mantissa/base/error.h"
#include "mantissa/device/bind/nest_body.h"
#include "mantissa/device/cpu/kernels/fused_stores.h"
#include "mantissa/device/cpu/kernels/kernels.h"
#include "mantissa/device/cpu/rows/partition.h"

#include "mantissa/base/whole_units.h"
#include "mantissa/graph/graph.h"

namespace mantissa::inline v0::on_cpu {

namespace {

using codegen::FusedKernel;

/// Blocks of a nest with sums over rows: their partial sums should be small beside the operands.
constexpr std::int64_t max_blocks_with_sums = 64;

struct Partition {
    std::int64_t rows = 1;  ///< elements where the nest is flat
    std::int64_t rows_per_block = 1;
    std::int64_t blocks = 1;
    std::int64_t scratch_floats = 0;  ///< of one thread
};

Partition partition_of(const codegen::LoopNest& nest, std::int64_t elements) {
    Partition partition;
    const std::int64_t columns = std::max<std::int64_t>(nest.columns, 1);
    partition.rows = nest.flat ? elements : elements / columns;
    partition.rows_per_block = nest.flat ? block_elements : rows_per_block(nest.bytes_per_row);
    if (nest.partial_sums > 0)
        partition.rows_per_block =
            std::max(partition.rows_per_block, ceil_div(partition.rows, max_blocks_with_sums));
    partition.blocks = ceil_div(partition.rows, partition.rows_per_block);
    partition.scratch_floats = codegen::scratch_floats(nest);
    return partition;
}

/// Whether every load of an operand reads the element that the loops are at, and no load comes after `walk`.
bool read_in_place_until(const codegen::LoopNest& nest, int operand, std::size_t walk) {
    for (std::size_t i = 0; i < nest.steps.size(); ++i) {
        const codegen::Step& step = nest.steps[i];
        if (step.op != "load" || step.operand != operand) continue;
        if (step.access != Access{.rows = true, .columns = true}) return false;
        for (std::size_t later = walk + 1; later < nest.walks.size(); ++later) {
            const std::vector<int>& steps = nest.walks[later].steps;
            if (std::find(steps.begin(), steps.end(), static_cast<int>(i)) != steps.end()) return false;
        }
    }
    return true;
}

/// By output, the operands of its element size whose last reading is where the output is written.
std::vector<std::vector<int>> operands_to_write_over(const codegen::LoopNest& nest) {
    std::vector<std::vector<int>> operands(nest.outputs.size());
    for (std::size_t walk = 0; walk < nest.walks.size(); ++walk)
        for (const codegen::Store& store : nest.walks[walk].stores) {
            const auto output = static_cast<std::size_t>(store.output);
            for (std::size_t operand = 0; operand < nest.inputs.size(); ++operand)
                if (size_of(nest.inputs[operand]) == size_of(nest.outputs[output]) &&
                    read_in_place_until(nest, static_cast<int>(operand), walk))
                    operands[output].push_back(static_cast<int>(operand));
        }
    return operands;
}

/// Everything that a launch needs but addresses.
struct Bound {
    std::shared_ptr<const FusedKernel> kernel;
    Partition partition;
    StreamedOutputs streamed;
    ThreadPool& pool;

    std::int64_t workspace_bytes() const {
        const std::int64_t sums = partition.blocks * kernel->nest.partial_sums;
        return static_cast<std::int64_t>(sizeof(float)) * (pool.threads() * partition.scratch_floats + sums);
    }

    void launch(const Operands& operands) const {
        const codegen::LoopNest& nest = kernel->nest;
        check(kernel->function != nullptr, "fused kernels are compiled before they are launched");
        const auto workspace = reinterpret_cast<float*>(operands.workspace);
        float* partial_sums = workspace + pool.threads() * partition.scratch_floats;
        const std::uint64_t past_caches = streamed.of(operands);
        pool.for_each_block(partition.blocks, [&](std::int64_t block, int worker) {
            codegen::FusedArguments arguments{.inputs = operands.inputs.data(),
                                              .outputs = operands.outputs.data(),
                                              .first = block * partition.rows_per_block};
            arguments.last = std::min(partition.rows, arguments.first + partition.rows_per_block);
            arguments.scratch = workspace + worker * partition.scratch_floats;
            arguments.partial_sums = partial_sums + block * nest.partial_sums;
            arguments.streamed = past_caches;
            if (nest.partial_sums > 0) std::fill_n(arguments.partial_sums, nest.partial_sums, 0.0f);
            kernel->function(&arguments);
        });
        finish_sums(pool, nest, partial_sums, partition.blocks, operands.outputs);
    }
};

PreparedKernel prepare_nest(const Context& context, codegen::Compiler& compiler, const Problem& problem,
                            const NestBody& body) {
    std::vector<bool> read;
    if (body.loops.flat) read = codegen::read_where_it_holds(body.loops);
    const Bound bound{.kernel = compiler.add(body.loops),
                      .partition = partition_of(body.loops, body.elements()),
                      .streamed = StreamedOutputs(problem, body.loops.columns, std::move(read)),
                      .pool = context.pool};
    return {.launch = [bound](const Operands& operands) { bound.launch(operands); },
            .workspace = bound.workspace_bytes(),
            .may_write_over = operands_to_write_over(body.loops)};
}

}  // namespace

void add_nest_kernels(KernelTable& table, const Context& context, codegen::Compiler& compiler) {
    const auto add = [&](std::string_view op, Expected<NestBody> (*resolve)(const Problem&)) {
        table[std::string(op)].push_back(
            compiled_kernel<NestBody>(std::string(instructions_of(context.isa)), resolve,
                                      [&compiler, context](const Problem& problem, const NestBody& body) {
                                          return prepare_nest(context, compiler, problem, body);
                                      }));
    };
    add("fused",
        [](const Problem& problem) { return nest_of_body(problem.attributes.body("body").graph()); });
    // Composites without another kernel are expanded, as when the oldest checkpoints were written.
    constexpr std::string_view by_definition[] = {"adamw", "gelu",    "layer_norm",   "relu", "relu_grad",
                                                  "sgd",   "softmax", "softmax_grad", "sum"};
    for (const Op* op : op_table())
        if (std::ranges::find(by_definition, op->name) != std::end(by_definition) ||
            (op->composite() && op->name != "fused" && table.contains(op->name)))
            add(op->name, nest_of_operation);
}

}  // namespace mantissa::on_cpu
