// The kernel of a scan: the plan of its body, launched once a step on the step's own memory. Nothing of it
// depends on the device.
#pragma once

#include "mantissa/runtime/plan.h"

namespace mantissa::inline v0 {

/// The kernel of a scan, prepared as a device would. Throws UserError where the device has no kernel for a
/// node of the body.
PreparedKernel prepare_scan(const Node& node, Device& device, MakeKernels make);

}  // namespace mantissa
