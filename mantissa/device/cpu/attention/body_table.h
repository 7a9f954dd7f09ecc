// The table of a level's attention kernels, made of the bodies. See body_products.h for how this file is
// used.
#pragma once

#include "mantissa/device/cpu/attention/body_backward.h"
#include "mantissa/device/cpu/attention/body_forward.h"

namespace mantissa::cpu {
namespace {

constexpr AttentionKernels table_named(const char* name) {
    return {.name = name,
            .pairs = Operands::word == 2,
            .forward = attention_queries,
            .delta = attention_delta,
            .backward = attention_grad_keys,
            .sum_dq = attention_sum_dq};
}

}  // namespace
}  // namespace mantissa::cpu
