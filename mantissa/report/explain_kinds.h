// An explanation added up, for tables: operations by kind, casts by kind, what passes left, and totals by
// arithmetic.
#pragma once

#include <string>
#include <vector>

#include "mantissa/report/explain.h"

namespace mantissa::inline v0 {

struct ExplainedKind {
    ExplainedNode node;  ///< the first of them, with the bytes and arithmetic of all
    int count = 0;
};

/// Nodes that differ in nothing but their place in the model, in order of first use. Fused kernels are alike
/// where their parts are.
std::vector<ExplainedKind> kinds_of(const std::vector<ExplainedNode>& nodes);

struct PartKind {
    ExplainedNode part;  ///< the first of them
    std::string ops;     ///< of all: "mul (3), add, rsqrt"
};

/// Parts of a fused kernel that are done in the same formats by the same rule, in order of first use.
std::vector<PartKind> part_kinds_of(const ExplainedNode& node);

struct CastKind {
    ExplainedCast cast;  ///< the first of them, with the bytes of all
    int count = 0;
};

/// Casts of one pass, between the same formats and by the same rule.
std::vector<CastKind> kinds_of(const std::vector<ExplainedCast>& casts);

struct RefusalKind {
    PassRefusal refusal;  ///< the first of them
    int count = 0;
};

/// What one pass left for one reason, of one operation, in order of first use.
std::vector<RefusalKind> kinds_of(const std::vector<PassRefusal>& refused);

struct AttentionKind {
    ExplainedAttention attention;  ///< the first of them
    int count = 0;
};

/// Attentions of which the same is said, in order of first use.
std::vector<AttentionKind> kinds_of(const std::vector<ExplainedAttention>& attentions);

struct ArithmeticTotal {
    std::string name;  ///< "bf16*bf16+f32", "f32", "movement", "casts"
    std::int64_t flops = 0, bytes = 0;
};

/// By arithmetic, casts last.
std::vector<ArithmeticTotal> totals_of(const Explanation& explanation);

}  // namespace mantissa
