#include "mantissa/base/loop_recorder.h"

#include <algorithm>
#include <chrono>
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

std::vector<RecordedLoop> LoopRecorder::take() { return std::exchange(loops_, {}); }

void LoopRecorder::run(std::int64_t blocks, FunctionRef<void(std::int64_t, int)> body) {
    using Clock = std::chrono::steady_clock;
    const auto seconds = [](Clock::duration time) { return std::chrono::duration<double>(time).count(); };
    counters_.clear();
    loop_ = {};
    loop_.blocks.reserve(static_cast<std::size_t>(blocks));
    const auto begin = Clock::now();
    auto last = begin;
    for (block_ = 0; block_ < blocks; ++block_) {
        body(block_, 0);
        const auto now = Clock::now();
        loop_.blocks.push_back(seconds(now - std::exchange(last, now)));
    }
    loop_.seconds = seconds(last - begin);
    loops_.push_back(std::move(loop_));
}

void LoopRecorder::reached(const void* counter, std::int64_t value) {
    std::vector<Reached>& values = counters_[counter];
    if (!values.empty() && values.back().value >= value) values.clear();
    values.push_back({value, block_});
}

void LoopRecorder::awaits(const void* counter, std::int64_t least) {
    const std::vector<Reached>& values = counters_[counter];
    const auto found = std::ranges::lower_bound(values, least, {}, &Reached::value);
    if (found == values.end() || found->block == block_) return;
    if (!loop_.waits.empty() && loop_.waits.back().block == block_ &&
        loop_.waits.back().awaited == found->block)
        return;
    loop_.waits.push_back({block_, found->block});
}

}  // namespace mantissa
