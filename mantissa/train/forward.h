// A graph that runs forward only: planned, bound to parameters that somebody else holds, and run. Validation,
// perplexity, prediction and generation are made of it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "mantissa/passes/pipeline.h"
#include "mantissa/runtime/execution.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/training_plan.h"

namespace mantissa::inline v0 {

class Forward {
  public:
    /// Plans what `trace` records, and takes no memory. The traced tensor becomes the result of that name.
    /// `parameters`: those that it will be bound to, if they are there. Nothing is padded then that needs
    /// rows of zeros which they lack: one example's output may be padded where that of many is not.
    Forward(Device& device, const TraceModel& trace, const PipelineOptions& pipeline,
            const std::string& result = "loss", const StateBlock* parameters = nullptr,
            MakeKernels make = MakeKernels::yes);

    const Plan& plan() const { return plan_; }
    const std::vector<PassRefusal>& refused() const { return refused_; }

    /// The error where the memory does not suffice: "`what` needs ...; `advice`".
    struct Memory {
        std::string what, advice = {};
    };
    /// Bytes of constants and inputs, which planned graphs hold themselves.
    std::int64_t held_bytes() const;
    /// Throws UserError where the device has less.
    static void require_memory(const Device& device, const Memory& memory, std::int64_t bytes);
    /// Takes memory for the states that `parameters` lacks and for activations, which may lie in `arena` if
    /// it is large enough. Both must outlive this. Throws UserError if the memory does not suffice.
    void bind(const StateBlock& parameters, const Memory& memory, DeviceMemory* arena = nullptr);
    /// Bytes of activations, which `bind` needs room for.
    std::int64_t arena_bytes() const;

    /// Makes what follows from the parameters, such as weights in 16 bits: to be called once they are there,
    /// and when they have changed.
    void derive();
    /// Takes inputs, runs, gives results. `bind` was called.
    Execution& execution() { return *execution_; }
    /// The states of the plan. Those that `bind` made are its own.
    StateBlock& state() { return *state_; }

  private:
    Forward(Device& device, BuiltGraph built, MakeKernels make);

    Device& device_;
    Plan plan_;
    std::unique_ptr<Plan> derive_plan_;  ///< null: nothing is derived
    std::vector<PassRefusal> refused_;
    std::unique_ptr<StateBlock> state_;
    std::unique_ptr<DeviceMemory> own_arena_;  ///< null: another's
    std::unique_ptr<Execution> execution_, derive_;
};

}  // namespace mantissa
