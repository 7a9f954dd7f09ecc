#include "mantissa/passes/fuse_epilogues.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "mantissa/graph/graph.h"
#include "mantissa/passes/analysis/contraction_epilogue.h"
#include "mantissa/passes/analysis/uses.h"
#include "mantissa/passes/rewriter.h"

namespace mantissa::inline v0 {

namespace {

/// A fused node, the operand of it that a contraction makes, and that contraction.
struct Epilogue {
    NodeId fused = -1;
    std::size_t operand = 0;
    NodeId contraction = -1;
    bool also_written = false;  ///< others read the contraction's output, too
};

class EpilogueFuser {
  public:
    EpilogueFuser(const Graph& graph, const Machine& machine)
        : graph_(graph), machine_(machine), uses_(graph), rewriter_(graph) {}

    Fusion run() {
        for (NodeId id = 0; id < graph_.end(); ++id) choose(id);
        // Contractions and their views are placed when something reads them.
        for (NodeId id = 0; id < graph_.end(); ++id)
            if (!by_contraction_.contains(root({id, 0}).node)) place(id);
        for (const Result& result : graph_.results()) place(result.value.node);
        for (const Update& update : graph_.updates()) place(update.value.node);
        fusion_.graph = rewriter_.finish();
        return std::move(fusion_);
    }

  private:
    Value root(Value value) const {
        while (graph_.node(value.node).op->name == "reshape") value = graph_.node(value.node).inputs[0];
        return value;
    }

    void choose(NodeId id) {
        const Node& node = graph_.node(id);
        if (node.op->name != "fused" || contraction_of(node.attributes.body("body").graph()) >= 0) return;
        Epilogue best;
        for (std::size_t i = 0; i < node.inputs.size(); ++i) {
            const NodeId made = root(node.inputs[i]).node;
            if (graph_.node(made).op->fuser == FuserClass::contraction && made > best.contraction)
                best = {.fused = id, .operand = i, .contraction = made};
        }
        if (best.contraction < 0) return;
        best.also_written = read_by_others(best.contraction, id);
        if (std::string reason = refuse(best); !reason.empty()) {
            fusion_.refused.push_back({"fuse", std::string(graph_.node(best.contraction).op->name),
                                       print(graph_, best.contraction), std::move(reason)});
            return;
        }
        by_fused_[id] = best;
        by_contraction_[best.contraction] = id;
        ++fusion_.kernels;
        fusion_.bytes_saved += (best.also_written ? 1 : 2) * graph_.type({best.contraction, 0}).bytes();
    }

    bool read_by_others(NodeId id, NodeId reader) const {
        return std::ranges::any_of(uses_.of(id), [&](NodeId user) {
            if (user == reader) return false;
            return user < 0 || graph_.node(user).op->name != "reshape" || read_by_others(user, reader);
        });
    }

    struct Made {
        Graph body;
        std::vector<Value> inputs;  // of the graph
    };

    std::string refuse(const Epilogue& epilogue) const {
        const Node &fused = graph_.node(epilogue.fused), &contraction = graph_.node(epilogue.contraction);
        if (!target().cannot_attach_epilogues.empty()) return target().cannot_attach_epilogues;
        if (size_of(graph_.type(contraction.inputs[0]).dtype) == 2 &&
            !target().epilogues_lose_at_16_bits.empty())
            return target().epilogues_lose_at_16_bits;
        if (by_contraction_.contains(epilogue.contraction)) return "another epilogue is part of it";
        if (contraction.origin.stage != fused.origin.stage)
            return "its epilogue belongs to another pass over the model";
        if (contraction.attributes.has("groups") && contraction.attributes.integer("groups") > 1)
            return "groups of filters make their columns one after another";
        for (std::size_t i = 0; i < fused.inputs.size(); ++i)
            if (i != epilogue.operand && depends(fused.inputs[i].node, epilogue.contraction))
                return "its epilogue waits for what is computed from it";
        const std::int64_t saved =
            (epilogue.also_written ? 1 : 2) * graph_.type({epilogue.contraction, 0}).bytes();
        if (saved < target().fusion.min_bytes_saved)
            return fmt::format("a kernel would save {} bytes, less than the {} that compiling it is worth",
                               saved, target().fusion.min_bytes_saved);
        auto made = make(epilogue);
        if (made.inputs.size() + made.body.results().size() > target().fusion.max_operands)
            return fmt::format("more than {} operands and outputs", target().fusion.max_operands);
        if (std::string reason = nest_of_epilogue(contraction_epilogue(made.body)->graph).reason();
            !reason.empty())
            return reason;
        return target().attaches_few_epilogues.empty() || has_kernel(std::move(made))
                   ? ""
                   : target().attaches_few_epilogues;
    }

