// The table of a level's attention kernels, made of the bodies. See body_products.h for how this file is
// used.
#pragma once

#include "mantissa/device/cpu/attention/body_backward.h"
#include "mantissa/device/cpu/attention/body_forward.h"

namespace mantissa::inline v0::on_cpu {
namespace {

constexpr AttentionKernels table_of(AttentionKernels table) {
    table.forward = attention_queries;
    table.delta = attention_delta;
    table.backward = attention_grad_keys;
    table.sum_dq = attention_sum_dq;
    return table;
}

}  // namespace
}  // namespace mantissa::on_cpu
