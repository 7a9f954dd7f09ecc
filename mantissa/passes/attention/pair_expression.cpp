#include "mantissa/passes/attention/pair_expression.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "mantissa/base/error.h"
#include "mantissa/graph/reference.h"

namespace mantissa::inline v0 {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

bool is_integer(DType dtype) { return !is_floating(dtype) && dtype != DType::boolean; }

bool is_comparison(std::string_view op) { return op == "less" || op == "less_equal" || op == "equal"; }

bool is_commutative(std::string_view op) {
    return op == "add" || op == "mul" || op == "maximum" || op == "minimum" || op == "equal" ||
           op == "logical_and";
}

}  // namespace

PairId PairExpressions::intern(PairTerm term) {
    const Key key{term.op, term.in, std::bit_cast<std::uint64_t>(term.value), term.index, term.dtype};
    const auto [entry, is_new] = known_.try_emplace(key, static_cast<PairId>(terms_.size()));
    if (is_new) terms_.push_back(std::move(term));
    return entry->second;
}

PairId PairExpressions::number(double value, DType dtype) {
    return intern({.op = "number", .value = value == 0 ? 0 : value, .dtype = dtype});
}

PairId PairExpressions::position(int axis, DType dtype) {
    return intern({.op = "position", .index = axis, .dtype = dtype, .axes = 1u << axis});
}

PairId PairExpressions::product() { return intern({.op = "product", .axes = along_all}); }

PairId PairExpressions::leaf(std::string_view op, int index, DType dtype, unsigned axes) {
    return intern({.op = op, .index = index, .dtype = dtype, .axes = axes});
}

PairId PairExpressions::made(std::string_view op, std::vector<PairId> in, DType dtype) {
    if (is_commutative(op))
        std::ranges::sort(in, {}, [&](PairId id) { return std::pair(is_number(id), id); });
    unsigned axes = 0;
    for (const PairId id : in) axes |= (*this)[id].axes;
    return intern({.op = find_op(op).name, .in = std::move(in), .dtype = dtype, .axes = axes});
}

PairId PairExpressions::sum(PairId x) {
    return intern(
        {.op = "sum", .in = {x}, .dtype = (*this)[x].dtype, .axes = (*this)[x].axes & ~unsigned{along_keys}});
}

PairId PairExpressions::most(PairId x) {
    return intern({.op = "most",
                   .in = {x},
                   .dtype = (*this)[x].dtype,
                   .axes = (*this)[x].axes & ~unsigned{along_keys}});
}

bool PairExpressions::contains(PairId id, std::string_view op) const {
    const PairTerm& term = (*this)[id];
    return term.op == op || std::ranges::any_of(term.in, [&](PairId in) { return contains(in, op); });
}

PairId PairExpressions::fold(std::string_view op, const std::vector<PairId>& in, DType dtype) {
    Node node{.op = &find_op(op), .inputs = {}, .outputs = {{dtype, {}}}, .attributes = {}, .origin = {}};
    if (op == "cast") node.attributes = {{"dtype", dtype}};
    std::vector<Type> types;
    std::vector<double> numbers;
    for (const PairId id : in) {
        types.push_back({(*this)[id].dtype, {}});
        numbers.push_back((*this)[id].value);
    }
    return number(evaluate_on_numbers(node, types, numbers), dtype);
}

bool PairExpressions::is_choice_of_numbers(PairId id) const {
    const PairTerm& term = (*this)[id];
    return term.op == "select" && is_number(term.in[1]) && is_number(term.in[2]);
}

