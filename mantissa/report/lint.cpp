#include "mantissa/report/lint.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "mantissa/base/error.h"
#include "mantissa/base/printable.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/graph/attention_layout.h"
#include "mantissa/passes/analysis/uses.h"

namespace mantissa::inline v0 {

namespace {

constexpr std::string_view why_classes =
    "the loss's contraction has a column for each class; those behind the last whole tile run in boundary "
    "code. Rows of zeros cost nothing else: they are masked in the loss and never written to a file";
/// In the order of the report.
constexpr LintRule rules[] = {
    {.size = "vocabulary", .gain = LintGain::result, .why = why_classes},
    {.size = "classes", .gain = LintGain::result, .why = why_classes},
    {.size = "channels",
     .multiple = 64,
     .why = "64 BF16 numbers are two whole cache lines, and tiles take 16 columns and 32 terms of a sum at a "
            "time: of other sizes each row of every contraction has a rest"},
    {.size = "few filters",
     .multiple = 32,
     .why =
         "a panel of columns is 32 or 48 wide: a convolution of fewer channels fills a part of it, and each "
         "number that is read is used so few times that memory is what it waits for"},
    {.size = "filters",
     .multiple = 8,
     .why =
         "eight 16-bit numbers are the 16 bytes of a load: pixels of other channels begin anywhere, and are "
         "copied before they are multiplied; matrix units of GPUs take no fewer"},
    {.size = "groups",
     .multiple = 1,
     .why = "each group is a convolution of its own with few channels; a whole one does more work in less "
            "time for each FLOP, and a 1x1 beside it is what depthwise ones are made up with"},
    {.size = "heads",
     .multiple = 4,
     .why = "attention is shared out by heads: an odd number leaves one of two, four or eight workers "
            "waiting, on one machine or across several"},
    {.size = "head size",
     .multiple = 8,
     .why = "eight 16-bit numbers are the 16 bytes of a load; matrix units take no fewer terms of a score"},
    {.size = "sequence",
     .multiple = 64,
     .why = "attention meets queries and keys in blocks, here of 32 and 128: a last block that is not full "
            "costs as much as one that is"},
    {.size = "batch",
     .why = "batch times sequence are the rows of every contraction with parameters; those behind the last "
            "whole tile run in boundary code"},
};

const LintRule& rule_of(std::string_view size) {
    for (const LintRule& rule : rules)
        if (rule.size == size) return rule;
    throw InternalError(fmt::format("there is no rule for '{}'", size));
}

/// The nearest multiple, the larger of two, and not zero.
std::int64_t nearest_multiple(std::int64_t size, std::int64_t multiple) {
    return std::max(multiple, (size + multiple / 2) / multiple * multiple);
}

/// A contraction of the model with a parameter: [M, K] times [N, K] transposed.
struct ParameterProduct {
    std::string parameter;
    std::string line;  ///< of the product's trace
    std::int64_t m = 0, n = 0, k = 0;
    bool classes = false;  ///< whether its columns are a loss's classes
    bool outputs = false;  ///< whether its columns are the model's results, fixed by the task
    DType dtype = DType::f32;
    Attributes attributes = {};

    LintProbe probe() const {
        return {.kind = LintProbe::Kind::contraction,
                .extents = {m, n, k},
                .dtype = dtype,
                .attributes = attributes};
    }
};

/// A convolution with a parameter as its filters.
struct ParameterConvolution {
    std::string parameter;
    std::string line;
    LintProbe probe;
    std::int64_t groups = 1;
    bool reads_input = false;  ///< its images are the model's input, so their channels are fixed
};

/// The sizes that rules check, read off the graph.
struct Sizes {
    std::vector<ParameterProduct> products;
    std::vector<ParameterConvolution> convolutions;
    std::vector<NodeId> attention;
};

class Reading {
  public:
    explicit Reading(const Graph& graph) : graph_(graph), uses_(graph) {}

    Sizes run() {
        find_what_goes_on();
        for (NodeId id = 0; id < graph_.end(); ++id) {
            const std::string_view op = graph_.node(id).op->name;
            if (op == "matmul" || op == "linear_cross_entropy") read_product(id);
            if (op == "conv2d") read_convolution(id);
            if (op == "attention") sizes_.attention.push_back(id);
        }
        return std::move(sizes_);
    }

  private:
    /// Marks the nodes with results that reach contractions, convolutions or attention, through any nodes.
    void find_what_goes_on() {
        goes_on_.resize(static_cast<std::size_t>(graph_.end()));
        for (NodeId id = graph_.end(); id-- > 0;) {
            const std::string_view op = graph_.node(id).op->name;
            const bool is_work = op == "matmul" || op == "linear_cross_entropy" || op == "conv2d" ||
                                 op == "attention" || op == "scan";
            if (!is_work && !goes_on_[static_cast<std::size_t>(id)]) continue;
            for (const Value& input : graph_.node(id).inputs)
                if (input.node >= 0) goes_on_[static_cast<std::size_t>(input.node)] = true;
        }
    }

