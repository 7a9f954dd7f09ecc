// All lane functions that compilers can vectorise, for one instruction set.
#pragma once

#include "mantissa/device/cuda/emulator/lane_bits_body.h"
#include "mantissa/device/cuda/emulator/lane_floats_body.h"
#include "mantissa/device/cuda/emulator/lane_integers_body.h"

namespace mantissa::inline v0::cuda::ptx {

namespace {

inline void list_all(const LaneSink& sink) {
    list_integers(sink);
    list_bits(sink);
    list_floats(sink);
    list_tests(sink);
}

}  // namespace

}  // namespace mantissa::cuda::ptx
