// Time measured for reports: monotonic, in seconds.
#pragma once

#include <chrono>

namespace mantissa::inline v0 {

/// Seconds since construction or the last restart().
class Stopwatch {
  public:
    double seconds() const {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    }
    double milliseconds() const { return seconds() * 1e3; }
    void restart() { start_ = std::chrono::steady_clock::now(); }

  private:
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace mantissa
