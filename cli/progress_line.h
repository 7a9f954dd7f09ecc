// A line about work that goes on, on standard error, and not with --quiet.
#pragma once

#include <cstdint>
#include <string>

#include "mantissa/base/clock.h"

namespace mantissa::cli {

/// On a terminal one line that is written over; elsewhere a line at once, or after ten seconds only, and then
/// one every ten seconds at most.
class ProgressLine {
  public:
    enum class FirstLine : std::uint8_t { at_once, after_ten_seconds };
    explicit ProgressLine(bool quiet, FirstLine first = FirstLine::at_once);
    ~ProgressLine();
    ProgressLine(const ProgressLine&) = delete;
    ProgressLine& operator=(const ProgressLine&) = delete;

    void show(const std::string& text);
    /// Makes place on a terminal for a line that stays.
    void clear();

    bool on_terminal() const { return terminal_; }

  private:
    bool shown_, terminal_, first_due_;
    bool written_ = false;
    std::string last_;
    Stopwatch since_line_;
};

/// Steps made and to come with a bar and the time left, as "[#####---------------]  25 of 100 steps, 12.0
/// s, 36.0 s left". On a terminal ten times a second at most; elsewhere where nobody has said anything for 25
/// seconds.
class StepProgress {
  public:
    explicit StepProgress(bool quiet) : line_(quiet) {}

    /// Tells that steps are made from here on: `done` of `steps` are already.
    void begin(std::int64_t done, std::int64_t steps);
    void made(std::int64_t done);
    /// Names what is done between steps, as "validating: 12 of 400".
    void within(const std::string& phase, std::uint64_t done, std::uint64_t of);
    /// A line is about to be printed.
    void clear();

  private:
    bool due() const;
    void show(const std::string& text);

    ProgressLine line_;
    std::int64_t first_ = 0, steps_ = 0;
    Stopwatch since_begin_, since_shown_, since_heard_;
    bool shown_ = false;
    double first_step_seconds_ = 0;  ///< it warms caches up, and is no measure of those to come
};

/// `[#####---------------]`.
std::string bar_text(double share);

}  // namespace mantissa::cli
