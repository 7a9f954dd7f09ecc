#include "mantissa/graph/score_formula.h"

#include "mantissa/graph/graph.h"

#include <fmt/format.h>

namespace mantissa::inline v0 {

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