/// op(c ? a : b, x) is c ? op(a, x) : op(b, x). Done where it makes the expression no longer.
std::optional<PairId> PairExpressions::pushed_into_choices(std::string_view op,
                                                           const std::vector<PairId>& in) {
    PairId condition = -1;
    bool numbers = true, same = true, takes_away = false;
    int choices = 0;
    for (const PairId id : in) {
        const PairTerm& term = (*this)[id];
        if (term.op != "select") {
            numbers = numbers && term.op == "number";
            continue;
        }
        same = same && (condition < 0 || condition == term.in[0]);
        condition = term.in[0];
        ++choices;
        const bool of_numbers = is_choice_of_numbers(id);
        numbers = numbers && of_numbers;
        takes_away = takes_away || (of_numbers && (is_number(term.in[1], 0) || is_number(term.in[2], 0)));
    }
    if (choices == 0) return std::nullopt;
    const auto is_truth = [&](PairId id) {
        const PairTerm& term = (*this)[id];
        return term.op == "select" && is_number(term.in[1], 1) && is_number(term.in[2], 0);
    };
    if ((op == "maximum" || op == "minimum") && is_truth(in[0]) && is_truth(in[1])) {
        const PairId a = (*this)[in[0]].in[0], b = (*this)[in[1]].in[0];
        const DType dtype = (*this)[in[0]].dtype;
        const PairId truth = op == "minimum" ? both(a, b) : negation(both(negation(a), negation(b)));
        return choice(truth, number(1, dtype), number(0, dtype));
    }
    const bool whole = same && (numbers || choices == static_cast<int>(in.size()));
    if (op == "mul" && takes_away && !whole) {  // by the choice between numbers, one of them zero
        for (const std::size_t at : {0u, 1u}) {
            if (!is_choice_of_numbers(in[at])) continue;
            const std::vector<PairId> parts = (*this)[in[at]].in;
            if (!is_number(parts[1], 0) && !is_number(parts[2], 0)) continue;
            return choice(parts[0], product_of_two(in[1 - at], parts[1]),
                          product_of_two(in[1 - at], parts[2]));
        }
    }
    if (!same) return std::nullopt;
    std::array<std::vector<PairId>, 2> sides;
    for (const PairId id : in)
        for (const std::size_t side : {0u, 1u}) {
            const PairTerm& term = (*this)[id];
            sides[side].push_back(term.op == "select" ? term.in[1 + side] : id);
        }
    const PairId a = make(op, sides[0]), b = make(op, sides[1]);
    const bool one_is_known = in.size() > 1 && (whole || is_comparison(op)) && (is_number(a) || is_number(b));
    if (!numbers && !one_is_known) return std::nullopt;
    return choice(condition, a, b);
}

PairId PairExpressions::make(std::string_view op, std::vector<PairId> in) {
    if (op == "neg") return product_of_two(in[0], number(-1, (*this)[in[0]].dtype));
    if (op == "sub") return make("add", {in[0], make("neg", {in[1]})});
    if (op == "select") return choice(in[0], in[1], in[2]);
    if (op == "logical_and") return both(in[0], in[1]);
    const DType dtype = is_comparison(op) || op == "is_finite" ? DType::boolean : (*this)[in[0]].dtype;
    if (std::ranges::all_of(in, [&](PairId id) { return is_number(id); })) return fold(op, in, dtype);
    if (op == "div" && is_number(in[1]) && (*this)[in[1]].value != 0)
        return product_of_two(in[0], number(1 / (*this)[in[1]].value, dtype));
    if (const auto pushed = pushed_into_choices(op, in)) return *pushed;
    if (op == "add") return sum_of_two(in[0], in[1]);
    if (op == "mul") return product_of_two(in[0], in[1]);
    if (is_comparison(op)) return comparison(op, in[0], in[1]);
    if (op == "maximum" || op == "minimum") {
        const double neutral = op == "maximum" ? -infinity : infinity;
        if (in[0] == in[1] || is_number(in[1], neutral)) return in[0];
        if (is_number(in[0], neutral)) return in[1];
    }
    return made(op, std::move(in), dtype);
}

PairId PairExpressions::sum_of_two(PairId a, PairId b) {
    if (is_number(a)) std::swap(a, b);
    if (is_number(b, 0)) return a;
    const DType dtype = (*this)[a].dtype;
    if (is_number(a) && is_number(b)) return fold("add", {a, b}, dtype);
    const PairTerm first = (*this)[a];
    if (is_number(b) && first.op == "add" && is_number(first.in[1]))
        return sum_of_two(first.in[0], fold("add", {first.in[1], b}, dtype));
    // x - x, as of positions.
    if (const PairTerm second = (*this)[b];
        (second.op == "mul" && second.in[0] == a && is_number(second.in[1], -1)) ||
        (first.op == "mul" && first.in[0] == b && is_number(first.in[1], -1)))
        return number(0, dtype);
    return made("add", {a, b}, dtype);
}

PairId PairExpressions::product_of_two(PairId a, PairId b) {
    if (is_number(a)) std::swap(a, b);
    const DType dtype = (*this)[a].dtype;
    if (is_number(b, 0)) return number(0, dtype);
    if (is_number(b, 1)) return a;
    if (is_number(a) && is_number(b)) return fold("mul", {a, b}, dtype);
    const PairTerm first = (*this)[a];
    if (is_number(b) && first.op == "mul" && is_number(first.in[1]))
        return product_of_two(first.in[0], fold("mul", {first.in[1], b}, dtype));
    if (is_number(b) && first.op == "select" && (is_number(first.in[1]) || is_number(first.in[2])))
        return choice(first.in[0], product_of_two(first.in[1], b), product_of_two(first.in[2], b));
    if (is_number(b) && first.op == "add" && is_integer(dtype))
        return sum_of_two(product_of_two(first.in[0], b), product_of_two(first.in[1], b));
    return made("mul", {a, b}, dtype);
}