    /// The name of the parameter that is the operand, cast or not; empty: another value.
    std::string parameter_of(Value value) const {
        while (graph_.node(value.node).op->name == "cast") value = graph_.node(value.node).inputs[0];
        const int index = graph_.state_of(value.node);
        if (index < 0) return "";
        const State& state = graph_.state(index);
        return state.kind == State::Kind::parameter ? state.name : "";
    }

    void read_product(NodeId id) {
        const Node& node = graph_.node(id);
        const std::string name = parameter_of(node.inputs[1]);
        const Type &x = graph_.type(node.inputs[0]), &w = graph_.type(node.inputs[1]);
        if (name.empty() || w.shape.rank() != 2) return;
        const bool joint = node.op->name == "linear_cross_entropy";
        const bool stored_by_column = joint || node.attributes.flag("transpose_b");
        ParameterProduct product{.parameter = name,
                                 .line = node.origin.line.text(),
                                 .n = w.shape[stored_by_column ? 0 : 1],
                                 .k = w.shape[stored_by_column ? 1 : 0],
                                 .classes = joint || becomes_logits({id, 0}),
                                 .outputs = joint || !goes_on_[static_cast<std::size_t>(id)],
                                 .dtype = x.dtype};
        product.m = x.shape.elements() / product.k;
        if (node.attributes.has("multiply"))
            product.attributes = {{"multiply", node.attributes.word("multiply")}};
        sizes_.products.push_back(std::move(product));
    }

    void read_convolution(NodeId id) {
        const Node& node = graph_.node(id);
        const std::string name = parameter_of(node.inputs[1]);
        if (name.empty()) return;
        const Type &x = graph_.type(node.inputs[0]), &filter = graph_.type(node.inputs[1]);
        Value images = node.inputs[0];
        while (graph_.node(images.node).op->name == "cast") images = graph_.node(images.node).inputs[0];
        sizes_.convolutions.push_back(
            {.parameter = name,
             .line = node.origin.line.text(),
             .probe = {.kind = LintProbe::Kind::convolution,
                       .extents = {x.shape[0], x.shape[1], x.shape[2], x.shape[3], filter.shape[0],
                                   filter.shape[1], filter.shape[3]},
                       .dtype = x.dtype,
                       .attributes = node.attributes},
             .groups = node.attributes.integer("groups"),
             .reads_input = graph_.node(images.node).op->name == "input"});
    }

    /// Whether a loss reads the value, through views and casts.
    bool becomes_logits(Value value) const {
        const std::vector<NodeId>& users = uses_.of(value);
        return std::any_of(users.begin(), users.end(), [&](NodeId user) {
            if (user < 0) return false;
            const Node& node = graph_.node(user);
            if (node.op->name == "cross_entropy") return node.inputs[0] == value;
            return (node.op->name == "cast" || node.op->name == "reshape") && becomes_logits({user, 0});
        });
    }

    const Graph& graph_;
    const Uses uses_;
    std::vector<bool> goes_on_;
    Sizes sizes_;
};

class Linter {
  public:
    Linter(const Graph& graph, const Target& target, std::int64_t batch)
        : graph_(graph), target_(target), batch_(batch), sizes_(Reading(graph).run()) {}

    std::vector<LintFinding> run() {
        for (const ParameterProduct& product : sizes_.products)
            if (product.classes) look_at_vocabulary(product);
        look_at_channels();
        for (const ParameterConvolution& convolution : sizes_.convolutions) look_at_convolution(convolution);
        for (const NodeId id : sizes_.attention) look_at_attention(id);
        look_at_batch();
        std::stable_sort(findings_.begin(), findings_.end(),
                         [](const LintFinding& a, const LintFinding& b) { return a.rule < b.rule; });
        return std::move(findings_);
    }

  private:
    std::int64_t multiple_of(const LintRule& rule) const {
        return rule.multiple == 0 ? target_.extent_multiple : rule.multiple;
    }

    /// The finding of this rule and size, new or known, with a place added.
    LintFinding& found(const LintRule& rule, std::int64_t is, std::string where, std::string line = {}) {
        for (LintFinding& known : findings_)
            if (known.rule == &rule && known.extent == is) {
                if (std::find(known.where.begin(), known.where.end(), where) == known.where.end())
                    known.where.push_back(std::move(where));
                return known;
            }
        findings_.push_back({.rule = &rule,
                             .multiple = multiple_of(rule),
                             .extent = is,
                             .where = {std::move(where)},
                             .line = std::move(line),
                             .note = {},
                             .ugly = {},
                             .nice = {}});
        return findings_.back();
    }

