// The gradients of a training step by parameter, shown while the step runs: nothing runs twice for it, and
// nothing is kept longer.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "mantissa/runtime/execution.h"

namespace mantissa::inline v0 {

/// Shown a parameter's gradient, which can be read from the execution until this returns. It is that of the
/// whole step, micro-steps added up, before clipping; the loss scale is still in it.
using ShowGradient = FunctionRef<void(const std::string& parameter, Value gradient)>;

/// Runs the last micro-step of a training step to its end, and shows every gradient on the way, in the order
/// of the parameters. With a profile, times each kernel. Returns the seconds that showing took. Throws
/// UserError where states are sharded, since a rank then has parts of gradients.
double run_showing_gradients(Execution& last, ShowGradient show, Profile* profile = nullptr);

/// The gradients of a step that stopped at them, where they lie: there until the trainer runs something else.
class Gradients {
  public:
    /// Runs the last micro-step of a training step, and stops before its update. Throws UserError as above.
    Gradients(Execution& last, float loss_scale);

    /// Of the step: the mean over the micro-steps.
    float loss() const { return loss_; }
    /// Parameters that are trained, in their order.
    const std::vector<std::string>& names() const { return names_; }

    /// A copy in host memory, with no loss scale in it. Throws UserError, naming those there are, for a name
    /// that is no parameter's.
    std::vector<float> read(const std::string& parameter) const;

    struct Place {
        Type type;               ///< the parameter's shape; mostly f32
        const std::byte* bytes;  ///< in the device's memory
        float loss_scale;        ///< that is still in it; 1 without one
    };
    Place place(const std::string& parameter) const;

    /// Norm of all together.
    double norm() const;
    /// Goes on to the end of the step.
    void update(float learning_rate);

  private:
    Value value_of(const std::string& parameter) const;

    Execution* last_;
    NodeId stopped_at_;
    float loss_scale_, loss_ = 0;
    std::vector<std::string> names_;
    std::map<std::string, Value> values_;
};

}  // namespace mantissa
