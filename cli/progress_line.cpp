#include "cli/progress_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "cli/print_error.h"
#include "mantissa/base/printable.h"
#include "mantissa/report/quantities.h"

namespace mantissa::cli {

ProgressLine::ProgressLine(bool quiet, FirstLine first)
    : shown_(!quiet), terminal_(::isatty(STDERR_FILENO) == 1), first_due_(first == FirstLine::at_once) {}

ProgressLine::~ProgressLine() { clear(); }

void ProgressLine::show(const std::string& text) {
    constexpr double seconds_between_lines = 10;
    if (!shown_ || (written_ && text == last_)) return;
    last_ = text;
    if (terminal_) {
        print_error(fmt::format("\r\033[K{}", text));
    } else if (first_due_ || since_line_.seconds() >= seconds_between_lines) {
        print_error(fmt::format("mantissa: {}\n", text));
        since_line_ = {};
        first_due_ = false;
    }
    std::fflush(stderr);
    written_ = true;
}

void ProgressLine::clear() {
    if (!written_ || !terminal_) return;
    print_error(fmt::format("\r\033[K"));
    written_ = false;
}

std::string bar_text(double share) {
    constexpr int width = 20;
    const int done = std::clamp(static_cast<int>(share * width), 0, width);
    return fmt::format("[{:#<{}}{:-<{}}]", "", done, "", width - done);
}

void StepProgress::begin(std::int64_t done, std::int64_t steps) {
    first_ = done;
    steps_ = steps;
    since_begin_ = since_heard_ = {};
}

bool StepProgress::due() const {
    constexpr double seconds_between_bars = 0.1, longest_silence = 25;
    if (!line_.on_terminal()) return since_heard_.seconds() >= longest_silence;
    return !shown_ || since_shown_.seconds() >= seconds_between_bars;
}

void StepProgress::show(const std::string& text) {
    line_.show(text);
    since_shown_ = since_heard_ = {};
    shown_ = true;
}

void StepProgress::made(std::int64_t done) {
    const std::int64_t made = done - first_;
    if (made == 1) first_step_seconds_ = since_begin_.seconds();
    if (made < 1 || done >= steps_ || !due()) return;
    const double seconds = since_begin_.seconds();
    const double a_step =
        made == 1 ? seconds : (seconds - first_step_seconds_) / static_cast<double>(made - 1);
    show(fmt::format("{} {} of {}, {}, {} left",
                     bar_text(static_cast<double>(done) / static_cast<double>(steps_)), done,
                     count_text(steps_, "step"), duration_text(seconds),
                     duration_text(a_step * static_cast<double>(steps_ - done))));
}

void StepProgress::within(const std::string& phase, std::uint64_t done, std::uint64_t of) {
    if (due()) show(fmt::format("{}: {} of {}", phase, done, of));
}

void StepProgress::clear() {
    line_.clear();
    shown_ = false;
    since_heard_ = {};
}

}  // namespace mantissa::cli
