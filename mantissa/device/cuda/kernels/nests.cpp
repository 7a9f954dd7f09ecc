// Fused nodes, and composites that are a nest by their definition, each as one kernel that the compiler
// makes; sums over rows are added up by another one.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "mantissa/base/error.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/device/bind/nest_body.h"
#include "mantissa/device/cuda/kernels/kernels.h"
#include "mantissa/graph/graph.h"
#include "mantissa/passes/analysis/contraction_epilogue.h"

namespace mantissa::inline v0::on_cuda {

namespace {

/// Elements of a flat nest that a block has, of a table's parts: four a thread.
constexpr std::int64_t elements_of_block = 4 * codegen::grid_threads;
/// Blocks of a nest with sums over rows: their partial sums should be small beside the operands, and keep all
/// multiprocessors busy. A row is read, summed twice and written before the next one: only many blocks hide
/// that.
constexpr std::int64_t max_blocks_with_sums = 1024;
/// Threads that add up the partial sums of a column: as many blocks then read at a time as there are results
/// for, and each reads a few.
constexpr std::int64_t max_threads_of_sum = 32, terms_of_thread = 4;

/// How often the multiprocessors are filled with blocks of one nest by rows. Operands that all rows share are
/// read once a block, so that few blocks read little. One wave alone would leave many multiprocessors idle
/// where blocks are not equally long, or are a few more than one wave holds.
constexpr std::int64_t waves = 2;

/// Whether threads of a row wait for one another.
bool waits(const codegen::LoopNest& nest) {
    return std::ranges::any_of(nest.walks,
                               [](const codegen::Walk& walk) { return !walk.reductions.empty(); });
}

bool sums_row_values(const codegen::LoopNest& nest) {
    return std::ranges::any_of(nest.walks, [](const codegen::Walk& walk) { return !walk.row_sums.empty(); });
}

/// Whether so many rows side by side have room for their sums in a block's shared memory.
bool holds_sums(const codegen::LoopNest& nest, std::int64_t rows) {
    constexpr std::int64_t max_bytes = 32 << 10;
    return rows * nest.partial_sums * static_cast<std::int64_t>(sizeof(float)) <= max_bytes;
}

/// NvptxTarget::at_once: 16 bytes of the shortest type that varies by column, while that leaves a thread
/// registers.
int at_once_of(const codegen::LoopNest& nest) {
    std::size_t shortest = 16, columns = 0;
    const auto count = [&](DType dtype) {
        shortest = std::min(shortest, size_of(dtype));
        ++columns;
    };
    for (const codegen::Step& step : nest.steps)
        if (step.op == "load" && step.access.columns) count(step.dtype);
    for (const codegen::Walk& walk : nest.walks) {
        for (const codegen::Store& store : walk.stores)
            count(nest.outputs[static_cast<std::size_t>(store.output)]);
        columns += walk.sums.size() + walk.kept.size();
    }
    constexpr std::size_t max_values = 96;
    std::size_t count_at_once = std::min<std::size_t>(8, 16 / shortest);
    const auto leaves_threads_idle = [&] {  // of a warp
        return waits(nest) && nest.columns < 32 * static_cast<std::int64_t>(count_at_once);
    };
    while (count_at_once > 1 &&
           (count_at_once * columns > max_values || leaves_threads_idle() ||
            (!nest.flat && nest.columns % static_cast<std::int64_t>(count_at_once) != 0)))
        count_at_once /= 2;
    return static_cast<int>(count_at_once);
}

/// As many as there are columns for, in whole warps. For rows that are too long for one place a thread a
/// block should be large: its second walk then finds the row in the L2 cache, as few rows are on their way.
void choose_threads(const codegen::LoopNest& nest, codegen::NvptxTarget& target) {
    target.threads = codegen::grid_threads;
    if (nest.flat) return;
    const std::int64_t places = std::max<std::int64_t>(1, ceil_div(nest.columns, target.at_once));
    const std::int64_t rows =
        std::bit_floor(static_cast<std::uint64_t>(ceil_div(codegen::grid_threads, places)));
    if (rows > 1 && rows * places % 32 == 0 && !target.in_place && !waits(nest) && !sums_row_values(nest) &&
        holds_sums(nest, rows)) {
        target.threads = static_cast<int>(places);
        target.side_by_side = static_cast<int>(rows);
    } else if (places <= max_places_of_row) {
        target.threads = static_cast<int>(align_up(places, 32));
    } else if (target.at_once > 1) {
        target.threads = 1024;
    }
}

/// One sum over rows: an output's place among a block's partial sums.
struct FinishedSum {
    SizedKernel added = {};
    std::size_t output = 0;
    std::int64_t offset = 0;  ///< FP32 numbers
};

/// Everything that a launch needs but addresses.
struct BoundNest {
    std::shared_ptr<const GpuKernel> kernel = nullptr;
    std::int64_t count = 0;  ///< rows, or elements where the nest is flat
    std::int64_t per_block = 1;
    std::int64_t partial_sums = 0, scratch = 0;  ///< FP32 numbers of one block
    int threads = 0, at_once = 1, side_by_side = 1;
    bool starts_at_zero = false;  ///< partial sums are added to in memory
    std::vector<FinishedSum> sums = {};

