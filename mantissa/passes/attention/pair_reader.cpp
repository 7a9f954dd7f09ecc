#include "mantissa/passes/attention/pair_reader.h"

#include "mantissa/graph/graph.h"

#include <fmt/format.h>

#include <algorithm>

namespace mantissa::inline v0 {

namespace {

bool is_view(const Node& node) {
    const std::string_view op = node.op->name;
    return op == "reshape" || op == "transpose" || op == "broadcast" || op == "slice" || op == "split";
}

bool is_primitive_of_elements(const Node& node) {
    return node.op->fuser == FuserClass::elementwise && !node.op->composite() && !node.inputs.empty() &&
           node.op->name != "random_uniform";
}

std::string text_of(const AxisMap& axes) {
    std::string text;
    for (int axis = 0; axis < axes.rank(); ++axis) {
        text += '|';
        for (const AxisAtom& atom : axes[axis])
            text += fmt::format("{}:{}:{},", atom.axis, atom.stride, atom.extent);
    }
    return text;
}

}  // namespace

ValueNumbers::ValueNumbers(const Graph& graph) {
    std::map<std::tuple<const Op*, std::vector<std::pair<int, int>>, std::string>, int> known;
    for (NodeId id = 0; id < graph.end(); ++id) {
        const Node& node = graph.node(id);
        std::vector<std::pair<int, int>> inputs;
        for (const Value& input : node.inputs) inputs.push_back(of(input));
        const auto key = std::tuple(node.op, std::move(inputs), node.attributes.text());
        numbers_.push_back(known.try_emplace(key, static_cast<int>(id)).first->second);
    }
}

int PairFrame::pair_axis(int axis) const {
    if (axis == key_axis) return 3;
    if (axis == query_axis) return 2;
    return !batch_axes.empty() && axis == batch_axes[0] ? 0 : 1;
}

Shape PairFrame::pairs() const {
    Shape all{1, 1, extent(query_axis), extent(key_axis)};
    for (const int axis : batch_axes) all[pair_axis(axis)] *= shape[axis];
    return all;
}

AxisAtoms PairFrame::heads() const {
    AxisAtoms atoms;
    for (std::size_t i = 1; i < batch_axes.size(); ++i)
        if (shape[batch_axes[i]] > 1)
            atoms.push_back({.axis = batch_axes[i], .stride = 1, .extent = shape[batch_axes[i]]});
    return atoms;
}

PairPlace PairPlace::whole(AxisMap axes) {
    PairPlace place{.axes = std::move(axes)};
    place.start.assign(place.axes.rank(), 0);
    return place;
}

PairReader::PairReader(const Graph& graph, const ValueNumbers& numbers, PairExpressions& expressions,
                       PairFrame frame, AxisAtoms shared_rows)
    : graph_(graph),
      numbers_(numbers),
      expressions_(expressions),
      frame_(std::move(frame)),
      shared_rows_(std::move(shared_rows)) {}

PairId PairReader::refuse(std::string reason) {
    why_not_.refuse(std::move(reason));
    return -1;
}

// Places.

std::int64_t PairReader::wanted(const PairPlace& place, int axis) const {
    std::int64_t extent = 1;
    for (const AxisAtom& atom : place.axes[axis]) extent *= atom.extent;
    return extent;
}

bool PairReader::has_keys(const PairPlace& place) const {
    return std::ranges::any_of(place.axes.flattened(),
                               [&](const AxisAtom& atom) { return atom.axis == frame_.key_axis; });
}

/// The place of an operand of an element-wise node, or of a broadcast.
PairPlace PairReader::beside(const Node& made, std::size_t input, const PairPlace& place) const {
    const Shape &from = graph_.type(made.inputs[input]).shape, &to = made.outputs[0].shape;
    std::vector<AxisAtoms> axes;
    PairPlace result;
    for (int axis = 0; axis < from.rank(); ++axis) {
        const int at = axis + to.rank() - from.rank();
        const bool stretched = from[axis] != to[at];
        axes.push_back(stretched ? AxisAtoms{} : place.axes[at]);
        result.start.push_back(stretched ? 0 : place.start[at]);
    }
    result.axes = AxisMap(std::move(axes));
    return result;
}

/// The place of a view's operand; nothing where axes are cut.
std::optional<PairPlace> PairReader::before(const Node& view, Value output, const PairPlace& place) const {
    const Shape &from = graph_.type(view.inputs[0]).shape, &to = graph_.type(output).shape;
    const std::string_view op = view.op->name;
    if (op == "broadcast") return beside(view, 0, place);
    PairPlace result = place;
    if (op == "transpose") {
        const auto& order = view.attributes.list("order");
        result.axes.undo_transpose(order);
        for (std::size_t i = 0; i < order.size(); ++i) result.start[order[i]] = place.start[i];
        return result;
    }
    if (op == "slice" || op == "split") {
        const auto axis = static_cast<int>(view.attributes.integer("axis"));
        result.start[axis] += op == "slice" ? view.attributes.integer("start") : output.output * to[axis];
        return result;
    }
    if (extents_over_one(from) == extents_over_one(to)) {
        std::vector<AxisAtoms> axes(from.rank());
        result.start.assign(from.rank(), 0);
        for (int i = 0, j = 0; i < from.rank(); ++i) {
            if (from[i] == 1) continue;
            while (to[j] == 1) ++j;
            axes[i] = place.axes[j];
            result.start[i] = place.start[j++];
        }
        result.axes = AxisMap(std::move(axes));
        return result;
    }
    if (std::ranges::any_of(place.start, [](std::int64_t at) { return at != 0; })) return std::nullopt;
    if (!result.axes.reshape(from)) return std::nullopt;
    return PairPlace::whole(result.axes);
}

// The product.

bool PairReader::is_product(Value value, const PairPlace& place) const {
    const Shape& shape = graph_.type(value).shape;
    std::int64_t pairs = 1;
    for (int axis = 0; axis < shape.rank(); ++axis) {
        if (place.start[axis] != 0 || wanted(place, axis) != shape[axis]) return false;
        pairs *= shape[axis];
    }
    AxisAtoms queries = shared_rows_;
    if (const std::int64_t extent = frame_.extent(frame_.query_axis); extent > 1)
        queries.push_back({.axis = frame_.query_axis, .stride = 1, .extent = extent});
    const AxisAtoms &rows = place.axes[-2], &columns = place.axes[-1];
    const auto are_keys = [&](const AxisAtoms& atoms) {
        return is_whole(atoms, frame_.key_axis, frame_.extent(frame_.key_axis));
    };
    return pairs == frame_.shape.elements() &&
           ((rows == queries && are_keys(columns)) || (columns == queries && are_keys(rows)));
}

/// Goes back over whatever works element by element, moves or sums, as far as products.
void PairReader::look(Value value, const PairPlace& place) {
    const Node& made = node(value);
    if (made.op->name == "matmul") {
        if (is_product(value, place))
            products_.insert(value);
        else
            met_another_ = true;
        return;
    }
    if (!looked_at_.insert(value.node).second) return;
    const std::string_view op = made.op->name;
    if (op == "concat") {
        for (const Value& part : made.inputs) {
            PairPlace at = place;
            at.start.assign(at.start.size(), 0);
            look(part, at);
        }
    } else if (is_view(made)) {
        if (const auto at = before(made, value, place)) look(made.inputs[0], *at);
    } else if (op == "softmax" || op == "stop_gradient" || op == "dropout") {
        PairPlace at = place;
        at.start.assign(at.start.size(), 0);
        look(made.inputs[0], at);
    } else if (made.op->fuser == FuserClass::elementwise) {
        for (std::size_t i = 0; i < made.inputs.size(); ++i) look(made.inputs[i], beside(made, i, place));
    } else if (stands_between_.empty() && has_keys(place)) {
        stands_between_ = op;
    }
}

std::string PairReader::no_product() const {
    if (met_another_) return "the scores' rows and columns are not the queries and keys of the weights";
    if (stands_between_.empty()) return "the scores are no product of queries and keys";
    return fmt::format("'{}' stands between the softmax and a product of queries and keys", stands_between_);
}

bool PairReader::find_product(Value weights, const AxisMap& axes) {
    look(weights, PairPlace::whole(axes));
    std::set<std::pair<int, int>> different;
    for (const Value& value : products_) different.insert(numbers_.of(value));
    if (different.size() > 1) {
        refuse(fmt::format("the scores are made of {} products of queries and keys", different.size()));
        return false;
    }
    depends_.assign(graph_.size(), false);
    for (const Value& value : products_) depends_[value.node] = true;
    for (NodeId id = 0; id < graph_.end(); ++id)
        for (const Value& input : graph_.node(id).inputs)
            if (depends_[input.node]) depends_[id] = true;
    return true;
}

// Reads a value that depends on the product.

PairId PairReader::read(Value value, const PairPlace& place) {
    // Elements of a head are no axis of the frame; a value spread over them is read before the spreading.
    const bool spread = node(value).op->name == "broadcast" || node(value).op->name == "reshape";
    if (!spread && std::ranges::any_of(place.axes.flattened(), [&](const AxisAtom& atom) {
            return atom.axis >= frame_.shape.rank();
        }))
        return refuse("what the result meets differs between the elements of a head");
    return depends_[value.node] ? read_dependent(value, place) : read_independent(value, place);
}

PairId PairReader::read_dependent(Value value, const PairPlace& place) {
    const Node& made = node(value);
    const std::string_view op = made.op->name;
    passed_.insert(value.node);
    if (!has_keys(place)) known_rows_.insert_or_assign(value, place);
    if (products_.contains(value)) {
        if (!is_product(value, place)) return refuse("a part of the product of queries and keys is read");
        if (product_.node < 0) product_ = value, product_axes_ = place.axes;
        return expressions_.product();
    }
    if (op == "concat") return read_concat(made, place);
    if (is_view(made)) {
        const auto at = before(made, value, place);
        if (!at) return refuse("a reshape of the scores cuts across their axes");
        return read(made.inputs[0], *at);
    }
    if (op == "softmax") return read_softmax(made, place);
    if (op == "sum" || op == "max" || op == "stop_gradient") return read_reduction(value, place);
    if (is_primitive_of_elements(made)) return read_elementwise(made, place);
    if (made.op->fuser == FuserClass::elementwise) return read_composite(made, place);
    return refuse(fmt::format("'{}' stands between the softmax and a product of queries and keys", op));
}

PairId PairReader::read_elementwise(const Node& made, const PairPlace& place) {
    std::vector<PairId> in;
    for (std::size_t i = 0; i < made.inputs.size(); ++i) {
        in.push_back(read(made.inputs[i], beside(made, i, place)));
        if (in.back() < 0) return -1;
    }
    if (made.op->name == "cast") return expressions_.cast(in[0], made.outputs[0].dtype);
    return expressions_.make(made.op->name, std::move(in));
}

/// Reads an activation, or dropout, by its definition.
PairId PairReader::read_composite(const Node& made, const PairPlace& place) {
    if (made.op->name == "dropout" && random(made, place) == std::nullopt)
        return refuse("random numbers are drawn for weights whose axes stand in another order");
    Graph parts;
    std::vector<Tensor> inputs;
    std::vector<PairId> of_node;
    for (std::size_t i = 0; i < made.inputs.size(); ++i) {
        inputs.emplace_back(parts, parts.add_input(fmt::format("x{}", i), graph_.type(made.inputs[i])));
        const bool counter = made.op->name == "dropout" && i > 0;
        of_node.push_back(counter ? -1 : read(made.inputs[i], beside(made, i, place)));
        if (!counter && of_node.back() < 0) return -1;
    }
    const Tensor result = made.op->definition({parts, inputs, made.attributes})[0];
    for (std::size_t id = inputs.size(); id < parts.size(); ++id) {
        const Node& part = parts.node(static_cast<NodeId>(id));
        std::vector<PairId> in;
        for (const Value& input : part.inputs) in.push_back(of_node[input.node]);
        if (part.op->name == "constant")
            of_node.push_back(
                expressions_.cast(expressions_.number(part.attributes.number("value"), part.outputs[0].dtype),
                                  part.outputs[0].dtype));
        else if (part.op->name == "random_uniform")
            of_node.push_back(*random(made, place));
        else if (part.op->name == "cast")
            of_node.push_back(expressions_.cast(in[0], part.outputs[0].dtype));
        else if (is_primitive_of_elements(part))
            of_node.push_back(expressions_.make(part.op->name, std::move(in)));
        else
            return refuse(fmt::format("'{}' stands between the softmax and a product of queries and keys",
                                      made.op->name));
    }
    return of_node[result.value().node];
}

PairId PairReader::read_concat(const Node& made, const PairPlace& place) {
    const auto axis = static_cast<int>(made.attributes.integer("axis"));
    PairPlace at = place;
    std::int64_t& start = at.start[axis];
    for (const Value& part : made.inputs) {
        const std::int64_t extent = graph_.type(part).shape[axis];
        if (start < extent) {
            if (start + wanted(place, axis) > extent) break;
            return read(part, at);
        }
        start -= extent;
    }
    return refuse("the scores are joined with others, and not taken apart again");
}

/// The extents of the parts joined along this axis.
std::vector<std::int64_t> PairReader::parts_of(Value value, int axis) const {
    const Shape& shape = graph_.type(value).shape;
    const Node& made = node(value);
    if (made.op->name == "concat" && made.attributes.integer("axis") == axis) {
        std::vector<std::int64_t> extents;
        for (const Value& part : made.inputs) extents.push_back(graph_.type(part).shape[axis]);
        return extents;
    }
    if (made.op->fuser == FuserClass::elementwise)
        for (const Value& input : made.inputs) {
            const Shape& from = graph_.type(input).shape;
            const int at = axis - shape.rank() + from.rank();
            if (at < 0 || from[at] != shape[axis]) continue;
            if (auto parts = parts_of(input, at); parts.size() > 1) return parts;
        }
    return {shape[axis]};
}

/// `place`: of the value but for that axis, over which the keys run.
PairId PairReader::sum_over_keys(Value value, int axis, const PairPlace& place) {
    const std::int64_t keys = frame_.extent(frame_.key_axis);
    PairId sum = -1;
    std::int64_t start = 0;
    for (const std::int64_t extent : parts_of(value, axis)) {
        if (extent != keys && extent != 1)
            return refuse(
                "the softmax does not run over the positions that the product with the values sums over");
        std::vector<AxisAtoms> axes;
        for (int i = 0; i < place.axes.rank(); ++i) axes.push_back(place.axes[i]);
        axes[axis].clear();
        if (extent == keys && keys > 1) axes[axis] = {{.axis = frame_.key_axis, .stride = 1, .extent = keys}};
        PairPlace at{.axes = AxisMap(std::move(axes)), .start = place.start};
        at.start[axis] = start;
        const PairId part = read(value, at);
        if (part < 0) return -1;
        const PairId term = extent == keys ? expressions_.sum(part) : part;
        sum = sum < 0 ? term : expressions_.make("add", {sum, term});
        start += extent;
    }
    return sum;
}

PairId PairReader::read_softmax(const Node& made, const PairPlace& place) {
    const int last = place.axes.rank() - 1;
    if (!is_whole(place.axes[last], frame_.key_axis, frame_.extent(frame_.key_axis)))
        return refuse(
            "the softmax does not run over the positions that the product with the values sums over");
    const PairId scores = read(made.inputs[0], place);
    if (scores < 0) return -1;
    // The softmax of the definition, the maximum left out.
    const auto exponentials = [&](PairId of) { return expressions_.make("exp", {of}); };
    std::int64_t start = 0;
    PairId total = -1;
    const std::int64_t keys = frame_.extent(frame_.key_axis);
    for (const std::int64_t extent : parts_of(made.inputs[0], last)) {
        if (extent != keys && extent != 1)
            return refuse(
                "the softmax does not run over the positions that the product with the values sums over");
        std::vector<AxisAtoms> axes;
        for (int i = 0; i < last; ++i) axes.push_back(place.axes[i]);
        axes.push_back(extent == keys ? place.axes[last] : AxisAtoms{});
        PairPlace at{.axes = AxisMap(std::move(axes)), .start = place.start};
        at.start.back() = start;
        const PairId part = read(made.inputs[0], at);
        if (part < 0) return -1;
        const PairId term = extent == keys ? expressions_.sum(exponentials(part)) : exponentials(part);
        total = total < 0 ? term : expressions_.make("add", {total, term});
        start += extent;
    }
    return expressions_.make("div", {exponentials(scores), total});
}

/// A sum over the keys, or a value of each query that is known by name only.
PairId PairReader::read_reduction(Value value, const PairPlace& place) {
    const Node& made = node(value);
    if (made.op->name == "stop_gradient" && has_keys(place))
        return refuse("'stop_gradient' stands between the softmax and a product of queries and keys");
    if (has_keys(place))
        return refuse(
            "the softmax does not run over the positions that the product with the values sums over");
    if (made.op->name == "sum") {
        const auto& axes = made.attributes.list("axes");
        if (axes.size() != 1)
            return refuse(fmt::format("'sum' runs over {} axes, not over the keys alone", axes.size()));
        const auto axis = static_cast<int>(axes[0]);
        const Shape& from = graph_.type(made.inputs[0]).shape;
        std::vector<AxisAtoms> before;
        PairPlace at;
        for (int i = 0, j = 0; i < from.rank(); ++i) {
            const bool is_summed = i == axis;
            before.push_back(is_summed ? AxisAtoms{} : place.axes[j]);
            at.start.push_back(is_summed ? 0 : place.start[j]);
            if (!is_summed || made.attributes.flag("keep")) ++j;
        }
        at.axes = AxisMap(std::move(before));
        return sum_over_keys(made.inputs[0], axis, at);
    }
    // Only its name matters: values made from it must cancel. Behind it are nodes of the softmax, too.
    std::vector<Value> behind{made.inputs[0]};
    while (!behind.empty()) {
        const Value next = behind.back();
        behind.pop_back();
        if (!depends(next.node) || products_.contains(next) || !passed_.insert(next.node).second) continue;
        for (const Value& input : node(next).inputs) behind.push_back(input);
    }
    // Kept or not, the axis of a maximum is the same.
    std::string name = text_of(AxisMap(std::vector<AxisAtoms>{place.axes.flattened()}));
    std::pair<int, int> number = numbers_.of(value);
    if (made.op->name == "max") {
        number = numbers_.of(made.inputs[0]);
        for (const std::int64_t axis : made.attributes.list("axes")) name += fmt::format(" max {}", axis);
    }
    const auto [entry, is_new] = known_.try_emplace({number, name}, static_cast<int>(rows_.size()));
    if (is_new) rows_.emplace_back(made.op->name);
    unsigned axes = 0;
    for (const AxisAtom& atom : place.axes.flattened()) axes |= 1u << frame_.pair_axis(atom.axis);
    return expressions_.leaf("row", entry->second, DType::f32, axes);
}

// Makes a value that does not depend on the product.

PairReader::Made PairReader::made_of(Value value) {
    if (const auto known = made_of_.find(value.node); known != made_of_.end()) return known->second;
    const Node& made = node(value);
    Made kind = is_floating(graph_.type(value).dtype) ? Made::of_numbers : Made::of_whole_numbers;
    if (made.op->name == "constant" || made.op->name == "iota") {
        kind = Made::of_positions;
    } else if (made.op->name == "random_uniform") {
        kind = Made::of_whole_numbers;  // of the counters
    } else if (is_view(made) || is_primitive_of_elements(made) || made.op->name == "stop_gradient") {
        kind = Made::of_positions;
        for (const Value& input : made.inputs) kind = std::max(kind, made_of(input));
    }
    made_of_.emplace(value.node, kind);
    return kind;
}

PairId PairReader::read_independent(Value value, const PairPlace& place) {
    if (const auto made = inlined(value, place)) return *made;
    return operand(value, place);
}

std::optional<PairId> PairReader::inlined(Value value, const PairPlace& place) {
    const Node& made = node(value);
    const std::string_view op = made.op->name;
    const auto read_all = [&]() -> std::optional<PairId> {
        const PairId id = read_elementwise(made, place);
        return id < 0 ? std::nullopt : std::optional(id);
    };
    if (op == "constant")
        return expressions_.number(made.attributes.number("value"),
                                   is_floating(made.outputs[0].dtype) ? DType::f32 : made.outputs[0].dtype);
    if (op == "iota") return position(made, place);
    if (op == "random_uniform") return random(made, place);
    if (op == "embedding") return taken_by_distance(made, place);
    const bool of_numbers = made_of(value) == Made::of_numbers;
    if (is_view(made) || (op == "stop_gradient" && !of_numbers)) {
        const auto at = is_view(made) ? before(made, value, place) : std::optional(place);
        if (!at) return std::nullopt;
        // A part that is cut out of a larger operand is the operand.
        const bool cuts = op == "slice" || op == "split";
        if (cuts && made_of(value) != Made::of_positions) return std::nullopt;
        return read_independent(made.inputs[0], *at);
    }
    if (!is_primitive_of_elements(made)) return std::nullopt;
    // Logarithms and exponentials meet the softmax's own.
    if (!of_numbers || op == "exp" || op == "log") return read_all();
    std::int64_t largest = 0;
    bool meets_positions = false;
    for (const Value& input : made.inputs) {
        const std::int64_t elements = graph_.type(input).shape.elements();
        if (made_of(input) == Made::of_numbers)
            largest = std::max(largest, elements);
        else
            meets_positions = meets_positions || elements > 1;
    }
    if (meets_positions || made.outputs[0].shape.elements() > largest) return read_all();
    return std::nullopt;
}

std::optional<PairId> PairReader::position(const Node& made, const PairPlace& place) {
    const auto along = static_cast<int>(made.attributes.integer("axis"));
    const DType dtype = is_floating(made.outputs[0].dtype) ? DType::f32 : made.outputs[0].dtype;
    const auto offset = static_cast<double>(place.start[along]);
    const AxisAtoms& atoms = place.axes[along];
    if (atoms.empty()) return expressions_.number(offset, dtype);
    const int axis = atoms[0].axis;
    const int pair = frame_.pair_axis(axis);
    if (!is_whole(atoms, axis, frame_.extent(axis)) || frame_.extent(axis) != frame_.pairs()[pair])
        return std::nullopt;
    return expressions_.make("add", {expressions_.position(pair, dtype), expressions_.number(offset, dtype)});
}

/// Random numbers that are drawn for pairs in their order; `made` has the counters among its operands.
std::optional<PairId> PairReader::random(const Node& made, const PairPlace& place) {
    AxisAtoms all;
    for (const int axis : frame_.batch_axes)
        all.push_back({.axis = axis, .stride = 1, .extent = frame_.extent(axis)});
    for (const int axis : {frame_.query_axis, frame_.key_axis})
        all.push_back({.axis = axis, .stride = 1, .extent = frame_.extent(axis)});
    std::erase_if(all, [](const AxisAtom& atom) { return atom.extent == 1; });
    const std::int64_t drawn = made.outputs[0].shape.elements();
    if (drawn != frame_.shape.elements() || all != place.axes.flattened()) return std::nullopt;
    const std::size_t first = made.inputs.size() - 2;
    const Value seed = made.inputs[first], step = made.inputs[first + 1];
    const std::int64_t operation = made.attributes.integer("operation");
    int index = -1;
    for (std::size_t i = 0; i < randoms_.size(); ++i)
        if (numbers_.of(randoms_[i].seed) == numbers_.of(seed) &&
            numbers_.of(randoms_[i].step) == numbers_.of(step) && randoms_[i].operation == operation)
            index = static_cast<int>(i);
    if (index < 0) {
        index = static_cast<int>(randoms_.size());
        randoms_.push_back({seed, step, operation});
    }
    return expressions_.leaf("random", index, DType::f32, along_all);
}

/// Whether it changes with the distance of query and key alone.
bool PairReader::is_of_distance(PairId id) const {
    if (const auto form = expressions_.linear(id))
        return form->weights[0] == 0 && form->weights[1] == 0 && form->weights[2] == -form->weights[3];
    const PairTerm& term = expressions_[id];
    return !term.in.empty() && std::ranges::all_of(term.in, [&](PairId in) { return is_of_distance(in); });
}

/// Rows of a table, of all heads, taken by a function of the distance.
std::optional<PairId> PairReader::taken_by_distance(const Node& made, const PairPlace& place) {
    if (made_of(made.inputs[1]) != Made::of_positions) return std::nullopt;
    std::vector<AxisAtoms> axes;
    for (int axis = 0; axis + 1 < place.axes.rank(); ++axis) axes.push_back(place.axes[axis]);
    PairPlace of_ids{.axes = AxisMap(std::move(axes)), .start = {place.start.begin(), place.start.end() - 1}};
    const AxisAtoms& columns = place.axes[-1];
    const std::int64_t width = made.outputs[0].shape[-1];
    if (place.start.back() != 0 || (width != 1 && columns != frame_.heads())) return std::nullopt;
    if (width != 1 && frame_.pairs()[1] != width) return std::nullopt;
    const auto ids = inlined(made.inputs[1], of_ids);
    if (!ids || !is_of_distance(*ids)) return std::nullopt;
    PairOperand taken{.value = made.inputs[0], .rows = *ids, .letters = width == 1 ? "r" : "rh"};
    return add_operand(taken);
}

PairId PairReader::operand(Value value, const PairPlace& place) {
    const Shape& shape = graph_.type(value).shape;
    for (int axis = 0; axis < shape.rank(); ++axis)
        if (place.start[axis] != 0 || wanted(place, axis) != shape[axis])
            return refuse(fmt::format("a part of '{}' is read that is not known", node(value).op->name));
    PairOperand found{.value = value, .axes = place.axes, .letters = {}};
    AxisAtoms heads;
    for (const AxisAtom& atom : place.axes.flattened()) {
        const int pair = frame_.pair_axis(atom.axis);
        if (pair != 1 && !is_whole({atom}, atom.axis, frame_.extent(atom.axis)))
            return refuse("a reshape of what the scores meet cuts across their axes");
        const char letter = "bhts"[pair];
        if (pair == 1) {
            if (!heads.empty() && !found.letters.ends_with('h')) found.needs_order = true;
            heads.push_back(atom);
        }
        if (found.letters.find(letter) == std::string::npos) found.letters += letter;
    }
    if (!heads.empty() && heads != frame_.heads()) found.needs_order = true;
    return add_operand(found);
}

PairId PairReader::add_operand(PairOperand operand) {
    const std::string name = operand.rows >= 0
                                 ? fmt::format("rows {} {}", operand.rows, operand.letters)
                                 : text_of(AxisMap(std::vector<AxisAtoms>{operand.axes.flattened()}));
    const auto [entry, is_new] =
        known_.try_emplace({numbers_.of(operand.value), name}, static_cast<int>(operands_.size()));
    if (is_new) operands_.push_back(std::move(operand));
    return leaf(static_cast<std::size_t>(entry->second));
}

PairId PairReader::leaf(std::size_t operand) {
    const PairOperand& of = operands_[operand];
    const DType dtype = graph_.type(of.value).dtype;
    unsigned axes = 0;
    for (const char letter : of.letters)
        axes |= letter == 'r' ? unsigned{along_queries} | along_keys
                              : 1u << std::string_view("bhts").find(letter);
    return expressions_.leaf("operand", static_cast<int>(operand), is_floating(dtype) ? DType::f32 : dtype,
                             axes);
}

}  // namespace mantissa
