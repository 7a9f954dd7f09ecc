// The three products of a convolution.
#include <fmt/format.h>

#include "mantissa/device/cuda/kernels/products.h"
#include "mantissa/graph/convolution.h"

namespace mantissa::inline v0::on_cuda {

namespace {

struct NamedConvolution {
    const char* op;
    codegen::ConvolutionResult makes;
};

constexpr NamedConvolution convolutions[] = {
    {"conv2d", codegen::ConvolutionResult::output},
    {"conv2d_input_gradient", codegen::ConvolutionResult::gradient_of_images},
    {"conv2d_filter_gradient", codegen::ConvolutionResult::gradient_of_filter},
};

/// A thread an output: for sizes that no library takes, and machines that have none.
OrReason<PreparedKernel> prepare_plainly(Context& context, const NamedConvolution& named,
                                         const ProductUnit& unit, const Problem& problem) {
    if (std::string reason = unit.refusal(problem); !reason.empty()) return NoValue{std::move(reason)};
    codegen::ConvolutionKernel convolution{.makes = named.makes,
                                           .of = convolution_of(problem.inputs, problem.attributes),
                                           .from = problem.inputs[0].dtype,
                                           .to = problem.outputs[0].dtype,
                                           .tf32 = unit.tf32};
    if (problem.inputs.size() == 3) convolution.bias = problem.inputs[2].dtype;
    codegen::GridKernel kernel{.name = fmt::format("{}_{}", named.op, name_of(convolution.from)),
                               .code = convolution};
    const std::int64_t blocks = codegen::blocks_of(kernel);
    const auto queue = [&context, blocks,
                        made = context.modules.add(std::move(kernel))](const Operands& operands) {
        std::vector<std::uint64_t> addresses;
        for (const std::byte* input : operands.inputs) addresses.push_back(address_of(input));
        addresses.push_back(address_of(operands.outputs[0]));
        launch(context, *made, blocks, std::move(addresses));
    };
    return PreparedKernel{.launch = queue};
}

}  // namespace

void add_convolution_kernels(KernelTable& table, Context& context) {
    for (const NamedConvolution& named : convolutions)
        for (ProductUnit& unit : product_units(context, "a thread an element", context.unit))
            table[named.op].push_back({.name = unit.name,
                                       .arithmetic = unit.arithmetic,
                                       .prepare = [&context, &named, unit](const Problem& problem) {
                                           return prepare_plainly(context, named, unit, problem);
                                       }});
}

}  // namespace mantissa::on_cuda
