// A model with adapters of low rank (LoraOptions, nn/model.h): its own weights are frozen, and what it
// computes is the model's until the adapters are trained.
#pragma once

#include <optional>
#include <string>

#include "mantissa/nn/language_model.h"
#include "mantissa/nn/model.h"
#include "mantissa/passes/add_adapters.h"

namespace mantissa::inline v0::nn {

/// Throws UserError, naming the field, for a rank below 1, an alpha or a dropout that is out of range.
void validate(const LoraOptions& options);

/// The adapter of a layer that has one.
Adapter adapter_of(const LoraOptions& options, const std::string& layer);

/// `stored`: the format in which frozen matrices are kept; none: FP32. While it is traced: throws UserError,
/// naming the layers that there are, for a pattern that names none of them.
Model with_adapters(Model model, const LoraOptions& options, std::optional<DType> stored = {});
/// The model itself, if it has adapters; else as it is.
Model without_adapters(Model model);
LanguageModel with_adapters(LanguageModel model, const LoraOptions& options,
                            std::optional<DType> stored = {});

}  // namespace mantissa::nn
