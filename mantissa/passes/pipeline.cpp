#include "mantissa/passes/pipeline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <string>

#include "mantissa/base/clock.h"
#include "mantissa/base/error.h"
#include "mantissa/base/function_ref.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/scan.h"
#include "mantissa/passes/analysis/uses.h"
#include "mantissa/passes/attention/attention_policy.h"
#include "mantissa/passes/attention/lay_out_attention.h"
#include "mantissa/passes/attention/match_attention.h"
#include "mantissa/passes/emulate.h"
#include "mantissa/passes/expand.h"
#include "mantissa/passes/fold_addends.h"
#include "mantissa/passes/fuse.h"
#include "mantissa/passes/fuse_linear_cross_entropy.h"
#include "mantissa/passes/join_updates.h"
#include "mantissa/passes/lay_out.h"
#include "mantissa/passes/operand_blocks.h"
#include "mantissa/passes/quantize.h"
#include "mantissa/passes/recompute.h"
#include "mantissa/passes/rewriter.h"
#include "mantissa/passes/round_operands.h"
#include "mantissa/passes/shard_parameters.h"
#include "mantissa/passes/simplify.h"
#include "mantissa/passes/zero_unread_rows.h"

namespace mantissa::inline v0 {

namespace {

/// The results of a loop's body that are wanted: its states, and outputs that something reads.
std::vector<std::int32_t> read_results(const Graph& graph, const Uses& uses, NodeId loop) {
    const Node& node = graph.node(loop);
    const auto states = static_cast<std::int32_t>(scan_form(node.attributes).states);
    std::vector<std::int32_t> read;
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(node.outputs.size()); ++i)
        if (i < states || !uses.of(Value{loop, i}).empty()) read.push_back(i);
    return read;
}

Body with_results(const Body& body, const std::vector<std::int32_t>& wanted) {
    if (wanted.size() == body.graph().results().size()) return body;
    Graph graph = body.graph();
    const std::vector<Result> results = graph.take_results();
    for (const std::int32_t i : wanted) graph.add_result(results[i].name, results[i].value);
    return Body(std::move(graph));
}

/// Rewrites the bodies of loops (graph/scan.h), each a graph of its own; equal ones once. Outputs that nobody
/// reads go: a layer may give some for its gradient alone. States stay.
Graph with_bodies(const Graph& graph, FunctionRef<Graph(const Graph& body)> rewrite) {
    const auto is_loop = [&](NodeId id) { return graph.node(id).op->name == "scan"; };
    bool any = false;
    for (NodeId id = 0; id < graph.end(); ++id) any = any || is_loop(id);
    if (!any) return graph;
    Rewriter rewriter(graph);
    const Uses uses(graph);
    std::map<std::string, Body> known;  // by text
    for (NodeId id = 0; id < graph.end(); ++id) {
        if (!is_loop(id)) {
            rewriter.copy(id);
            continue;
        }
        const Node& node = graph.node(id);
        const std::vector<std::int32_t> read = read_results(graph, uses, id);
        const Body body = with_results(node.attributes.body("body"), read);
        auto entry = known.find(body.text());
        if (entry == known.end()) entry = known.emplace(body.text(), Body(rewrite(body.graph()))).first;
        const OriginScope scope(rewriter.target(), node.origin);
        const NodeId made = rewriter.target().add("scan", rewriter.map(node.inputs),
                                                  node.attributes.with("body", entry->second));
        for (std::int32_t i = 0; i < std::ssize(read); ++i) rewriter.place({id, read[i]}, {made, i});
    }
    return rewriter.finish();
}

struct OptionalPass {
    std::string_view name;
    bool PipelineOptions::*on;
    std::string_view old_name = {};  ///< in earlier versions, whose options and checkpoints have it
};

constexpr std::array optional_passes = {
    OptionalPass{"match_attention", &PipelineOptions::match_attention},
    OptionalPass{"fuse_linear_cross_entropy", &PipelineOptions::fuse_linear_cross_entropy, "chunk_loss"},
    OptionalPass{"simplify", &PipelineOptions::simplify},
    OptionalPass{"pad", &PipelineOptions::pad},
    OptionalPass{"lay_out", &PipelineOptions::lay_out},
    OptionalPass{"fuse", &PipelineOptions::fuse}};

/// Runs passes one after another on a graph; times, verifies and shows each.
class Pipeline {
  public:
    Pipeline(Graph& graph, const PipelineOptions& options, const Machine& on)
        : machine(on), graph_(graph), options_(options) {
        const Target& target = machine.target;
        if (options.fuse && !target.cannot_compile.empty()) throw UserError(target.cannot_compile);
        check_recomputable(options.recompute);
        if (options.policy.multiply == "tf32" && !target.cannot_multiply_tf32.empty())
            throw UserError(target.cannot_multiply_tf32 +
                            ", which the policy tf32 asks for; unset it, or use another policy");
        if (!options.policy.emulate.empty() && (options.match_attention || options.fuse_linear_cross_entropy))
            throw UserError(
                "an emulation rounds what contractions multiply: it needs attention and the loss as "
                "operations of their own, without match_attention and fuse_linear_cross_entropy");
    }

