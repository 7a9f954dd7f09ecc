#include "mantissa/device/cpu/kernels/score_blocks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <string_view>

#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/rows/kernel_table.h"
#include "mantissa/numerics/formats.h"

namespace mantissa::inline v0::on_cpu {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// Values of one step in each box lie between these.
struct Bounds {
    std::vector<double> low, high;

    explicit Bounds(std::size_t count) : low(count, -infinity), high(count, infinity) {}
    void widen(std::size_t i, double value) {
        low[i] = std::min(low[i], value);
        high[i] = std::max(high[i], value);
    }
};

/// Whole numbers up to here are exact in every format that a mask counts in; others may have been rounded.
bool is_exact(double x) { return std::abs(x) <= 0x1p24 && x == std::trunc(x); }

}  // namespace

/// The least and the greatest element of an operand that goes along queries alone, or keys, by blocks of
/// them: what all boxes are told by, so that no element is looked at twice. Empty for others.
struct VisibleBlocks::OperandBounds {
    std::int64_t blocks = 0;
    std::vector<double> low, high;  // [tables, blocks]

    std::pair<double, double> of(std::int64_t table, Range positions) const {
        std::pair<double, double> found{infinity, -infinity};
        for (std::int64_t i = positions.first / table_positions; i * table_positions < positions.last; ++i) {
            const auto at = static_cast<std::size_t>(table * blocks + i);
            found = {std::min(found.first, low[at]), std::max(found.second, high[at])};
        }
        return found;
    }
};

namespace {

/// Elements of an operand along the two axes.
struct Region {
    std::int64_t first, rows, row_step, columns, column_step;
};

/// The least and the greatest; of whole numbers in their own type, so that the loop is one of vectors.
template <class T>
std::pair<double, double> extremes_of_whole(const T* data, const Region& region) {
    T low = std::numeric_limits<T>::max(), high = std::numeric_limits<T>::min();
    for (std::int64_t i = 0; i < region.rows; ++i) {
        const T* const row = data + region.first + i * region.row_step;
        for (std::int64_t j = 0; j < region.columns; ++j) {
            low = std::min(low, row[j * region.column_step]);
            high = std::max(high, row[j * region.column_step]);
        }
    }
    return {static_cast<double>(low), static_cast<double>(high)};
}

std::pair<double, double> extremes_in(const ScoreOperand& operand, const Region& region) {
    if (operand.dtype == DType::i32)
        return extremes_of_whole(static_cast<const std::int32_t*>(operand.data), region);
    if (operand.dtype == DType::boolean || operand.dtype == DType::u8)
        return extremes_of_whole(static_cast<const std::uint8_t*>(operand.data), region);
    std::pair<double, double> found{infinity, -infinity};
    for (std::int64_t i = 0; i < region.rows; ++i)
        for (std::int64_t j = 0; j < region.columns; ++j) {
            const std::int64_t at = region.first + i * region.row_step + j * region.column_step;
            const double value = load_as_f64(operand.data, operand.dtype, at);
            if (std::isnan(value)) return {-infinity, infinity};
            found = {std::min(found.first, value), std::max(found.second, value)};
        }
    return found;
}

/// The extremes of what pairs read.
std::pair<double, double> extremes(const ScoreOperand& operand, std::int64_t base, Range queries,
                                   Range keys) {
    const PairStrides& s = operand.strides;
    const std::int64_t rows = queries.last - queries.first, columns = keys.last - keys.first;
    if (s.query == -s.key && s.key != 0)  // a table by distance is read along it once
        return extremes_in(
            operand, {base + (keys.first - (queries.last - 1)) * s.key, 1, 0, rows + columns - 1, s.key});
    const std::int64_t first = base + queries.first * s.query + keys.first * s.key;
    if (s.query == 1 || s.key == 0) return extremes_in(operand, {first, columns, s.key, rows, s.query});
    return extremes_in(operand, {first, rows, s.query, columns, s.key});
}

}  // namespace

/// A grid of boxes: ranges of queries by ranges of keys.
class VisibleBlocks::Evaluation {
  public:
    Evaluation(const VisibleBlocks& visible, std::span<const ScoreOperand> operands,
               std::span<const OperandBounds> bounds, std::int64_t table)
        : visible_(visible), operands_(operands), bounds_(bounds), table_(table) {
        const std::int64_t heads = visible.by_head_ ? visible.size_.heads : 1;
        sequence_ = table / heads, head_ = table % heads;
    }

