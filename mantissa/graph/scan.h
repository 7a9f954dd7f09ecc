// A loop over time as one operation: `scan` runs a body, which is a graph, once a step. States go from step
// to step. A step reads its own part of each sequence, and all of each whole operand.
//
//   inputs of the body    the states before the step, the step's part of each sequence, whole operands
//   results of the body   the states after the step, then its outputs
//
// The body knows nothing but its inputs. It is compiled once, and its graph does not grow with the number of
// steps. Results of all steps are kept for the gradient; a step's other values are computed again. A body may
// give an output for its gradient alone: where nobody reads it, it is not made.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "mantissa/graph/graph.h"
#include "mantissa/graph/tensor.h"

namespace mantissa::inline v0 {

/// The order of steps over sequences and outputs: from index 0 on, or from the last.
enum class Steps : std::uint8_t { forward, backward };

struct ScanStep {
    std::vector<Tensor> states, outputs;
};
/// Records the body: from the states, the step's parts of the sequences, and the whole operands.
using ScanBody = std::function<ScanStep(std::span<const Tensor> states, std::span<const Tensor> parts,
                                        std::span<const Tensor> whole)>;

struct Scanned {
    /// [steps + 1, ...]: the given state, then the state after each step. With backward steps, the state
    /// after the step that read index i is at i, and the given one is last.
    std::vector<Tensor> states;
    std::vector<Tensor> outputs;  ///< [steps, ...], each where its step read the sequences
};

/// Sequences are [steps, ...]; there is one or more. Throws UserError if the body's states have other types
/// than the given states.
Scanned scan(std::span<const Tensor> states, std::span<const Tensor> sequences, std::span<const Tensor> whole,
             const ScanBody& body, Steps steps = Steps::forward, Where at = Where::current());

/// A scan as its attributes describe it.
struct ScanForm {
    std::size_t states = 0, sequences = 0;
    std::int64_t steps = 0;
    bool backward = false;
    bool keeps_states = true;  ///< else only the last state is given

    /// The index that a step reads and writes.
    std::int64_t index_of(std::int64_t step) const { return backward ? steps - 1 - step : step; }
    /// The place of a kept state after `done` steps.
    std::int64_t state_after(std::int64_t done) const { return backward ? steps - done : done; }
    /// Places among the kept states where the states before each step begin, in the order of the sequences,
    /// and where the states after each step begin.
    std::int64_t first_before() const { return backward ? 1 : 0; }
    std::int64_t first_after() const { return backward ? 0 : 1; }
};
ScanForm scan_form(const Attributes& attributes);

}  // namespace mantissa
