#include "mantissa/graph/attention_score.h"

#include <fmt/format.h>

#include <algorithm>

#include "mantissa/base/error.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/inline_body.h"

namespace mantissa::inline v0 {

namespace {

constexpr const char* single_number = "1";

template <class... Args>
void expect_of_score(bool holds, fmt::format_string<Args...> message, Args&&... args) {
    if (!holds) throw UserError(fmt::format(message, std::forward<Args>(args)...));
}

/// Axes b, h, t and s, each once at most; r is t and s in one.
bool are_score_axes(const std::string& axes) {
    bool distance = false, position = false;
    for (std::size_t i = 0; i < axes.size(); ++i) {
        if (std::string_view("bhtsr").find(axes[i]) == std::string_view::npos ||
            axes.find(axes[i], i + 1) != std::string::npos)
            return false;
        distance = distance || axes[i] == 'r';
        position = position || axes[i] == 't' || axes[i] == 's';
    }
    return !(distance && position);
}

std::vector<std::string> read_words(const std::string& words) {
    std::vector<std::string> operands;
    for (std::size_t at = 0; at <= words.size();) {
        const std::size_t end = std::min(words.find(',', at), words.size());
        const std::string word = words.substr(at, end - at);
        expect_of_score(
            !word.empty() && (word == single_number || are_score_axes(word)),
            "'{}' are no axes of operands of a score: expected for each of them some of the letters b, "
            "h, t and s, or r instead of t and s, each once, or 1, as in 'h,bt,bs,hr'",
            words);
        operands.push_back(word == single_number ? "" : word);
        at = end + 1;
    }
    return operands;
}

std::int64_t extent_of(char letter, const AttentionExtents& e) {
    switch (letter) {
        case 'b':
            return e.sequences;
        case 'h':
            return e.heads;
        case 't':
            return e.queries;
        case 's':
            return e.keys;
        default:
            return e.queries + e.keys - 1;
    }
}

bool stretches_to(const Shape& shape, const Shape& all) {
    for (int axis = 0; axis < shape.rank(); ++axis)
        if (const std::int64_t extent = shape[axis - shape.rank()];
            shape.rank() > all.rank() || (extent != 1 && extent != all[axis - shape.rank()]))
            return false;
    return true;
}

/// Throws unless each element of the results follows from the inputs' elements at its place, and from the
/// place.
void expect_elementwise(const Graph& body) {
    for (NodeId id = 0; id < body.end(); ++id) {
        const Node& node = body.node(id);
        const bool renames_a_number = node.op->name == "reshape" && node.outputs[0].shape.elements() == 1;
        expect_of_score(node.op->name == "input" || renames_a_number ||
                            (node.op->fuser == FuserClass::elementwise && !node.op->composite()),
                        "the score is made of element-wise primitives, got '{}'", node.op->name);
    }
    expect_of_score(body.states().empty() && body.updates().empty(), "a score keeps no state");
}

/// An operand beside the scores, [B|1, H|1, T|1, S|1].
Tensor beside_scores(Tensor x, const std::string& axes, const AttentionExtents& e) {
    std::string order;
    for (const char letter : {'r', 'b', 'h', 't', 's'})
        if (axes.find(letter) != std::string::npos) order += letter;
    if (order != axes) {
        std::vector<std::int64_t> places;
        for (const char letter : order) places.push_back(static_cast<std::int64_t>(axes.find(letter)));
        x = transpose(x, places);
    }
    const Shape shape = score_operand_shape(axes, e);
    if (!order.starts_with('r')) return reshape(x, shape);
    const Shape pairs{e.queries, e.keys};
    Graph& graph = x.graph();
    const Tensor distances =
        iota(graph, pairs, 1) - iota(graph, pairs, 0) + static_cast<double>(e.queries - 1);
    // Rows are summed in FP32 on the way back.
    const bool short_rows = is_floating(x.dtype()) && size_of(x.dtype()) < size_of(DType::f32);
    const Tensor table = reshape(short_rows ? cast(x, DType::f32) : x, {x.dim(0), -1});
    const Tensor rows = embedding(table, distances);  // [T, S, B H of them]
    return cast(reshape(transpose(rows, {2, 0, 1}), shape), x.dtype());
}

}  // namespace

AttentionScore attention_score(const Attributes& attributes) {
    AttentionScore score;
    if (attributes.has("score")) score.body = attributes.body("score");
    if (attributes.has("score_operands")) score.operands = read_words(attributes.word("score_operands"));
    expect_of_score(score.body || score.operands.empty(), "a plain score has no operands, got '{}'",
                    attributes.has("score_operands") ? attributes.word("score_operands") : "");
    return score;
}

Attributes with_score(const Attributes& given, const AttentionScore& score) {
    Attributes attributes = given.without("score").without("score_operands");
    if (score.body) attributes = attributes.with("score", *score.body);
    std::string words;
    for (const std::string& axes : score.operands)
        words += (words.empty() ? "" : ",") + (axes.empty() ? std::string(single_number) : axes);
    return words.empty() ? attributes : attributes.with("score_operands", words);
}

Shape stored_score_operand(const std::string& axes, const AttentionExtents& e) {
    std::vector<std::int64_t> extents;
    for (const char letter : axes) extents.push_back(extent_of(letter, e));
    return Shape(extents);
}

Shape score_operand_shape(const std::string& axes, const AttentionExtents& e) {
    const bool distance = axes.find('r') != std::string::npos;
    std::vector<std::int64_t> extents;
    for (const char letter : {'b', 'h', 't', 's'}) {
        const bool has =
            axes.find(letter) != std::string::npos || (distance && (letter == 't' || letter == 's'));
        extents.push_back(has ? extent_of(letter, e) : 1);
    }
    return Shape(extents);
}

ScorePlace place_of_score_operand(const std::string& axes, const Shape& stored, const AttentionExtents& e) {
    const std::vector<std::int64_t> steps = stored.strides();
    ScorePlace place;
    for (std::size_t i = 0; i < axes.size(); ++i) {
        switch (axes[i]) {
            case 'b':
                place.sequence = steps[i];
                break;
            case 'h':
                place.head = steps[i];
                break;
            case 't':
                place.query = steps[i];
                break;
            case 's':
                place.key = steps[i];
                break;
            default:  // r: distances from 1 - T on
                place.key = steps[i];
                place.query = -steps[i];
                place.first = (e.queries - 1) * steps[i];
        }
    }
    return place;
}

std::vector<bool> asked_score_gradients(const Attributes& attributes, std::size_t operands) {
    std::vector<bool> asked(operands);
    if (!attributes.has("score_gradients")) return asked;
    const auto& flags = attributes.list("score_gradients");
    expect_of_score(flags.size() == operands, "the score has {} operands, and {} flags for their gradients",
                    operands, flags.size());
    for (std::size_t i = 0; i < operands; ++i) asked[i] = flags[i] != 0;
    return asked;
}

void expect_score(const AttentionScore& score, DType tensors, const AttentionExtents& e,
                  std::span<const Type> operands) {
    expect_of_score(operands.size() == score.operands.size(), "the score has {} operands, got {}",
                    score.operands.size(), operands.size());
    if (!score.body) return;
    const Graph& body = score.body->graph();
    expect_elementwise(body);
    const Shape all{e.sequences, e.heads, e.queries, e.keys};
    const Type scaled{tensors == DType::f64 ? DType::f64 : DType::f32, all};
    expect_of_score(body.inputs().size() == operands.size() + 1,
                    "the score is a function of the scaled product and its {} operands, got one of {}",
                    operands.size(), body.inputs().size());
    for (std::size_t i = 0; i < body.inputs().size(); ++i) {
        const Type& taken = body.node(body.inputs()[i]).outputs[0];
        const Type wanted =
            i == 0 ? scaled : Type{operands[i - 1].dtype, score_operand_shape(score.operands[i - 1], e)};
        expect_of_score(taken == wanted, "input {} of the score must be {}, got {}", i, wanted.text(),
                        taken.text());
        if (i == 0) continue;
        const Shape stored = stored_score_operand(score.operands[i - 1], e);
        expect_of_score(operands[i - 1].shape == stored, "operand {} of the score must have shape {}, got {}",
                        i - 1, stored.text(), operands[i - 1].text());
    }
    expect_of_score(!body.results().empty() && body.results()[0].name == "score",
                    "the first result of a score is 'score'");
    std::vector<std::string> seen;
    for (const Result& result : body.results()) {
        const Type& type = body.type(result.value);
        expect_of_score(std::ranges::find(seen, result.name) == seen.end(), "a score gives '{}' twice",
                        result.name);
        seen.push_back(result.name);
        if (result.name == "score")
            expect_of_score(type == scaled, "the score must be {}, got {}", scaled.text(), type.text());
        else if (result.name == "visible")
            expect_of_score(type.dtype == DType::boolean && stretches_to(type.shape, all),
                            "what is visible must be boolean and stretch to {}, got {}", all.text(),
                            type.text());
        else if (result.name == "multiplier")
            expect_of_score(type.dtype == scaled.dtype && stretches_to(type.shape, all),
                            "the multiplier must be {} and stretch to {}, got {}", name_of(scaled.dtype),
                            all.text(), type.text());
        else
            throw UserError(
                fmt::format("a score gives 'score', 'visible' and 'multiplier', got '{}'", result.name));
    }
}

ScoredPairs scored_pairs(const AttentionScore& score, Tensor scaled, std::span<const Tensor> operands,
                         const AttentionExtents& e) {
    if (!score.body) return {scaled, {}, {}};
    std::vector<Tensor> inputs{scaled};
    for (std::size_t i = 0; i < operands.size(); ++i)
        inputs.push_back(beside_scores(operands[i], score.operands[i], e));
    const Graph& body = score.body->graph();
    const std::vector<Tensor> results = inline_body(scaled.graph(), body, inputs);
    ScoredPairs pairs;
    for (std::size_t i = 0; i < results.size(); ++i) {
        const std::string& name = body.results()[i].name;
        (name == "score" ? pairs.score : name == "visible" ? pairs.visible : pairs.multiplier) = results[i];
    }
    return pairs;
}

namespace {

/// How tightly the outermost operation of a text binds.
enum Binding { choice, conjunction, relation, addition, product, whole };

struct Text {
    std::string text;
    Binding binding = whole;

