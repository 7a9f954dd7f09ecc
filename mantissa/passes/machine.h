// The machine as passes see it: its facts, and which kernels it has.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "mantissa/graph/graph.h"
#include "mantissa/graph/target.h"

namespace mantissa::inline v0 {

/// The answers of a machine that is asked for a node's kernel.
struct KernelAnswer {
    std::string why_none = {};  ///< in each kernel's own words; empty: a kernel runs it
    /// Set where parts of the operation would do, too, and both were measured.
    std::optional<TimeBesideParts> time = {};
};

/// By default a machine that runs everything.
struct Machine {
    Target target = {};
    /// Composites without a kernel are expanded.
    std::function<KernelAnswer(const Graph&, const Node&)> kernel_of = [](const Graph&, const Node&) {
        return KernelAnswer{};
    };

    bool has_kernel(const Graph& graph, const Node& node) const {
        return kernel_of(graph, node).why_none.empty();
    }
};

}  // namespace mantissa
