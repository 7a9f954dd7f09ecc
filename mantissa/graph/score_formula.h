// A score of attention as a person would write it, for reports.
//
//   30 * tanh(s / 30) where j <= i and i - j < 1024
//
// s is the scaled product; b, h, i and j are sequence, head, query and key; x1[h] is the first operand of the
// score, by its axes, x1[h, j - i] a table by head and distance.
#pragma once

#include <string>

#include "mantissa/graph/attention_score.h"

namespace mantissa::inline v0 {

struct ScoreFormula {
    std::string score;       ///< "s" of a plain score
    std::string visible;     ///< with the causal mask; empty: every pair is visible
    std::string multiplier;  ///< empty: 1

    /// All in one line, as above; a multiplier as in "s, weights times x1[h]".
    std::string text() const;
};

ScoreFormula score_formula(const AttentionScore& score, bool causal, const AttentionExtents& extents);

}  // namespace mantissa
