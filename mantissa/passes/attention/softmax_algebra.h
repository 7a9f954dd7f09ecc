// Weights of attention, by their algebra: exponentials of a score under a mask, divided by their sum over the
// keys, times later factors.
//
//   exp(x - m) / sum(exp(x - m)), softmax(x), exp(x - log(sum(exp(x)))), softmax(x) * mask / sum(softmax(x) *
//   mask)
//
// are all one form. Constants along the keys cancel wherever they were added or multiplied.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "mantissa/base/expected.h"
#include "mantissa/passes/attention/pair_expression.h"

namespace mantissa::inline v0 {

/// A sum of expressions times numbers.
using PairSum = std::map<PairId, double>;

/// The terms of a sum over the keys: exponentials of a sum of terms, of pairs under masks, times factors; and
/// the exponentials added to it that are no key's.
struct KeySum {
    PairSum exponent;
    std::set<PairId> masks;
    std::vector<PairId> factors;
    std::vector<PairSum> sinks;

    friend auto operator<=>(const KeySum&, const KeySum&) = default;
};

/// A product: number * exp(exponent + rows of it) under masks * factors * rows * sums, these to powers.
struct WeightProduct {
    double number = 1;
    PairSum exponent;
    PairSum row_exponent;  ///< terms that do not change along the keys
    std::set<PairId> masks;
    std::vector<PairId> factors;
    std::map<PairId, int> rows;
    std::map<KeySum, int> sums;
    std::string refused;  ///< why it is none

    bool has_sums() const { return !sums.empty(); }
};

/// Attention's weights: softmax of `score` over the pairs that are visible, times `multiplier`.
struct SoftmaxWeights {
    PairId score = -1;
    PairId visible = -1;               ///< a truth
    PairId multiplier = -1;            ///< 1: none
    std::optional<PairSum> sink = {};  ///< the extra logit, which is no key's
    KeySum sum;
};

class SoftmaxAlgebra {
  public:
    explicit SoftmaxAlgebra(PairExpressions& expressions) : x_(expressions) {}

    WeightProduct product_of(PairId id);
    /// Multiplies by the power of an expression.
    void multiply(WeightProduct& into, PairId id, int power);
    /// The weights that the product is, if everything but the weights cancels.
    Expected<SoftmaxWeights> weights(const WeightProduct& product);
    /// Whether an expression is the logarithm of this sum alone.
    bool is_log_of(PairId id, const KeySum& sum);

    struct Masked {
        PairId visible, score;
        std::set<double> fills = {};  ///< finite scores that hidden pairs have, and sums of two of them
    };
    /// Separates hidden pairs: scores of -infinity, and choices of a number at or below `least`, times
    /// `scale`.
    Masked unmasked(PairId id, double scale, double least);

    PairId expression_of(const PairSum& sum);
    /// Without addends that do not change along the keys; these go into `dropped`.
    PairId changing(PairId id, PairSum& dropped);

  private:
    enum class Stands : std::uint8_t { alone, in_choice };
    Masked unmasked(PairId id, double scale, double least, Stands stands);
    void add_terms(PairId id, double factor, PairSum& to);
    void multiply_exponential(WeightProduct& into, PairId exponent, int power);
    void multiply_sum(WeightProduct& into, PairId summed, int power);
    bool multiply_with_sinks(WeightProduct& into, PairId id, int power);
    void add_power(WeightProduct& into, const WeightProduct& factor, int power);

    PairExpressions& x_;
};

}  // namespace mantissa