PairId PairExpressions::choice(PairId condition, PairId a, PairId b) {
    if (is_number(condition)) return (*this)[condition].value != 0 ? a : b;
    if (a == b) return a;
    if ((*this)[condition].op == "not") return choice((*this)[condition].in[0], b, a);
    if (const PairTerm& term = (*this)[a]; term.op == "select" && term.in[0] == condition) a = term.in[1];
    if (const PairTerm& term = (*this)[b]; term.op == "select" && term.in[0] == condition) b = term.in[2];
    const DType dtype = (*this)[a].dtype;
    if (dtype == DType::boolean) {
        if (is_number(b, 0)) return both(condition, a);
        if (is_number(a, 0)) return both(negation(condition), b);
        if (is_number(a, 1) && is_number(b, 0)) return condition;
        if (is_number(b, 1)) return negation(both(condition, negation(a)));
        if (is_number(a, 1)) return negation(both(negation(condition), negation(b)));
    }
    const unsigned axes = (*this)[condition].axes | (*this)[a].axes | (*this)[b].axes;
    return intern({.op = "select", .in = {condition, a, b}, .dtype = dtype, .axes = axes});
}

PairId PairExpressions::comparison(std::string_view op, PairId a, PairId b) {
    if (a == b) return truth(op != "less");
    const auto x = linear(a), y = linear(b);
    if (x && y) {
        std::array<double, 4> weights = x->weights;
        for (std::size_t i = 0; i < 4; ++i) weights[i] -= y->weights[i];
        if (weights == std::array<double, 4>{}) {
            const double difference = x->offset - y->offset;
            return truth(op == "less"         ? difference < 0
                         : op == "less_equal" ? difference <= 0
                                              : difference == 0);
        }
    }
    return made(op, {a, b}, DType::boolean);
}

PairId PairExpressions::both(PairId a, PairId b) {
    if (is_number(a)) std::swap(a, b);
    if (is_number(b)) return (*this)[b].value != 0 ? a : b;
    std::vector<PairId> all = conjuncts(a);
    for (const PairId id : conjuncts(b)) all.push_back(id);
    return conjunction(all);
}

std::vector<PairId> PairExpressions::conjuncts(PairId id) const {
    const PairTerm& term = (*this)[id];
    if (is_number(id, 1)) return {};
    if (term.op != "logical_and") return {id};
    std::vector<PairId> all = conjuncts(term.in[0]);
    for (const PairId other : conjuncts(term.in[1])) all.push_back(other);
    return all;
}

PairId PairExpressions::conjunction(const std::vector<PairId>& conditions) {
    std::vector<PairId> all = conditions;
    std::ranges::sort(all);
    all.erase(std::ranges::unique(all).begin(), all.end());
    PairId made_of = truth(true);
    for (const PairId id : all) {
        if (is_number(id, 0) || std::ranges::binary_search(all, negation(id))) return truth(false);
        if (is_number(id, 1)) continue;
        made_of = is_number(made_of, 1) ? id : made("logical_and", {made_of, id}, DType::boolean);
    }
    return made_of;
}

PairId PairExpressions::negation(PairId x) {
    const PairTerm term = (*this)[x];
    if (term.op == "number") return truth(term.value == 0);
    if (term.op == "not") return term.in[0];
    // The negation of a < b is b <= a for positions, which are never NaN, and for whole numbers.
    const auto is_whole = [&](PairId id) { return is_integer((*this)[id].dtype) || linear(id).has_value(); };
    if (term.op == "less" && is_whole(term.in[0]) && is_whole(term.in[1]))
        return made("less_equal", {term.in[1], term.in[0]}, DType::boolean);
    if (term.op == "less_equal" && is_whole(term.in[0]) && is_whole(term.in[1]))
        return made("less", {term.in[1], term.in[0]}, DType::boolean);
    return intern({.op = "not", .in = {x}, .dtype = DType::boolean, .axes = term.axes});
}

