#include "mantissa/passes/attention/softmax_algebra.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace mantissa::inline v0 {

namespace {

/// A constant this small may be added to scores: they lose no more by it than by a scale.
constexpr double max_shift = 100;

constexpr double unbounded = std::numeric_limits<double>::infinity();

/// Terms are added and taken away as they are written, not measured: they cancel but for rounding.
void add_to(PairSum& sum, PairId id, double factor) {
    const auto [entry, is_new] = sum.try_emplace(id, factor);
    if (!is_new) entry->second += factor;
    if (std::abs(entry->second) <= 1e-12 * std::abs(factor)) sum.erase(entry);
}

template <class Key>
void add_power_of(std::map<Key, int>& to, const Key& key, int power) {
    if ((to[key] += power) == 0) to.erase(key);
}

}  // namespace

/// The terms of an expression, each with its number. A factor that does not change along the keys goes into
/// each term, so that terms that do not change either are seen.
void SoftmaxAlgebra::add_terms(PairId id, double factor, PairSum& to) {
    const PairTerm term = x_[id];
    if (term.op == "number") return add_to(to, x_.number(1), factor * term.value);
    if (term.op == "add") {
        add_terms(term.in[0], factor, to);
        return add_terms(term.in[1], factor, to);
    }
    if (term.op == "mul" && x_.is_number(term.in[1])) {
        PairSum parts;
        add_terms(term.in[0], factor * x_[term.in[1]].value, parts);
        // Adding to one side of a mask is not the same as taking from all: rounding tells.
        const auto constant = parts.find(x_.number(1));
        if (constant != parts.end() && parts.size() > 1 && std::abs(constant->second) > max_shift)
            return add_to(to, id, factor);
        for (const auto& [part, number] : parts) add_to(to, part, number);
        return;
    }
    if (term.op == "mul" || term.op == "div") {
        for (const std::size_t at : {0u, 1u}) {
            const PairId other = term.in[1 - at];
            if (x_.changes_along_keys(other) || (term.op == "div" && at == 1)) continue;
            PairSum parts;
            add_terms(term.in[at], 1, parts);
            if (parts.size() < 2 || std::ranges::all_of(parts, [&](const auto& part) {
                    return x_.changes_along_keys(part.first);
                }))
                continue;
            for (const auto& [part, number] : parts)
                add_terms(x_.make(term.op, {part, other}), factor * number, to);
            return;
        }
    }
    add_to(to, id, factor);
}

PairId SoftmaxAlgebra::expression_of(const PairSum& sum) {
    PairId made = x_.number(0);
    for (const auto& [id, factor] : sum)
        made = x_.make("add", {made, x_.make("mul", {id, x_.number(factor)})});
    return made;
}

PairId SoftmaxAlgebra::changing(PairId id, PairSum& dropped) {
    PairSum terms, kept;
    add_terms(id, 1, terms);
    for (const auto& [term, factor] : terms) (x_.changes_along_keys(term) ? kept : dropped)[term] = factor;
    return dropped.empty() ? id : expression_of(kept);
}

SoftmaxAlgebra::Masked SoftmaxAlgebra::unmasked(PairId id, double scale, double least) {
    return unmasked(id, scale, least, Stands::alone);
}

SoftmaxAlgebra::Masked SoftmaxAlgebra::unmasked(PairId id, double scale, double least, Stands stands) {
    const PairTerm term = x_[id];
    const PairId seen = x_.truth(true);
    const auto hides = [&](const Masked& part) { return part.visible != seen; };
    if (term.op == "number") {
        if (term.value * scale == -unbounded) return {x_.truth(false), x_.number(0)};
        if (stands == Stands::in_choice && term.value * scale <= least)
            return {x_.truth(false), x_.number(0), {term.value}};
        return {seen, id};
    }
    if (term.op == "select") {
        const Masked a = unmasked(term.in[1], scale, least, Stands::in_choice),
                     b = unmasked(term.in[2], scale, least, Stands::in_choice);
        if (!hides(a) && !hides(b)) return {seen, id};
        const PairId visible = x_.make("select", {term.in[0], a.visible, b.visible});
        std::set<double> fills = a.fills;
        fills.insert(b.fills.begin(), b.fills.end());
        if (x_.is_number(a.visible, 0)) return {visible, b.score, fills};
        if (x_.is_number(b.visible, 0)) return {visible, a.score, fills};
        return {visible, x_.make("select", {term.in[0], a.score, b.score}), fills};
    }
    if (term.op == "add" || (term.op == "minimum" && scale > 0)) {
        const Masked a = unmasked(term.in[0], scale, least, stands),
                     b = unmasked(term.in[1], scale, least, stands);
        if (!hides(a) && !hides(b)) return {seen, id};
        std::set<double> fills = a.fills;
        fills.insert(b.fills.begin(), b.fills.end());
        for (const double one : a.fills)
            for (const double other : b.fills) fills.insert(one + other);
        return {x_.make("logical_and", {a.visible, b.visible}), x_.make(term.op, {a.score, b.score}), fills};
    }
    if (term.op == "mul" && x_.is_number(term.in[1]) && x_[term.in[1]].value != 0) {
        const Masked a = unmasked(term.in[0], scale * x_[term.in[1]].value, least, stands);
        std::set<double> fills;
        for (const double fill : a.fills) fills.insert(fill * x_[term.in[1]].value);
        if (hides(a)) return {a.visible, x_.make("mul", {a.score, term.in[1]}), fills};
    }
    return {seen, id};
}

