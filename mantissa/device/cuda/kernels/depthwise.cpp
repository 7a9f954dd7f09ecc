#include "mantissa/device/cuda/kernels/depthwise.h"

#include <fmt/format.h>

#include "mantissa/base/whole_units.h"

namespace mantissa::inline v0::on_cuda {

namespace {

constexpr std::int64_t sums_alignment = 256;

std::vector<std::uint64_t> addresses_of(const Operands& operands, cuda::DevicePtr made) {
    std::vector<std::uint64_t> addresses;
    for (const std::byte* input : operands.inputs) addresses.push_back(address_of(input));
    addresses.push_back(made);
    return addresses;
}

}  // namespace

Expected<PreparedKernel> prepare_depthwise(Context& context, const std::string& op,
                                           const codegen::ConvolutionKernel& convolution, bool askew) {
    if (std::string reason = codegen::refuse_depthwise(convolution); !reason.empty())
        return Unexpected{std::move(reason)};
    const codegen::DepthwiseKernel kernel = codegen::depthwise_kernel(convolution, askew);
    const SizedKernel made = add_sized(
        context, {.name = fmt::format("depthwise_{}_{}", op, name_of(convolution.from)), .code = kernel});
    if (!kernel.makes(codegen::ConvolutionResult::gradient_of_filter))
        return PreparedKernel{.launch = [&context, made](const Operands& operands) {
            launch(context, *made.kernel, made.blocks,
                   addresses_of(operands, address_of(operands.outputs[0])));
        }};
    const Shape partials{kernel.parts(), kernel.of().filter_shape().elements()};
    const Stages stages = stages_of(context, partials, {0}, {.to = convolution.to});
    const std::int64_t bytes = align_up(Type{DType::f32, partials}.bytes(), sums_alignment);
    return PreparedKernel{.launch =
                              [&context, made, stages, bytes](const Operands& operands) {
                                  const cuda::DevicePtr parts = address_of(operands.workspace);
                                  launch(context, *made.kernel, made.blocks, addresses_of(operands, parts));
                                  stages.queue(context, parts, address_of(operands.workspace + bytes),
                                               address_of(operands.outputs[0]));
                              },
                          .workspace = bytes + stages.partial_bytes,
                          .launches = 1 + stages.launches()};
}

}  // namespace mantissa::on_cuda
