#include "mantissa/graph/reference_rounding.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "mantissa/graph/graph.h"
#include "mantissa/numerics/short_formats.h"

namespace mantissa::inline v0::reference {

namespace {

using Block = std::vector<std::size_t>;  // positions of its numbers

class Rounding {
  public:
    Rounding(const Node& node, Inputs in)
        : attributes_(node.attributes),
          in_(in),
          shape_(in[0]->type.shape),
          axis_(static_cast<int>(node.attributes.integer("axis"))),
          size_(node.attributes.integer("block")),
          element_(find_short_format(node.attributes.word("element"))),
          rule_(find_scale_rule(node.attributes.word("rule"))) {
        for (const double x : in[0]->values) {
            const auto number = static_cast<float>(x);
            const bool subnormal = std::fabs(number) < std::numeric_limits<float>::min();
            x_.push_back(subnormal ? std::copysign(0.0f, number) : number);
        }
        if (attributes_.has("random"))
            stream_ = {.seed = static_cast<std::uint64_t>(whole(in.size() - 2)),
                       .step = static_cast<std::uint32_t>(whole(in.size() - 1)),
                       .operation = static_cast<std::uint32_t>(attributes_.integer("random"))};
    }

    std::vector<std::vector<double>> run() {
        const std::vector<Block> blocks = attributes_.has("square") ? square_blocks() : blocks_of_lines();
        if (attributes_.has("hadamard"))
            for (const Block& block : blocks) turn(block);
        const float own =
            attributes_.has("measured") ? scalar(attributes_.has("given") ? 2 : 1) : largest(x_);
        const float taken = attributes_.has("given") ? scalar(1) : own;
        const float scale =
            rule_ == ScaleRule::tensor ? tensor_scale(element_, taken) : two_level_tensor_scale(taken);
        for (const Block& block : blocks) round(block, scale);
        std::vector<std::vector<double>> results{{x_.begin(), x_.end()}};
        if (!has_tensor_scale(rule_)) return results;
        const bool finite = std::isfinite(own);
        results.push_back(
            {finite ? static_cast<double>(1.0f / scale) : std::numeric_limits<double>::quiet_NaN()});
        results.push_back({static_cast<double>(own)});
        return results;
    }

    const RoundingLosses& losses() const { return losses_; }

  private:
    float scalar(std::size_t operand) const { return static_cast<float>(in_[operand]->values[0]); }
    std::int64_t whole(std::size_t operand) const {
        return static_cast<std::int64_t>(in_[operand]->values[0]);
    }

    /// Numbers behind one index of the axis.
    std::int64_t inner() const {
        std::int64_t inner = 1;
        for (int i = axis_ + 1; i < shape_.rank(); ++i) inner *= shape_[i];
        return inner;
    }

    std::vector<Block> blocks_of_lines() const {
        std::vector<Block> blocks;
        const std::int64_t inner = this->inner();
        const std::int64_t depth = shape_[axis_], lines = depth == 0 ? 0 : shape_.elements() / depth;
        for (std::int64_t line = 0; line < lines; ++line)
            for (std::int64_t first = 0; first < depth; first += size_) {
                Block& block = blocks.emplace_back();
                for (std::int64_t k = first; k < std::min(first + size_, depth); ++k)
                    block.push_back(
                        static_cast<std::size_t>((line / inner * depth + k) * inner + line % inner));
            }
        return blocks;
    }

    std::vector<Block> square_blocks() const {
        std::vector<Block> blocks;
        const std::int64_t rows = shape_[-2], columns = shape_[-1];
        for (std::int64_t first = 0; first < shape_.elements(); first += rows * columns)
            for (std::int64_t i = 0; i < rows; i += size_)
                for (std::int64_t j = 0; j < columns; j += size_) {
                    Block& block = blocks.emplace_back();
                    for (std::int64_t row = i; row < std::min(i + size_, rows); ++row)
                        for (std::int64_t column = j; column < std::min(j + size_, columns); ++column)
                            block.push_back(static_cast<std::size_t>(first + row * columns + column));
                }
        return blocks;
    }

    /// A shorter block at the end stays as it is.
    void turn(const Block& block) {
        if (block.size() != hadamard_size) return;
        std::array<float, hadamard_size> numbers{};
        for (std::size_t i = 0; i < block.size(); ++i) numbers[i] = x_[block[i]];
        hadamard(numbers);
        for (std::size_t i = 0; i < block.size(); ++i) x_[block[i]] = numbers[i];
    }

    /// The largest magnitude, found in bits: infinities and NaN have the largest.
    template <class Numbers>
    static float largest(const Numbers& numbers) {
        std::uint32_t bits = 0;
        for (const float x : numbers) bits = std::max(bits, std::bit_cast<std::uint32_t>(std::fabs(x)));
        return std::bit_cast<float>(bits);
    }

    /// The value of the format for a number that was divided by its scale.
    float rounded(std::size_t position, float scaled) {
        losses_.saturated += std::fabs(scaled) > limits_of(element_).max;
        if (!attributes_.has("random")) return rounded_to(element_, scaled);
        const std::int64_t behind = inner(), columns = behind == 1 ? shape_[axis_] : behind;
        const auto at = static_cast<std::int64_t>(position);
        return rounded_to(element_, scaled, rounding_bits(stream_, at / columns, at % columns, columns));
    }

    /// `down` and `up`: a number over its scale, and times it.
    template <class Down, class Up>
    void round_each(const Block& block, double left_over, Down&& down, Up&& up) {
        for (const std::size_t at : block) {
            const float x = x_[at], y = up(rounded(at, down(x)));
            losses_.numbers += x != 0;
            losses_.flushed += x != 0 && y == 0;
            const auto size = static_cast<double>(x), change = static_cast<double>(y) / left_over - size;
            losses_.signal += size * size;
            losses_.noise += change * change;
            x_[at] = y;
        }
    }

    void round(const Block& block, float scale) {
        std::vector<float> numbers;
        for (const std::size_t at : block) numbers.push_back(x_[at]);
        const float most = largest(numbers);
        if (rule_ == ScaleRule::tensor) {
            round_each(
                block, static_cast<double>(scale), [&](float x) { return x * scale; },
                [](float y) { return y; });
        } else if (rule_ == ScaleRule::two_level) {
            const TwoLevelScale of_block = two_level_scale(most, scale);
            round_each(
                block, static_cast<double>(scale), [&](float x) { return x * of_block.encode; },
                [&](float y) { return y * of_block.decode; });
        } else {
            // Both steps are exact but for the rounding between them.
            const double power = value_of_e8m0(e8m0_of(element_, most, rule_));
            round_each(
                block, 1.0, [&](float x) { return static_cast<float>(static_cast<double>(x) / power); },
                [&](float y) { return static_cast<float>(static_cast<double>(y) * power); });
        }
    }

    RoundingLosses losses_;
    const Attributes& attributes_;
    Inputs in_;
    const Shape& shape_;
    int axis_;
    std::int64_t size_;
    ShortFormat element_;
    ScaleRule rule_;
    RandomStream stream_;
    std::vector<float> x_;
};

}  // namespace

std::vector<std::vector<double>> round_blocks(const Node& node, Inputs in) {
    return Rounding(node, in).run();
}

RoundingLosses losses_of_rounding(const Node& node, Inputs in) {
    Rounding rounding(node, in);
    rounding.run();
    return rounding.losses();
}

}  // namespace mantissa::reference
