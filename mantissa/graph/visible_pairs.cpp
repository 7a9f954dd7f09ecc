#include "mantissa/graph/visible_pairs.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "mantissa/graph/graph.h"
#include "mantissa/graph/reference.h"

namespace mantissa::inline v0 {

namespace {

/// A mask with a border or two along 8,192 positions takes some hundred thousand boxes; noise takes as many
/// as there are pairs.
constexpr std::int64_t max_boxes = 1 << 20;

}  // namespace

std::int64_t PairBox::pairs() const {
    std::int64_t count = 1;
    for (std::size_t axis = 0; axis < begin.size(); ++axis) count *= end[axis] - begin[axis];
    return count;
}

namespace {

using In = std::span<const Interval>;
using Rule = Interval (*)(In);

Interval truth(bool always, bool ever) { return {always ? 1.0 : 0.0, ever ? 1.0 : 0.0}; }

/// Rules of primitives whose values over a box follow from the operands' values; truth is 0 or 1.
constexpr std::pair<std::string_view, Rule> rules[] = {
    {"add",
     [](In x) {
         return Interval{x[0].low + x[1].low, x[0].high + x[1].high};
     }},
    {"sub",
     [](In x) {
         return Interval{x[0].low - x[1].high, x[0].high - x[1].low};
     }},
    {"neg",
     [](In x) {
         return Interval{-x[0].high, -x[0].low};
     }},
    {"mul",
     [](In x) {
         const double ends[] = {x[0].low * x[1].low, x[0].low * x[1].high, x[0].high * x[1].low,
                                x[0].high * x[1].high};
         if (std::ranges::any_of(ends, [](double end) { return std::isnan(end); })) return Interval{};
         return Interval{std::ranges::min(ends), std::ranges::max(ends)};
     }},
    {"maximum",
     [](In x) {
         return Interval{std::max(x[0].low, x[1].low), std::max(x[0].high, x[1].high)};
     }},
    {"minimum",
     [](In x) {
         return Interval{std::min(x[0].low, x[1].low), std::min(x[0].high, x[1].high)};
     }},
    {"logical_and",
     [](In x) {
         return Interval{std::min(x[0].low, x[1].low), std::min(x[0].high, x[1].high)};
     }},
    {"less", [](In x) { return truth(x[0].high < x[1].low, x[0].low < x[1].high); }},
    {"less_equal", [](In x) { return truth(x[0].high <= x[1].low, x[0].low <= x[1].high); }},
    {"equal",
     [](In x) {
         const bool always = x[0].is_point() && x[1].is_point() && x[0].low == x[1].low;
         return truth(always, x[0].low <= x[1].high && x[1].low <= x[0].high);
     }},
    {"select",
     [](In x) {
         if (x[0].is_point()) return x[0].low != 0 ? x[1] : x[2];
         return Interval{std::min(x[1].low, x[2].low), std::max(x[1].high, x[2].high)};
     }},
    {"reshape", [](In x) { return x[0]; }},
    {"broadcast", [](In x) { return x[0]; }},
    {"stop_gradient", [](In x) { return x[0]; }}};

Rule rule_of(const Node& node, const std::vector<Type>& types) {
    if (node.op->name == "cast") {
        const DType from = types[0].dtype, to = node.outputs[0].dtype;
        if (to == DType::boolean && from != to)
            return [](In x) { return truth(x[0].low > 0 || x[0].high < 0, x[0].low != 0 || x[0].high != 0); };
        if (is_floating(from) && !is_floating(to) && to != DType::boolean)
            return [](In x) { return Interval{std::trunc(x[0].low), std::trunc(x[0].high)}; };
        return [](In x) { return x[0]; };
    }
    const auto rule = std::ranges::find(rules, node.op->name, &std::pair<std::string_view, Rule>::first);
    return rule == std::end(rules) ? nullptr : rule->second;
}

/// Whether a number is exact in the type, whatever it was computed from: whole, and not too large.
bool is_exact(double x, DType dtype) {
    const double most = dtype == DType::bf16 ? 0x1p8 : dtype == DType::f16 ? 0x1p11 : 0x1p24;
    return std::abs(x) <= most && x == std::trunc(x);
}

}  // namespace

VisibleSteps::VisibleSteps(const Graph& body) : places_(body.size()) {
    for (const Result& result : body.results())
        if (result.name == "visible") add(body, result.value.node);
}

void VisibleSteps::add(const Graph& body, NodeId id) {
    if (places_[id]) return;
    const Node& node = body.node(id);
    Step step{.node = node, .types = body.input_types(node)};
    for (const Value& input : node.inputs) {
        add(body, input.node);
        step.inputs.push_back(*places_[input.node]);
    }
    if (!node.inputs.empty()) step.rule = rule_of(node, step.types);
    if (node.op->name == "input") {
        const auto input = std::ranges::find(body.inputs(), id) - body.inputs().begin();
        if (input > 0) step.operand = static_cast<std::size_t>(input - 1);  // of the score nothing is known
    }
    if (node.op->name == "constant") step.value.low = step.value.high = node.attributes.number("value");
    if (node.op->name == "iota") {
        const int axis = static_cast<int>(node.attributes.integer("axis"));
        const Shape& shape = node.outputs[0].shape;
        if (shape[axis] > 1)
            step.axis = static_cast<std::size_t>(4 - shape.rank() + axis);
        else  // it is 0 everywhere, whatever it is stretched to
            step.value = {0, 0};
    }
    places_[id] = steps_.size();
    steps_.push_back(std::move(step));
}

bool VisibleSteps::counts(std::size_t axis) const {
    return std::ranges::find(steps_, std::optional(axis), &Step::axis) != steps_.end();
}

Interval VisibleSteps::evaluate(const Step& step, std::span<const Interval> operands, const Interval& own,
                                Points points) {
    const DType dtype = step.node.outputs[0].dtype;
    Interval now = step.axis || step.operand ? own : step.rule ? step.rule(operands) : step.value;
    const bool computed = !step.inputs.empty() && std::ranges::all_of(operands, &Interval::is_point) &&
                          !(now.is_point() && is_exact(now.low, dtype));
    if (computed && points == Points::exact) {
        std::vector<double> numbers;
        for (const Interval& operand : operands) numbers.push_back(operand.low);
        now.low = now.high = evaluate_on_numbers(step.node, step.types, numbers);
    }
    // As infinity minus infinity.
    if (std::isnan(now.low) || std::isnan(now.high)) now = {};
    if (dtype == DType::boolean) return truth(now.low > 0, now.high > 0);
    if (!is_floating(dtype)) return now.low < -0x1p31 || now.high >= 0x1p31 ? Interval{} : now;
    if (points == Points::exact && now.is_point()) return now;
    // Rounding may have moved an end that is no whole number.
    const double part = size_of(dtype) == 2 ? 0x1p-7 : 0x1p-20;
    if (!is_exact(now.low, dtype)) now.low -= std::abs(now.low) * part;
    if (!is_exact(now.high, dtype)) now.high += std::abs(now.high) * part;
    return now;
}

std::optional<PositionMask> PositionMask::of(const AttentionScore& score, bool causal,
                                             const AttentionExtents& e) {
    PositionMask mask(VisibleSteps(score.plain() ? Graph() : score.body->graph()));
    mask.causal_ = causal;
    mask.last_ = e.keys - e.queries;
    for (const VisibleSteps::Step& step : mask.steps_.steps())
        if (step.is("input") || step.is("random_uniform")) return std::nullopt;
    return mask;
}

/// Whether a pair of the box is visible: 1, 0, or both.
Interval PositionMask::evaluated(const PairBox& box, std::vector<Interval>& values) const {
    values.clear();
    std::vector<Interval> operands;
    for (const VisibleSteps::Step& step : steps_.steps()) {
        operands.clear();
        for (const std::size_t input : step.inputs) operands.push_back(values[input]);
        Interval counted;
        if (step.axis)
            counted = {static_cast<double>(box.begin[*step.axis]),
                       static_cast<double>(box.end[*step.axis] - 1)};
        values.push_back(VisibleSteps::evaluate(step, operands, counted, VisibleSteps::Points::exact));
    }
    Interval visible = values.empty() ? Interval{1, 1} : values.back();
    if (causal_) {
        if (box.begin[3] > box.end[2] - 1 + last_)
            visible.high = 0;  // the first key is too late for the last
        if (box.end[3] - 1 > box.begin[2] + last_) visible.low = 0;
        visible.low = std::min(visible.low, visible.high);
    }
    return visible;
}

/// Adds the visible pairs of the box; false if that takes too long.
bool PositionMask::count(const PairBox& box, std::vector<Interval>& values, std::int64_t& pairs,
                         std::int64_t& boxes) const {
    if (++boxes > max_boxes) return false;
    const Interval visible = evaluated(box, values);
    if (visible.low != 0) pairs += box.pairs();
    if (visible.low != 0 || visible.high == 0) return true;
    std::size_t longest = 3;
    for (const std::size_t axis : {2, 1, 0})
        if (box.end[axis] - box.begin[axis] > box.end[longest] - box.begin[longest]) longest = axis;
    if (box.end[longest] - box.begin[longest] == 1) return false;  // a mask of numbers that are none
    PairBox half = box;
    half.end[longest] = (box.begin[longest] + box.end[longest]) / 2;
    if (!count(half, values, pairs, boxes)) return false;
    half.begin[longest] = half.end[longest];
    half.end[longest] = box.end[longest];
    return count(half, values, pairs, boxes);
}

std::optional<std::int64_t> PositionMask::visible(const PairBox& box) const {
    PairBox one = box;
    std::int64_t times = 1;
    for (std::size_t axis = 0; axis < 4; ++axis) {
        if (box.end[axis] <= box.begin[axis]) return 0;
        if (axis >= 2 || steps_.counts(axis)) continue;
        times *= box.end[axis] - box.begin[axis];  // equal boxes are looked at once
        one.end[axis] = one.begin[axis] + 1;
    }
    std::vector<Interval> values;
    std::int64_t pairs = 0, boxes = 0;
    if (!count(one, values, pairs, boxes)) return std::nullopt;
    return pairs * times;
}

std::int64_t visible_pairs(const AttentionScore& score, bool causal, const AttentionExtents& e) {
    const std::int64_t T = e.queries, S = e.keys;
    const std::int64_t shown = e.sequences * e.heads * (causal ? T * (S - T) + T * (T + 1) / 2 : T * S);
    if (score.plain()) return shown;
    const auto mask = PositionMask::of(score, causal, e);
    return mask ? mask->visible({{}, {e.sequences, e.heads, T, S}}).value_or(shown) : shown;
}

VisibleBlocks visible_blocks(const AttentionScore& score, bool causal, const AttentionExtents& e,
                             std::int64_t queries, std::int64_t keys) {
    const auto mask = PositionMask::of(score, causal, e);
    const auto shown = mask ? mask : PositionMask::of({}, causal, e);
    VisibleBlocks blocks{.by_data = !mask.has_value()};
    const bool each_head = shown->depends_on_heads();
    const std::int64_t heads = e.sequences * e.heads;
    for (std::int64_t head = 0; head < (each_head ? heads : std::min<std::int64_t>(heads, 1)); ++head)
        for (std::int64_t i = 0; i < e.queries; i += queries)
            for (std::int64_t j = 0; j < e.keys; j += keys) {
                const std::int64_t sequence = head / e.heads, at = head % e.heads;
                const PairBox box{
                    {sequence, at, i, j},
                    {sequence + 1, at + 1, std::min(i + queries, e.queries), std::min(j + keys, e.keys)}};
                const std::int64_t times = each_head ? 1 : heads;
                blocks.all += times;
                if (shown->visible(box).value_or(1) > 0) blocks.computed += times;
            }
    return blocks;
}

}  // namespace mantissa