    /// By box, queries by queries.
    std::vector<Sees> run(std::span<const Range> queries, std::span<const Range> keys) {
        queries_ = queries, keys_ = keys;
        values_.clear();
        for (const Step& step : visible_.steps_) values_.push_back(bounds(step));
        std::vector<Sees> sees;
        for (std::size_t i = 0; i < queries.size() * keys.size(); ++i)
            sees.push_back(values_.back().low[i] > 0    ? Sees::everything
                           : values_.back().high[i] < 1 ? Sees::nothing
                                                        : Sees::some);
        return sees;
    }

  private:
    Bounds bounds(const Step& step) const {
        Bounds to(queries_.size() * keys_.size());
        if (step.rule == Rule::operand) {
            scan(step, to);
        } else {
            for (std::size_t i = 0; i < to.low.size(); ++i) compute(step, i, to);
        }
        for (std::size_t i = 0; i < to.low.size(); ++i) settle(step, to.low[i], to.high[i]);
        return to;
    }

    /// NaN means that nothing is known, and what may have been rounded, or wrapped round, is wider than it
    /// says.
    static void settle(const Step& step, double& low, double& high) {
        if (std::isnan(low) || std::isnan(high)) low = -infinity, high = infinity;
        if (step.boolean) {
            low = low > 0 ? 1 : 0;
            high = high > 0 ? 1 : 0;
        } else if (step.floating) {
            if (!is_exact(low)) low -= std::abs(low) * 0x1p-7;
            if (!is_exact(high)) high += std::abs(high) * 0x1p-7;
        } else if (low < -0x1p31 || high >= 0x1p31) {
            low = -infinity, high = infinity;
        }
    }

    void compute(const Step& step, std::size_t i, Bounds& to) const {
        std::array<double, 3> low{}, high{};
        for (std::size_t k = 0; k < step.inputs.size(); ++k) {
            low[k] = values_[step.inputs[k]].low[i];
            high[k] = values_[step.inputs[k]].high[i];
        }
        const auto set = [&](double least, double greatest) { to.low[i] = least, to.high[i] = greatest; };
        switch (step.rule) {
            case Rule::constant:
                return set(step.value, step.value);
            case Rule::counter: {
                const Range counted = range_of(step.index, i);
                return set(static_cast<double>(counted.first), static_cast<double>(counted.last - 1));
            }
            case Rule::same:
                return set(low[0], high[0]);
            case Rule::negated:
                return set(-high[0], -low[0]);
            case Rule::sum:
                return set(low[0] + low[1], high[0] + high[1]);
            case Rule::difference:
                return set(low[0] - high[1], high[0] - low[1]);
            case Rule::product: {
                const double ends[] = {low[0] * low[1], low[0] * high[1], high[0] * low[1],
                                       high[0] * high[1]};
                if (std::ranges::any_of(ends, [](double x) { return std::isnan(x); }))
                    return set(-infinity, infinity);
                return set(*std::ranges::min_element(ends), *std::ranges::max_element(ends));
            }
            case Rule::largest:
                return set(std::max(low[0], low[1]), std::max(high[0], high[1]));
            case Rule::smallest:
            case Rule::both:
                return set(std::min(low[0], low[1]), std::min(high[0], high[1]));
            case Rule::less:
                return set(high[0] < low[1], low[0] < high[1]);
            case Rule::less_equal:
                return set(high[0] <= low[1], low[0] <= high[1]);
            case Rule::equal:
                return set(low[0] == high[0] && low[1] == high[1] && low[0] == low[1],
                           low[0] <= high[1] && low[1] <= high[0]);
            case Rule::chosen:
                return set(low[0] > 0    ? low[1]
                           : high[0] < 1 ? low[2]
                                         : std::min(low[1], low[2]),
                           low[0] > 0    ? high[1]
                           : high[0] < 1 ? high[2]
                                         : std::max(high[1], high[2]));
            case Rule::to_integer:
                return set(std::trunc(low[0]), std::trunc(high[0]));
            case Rule::to_boolean:
                return set(low[0] > 0 || high[0] < 0, low[0] != 0 || high[0] != 0);
            case Rule::operand:
            case Rule::unknown:
                return set(step.boolean ? 0 : -infinity, step.boolean ? 1 : infinity);
        }
    }

    Range range_of(std::size_t axis, std::size_t box) const {
        if (axis == 0) return {sequence_, sequence_ + 1};
        if (axis == 1) return {head_, head_ + 1};
        return axis == 2 ? queries_[box / keys_.size()] : keys_[box % keys_.size()];
    }

