// A line about work in progress, on standard error, without --quiet.
#pragma once

#include <cstdint>
#include <string>

#include "mantissa/base/clock.h"

namespace mantissa::cli {

/// On a terminal, a line that is overwritten. Elsewhere a line at once, or after ten seconds, and then one
/// every ten seconds at most.
class ProgressLine {
  public:
    enum class FirstLine : std::uint8_t { at_once, after_ten_seconds };
    explicit ProgressLine(bool quiet, FirstLine first = FirstLine::at_once);
    ~ProgressLine();
    ProgressLine(const ProgressLine&) = delete;
    ProgressLine& operator=(const ProgressLine&) = delete;

    void show(const std::string& text);
    /// Clears the line on a terminal before a permanent line.
    void clear();

    bool on_terminal() const { return terminal_; }

  private:
    bool shown_, terminal_, first_due_;
    bool written_ = false;
    std::string last_;
    Stopwatch since_line_;
};

/// Steps done and remaining with a bar and the remaining time, as "[#####---------------]  25 of 100 steps,
/// 12.0 s, 36.0 s left". On a terminal ten times a second at most; elsewhere after 25 seconds without other
/// output.
class StepProgress {
  public:
    explicit StepProgress(bool quiet) : line_(quiet) {}

    /// Starts the steps: `done` of `steps` are already made.
    void begin(std::int64_t done, std::int64_t steps);
    void made(std::int64_t done);
    /// Names the work between steps, as "validating: 12 of 400".
    void within(const std::string& phase, std::uint64_t done, std::uint64_t of);
    /// To be called before a line is printed.
    void clear();

  private:
    bool due() const;
    void show(const std::string& text);

    ProgressLine line_;
    std::int64_t first_ = 0, steps_ = 0;
    Stopwatch since_begin_, since_shown_, since_heard_;
    bool shown_ = false;
    double first_step_seconds_ = 0;  ///< warms caches, so not representative
};

/// `[#####---------------]`.
std::string bar_text(double share);

}  // namespace mantissa::cli
