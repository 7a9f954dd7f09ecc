#include "mantissa/base/loop_recorder.h"

#include <time.h>

#include <algorithm>
#include <map>
#include <utility>

#include "mantissa/base/error.h"

namespace mantissa::inline v0 {

namespace {

thread_local LoopRecorder* recorder = nullptr;

}  // namespace

LoopRecorder::LoopRecorder() {
    check(recorder == nullptr, "a thread has one recorder of loops at a time");
    recorder = this;
}

LoopRecorder::~LoopRecorder() { recorder = nullptr; }

LoopRecorder* LoopRecorder::of_this_thread() { return recorder; }

std::vector<RecordedLoop> LoopRecorder::take() {
    for (std::size_t i = 0; i < loops_.size(); ++i) loops_[i].waits = waits_in(said_[i]);
    said_.clear();
    return std::exchange(loops_, {});
}

std::vector<RecordedLoop::Wait> LoopRecorder::waits_in(const std::vector<Said>& said) {
    std::vector<RecordedLoop::Wait> waits;
    std::map<const void*, std::vector<Said>> counters;
    for (const Said& each : said) {
        std::vector<Said>& reached = counters[each.counter];
        if (each.steps == 0) {
            if (!reached.empty() && reached.back().value >= each.value) reached.clear();
            reached.push_back(each);
            continue;
        }
        const auto found = std::ranges::lower_bound(reached, each.value, {}, &Said::value);
        if (found == reached.end()) continue;
        const auto first = found - std::min<std::int64_t>(found - reached.begin(), each.steps - 1);
        for (auto step = first; step <= found; ++step) {
            const bool said_before =
                !waits.empty() && waits.back().block == each.block && waits.back().awaited == step->block;
            if (step->block != each.block && !said_before) waits.push_back({each.block, step->block});
        }
    }
    return waits;
}

double LoopRecorder::seconds_on_core() {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void LoopRecorder::run(std::int64_t blocks, FunctionRef<void(std::int64_t, int)> body) {
    RecordedLoop& loop = loops_.emplace_back();
    said_.emplace_back();
    loop.blocks.reserve(static_cast<std::size_t>(blocks));
    const double begin = seconds_on_core();
    double last = begin;
    for (block_ = 0; block_ < blocks; ++block_) {
        body(block_, 0);
        const double now = seconds_on_core();
        loop.blocks.push_back(now - std::exchange(last, now));
    }
    loop.seconds = last - begin;
}

void LoopRecorder::reached(const void* counter, std::int64_t value) {
    if (!said_.empty()) said_.back().push_back({counter, value, block_, 0});
}

void LoopRecorder::awaits(const void* counter, std::int64_t least, std::int64_t steps) {
    if (least > 0 && !said_.empty()) said_.back().push_back({counter, least, block_, steps});
}

}  // namespace mantissa