    /// Whether a table with so many rows is embedded: then the classes are a vocabulary.
    bool has_table_of(std::int64_t rows) const {
        for (NodeId id = 0; id < graph_.end(); ++id) {
            const Node& node = graph_.node(id);
            if (node.op->name == "embedding" && graph_.type(node.inputs[0]).shape[0] == rows) return true;
        }
        return false;
    }

    void look_at_vocabulary(const ParameterProduct& product) {
        const LintRule& rule = rule_of(has_table_of(product.n) ? "vocabulary" : "classes");
        const std::int64_t multiple = multiple_of(rule);
        if (product.n % multiple == 0) return;
        LintFinding& finding = found(rule, product.n, product.parameter, product.line);
        finding.change_to = align_up(product.n, multiple);
        finding.ugly = finding.nice = product.probe();
        finding.nice.extents[1] = finding.change_to;
    }

    /// An ugly size that is a multiple of a smaller ugly one is reported with it: c_attn's 3 C.
    void look_at_channels() {
        const LintRule& rule = rule_of("channels");
        const std::int64_t multiple = multiple_of(rule);
        std::map<std::int64_t, std::int64_t> root;  // by ugly size: its smallest ugly divisor
        for (const ParameterProduct& product : sizes_.products)
            for (const std::int64_t size : {product.k, product.outputs ? 0 : product.n})
                if (size % multiple != 0) root[size] = size;
        for (auto& [size, from] : root)
            for (const auto& [smaller, its] : root)
                if (its == smaller && smaller < size && size % smaller == 0) from = std::min(from, smaller);
        const auto nice = [&](std::int64_t size) {
            const auto ugly = root.find(size);
            return ugly == root.end() ? size : size / ugly->second * nearest_multiple(ugly->second, multiple);
        };
        for (const ParameterProduct& product : sizes_.products)
            for (const std::int64_t size : {product.n, product.k}) {
                const auto ugly = root.find(size);
                if (ugly == root.end() || (product.outputs && size == product.n)) continue;
                LintFinding& finding = found(rule, ugly->second, product.parameter, product.line);
                if (finding.change_to != 0) continue;
                finding.change_to = nearest_multiple(ugly->second, multiple);
                finding.ugly = finding.nice = product.probe();
                if (!product.outputs) finding.nice.extents[1] = nice(product.n);
                finding.nice.extents[2] = nice(product.k);
            }
    }

    void look_at_convolution(const ParameterConvolution& convolution) {
        if (convolution.groups > 1) return look_at_groups(convolution);
        constexpr std::size_t channels = 3, filters = 6;
        for (const std::size_t axis : {channels, filters}) {
            if (axis == channels && convolution.reads_input) continue;
            const std::int64_t is = convolution.probe.extents[axis];
            const LintRule& few = rule_of("few filters");
            const LintRule& rule = is < few.multiple ? few : rule_of("filters");
            if (is % rule.multiple == 0) continue;
            LintFinding& finding = found(rule, is, convolution.parameter, convolution.line);
            if (finding.change_to != 0) continue;
            finding.change_to = nearest_multiple(is, rule.multiple);
            finding.ugly = finding.nice = convolution.probe;
            for (const std::size_t each : {channels, filters})
                if (finding.ugly.extents[each] == is && !(each == channels && convolution.reads_input))
                    finding.nice.extents[each] = finding.change_to;
        }
    }

    void look_at_groups(const ParameterConvolution& convolution) {
        LintFinding& finding =
            found(rule_of("groups"), convolution.groups, convolution.parameter, convolution.line);
        if (finding.change_to != 0) return;
        finding.change_to = 1;
        finding.note = fmt::format("of {} and {} each",
                                   count_text(convolution.probe.extents[3] / convolution.groups, "channel"),
                                   count_text(convolution.probe.extents[6] / convolution.groups, "filter"));
        finding.ugly = finding.nice = convolution.probe;
        finding.nice.attributes = finding.nice.attributes.with("groups", std::int64_t{1});
    }

