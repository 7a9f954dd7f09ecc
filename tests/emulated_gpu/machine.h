// The emulated machine behind the driver's functions: memory, modules, streams, events and graphs. Work runs
// as late as it may: when somebody waits for it.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "mantissa/base/thread_pool.h"
#include "mantissa/device/cuda/driver.h"
#include "mantissa/device/cuda/planned/planned_gpu.h"
#include "mantissa/graph/graph.h"
#include "tests/emulated_gpu/device_memory.h"
#include "tests/emulated_gpu/emulated_gpu.h"
#include "tests/emulated_gpu/warp.h"

namespace mantissa::inline v0::cuda {

class Machine {
  public:
    explicit Machine(const EmulatedGpuOptions& options);
    ~Machine();

    // The driver's functions that are more than an answer; driver.h names the arguments.
    Result ctx_synchronize();
    Result mem_get_info(std::size_t* free, std::size_t* total);
    Result mem_alloc(DevicePtr* address, std::size_t bytes);
    Result mem_free(DevicePtr address);
    Result mem_alloc_host(void** address, std::size_t bytes);
    Result mem_free_host(void* address);
    Result memcpy_htod(DevicePtr to, const void* from, std::size_t bytes, Stream stream);
    Result memcpy_dtoh(void* to, DevicePtr from, std::size_t bytes, Stream stream);
    Result memcpy_dtod(DevicePtr to, DevicePtr from, std::size_t bytes, Stream stream);
    Result memset_d8(DevicePtr to, unsigned char value, std::size_t bytes, Stream stream);

    Result stream_create(Stream* stream);
    Result stream_destroy(Stream stream);
    Result stream_synchronize(Stream stream);
    Result stream_query(Stream stream);
    Result stream_wait_event(Stream stream, Event event);
    Result stream_begin_capture(Stream stream, CaptureMode mode);
    Result stream_end_capture(Stream stream, Graph* graph);
    Result event_create(Event* event, unsigned flags);
    Result event_destroy(Event event);
    Result event_record(Event event, Stream stream);
    Result event_query(Event event);
    Result event_synchronize(Event event);
    Result event_elapsed_time(float* milliseconds, Event start, Event end);
    Result graph_instantiate(GraphExec* exec, Graph graph);
    Result graph_launch(GraphExec exec, Stream stream);
    Result graph_exec_destroy(GraphExec exec);
    Result graph_destroy(Graph graph);

    Result module_load(Module* module, const char* text, unsigned options, const JitOption* names,
                       void** values);
    Result module_unload(Module module);
    Result module_get_function(Function* function, Module module, const char* name);
    Result func_get_attribute(int* value, FunctionAttribute attribute, Function function);
    Result func_set_attribute(Function function, FunctionAttribute attribute, int value);
    Result launch(Function function, ptx::Dimensions grid, ptx::Dimensions block, unsigned shared_bytes,
                  Stream stream, void** parameters);
    Result occupancy(int* blocks, Function function, int threads, std::size_t dynamic_shared);
    Result device_attribute(int* value, DeviceAttribute attribute) const;

    // Queues a call of libraries whose kernels are the host's functions. Work in its order on a stream.
    Result call_library(Stream stream, std::function<void()> work);
    /// Host memory of bytes of the device, in such work; throws Fault where they are not there, or not all
    /// written.
    const std::byte* read_by_library(DevicePtr address, std::size_t bytes, const char* what) const;
    /// Likewise of bytes that are written now.
    std::byte* written_by_library(DevicePtr address, std::size_t bytes, const char* what);
    ThreadPool& pool() { return *pool_; }

    const Architecture& architecture() const { return *architecture_; }
    std::string report() const;
    void count(bool on);
    std::vector<LaunchCount> take_counts();

    // Fails as planted errors say, after which nothing works any more, as after a fault.
    Result fail(Result result, const std::string& words);
    /// The error that everything answers once there was a fault.
    Result broken() const { return broken_; }
    std::mutex& mutex() { return mutex_; }

  private:
    using Work = std::function<void()>;
    void enqueue(Stream stream, Work work, bool waits_only = false);
    bool known(Stream stream) const { return streams_.contains(stream); }
    /// Runs the next piece of the stream's work.
    void advance(Stream stream);
    Result drain(Stream stream);
    Result refuse_in_capture();
    /// Host memory of bytes of the device; throws Fault where they are not all of one that lives.
    const Allocation& bytes_at(DevicePtr address, std::size_t bytes, const char* what) const;
    /// Throws Fault where a byte of them was never written.
    void check_written(const Allocation& there, DevicePtr address, std::size_t bytes, const char* what) const;
    void check_pinned(const void* address, std::size_t bytes, const char* what) const;
    bool pinned(const void* address, std::size_t bytes) const;
    Result occupied(Function function, std::int64_t threads, std::int64_t dynamic_shared) const;

    const Architecture* architecture_;
    EmulatedGpuOptions options_;
    std::unique_ptr<DeviceMemory> memory_;
    std::unique_ptr<ThreadPool> pool_;
    std::map<const std::byte*, std::pair<std::size_t, Pages>> pinned_;
    std::map<Stream, std::unique_ptr<StreamHandle>> streams_;
    std::map<Event, std::unique_ptr<EventHandle>> events_;
    std::map<Graph, std::unique_ptr<GraphHandle>> graphs_;
    std::map<GraphExec, std::unique_ptr<GraphExecHandle>> graph_execs_;
    std::map<Module, std::unique_ptr<ModuleHandle>> modules_;
    Result broken_ = Result::success;
    std::string report_;
    std::uint32_t launches_ = 0;
    bool counting_ = false;
    std::vector<LaunchCount> counts_;
    mutable std::mutex mutex_;
};

}  // namespace mantissa::cuda
