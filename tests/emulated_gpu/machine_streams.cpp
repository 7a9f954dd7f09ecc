// Streams, events and graphs of the emulated machine. Nothing runs when it is given: a stream's work runs
// when somebody waits for the stream, for an event in it, or for a copy into memory that is not pinned.
#include <fmt/format.h>

#include "tests/emulated_gpu/machine.h"

#include "mantissa/graph/graph.h"
#include "tests/emulated_gpu/machine_handles.h"

namespace mantissa::inline v0::cuda {

void Machine::enqueue(Stream stream, Work work, bool waits_only) {
    StreamHandle& there = *streams_.at(stream);
    if (!there.capture) {
        there.queue.push_back(std::move(work));
        return;
    }
    if (waits_only) return;  // a graph keeps the order in which it was recorded
    there.capture->work.push_back(std::move(work));
    for (const Stream other : there.capture->streams)
        if (other != stream) streams_.at(other)->covers.erase(stream);
    there.covers.insert(stream);
}

void Machine::advance(Stream stream) {
    StreamHandle& there = *streams_.at(stream);
    const Work work = std::move(there.queue.front());
    there.queue.pop_front();
    try {
        work();
    } catch (const ptx::Fault& fault) {
        fail(fault.result, fault.words);
    }
}

Result Machine::drain(Stream stream) {
    StreamHandle& there = *streams_.at(stream);
    while (!there.queue.empty()) advance(stream);
    return broken_;
}

/// A call that would wait or allocate is not allowed while a stream is being captured, and ends the capture.
Result Machine::refuse_in_capture() {
    for (auto& [handle, stream] : streams_)
        if (stream->capture) {
            stream->capture->invalid = true;
            return Result::stream_capture_unsupported;
        }
    return Result::success;
}

Result Machine::ctx_synchronize() {
    if (const Result result = refuse_in_capture(); result != Result::success) return result;
    // The stream that was made last goes first: no order between streams is promised.
    for (auto stream = streams_.rbegin(); stream != streams_.rend(); ++stream) drain(stream->first);
    return broken_;
}

Result Machine::stream_create(Stream* stream) {
    auto made = std::make_unique<StreamHandle>();
    *stream = made.get();
    streams_[made.get()] = std::move(made);
    return Result::success;
}

Result Machine::stream_destroy(Stream stream) {
    if (!known(stream)) return Result::invalid_handle;
    // Work that was given is still done.
    const Result result = drain(stream);
    streams_.erase(stream);
    return result;
}

Result Machine::stream_synchronize(Stream stream) {
    if (!known(stream)) return Result::invalid_handle;
    if (streams_[stream]->capture) return refuse_in_capture();
    return drain(stream);
}

/// The first question in a row is answered with no, so that nobody counts on a yes; the second waits.
Result Machine::stream_query(Stream stream) {
    if (!known(stream)) return Result::invalid_handle;
    StreamHandle& there = *streams_[stream];
    if (there.capture) return refuse_in_capture();
    if (there.queue.empty()) return Result::success;
    there.asked = !there.asked;
    return there.asked ? Result::not_ready : drain(stream);
}

Result Machine::stream_wait_event(Stream stream, Event event) {
    if (!known(stream) || !events_.contains(event)) return Result::invalid_handle;
    const std::shared_ptr<EventRecording> recording = event->last;
    if (!recording) return Result::success;  // of an event that was never recorded nothing is waited for
    StreamHandle& there = *streams_[stream];
    if (recording->capture) {
        if (there.capture && there.capture != recording->capture) return Result::stream_capture_isolation;
        there.capture = recording->capture;
        there.capture->streams.insert(stream);
        there.covers.insert(recording->covers.begin(), recording->covers.end());
        return Result::success;
    }
    if (there.capture) return Result::stream_capture_isolation;
    enqueue(stream, [this, recording] {
        while (!recording->done && known(recording->stream) && !streams_[recording->stream]->queue.empty())
            advance(recording->stream);
    });
    return Result::success;
}

Result Machine::event_create(Event* event, unsigned flags) {
    auto made = std::make_unique<EventHandle>();
    made->timed = (flags & event_disable_timing) == 0;
    *event = made.get();
    events_[made.get()] = std::move(made);
    return Result::success;
}

Result Machine::event_destroy(Event event) {
    return events_.erase(event) ? Result::success : Result::invalid_handle;
}

Result Machine::event_record(Event event, Stream stream) {
    if (!known(stream) || !events_.contains(event)) return Result::invalid_handle;
    auto recording = std::make_shared<EventRecording>();
    recording->stream = stream;
    recording->capture = streams_[stream]->capture;
    recording->covers = streams_[stream]->covers;
    event->last = recording;
    event->asked = false;
    enqueue(
        stream,
        [recording] {
            recording->done = true;
            recording->when = std::chrono::steady_clock::now();
        },
        true);
    return Result::success;
}

Result Machine::event_query(Event event) {
    if (!events_.contains(event)) return Result::invalid_handle;
    if (!event->last || event->last->done) return Result::success;
    event->asked = !event->asked;
    return event->asked ? Result::not_ready : event_synchronize(event);
}

Result Machine::event_synchronize(Event event) {
    if (!events_.contains(event)) return Result::invalid_handle;
    const std::shared_ptr<EventRecording> recording = event->last;
    if (!recording) return Result::success;
    if (recording->capture) return refuse_in_capture();
    while (!recording->done && broken_ == Result::success && known(recording->stream) &&
           !streams_[recording->stream]->queue.empty())
        advance(recording->stream);
    return broken_;
}

Result Machine::event_elapsed_time(float* milliseconds, Event start, Event end) {
    if (!events_.contains(start) || !events_.contains(end) || !start->timed || !end->timed || !start->last ||
        !end->last)
        return Result::invalid_handle;
    if (!start->last->done || !end->last->done) return Result::not_ready;
    *milliseconds = std::chrono::duration<float, std::milli>(end->last->when - start->last->when).count();
    return Result::success;
}

Result Machine::stream_begin_capture(Stream stream, CaptureMode) {
    if (!known(stream)) return Result::invalid_handle;
    StreamHandle& there = *streams_[stream];
    if (there.capture) return Result::illegal_state;
    there.capture = std::make_shared<Capture>();
    there.capture->origin = stream;
    there.capture->streams.insert(stream);
    there.covers.clear();
    return Result::success;
}

Result Machine::stream_end_capture(Stream stream, Graph* graph) {
    *graph = nullptr;
    if (!known(stream)) return Result::invalid_handle;
    const std::shared_ptr<Capture> capture = streams_[stream]->capture;
    if (!capture || capture->origin != stream) return Result::illegal_state;
    Result result = capture->invalid ? Result::stream_capture_invalidated : Result::success;
    for (const Stream one : capture->streams) {
        const bool works = known(one) && one != stream && streams_[one]->covers.contains(one);
        if (works && !streams_[stream]->covers.contains(one) && result == Result::success)
            result = Result::stream_capture_unjoined;
    }
    for (const Stream one : capture->streams)
        if (known(one)) {
            streams_[one]->capture = nullptr;
            if (one != stream) streams_[one]->covers.clear();
        }
    if (result != Result::success) return result;
    auto made = std::make_unique<GraphHandle>();
    made->work = capture->work;
    *graph = made.get();
    graphs_[made.get()] = std::move(made);
    return Result::success;
}

Result Machine::graph_instantiate(GraphExec* exec, Graph graph) {
    if (!graphs_.contains(graph)) return Result::invalid_handle;
    auto made = std::make_unique<GraphExecHandle>();
    made->work = std::make_shared<const std::vector<Work>>(graph->work);
    *exec = made.get();
    graph_execs_[made.get()] = std::move(made);
    return Result::success;
}

/// With the addresses and numbers that were there when it was captured.
Result Machine::graph_launch(GraphExec exec, Stream stream) {
    if (!known(stream) || !graph_execs_.contains(exec)) return Result::invalid_handle;
    enqueue(stream, [work = exec->work] {
        for (const Work& one : *work) one();
    });
    return Result::success;
}

Result Machine::graph_exec_destroy(GraphExec exec) {
    return graph_execs_.erase(exec) ? Result::success : Result::invalid_handle;
}

Result Machine::graph_destroy(Graph graph) {
    return graphs_.erase(graph) ? Result::success : Result::invalid_handle;
}

}  // namespace mantissa::cuda
