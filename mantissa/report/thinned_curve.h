// A curve of any number of points as at most so many, least and greatest kept: what a chart can show, in
// memory that does not grow with the run.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace mantissa::inline v0 {

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

}  // namespace mantissa
