// A run of training as a page: its curves so far, its samples, and what is trained on what.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "mantissa/report/html.h"

namespace mantissa::inline v0 {

/// A curve of any number of points as at most so many, least and greatest kept: what a chart can show, in
/// memory that does not grow with the run.
class ThinnedCurve {
  public:
    struct Point {
        double step = 0, value = 0;
    };

    /// `max_points` is four or more.
    explicit ThinnedCurve(std::size_t max_points = 1000) : max_parts_((max_points - 2) / 2) {}

    /// Steps ascend. A value that is not finite is left out.
    void add(double step, double value);

    /// In the order of steps: the first point, of each part its least and its greatest, the last point.
    std::vector<Point> points() const;
    struct Means {
        std::vector<Point> points;  ///< each in the middle of what it is the mean of
        std::int64_t each = 1;      ///< how many points that is
    };
    /// At most so many.
    Means means(std::size_t most) const;
    /// All that it holds as numbers, and the curve that these were of.
    std::vector<double> numbers() const;
    static ThinnedCurve of(std::span<const double> numbers);
    /// The first and last step of the points that were added; 0 where there are none.
    double first_step() const { return parts_.empty() ? 0 : parts_.front().first.step; }
    double last_step() const { return parts_.empty() ? 0 : parts_.back().last.step; }

  private:
    /// Neighbours on the curve.
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
    std::string unit = "tokens";  ///< what throughput counts
    std::int64_t steps = 0;       ///< at which the run ends, counted from the first ever
    std::string judged = {};      ///< equal where validations are of the same data; empty: not known
    /// Further remarks, as pairs of a name and a text.
    std::vector<std::pair<std::string, std::string>> facts;
    /// An example in parts, each with whether it is learnt; empty: none is shown.
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
    /// Adds the validation of the step that was added last.
    void add_validation(double loss);
    /// Adds that validation's accuracy: shares of examples whose class was the first guess, was among the
    /// first five.
    void add_accuracy(double top1, double top5);
    void add_sample(std::string text);

    /// The page as of now. While the run goes on it loads itself again. `time`: when, in words; `seconds`:
    /// since the run began.
    std::string html(TrainingState state, const std::string& time, double seconds) const;

    /// All that was added, for a page that goes on from here; `seconds`: of the run.
    std::string kept(double seconds) const;
    /// Adds that to a page to which nothing was added. Returns the seconds. Throws UserError for a text that
    /// is none.
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
