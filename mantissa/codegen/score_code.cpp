#include "mantissa/codegen/score_code.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "mantissa/graph/gradient.h"
#include "mantissa/graph/graph.h"
#include "mantissa/passes/analysis/nest.h"
#include "mantissa/passes/contract_products.h"
#include "mantissa/passes/simplify.h"

namespace mantissa::inline v0::codegen {

namespace {

/// A shape aligned at the right with [B, H, T, S], or nothing where it has more axes than that.
std::optional<std::vector<std::int64_t>> aligned(const Shape& shape) {
    std::vector<std::int64_t> extents = shape.extents();
    while (extents.size() > 4 && extents.front() == 1) extents.erase(extents.begin());
    if (extents.size() > 4) return std::nullopt;
    extents.insert(extents.begin(), 4 - extents.size(), 1);
    return extents;
}

bool is_number(const Shape& shape) { return shape.elements() == 1; }

/// Writes a body anew with every value standing for all pairs, so that differentiating it sums nothing.
class PairsMaker {
  public:
    explicit PairsMaker(const Graph& body)
        : body_(body), domain_(body.node(body.inputs()[0]).outputs[0].shape) {}

    /// The results are the body's, by name.
    Expected<Graph> run() {
        if (domain_.rank() != 4)
            return Unexpected{fmt::format("scores must be [B, H, T, S], got {}", domain_.text())};
        for (NodeId id = 0; id < body_.end(); ++id)
            if (!place(id)) return why_.none();
        for (const Result& result : body_.results()) {
            Tensor value = placed_.at(result.value);
            if (value.shape() != domain_) value = broadcast_to(value, domain_);
            graph_.add_result(result.name, value.value());
        }
        return std::move(graph_);
    }

  private:
    bool place(NodeId id) {
        const Node& node = body_.node(id);
        const std::string_view op = node.op->name;
        const Type& type = node.outputs[0];
        Tensor& to = placed_[{id, 0}];
        if (op == "input") return place_input(id, to);
        if (op == "constant") {
            to = constant(graph_, node.attributes.number("value"), type.dtype);
            return true;
        }
        if (op == "literal" && is_number(type.shape)) {
            to = constant(graph_, node.attributes.data("values").number(0), type.dtype);
            return true;
        }
        if (op == "reshape" || op == "broadcast") return place_moved(node, to);
        if (op == "iota") return place_iota(node, to);
        if (op == "random_uniform") return place_random(node, to);
        if (op == "cast" && type.dtype == DType::f32)
            if (const auto wide = widened_.find(placed_.at(node.inputs[0]).value()); wide != widened_.end()) {
                to = wide->second;
                return true;
            }
        if (std::string reason = refuse_in_nest(body_, node); !reason.empty()) return why_.refuse(reason);
        if (op == "sum" || op == "max") return why_.refuse(fmt::format("{} goes over pairs", op));
        std::vector<Value> inputs;
        for (const Value& input : node.inputs) inputs.push_back(placed_.at(input).value());
        to = {graph_, {graph_.add(op, std::move(inputs), node.attributes), 0}};
        return true;
    }

    /// Numbers that random numbers are made of stay numbers.
    bool place_input(NodeId id, Tensor& to) {
        const Type& type = body_.node(id).outputs[0];
        const auto extents = aligned(type.shape);
        for (int axis = 0; extents && axis < 4; ++axis) {
            const std::int64_t extent = (*extents)[axis];
            if (extent != 1 && extent != domain_[axis])
                return why_.refuse(
                    fmt::format("{} does not go along the axes of scores {}", type.text(), domain_.text()));
        }
        if (!extents)
            return why_.refuse(fmt::format("an operand has more axes than scores: {}", type.text()));
        const bool single = type.dtype == DType::i64;
        if (single && !is_number(type.shape)) return why_.refuse(fmt::format("{} has no lanes", type.text()));
        const std::string name = fmt::format("x{}", graph_.inputs().size());
        const bool short_float = is_floating(type.dtype) && type.dtype != DType::f32;
        to = {graph_,
              graph_.add_input(name, {short_float ? DType::f32 : type.dtype, single ? Shape{} : domain_})};
        if (!short_float) return true;
        // Lanes are FP32: a cast of the operand to FP32 reads them, so that no gradient is rounded by pair.
        const Tensor narrow = cast(to, type.dtype);
        widened_[narrow.value()] = to;
        to = narrow;
        return true;
    }

