// The second public header, for authors of a device or a kernel, and for inspecting a step. It has graphs,
// plans, devices and the memory of a training. Training a model needs nothing of it.
#pragma once

#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/device/device.h"
#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"
#include "mantissa/runtime/execution.h"
#include "mantissa/runtime/plan.h"
#include "mantissa/train/memory_fit.h"
#include "mantissa/train/step_execution.h"
#include "mantissa/train/training_plan.h"