WeightProduct SoftmaxAlgebra::product_of(PairId id) {
    WeightProduct product;
    multiply(product, id, 1);
    return product;
}

void SoftmaxAlgebra::add_power(WeightProduct& into, const WeightProduct& factor, int power) {
    if (into.refused.empty()) into.refused = factor.refused;
    into.number *= std::pow(factor.number, power);
    for (const auto& [id, number] : factor.exponent) add_to(into.exponent, id, power * number);
    for (const auto& [id, number] : factor.row_exponent) add_to(into.row_exponent, id, power * number);
    for (const auto& [id, times] : factor.rows) add_power_of(into.rows, id, power * times);
    for (const auto& [sum, times] : factor.sums) add_power_of(into.sums, sum, power * times);
    if (power < 0 && (!factor.masks.empty() || !factor.factors.empty()))
        into.refused = "weights are divided by something that changes along the keys";
    into.masks.insert(factor.masks.begin(), factor.masks.end());
    into.factors.insert(into.factors.end(), factor.factors.begin(), factor.factors.end());
    std::ranges::sort(into.factors);
}

void SoftmaxAlgebra::multiply(WeightProduct& into, PairId id, int power) {
    const PairTerm term = x_[id];
    if (term.op == "number") {
        into.number *= std::pow(term.value, power);
    } else if (term.op == "mul") {
        multiply(into, term.in[0], power);
        multiply(into, term.in[1], power);
    } else if (term.op == "div") {
        multiply(into, term.in[0], power);
        multiply(into, term.in[1], -power);
    } else if (term.op == "exp") {
        multiply_exponential(into, term.in[0], power);
    } else if (term.op == "sum") {
        multiply_sum(into, term.in[0], power);
    } else if (power == 1 && term.op == "select" &&
               (x_.is_number(term.in[1], 0) || x_.is_number(term.in[2], 0))) {
        const bool first = x_.is_number(term.in[2], 0);
        const PairId condition = first ? term.in[0] : x_.negation(term.in[0]);
        for (const PairId each : x_.conjuncts(condition)) into.masks.insert(each);
        multiply(into, term.in[first ? 1 : 2], 1);
    } else if (x_.changes_along_keys(id)) {
        if (power < 0) into.refused = "weights are divided by something that changes along the keys";
        into.factors.push_back(id);
        std::ranges::sort(into.factors);
    } else if (term.op != "add" || !multiply_with_sinks(into, id, power)) {
        add_power_of(into.rows, id, power);
    }
}

/// exp(x): terms of -unbounded become masks, terms log(y) become y.
void SoftmaxAlgebra::multiply_exponential(WeightProduct& into, PairId exponent, int power) {
    const Masked parts = unmasked(exponent, 1, -unbounded);
    if (parts.visible != x_.truth(true) && power < 0)
        into.refused = "weights are divided by something that changes along the keys";
    for (const PairId each : x_.conjuncts(parts.visible)) into.masks.insert(each);
    PairSum terms;
    add_terms(parts.score, 1, terms);
    for (const auto& [id, factor] : terms) {
        const bool is_logarithm = x_[id].op == "log" && std::abs(factor) == 1;
        if (is_logarithm)
            multiply(into, x_[id].in[0], factor > 0 ? power : -power);
        else
            add_to(x_.changes_along_keys(id) ? into.exponent : into.row_exponent, id, power * factor);
    }
}

