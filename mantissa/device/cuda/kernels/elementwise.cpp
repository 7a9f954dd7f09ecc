// Element-wise operations, casts and random numbers.

#include <algorithm>

#include "mantissa/device/bind/strided_axes.h"
#include "mantissa/device/cuda/kernels/kernels.h"

namespace mantissa::inline v0::on_cuda {

codegen::Strided stretched(const Type& operand, const Shape& shape) {
    return {.dtype = operand.dtype, .strides = broadcast_strides(operand.shape, shape)};
}

SizedKernel add_element_kernel(Context& context, codegen::ElementKernel kernel) {
    std::vector<std::vector<std::int64_t>*> strides{&kernel.output.strides};
    for (codegen::Strided& operand : kernel.operands) strides.push_back(&operand.strides);
    if (!kernel.counter.empty()) strides.push_back(&kernel.counter);
    merge_axes(kernel.extents, strides);
    std::string name = kernel.op + "_" + std::string(name_of(kernel.output.dtype));
    std::ranges::replace(name, ' ', '_');
    return add_sized(context, {.name = std::move(name), .code = std::move(kernel)});
}

Launch launch_of_elements(Context& context, codegen::ElementKernel kernel) {
    return launch_of(context, add_element_kernel(context, std::move(kernel)));
}

namespace {

codegen::ElementKernel element_kernel(const Problem& problem, std::string op) {
    const Type& y = problem.outputs[0];
    codegen::ElementKernel kernel{
        .op = std::move(op), .extents = y.shape.extents(), .operands = {}, .output = {}};
    for (const Type& x : problem.inputs) kernel.operands.push_back(stretched(x, y.shape));
    kernel.output = stretched(y, y.shape);
    return kernel;
}

/// Operands with the output's layout: each element is read where it is written.
std::vector<int> operands_like_the_output(const Problem& problem) {
    std::vector<int> like;
    for (std::size_t i = 0; i < problem.inputs.size(); ++i)
        if (problem.inputs[i].shape == problem.outputs[0].shape &&
            size_of(problem.inputs[i].dtype) == size_of(problem.outputs[0].dtype))
            like.push_back(static_cast<int>(i));
    return like;
}

bool has_plain_layouts(const Problem& problem) {
    const auto is_plain = [](const Type& type) { return type.layout == Layout::row_major; };
    return std::ranges::all_of(problem.inputs, is_plain) && std::ranges::all_of(problem.outputs, is_plain);
}

Kernel elementwise_kernel(Context& context) {
    const auto prepare = [&context](const Problem& problem) -> Expected<PreparedKernel> {
        // The sum that no pass may fold into another is computed as any other.
        const std::string name(problem.op.name == "tree_add" ? "add" : problem.op.name);
        if (!has_plain_layouts(problem)) return Unexpected{"it reads and writes elements of whole bytes"};
        if (std::string reason =
                codegen::refuse_element(name, problem.inputs.back().dtype, problem.outputs[0].dtype);
            !reason.empty())
            return Unexpected{std::move(reason)};
        const std::string op = name == "round_to" ? "round_to " + problem.attributes.word("format") : name;
        return PreparedKernel{.launch = launch_of_elements(context, element_kernel(problem, op)),
                              .may_write_over = {operands_like_the_output(problem)}};
    };
    return {.name = "elements", .arithmetic = {.unit = context.unit}, .prepare = prepare};
}

Kernel random_kernel(Context& context) {
    const auto prepare = [&context](const Problem& problem) -> Expected<PreparedKernel> {
        codegen::ElementKernel kernel = element_kernel(problem, "random_uniform");
        kernel.operation = problem.attributes.integer("operation");
        return PreparedKernel{.launch = launch_of_elements(context, std::move(kernel))};
    };
    return {.name = "philox", .prepare = prepare};
}

/// Neighbouring pairs that a thread turns: 16 bytes of each half, where pairs and addresses allow them.
int pairs_at_once(const Problem& problem, std::int64_t half) {
    if (problem.askew) return 1;
    int count = 16 / static_cast<int>(size_of(problem.inputs[0].dtype));
    while (half % count != 0) count /= 2;
    return count;
}

Kernel turn_kernel(Context& context) {
    const auto prepare = [&context](const Problem& problem) -> Expected<PreparedKernel> {
        const Type& x = problem.inputs[0];
        if (x.dtype == DType::f64) return Unexpected{"it turns in f32"};
        const std::int64_t half = x.shape[3] / 2;
        codegen::GridKernel kernel{.name = "rotary_" + std::string(name_of(x.dtype)),
                                   .code = codegen::TurnKernel{.tokens = x.shape[0] * x.shape[1],
                                                               .positions = x.shape[1],
                                                               .heads = x.shape[2],
                                                               .half = half,
                                                               .dtype = x.dtype,
                                                               .at_once = pairs_at_once(problem, half)}};
        return PreparedKernel{.launch = launch_of(context, add_sized(context, std::move(kernel))),
                              .may_write_over = {{0}}};
    };
    return {.name = "turned pairs", .arithmetic = {.unit = context.unit}, .prepare = prepare};
}

}  // namespace

void add_elementwise_kernels(KernelTable& table, Context& context) {
    for (const Op* op : op_table())
        if (op->meaning) table[std::string(op->name)].push_back(elementwise_kernel(context));
    for (const char* op : {"cast", "round_to", "stop_gradient"})
        table[op].push_back(elementwise_kernel(context));
    table["rotary"].push_back(turn_kernel(context));
    table["random_uniform"].push_back(random_kernel(context));
}

}  // namespace mantissa::on_cuda
