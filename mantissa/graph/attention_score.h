// Attention whose weights are a softmax of a function of the scaled product, f(s, positions, operands), under
// a mask. The attributes `score` and `score_operands` describe it.
//
// `score` is a body of element-wise primitives over [B, H, T, S]. Its first input is the scaled product, FP32
// (FP64 where queries, keys and values are). Each further input is an operand of the score, of rank 4: an
// axis along which it does not change has extent 1. Its results, by name:
//
//   score       the argument of the softmax, of the first input's type and shape
//   visible     optional, boolean: whether the query sees the key; where it does not, the score is
//               -infinity
//   multiplier  optional, as the score, or of extent 1 along some axes: the factor of the normalised
//               weights, as in dropout
//
// `score_operands` has a word for each operand, "h,bt,hr": its axes as it is stored, b sequences, h heads, t
// queries, s keys. r stands instead of t and s, for distances: an axis of S + T - 1 elements that is read at
// j - i + T - 1 for query i and key j. A single number, which has no axis, is written 1. Operands stand
// behind the tensors of queries, keys and values.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mantissa/graph/attention_layout.h"
#include "mantissa/graph/tensor.h"

namespace mantissa::inline v0 {

struct AttentionScore {
    std::optional<Body> body = {};           ///< none: the score is the scaled product
    std::vector<std::string> operands = {};  ///< axes of each as it is stored; empty: a single number

    bool plain() const { return !body; }
};

/// The score that the attributes describe. Throws UserError if the words are none of the above.
AttentionScore attention_score(const Attributes& attributes);
/// The attributes with the score; a plain score needs none.
Attributes with_score(const Attributes& attributes, const AttentionScore& score);

/// The stored shape of an operand of the score with these axes.
Shape stored_score_operand(const std::string& axes, const AttentionExtents& extents);
/// Its shape beside the scores, of rank 4.
Shape score_operand_shape(const std::string& axes, const AttentionExtents& extents);

/// The place of a pair's element in an operand of the score. `first` is the element of sequence, head, query
/// and key 0. The other members are elements from one to the next; 0: all share one element.
struct ScorePlace {
    std::int64_t first = 0, sequence = 0, head = 0, query = 0, key = 0;
};
ScorePlace place_of_score_operand(const std::string& axes, const Shape& stored,
                                  const AttentionExtents& extents);

/// Flags of attention_grad, by operand of the score: whether its gradient is asked for.
std::vector<bool> asked_score_gradients(const Attributes& attributes, std::size_t operands);

/// Throws UserError unless the body is a score over these extents with these operands. `operands`: their
/// types as they are stored.
void expect_score(const AttentionScore& score, DType tensors, const AttentionExtents& extents,
                  std::span<const Type> operands);

/// The body's result for the scaled product [B, H, T, S] and the operands as they are stored.
struct ScoredPairs {
    Tensor score;
    Tensor visible;     ///< empty: every pair is
    Tensor multiplier;  ///< empty: 1
};
ScoredPairs scored_pairs(const AttentionScore& score, Tensor scaled, std::span<const Tensor> operands,
                         const AttentionExtents& extents);

/// A score as a person would write it, for reports:
///
///   30 * tanh(s / 30) where j <= i and i - j < 1024
///
/// s is the scaled product; b, h, i and j are sequence, head, query and key; x1[h] is the first operand of
/// the score, by its axes, x1[h, j - i] a table by head and distance.
struct ScoreFormula {
    std::string score;       ///< "s" of a plain one
    std::string visible;     ///< with the causal mask; empty: every pair is
    std::string multiplier;  ///< empty: 1

    /// All in one line, as above; a multiplier as in "s, weights times x1[h]".
    std::string text() const;
};

ScoreFormula score_formula(const AttentionScore& score, bool causal, const AttentionExtents& extents);

}  // namespace mantissa
