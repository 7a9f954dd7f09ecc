#include "mantissa/report/thinned_curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "mantissa/base/error.h"
#include "mantissa/base/whole_units.h"

namespace mantissa::inline v0 {

void ThinnedCurve::Part::add(const Part& after) {
    if (count == 0) {
        *this = after;
        return;
    }
    if (after.least.value < least.value) least = after.least;
    if (after.greatest.value > greatest.value) greatest = after.greatest;
    last = after.last;
    sum += after.sum;
    count += after.count;
}

void ThinnedCurve::add(double step, double value) {
    if (!std::isfinite(value)) return;
    const auto is_full = [&] { return parts_.empty() || parts_.back().count >= width_; };
    if (is_full() && parts_.size() >= max_parts_) halve();
    if (is_full()) parts_.emplace_back();  // of an odd number of parts, the last has room now
    const Point point{step, value};
    parts_.back().add(
        {.first = point, .least = point, .greatest = point, .last = point, .sum = value, .count = 1});
}

std::vector<double> ThinnedCurve::numbers() const {
    std::vector<double> numbers{static_cast<double>(width_)};
    for (const Part& part : parts_) {
        for (const Point& point : {part.first, part.least, part.greatest, part.last})
            numbers.insert(numbers.end(), {point.step, point.value});
        numbers.insert(numbers.end(), {part.sum, static_cast<double>(part.count)});
    }
    return numbers;
}

ThinnedCurve ThinnedCurve::of(std::span<const double> numbers) {
    constexpr std::size_t of_a_part = 10;
    if (numbers.size() % of_a_part != 1 || !(numbers[0] >= 1))
        throw UserError(fmt::format("{} numbers are no curve", numbers.size()));
    ThinnedCurve curve;
    curve.width_ = static_cast<std::int64_t>(numbers[0]);
    for (std::size_t i = 1; i < numbers.size(); i += of_a_part) {
        const auto point = [&](std::size_t at) { return Point{numbers[i + at], numbers[i + at + 1]}; };
        curve.parts_.push_back({.first = point(0),
                                .least = point(2),
                                .greatest = point(4),
                                .last = point(6),
                                .sum = numbers[i + 8],
                                .count = static_cast<std::int64_t>(numbers[i + 9])});
    }
    return curve;
}

/// Two parts become one.
void ThinnedCurve::halve() {
    std::vector<Part> joined;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
        if (i % 2 == 0)
            joined.push_back(parts_[i]);
        else
            joined.back().add(parts_[i]);
    }
    parts_ = std::move(joined);
    width_ *= 2;
}

std::vector<ThinnedCurve::Point> ThinnedCurve::points() const {
    std::vector<Point> points;
    const auto add = [&](const Point& point) {
        if (points.empty() || points.back().step < point.step) points.push_back(point);
    };
    if (parts_.empty()) return points;
    add(parts_.front().first);
    for (const Part& part : parts_) {
        const bool falls = part.greatest.step < part.least.step;
        add(falls ? part.greatest : part.least);
        add(falls ? part.least : part.greatest);
    }
    add(parts_.back().last);
    return points;
}

ThinnedCurve::Means ThinnedCurve::means(std::size_t most) const {
    const std::size_t together = ceil_div(parts_.size(), most);
    Means means;
    means.each = width_ * static_cast<std::int64_t>(together);
    for (std::size_t begin = 0; begin < parts_.size(); begin += together) {
        Part joined;
        for (std::size_t i = begin; i < std::min(begin + together, parts_.size()); ++i) joined.add(parts_[i]);
        means.points.push_back(
            {(joined.first.step + joined.last.step) / 2, joined.sum / static_cast<double>(joined.count)});
    }
    return means;
}

}  // namespace mantissa
