#include "mantissa/device/discrete/work_queue.h"

#include <utility>

#include "mantissa/base/error.h"

namespace mantissa::inline v0 {

std::shared_ptr<QueueMark> WorkQueue::add_mark() {
    auto mark = std::make_shared<QueueMark>();
    mark->queue = this;
    entries_.push_back({.reached = mark});
    return mark;
}

void WorkQueue::run_to(const QueueMark& mark) {
    while (!mark.passed) {
        check(!mark.queue->entries_.empty(), "an event is passed, or queued");
        mark.queue->run_first();
    }
}

void WorkQueue::run_all() {
    while (!entries_.empty()) run_first();
}

void WorkQueue::run_what_may() {
    while (!entries_.empty() && (!entries_.front().awaited || entries_.front().awaited->passed)) run_first();
}

void WorkQueue::run_first() {
    const Entry entry = std::move(entries_.front());
    entries_.pop_front();
    if (entry.reached)
        entry.reached->passed = clock_.record();
    else if (entry.awaited)
        run_to(*entry.awaited);
    else
        run(entry.work);
}

void WorkQueue::run(const std::function<void()>& work) {
    try {
        work();
    } catch (...) {
        for (const Entry& left_out : std::exchange(entries_, {}))
            if (left_out.reached) left_out.reached->passed = clock_.record();
        throw;
    }
}

}  // namespace mantissa
