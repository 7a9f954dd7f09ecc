// Optimizers as values, and the learning rate of each step.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/nn/model.h"

namespace mantissa::inline v0 {

struct OptimizerStep;
struct State;
struct UpdatedParameter;

/// Parameters with settings of their own, as PyTorch's parameter groups.
struct ParameterGroup {
    std::string pattern;              ///< of names (base/name_pattern.h): "head.*", "*.bias"
    double learning_rate_factor = 1;  ///< times the learning rate of the step
    /// A decay for the whole group, whatever the shapes; none: the optimizer's decay.
    std::optional<double> weight_decay = {};
};

/// Whether some of a parameter's elements may be updated without the others.
using MayBeCut = std::function<bool(const Graph&, const State& parameter)>;

struct Optimizer {
    std::string name;             ///< "adamw": its states begin with it
    Configuration configuration;  ///< its numbers, which must be the same to resume
    bool counts_steps = false;    ///< keeps the state NAME.step
    /// Records the update of one parameter and of its optimizer states. Returns the parameter's new value.
    std::function<Tensor(Graph&, const UpdatedParameter&, const OptimizerStep&)> update;
    /// Whether ranks may update parts of a parameter; if not, every rank updates all of it.
    MayBeCut may_be_cut = [](const Graph&, const State&) { return true; };
    /// The gradient is scaled down to this norm; 0: never. As in PyTorch: times clip / (norm + 1e-6) if that
    /// is below 1.
    double clip = 0;
    /// A parameter belongs to the first group with a matching pattern.
    std::vector<ParameterGroup> groups = {};
};

/// The optimizer with gradients scaled down to this norm.
Optimizer clipped(Optimizer optimizer, double norm);

/// The optimizer with these groups. Throws UserError, naming the pattern, for a factor or a decay that is
/// negative or not finite in FP32. A group without parameters is an error of the plan.
Optimizer grouped(Optimizer optimizer, std::vector<ParameterGroup> groups);

// AdamW: Loshchilov, Hutter, "Decoupled weight decay regularization", ICLR 2019, as in PyTorch.
struct AdamWOptions {
    double beta1 = 0.9;
    double beta2 = 0.95;
    double epsilon = 1e-8;
    double weight_decay = 0.1;
    /// Decay matrices (and tables) only, not biases and the weights of norms.
    bool decay_matrices_only = true;
};

/// Keeps `adamw.step` (f64 scalar) and, for a parameter P, `adamw.m.P` and `adamw.v.P`. Throws UserError for
/// betas outside [0, 1), and for a decay or epsilon that is negative or not finite in FP32.
Optimizer adamw(const AdamWOptions& options = {});

// Stochastic gradient descent with momentum, as torch.optim.SGD.

/// The gradient g gets weight_decay times the parameter p added. The buffer becomes momentum times itself
/// plus (1 - dampening) g; in the first step it is g. The learning rate times the buffer is subtracted from
/// p; with Nesterov's momentum, times g + momentum buffer; without momentum, times g.
struct SgdOptions {
    double momentum = 0;
    double dampening = 0;
    bool nesterov = false;
    double weight_decay = 0;
    /// Decay matrices (and tables) only, not biases and the weights of norms.
    bool decay_matrices_only = false;
};

/// With momentum it keeps `sgd.step` (f64 scalar) and, for a parameter P, `sgd.momentum.P`; else nothing.
/// Throws UserError for a momentum outside [0, 1), a dampening outside [0, 1], and for a decay that is
/// negative or not finite in FP32. Throws it, too, for a dampening without momentum, and for Nesterov's
/// momentum without momentum or with a dampening.
Optimizer sgd(const SgdOptions& options = {});

// Muon for the matrices of hidden layers, as torch.optim.Muon, and AdamW for all other parameters.

/// The buffer of a matrix's gradients becomes momentum times itself plus (1 - momentum) times the gradient.
/// The update is the buffer or, with Nesterov's momentum, this mean of buffer and gradient taken once more.
/// `iterations` of Newton and Schulz make it orthogonal. The parameter decays first; then the update, times
/// the learning rate and the factor of `rates`, is subtracted. Jordan et al., "Muon: an optimizer for hidden
/// layers in neural networks", 2024.
struct MuonOptions {
    enum class Rates : std::uint8_t {
        original,   ///< times sqrt(max(1, rows / columns))
        like_adamw  ///< times 0.2 sqrt(max(rows, columns)): one rate serves both. Liu et al. 2025
    };
    double momentum = 0.95;
    bool nesterov = true;
    double weight_decay = 0.1;
    double epsilon = 1e-7;  ///< the least norm that divides a gradient
    std::int64_t iterations = 5;
    Rates rates = Rates::like_adamw;
    bool in_bf16 = true;  ///< the iterations multiply BF16; else FP32
    /// The matrices, by patterns of names (base/name_pattern.h); none: all in hidden layers.
    std::optional<std::vector<std::string>> matrices = {};
    AdamWOptions others = {};  ///< for all other parameters
};

/// Keeps `muon.step` (f64 scalar); for a matrix P `muon.buffer.P`; for others AdamW's states. Throws
/// UserError as adamw does, and for a momentum outside [0, 1), an epsilon that is not positive in FP32 and
/// iterations outside 1 to 20. The plan of a step throws it for a named parameter that is no matrix.
Optimizer muon(const MuonOptions& options = {});

/// The learning rate of each step: a linear warm-up, then a cosine down to the least rate.
struct LearningRateSchedule {
    double peak = 1e-3;
    double least = 1e-3;      ///< rate at the cosine's end; equal to `peak`: constant after the warm-up
    std::int64_t warmup = 0;  ///< steps: rates from peak / warmup to peak
    std::int64_t steps = 1;   ///< of the whole training

    /// The rate of step 0, 1, ... Half a cosine's period is `steps` - `warmup` steps long. So `least` is the
    /// rate of step `steps`, the first that is not made, and of all later ones. The formula is nanoGPT's and
    /// llm.c's and, without warm-up, PyTorch's CosineAnnealingLR with T_max = `steps`.
    double at(std::int64_t step) const;
    /// The schedule in words; schedules that are equal at every step have equal words.
    std::string text() const;
};

}  // namespace mantissa
