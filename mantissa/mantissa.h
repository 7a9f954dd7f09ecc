// The public face: include this, and link mantissa::mantissa. A model is a value (nn/model.h) whose loss is
// ordinary C++ over symbolic tensors (graph/tensor.h) and layers (nn/layers.h); a Trainer (train/trainer.h)
// trains it on a device, under any policy and with any passes.
//
//   const nn::Model model{.name = "line", .inputs = {{"x", DType::f32, {1}}, {"y", DType::f32, {1}}},
//                         .loss = [](Graph&, std::span<const Tensor> in, const nn::Mode&) {
//                             const Tensor error = nn::linear(in[0], "line", {.outputs = 1}) - in[1];
//                             return mean(error * error, {0, 1});
//                         }};
//   Trainer trainer(cpu(), model, {.optimizer = adamw(), .batch = 4}); trainer.step({x, y}, 0.05);
//
// What is installed is what this header and the headers below bring along; all else is internal.
#pragma once

#include "mantissa/base/error.h"
#include "mantissa/base/version.h"
#include "mantissa/data/examples.h"
#include "mantissa/data/text_windows.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/nn/language_model.h"
#include "mantissa/nn/layers.h"
#include "mantissa/nn/losses.h"
#include "mantissa/train/ema.h"
#include "mantissa/train/muon.h"
#include "mantissa/train/predictor.h"
#include "mantissa/train/schedule.h"
#include "mantissa/train/sgd.h"
#include "mantissa/train/trainer.h"
#include "mantissa/train/training_checkpoint.h"
#include "mantissa/train/weights.h"