    /// The least and the greatest of what the boxes read: once for each range along an axis where the operand
    /// goes along that alone.
    void scan(const Step& step, Bounds& to) const {
        const ScoreOperand& operand = operands_[step.index];
        const PairStrides& s = operand.strides;
        const std::size_t rows = s.query != 0 ? queries_.size() : 1, columns = s.key != 0 ? keys_.size() : 1;
        for (std::size_t row = 0; row < rows; ++row)
            for (std::size_t column = 0; column < columns; ++column) {
                const Range queries = s.query != 0 ? queries_[row] : Range{0, 1};
                const Range keys = s.key != 0 ? keys_[column] : Range{0, 1};
                const auto [low, high] = extremes_of(step.index, queries, keys);
                for (std::size_t i = s.query != 0 ? row : 0; i < (s.query != 0 ? row + 1 : queries_.size());
                     ++i)
                    for (std::size_t k = s.key != 0 ? column : 0;
                         k < (s.key != 0 ? column + 1 : keys_.size()); ++k)
                        to.low[i * keys_.size() + k] = low, to.high[i * keys_.size() + k] = high;
            }
    }

    std::pair<double, double> extremes_of(std::size_t operand, Range queries, Range keys) const {
        const PairStrides& s = operands_[operand].strides;
        const OperandBounds& known = bounds_[operand];
        if (known.blocks > 0) return known.of(table_, s.query != 0 ? queries : keys);
        return extremes(operands_[operand], sequence_ * s.sequence + head_ * s.head, queries, keys);
    }

    const VisibleBlocks& visible_;
    std::span<const ScoreOperand> operands_;
    std::span<const OperandBounds> bounds_;
    std::int64_t table_, sequence_, head_;
    std::span<const Range> queries_, keys_;
    std::vector<Bounds> values_;
};

VisibleBlocks::Rule VisibleBlocks::rule_of(const Node& node, const Type& first_input) {
    static const std::map<std::string_view, Rule> rules = {
        {"constant", Rule::constant}, {"iota", Rule::counter},          {"neg", Rule::negated},
        {"add", Rule::sum},           {"sub", Rule::difference},        {"mul", Rule::product},
        {"maximum", Rule::largest},   {"minimum", Rule::smallest},      {"logical_and", Rule::both},
        {"less", Rule::less},         {"less_equal", Rule::less_equal}, {"equal", Rule::equal},
        {"select", Rule::chosen},     {"reshape", Rule::same},          {"broadcast", Rule::same},
        {"stop_gradient", Rule::same}};
    if (node.op->name == "cast") {
        const DType from = first_input.dtype, to = node.outputs[0].dtype;
        if (to == DType::boolean) return from == to ? Rule::same : Rule::to_boolean;
        return is_floating(from) && !is_floating(to) ? Rule::to_integer : Rule::same;
    }
    const auto entry = rules.find(node.op->name);
    return entry == rules.end() ? Rule::unknown : entry->second;
}

std::optional<VisibleBlocks> VisibleBlocks::of(const Graph& body, const AttentionSize& size,
                                               std::span<const ScoreOperand> operands) {
    const auto& results = body.results();
    const auto visible = std::ranges::find(results, std::string("visible"), &Result::name);
    if (visible == results.end()) return std::nullopt;
    VisibleBlocks made;
    made.size_ = size;
    made.rows_ = ceil_div(size.queries, table_positions);
    made.columns_ = ceil_div(size.keys, table_positions);
    std::vector<bool> needed(body.size());
    needed[visible->value.node] = true;
    for (NodeId id = body.end(); id-- > 0;)
        for (const Value& input : body.node(id).inputs)
            if (needed[id]) needed[input.node] = true;
    std::vector<std::size_t> places(body.size());
    for (NodeId id = 0; id < body.end(); ++id) {
        const Node& node = body.node(id);
        if (!needed[id]) continue;
        const DType dtype = node.outputs[0].dtype;
        Step step{.boolean = dtype == DType::boolean, .floating = is_floating(dtype)};
        if (node.op->name == "input") {
            const auto input =
                static_cast<std::size_t>(std::ranges::find(body.inputs(), id) - body.inputs().begin());
            if (input > 0) {  // of the score nothing is known
                step.rule = Rule::operand;
                step.index = input - 1;
                made.by_positions_ = false;
                made.by_sequence_ = made.by_sequence_ || operands[input - 1].strides.sequence != 0;
                made.by_head_ = made.by_head_ || operands[input - 1].strides.head != 0;
            }
        } else {
            step.rule = rule_of(node, node.inputs.empty() ? Type{} : body.type(node.inputs[0]));
            for (const Value& input : node.inputs) step.inputs.push_back(places[input.node]);
            if (step.rule == Rule::constant) step.value = node.attributes.number("value");
            if (step.rule == Rule::counter) {
                const auto axis = static_cast<int>(node.attributes.integer("axis"));
                const Shape& shape = node.outputs[0].shape;
                step.index = static_cast<std::size_t>(4 - shape.rank() + axis);
                if (shape[axis] == 1) step = {.rule = Rule::constant, .floating = step.floating};
                made.by_sequence_ = made.by_sequence_ || (step.rule == Rule::counter && step.index == 0);
                made.by_head_ = made.by_head_ || (step.rule == Rule::counter && step.index == 1);
            }
        }
        places[id] = made.steps_.size();
        made.steps_.push_back(std::move(step));
    }
    return made;
}