    /// Blocks of `side_by_side` times `per_block` rows.
    std::int64_t blocks() const { return ceil_div(ceil_div(count, per_block), side_by_side); }
    std::int64_t partial_bytes() const {
        return blocks() * partial_sums * static_cast<std::int64_t>(sizeof(float));
    }
    std::int64_t workspace() const {
        return partial_bytes() + blocks() * side_by_side * scratch * static_cast<std::int64_t>(sizeof(float));
    }

    std::int64_t launches() const {
        return 1 + (starts_at_zero ? 1 : 0) + static_cast<std::int64_t>(sums.size());
    }

    /// Whether operands and outputs begin where the kernel may read several elements at once.
    bool takes(const Operands& operands) const {
        const auto is_aligned = [&](const std::byte* address) {
            return at_once == 1 || address_of(address) % 16 == 0;
        };
        return std::ranges::all_of(operands.inputs, is_aligned) &&
               std::ranges::all_of(operands.outputs, is_aligned);
    }

    void queue(const Context& context, const Operands& operands) const {
        check(takes(operands), "a nest's operands begin at multiples of 16");
        const std::uint64_t partials = address_of(operands.workspace);
        if (starts_at_zero)
            queue_zeros(context, operands.workspace, static_cast<std::size_t>(partial_bytes()));
        std::vector<std::uint64_t> parameters;
        for (const std::byte* input : operands.inputs) parameters.push_back(address_of(input));
        for (const std::byte* output : operands.outputs) parameters.push_back(address_of(output));
        parameters.push_back(static_cast<std::uint64_t>(count));
        parameters.push_back(static_cast<std::uint64_t>(per_block));
        parameters.push_back(partials);
        parameters.push_back(partials + static_cast<std::uint64_t>(partial_bytes()));
        launch(context, *kernel, blocks(), std::move(parameters), threads * side_by_side);
        for (const FinishedSum& sum : sums)
            launch(context, *sum.added.kernel, sum.added.blocks,
                   {partials + static_cast<std::uint64_t>(sum.offset) * sizeof(float),
                    address_of(operands.outputs[sum.output])});
    }
};

/// Adds up `terms` of each of some neighbouring partial sums, from number `first` on.
SizedKernel added_sums(Context& context, const codegen::LoopNest& nest, std::int64_t first, std::int64_t sums,
                       std::int64_t terms) {
    constexpr int at_once = 4;
    codegen::ReductionKernel code{
        .kept = {{sums, 1}}, .reduced = {{terms, nest.partial_sums}}, .terms_of_chunk = terms};
    code.threads = static_cast<int>(std::bit_floor(static_cast<std::uint64_t>(
        std::clamp<std::int64_t>(terms / terms_of_thread, 1, max_threads_of_sum))));
    code.spread = code.threads > 1;
    if (first % at_once == 0 && sums % at_once == 0 && nest.partial_sums % at_once == 0)
        code.at_once = at_once;
    return add_sized(context, {.name = "sum_of_blocks", .code = code});
}

/// Says how the partial sums of all blocks become the nest's outputs.
void add_sums(Context& context, const codegen::LoopNest& nest, BoundNest& bound) {
    for (const codegen::Walk& walk : nest.walks)
        for (const auto* sums : {&walk.sums, &walk.row_sums})
            for (const codegen::RowSum& sum : *sums)
                bound.sums.push_back({.added = added_sums(context, nest, sum.offset,
                                                          sum.columns ? nest.columns : 1, bound.blocks()),
                                      .output = static_cast<std::size_t>(sum.output),
                                      .offset = sum.offset});
}

std::int64_t rows_of_block(const Context& context, const codegen::NvptxTarget& target, std::int64_t rows) {
    constexpr int min_threads = 64;  // of a block: a multiprocessor holds 32 blocks of fewer
    const std::int64_t max_blocks = std::max<std::int64_t>(
        1, waves * context.resident_threads / std::max(min_threads, target.threads * target.side_by_side));
    // Rows side by side are a block each.
    return std::max<std::int64_t>(1, ceil_div(rows, max_blocks * target.side_by_side));
}

std::shared_ptr<const GpuKernel> add_nest(Context& context, const std::string& text,
                                          const codegen::LoopNest& nest, const codegen::NvptxTarget& target) {
    return context.modules.add("fused_0", text, [nest, target] {
        codegen::Compiler compiler(target);
        return compiler.list(*compiler.add(nest));
    });
}

/// The access to memory: several neighbours at once where they allow it, or each element by itself.
enum class Access : std::uint8_t { wide, single };

BoundNest bound_nest(Context& context, const NestBody& body, NestOutputs place, Access access) {
    const codegen::LoopNest& nest = body.loops;
    codegen::NvptxTarget target = context.modules.target();
    target.at_once = access == Access::wide ? at_once_of(nest) : 1;
    target.in_place = place == NestOutputs::over_operands;
    choose_threads(nest, target);
    BoundNest bound{.count = nest.flat ? body.elements() : body.rows,
                    .per_block = nest.flat ? std::max(4, target.at_once) * target.threads
                                           : rows_of_block(context, target, body.rows),
                    .partial_sums = nest.partial_sums,
                    .scratch = codegen::global_scratch_floats(nest),
                    .threads = target.threads,
                    .at_once = target.at_once,
                    .side_by_side = target.side_by_side};
    if (nest.partial_sums > 0) {
        bound.per_block =
            std::max(bound.per_block, ceil_div(bound.count, max_blocks_with_sums * target.side_by_side));
        bound.starts_at_zero = !codegen::has_one_place(nest, target) || sums_row_values(nest);
        add_sums(context, nest, bound);
    }
    const std::string text = fmt::format("{} threads, {} columns at once, {} rows side by side{}\n{}",
                                         target.threads, target.at_once, target.side_by_side,
                                         target.in_place ? ", in place" : "", codegen::pseudo_code(nest));
    bound.kernel = add_nest(context, text, nest, target);
    return bound;
}

PreparedKernel prepare_nest(Context& context, const NestBody& body, NestOutputs place, Access access) {
    const BoundNest bound = bound_nest(context, body, place, access);
    PreparedKernel prepared{
        .launch = [&context, bound](const Operands& operands) { bound.queue(context, operands); },
        .workspace = bound.workspace(),
        .launches = bound.launches()};
    if (!context.ranks || bound.at_once == 1) return prepared;
    // A rank's part of a parameter may begin anywhere.
    const BoundNest askew = bound_nest(context, body, place, Access::single);
    prepared.workspace = std::max(prepared.workspace, askew.workspace());
    prepared.launch = [&context, bound, askew](const Operands& operands) {
        (bound.takes(operands) ? bound : askew).queue(context, operands);
    };
    return prepared;
}

/// Updates of many parameters that are one flat nest, over a table of them.
struct BoundParts {
    std::shared_ptr<const GpuKernel> kernel;
    codegen::PartTable table;
    std::vector<std::int64_t> elements;  ///< by part