    void run(const std::string& pass, const std::function<void()>& body) {
        const Stopwatch watch;
        body();
        verify(graph_, pass);
        times_.push_back({pass, watch.milliseconds(), graph_.size()});
        if (options_.dump) options_.dump(pass, graph_);
    }

    std::vector<PassTime> times() const { return times_; }

    /// Notes the nodes that a pass left as they were.
    void refuse(std::vector<PassRefusal> refused) {
        std::ranges::move(refused, std::back_inserter(refused_));
    }
    std::vector<PassRefusal> refused() const { return refused_; }

    const Machine& machine;

  private:
    Graph& graph_;
    const PipelineOptions& options_;
    std::vector<PassTime> times_;
    std::vector<PassRefusal> refused_;
};

/// Whether a pass made an operation that nothing runs whole. Taken apart again it would multiply in FP32,
/// whatever the policy, so the graph is better left as it was.
bool made_without_kernel(Pipeline& pipeline, const Graph& graph, const std::string& pass,
                         std::string_view op) {
    for (NodeId id = 0; id < graph.end(); ++id) {
        const Node& node = graph.node(id);
        if (node.op->name != op) continue;
        const std::string why = pipeline.machine.kernel_of(graph, node).why_none;
        if (why.empty()) continue;
        pipeline.refuse({{pass, std::string(op), node.origin.scope,
                          fmt::format("the device has no kernel for {} of {}: {}", op,
                                      name_of(graph.type(node.inputs[0]).dtype), why)}});
        return true;
    }
    return false;
}

/// Joins a linear layer and its loss, if that is asked for; updates `kept` to the values' new places.
void build_chunked_loss(Pipeline& pipeline, Graph& graph, std::span<Value> kept,
                        const PipelineOptions& options) {
    if (!options.fuse_linear_cross_entropy) return;
    pipeline.run("fuse_linear_cross_entropy", [&] {
        std::vector<Value> moved(kept.begin(), kept.end());
        ChunkedLoss chunked = fuse_linear_cross_entropy(graph, moved);
        if (made_without_kernel(pipeline, chunked.graph, "fuse_linear_cross_entropy", "linear_cross_entropy"))
            return;
        std::ranges::copy(moved, kept.begin());
        graph = std::move(chunked.graph);
        pipeline.refuse(std::move(chunked.refused));
    });
}

/// Rounds the operands of layers; updates `kept` to the values' new places.
void build_rounded_operands(Pipeline& pipeline, Graph& graph, std::span<Value> kept, const Policy& policy) {
    if (!policy.blocks) return;
    pipeline.run("round_operands", [&] {
        RoundedOperands rounded = round_operands(graph, policy, kept, pipeline.machine.target);
        graph = std::move(rounded.graph);
        pipeline.refuse(std::move(rounded.kept));
    });
}

/// The passes that change all products of a layer together.
void build_products(Pipeline& pipeline, Graph& graph, std::span<Value> kept, const PipelineOptions& options) {
    build_chunked_loss(pipeline, graph, kept, options);
    build_rounded_operands(pipeline, graph, kept, options.policy);
}

/// As above, for the loss and the gradients.
void build_products(Pipeline& pipeline, Graph& graph, Value& loss, std::vector<ParameterGradient>& gradients,
                    const PipelineOptions& options) {
    std::vector<Value> kept{loss};
    for (const ParameterGradient& parameter : gradients) kept.push_back(parameter.gradient.value());
    build_products(pipeline, graph, kept, options);
    loss = kept[0];
    for (std::size_t i = 0; i < gradients.size(); ++i) gradients[i].gradient = {graph, kept[i + 1]};
}

/// The forward pass, with attention found and laid out if it is asked for, in the formats of the policy.
Tensor build_forward(Pipeline& pipeline, Graph& graph, const TraceModel& model,
                     const PipelineOptions& options, Differentiated differentiated) {
    Tensor loss;
    pipeline.run("trace", [&] { loss = model(graph); });
    Value place = loss.value();
    if (options.match_attention)
        pipeline.run("match_attention", [&] {
            Value moved = place;
            AttentionMatch match = match_attention(
                graph, {&moved, 1}, attention_policy(options, pipeline.machine, differentiated));
            place = moved;
            graph = std::move(match.graph);
            pipeline.refuse(std::move(match.refused));
        });
    if (options.lay_out)
        pipeline.run("lay_out_attention", [&] {
            LaidOutAttention laid = lay_out_attention(graph, {&place, 1});
            graph = std::move(laid.graph);
            pipeline.refuse(std::move(laid.refused));
        });
    if (differentiated == Differentiated::yes && options.fuse && pipeline.machine.target.leaves_zeros_out)
        pipeline.run("zero_unread_rows", [&] { graph = zero_unread_rows(graph, {&place, 1}); });
    if (!options.policy.weights.empty())
        pipeline.run("quantize", [&] { graph = quantize(graph, options.policy, {&place, 1}); });
    if (!options.policy.changes_nothing())
        pipeline.run("autocast", [&] { graph = autocast(graph, options.policy, place); });
    return {graph, place};
}

/// Keeps parts of parameters that an update puts together, or that another graph's does.
void keep_parts_of_parameters(Graph& graph, BuiltGraph& built, const Distribution& distribution) {
    const bool updates = std::ranges::any_of(graph.updates(), [&](const Update& update) {
        return graph.node(update.value.node).op->name == "all_gather_wait";
    });
    if (!updates) {
        graph = with_parts(graph, distribution.sharded, distribution.ranks);
        built.derive = derived_from_shards(built.derive, distribution.sharded, distribution.ranks);
        return;
    }
    ShardedParameters kept = shard_parameters(graph, built.derive, distribution.ranks);
    graph = std::move(kept.graph);
    built.derive = std::move(kept.derive);
    built.sharded = std::move(kept.names);
}

/// The body of a loop, by the passes that need not know the graph around it.
Graph built_body(const Graph& body, const PipelineOptions& options, const Machine& machine,
                 FunctionRef<bool(const Graph&, const Node&)> expands) {
    Graph graph = options.simplify ? simplify(body) : body;
    graph = expand(graph, expands);
    if (options.fuse) {
        if (options.simplify) graph = simplify(graph, MergeStages::no);
        graph = fuse(fold_addends(graph), machine).graph;
        if (options.simplify) graph = simplify(graph, MergeStages::no);
    }
    return with_bodies(graph,
                       [&](const Graph& inner) { return built_body(inner, options, machine, expands); });
}

/// Turns the graph of a step into one whose every node has a kernel.
///
/// For fusing, composites whose definition nests can hold are expanded, too. The update keeps its own
/// kernels: they move each byte once already, and nothing beside them has their shape.
BuiltGraph build_kernels(Pipeline& pipeline, Graph& graph, const PipelineOptions& options) {
    BuiltGraph built;
    std::map<std::pair<const Op*, std::vector<DType>>, bool>
        known;  // whether nests can hold an operation depends on the types alone
    const auto can_fuse = [&](const Graph& g, const Node& node) {
        std::vector<DType> dtypes;
        for (const Value& input : node.inputs) dtypes.push_back(g.type(input).dtype);
        const auto [entry, is_new] = known.try_emplace({node.op, std::move(dtypes)}, false);
        if (is_new) entry->second = nest_can_hold(g, node);
        return entry->second;
    };
    const Machine& machine = pipeline.machine;
    const auto has_kernel = [&](const Graph& g, const Node& node) { return machine.has_kernel(g, node); };
    const auto expands = [&](const Graph& g, const Node& node) {
        return (options.fuse && node.origin.stage != Stage::update && can_fuse(g, node)) ||
               !has_kernel(g, node);
    };
    if (!options.policy.emulate.empty())
        pipeline.run("emulate", [&] { graph = emulate(graph, options.policy.emulate); });
    if (options.simplify) pipeline.run("simplify", [&] { graph = simplify(graph); });
    if (!options.recompute.empty())
        pipeline.run("recompute", [&] {
            Recomputation again = recompute(graph, options.recompute);
            graph = std::move(again.graph);
            built.recomputed_flops = again.flops;
            pipeline.refuse(std::move(again.refused));
        });
    if (options.pad)
        pipeline.run("pad", [&] {
            Padded padded = pad_parameters(graph, {.multiple = machine.target.extent_multiple});
            graph = std::move(padded.graph);
            built.padded = std::move(padded.padded);
            pipeline.refuse(std::move(padded.refused));
        });
    if (options.lay_out)
        pipeline.run("lay_out", [&] {
            LaidOut laid = lay_out(graph);
            graph = std::move(laid.graph);
            built.derive = std::move(laid.derive);
        });
    if (options.distribution.ranks > 1 && options.distribution.states == States::sharded)
        pipeline.run("shard_parameters",
                     [&] { keep_parts_of_parameters(graph, built, options.distribution); });
    pipeline.run("expand", [&] { graph = expand(graph, expands); });
    if (options.fuse) {
        if (options.simplify) pipeline.run("simplify", [&] { graph = simplify(graph, MergeStages::no); });
        pipeline.run("fold_addends", [&] { graph = fold_addends(graph); });
        pipeline.run("fuse", [&] {
            Fusion fusion = fuse(graph, machine);
            graph = std::move(fusion.graph);
            pipeline.refuse(std::move(fusion.refused));
        });
        // Counters and masks that kernels now make themselves are read by nobody.
        if (options.simplify) pipeline.run("simplify", [&] { graph = simplify(graph, MergeStages::no); });
    }
    pipeline.run("build_loops", [&] {
        graph = with_bodies(graph,
                            [&](const Graph& body) { return built_body(body, options, machine, expands); });
    });
    if (options.distribution.ranks > 1) pipeline.run("distribute", [&] { graph = distribute(graph); });
    if (machine.target.joins_updates && options.fuse)
        pipeline.run("join_updates", [&] { graph = join_updates(graph, has_kernel); });
    built.graph = std::move(graph);
    built.times = pipeline.times();
    built.refused = pipeline.refused();
    return built;
}

}  // namespace