    void look_at_attention(NodeId id) {
        const Node& node = graph_.node(id);
        const std::vector<Type> types = graph_.input_types(node);
        const AttentionExtents e = attention_extents(attention_layout(node.attributes), types);
        // Measured on plain contiguous operands, with one key head per query head, and plain scores.
        const LintProbe probe{.kind = LintProbe::Kind::attention,
                              .extents = {e.sequences, e.heads, e.queries, e.head_size},
                              .dtype = types[0].dtype,
                              .attributes = {{"causal", node.attributes.flag("causal")},
                                             {"scale", node.attributes.number("scale")}}};
        const std::string where = node.origin.scope.empty() ? "attention" : node.origin.scope;
        look_at_heads(probe, where);
        const LintRule& rule = rule_of("sequence");
        if (e.queries % multiple_of(rule) == 0) return;
        LintFinding& finding = found(rule, e.queries, where);
        finding.change_to = nearest_multiple(e.queries, multiple_of(rule));
        finding.ugly = finding.nice = probe;
        finding.nice.extents[2] = finding.change_to;
    }

    /// Channels after the findings so far are applied.
    std::int64_t cured_channels(std::int64_t channels) const {
        for (const LintFinding& finding : findings_)
            if (finding.rule->size == "channels" && channels % finding.extent == 0)
                return channels / finding.extent * finding.change_to;
        return channels;
    }

    /// Checks heads and head size, with the channels as their product: present, or proposed by a finding.
    /// Proposes another number of heads if these cannot share the channels.
    void look_at_heads(const LintProbe& probe, const std::string& where) {
        const LintRule &of_heads = rule_of("heads"), &of_size = rule_of("head size");
        const std::int64_t heads = probe.extents[1], size = probe.extents[3];
        const std::int64_t multiple = multiple_of(of_heads), channels = cured_channels(heads * size);
        const auto can_share = [&](std::int64_t other) {
            return other % multiple == 0 && channels % other == 0 && channels / other % of_size.multiple == 0;
        };
        std::int64_t best = can_share(heads) ? heads : 0;
        for (std::int64_t other = multiple; best != heads && other <= std::max(multiple, 2 * heads);
             other += multiple)
            if (can_share(other) && (best == 0 || std::abs(other - heads) < std::abs(best - heads)))
                best = other;
        LintProbe nice = probe;
        nice.extents[1] = best != 0 ? best : nearest_multiple(heads, multiple);
        nice.extents[3] = best != 0 ? channels / best : nearest_multiple(size, of_size.multiple);
        const std::int64_t made = nice.extents[1] * nice.extents[3];
        const auto add = [&](const LintRule& rule, std::size_t axis, std::string note) {
            if (probe.extents[axis] % rule.multiple == 0) return;
            LintFinding& finding = found(rule, probe.extents[axis], where);
            finding.change_to = nice.extents[axis];
            finding.ugly = probe;
            finding.nice = nice;
            finding.note = std::move(note);
        };
        const std::string whole = made == heads * size
                                      ? fmt::format("which keeps the {} channels", made)
                                      : fmt::format("which makes {} channels of {}", made, heads * size);
        add(of_heads, 1, fmt::format("heads of {} for {}, {}", nice.extents[3], size, whole));
        add(of_size, 3, fmt::format("{} heads of it, {}", nice.extents[1], whole));
    }

    /// The rows of a batch item, and so the nice batch, follow the nice sequence. In an image network,
    /// convolutions have pixels as rows, and its few products do not count.
    void look_at_batch() {
        const LintRule& rule = rule_of("batch");
        if (sizes_.products.empty() || !sizes_.convolutions.empty()) return;
        const ParameterProduct& product = sizes_.products[0];
        if (batch_ == 0 || product.m % batch_ != 0) return;
        std::int64_t rows = product.m / batch_;
        for (const LintFinding& finding : findings_)
            if (finding.rule->size == "sequence" && rows % finding.extent == 0)
                rows = rows / finding.extent * finding.change_to;
        const std::int64_t multiple = multiple_of(rule);
        const std::int64_t step = multiple / std::gcd(multiple, rows);
        if (batch_ % step == 0) return;
        LintFinding& finding = found(rule, batch_, "every contraction with a parameter");
        finding.multiple = step;
        finding.change_to = align_up(batch_, step);
        finding.note =
            fmt::format("with {} each, {} in all", count_text(rows, "row"), finding.change_to * rows);
        finding.ugly = finding.nice = product.probe();
        finding.nice.extents[0] = finding.change_to * rows;
    }

    const Graph& graph_;
    const Target& target_;
    const std::int64_t batch_;  // 0: not known
    const Sizes sizes_;
    std::vector<LintFinding> findings_;
};

}  // namespace

std::span<const LintRule> lint_rules() { return rules; }

std::vector<LintFinding> lint(const Graph& graph, const Target& target, std::int64_t batch) {
    if (batch == 0 && !graph.inputs().empty()) {
        const Shape& first = graph.node(graph.inputs()[0]).outputs[0].shape;
        batch = first.rank() > 0 ? first[0] : 0;
    }
    return Linter(graph, target, batch).run();
}

}  // namespace mantissa
