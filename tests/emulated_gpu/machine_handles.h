// The meaning of the driver's handles in the emulated machine.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "mantissa/device/cuda/driver.h"
#include "tests/emulated_gpu/program.h"

namespace mantissa::inline v0::cuda {

struct Capture;

/// One recording of an event: done when the stream came there.
struct EventRecording {
    bool done = false;
    Stream stream = nullptr;
    std::chrono::steady_clock::time_point when;
    std::shared_ptr<Capture> capture;  ///< null outside of one
    std::set<Stream> covers;           ///< the captured streams whose work is behind it
};

/// Work that is recorded instead of run, in the order in which it was given.
struct Capture {
    Stream origin = nullptr;
    std::vector<std::function<void()>> work;
    std::set<Stream> streams;  ///< that have joined
    bool invalid = false;
};

struct StreamHandle {
    std::deque<std::function<void()>> queue;
    std::shared_ptr<Capture> capture;
    std::set<Stream> covers;  ///< captured streams whose work so far is before what comes next here
    bool asked = false;       ///< whether somebody asked in vain if it was done
};

struct EventHandle {
    std::shared_ptr<EventRecording> last;
    bool timed = true;
    bool asked = false;
};

struct GraphHandle {
    std::vector<std::function<void()>> work;
};

struct GraphExecHandle {
    std::shared_ptr<const std::vector<std::function<void()>>> work;
};

struct FunctionHandle {
    const ptx::Program* program = nullptr;
    const ptx::Kernel* kernel = nullptr;
    std::int64_t max_dynamic_shared = 0;
};

struct ModuleHandle {
    std::shared_ptr<const ptx::Program> program;
    std::vector<DevicePtr> variables;
    std::map<std::string, FunctionHandle> functions;
};

}  // namespace mantissa::cuda
