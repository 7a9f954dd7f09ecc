// A plan bound to memory: ready to run, again and again.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "mantissa/base/function_ref.h"
#include "mantissa/runtime/input_staging.h"
#include "mantissa/runtime/plan.h"
#include "mantissa/runtime/state_block.h"

namespace mantissa::inline v0 {

/// Seconds that each planned node took in the last profiled run, in the order of Plan::nodes().
using Profile = std::vector<double>;

class Execution {
  public:
    /// `state` holds every state of the plan's graph, or a UserError says which is missing or has another
    /// type; `arena` has the bytes that the plan asks for. Both may be shared, and must outlive this.
    Execution(const Plan& plan, StateBlock& state, DeviceMemory& arena);
    /// Waits for queued work that is not finished.
    ~Execution();
    Execution(Execution&&) = default;

    bool has_input(std::string_view name) const;
    /// Gives an input its value for the runs that are queued from now on. Throws UserError if there is no
    /// such input or the size differs.
    void set_input(std::string_view name, std::span<const std::byte> value);
    template <class T>
    void set_input(std::string_view name, std::span<const T> value) {
        set_input(name, std::as_bytes(value));
    }

    /// Runs everything and waits until it is done. With a profile, times each node.
    void run(Profile* profile = nullptr);
    /// Queues everything, and the copies of small results to the host.
    void start();
    /// Waits until all queued work is done.
    void finish();

    /// Runs everything and waits until it is done. Returns an event from before the first launch, and one
    /// from after each.
    std::vector<std::unique_ptr<Event>> run_with_events();

    /// Runs one operation after the other and awaits each; asks `before` and `after` about each. Stops where
    /// an answer is false; updates that are copied at the end are then not made. Returns whether it ran to
    /// the end.
    bool run_while(FunctionRef<bool(NodeId)> before, FunctionRef<bool(NodeId)> after);

    /// Runs the rest of a run that `run_while` stopped before this node, with inputs given since then; waits
    /// until it is done.
    void run_from(NodeId node);

    /// The address of a value on the device, as long as `read_value` could read it.
    const std::byte* place_of(Value value) const { return address(value); }
    /// Bytes of a value from `offset` on, while it is there: between the operation that makes it and the last
    /// that reads it.
    void read_value(Value value, std::int64_t offset, std::span<std::byte> bytes) const;
    /// Reads all of a value, a piece at a time, so that looking at the largest tensor takes no memory of its
    /// size. `piece` gets the index of the first element and the elements' bytes, and stops the reading where
    /// its answer is false. Returns whether all was read.
    bool read_in_pieces(Value value,
                        FunctionRef<bool(std::int64_t first, std::span<const std::byte> bytes)> piece) const;

    const Plan& plan() const { return plan_; }

    /// A result of the last run, which is done. Throws UserError if there is none of that name. A result of
    /// more than 64 bytes is gone once something else runs in the arena.
    std::vector<std::byte> read_result(std::string_view name) const;
    /// A scalar f32 result. Throws UserError for a result of another size.
    float read_scalar(std::string_view name) const;

  private:
    std::byte* address(Value value) const;
    /// The bytes of a value.
    std::span<std::byte> memory_of(Value value) const;
    void place_inputs_and_constants();
    BoundLaunch bound(const PlannedNode& planned) const;
    BoundCopy bound(const Update& update) const;
    void bind();
    void copy_updates();
    void wait_for_all();
    void place_small_results();
    void give_inputs();
    /// Queues the copies of small results to the host.
    void bring_small_results();

    const Plan& plan_;
    StateBlock& state_;
    DeviceMemory& arena_;
    std::unique_ptr<DeviceMemory> inputs_;
    std::vector<std::byte*> input_addresses_;
    std::unique_ptr<InputStaging> staging_;  // null: inputs are copied when they are given
    std::unique_ptr<DeviceMemory> constants_;
    std::vector<std::byte*> constant_addresses_;
    std::unique_ptr<Program> program_;  // a step a planned node, then one an update that is copied
    std::unique_ptr<HostMemory> small_results_memory_;
    std::vector<std::span<std::byte>> small_results_;  // by result; empty: it is not small
    bool small_results_are_there_ = false;             // or will be, when the queued work is done
    std::unique_ptr<Event> done_;                      // after the queued work; null: it was waited for
};

}  // namespace mantissa