    bool place_moved(const Node& node, Tensor& to) {
        const Shape &before = body_.type(node.inputs[0]).shape, &after = node.outputs[0].shape;
        const auto from = aligned(before), target = aligned(after);
        const bool same = from && target && *from == *target;
        const bool stretched = node.op->name == "broadcast" && from && target;
        if (!same && !stretched && !is_number(before))
            return why_.refuse(fmt::format("{} to {} moves elements", before.text(), after.text()));
        to = placed_.at(node.inputs[0]);
        return true;
    }

    bool place_iota(const Node& node, Tensor& to) {
        const Shape& shape = node.outputs[0].shape;
        const int axis = 4 - shape.rank() + static_cast<int>(node.attributes.integer("axis"));
        if (!aligned(shape) || axis < 0 || !dtype_counts(node.outputs[0].dtype))
            return why_.refuse(
                fmt::format("a counter of {} counts no axis of scores", node.outputs[0].text()));
        if (shape[static_cast<int>(node.attributes.integer("axis"))] == 1)  // 0, whatever it is stretched to
            to = constant(graph_, 0, node.outputs[0].dtype);
        else
            to = iota(graph_, domain_, axis, node.outputs[0].dtype);
        return true;
    }
    static bool dtype_counts(DType dtype) { return dtype == DType::i32 || dtype == DType::f32; }

    /// An element's random number follows from its place in the whole tensor.
    bool place_random(const Node& node, Tensor& to) {
        if (node.outputs[0].shape.elements() != domain_.elements())
            return why_.refuse(
                fmt::format("random numbers of {} are not one a pair", node.outputs[0].text()));
        to = random_uniform(placed_.at(node.inputs[0]), placed_.at(node.inputs[1]),
                            node.attributes.integer("operation"), domain_);
        return true;
    }

    const Graph& body_;
    Shape domain_;
    Graph graph_;
    std::map<Value, Tensor> placed_;
    std::map<Value, Tensor> widened_;  ///< FP32, by the value narrowed to the operand's type in memory
    FirstReason why_;
};

/// The same graph with other results.
class Variant {
  public:
    explicit Variant(const Graph& pairs) : graph_(pairs_without_results(pairs)) {
        for (const Result& result : pairs.results()) results_[result.name] = {graph_, result.value};
    }
    Graph& graph() { return graph_; }
    Tensor input(std::size_t index) { return {graph_, {graph_.inputs()[index], 0}}; }
    Tensor result(const std::string& name) const {
        const auto entry = results_.find(name);
        return entry == results_.end() ? Tensor{} : entry->second;
    }
    Graph finish() { return contract_products(simplify(graph_)); }

  private:
    static Graph pairs_without_results(const Graph& pairs) {
        Graph graph;
        for (NodeId id = 0; id < pairs.end(); ++id) {
            const Node& node = pairs.node(id);
            if (node.op->name == "input")
                graph.add_input(fmt::format("x{}", graph.inputs().size()), node.outputs[0]);
            else
                graph.add(node.op->name, node.inputs, node.attributes);
        }
        return graph;
    }

    Graph graph_;
    std::map<std::string, Tensor> results_;
};

const Result* find_result(const Graph& graph, const std::string& name) {
    for (const Result& result : graph.results())
        if (result.name == name) return &result;
    return nullptr;
}

/// The value behind a broadcast.
const Node& made_by(const Graph& graph, Value value) {
    const Node* node = &graph.node(value.node);
    while (node->op->name == "broadcast") node = &graph.node(node->inputs[0].node);
    return *node;
}

bool is_constant(const Graph& graph, Value value, double number) {
    const Node& node = made_by(graph, value);
    return node.op->name == "constant" && node.attributes.number("value") == number;
}

class FormMaker {
  public:
    FormMaker(const ScoreRequest& request, Graph pairs) : request_(request), pairs_(std::move(pairs)) {}