std::vector<std::string> optional_pass_names() {
    std::vector<std::string> names;
    for (const OptionalPass& pass : optional_passes) names.emplace_back(pass.name);
    return names;
}

std::vector<std::string> runnable_passes(const Target& target, const Policy& policy) {
    std::vector<std::string> names = optional_pass_names();
    if (!target.cannot_compile.empty()) std::erase(names, "fuse");
    if (!policy.emulate.empty())
        std::erase_if(names, [](const std::string& name) {
            return name == "match_attention" || name == "fuse_linear_cross_entropy" || name == "pad";
        });
    return names;
}

PipelineOptions all_passes(const Target& target, const Policy& policy) {
    PipelineOptions options{.policy = policy};
    choose_passes(options, runnable_passes(target, policy));
    return options;
}

std::string pass_name_today(std::string_view name) {
    for (const OptionalPass& pass : optional_passes)
        if (!pass.old_name.empty() && pass.old_name == name) return std::string(pass.name);
    return std::string(name);
}

void choose_passes(PipelineOptions& options, std::span<const std::string> names) {
    for (const OptionalPass& pass : optional_passes) options.*pass.on = false;
    for (const std::string& name : names) {
        const auto pass = std::ranges::find(optional_passes, pass_name_today(name), &OptionalPass::name);
        if (pass == optional_passes.end())
            throw UserError(fmt::format("there is no optional pass '{}'; there are: {}", name,
                                        fmt::join(optional_pass_names(), ", ")));
        options.*(pass->on) = true;
    }
}