    std::string within(Binding least) const { return binding < least ? "(" + text + ")" : text; }
};

std::string number_text(double value) {
    return value == 0 ? "0" : fmt::format("{}", static_cast<float>(value));
}

std::string axes_of_operand(const std::string& letters) {
    std::string text;
    for (const char letter : letters) {
        text += text.empty() ? "" : ", ";
        switch (letter) {
            case 't':
                text += 'i';
                break;
            case 's':
                text += 'j';
                break;
            case 'r':
                text += "j - i";
                break;
            default:
                text += letter;
        }
    }
    return text.empty() ? "" : "[" + text + "]";
}

class FormulaWriter {
  public:
    FormulaWriter(const Graph& body, const std::vector<std::string>& operands)
        : body_(body), operands_(operands) {}

    Text of(Value value) const {
        const Node& node = body_.node(value.node);
        const std::string_view op = node.op->name;
        if (op == "input") return {input(value.node)};
        if (op == "constant") return constant(node);
        if (op == "iota")
            return {
                std::string(1, "bhij"[node.attributes.integer("axis") + 4 - node.outputs[0].shape.rank()])};
        if (op == "random_uniform") return {fmt::format("random[{}]", node.attributes.integer("operation"))};
        if (op == "cast" || op == "reshape") return of(node.inputs[0]);
        if (op == "add") return binary(node, " + ", addition, addition);
        if (op == "sub") return binary(node, " - ", addition, product);
        if (op == "mul") return multiplied(node);
        if (op == "div") return binary(node, " / ", product, whole);
        if (op == "neg") return {"-" + of(node.inputs[0]).within(product), product};
        if (op == "less") return binary(node, " < ", relation, addition);
        if (op == "less_equal") return binary(node, " <= ", relation, addition);
        if (op == "equal") return binary(node, " == ", relation, addition);
        if (op == "logical_and") return binary(node, " and ", conjunction, conjunction);
        if (op == "select") return chosen(node);
        std::string text;
        for (const Value& in : node.inputs) text += (text.empty() ? "" : ", ") + of(in).text;
        return {fmt::format("{}({})", op, text)};
    }

