// The memory plan: where every value of a graph lives.
//
// States and constants have places of their own in the state block. Inputs are given from outside. Views lie
// in the viewed value. Everything else shares the transient arena, each value from the node that makes it to
// the last that reads it. Where a kernel allows it, an output takes the place of an operand that nobody reads
// later. An update is written straight into its state where nobody reads the old value afterwards, and the
// operation does not read it or allows it. Else it is copied at the end of the run. A value that is sent to
// become an update is in the state from then on, on the same terms.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "mantissa/graph/graph.h"

namespace mantissa::inline v0 {

/// Where a value lives. `offset` in bytes: into the arena, or into the viewed value.
struct Place {
    enum class Kind : std::uint8_t { none, input, state, constant, arena };
    Kind kind = Kind::none;
    int index = -1;           ///< of the input, state or constant
    std::int64_t offset = 0;  ///< into the arena, or from the start of the input, state or constant
};

/// Bytes of the arena in use from node `first` to node `last`, both included.
struct Allocation {
    Value value;  ///< output -1: the workspace of the node
    std::int64_t bytes = 0;
    NodeId first = 0;
    NodeId last = 0;
    std::int64_t offset = 0;
};

struct MemoryPlan {
    std::vector<std::vector<Place>> places;  ///< by node and output
    std::vector<std::int64_t> workspace;     ///< by node: offset in the arena, -1 for none
    std::vector<NodeId> constants;           ///< nodes whose values are written once, when the plan is bound
    std::vector<int> copied_updates;         ///< indices of updates that are copied at the end of the run
    std::vector<Allocation> allocations;     ///< of the arena
    std::int64_t arena_bytes = 0;
    std::int64_t state_bytes = 0;  ///< states and constants

    const Place& place(Value value) const {
        return places[static_cast<std::size_t>(value.node)][static_cast<std::size_t>(value.output)];
    }
};

/// Whether the node's outputs are parts of its operand's memory as they stand.
bool is_view(const Graph& graph, const Node& node);

/// The memory that a node's kernel asks for.
struct KernelMemory {
    /// Bytes of scratch.
    std::function<std::int64_t(NodeId)> workspace = {};
    /// By output: operands over which it may be written, if nobody reads them later.
    std::function<std::vector<std::vector<int>>(NodeId)> may_write_over = {};
    /// Alignment of every value, in bytes.
    std::int64_t alignment = 64;
};

MemoryPlan plan_memory(const Graph& graph, const KernelMemory& kernels = {});

/// Throws InternalError if two allocations that live at one time overlap, or one lies outside the arena.
void check_no_overlap(const MemoryPlan& plan);

}  // namespace mantissa
