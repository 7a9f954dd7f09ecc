// The plan of a graph on a device: which kernel runs each node and why, where every value lives, and the
// order of all work. A flat list; no decision is left for the run.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "mantissa/device/device.h"
#include "mantissa/graph/graph.h"
#include "mantissa/passes/analysis/plan_memory.h"
#include "mantissa/passes/machine.h"

namespace mantissa::inline v0 {

/// A kernel that was asked before the chosen one, and its answer.
struct Refusal {
    std::string kernel;
    std::string reason;
};

struct PlannedNode {
    NodeId node = -1;
    std::string kernel;
    Arithmetic arithmetic;
    std::vector<Refusal> refused;
    Launch launch;
    std::int64_t workspace = 0;  ///< bytes
    Launch keep = {};            ///< PreparedKernel's
    std::int64_t kept = 0;       ///< bytes
    std::int64_t launches = 1;   ///< PreparedKernel's
    Cost cost;
    std::string algorithm = {};  ///< of a library, that the kernel runs; empty: there was no choice
};

/// Whether kernels are made in process, which takes most of a plan's time. Else they are only named, for a
/// plan that is read and never run.
enum class MakeKernels : std::uint8_t { yes, no };

class Plan {
  public:
    /// Chooses kernels and places values. Throws UserError, with every kernel's reason, if a node has none.
    /// `lasting`: inputs that stay as they are from run to run; whoever runs the nodes calls kernels' `keep`
    /// for them before the first run. `askew`: inputs and results may begin where Problem::askew says.
    Plan(Graph graph, Device& device, MakeKernels make = MakeKernels::yes,
         std::span<const NodeId> lasting = {}, bool askew = false);

    const Graph& graph() const { return graph_; }
    const MemoryPlan& memory() const { return memory_; }
    const std::vector<PlannedNode>& nodes() const { return nodes_; }
    Device& device() const { return device_; }

    /// For each kernel that runs an operation the first node that it runs; contractions with an epilogue
    /// included.
    std::vector<const PlannedNode*> nodes_of(std::string_view op) const;
    /// The names of these kernels.
    std::vector<std::string> kernels_of(std::string_view op) const;
    /// Bytes, filled up to the device's alignment.
    std::int64_t aligned(std::int64_t bytes) const;
    /// Bytes of the graph's inputs: of their places, and of the staging slots.
    std::int64_t input_bytes() const;
    /// Bytes of the graph's constants.
    std::int64_t constant_bytes() const;
    /// The plan as text: a line a node with its kernel, its place and the reasons of refused kernels.
    std::string text() const;

  private:
    Graph graph_;
    Device& device_;
    MemoryPlan memory_;
    std::vector<PlannedNode> nodes_;
};

/// The device as passes see it. It must outlive the machine.
Machine machine_for_passes(const Device& device);

}  // namespace mantissa