    std::int64_t launches() const { return ceil_div(std::ssize(elements), table.parts); }

    void queue(const Context& context, const Operands& operands) const {
        const std::size_t inputs = operands.inputs.size() / elements.size(),
                          outputs = operands.outputs.size() / elements.size();
        std::vector<Part> parts;
        for (std::size_t i = 0; i < elements.size(); ++i) {
            Part& part = parts.emplace_back(Part{ceil_div(elements[i], elements_of_block), {}});
            for (const std::byte* input : operands.inputs.subspan(i * inputs, inputs))
                part.words.push_back(address_of(input));
            for (const std::byte* output : operands.outputs.subspan(i * outputs, outputs))
                part.words.push_back(address_of(output));
            part.words.push_back(static_cast<std::uint64_t>(elements[i]));
        }
        launch_parts(context, *kernel, table, parts, {static_cast<std::uint64_t>(elements_of_block)});
    }
};

/// The one nest of all parts, and the elements of each.
struct PartsBody {
    codegen::LoopNest loops = {};
    std::vector<std::int64_t> elements = {};
    std::size_t inputs = 0, outputs = 0;  ///< of a part
};

Expected<PartsBody> nest_of_parts(const Problem& problem) {
    const Op& update = find_op(problem.attributes.word("update"));
    const auto parts = static_cast<std::size_t>(problem.attributes.integer("parts"));
    PartsBody body{.inputs = problem.inputs.size() / parts, .outputs = problem.outputs.size() / parts};
    std::string text;
    for (std::size_t part = 0; part < parts; ++part) {
        Expected<NestBody> nest = nest_of_operation(
            {update, problem.inputs.subspan(part * body.inputs, body.inputs),
             problem.outputs.subspan(part * body.outputs, body.outputs), problem.attributes});
        if (!nest) return Unexpected{nest.reason()};
        if (!nest->loops.flat || nest->loops.partial_sums > 0)
            return Unexpected{"its parts are no flat nests"};
        std::string own = codegen::pseudo_code(nest->loops);
        if (part > 0 && own != text) return Unexpected{"its parts are not one nest"};
        text = std::move(own);
        body.elements.push_back(nest->elements());
        if (part == 0) body.loops = std::move(nest->loops);
    }
    return body;
}

PreparedKernel prepare_parts(Context& context, const PartsBody& body) {
    codegen::NvptxTarget target = context.modules.target();
    target.in_place = true;
    target.parts = codegen::parts_of_launch(std::ssize(body.elements),
                                            codegen::table_of(target, body.inputs, body.outputs).words, 1);
    const std::string text = fmt::format("{} threads, in place, {} parts\n{}", target.threads, target.parts,
                                         codegen::pseudo_code(body.loops));
    const BoundParts bound{.kernel = add_nest(context, text, body.loops, target),
                           .table = codegen::table_of(target, body.inputs, body.outputs),
                           .elements = body.elements};
    return {.launch = [&context, bound](const Operands& operands) { bound.queue(context, operands); },
            .launches = bound.launches()};
}

}  // namespace

Expected<PreparedKernel> prepare_definition(Context& context, const Graph& definition, NestOutputs place) {
    const Expected<NestBody> body = nest_of_definition(definition);
    if (!body) return Unexpected{body.reason()};
    return prepare_nest(context, *body, place, Access::wide);
}

void add_nest_kernels(KernelTable& table, Context& context) {
    const auto add = [&](std::string_view op, Expected<NestBody> (*resolve)(const Problem&)) {
        table[std::string(op)].push_back(compiled_kernel<NestBody>(
            context.unit, resolve, [&context](const Problem& problem, const NestBody& body) {
                return prepare_nest(
                    context, body,
                    problem.op.in_place.empty() ? NestOutputs::apart : NestOutputs::over_operands,
                    problem.askew ? Access::single : Access::wide);
            }));
    };
    constexpr std::string_view others[] = {"fused", "joined_updates", "global_norm"};
    for (const Op* op : op_table())
        if (op->composite() && std::ranges::find(others, op->name) == std::end(others))
            add(op->name, nest_of_operation);
    add("fused", [](const Problem& problem) -> Expected<NestBody> {
        const Graph& body = problem.attributes.body("body").graph();
        if (contraction_of(body) >= 0) return Unexpected{"it makes nests, and no contraction"};
        return nest_of_body(body);
    });
    table["joined_updates"].push_back(compiled_kernel<PartsBody>(
        context.unit, nest_of_parts,
        [&context](const Problem&, const PartsBody& body) { return prepare_parts(context, body); }));
}

}  // namespace mantissa::on_cuda
