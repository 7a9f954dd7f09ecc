#include "mantissa/device/cpu/kernels/attention_score.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "mantissa/base/error.h"
#include "mantissa/base/function_ref.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/rows/kernel_table.h"
#include "mantissa/device/cpu/rows/partition.h"
#include "mantissa/numerics/formats.h"

namespace mantissa::inline v0::on_cpu {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

}  // namespace

/// The least and the greatest element of an operand that goes along queries alone, or keys, by blocks of
/// them. All boxes use these, so that no element is looked at twice. Empty for other operands.
struct VisibleBlocks::OperandBounds {
    std::int64_t blocks = 0;
    std::vector<Interval> values;  // [tables, blocks]

    Interval of(std::int64_t table, Range positions) const {
        Interval found{infinity, -infinity};
        for (std::int64_t i = positions.first / table_positions; i * table_positions < positions.last; ++i) {
            const Interval& now = values[table * blocks + i];
            found = {std::min(found.low, now.low), std::max(found.high, now.high)};
        }
        return found;
    }
};

namespace {

/// Elements of an operand along the two axes.
struct Region {
    std::int64_t first, rows, row_step, columns, column_step;
};

/// The least and the greatest element; whole numbers in their own type, so that the loop is one of vectors.
template <class T>
Interval extremes_of_whole(const T* data, const Region& region) {
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

Interval extremes_in(const ScoreOperand& operand, const Region& region) {
    if (operand.dtype == DType::i32)
        return extremes_of_whole(static_cast<const std::int32_t*>(operand.data), region);
    if (operand.dtype == DType::boolean || operand.dtype == DType::u8)
        return extremes_of_whole(static_cast<const std::uint8_t*>(operand.data), region);
    Interval found{infinity, -infinity};
    for (std::int64_t i = 0; i < region.rows; ++i)
        for (std::int64_t j = 0; j < region.columns; ++j) {
            const std::int64_t at = region.first + i * region.row_step + j * region.column_step;
            const double value = load_as_f64(operand.data, operand.dtype, at);
            if (std::isnan(value)) return {};
            found = {std::min(found.low, value), std::max(found.high, value)};
        }
    return found;
}

/// The extremes of the elements that pairs read.
Interval extremes(const ScoreOperand& operand, std::int64_t base, Range queries, Range keys) {
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
        for (const Step& step : visible_.steps_.steps()) values_.push_back(evaluated(step));
        std::vector<Sees> sees;
        for (const Interval& visible : values_.back())
            sees.push_back(visible.low > 0    ? Sees::everything
                           : visible.high < 1 ? Sees::nothing
                                              : Sees::some);
        return sees;
    }

  private:
    using Step = VisibleSteps::Step;

    /// By box.
    std::vector<Interval> evaluated(const Step& step) const {
        std::vector<Interval> to(queries_.size() * keys_.size());
        if (step.operand) scan(*step.operand, to);
        std::vector<Interval> operands(step.inputs.size());
        for (std::size_t i = 0; i < to.size(); ++i) {
            for (std::size_t k = 0; k < operands.size(); ++k) operands[k] = values_[step.inputs[k]][i];
            if (step.axis) {
                const Range counted = range_of(*step.axis, i);
                to[i] = {static_cast<double>(counted.first), static_cast<double>(counted.last - 1)};
            }
            to[i] = VisibleSteps::evaluate(step, operands, to[i], VisibleSteps::Points::rounded);
        }
        return to;
    }

    Range range_of(std::size_t axis, std::size_t box) const {
        if (axis == 0) return {sequence_, sequence_ + 1};
        if (axis == 1) return {head_, head_ + 1};
        return axis == 2 ? queries_[box / keys_.size()] : keys_[box % keys_.size()];
    }

    /// The least and the greatest element that boxes read: once for each range along an axis where the
    /// operand goes along that alone.
    void scan(std::size_t operand, std::vector<Interval>& to) const {
        const PairStrides& s = operands_[operand].strides;
        const std::size_t rows = s.query != 0 ? queries_.size() : 1, columns = s.key != 0 ? keys_.size() : 1;
        for (std::size_t row = 0; row < rows; ++row)
            for (std::size_t column = 0; column < columns; ++column) {
                const Range queries = s.query != 0 ? queries_[row] : Range{0, 1};
                const Range keys = s.key != 0 ? keys_[column] : Range{0, 1};
                const Interval read = extremes_of(operand, queries, keys);
                for (std::size_t i = s.query != 0 ? row : 0; i < (s.query != 0 ? row + 1 : queries_.size());
                     ++i)
                    for (std::size_t k = s.key != 0 ? column : 0;
                         k < (s.key != 0 ? column + 1 : keys_.size()); ++k)
                        to[i * keys_.size() + k] = read;
            }
    }

    Interval extremes_of(std::size_t operand, Range queries, Range keys) const {
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
    std::vector<std::vector<Interval>> values_;  // by step and box
};

std::optional<VisibleBlocks> VisibleBlocks::of(const Graph& body, const AttentionSize& size,
                                               std::span<const ScoreOperand> operands) {
    VisibleBlocks made{VisibleSteps(body)};
    if (made.steps_.steps().empty()) return std::nullopt;
    made.size_ = size;
    made.rows_ = ceil_div(size.queries, table_positions);
    made.columns_ = ceil_div(size.keys, table_positions);
    made.by_sequence_ = made.steps_.counts(0);
    made.by_head_ = made.steps_.counts(1);
    for (const VisibleSteps::Step& step : made.steps_.steps()) {
        if (!step.operand) continue;
        made.by_positions_ = false;
        made.by_sequence_ = made.by_sequence_ || operands[*step.operand].strides.sequence != 0;
        made.by_head_ = made.by_head_ || operands[*step.operand].strides.head != 0;
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
    for (const VisibleSteps::Step& step : steps_.steps()) {
        if (!step.operand) continue;
        const ScoreOperand& operand = operands[*step.operand];
        const PairStrides& s = operand.strides;
        OperandBounds& to = bounds[*step.operand];
        if ((s.query != 0) == (s.key != 0) || to.blocks > 0) continue;
        const std::int64_t positions = s.query != 0 ? size_.queries : size_.keys;
        to.blocks = ceil_div(positions, table_positions);
        to.values.resize(tables() * to.blocks);
        for (std::int64_t i = 0; i < tables() * to.blocks; ++i) {
            const std::int64_t table = i / to.blocks, first = i % to.blocks * table_positions;
            const Range range{first, std::min(positions, first + table_positions)}, one{0, 1};
            to.values[i] = extremes(operand, table / heads * s.sequence + table % heads * s.head,
                                    s.query != 0 ? range : one, s.query != 0 ? one : range);
        }
    }
    return bounds;
}

void VisibleBlocks::fill(std::span<const ScoreOperand> operands, Sees* blocks, ThreadPool& pool) const {
    // Eight blocks by eight at first; the blocks one by one only where that leaves something open.
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

namespace {

void store_gradient(const float* from, std::int64_t count, DType dtype, std::byte* to, ThreadPool& pool) {
    for_each_range(pool, count, block_elements, [&](Range range, std::int64_t) {
        for (std::int64_t i = range.first; i < range.last; ++i)
            store_from_f64(to, dtype, i, static_cast<double>(from[i]));
    });
}

}  // namespace

void BoundScore::add_operands(const ScoreProblem& problem) {
    const AttentionScore score = attention_score(problem.attributes);
    const std::vector<bool> asked = asked_score_gradients(problem.attributes, score.operands.size());
    for (std::size_t i = 0; i < score.operands.size(); ++i) {
        const Type& type = problem.operands[i];
        const ScorePlace place = place_of_score_operand(score.operands[i], type.shape, problem.extents);
        const PairStrides strides{place.sequence, place.head, place.query, place.key};
        operands_.push_back({.dtype = type.dtype, .strides = strides});
        first_.push_back(place.first);
        if (!asked[i] || problem.pass == ScorePass::forward) continue;
        gradients_.push_back({i, type.shape.elements(), type.dtype});
        gradient_sizes_.push_back({.count = type.shape.elements(), .first = place.first, .strides = strides});
        if (type.dtype != DType::f32) gradient_bytes_ += in_lines(type.shape.elements() * float_bytes);
    }
}

void BoundScore::find_blocks(const ScoreProblem& problem, ThreadPool& pool) {
    blocks_ = VisibleBlocks::of(problem.attributes.body("score").graph(), problem.size, operands_);
    if (!blocks_) return;
    if (!blocks_->by_positions()) {
        table_bytes_ = in_lines(blocks_->bytes());
        return;
    }
    fixed_.resize(blocks_->bytes());
    blocks_->fill({}, fixed_.data(), pool);
    if (blocks_->sees_everything(fixed_.data()))
        fixed_.clear();
    else
        fixed_table_ = blocks_->table(fixed_.data());
    blocks_.reset();
}

void BoundScore::add_functions(const codegen::ScoreForm& form, ScorePass pass, codegen::Compiler& compiler) {
    const bool forward = pass == ScorePass::forward;
    if (!form.is_score || !gradients_.empty()) plain_ = compiler.add(forward ? form.forward : form.backward);
    if (blocks_ || fixed_table_.blocks) {
        masked_ = compiler.add(forward ? form.forward_masked : form.backward_masked);
        mask_ = compiler.add(forward ? form.forward_mask : form.backward_mask);
    }
    if (!gradients_.empty()) sums_ = compiler.add(form.sums);
    sizes_ = {.slopes = !forward && !form.unit_slope && !form.is_score,
              .multiplies = form.multiplies,
              .operands = operands_.data(),
              .operand_count = static_cast<std::int64_t>(operands_.size()),
              .gradients = gradient_sizes_.data(),
              .gradient_count = static_cast<std::int64_t>(gradient_sizes_.size())};
    // Whether there are sums matters to the size of the workspace, not which function makes them.
    if (sums_) sizes_.sums = [](const codegen::ScoreBlock*) {};
}

Expected<std::shared_ptr<const BoundScore>> BoundScore::of(const ScoreProblem& problem,
                                                           codegen::Compiler& compiler, ThreadPool& pool) {
    if (!problem.attributes.has("score")) return std::shared_ptr<const BoundScore>{};
    if (std::string reason = codegen::Compiler::refusal(); !reason.empty()) return Unexpected{reason};
    const auto bound = std::make_shared<BoundScore>();
    bound->pass_ = problem.pass;
    bound->add_operands(problem);
    if (bound->operands_.size() > static_cast<std::size_t>(max_score_operands))
        return Unexpected{fmt::format("its score has {} operands, kernels take {}", bound->operands_.size(),
                                      max_score_operands)};
    if (bound->gradients_.size() > static_cast<std::size_t>(max_score_gradients))
        return Unexpected{fmt::format("its score has {} operands with gradients, kernels make {}",
                                      bound->gradients_.size(), max_score_gradients)};
    codegen::ScoreRequest request{.body = problem.attributes.body("score").graph()};
    for (const ScoreOperand& operand : bound->operands_)
        request.operands.push_back({operand.strides.query, operand.strides.key});
    request.rounded = size_of(problem.size.dtype) == 2;
    request.gradients = asked_score_gradients(problem.attributes, bound->operands_.size());
    const Expected<codegen::ScoreForm> form = codegen::score_form(request);
    if (!form) return Unexpected{"its score: " + form.reason()};
    bound->find_blocks(problem, pool);
    bound->add_functions(*form, problem.pass, compiler);
    return std::shared_ptr<const BoundScore>(bound);
}

Score BoundScore::placed_functions() const {
    const auto function = [](const auto& kernel) -> codegen::ScoreFunction {
        if (!kernel) return nullptr;
        check(kernel->function != nullptr, "score functions are compiled before they are launched");
        return kernel->function;
    };
    Score score = sizes_;
    (pass_ == ScorePass::forward ? score.forward : score.backward) = function(plain_);
    (pass_ == ScorePass::forward ? score.forward_masked : score.backward_masked) = function(masked_);
    (pass_ == ScorePass::forward ? score.forward_mask : score.backward_mask) = function(mask_);
    score.sums = function(sums_);
    score.table = fixed_table_;
    return score;
}

void BoundScore::launch(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
                        std::byte* workspace, ThreadPool& pool, FunctionRef<void(const Score&)> run) const {
    Score score = placed_functions();
    std::array<ScoreOperand, max_score_operands> operands;
    for (std::size_t i = 0; i < operands_.size(); ++i) {
        operands[i] = operands_[i];
        operands[i].data = inputs[i] + first_[i] * static_cast<std::int64_t>(size_of(operands_[i].dtype));
    }
    score.operands = operands.data();
    if (blocks_) {
        Sees* const table = reinterpret_cast<Sees*>(workspace);
        blocks_->fill({operands.data(), operands_.size()}, table, pool);
        score.table = blocks_->table(table);
    }
    std::array<ScoreGradient, max_score_gradients> gradients;
    std::byte* free = workspace + table_bytes_;
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
        gradients[i] = gradient_sizes_[i];
        const bool in_place = gradients_[i].dtype == DType::f32;
        gradients[i].data = reinterpret_cast<float*>(in_place ? outputs[i] : free);
        if (!in_place) free += in_lines(gradients_[i].count * float_bytes);
    }
    score.gradients = gradients.data();
    run(score);
    for (std::size_t i = 0; i < gradients_.size(); ++i)
        if (gradients_[i].dtype != DType::f32)
            store_gradient(gradients[i].data, gradients_[i].count, gradients_[i].dtype, outputs[i], pool);
}

}  // namespace mantissa::on_cpu
