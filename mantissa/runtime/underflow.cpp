#include "mantissa/runtime/underflow.h"

#include <algorithm>
#include <vector>

#include "mantissa/numerics/formats.h"

namespace mantissa {

namespace {

/// Elements [begin, begin + count) of a value.
std::vector<std::byte> piece_of(const Execution& execution, Value value, std::int64_t begin,
                                std::int64_t count, std::int64_t size) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(count * size));
    execution.read_value(value, begin * size, bytes);
    return bytes;
}

void count_lost(const Execution& execution, Value before, Value after, Underflow& underflow) {
    constexpr std::int64_t piece = 1 << 16;
    const std::int64_t elements = execution.plan().graph().type(before).shape.elements();
    for (std::int64_t begin = 0; begin < elements; begin += piece) {
        const std::int64_t count = std::min(piece, elements - begin);
        const auto wide = piece_of(execution, before, begin, count, sizeof(float));
        const DType narrow_type = execution.plan().graph().type(after).dtype;
        const auto narrow =
            piece_of(execution, after, begin, count, static_cast<std::int64_t>(size_of(narrow_type)));
        for (std::int64_t i = 0; i < count; ++i) {
            if (load_as_f64(wide.data(), DType::f32, i) == 0) continue;
            ++underflow.elements;
            if (load_as_f64(narrow.data(), narrow_type, i) == 0) ++underflow.lost;
        }
    }
}

}  // namespace

Underflow gradient_underflow(Execution& execution) {
    Underflow underflow;
    const Graph& graph = execution.plan().graph();
    execution.run_while([&](NodeId id) { return graph.node(id).origin.stage != Stage::update; },
                        [&](NodeId id) {
                            const Node& node = graph.node(id);
                            const bool narrows =
                                node.op->name == "round_to" ||
                                (node.op->name == "cast" && graph.type(node.inputs[0]).dtype == DType::f32 &&
                                 size_of(node.outputs[0].dtype) == 2);
                            if (narrows && node.origin.stage == Stage::backward)
                                count_lost(execution, node.inputs[0], {id, 0}, underflow);
                            return true;
                        });
    return underflow;
}

}  // namespace mantissa