    bool has_kernel(Made made) const {
        Graph alone;
        std::vector<Value> inputs;
        for (const Value& input : made.inputs)
            inputs.push_back(alone.add_input(fmt::format("in{}", inputs.size()), graph_.type(input)));
        const NodeId both = alone.add("fused", std::move(inputs), {{"body", Body(std::move(made.body))}});
        return machine_.has_kernel(alone, alone.node(both));
    }

    /// Whether a node is computed from another, directly or not; a joined node waits for all operands of both
    /// of its parts.
    bool depends(NodeId id, NodeId on) const {
        std::vector<NodeId> open{id};
        std::vector<bool> seen(graph_.size());
        while (!open.empty()) {
            const NodeId now = open.back();
            open.pop_back();
            if (now == on) return true;
            if (seen[now]) continue;
            seen[now] = true;
            for (const Value& input : graph_.node(now).inputs) open.push_back(input.node);
            if (const auto joined = by_contraction_.find(now); joined != by_contraction_.end())
                open.push_back(joined->second);
        }
        return false;
    }

    /// The body of both nodes as one; the contraction's own output, where it is written, comes last.
    Made make(const Epilogue& epilogue) const {
        const Node &contraction = graph_.node(epilogue.contraction), &fused = graph_.node(epilogue.fused);
        const Graph& after = fused.attributes.body("body").graph();
        Made made;
        std::map<Value, Value> inputs;
        const auto input = [&](Value value) {
            const auto [entry, is_new] = inputs.try_emplace(value);
            if (is_new) {
                entry->second =
                    made.body.add_input(fmt::format("in{}", made.inputs.size()), graph_.type(value));
                made.inputs.push_back(value);
            }
            return entry->second;
        };
        std::vector<Value> operands;
        for (const Value& value : contraction.inputs) operands.push_back(input(value));
        std::vector<Value> placed(after.size());
        for (std::size_t i = 0; i < fused.inputs.size(); ++i)
            if (i != epilogue.operand) placed[after.inputs()[i]] = input(fused.inputs[i]);
        const auto add = [&](const Node& node, std::vector<Value> of) {
            const OriginScope scope(made.body, origin_in_body(node));
            return Value{made.body.add(node.op->name, std::move(of), node.attributes), 0};
        };
        const Value product = add(contraction, std::move(operands));
        const NodeId read_as = after.inputs()[epilogue.operand];
        placed[read_as] = reshaped(made.body, product, after.node(read_as).outputs[0].shape);
        for (NodeId id = 0; id < after.end(); ++id) {
            const Node& node = after.node(id);
            if (node.op->name == "input") continue;
            std::vector<Value> mapped;
            for (const Value& value : node.inputs) mapped.push_back(placed[value.node]);
            placed[id] = add(node, std::move(mapped));
        }
        for (const Result& result : after.results())
            made.body.add_result(result.name, placed[result.value.node]);
        if (epilogue.also_written)
            made.body.add_result(fmt::format("out{}", after.results().size()), product);
        return made;
    }

    static Value reshaped(Graph& body, Value value, const Shape& shape) {
        if (body.type(value).shape == shape) return value;
        return {body.add("reshape", {value}, {{"shape", shape.extents()}}), 0};
    }

    /// Places a node, after its operands; a contraction stands with its epilogue.
    void place(NodeId id) {
        if (const auto joined = by_contraction_.find(id); joined != by_contraction_.end())
            id = joined->second;
        if (rewriter_.placed({id, 0})) return;
        if (const auto epilogue = by_fused_.find(id); epilogue != by_fused_.end())
            return place_epilogue(epilogue->second);
        for (const Value& input : graph_.node(id).inputs) place(input.node);
        rewriter_.copy(id);
    }

    void place_epilogue(const Epilogue& epilogue) {
        Made made = make(epilogue);
        for (const Value& input : made.inputs) place(input.node);
        const Node& fused = graph_.node(epilogue.fused);
        const OriginScope scope(rewriter_.target(), graph_.node(epilogue.contraction).origin);
        const NodeId both = rewriter_.target().add("fused", rewriter_.map(made.inputs),
                                                   {{"body", Body(std::move(made.body))}});
        const auto count = static_cast<std::int32_t>(fused.outputs.size());
        for (std::int32_t i = 0; i < count; ++i) rewriter_.place({epilogue.fused, i}, {both, i});
        if (epilogue.also_written) rewriter_.place({epilogue.contraction, 0}, {both, count});
    }

    const Graph& graph_;
    const Target& target() const { return machine_.target; }

    const Machine& machine_;
    const Uses uses_;
    Rewriter rewriter_;
    Fusion fusion_;
    std::map<NodeId, Epilogue> by_fused_;
    std::map<NodeId, NodeId> by_contraction_;  // the fused node
};

}  // namespace

Fusion fuse_epilogues(const Graph& graph, const Machine& machine) {
    return EpilogueFuser(graph, machine).run();
}

}  // namespace mantissa
