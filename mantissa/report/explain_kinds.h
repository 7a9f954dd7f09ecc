// An explanation added up, for tables: what is alike counted, and totals by arithmetic.
#pragma once

#include <string>
#include <vector>

#include "mantissa/report/explain.h"

namespace mantissa::inline v0 {

/// The first of some that are alike, with the bytes and arithmetic of all, and how many there are.
template <class Item>
struct Kind {
    Item first;
    int count = 0;
};

// All in order of first use.

/// Nodes that differ in nothing but their place in the model. Fused kernels are alike where their parts are.
std::vector<Kind<ExplainedNode>> kinds_of(const std::vector<ExplainedNode>& nodes);

/// Casts of one pass, between the same formats and by the same rule.
std::vector<Kind<ExplainedCast>> kinds_of(const std::vector<ExplainedCast>& casts);

/// Nodes of one operation that one pass left as they are, for one reason.
std::vector<Kind<PassRefusal>> kinds_of(const std::vector<PassRefusal>& refused);

/// Attentions of which the same is said.
std::vector<Kind<ExplainedAttention>> kinds_of(const std::vector<ExplainedAttention>& attentions);

struct PartKind {
    ExplainedNode part;  ///< the first of them
    std::string ops;     ///< of all: "mul (3), add, rsqrt"
};

/// Parts of a fused kernel that are done in the same formats by the same rule.
std::vector<PartKind> part_kinds_of(const ExplainedNode& node);

struct ArithmeticTotal {
    std::string name;  ///< "bf16*bf16+f32", "f32", "movement", "casts"
    std::int64_t flops = 0, bytes = 0;
};

/// By arithmetic, casts last.
std::vector<ArithmeticTotal> totals_of(const Explanation& explanation);

}  // namespace mantissa
