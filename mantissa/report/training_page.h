// A training run as a page: its curves so far, its samples, its model and data.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "mantissa/report/html.h"

namespace mantissa::inline v0 {

/// A curve of any number of points, thinned to a limit that a chart can show, with minima and maxima kept.
/// Memory does not grow with the run.
class ThinnedCurve {
  public:
    struct Point {
        double step = 0, value = 0;
    };

    /// `max_points` is four or more.
    explicit ThinnedCurve(std::size_t max_points = 1000) : max_parts_((max_points - 2) / 2) {}

    /// Adds a point; steps ascend. A value that is not finite is left out.
    void add(double step, double value);

    /// In the order of steps: the first point, each part's minimum and maximum, the last point.
    std::vector<Point> points() const;
    struct Means {
        std::vector<Point> points;  ///< each at the middle of the averaged interval
        std::int64_t each = 1;      ///< points per mean
    };
    /// Means, at most `most`.
    Means means(std::size_t most) const;
    /// All its contents as numbers, and the curve restored from them.
    std::vector<double> numbers() const;
    static ThinnedCurve of(std::span<const double> numbers);
    /// The first and last step of the added points; 0 without points.
    double first_step() const { return parts_.empty() ? 0 : parts_.front().first.step; }
    double last_step() const { return parts_.empty() ? 0 : parts_.back().last.step; }

  private:
    /// Neighbouring points of the curve.
    struct Part {
        Point first, least, greatest, last;
        double sum = 0;
        std::int64_t count = 0;

        void add(const Part& after);
    };
    void halve();

    std::size_t max_parts_;
    std::int64_t width_ = 1;
    std::vector<Part> parts_;
};

/// Facts that stay the same over a run.
struct TrainingRun {
    std::string model, command;
    std::string unit = "tokens";  ///< unit of throughput
    std::int64_t steps = 0;       ///< last step of the run, counted from the very first
    std::string judged = {};      ///< equal for validations on equal data; empty: not known
    /// Further remarks, as pairs of name and text.
    std::vector<std::pair<std::string, std::string>> facts;
    /// An example in parts, each marked if learnt; empty: none is shown.
    std::vector<std::pair<std::string, bool>> example = {};
};

struct TrainingPoint {
    std::int64_t step = 0;
    double loss = 0, learning_rate = 0, gradient_norm = 0, units_per_second = 0, mfu = 0;
    bool applied = true;
};

enum class TrainingState : std::uint8_t { runs, ended };

class TrainingPage {
  public:
    explicit TrainingPage(TrainingRun run) : run_(std::move(run)) {}

    void add(const TrainingPoint& point);
    /// Adds the validation of the last added step.
    void add_validation(double loss);
    /// Adds that validation's accuracy: shares of examples with their class as the first guess, and among the
    /// first five.
    void add_accuracy(double top1, double top5);
    void add_sample(std::string text);

    /// The present page, which reloads itself while the run continues. `time`: present time, in words;
    /// `seconds`: since the run began.
    std::string html(TrainingState state, const std::string& time, double seconds) const;

    /// All added data, for a page that continues from here; `seconds`: of the run.
    std::string kept(double seconds) const;
    /// Restores that data in an empty page. Returns the seconds. Throws UserError for an invalid text.
    double go_on(const std::string& kept);

  private:
    struct Sample {
        std::int64_t step = 0;
        std::string text;
    };
    std::string status(TrainingState state, const std::string& time, double seconds) const;
    std::string numbers() const;
    std::string charts() const;
    std::vector<html::Curve> losses(double from_step) const;
    std::string samples() const;
    std::string example() const;

    TrainingRun run_;
    TrainingPoint last_ = {};
    std::int64_t made_ = 0, skipped_ = 0;  // steps
    ThinnedCurve loss_, learning_rate_, gradient_norm_, units_per_second_, validation_, top1_, top5_;
    double last_validation_ = 0, best_validation_ = 0;
    std::int64_t best_validation_step_ = -1;
    double last_top1_ = 0, best_top1_ = -1;  ///< negative: none was added
    std::deque<Sample> samples_;
};

}  // namespace mantissa
