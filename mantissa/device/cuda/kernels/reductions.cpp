// Sums and maxima over any axes, and the norm of gradients: in two launches where there are too few results
// to keep the GPU busy. What is added in which order follows from the shapes.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "mantissa/base/whole_units.h"
#include "mantissa/device/cuda/kernels/kernels.h"

namespace mantissa::inline v0::on_cuda {

namespace {

/// Threads that keep any GPU of these architectures busy: 148 multiprocessors of 2,048 at most.
constexpr std::int64_t enough_threads = 148 * 2048;
/// What a thread should at least do for a launch of its own.
constexpr std::int64_t least_terms = 64;

using Axis = codegen::ReductionKernel::Axis;

/// The axes of an operand taken apart, neighbours merged.
struct ReducedAxes {
    std::vector<Axis> kept, reduced;
    std::int64_t results = 1, terms = 1;
    bool last_is_reduced = false;
};

ReducedAxes taken_apart(const Shape& shape, const std::vector<std::int64_t>& axes) {
    ReducedAxes apart;
    const std::vector<std::int64_t> strides = shape.strides();
    for (std::size_t axis = 0; axis < strides.size(); ++axis) {
        const std::int64_t extent = shape.extents()[axis];
        const bool goes = std::ranges::find(axes, static_cast<std::int64_t>(axis)) != axes.end();
        (goes ? apart.terms : apart.results) *= extent;
        if (extent == 1) continue;
        std::vector<Axis>& to = goes ? apart.reduced : apart.kept;
        if (!to.empty() && to.back().stride == strides[axis] * extent)
            to.back() = {to.back().extent * extent, strides[axis]};
        else
            to.push_back({extent, strides[axis]});
        apart.last_is_reduced = goes;
    }
    return apart;
}

/// Threads of one result: neighbours read neighbours where the last axis goes, and there are enough terms.
int threads_of_result(bool along_terms, std::int64_t terms) {
    if (!along_terms || terms < 32) return 1;
    return static_cast<int>(
        std::bit_floor(static_cast<std::uint64_t>(std::min<std::int64_t>(codegen::grid_threads, terms))));
}

std::int64_t chunks_of(std::int64_t results, std::int64_t terms, int threads) {
    const std::int64_t wanted = enough_threads / std::max<std::int64_t>(1, results * threads);
    const std::int64_t most = terms / (least_terms * threads);
    return std::clamp<std::int64_t>(std::min(wanted, most), 1, 1024);
}

/// One reduction, or one of chunks and one over the chunks.
struct Stages {
    std::shared_ptr<const GpuKernel> first, second;  // second: null
    std::int64_t first_blocks = 0, second_blocks = 0;
    std::int64_t partial_bytes = 0;

    std::int64_t launches() const { return second ? 2 : 1; }

    void queue(const Context& context, std::uint64_t x, std::uint64_t partials, std::uint64_t y) const {
        launch(context, *first, first_blocks, {x, second ? partials : y});
        if (second) launch(context, *second, second_blocks, {partials, y});
    }
};

struct Reduced {
    bool maximum = false;
    DType from = DType::f32, sums = DType::f32, to = DType::f32;
};

Stages stages_of(Context& context, const Shape& shape, const std::vector<std::int64_t>& axes,
                 const Reduced& what) {
    const ReducedAxes apart = taken_apart(shape, axes);
    codegen::ReductionKernel first{.maximum = what.maximum,
                                   .kept = apart.kept,
                                   .reduced = apart.reduced,
                                   .from = what.from,
                                   .sums = what.sums,
                                   .to = what.to};
    first.threads = threads_of_result(apart.last_is_reduced, apart.terms);
    first.chunks = chunks_of(apart.results, apart.terms, first.threads);
    first.terms_of_chunk = parts_of(apart.terms, first.chunks);
    Stages stages;
    const std::string name = fmt::format("{}_{}", what.maximum ? "max" : "sum", name_of(what.from));
    const auto add = [&](const codegen::ReductionKernel& kernel, std::int64_t& blocks) {
        codegen::GridKernel named{.name = name, .code = kernel};
        blocks = codegen::blocks_of(named);
        return context.modules.add(std::move(named));
    };
    if (first.chunks > 1) {
        codegen::ReductionKernel second{.maximum = what.maximum,
                                        .kept = {{apart.results, 1}},
                                        .reduced = {{first.chunks, apart.results}},
                                        .terms_of_chunk = first.chunks,
                                        .from = what.sums,
                                        .sums = what.sums,
                                        .to = what.to};
        second.threads = threads_of_result(apart.results < 32, first.chunks);
        first.to = what.sums;
        stages.second = add(second, stages.second_blocks);
        stages.partial_bytes = first.chunks * apart.results * static_cast<std::int64_t>(size_of(what.sums));
    }
    stages.first = add(first, stages.first_blocks);
    return stages;
}

Kernel reduction_kernel(Context& context, bool maximum) {
    const auto prepare = [&context, maximum](const Problem& problem) -> OrReason<PreparedKernel> {
        const DType from = problem.inputs[0].dtype;
        const Stages stages = stages_of(context, problem.inputs[0].shape, problem.attributes.list("axes"),
                                        {.maximum = maximum,
                                         .from = from,
                                         .sums = from == DType::f64 ? DType::f64 : DType::f32,
                                         .to = problem.outputs[0].dtype});
        return PreparedKernel{.launch =
                                  [&context, stages](const Operands& operands) {
                                      stages.queue(context, address_of(operands.inputs[0]),
                                                   address_of(operands.workspace),
                                                   address_of(operands.outputs[0]));
                                  },
                              .workspace = stages.partial_bytes,
                              .launches = stages.launches()};
    };
    return {.name = "tree", .arithmetic = {.unit = context.unit}, .prepare = prepare};
}

/// Gradients of one format, whose squares one kernel adds up.
struct Squares {
    std::shared_ptr<const GpuKernel> kernel;
    codegen::PartTable table;
    std::vector<std::size_t> operands;
    std::vector<Part> parts;  ///< without addresses

