// The public face: include this, and link mantissa::mantissa. A model is a value (nn/model.h) with a loss in
// ordinary C++ over symbolic tensors (graph/tensor.h) and layers (nn/layers.h). A Trainer (train/trainer.h)
// trains it on a device, under any policy. A Predictor gives its outputs, a Generator continues texts;
// reports explain and measure.
//
// An example, where `loss` and `network` are functions of tensors, (Tensor x, Tensor y) and (Tensor x):
//
//   mantissa::Trainer trainer(mantissa::cpu(), {.name = "line",
//                                               .inputs = {nn::numbers("x", {1}), nn::numbers("y", {1})},
//                                               .loss = loss,
//                                               .output = {.trace = network}},
//                             {.batch = 4, .policy = "bf16"});
//   trainer.step({x, y}, 0.05)             makes a step on four rows, vectors of floats
//   mantissa::Predictor(trainer).predict({x})  returns the network's outputs for any number of rows
//
// The installation has the headers that this one includes and, for authors of a device, the headers that
// mantissa/engine.h includes.
#pragma once

#include "mantissa/base/error.h"
#include "mantissa/data/batch.h"
#include "mantissa/data/images.h"
#include "mantissa/data/own_data.h"
#include "mantissa/data/text_windows.h"
#include "mantissa/device/devices.h"
#include "mantissa/nn/image_model.h"
#include "mantissa/nn/language_model.h"
#include "mantissa/nn/layers.h"
#include "mantissa/nn/losses.h"
#include "mantissa/report/reports.h"
#include "mantissa/train/generator.h"
#include "mantissa/train/predictor.h"
#include "mantissa/train/trainer.h"
