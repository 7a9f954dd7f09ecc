// All lane functions that compilers can vectorise, for one instruction set.
#pragma once

#include "tests/emulated_gpu/lane_bits_body.h"
#include "tests/emulated_gpu/lane_floats_body.h"
#include "tests/emulated_gpu/lane_integers_body.h"

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
