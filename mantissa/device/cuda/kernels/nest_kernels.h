// Nests as kernels, for operations of which they are a part.
#pragma once

#include "mantissa/device/cuda/kernels/kernels.h"
#include "mantissa/graph/graph.h"

namespace mantissa::inline v0::on_cuda {

enum class NestOutputs : std::uint8_t {
    apart,
    over_operands,  ///< may lie where operands of their shape do
};

/// The kernel of a graph whose operations, taken apart into primitives, are one nest; its operands are the
/// graph's inputs, in their order.
Expected<PreparedKernel> prepare_definition(Context& context, const Graph& definition, NestOutputs place);

}  // namespace mantissa::on_cuda
