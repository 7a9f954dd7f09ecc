// The computation for each pair of a query and a key, as an expression: of the scaled product, of positions
// and of operands, whatever tensors it was spelled with. Equal expressions are one. Making an expression
// applies the rules of algebra: constants are folded, signs and scales collected, numbers made of truth
// values become choices. So two spellings of one thing mostly are one expression.
//
// Zero times anything is zero here, since masks of zeros are meant to take scores away.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>
#include <vector>

#include "mantissa/graph/graph.h"
#include "mantissa/graph/tensor.h"

namespace mantissa::inline v0 {

/// An expression, by its place among all expressions.
using PairId = int;

/// Axes of pairs along which an expression changes: bits.
enum PairAxes : unsigned {
    along_sequences = 1,
    along_heads = 2,
    along_queries = 4,
    along_keys = 8,
    along_all = 15
};

struct PairTerm {
    /// A primitive, or: number, position, product, operand, random, row (a number for each query that is
    /// known by name only), not, sum and most (over the keys).
    std::string_view op;
    std::vector<PairId> in = {};
    double value = 0;  ///< of a number
    int index = 0;     ///< position: the axis; operand, random, row: which
    DType dtype = DType::f32;
    unsigned axes = 0;
};

class PairExpressions {
  public:
    const PairTerm& operator[](PairId id) const { return terms_[static_cast<std::size_t>(id)]; }

    PairId size() const { return static_cast<PairId>(terms_.size()); }

    PairId number(double value, DType dtype = DType::f32);
    PairId truth(bool value) { return number(value ? 1 : 0, DType::boolean); }
    PairId position(int axis, DType dtype);
    PairId product();
    /// A leaf: "operand", "random" or "row".
    PairId leaf(std::string_view op, int index, DType dtype, unsigned axes);
    /// The primitive of these, or an equal expression.
    PairId make(std::string_view op, std::vector<PairId> in);
    PairId cast(PairId x, DType dtype);
    PairId negation(PairId x);
    PairId sum(PairId x);   ///< over the keys
    PairId most(PairId x);  ///< the greatest over the keys, computed outside of the work on each pair

    bool is_number(PairId id) const { return (*this)[id].op == "number"; }
    bool is_number(PairId id, double value) const { return is_number(id) && (*this)[id].value == value; }
    bool changes_along_keys(PairId id) const { return ((*this)[id].axes & along_keys) != 0; }
    /// Whether a term of this kind is part of it.
    bool contains(PairId id, std::string_view op) const;

    /// A sum of weights times positions, and an offset; nothing if it is none.
    struct Linear {
        std::array<double, 4> weights = {};
        double offset = 0;
        bool is_constant() const { return weights == std::array<double, 4>{}; }
    };
    std::optional<Linear> linear(PairId id) const;

    /// Conditions that must all hold.
    std::vector<PairId> conjuncts(PairId id) const;
    PairId conjunction(const std::vector<PairId>& conditions);

    /// The expression with leaves and other terms replaced.
    PairId replaced(PairId id, const std::map<PairId, PairId>& by);

    /// Records it in a graph. `leaves`: the tensors of the product, operand, random and row terms that it
    /// has. `floating`: the type of its floating-point numbers. `extents`: of the four axes, for positions.
    Tensor emit(Graph& graph, PairId id, std::map<PairId, Tensor>& made, DType floating,
                const Shape& extents) const;

  private:
    PairId intern(PairTerm term);
    PairId fold(std::string_view op, const std::vector<PairId>& in, DType dtype);
    std::optional<PairId> pushed_into_choices(std::string_view op, const std::vector<PairId>& in);
    PairId made(std::string_view op, std::vector<PairId> in, DType dtype);
    PairId sum_of_two(PairId a, PairId b);
    PairId product_of_two(PairId a, PairId b);
    PairId choice(PairId condition, PairId a, PairId b);
    PairId comparison(std::string_view op, PairId a, PairId b);
    PairId both(PairId a, PairId b);
    bool is_choice_of_numbers(PairId id) const;

    using Key = std::tuple<std::string_view, std::vector<PairId>, std::uint64_t, int, DType>;
    std::vector<PairTerm> terms_;
    std::map<Key, PairId> known_;
};

}  // namespace mantissa
