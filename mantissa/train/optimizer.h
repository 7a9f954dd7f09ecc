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
    std::string pattern;              ///< of their names (base/name_pattern.h): "head.*", "*.bias"
    double learning_rate_factor = 1;  ///< times the learning rate of the step
    /// A decay for all of them, whatever their shapes; none: as the optimizer has it.
    std::optional<double> weight_decay = {};
};

/// Whether some of a parameter's elements may be updated without the others.
using MayBeCut = std::function<bool(const Graph&, const State& parameter)>;

struct Optimizer {
    std::string name;             ///< "adamw": its states begin with it
    Configuration configuration;  ///< its numbers, which must be the same to resume
    bool counts_steps = false;    ///< keeps the state NAME.step
    /// Records the update of one parameter and of the states that the optimizer keeps for it. Returns the
    /// parameter's new value.
    std::function<Tensor(Graph&, const UpdatedParameter&, const OptimizerStep&)> update;
    /// A parameter that may not be is updated by every rank.
    MayBeCut may_be_cut = [](const Graph&, const State&) { return true; };
    /// The gradient is scaled down to this norm; 0: never. As in PyTorch: by clip / (norm + 1e-6) if that is
    /// below 1.
    double clip = 0;
    /// A parameter belongs to the first whose pattern its name matches.
    std::vector<ParameterGroup> groups = {};
};

/// The same with gradients scaled down to this norm.
Optimizer clipped(Optimizer optimizer, double norm);

/// The same with these groups. Throws UserError, naming the pattern, for a factor or a decay that is negative
/// or not finite in FP32. A group to which no parameter belongs is an error of the plan.
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

/// To the gradient g is added weight_decay times the parameter p. The buffer becomes momentum times itself
/// plus (1 - dampening) g, in the first step g itself. From p is taken the learning rate times the buffer,
/// with Nesterov's momentum times g + momentum buffer, without momentum times g.
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

// Muon for the matrices of hidden layers, as torch.optim.Muon, beside AdamW for all else.

/// The buffer of a matrix's gradients becomes momentum times itself plus (1 - momentum) times the gradient.
/// The update is the buffer or, by Nesterov's momentum, the same mean of buffer and gradient once more. It is
/// made orthogonal by `iterations` of Newton and Schulz. Times the learning rate and the factor of `rates`,
/// it is taken off the parameter, which decays first. Jordan et al., "Muon: an optimizer for hidden layers in
/// neural networks", 2024.
struct MuonOptions {
    enum class Rates : std::uint8_t {
        original,   ///< times sqrt(max(1, rows / columns))
        like_adamw  ///< times 0.2 sqrt(max(rows, columns)): one rate serves both. Liu et al. 2025
    };
    double momentum = 0.95;
    bool nesterov = true;
    double weight_decay = 0.1;
    double epsilon = 1e-7;  ///< the least norm that a gradient is divided by
    std::int64_t iterations = 5;
    Rates rates = Rates::like_adamw;
    bool in_bf16 = true;  ///< the iterations multiply BF16; else FP32
    /// The matrices, by patterns of names (base/name_pattern.h); none: those of hidden layers.
    std::optional<std::vector<std::string>> matrices = {};
    AdamWOptions others = {};  ///< for what is no such matrix
};

/// It keeps `muon.step` (f64 scalar), for a matrix P `muon.buffer.P`, for all else what AdamW keeps. Throws
/// UserError as adamw does, and for a momentum outside [0, 1), an epsilon that is not positive in FP32 and
/// iterations outside 1 to 20; while a step is planned, for a matrix by name that is none.
Optimizer muon(const MuonOptions& options = {});

/// The learning rate of each step: a linear warm-up, then a cosine down to the least.
struct LearningRateSchedule {
    double peak = 1e-3;
    double least = 1e-3;      ///< where the cosine ends; equal to `peak`: constant after the warm-up
    std::int64_t warmup = 0;  ///< steps: the first has peak / warmup, the last of them peak
    std::int64_t steps = 1;   ///< of the whole training

    /// The rate of step 0, 1, ... Half a cosine's period is `steps` - `warmup` steps long, so that `least` is
    /// the rate of step `steps`, the first that is not made, and of all beyond: nanoGPT's and llm.c's
    /// formula, and that of PyTorch's CosineAnnealingLR with T_max = `steps` where there is no warm-up.
    double at(std::int64_t step) const;
    /// The schedule in words; two that are equal at every step have one text.
    std::string text() const;
};

}  // namespace mantissa
