#include "mantissa/passes/attention/position_pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "mantissa/graph/reference.h"
#include "mantissa/passes/attention/axis_map.h"

namespace mantissa::inline v0 {

using Kind = Pattern::Kind;

Pattern uniform_pattern(double value) { return {.kind = Kind::uniform, .value = value}; }
Pattern unknown_pattern(std::string reason) { return {.kind = Kind::unknown, .reason = std::move(reason)}; }

namespace {

bool constant_form(const Pattern& p) {
    return p.kind == Kind::uniform ||
           (p.kind == Kind::linear && std::ranges::all_of(p.weights, [](double w) { return w == 0; }));
}

/// Weights by the axes of a result of `rank` axes, to which the operand is broadcast.
Pattern aligned(Pattern p, int rank) {
    const auto missing = static_cast<std::size_t>(rank) - p.weights.size();
    if (p.kind == Kind::linear || p.kind == Kind::split) p.weights.insert(p.weights.begin(), missing, 0.0);
    return p;
}

/// 1 where the form is <= 0 (or < 0), else 0. Indices are whole, so the border is made of whole numbers.
Pattern below_zero(Pattern form, bool strict) {
    if (constant_form(form)) return uniform_pattern(strict ? form.value < 0 : form.value <= 0);
    double least = INFINITY;
    for (const double w : form.weights)
        if (w != 0) least = std::min(least, std::abs(w));
    std::int64_t divisor = 0;
    for (double& w : form.weights) {
        w /= least;
        if (w != std::round(w) || std::abs(w) > 1e6)
            return unknown_pattern("compares positions in steps of unequal size");
        divisor = std::gcd(divisor, static_cast<std::int64_t>(w));
    }
    for (double& w : form.weights) w /= static_cast<double>(divisor);
    const double offset = form.value / least / static_cast<double>(divisor);
    Pattern border{.kind = Kind::split, .value = 1, .outside = 0, .weights = form.weights};
    border.offset = strict ? std::floor(offset) + 1 : std::ceil(offset);
    const double last =
        *std::find_if(border.weights.rbegin(), border.weights.rend(), [](double w) { return w != 0; });
    if (last > 0) return border;
    for (double& w : border.weights) w = w == 0 ? 0.0 : -w;
    border.offset = 1 - border.offset;
    std::swap(border.value, border.outside);
    return border;
}

}  // namespace

Pattern with_canonical_border(const Pattern& p) {
    const Pattern border =
        below_zero({.kind = Kind::linear, .value = p.offset, .weights = p.weights}, /*strict=*/false);
    if (border.kind == Kind::uniform) return uniform_pattern(border.value == 1 ? p.value : p.outside);
    Pattern canonical = border;
    canonical.value = border.value == 1 ? p.value : p.outside;
    canonical.outside = border.value == 1 ? p.outside : p.value;
    return canonical;
}

namespace {

/// Indices along axes of extent 1 are 0; a form without any weight is uniform.
Pattern without_unit_axes(Pattern p, const Shape& shape) {
    if (p.kind != Kind::linear && p.kind != Kind::split) return p;
    for (int axis = 0; axis < shape.rank(); ++axis)
        if (shape[axis] == 1) p.weights[axis] = 0;
    if (p.kind == Kind::split) return with_canonical_border(p);
    return constant_form(p) ? uniform_pattern(p.value) : p;
}

/// a + factor b.
Pattern add_forms(const Pattern& a, const Pattern& b, double factor) {
    Pattern sum{.kind = Kind::linear, .value = a.value + factor * b.value};
    sum.weights = a.weights.empty() ? std::vector<double>(b.weights.size()) : a.weights;
    for (std::size_t i = 0; i < b.weights.size(); ++i) sum.weights[i] += factor * b.weights[i];
    return sum;
}

bool is_form(const Pattern& p) { return p.kind == Kind::uniform || p.kind == Kind::linear; }

/// Arithmetic and comparison of linear forms; nothing for what does not stay one.
std::optional<Pattern> of_forms(std::string_view op, std::span<const Pattern> x) {
    if (!std::ranges::all_of(x, is_form)) return std::nullopt;
    if (op == "neg") return add_forms(uniform_pattern(0), x[0], -1);
    if (op == "add") return add_forms(x[0], x[1], 1);
    if (op == "sub") return add_forms(x[0], x[1], -1);
    if (op == "less") return below_zero(add_forms(x[0], x[1], -1), true);
    if (op == "less_equal") return below_zero(add_forms(x[0], x[1], -1), false);
    const bool scaled = (op == "mul" || op == "div") && x[1].kind == Kind::uniform;
    if (scaled && x[1].value != 0)
        return add_forms(uniform_pattern(0), x[0], op == "mul" ? x[1].value : 1 / x[1].value);
    if (op == "mul" && x[0].kind == Kind::uniform) return add_forms(uniform_pattern(0), x[1], x[0].value);
    return std::nullopt;
}

/// Whole positions stay exact in these.
bool holds_positions(DType dtype) {
    return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::i32 || dtype == DType::i64;
}

}  // namespace

Pattern combine(std::span<const Pattern> operands, FunctionRef<double(std::span<const double>)> function) {
    const Pattern* border = nullptr;
    std::vector<double> inside, outside;
    for (const Pattern& p : operands) {
        if (p.kind == Kind::unknown) return p;
        if (p.kind == Kind::linear) return unknown_pattern("depends on the position");
        if (p.kind == Kind::split && border && !p.same_border(*border))
            return unknown_pattern("has more than one border between positions");
        if (p.kind == Kind::split) border = &p;
        inside.push_back(p.value);
        outside.push_back(p.kind == Kind::split ? p.outside : p.value);
    }
    if (!border) return uniform_pattern(function(inside));
    Pattern result = *border;
    result.value = function(inside);
    result.outside = function(outside);
    return result;
}

const Pattern& PatternReader::of(Value value) {
    const auto entry = known_.find(value);
    if (entry != known_.end()) return entry->second;
    Pattern pattern = without_unit_axes(read(value), graph_.type(value).shape);
    return known_.emplace(value, std::move(pattern)).first->second;
}

Pattern PatternReader::read(Value value) {
    const Node& node = graph_.node(value.node);
    const std::string_view op = node.op->name;
    if (op == "constant") return uniform_pattern(node.attributes.number("value"));
    if (op == "iota") {
        Pattern form{.kind = Kind::linear};
        form.weights.resize(node.outputs[0].shape.rank());
        form.weights[node.attributes.integer("axis")] = 1;
        return form;
    }
    if (node.op->fuser == FuserClass::movement && node.inputs.size() == 1) return moved(node, value);
    if (node.op->fuser == FuserClass::elementwise && !node.op->composite() && op != "random_uniform")
        return elementwise(node);
    if (op == "input" || op == "state")
        return unknown_pattern(fmt::format("depends on the {} '{}'", op, node.attributes.word("name")));
    return unknown_pattern(fmt::format("is computed by '{}'", op));
}

Pattern PatternReader::moved(const Node& node, Value value) {
    Pattern p = of(node.inputs[0]);
    if (p.kind != Kind::linear && p.kind != Kind::split) return p;
    const Shape &from = graph_.type(node.inputs[0]).shape, &to = graph_.type(value).shape;
    const auto shift = [&](std::int64_t axis, std::int64_t start) {
        const double step = p.weights[axis] * static_cast<double>(start);
        (p.kind == Kind::linear ? p.value : p.offset) += step;
    };
    const std::string_view op = node.op->name;
    if (op == "stop_gradient") return p;
    if (op == "broadcast") return aligned(p, to.rank());
    if (op == "slice") {
        shift(node.attributes.integer("axis"), node.attributes.integer("start"));
        return p;
    }
    if (op == "split") {
        const std::int64_t axis = node.attributes.integer("axis");
        shift(axis, value.output * to[static_cast<int>(axis)]);
        return p;
    }
    if (op == "transpose") {
        const std::vector<double> weights = p.weights;
        for (std::size_t i = 0; i < weights.size(); ++i)
            p.weights[i] = weights[node.attributes.list("order")[i]];
        return p;
    }
    if (op != "reshape" || extents_over_one(from) != extents_over_one(to))
        return unknown_pattern(fmt::format("passes through '{}'", op));
    std::vector<double> weights(to.rank());
    for (int i = 0, j = 0; i < from.rank(); ++i) {
        if (from[i] == 1) continue;
        while (to[j] == 1) ++j;
        weights[j++] = p.weights[i];
    }
    p.weights = weights;
    return p;
}

Pattern PatternReader::elementwise(const Node& node) {
    std::vector<Pattern> operands;
    bool positions = false;
    for (const Value& input : node.inputs) {
        operands.push_back(aligned(of(input), node.outputs[0].shape.rank()));
        if (!operands.back().known()) return operands.back();
        positions = positions || operands.back().kind == Kind::linear;
    }
    if (positions) {
        if (node.op->name == "cast" && holds_positions(node.outputs[0].dtype)) return operands[0];
        if (const auto form = of_forms(node.op->name, operands)) return *form;
    }
    const std::vector<Type> types = graph_.input_types(node);
    return combine(
        operands, [&](std::span<const double> numbers) { return evaluate_on_numbers(node, types, numbers); });
}

}  // namespace mantissa
