// The plan of a graph on a device: which kernel runs each node and why, where every value lives, and in what
// order things happen. A flat list; no decision is left for the run.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mantissa/device/device.h"
#include "mantissa/passes/plan_memory.h"

namespace mantissa::inline v0 {

struct PipelineOptions;

/// A kernel that was asked before the chosen one, and what it answered.
struct Refusal {
    std::string kernel;
    std::string reason;
};

struct PlannedNode {
    NodeId node = -1;
    std::string kernel;
    DType sums = DType::f32;  ///< what the kernel adds in
    std::vector<Refusal> refused;
    Launch launch;
    Cost cost;
};

class Plan {
  public:
    /// Chooses kernels and places values. Throws UserError, with every kernel's reason, if a node has none.
    Plan(Graph graph, Device& device);

    const Graph& graph() const { return graph_; }
    const MemoryPlan& memory() const { return memory_; }
    const std::vector<PlannedNode>& nodes() const { return nodes_; }
    Device& device() const { return device_; }

    /// The names of the kernels that run an operation, each once, in order of first use; contractions with a
    /// tail included.
    std::vector<std::string> kernels_of(std::string_view op) const;
    /// Bytes of the graph's inputs.
    std::int64_t input_bytes() const;
    /// Bytes of the graph's constants.
    std::int64_t constant_bytes() const;
    /// The plan as text: a line a node with its kernel, its place and the reasons of those refused.
    std::string text() const;

  private:
    void choose_kernels();

    Graph graph_;
    Device& device_;
    MemoryPlan memory_;
    std::vector<PlannedNode> nodes_;
};

/// Whether some kernel of the device takes the node.
bool has_kernel(const Device& device, const Graph& graph, const Node& node);

/// The options with what the passes ask of the machine, answered by the device: which kernels it has, what it
/// cannot do, and the multiple to which it likes extents padded. The device must outlive them.
PipelineOptions pipeline_on(const Device& device, PipelineOptions options);

}  // namespace mantissa