PairId PairExpressions::cast(PairId x, DType dtype) {
    const PairTerm term = (*this)[x];
    const DType from = term.dtype;
    if (is_floating(dtype)) dtype = DType::f32;
    if (from == dtype) return x;
    if (term.op == "number") return fold("cast", {x}, dtype);
    if (from == DType::boolean) return choice(x, number(1, dtype), number(0, dtype));
    if (dtype == DType::boolean) return negation(make("equal", {x, number(0, from)}));
    if (is_floating(dtype) || is_integer(from)) {  // whole numbers keep their values
        if (term.op == "position") return position(term.index, dtype);
        if (term.op == "select") return choice(term.in[0], cast(term.in[1], dtype), cast(term.in[2], dtype));
        if (term.op == "add" || term.op == "mul" || term.op == "maximum" || term.op == "minimum")
            return make(term.op, {cast(term.in[0], dtype), cast(term.in[1], dtype)});
    }
    return intern({.op = "cast", .in = {x}, .dtype = dtype, .axes = term.axes});
}

std::optional<PairExpressions::Linear> PairExpressions::linear(PairId id) const {
    const PairTerm& term = (*this)[id];
    if (term.op == "number") return Linear{.offset = term.value};
    if (term.op == "position") {
        Linear form;
        form.weights[term.index] = 1;
        return form;
    }
    if (term.op == "mul" && is_number(term.in[1])) {
        auto form = linear(term.in[0]);
        if (!form) return form;
        for (double& weight : form->weights) weight *= (*this)[term.in[1]].value;
        form->offset *= (*this)[term.in[1]].value;
        return form;
    }
    if (term.op != "add") return std::nullopt;
    auto a = linear(term.in[0]);
    const auto b = a ? linear(term.in[1]) : std::nullopt;
    if (!b) return std::nullopt;
    for (std::size_t i = 0; i < 4; ++i) a->weights[i] += b->weights[i];
    a->offset += b->offset;
    return a;
}

PairId PairExpressions::replaced(PairId id, const std::map<PairId, PairId>& by) {
    if (const auto found = by.find(id); found != by.end()) return found->second;
    const PairTerm term = (*this)[id];
    if (term.in.empty()) return id;
    std::vector<PairId> in;
    for (const PairId each : term.in) in.push_back(replaced(each, by));
    if (in == term.in) return id;
    if (term.op == "cast") return cast(in[0], term.dtype);
    if (term.op == "not") return negation(in[0]);
    if (term.op == "sum") return sum(in[0]);
    if (term.op == "most") return most(in[0]);
    return make(term.op, std::move(in));
}

Tensor PairExpressions::emit(Graph& graph, PairId id, std::map<PairId, Tensor>& made, DType floating,
                             const Shape& extents) const {
    if (const auto known = made.find(id); known != made.end()) return known->second;
    const PairTerm& term = (*this)[id];
    const DType dtype = is_floating(term.dtype) ? floating : term.dtype;
    const auto of = [&](PairId in) { return emit(graph, in, made, floating, extents); };
    Tensor result;
    if (term.op == "number") {
        result = constant(graph, term.value, dtype);
    } else if (term.op == "position") {
        Shape shape{1, 1, 1, 1};
        shape[term.index] = extents[term.index];
        result = iota(graph, shape, term.index, dtype);
    } else if (term.op == "not") {
        result =
            select(of(term.in[0]), constant(graph, 0, DType::boolean), constant(graph, 1, DType::boolean));
    } else if (term.op == "cast") {
        result = ops::cast(of(term.in[0]), dtype);
    } else if (term.op == "most") {
        const Tensor all = of(term.in[0]);
        result = changes_along_keys(term.in[0]) ? max(all, {3}, KeepAxes::yes) : all;
    } else if (term.op == "add" && (*this)[term.in[1]].op == "mul" &&
               is_number((*this)[term.in[1]].in[1], -1)) {
        result = of(term.in[0]) - of((*this)[term.in[1]].in[0]);
    } else if (term.op == "add" && (*this)[term.in[0]].op == "mul" &&
               is_number((*this)[term.in[0]].in[1], -1)) {
        result = of(term.in[1]) - of((*this)[term.in[0]].in[0]);
    } else if (term.op == "mul" && is_number(term.in[1], -1)) {
        result = is_floating(dtype) ? -of(term.in[0]) : constant(graph, 0, dtype) - of(term.in[0]);
    } else {
        check(!term.in.empty() && term.op != "sum",
              "what is emitted is made of primitives and of leaves that are given");
        std::vector<Value> in;
        for (const PairId each : term.in) in.push_back(of(each).value());
        result = {graph, {graph.add(term.op, std::move(in)), 0}};
    }
    return made.emplace(id, result).first->second;
}

}  // namespace mantissa
