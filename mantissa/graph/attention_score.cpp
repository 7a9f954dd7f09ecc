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

}  // namespace mantissa
