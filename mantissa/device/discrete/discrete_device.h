// A device in software that is as far away as one may be: its memory is out of the host's reach, what is
// queued runs as late as it may, and memory that nobody wrote holds garbage. Kernels are another device's. It
// finds, on any machine, who takes a device for the host: a time measured over it means nothing.
//
//   waiting for an event     runs what was queued before the event, and nothing behind it
//   a copy that returns      when it is done runs all work that was queued, first
//   a copy that is queued    runs now as soon as it may, now as late; until then what it writes on the host
//                            holds `poison`
//   fresh memory             holds `poison`, and so do a launch's outputs and workspace before it runs, but
//                            for an output that lies over an operand
//   reading it on the host   ends the program with SIGSEGV and a line that says so
#pragma once

#include <cstdint>
#include <memory>

#include "mantissa/device/device.h"

namespace mantissa::inline v0 {

/// What memory holds, over and over, that nobody wrote: no number in any format of floating point, and far
/// out of range as an index.
constexpr std::uint16_t poison = 0xfff5;

/// Whether MANTISSA_EMULATE_DISCRETE is 1. Throws UserError for anything but 0, 1, empty and unset.
bool discrete_emulation_asked();

/// With the kernels of a device whose memory is the host's, and whose launches are done when they return.
std::unique_ptr<Device> make_discrete_device(std::unique_ptr<Device> kernels);

}  // namespace mantissa
