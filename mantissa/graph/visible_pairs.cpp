#include "mantissa/graph/visible_pairs.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "mantissa/graph/graph.h"
#include "mantissa/graph/reference.h"

namespace mantissa::inline v0 {

namespace {

/// A mask with a border or two along 8,192 positions takes some hundred thousand boxes; noise takes as many
/// as there are pairs.
constexpr std::int64_t max_boxes = 1 << 20;

constexpr double infinity = std::numeric_limits<double>::infinity();

}  // namespace

std::int64_t PairBox::pairs() const {
    std::int64_t count = 1;
    for (std::size_t axis = 0; axis < begin.size(); ++axis) count *= end[axis] - begin[axis];
    return count;
}

/// The rule of primitives whose values over a box follow from those of their operands. Null: of others
/// something is known at single pairs only.
PositionMask::Rule PositionMask::rule_of(const Node& node, const std::vector<Type>& types) {
    using In = std::span<const Interval>;
    const std::string_view op = node.op->name;
    if (op == "add") return [](In x) { return Interval{x[0].low + x[1].low, x[0].high + x[1].high}; };
    if (op == "sub") return [](In x) { return Interval{x[0].low - x[1].high, x[0].high - x[1].low}; };
    if (op == "neg") return [](In x) { return Interval{-x[0].high, -x[0].low}; };
    if (op == "maximum")
        return [](In x) { return Interval{std::max(x[0].low, x[1].low), std::max(x[0].high, x[1].high)}; };
    if (op == "minimum" || op == "logical_and")
        return [](In x) { return Interval{std::min(x[0].low, x[1].low), std::min(x[0].high, x[1].high)}; };
    if (op == "mul")
        return [](In x) {
            const std::array<double, 4> ends{x[0].low * x[1].low, x[0].low * x[1].high, x[0].high * x[1].low,
                                             x[0].high * x[1].high};
            const auto [low, high] = std::ranges::minmax(ends);
            return Interval{low, high};
        };
    if (op == "less")
        return [](In x) {
            return Interval{x[0].high < x[1].low ? 1.0 : 0.0, x[0].low < x[1].high ? 1.0 : 0.0};
        };
    if (op == "less_equal")
        return [](In x) {
            return Interval{x[0].high <= x[1].low ? 1.0 : 0.0, x[0].low <= x[1].high ? 1.0 : 0.0};
        };
    if (op == "equal")
        return [](In x) {
            const bool never = x[0].high < x[1].low || x[1].high < x[0].low;
            const bool always = x[0].is_point() && x[1].is_point() && x[0].low == x[1].low;
            return Interval{always ? 1.0 : 0.0, never ? 0.0 : 1.0};
        };
    if (op == "select")
        return [](In x) {
            if (x[0].is_point()) return x[0].low != 0 ? x[1] : x[2];
            return Interval{std::min(x[1].low, x[2].low), std::max(x[1].high, x[2].high)};
        };
    const bool widens = op == "cast" && types[0].dtype != DType::boolean &&
                        (node.outputs[0].dtype == DType::f32 || node.outputs[0].dtype == DType::f64);
    if (widens || op == "reshape") return [](In x) { return x[0]; };
    return nullptr;
}

/// Appends the steps that give the node; false where it does not follow from positions.
bool PositionMask::add(const Graph& body, NodeId id, std::vector<int>& places) {
    int& place = places[id];
    if (place >= 0) return true;
    const Node& node = body.node(id);
    if (node.op->name == "input" || node.op->name == "random_uniform") return false;
    Step step{.node = node, .types = body.input_types(node)};
    for (const Value& input : node.inputs) {
        if (!add(body, input.node, places)) return false;
        step.inputs.push_back(static_cast<std::size_t>(places[input.node]));
    }
    step.rule = rule_of(node, step.types);
    if (node.op->name == "constant") step.value = node.attributes.number("value");
    if (node.op->name == "iota") {
        const int axis = static_cast<int>(node.attributes.integer("axis"));
        const Shape& shape = node.outputs[0].shape;
        if (shape[axis] > 1) {  // else it is 0 everywhere, whatever it is stretched to
            step.axis = axis + 4 - shape.rank();
            reads_[step.axis] = true;
        }
    }
    place = static_cast<int>(steps_.size());
    steps_.push_back(std::move(step));
    return true;
}

std::optional<PositionMask> PositionMask::of(const AttentionScore& score, bool causal,
                                             const AttentionExtents& e) {
    PositionMask mask;
    mask.causal_ = causal;
    mask.last_ = e.keys - e.queries;
    if (score.plain()) return mask;
    const Graph& body = score.body->graph();
    std::vector<int> places(body.size(), -1);
    for (const Result& result : body.results()) {
        if (result.name != "visible") continue;
        if (!mask.add(body, result.value.node, places)) return std::nullopt;
    }
    return mask;
}

PositionMask::Interval PositionMask::of_step(const Step& step, const PairBox& box,
                                             std::span<const Interval> operands) const {
    if (step.axis >= 0) {
        const auto axis = static_cast<std::size_t>(step.axis);
        return {static_cast<double>(box.begin[axis]), static_cast<double>(box.end[axis] - 1)};
    }
    if (step.node.inputs.empty()) return {step.value, step.value};
    Interval result{-infinity, infinity};
    if (step.rule) {
        result = step.rule(operands);
    } else if (std::ranges::all_of(operands, &Interval::is_point)) {
        std::vector<double> numbers;
        for (const Interval& operand : operands) numbers.push_back(operand.low);
        const double value = evaluate_on_numbers(step.node, step.types, numbers);
        result = {value, value};
    } else if (step.node.outputs[0].dtype == DType::boolean) {
        result = {0, 1};
    }
    // As infinity minus infinity; a single pair is never without an answer but for a mask that is none.
    if (std::isnan(result.low) || std::isnan(result.high)) result = {-infinity, infinity};
    return result;
}

/// Whether a pair of the box is visible: 1, 0, or both.
PositionMask::Interval PositionMask::evaluated(const PairBox& box, std::vector<Interval>& values) const {
    values.clear();
    std::array<Interval, 3> operands;
    for (const Step& step : steps_) {
        for (std::size_t i = 0; i < step.inputs.size(); ++i) operands[i] = values[step.inputs[i]];
        values.push_back(of_step(step, box, {operands.data(), step.inputs.size()}));
    }
    Interval visible = steps_.empty() ? Interval{1, 1} : values.back();
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
        if (axis >= 2 || reads_[axis]) continue;
        times *= box.end[axis] - box.begin[axis];  // one of equals is looked at
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