BlockTable VisibleBlocks::table(const Sees* blocks) const {
    const std::int64_t each = rows_ * columns_;
    return {blocks, by_sequence_ ? each * (by_head_ ? size_.heads : 1) : 0, by_head_ ? each : 0};
}

std::vector<VisibleBlocks::OperandBounds> VisibleBlocks::bounds_of(
    std::span<const ScoreOperand> operands) const {
    std::vector<OperandBounds> bounds(operands.size());
    const std::int64_t heads = by_head_ ? size_.heads : 1;
    for (const Step& step : steps_) {
        if (step.rule != Rule::operand) continue;
        const ScoreOperand& operand = operands[step.index];
        const PairStrides& s = operand.strides;
        OperandBounds& to = bounds[step.index];
        if ((s.query != 0) == (s.key != 0) || to.blocks > 0) continue;
        const std::int64_t positions = s.query != 0 ? size_.queries : size_.keys;
        to.blocks = ceil_div(positions, table_positions);
        to.low.resize(tables() * to.blocks);
        to.high.resize(to.low.size());
        for (std::int64_t i = 0; i < tables() * to.blocks; ++i) {
            const std::int64_t table = i / to.blocks, first = i % to.blocks * table_positions;
            const Range range{first, std::min(positions, first + table_positions)}, one{0, 1};
            const auto [low, high] = extremes(operand, table / heads * s.sequence + table % heads * s.head,
                                              s.query != 0 ? range : one, s.query != 0 ? one : range);
            to.low[i] = low;
            to.high[i] = high;
        }
    }
    return bounds;
}

void VisibleBlocks::fill(std::span<const ScoreOperand> operands, Sees* blocks, ThreadPool& pool) const {
    // Eight blocks by eight at first, and each of them only where that leaves something open.
    constexpr std::int64_t coarse = 8;
    const auto ranges = [](std::int64_t first, std::int64_t last, std::int64_t step, std::int64_t end) {
        std::vector<Range> made;
        for (std::int64_t i = first; i < last; i += step)
            made.push_back({i * table_positions, std::min(end, std::min(last, i + step) * table_positions)});
        return made;
    };
    const std::int64_t bands = ceil_div(rows_, coarse);
    const std::vector<OperandBounds> bounds = bounds_of(operands);
    pool.for_each_block(tables() * bands, [&](std::int64_t item, int) {
        const std::int64_t table = item / bands, first_row = item % bands * coarse;
        const std::int64_t last_row = std::min(rows_, first_row + coarse);
        Evaluation evaluation(*this, operands, bounds, table);
        Sees* const to = blocks + table * rows_ * columns_;
        const std::vector<Range> all_keys = ranges(0, columns_, coarse, size_.keys);
        const std::vector<Range> rows = ranges(first_row, last_row, 1, size_.queries);
        const std::vector<Sees> whole =
            evaluation.run(ranges(first_row, last_row, coarse, size_.queries), all_keys);
        for (std::size_t part = 0; part < whole.size(); ++part) {
            const std::int64_t first = static_cast<std::int64_t>(part) * coarse;
            const std::int64_t last = std::min(columns_, first + coarse);
            std::vector<Sees> fine;
            if (whole[part] == Sees::some) fine = evaluation.run(rows, ranges(first, last, 1, size_.keys));
            for (std::int64_t row = first_row; row < last_row; ++row)
                for (std::int64_t column = first; column < last; ++column)
                    to[row * columns_ + column] =
                        fine.empty() ? whole[part]
                                     : fine[(row - first_row) * (last - first) + column - first];
        }
    });
}

bool VisibleBlocks::sees_everything(const Sees* blocks) const {
    const std::int64_t ahead = size_.keys - size_.queries;
    for (std::int64_t table = 0; table < tables(); ++table)
        for (std::int64_t row = 0; row < rows_; ++row) {
            const std::int64_t last_query = std::min(size_.queries, (row + 1) * table_positions) - 1;
            const std::int64_t seen = size_.causal ? last_query + ahead + 1 : size_.keys;
            for (std::int64_t column = 0; column * table_positions < seen; ++column)
                if (blocks[(table * rows_ + row) * columns_ + column] != Sees::everything) return false;
        }
    return true;
}

}  // namespace mantissa::on_cpu