  private:
    std::string input(NodeId id) const {
        std::size_t at = 0;
        while (body_.inputs()[at] != id) ++at;
        return at == 0 ? "s" : fmt::format("x{}{}", at, axes_of_operand(operands_[at - 1]));
    }

    Text constant(const Node& node) const {
        const double value = node.attributes.number("value");
        if (node.outputs[0].dtype == DType::boolean) return {value != 0 ? "true" : "false"};
        return {number_text(value), value < 0 ? product : whole};
    }

    Text binary(const Node& node, const char* sign, Binding binding, Binding second) const {
        const Text a = of(node.inputs[0]), b = of(node.inputs[1]);
        if (binding == addition && b.text.starts_with('-') && b.binding >= product) {
            const bool takes_away = std::string_view(sign) == " + ";
            return {a.within(addition) + (takes_away ? " - " : " + ") + b.text.substr(1), addition};
        }
        return {a.within(binding == relation ? addition : binding) + sign + b.within(second), binding};
    }

    bool is_number(Value value) const { return body_.node(value.node).op->name == "constant"; }

    /// Numbers first, and as divisors where that is shorter.
    Text multiplied(const Node& node) const {
        if (!is_number(node.inputs[1])) return binary(node, " * ", product, whole);
        const double factor = body_.node(node.inputs[1].node).attributes.number("value");
        const std::string direct = number_text(factor), inverse = number_text(1 / factor);
        if (inverse.size() + 1 < direct.size())
            return {of(node.inputs[0]).within(product) + " / " + inverse, product};
        return {direct + " * " + of(node.inputs[0]).within(whole), product};
    }

