// Muon for the matrices of hidden layers, as torch.optim.Muon, beside AdamW for all else.
#pragma once

#include "mantissa/train/adamw.h"
#include "mantissa/train/optimizer.h"

namespace mantissa::inline v0 {

/// The buffer of a matrix's gradients becomes momentum times itself plus (1 - momentum) times the gradient;
/// that, or by Nesterov's momentum the same of both once more, is made orthogonal by `iterations` of Newton
/// and Schulz and, times the learning rate and what `rates` makes of the shape, taken off the parameter,
/// which decays first. Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024.
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
    bool in_bf16 = true;       ///< the iterations multiply BF16; else FP32
    AdamWOptions others = {};  ///< for what is no such matrix
};

/// Whether a parameter is a matrix of a hidden layer: something is multiplied with it, no ids pick rows of
/// it, and it makes no logits of a cross-entropy.
bool is_hidden_matrix(const Graph& graph, const State& parameter);

/// It keeps `muon.step` (f64 scalar), for a matrix P `muon.buffer.P`, for all else what AdamW keeps. Throws
/// UserError as adamw does, and for a momentum outside [0, 1), an epsilon that is not positive in FP32 and
/// iterations outside 1 to 20.
Optimizer muon(const MuonOptions& options = {});

}  // namespace mantissa
