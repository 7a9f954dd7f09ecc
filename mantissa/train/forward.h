// A forward-only graph: planned, bound to parameters that another object holds, and run. Validation,
// perplexity, prediction and generation use it.
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
    /// Plans the trace without taking memory. The traced tensor becomes the result named `result`.
    /// `parameters`: the states to bind to, if they exist. Operands are not padded to rows of zeros that
    /// these states lack, as one example's output would be where many examples' output is not.
    Forward(Device& device, const TraceModel& trace, const PipelineOptions& pipeline,
            const std::string& result = "loss", const StateBlock* parameters = nullptr,
            MakeKernels make = MakeKernels::yes);

    const Plan& plan() const { return plan_; }
    const std::vector<PassRefusal>& refused() const { return refused_; }

    /// The error text if memory does not suffice: "`what` needs ...; `advice`".
    struct Memory {
        std::string what, advice = {};
    };
    /// Bytes of constants and inputs, which plans hold themselves.
    std::int64_t held_bytes() const;
    /// Throws UserError if the device has less.
    static void require_memory(const Device& device, const Memory& memory, std::int64_t bytes);
    /// Takes memory for states that `parameters` lacks, and for activations, which may lie in `arena` if it
    /// is large enough. Both must outlive this object. Throws UserError if the memory does not suffice.
    void bind(const StateBlock& parameters, const Memory& memory, DeviceMemory* arena = nullptr);
    /// Bytes of activations that `bind` needs.
    std::int64_t arena_bytes() const;

    /// Computes derived states, such as 16-bit weights: to be called once the parameters are there, and after
    /// they change.
    void derive();
    /// The execution that takes inputs and gives results; needs `bind` first.
    Execution& execution() { return *execution_; }
    /// The states of the plan; it owns the ones that `bind` made.
    StateBlock& state() { return *state_; }

  private:
    Forward(Device& device, BuiltGraph built, MakeKernels make);

    Device& device_;
    Plan plan_;
    std::unique_ptr<Plan> derive_plan_;  ///< null: nothing is derived
    std::vector<PassRefusal> refused_;
    std::unique_ptr<StateBlock> state_;
    std::unique_ptr<DeviceMemory> own_arena_;  ///< null: the arena is the caller's
    std::unique_ptr<Execution> execution_, derive_;
};

}  // namespace mantissa
