// Score functions of attention as plain data, for pseudo-code and machine code: a body's function
// (graph/ops/attention.cpp) of the score of one pair of a query and a key, written for blocks of pairs.
//
// A body that turns scores into 30 tanh(s / 30) + slope * (key - query) gives two functions. Forward is the
// body; backward adds its derivative by s. Where a gradient of `slope` is asked for, a third adds up its
// contributions.
#pragma once

#include <string>
#include <vector>

#include "mantissa/base/expected.h"
#include "mantissa/graph/graph.h"

namespace mantissa::inline v0::codegen {

/// How an operand, or a gradient, goes along the axes of a pair: elements from one query and key to the next.
struct AlongPairs {
    std::int64_t query = 0, key = 0;
};

struct ScoreCode {
    enum class Makes : std::uint8_t { scores, slopes, multipliers, gradient };
    struct Operand {
        DType dtype = DType::f32;  ///< in memory
        DType value = DType::f32;  ///< as the body sees it: a boolean may lie there as i32
        bool rows = false;         ///< whether it varies from row to row
        int lanes = 0;             ///< elements from lane to lane: -1, 0 or 1
    };
    struct Output {
        Makes makes = Makes::scores;
        bool rows = false, lanes = false;  ///< a gradient: whether rows and lanes have elements of their own
    };

    /// Element-wise over [B, H, T, S]. Its inputs: the scaled scores, the operands, and for sums the
    /// gradients of the new scores. Its results: the outputs.
    Graph graph;
    std::vector<Operand> operands;
    std::vector<Output> outputs;
    bool lanes_are_queries = true;
    std::int64_t lanes = 0;  ///< of a whole block
    bool sums = false;
    bool rounded = false;  ///< weights are rounded to 16 bits: see ScoreRequest
};

/// As text; equal codes have equal texts.
std::string text(const ScoreCode& code);

/// Lanes of the blocks that kernels have.
inline constexpr std::int64_t forward_score_lanes = 32, backward_score_lanes = 64;

struct ScoreRequest {
    const Graph& body;
    std::vector<AlongPairs> operands = {};  ///< by operand of the body after the scores
    std::vector<bool> gradients = {};       ///< by operand; empty: none is asked for
    /// Tensors have 16 bits, and so have the weights. Then tanh is 2 / (1 + exp(-2 x)) - 1, which takes half
    /// the time: its error is 2^-23 absolute, not relative, little beside the weights' 2^-9 below caps of
    /// thousands.
    bool rounded = false;
};

/// The meaning of a body for kernels.
struct ScoreForm {
    bool is_score = true;  ///< the new score is the scaled one
    bool hides = false;    ///< there is `visible`
    bool multiplies = false;
    bool unit_slope = true;  ///< the derivative is 1
    ScoreCode forward, forward_masked, backward, backward_masked, sums;
    ScoreCode forward_mask, backward_mask;  ///< the scaled score where it is seen, else -infinity
};

/// The score form, or why no function can be made of the body.
Expected<ScoreForm> score_form(const ScoreRequest& request);

}  // namespace mantissa::codegen
