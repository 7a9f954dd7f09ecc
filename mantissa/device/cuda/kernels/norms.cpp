// The norm of all gradients: their squares, of many in one launch, and the sum of those.
#include <fmt/format.h>

#include "mantissa/base/whole_units.h"
#include "mantissa/device/cuda/kernels/reductions.h"

namespace mantissa::inline v0::on_cuda {

namespace {

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

void add_norm_kernels(KernelTable& table, Context& context) {
    table["global_norm"].push_back({.name = "tree of squares", .prepare = [&context](const Problem& problem) {
                                        return norm_of_all(problem, context);
                                    }});
}

}  // namespace mantissa::on_cuda
