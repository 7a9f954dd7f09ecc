// What was queued on a discrete device, in order, until somebody needs it done.
#pragma once

#include <deque>
#include <functional>
#include <memory>

#include "mantissa/device/device.h"

namespace mantissa::inline v0 {

class WorkQueue;

/// A point in a queue.
struct QueueMark {
    WorkQueue* queue = nullptr;
    std::unique_ptr<Event> passed = {};  ///< of the device whose kernels run; null: not yet passed
};

class WorkQueue {
  public:
    explicit WorkQueue(Device& clock) : clock_(clock) {}

    void add(std::function<void()> work) { entries_.push_back({.work = std::move(work)}); }
    std::shared_ptr<QueueMark> add_mark();
    /// What is added from now on runs after the mark, which may be another queue's.
    void add_wait(std::shared_ptr<QueueMark> awaited) { entries_.push_back({.awaited = std::move(awaited)}); }

    /// Runs what was added before a mark, unless it ran before, and what that waits for.
    static void run_to(const QueueMark& mark);
    void run_all();
    /// Runs what waits for nothing that has not been passed.
    void run_what_may();

  private:
    struct Entry {  // one of the three
        std::function<void()> work = nullptr;
        std::shared_ptr<QueueMark> reached = nullptr, awaited = nullptr;
    };
    void run_first();
    /// Work that throws is the last that runs: what was added behind it follows on what never was.
    void run(const std::function<void()>& work);

    Device& clock_;
    std::deque<Entry> entries_;
};

}  // namespace mantissa
