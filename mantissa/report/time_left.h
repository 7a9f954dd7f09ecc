// How long a run of several parts still takes: by an estimate at first, then by the steps that ran.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace mantissa::inline v0 {

class TimeLeft {
  public:
    /// A part of so many steps, each of about so many seconds. Parts are numbered from 0.
    void add(double seconds_a_step, std::int64_t steps) { parts_.push_back({seconds_a_step, steps}); }
    /// A step of that part took so long.
    void took(std::size_t part, double seconds);

    /// Whether a step ran, so that more than the estimate is known.
    bool is_measured() const;
    /// Seconds of the steps that are left. A part that ran counts with its steps' mean; another with its
    /// estimate, times what those that ran took of theirs.
    double seconds() const;

  private:
    struct Part {
        double estimate = 0;
        std::int64_t left = 0, done = 0;
        double spent = 0;
    };

    std::vector<Part> parts_;
};

}  // namespace mantissa
