// A model with adapters of low rank (LoraOptions, nn/model.h): its own weights are frozen, and it computes
// the model's values until the adapters are trained.
#pragma once

#include <optional>
#include <string>

#include "mantissa/nn/language_model.h"
#include "mantissa/nn/model.h"
#include "mantissa/passes/add_adapters.h"

namespace mantissa::inline v0::nn {

/// Throws UserError, naming the field, for a rank below 1, an alpha or a dropout that is out of range.
void validate(const LoraOptions& options);

/// The adapter of an adapted layer.
Adapter adapter_of(const LoraOptions& options, const std::string& layer);

/// `stored`: format of frozen matrices; none: FP32. Its trace throws UserError, naming the layers, for a
/// pattern that matches no layer.
Model with_adapters(Model model, const LoraOptions& options, std::optional<DType> stored = {});
/// The model without adapters.
Model without_adapters(Model model);
LanguageModel with_adapters(LanguageModel model, const LoraOptions& options,
                            std::optional<DType> stored = {});

}  // namespace mantissa::nn