    std::int64_t blocks() const {
        std::int64_t all = 0;
        for (const Part& part : parts) all += part.blocks;
        return all;
    }
    std::int64_t launches() const { return parts_of(std::ssize(parts), table.parts); }

    void queue(const Context& context, const Operands& given, std::uint64_t sums) const {
        std::vector<Part> bound = parts;
        for (std::size_t i = 0; i < bound.size(); ++i)
            bound[i].words[0] = address_of(given.inputs[operands[i]]);
        launch_parts(context, *kernel, table, bound, [&](std::int64_t before) -> std::vector<std::uint64_t> {
            return {sums + static_cast<std::uint64_t>(before) * sizeof(double)};
        });
    }
};

/// Of a block: 64 a thread, so that there are few sums beside what is read.
constexpr std::int64_t squares_of_block = 64 * codegen::grid_threads;

Squares squares_of(Context& context, const Problem& problem, DType dtype) {
    Squares squares;
    for (std::size_t i = 0; i < problem.inputs.size(); ++i) {
        const Type& type = problem.inputs[i];
        if (type.dtype != dtype || type.shape.elements() == 0) continue;
        const std::int64_t elements = type.shape.elements();
        squares.operands.push_back(i);
        squares.parts.push_back(
            {parts_of(elements, squares_of_block), {0, static_cast<std::uint64_t>(elements)}});
    }
    if (squares.parts.empty()) return squares;
    codegen::SquaresKernel kernel{.from = dtype, .of_block = squares_of_block};
    kernel.parts = codegen::parts_of_launch(std::ssize(squares.parts), kernel.table().words, 1);
    squares.table = kernel.table();
    squares.kernel = context.modules.add({.name = fmt::format("squares_{}", name_of(dtype)), .code = kernel});
    return squares;
}

/// Squares are added in FP64, where those of FP32 numbers cannot overflow: by blocks of all gradients at
/// once, then those of the blocks.
OrReason<PreparedKernel> norm_of_all(const Problem& problem, Context& context) {
    constexpr std::int64_t number = sizeof(double);
    std::vector<Squares> all;
    std::int64_t blocks = 0, launches = 1;
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
        all.push_back(squares_of(context, problem, dtype));
        blocks += all.back().blocks();
        if (!all.back().parts.empty()) launches += all.back().launches();
    }
    const Stages whole =
        stages_of(context, Shape{blocks}, {0}, {.from = DType::f64, .sums = DType::f64, .to = DType::f64});
    launches += whole.launches();
    const auto kernel = context.modules.add({.name = "norm", .code = codegen::NormKernel{}});
    const auto queue = [&context, all = std::move(all), whole, kernel, blocks](const Operands& operands) {
        std::uint64_t sums = address_of(operands.workspace);
        const std::uint64_t first = sums;
        for (const Squares& squares : all) {
            if (squares.parts.empty()) continue;
            squares.queue(context, operands, sums);
            sums += static_cast<std::uint64_t>(squares.blocks() * number);
        }
        // Behind the sums of blocks: their sum, and what it takes on the way.
        whole.queue(context, first, sums + number, sums);
        launch(context, *kernel, 1, {sums, address_of(operands.outputs[0]), address_of(operands.outputs[1])});
    };
    return PreparedKernel{
        .launch = queue, .workspace = (blocks + 1) * number + whole.partial_bytes, .launches = launches};
}

}  // namespace

void add_reduction_kernels(KernelTable& table, Context& context) {
    table["sum"].push_back(reduction_kernel(context, false));
    table["max"].push_back(reduction_kernel(context, true));
    table["global_norm"].push_back({.name = "tree of squares", .prepare = [&context](const Problem& problem) {
                                        return norm_of_all(problem, context);
                                    }});
}

}  // namespace mantissa::on_cuda
