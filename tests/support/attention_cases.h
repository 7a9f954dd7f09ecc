// Cases of attention and its gradient: plain, laid out, of scores of every kind, and of what is kept.
#pragma once

#include "tests/support/op_case.h"

namespace mantissa::testing {

/// Keys and values of as many heads as q has, or fewer.
struct Keys {
    std::int64_t count = 0, heads = 0;
};

/// The weights of a query are known to |score| rounding errors; o adds up as many terms as there are keys,
/// gradients of keys one for each query of the heads that read them.
OpCase attention_case(const char* name, Shape q, Keys of, bool causal);
OpCase attention_grad_case(const char* name, Shape q, Keys of, bool causal);

std::vector<OpCase> attention_cases();

}  // namespace mantissa::testing
