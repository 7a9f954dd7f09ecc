// The allowed and the actual difference of a device's results from the reference, for the cases of
// op_cases.cpp.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/graph/graph.h"
#include "mantissa/passes/expand.h"
#include "tests/support/op_cases.h"
#include "tests/support/run_graph.h"

namespace mantissa::testing {

/// The allowed error of each element: ULPs of the element, and rounding errors of a sum of absolute values.
/// The counts are in tests/support/op_cases.cpp. 2^-24 is FP32's unit roundoff. A sum's magnitude is bounded
/// by its number of terms times the largest, here taken from the largest result. Storage in 16 bits rounds
/// once more, to 8 or 11 significant bits; FP16 has subnormals of 2^-24.
inline double allowed(const OpCase& test, DType stored, double expected, double largest) {
    constexpr double roundoff = 0x1p-24;
    const double computed =
        roundoff * (2 * test.error.ulps * std::abs(expected) + test.error.sums * (1 + largest));
    const double operands = test.error.stored * (1 + largest);
    if (stored == DType::bf16) return computed + 0x1p-8 * std::abs(expected) + 0x1p-9 * operands;
    if (stored == DType::f16) return computed + 0x1p-11 * std::abs(expected) + 0x1p-25 + 0x1p-12 * operands;
    if (!test.error.reaches_f32) return computed;
    const DType first = test.operands[0].type.dtype;
    return computed + operands * (first == DType::bf16 ? 0x1p-9 : first == DType::f16 ? 0x1p-12 : 0);
}

/// The worst ratio of error to allowed error; above 1 fails. NaN in only one of the two is infinite.
inline double worst_ratio(const OpCase& test, DType stored, const std::vector<double>& got,
                          const std::vector<double>& expected) {
    double largest = 0, worst = 0;
    for (double x : expected) largest = std::isfinite(x) ? std::max(largest, std::abs(x)) : largest;
    EXPECT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
        if (got[i] == expected[i] || (std::isnan(got[i]) && std::isnan(expected[i]))) continue;
        const double ratio = std::abs(got[i] - expected[i]) / allowed(test, stored, expected[i], largest);
        worst = !(ratio <= worst) ? ratio : worst;
        if (std::isnan(worst)) return INFINITY;
    }
    return worst;
}

/// Without a compiler, fused nodes run as their original operations, as in the pipeline.
inline Graph runnable(const Graph& graph, const Device& device) {
    const Machine machine = machine_for_passes(device);
    return expand(graph, [&](const Graph& g, const Node& node) { return !machine.has_kernel(g, node); });
}

inline double worst_ratio(const OpCase& test, const Graph& graph, const ReferenceFeed& feed, Device& device) {
    ReferenceFeed rounded = feed;  // the reference starts from the kernel's input
    for (NodeId id : graph.inputs()) {
        const Node& node = graph.node(id);
        auto& values = rounded[node.attributes.word("name")];
        values = loaded(stored(values, node.outputs[0].dtype), node.outputs[0].dtype);
    }
    const ReferenceRun reference(graph, rounded);
    const auto results = run(runnable(graph, device), feed, device);
    double worst = 0;
    for (std::size_t i = 0; i < results.size(); ++i) {
        const Type& type = graph.type(graph.results()[i].value);
        worst = std::max(worst, worst_ratio(test, type.dtype, loaded(results[i], type.dtype),
                                            reference[graph.results()[i].value].values));
    }
    return worst;
}

/// The case with its FP32 tensors stored in another format; empty if the operation does not take such
/// operands.
inline std::optional<OpCase> stored_in(DType dtype, const OpCase& test) {
    OpCase changed = test;
    bool any = false;
    for (Operand& operand : changed.operands) {
        if (operand.type.dtype != DType::f32 || operand.type.shape.rank() == 0) continue;
        operand.type.dtype = dtype;
        any = true;
    }
    if (!any) return {};
    try {
        const Recorded recorded(changed);
    } catch (const UserError&) {
        return {};  // types do not fit, as a loss's FP32 statistics
    }
    return changed;
}

}  // namespace mantissa::testing
