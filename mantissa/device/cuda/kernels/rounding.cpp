// Operands rounded below sixteen bits, stored as BF16, by kernels of our own with the CPU's bits.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "mantissa/device/cuda/kernels/kernels.h"
#include "mantissa/numerics/short_formats.h"

namespace mantissa::inline v0::on_cuda {

namespace {

using codegen::RoundingKernel;

RoundingKernel rounding_of(const Problem& problem) {
    const Attributes& attributes = problem.attributes;
    const Shape& shape = problem.inputs[0].shape;
    RoundingKernel kernel{.from = problem.inputs[0].dtype,
                          .block = attributes.integer("block"),
                          .hadamard = attributes.has("hadamard"),
                          .random = attributes.has("random"),
                          .rule = find_scale_rule(attributes.word("rule")),
                          .element = find_short_format(attributes.word("element")),
                          .askew = problem.askew};
    if (kernel.random) kernel.operation = attributes.integer("random");
    if (attributes.has("fp8")) {
        kernel.fp8 = true;
        kernel.lies = RoundingKernel::Block::across;
        kernel.depth = shape[0];
        kernel.inner = shape[1];
        kernel.block = kernel.depth % 32 == 0 ? 32 : 16;
        return kernel;
    }
    if (kernel.rule == ScaleRule::tensor) {
        kernel.depth = kernel.block = shape.elements();
        return kernel;
    }
    if (attributes.has("square")) {
        kernel.lies = RoundingKernel::Block::square;
        kernel.depth = shape[-2];
        kernel.inner = shape[-1];
        kernel.outer = shape.elements() / (kernel.depth * kernel.inner);
        return kernel;
    }
    const auto axis = static_cast<int>(attributes.integer("axis"));
    kernel.depth = shape[axis];
    for (int i = 0; i < axis; ++i) kernel.outer *= shape[i];
    for (int i = axis + 1; i < shape.rank(); ++i) kernel.inner *= shape[i];
    kernel.lies = kernel.inner == 1 ? RoundingKernel::Block::along : RoundingKernel::Block::across;
    if (!kernel.has_four_blocks()) kernel.block = std::min(kernel.block, kernel.depth);
    return kernel;
}

std::string named(const char* what, const RoundingKernel& kernel) {
    return fmt::format("{}_{}", what, limits_of(kernel.element).name);
}

/// The tensor's scale, which lies in the workspace, by the largest magnitude: where that was not measured, of
/// blocks of threads first, which lie behind it.
struct TensorScale {
    static constexpr std::int64_t room_of_scale = 256;

    SizedKernel largest, scale;  // measured: no largest
    bool given = false;

    TensorScale(Context& context, const RoundingKernel& rounding, const Attributes& attributes)
        : given(attributes.has("given")) {
        if (!attributes.has("measured")) find_largest(context, rounding);
        scale = add_sized(context,
                          {.name = named("scale_for", rounding),
                           .code = codegen::TensorScaleKernel{.rule = rounding.rule,
                                                              .element = rounding.element,
                                                              .parts = largest.kernel ? largest.blocks : 1,
                                                              .given = given}});
    }

    void find_largest(Context& context, const RoundingKernel& rounding) {
        RoundingKernel finds = rounding;
        finds.finds_largest = true;
        finds.random = finds.fp8 = false;
        if (!rounding.hadamard) {
            finds.lies = RoundingKernel::Block::none;
            finds.block = 1;
        }
        largest = add_sized(context, {.name = named("largest_for", rounding), .code = finds});
    }

    std::int64_t launches() const { return largest.kernel ? 2 : 1; }
    std::int64_t workspace() const { return room_of_scale + 4 * largest.blocks; }

    void queue(const Context& context, const Operands& operands) const {
        const std::uint64_t at = address_of(operands.workspace);
        std::uint64_t parts = at + room_of_scale;
        if (largest.kernel)
            launch(context, largest, {address_of(operands.inputs[0]), parts});
        else
            parts = address_of(operands.inputs[given ? 2 : 1]);
        std::vector<std::uint64_t> parameters{parts};
        if (given) parameters.push_back(address_of(operands.inputs[1]));
        for (const std::uint64_t to : {at, address_of(operands.outputs[1]), address_of(operands.outputs[2])})
            parameters.push_back(to);
        launch(context, scale, std::move(parameters));
    }
};

Expected<PreparedKernel> prepare_rounding(Context& context, const Problem& problem) {
    if (problem.outputs[0].shape.elements() == 0) return Unexpected{"it needs one element or more"};
    const RoundingKernel kernel = rounding_of(problem);
    if (kernel.fp8 && (kernel.askew || kernel.depth % 16 != 0 || kernel.inner % 16 != 0))
        return Unexpected{fmt::format("FP8 is written in whole pieces of 16 bytes, got {}{}",
                                      problem.inputs[0].text(), kernel.askew ? " that begin anywhere" : "")};
    if (kernel.random && (kernel.lies == RoundingKernel::Block::square ||
                          problem.attributes.integer("block") != hadamard_size))
        return Unexpected{fmt::format("it rounds at random in lines of {} alone", hadamard_size)};
    const SizedKernel rounds = add_sized(context, {.name = named("round_to", kernel), .code = kernel});
    std::shared_ptr<const TensorScale> scale;
    if (has_tensor_scale(kernel.rule))
        scale = std::make_shared<const TensorScale>(context, kernel, problem.attributes);
    Cost cost = problem.op.cost(problem.inputs, problem.outputs, problem.attributes);
    if (scale && scale->largest.kernel) cost.bytes += problem.inputs[0].bytes();  // read once more, before
    const auto queue = [&context, rounds, scale, random = kernel.random](const Operands& operands) {
        std::vector<std::uint64_t> parameters{address_of(operands.inputs[0]),
                                              address_of(operands.outputs[0])};
        if (scale) {
            scale->queue(context, operands);
            parameters.push_back(address_of(operands.workspace));
        }
        const std::size_t count = operands.inputs.size();
        for (std::size_t i = random ? count - 2 : count; i < count; ++i)
            parameters.push_back(address_of(operands.inputs[i]));
        launch(context, rounds, std::move(parameters));
    };
    return PreparedKernel{.launch = queue,
                          .workspace = scale ? scale->workspace() : 0,
                          .launches = 1 + (scale ? scale->launches() : 0),
                          .cost = cost};
}

}  // namespace

void add_rounding_kernels(KernelTable& table, Context& context) {
    table["round_blocks"].push_back(
        {.name = "round blocks " + context.unit,
         .arithmetic = {.unit = context.unit},
         .prepare = [&context](const Problem& problem) { return prepare_rounding(context, problem); }});
}

}  // namespace mantissa::on_cuda
