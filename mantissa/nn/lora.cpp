#include "mantissa/nn/lora.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/base/function_ref.h"
#include "mantissa/base/name_pattern.h"
#include "mantissa/base/printable.h"
#include "mantissa/graph/graph.h"
#include "mantissa/numerics/coded_weights.h"

namespace mantissa::inline v0::nn {

namespace {

constexpr std::int64_t most_rank = 65536;

struct LoraRules {
    LoraOptions options;
    std::optional<DType> stored;
};

/// Throws UserError for a pattern that matches no layer, and for a graph without adaptable layers.
void require_layers(const LoraOptions& options, const AdaptableLayers& layers) {
    std::vector<std::string> patterns = options.layers;
    for (const LoraOptions::Layers& other : options.others) patterns.push_back(other.pattern);
    const auto refuse = [&](const std::string& what) {
        throw UserError(fmt::format("{}; those that can have one are {}", what, names_text(layers.names, 8)));
    };
    if (layers.names.empty())
        throw UserError(
            "LoRA adapts linear layers and convolutions, and the model has none but those that an embedding "
            "shares");
    for (const std::string& pattern : patterns)
        if (std::ranges::none_of(layers.names, [&](const auto& name) { return matches(pattern, name); }))
            refuse(fmt::format("{}: '{}' names no layer for an adapter", options.source, pattern));
    if (options.layers.empty() && layers.names.size() == 1 && layers.names[0] == layers.last)
        refuse("LoRA leaves the last layer out unless it is named: name it");
}

/// Adds the graph's nodes to another graph; maps its inputs to values there.
class Placement {
  public:
    Placement(Graph& graph, const Graph& body) : graph_(graph), body_(body), placed_(body.size()) {}

    void give(NodeId input, Value value) { placed_[input] = {value}; }

    Tensor run(Value result) {
        for (NodeId id = 0; id < body_.end(); ++id)
            if (placed_[id].empty()) place(id);
        for (const Update& update : body_.updates())
            graph_.add_update(graph_.find_state(body_.state(update.state).name), map(update.value));
        for (const Result& each : body_.results()) graph_.add_result(each.name, map(each.value));
        return {graph_, map(result)};
    }

  private:
    Value map(Value value) const { return placed_[value.node][static_cast<std::size_t>(value.output)]; }

    void place(NodeId id) {
        const Node& node = body_.node(id);
        const OriginScope scope(graph_, node.origin);
        if (const int state = body_.state_of(id); state >= 0) {
            placed_[id] = {graph_.add_state(body_.state(state))};
            return;
        }
        std::vector<Value> operands;
        for (const Value& input : node.inputs) operands.push_back(map(input));
        const NodeId added = graph_.add(node.op->name, std::move(operands), node.attributes);
        for (std::size_t output = 0; output < node.outputs.size(); ++output)
            placed_[id].push_back({added, static_cast<std::int32_t>(output)});
    }

