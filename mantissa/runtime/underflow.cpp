#include "mantissa/runtime/underflow.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "mantissa/graph/graph.h"
#include "mantissa/numerics/formats.h"

namespace mantissa::inline v0 {

namespace {

void count(const Execution& execution, Value value, RoundedGradients& gradients) {
    const DType dtype = execution.plan().graph().type(value).dtype;
    execution.read_in_pieces(value, [&](std::int64_t, std::span<const std::byte> bytes) {
        const auto number = static_cast<std::int64_t>(bytes.size() / size_of(dtype));
        gradients.elements += number;
        for (std::int64_t i = 0; i < number; ++i) {
            const double x = load_as_f64(bytes.data(), dtype, i);
            gradients.zeros += x == 0;
            gradients.finite = gradients.finite && std::isfinite(x);
        }
        return true;
    });
}

bool is_rounded(const Node& node, const Type& type) {
    return node.op->name == "round_to" || (is_floating(type.dtype) && size_of(type.dtype) == 2);
}

}  // namespace

RoundedGradients rounded_gradients(Execution& execution) {
    RoundedGradients gradients;
    const Graph& graph = execution.plan().graph();
    execution.run_while([&](NodeId id) { return graph.node(id).origin.stage != Stage::update; },
                        [&](NodeId id) {
                            const Node& node = graph.node(id);
                            if (node.origin.stage != Stage::backward) return true;
                            for (std::size_t i = 0; i < node.outputs.size(); ++i)
                                if (is_rounded(node, node.outputs[i]))
                                    count(execution, {id, static_cast<std::int32_t>(i)}, gradients);
                            return true;
                        });
    return gradients;
}

Underflow underflow_between(const RoundedGradients& step, const RoundedGradients& scaled_up) {
    if (!scaled_up.finite) return {};
    // A number that is zero at any scale, such as the gradient of a masked score, is not lost.
    return {.elements = step.elements - scaled_up.zeros,
            .lost = std::max<std::int64_t>(step.zeros - scaled_up.zeros, 0)};
}

}  // namespace mantissa