    Text chosen(const Node& node) const {
        const auto truth = [&](std::size_t at, double value) {
            const Node& in = body_.node(node.inputs[at].node);
            return in.op->name == "constant" && in.outputs[0].dtype == DType::boolean &&
                   in.attributes.number("value") == value;
        };
        const Text condition = of(node.inputs[0]);
        if (truth(1, 0) && truth(2, 1)) return {"not " + condition.within(whole), relation};
        return {condition.within(conjunction) + " ? " + of(node.inputs[1]).within(conjunction) + " : " +
                    of(node.inputs[2]).within(choice),
                choice};
    }

    const Graph& body_;
    const std::vector<std::string>& operands_;
};

}  // namespace

std::string ScoreFormula::text() const {
    std::string all = score;
    if (!visible.empty()) all += " where " + visible;
    if (!multiplier.empty()) all += ", weights times " + multiplier;
    return all;
}

ScoreFormula score_formula(const AttentionScore& score, bool causal, const AttentionExtents& e) {
    ScoreFormula formula{.score = "s", .visible = {}, .multiplier = {}};
    if (causal && e.keys == e.queries) formula.visible = "j <= i";
    if (causal && e.keys != e.queries) formula.visible = fmt::format("j <= i + {}", e.keys - e.queries);
    if (score.plain()) return formula;
    const Graph& body = score.body->graph();
    const FormulaWriter writer(body, score.operands);
    for (const Result& result : body.results()) {
        const Text text = writer.of(result.value);
        if (result.name == "score")
            formula.score = text.text;
        else if (result.name == "multiplier")
            formula.multiplier = text.text;
        else
            formula.visible += formula.visible.empty() ? text.text : " and " + text.within(conjunction);
    }
    return formula;
}

}  // namespace mantissa