std::vector<std::string> chosen_passes(const PipelineOptions& options) {
    std::vector<std::string> names;
    for (const OptionalPass& pass : optional_passes)
        if (options.*pass.on) names.emplace_back(pass.name);
    return names;
}

BuiltGraph build_training_step(const TraceModel& model, const TraceUpdate& update,
                               const PipelineOptions& options, const Machine& machine) {
    if (!options.policy.weights.empty())
        throw UsageError(
            fmt::format("policy {} is for inference only, since whole numbers have no gradient; train "
                        "in {}, and give `policy` {} to generate",
                        options.policy.name, fmt::join(policy_names(), ", "), options.policy.name));
    Graph graph;
    std::vector<ParameterGradient> gradients;
    Pipeline pipeline(graph, options, machine);
    Value loss = build_forward(pipeline, graph, model, options, Differentiated::yes).value();
    pipeline.run("differentiate", [&] {
        const Tensor seed = options.seed ? options.seed(graph) : Tensor{};
        gradients = differentiate(graph, {graph, loss}, seed);
    });
    build_products(pipeline, graph, loss, gradients, options);
    pipeline.run("update", [&] { update(graph, {graph, loss}, gradients); });
    return build_kernels(pipeline, graph, options);
}

BuiltGraph build_evaluation(const TraceModel& model, const PipelineOptions& options, const Machine& machine,
                            const std::string& result) {
    Graph graph;
    Pipeline pipeline(graph, options, machine);
    Value loss = build_forward(pipeline, graph, model, options, Differentiated::no).value();
    build_products(pipeline, graph, {&loss, 1}, options);
    graph.add_result(result, loss);
    return build_kernels(pipeline, graph, options);
}

}  // namespace mantissa