    Graph& graph_;
    const Graph& body_;
    std::vector<std::vector<Value>> placed_;
};

using Record = FunctionRef<Tensor(Graph&, std::span<const Tensor>, const Mode&)>;

/// Records `record` in a graph of its own with all weights frozen, and adds that graph with its adapters to
/// the graph of the inputs.
Tensor recorded(Graph& graph, std::span<const Tensor> inputs, const Mode& mode, const LoraRules& rules,
                Record record) {
    Graph alone;
    alone.origin = graph.origin;
    alone.freeze({"*"});
    std::vector<Tensor> given;
    for (std::size_t i = 0; i < inputs.size(); ++i)
        given.emplace_back(alone, alone.add_input(fmt::format("in{}", i), inputs[i].type()));
    const Mode inner = mode.is_training() ? Mode::training(alone) : mode;
    const Tensor made = record(alone, given, inner);
    if (!made) return made;
    const AdaptableLayers layers = adaptable_layers(alone);
    require_layers(rules.options, layers);
    AdapterRules of_pass{.of = [&](const std::string& layer) -> std::optional<Adapter> {
                             const auto names = [&](const auto& pattern) { return matches(pattern, layer); };
                             const bool chosen = rules.options.layers.empty()
                                                     ? layer != layers.last
                                                     : std::ranges::any_of(rules.options.layers, names);
                             if (!chosen) return {};
                             return adapter_of(rules.options, layer);
                         },
                         .stored = rules.stored,
                         .trunk = rules.options.trunk};
    if (mode.is_training() && rules.options.dropout > 0) {
        of_pass.random = inner.random();
        of_pass.first_random_operation = inner.next_random_operation();
    }
    Value result = made.value();
    const Graph with = add_adapters(alone, of_pass, {&result, 1});
    Placement placement(graph, with);
    for (std::size_t i = 0; i < with.inputs().size(); ++i) {
        const NodeId input = with.inputs()[i];
        if (i < inputs.size()) {
            placement.give(input, inputs[i].value());
        } else {
            const RandomState& random = mode.random();
            const bool is_seed = with.node(input).attributes.word("name") == "random_seed";
            placement.give(input, (is_seed ? random.seed : random.step).value());
        }
    }
    return placement.run(result);
}

Trace adapted(const Trace& trace, const std::shared_ptr<const LoraRules>& rules) {
    if (!trace) return trace;
    return [trace, rules](Graph& graph, std::span<const Tensor> inputs, const Mode& mode) {
        return recorded(graph, inputs, mode, *rules, trace);
    };
}

}  // namespace

Layout trunk_named(std::string_view name) {
    for (const Layout layout : {Layout::nf4, Layout::int4, Layout::int8})
        if (name == name_of(layout)) return layout;
    throw UserError(
        fmt::format("no format of frozen weights is called '{}'; there are nf4, int4 and int8", name));
}

void validate(const LoraOptions& options) {
    const auto require_size = [](std::int64_t rank, const std::optional<double>& alpha) {
        if (rank < 1 || rank > most_rank)
            throw UsageError(fmt::format("`lora` must be a rank of 1 to {}, got {}", most_rank, rank));
        if (alpha && !(*alpha > 0 && std::isfinite(static_cast<float>(*alpha))))
            throw UsageError(fmt::format("`lora_alpha` must be above 0 and finite, got {}", *alpha));
    };
    require_size(options.rank, options.alpha);
    for (const LoraOptions::Layers& other : options.others) require_size(other.rank, other.alpha);
    if (!(options.dropout >= 0 && options.dropout < 1))
        throw UsageError(fmt::format("`lora_dropout` must lie in [0, 1), got {}", options.dropout));
}

Adapter adapter_of(const LoraOptions& options, const std::string& layer) {
    const auto own = std::ranges::find_if(
        options.others, [&](const LoraOptions::Layers& other) { return matches(other.pattern, layer); });
    const bool has_own = own != options.others.end();
    const std::int64_t rank = has_own ? own->rank : options.rank;
    const auto rows = static_cast<double>(rank);
    const double alpha = (has_own ? own->alpha : options.alpha).value_or(rows);
    return {.rank = rank,
            .scale = alpha / (options.rank_stabilized ? std::sqrt(rows) : rows),
            .dropout = options.dropout,
            .magnitude = options.magnitudes};
}

Model without_adapters(Model model) {
    if (!model.own) return model;
    Model own = *model.own;
    own.inputs = model.inputs;  // may have another shape
    own.units_per_example = model.units_per_example;
    return own;
}

Model with_adapters(Model model, const LoraOptions& options, std::optional<DType> stored) {
    model = without_adapters(std::move(model));
    validate(options);
    model.own = std::make_shared<const Model>(model);
    const auto rules = std::make_shared<const LoraRules>(LoraRules{options, stored});
    model.loss = adapted(model.loss, rules);
    model.output.trace = adapted(model.output.trace, rules);
    return model;
}

LanguageModel with_adapters(LanguageModel model, const LoraOptions& options, std::optional<DType> stored) {
    validate(options);
    for (auto* const each : {&model.on_sequences, &model.on_packed_documents})
        *each = [made = *each, options, stored](std::int64_t sequence) {
            return with_adapters(made(sequence), options, stored);
        };
    model.next_logits = [made = model.next_logits, rules = LoraRules{options, stored}](
                            Tensor tokens, Tensor positions, DType kept) {
        return recorded(
            tokens.graph(), std::vector{tokens, positions}, {}, rules,
            [&](Graph&, std::span<const Tensor> in, const Mode&) { return made(in[0], in[1], kept); });
    };
    return model;
}

}  // namespace mantissa::nn
