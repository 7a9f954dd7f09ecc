// The public face: include this, and link mantissa::mantissa. A model is a value (nn/model.h) whose loss is
// ordinary C++ over symbolic tensors (graph/tensor.h) and layers (nn/layers.h). A Trainer (train/trainer.h)
// trains it on a device, under any policy; a Predictor says what it makes of examples; reports say the rest.
//
//   namespace nn = mantissa::nn;
//   using mantissa::Tensor, mantissa::DType;
//   Tensor loss(Tensor x, Tensor y) { return nn::mse_loss(nn::linear(x, "line", {.outputs = 1}), y); }
//
//   const std::vector<nn::InputSpec> inputs{{"x", DType::f32, {1}}, {"y", DType::f32, {1}}};
//   mantissa::Trainer trainer(mantissa::cpu(), {.name = "line", .inputs = inputs, .loss = loss});
//   trainer.step({x, y}, 0.05)  with vectors of floats x and y
//
// What is installed is what this header brings along and, for who adds a device or looks into a plan, what
// mantissa/engine.h does; all else is internal.
#pragma once

#include "mantissa/base/error.h"
#include "mantissa/data/batch.h"
#include "mantissa/data/pictures.h"
#include "mantissa/data/text_windows.h"
#include "mantissa/device/devices.h"
#include "mantissa/nn/image_model.h"
#include "mantissa/nn/language_model.h"
#include "mantissa/nn/layers.h"
#include "mantissa/nn/losses.h"
#include "mantissa/report/reports.h"
#include "mantissa/train/predictor.h"
#include "mantissa/train/trainer.h"
