// Cases of attention and its gradient: plain, with other layouts, with scores of every kind, and cached.
#pragma once

#include "tests/support/op_case.h"

namespace mantissa::testing {

/// Number of keys and values, and their heads, as many as q's or fewer.
struct Keys {
    std::int64_t count = 0, heads = 0;
};

/// The weights of a query are known to |score| rounding errors. o sums one term per key; gradients of keys
/// sum one term per query of the heads that read them.
OpCase attention_case(const char* name, Shape q, Keys of, bool causal);
OpCase attention_grad_case(const char* name, Shape q, Keys of, bool causal);

std::vector<OpCase> attention_cases();

}  // namespace mantissa::testing