    Expected<ScoreForm> run() {
        if (differentiable("multiplier"))
            return Unexpected{"the factors of the weights have gradients of their own"};
        form_.hides = find_result(pairs_, "visible") != nullptr;
        form_.multiplies = find_result(pairs_, "multiplier") != nullptr;
        const Node& score = made_by(pairs_, find_result(pairs_, "score")->value);
        form_.is_score = &score == &pairs_.node(pairs_.inputs()[0]) && !form_.multiplies;
        form_.forward = remaking(Direction::forward, Masked::no);
        form_.backward = remaking(Direction::backward, Masked::no);
        if (form_.hides) {
            form_.forward_masked = remaking(Direction::forward, Masked::yes);
            form_.backward_masked = remaking(Direction::backward, Masked::yes);
            form_.forward_mask = masking(Direction::forward);
            form_.backward_mask = masking(Direction::backward);
        }
        make_sums();
        return std::move(form_);
    }

  private:
    enum class Direction : bool { forward, backward };
    enum class Masked : bool { no, yes };
    static constexpr DType f32 = DType::f32;

    ScoreCode code_for(Direction direction) const {
        ScoreCode code;
        code.lanes_are_queries = direction == Direction::forward;
        code.rounded = request_.rounded;
        code.lanes = code.lanes_are_queries ? forward_score_lanes : backward_score_lanes;
        for (std::size_t i = 0; i < request_.operands.size(); ++i) {
            const Graph& body = request_.body;
            const DType dtype = body.node(body.inputs()[i + 1]).outputs[0].dtype;
            const DType value = pairs_.node(pairs_.inputs()[i + 1]).outputs[0].dtype;
            const AlongPairs& along = request_.operands[i];
            const std::int64_t lanes = code.lanes_are_queries ? along.query : along.key;
            const std::int64_t rows = code.lanes_are_queries ? along.key : along.query;
            ScoreCode::Operand operand{.dtype = dtype, .value = value, .rows = rows != 0};
            operand.lanes = static_cast<int>(lanes);
            if (lanes > 1 || lanes < -1) {  // a copy that has lanes as neighbours
                operand.lanes = 1;
                operand.rows = true;
                operand.dtype = is_floating(dtype) ? DType::f32 : DType::i32;
            }
            code.operands.push_back(operand);
        }
        return code;
    }

    /// Whether a gradient goes to the scores, or to an operand that asks for one, by way of this result.
    bool differentiable(const std::string& name) const {
        Variant variant(pairs_);
        const Tensor result = variant.result(name);
        if (!result) return false;
        std::vector<Tensor> wrt{variant.input(0)};
        for (std::size_t i = 0; i < request_.gradients.size(); ++i)
            if (request_.gradients[i]) wrt.push_back(variant.input(i + 1));
        const Tensor one = broadcast_to(constant(variant.graph(), 1.0), result.shape());
        const auto gradients = backpropagate(variant.graph(), {&result, 1}, {&one, 1}, wrt);
        return std::ranges::any_of(gradients, [](const Tensor& x) { return static_cast<bool>(x); });
    }

    static void add(ScoreCode& code, Variant& variant, ScoreCode::Output output, Tensor value) {
        variant.graph().add_result(fmt::format("y{}", code.outputs.size()), value.value());
        code.outputs.push_back(output);
    }

    static Tensor where_seen(Variant& variant, Tensor score) {
        return select(variant.result("visible"), score,
                      constant(variant.graph(), -std::numeric_limits<double>::infinity(), f32));
    }

    ScoreCode masking(Direction direction) {
        ScoreCode code = code_for(direction);
        Variant variant(pairs_);
        add(code, variant, {ScoreCode::Makes::scores}, where_seen(variant, variant.input(0)));
        code.graph = variant.finish();
        return code;
    }

