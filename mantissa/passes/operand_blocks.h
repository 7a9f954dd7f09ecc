// How a policy below sixteen bits rounds the operands of linear layers and convolutions.
#pragma once

#include <cstdint>
#include <string>

#include "mantissa/numerics/short_formats.h"

namespace mantissa::inline v0 {

/// Operands of layers' products below sixteen bits: numbers are rounded to a format's values times a
/// scale that they share, by default with neighbours along each product's depth. The values are BF16 numbers,
/// and are multiplied as such; a scale of the whole tensor multiplies the sums.
struct OperandBlocks {
    ShortFormat element{};              ///< e4m3 is the first
    ShortFormat gradient_element{};     ///< of the gradient dY
    ScaleRule rule{};                   ///< up is the first
    std::int64_t size = 32;             ///< numbers that share a scale
    bool square_weights = false;        ///< weights in blocks of as many rows as columns
    bool stochastic_gradients = false;  ///< dY to one of its two neighbours at random, unbiased
    bool hadamard = false;              ///< both factors of the filter gradient are turned first
    /// Earlier micro-batches whose largest numbers give the scales of X and dY; 0: this tensor's do.
    std::int64_t history = 0;
    /// Shares of all layers, the first and the last of them, that stay in BF16.
    double kept_first = 0, kept_last = 0;

    /// "e4m3 (gradients e5m2), a scale a tensor"
    std::string text() const;
};

}  // namespace mantissa