/// A sum over the keys: factors that do not change along them stand before it.
void SoftmaxAlgebra::multiply_sum(WeightProduct& into, PairId summed, int power) {
    WeightProduct inner = product_of(summed);
    KeySum sum{.exponent = inner.exponent, .masks = inner.masks, .factors = inner.factors, .sinks = {}};
    inner.exponent.clear();
    inner.masks.clear();
    inner.factors.clear();
    add_power(into, inner, power);
    add_power_of(into.sums, sum, power);
}

/// A sum over the keys and exponentials that are no key's, each times one common factor.
bool SoftmaxAlgebra::multiply_with_sinks(WeightProduct& into, PairId id, int power) {
    PairSum terms;
    add_terms(id, 1, terms);
    std::optional<WeightProduct> keys;
    std::vector<WeightProduct> others;
    for (const auto& [term, factor] : terms) {
        WeightProduct product = product_of(term);
        product.number *= factor;
        const bool is_exponential = product.rows.empty() && product.exponent.empty() &&
                                    product.masks.empty() && product.factors.empty() &&
                                    product.refused.empty() && product.number > 0;
        if (!is_exponential || product.sums.size() > 1 || (keys && product.has_sums())) return false;
        if (product.has_sums())
            keys = product;
        else
            others.push_back(product);
    }
    if (!keys || keys->sums.begin()->second != 1 || !keys->sums.begin()->first.sinks.empty()) return false;
    KeySum sum = keys->sums.begin()->first;
    for (WeightProduct& other : others) {
        PairSum sink = other.row_exponent;
        for (const auto& [term, factor] : keys->row_exponent) add_to(sink, term, -factor);
        if (const double rest = std::log(other.number / keys->number); rest != 0)
            add_to(sink, x_.number(1), rest);
        sum.sinks.push_back(std::move(sink));
    }
    std::ranges::sort(sum.sinks);
    keys->sums = {{sum, 1}};
    add_power(into, *keys, power);
    return true;
}

Expected<SoftmaxWeights> SoftmaxAlgebra::weights(const WeightProduct& product) {
    if (!product.refused.empty()) return Unexpected{product.refused};
    if (product.exponent.empty()) return Unexpected{"the weights are no exponentials"};
    if (product.sums.empty()) return Unexpected{"the weights are not divided by their sum over the keys"};
    if (product.sums.size() != 1 || product.sums.begin()->second != -1)
        return Unexpected{"the weights are divided by more than their sum over the keys"};
    const KeySum& sum = product.sums.begin()->first;
    if (sum.exponent != product.exponent)
        return Unexpected{"the weights are divided by the sum of other exponentials"};
    if (!std::ranges::includes(product.masks, sum.masks) ||
        !std::ranges::includes(product.factors, sum.factors))
        return Unexpected{"the weights are divided by a sum over other pairs than they are taken of"};
    if (!sum.factors.empty())
        return Unexpected{
            "the weights are multiplied by something that is not 0 or 1 before they are normalised"};
    if (!product.row_exponent.empty())
        return Unexpected{"the weights are multiplied by an exponential that does not cancel"};
    if (sum.sinks.size() > 1) return Unexpected{"more than one logit is added that is no key's"};
    SoftmaxWeights weights{.score = expression_of(product.exponent), .sum = sum};
    weights.visible = x_.conjunction({sum.masks.begin(), sum.masks.end()});
    const bool is_one = std::abs(product.number - 1) <= 4 * std::numeric_limits<double>::epsilon();
    weights.multiplier = x_.number(is_one ? 1 : product.number);
    for (const PairId factor : product.factors)
        weights.multiplier = x_.make("mul", {weights.multiplier, factor});
    for (const PairId mask : product.masks)
        if (!sum.masks.contains(mask))
            weights.multiplier = x_.make("mul", {weights.multiplier, x_.cast(mask, DType::f32)});
    for (const auto& [row, power] : product.rows) {
        if (x_.contains(row, "row") || x_.contains(row, "product"))
            return Unexpected{"the weights are multiplied by something of the scores that does not cancel"};
        for (int i = 0; i < std::abs(power); ++i)
            weights.multiplier = x_.make(power > 0 ? "mul" : "div", {weights.multiplier, row});
    }
    if (!sum.sinks.empty()) weights.sink = sum.sinks[0];
    return weights;
}

bool SoftmaxAlgebra::is_log_of(PairId id, const KeySum& sum) {
    const WeightProduct product = product_of(x_.make("exp", {id}));
    return product.refused.empty() && product.number == 1 && product.exponent.empty() &&
           product.row_exponent.empty() && product.masks.empty() && product.factors.empty() &&
           product.rows.empty() && product.sums == std::map<KeySum, int>{{sum, 1}};
}

}  // namespace mantissa
