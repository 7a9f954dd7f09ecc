// The pipeline: from a model to the graph of its training step, as one list of passes.
#pragma once

#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/graph/graph.h"
#include "mantissa/passes/differentiate.h"
#include "mantissa/passes/distribute.h"
#include "mantissa/passes/machine.h"
#include "mantissa/passes/pad.h"
#include "mantissa/passes/pass_refusal.h"
#include "mantissa/passes/policy.h"

namespace mantissa::inline v0 {

/// Records the forward pass in the graph and returns the loss.
using TraceModel = std::function<Tensor(Graph&)>;

/// Records the factor of the gradients: a scalar of the loss's type.
using TraceSeed = std::function<Tensor(Graph&)>;

/// Records the optimizer: takes the loss and the gradients, adds results and updates.
using TraceUpdate = std::function<void(Graph&, Tensor loss, const std::vector<ParameterGradient>&)>;

struct PassTime {
    std::string pass;
    double milliseconds = 0;
    std::size_t nodes = 0;  ///< in the graph afterwards
};

/// The requests to the pipeline. Facts about the machine come from Machine.
struct PipelineOptions {
    Policy policy = {};   ///< the formats that autocast gives the forward pass
    TraceSeed seed = {};  ///< the loss scale; none: 1
    // The optional passes; choose_passes() sets them by name.
    bool simplify = true;
    bool match_attention = false;            ///< whether attention is looked for in the model
    bool fuse_linear_cross_entropy = false;  ///< whether the logits are made a chunk of tokens at a time
    bool pad = false;                        ///< whether ugly extents of parameters are padded
    /// Whether attention reads and writes heads in place, and values that follow from parameters alone are
    /// kept beside the parameters.
    bool lay_out = false;
    bool fuse = false;  ///< whether row and element-wise work becomes nests, for kernels made in process
    /// Values that the backward pass computes again instead of keeping them; see passes/recompute.h.
    std::set<std::string> recompute = {};
    /// The ranks that gradients are summed over: sums recorded by `all_reduced` begin as early as they may.
    Distribution distribution = {};
    /// Called after every pass with its name and the graph.
    std::function<void(const std::string& pass, const Graph&)> dump = {};
};

/// Names of the optional passes, in the order of their run.
std::vector<std::string> optional_pass_names();

/// The name today of an optional pass that earlier versions called `name`, in options or a checkpoint; any
/// other name as it is.
std::string pass_name_today(std::string_view name);

/// The names of the passes that a machine can run under a policy. Fused kernels need a compiler. Where
/// contractions are emulated, a pass that hides one inside of another operation leaves nothing to round.
/// Padding is for speed, and an emulation says nothing about speed.
std::vector<std::string> runnable_passes(const Target& target, const Policy& policy);

/// Options with all of these switched on.
PipelineOptions all_passes(const Target& target, const Policy& policy = {});

/// Switches on the optional passes of these names and off all others. Throws UserError for any other name.
void choose_passes(PipelineOptions& options, std::span<const std::string> names);

/// The names of the passes that are on.
std::vector<std::string> chosen_passes(const PipelineOptions& options);

struct BuiltGraph {
    Graph graph;
    Graph derive = {};                   ///< makes the derived states of `graph`; see lay_out.h
    std::set<std::string> sharded = {};  ///< parameters that ranks have a part of; see shard_parameters.h
    std::vector<PassTime> times;
    std::vector<PaddedParameter> padded = {};
    std::vector<PassRefusal> refused = {};  ///< nodes that passes left as they were, in the order of passes
    std::int64_t recomputed_flops = 0;      ///< of the nodes that recompute() added
};

/// Builds the graph of one training step. Throws UserError if fusing or TF32 is asked of a machine that
/// cannot do it, or an emulation of operations that multiply inside of themselves.
BuiltGraph build_training_step(const TraceModel& model, const TraceUpdate& update,
                               const PipelineOptions& options = {}, const Machine& machine = {});

/// Builds the graph of a forward pass alone: as a training step has it, without gradients. The model's tensor
/// becomes the result of that name.
BuiltGraph build_evaluation(const TraceModel& model, const PipelineOptions& options = {},
                            const Machine& machine = {}, const std::string& result = "loss");

}  // namespace mantissa