    ScoreCode remaking(Direction direction, Masked masked) {
        ScoreCode code = code_for(direction);
        Variant variant(pairs_);
        const Tensor score = variant.result("score");
        const Tensor remade = masked == Masked::yes ? where_seen(variant, score) : score;
        add(code, variant, {ScoreCode::Makes::scores}, remade);
        if (form_.multiplies)
            add(code, variant, {ScoreCode::Makes::multipliers}, variant.result("multiplier"));
        if (direction == Direction::backward) add_slopes(code, variant, score);
        code.graph = variant.finish();
        return code;
    }

    void add_slopes(ScoreCode& code, Variant& variant, Tensor score) {
        const Tensor one = broadcast_to(constant(variant.graph(), 1.0), score.shape());
        const Tensor scaled = variant.input(0);
        const Tensor slope = backpropagate(variant.graph(), {&score, 1}, {&one, 1}, {&scaled, 1})[0];
        const Tensor found = slope ? slope : constant(variant.graph(), 0.0, f32, score.shape());
        Variant tried = variant;
        tried.graph().add_result("slope", found.value());
        const Graph simple = tried.finish();
        form_.unit_slope = is_constant(simple, simple.results().back().value, 1);
        if (!form_.unit_slope) add(code, variant, {ScoreCode::Makes::slopes}, found);
    }

    void make_sums() {
        ScoreCode& code = form_.sums = code_for(Direction::backward);
        code.sums = true;
        Variant variant(pairs_);
        const Tensor score = variant.result("score");
        const Tensor cotangent{variant.graph(), variant.graph().add_input("cotangent", {f32, score.shape()})};
        std::vector<Tensor> wrt;
        for (std::size_t i = 0; i < request_.gradients.size(); ++i)
            if (request_.gradients[i]) wrt.push_back(variant.input(i + 1));
        const std::vector<Tensor> gradients =
            backpropagate(variant.graph(), {&score, 1}, {&cotangent, 1}, wrt);
        std::size_t next = 0;
        for (std::size_t i = 0; i < request_.gradients.size(); ++i) {
            if (!request_.gradients[i]) continue;
            const AlongPairs& along = request_.operands[i];
            const Tensor gradient = gradients[next++];
            const Tensor value =
                gradient ? cast(gradient, f32) : constant(variant.graph(), 0.0, f32, score.shape());
            add(code, variant, {ScoreCode::Makes::gradient, along.query != 0, along.key != 0}, value);
        }
        code.graph = variant.finish();
    }

    const ScoreRequest& request_;
    Graph pairs_;
    ScoreForm form_;
};

std::string refuse_results(const Graph& body) {
    const Result* const score = find_result(body, "score");
    if (!score) return "the body gives no score";
    if (body.type(score->value).dtype != DType::f32)
        return fmt::format("scores are made in f32, not {}", body.type(score->value).text());
    return "";
}

}  // namespace

std::string text(const ScoreCode& code) {
    std::string text =
        fmt::format("{} lanes of {}{}{}\n", code.lanes, code.lanes_are_queries ? "queries" : "keys",
                    code.sums ? ", sums" : "", code.rounded ? ", rounded" : "");
    for (const ScoreCode::Operand& operand : code.operands)
        text += fmt::format("operand {} as {}, {} rows, {} a lane\n", name_of(operand.dtype),
                            name_of(operand.value), operand.rows ? "by" : "no", operand.lanes);
    for (const ScoreCode::Output& output : code.outputs)
        text += fmt::format("output {} {} {}\n", static_cast<int>(output.makes), output.rows, output.lanes);
    return text + print(code.graph);
}

Expected<ScoreForm> score_form(const ScoreRequest& request) {
    if (std::string reason = refuse_results(request.body); !reason.empty()) return Unexpected{reason};
    Expected<Graph> pairs = PairsMaker(request.body).run();
    if (!pairs) return Unexpected{pairs.reason()};
    return FormMaker(request, std::move(*pairs)).run();
}

}  // namespace mantissa::codegen
