#include "mantissa/passes/analysis/nest.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "mantissa/base/error.h"

namespace mantissa::inline v0 {

namespace {

bool is_made_anew(const Node& node) { return node.op->name == "iota" || node.op->name == "constant"; }

bool is_movement(const Node& node) { return node.op->name == "reshape" || node.op->name == "broadcast"; }

bool dtype_fits(DType dtype) {
    return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16 || dtype == DType::i32 ||
           dtype == DType::boolean;
}

bool fits(const Type& type, Doubles doubles) {
    const bool is_single =
        doubles == Doubles::single && type.dtype == DType::f64 && type.shape.elements() == 1;
    return is_single || dtype_fits(type.dtype);
}

/// Axes [first, last) of a shape that an operand, aligned at the right, has or is repeated along: one run of
/// axes that it has, with others before and after.
std::optional<Access> rows_of_operand(const Shape& shape, const Shape& operand, int last) {
    Access access;
    std::int64_t present = 1, before = 1;
    const int missing = shape.rank() - operand.rank();
    for (int axis = last - 1; axis >= 0; --axis) {
        if (shape[axis] == 1) continue;
        const bool has = axis >= missing && operand[axis - missing] == shape[axis];
        if (has && before > 1) return std::nullopt;
        if (has)
            present *= shape[axis];
        else if (present > 1)
            before *= shape[axis];
        else
            access.divide *= shape[axis];
    }
    access.rows = present > 1;
    if (!access.rows) access.divide = 1;
    if (before > 1) access.modulo = present;
    return access;
}

class NestMaker {
  public:
    NestMaker(const Graph& graph, std::span<const NodeId> nodes, FunctionRef<bool(Value)> from_source,
              Loops loops, Doubles doubles)
        : graph_(graph), from_source_(from_source), loops_(loops), doubles_(doubles) {
        nest_.nodes.assign(nodes.begin(), nodes.end());
    }

    Expected<Nest> run() {
        choose_domain();
        for (std::size_t i = 0; reason_.empty() && i < nest_.nodes.size(); ++i) visit(nest_.nodes[i]);
        if (!reason_.empty()) return Unexpected{std::move(reason_)};
        return std::move(nest_);
    }

  private:
    template <class... Args>
    void refuse(fmt::format_string<Args...> message, Args&&... args) {
        if (reason_.empty()) reason_ = fmt::format(message, std::forward<Args>(args)...);
    }

    bool inside(Value value) const { return nest_.values.contains(value); }

    /// The shape that the loops go over: the operand of a reduction, else the largest output. It is flat if
    /// every operand has its elements, or one.
    void choose_domain() {
        Shape domain;
        bool reduced = false;
        for (NodeId id : nest_.nodes) {
            const Node& node = graph_.node(id);
            const Reduces what = reduces(graph_, node);
            const Shape& shape =
                what == Reduces::nothing ? node.outputs[0].shape : graph_.type(node.inputs[0]).shape;
            if (what == Reduces::row || what == Reduces::columns) {
                if (!reduced) domain = shape;
                reduced = true;
            } else if (!reduced && shape.elements() > domain.elements()) {
                domain = shape;
            }
        }
        elements_ = domain.elements();
        if (elements_ == 0) return refuse("there is nothing to compute");
        nest_.flat = loops_ == Loops::one_if_possible && !reduced && is_flat();
        nest_.columns = nest_.flat || domain.rank() == 0 ? elements_ : domain[-1];
        nest_.rows = elements_ / nest_.columns;
    }

    bool is_flat() const {
        const auto fits = [&](const Shape& shape) {
            return shape.elements() == elements_ || shape.elements() == 1;
        };
        for (NodeId id : nest_.nodes) {
            const Node& node = graph_.node(id);
            if (node.op->name == "iota" || reduces(graph_, node) != Reduces::nothing) return false;
            if (node.op->name == "constant") continue;
            for (const Value& input : node.inputs)
                if (from_source_(input) ? graph_.node(input.node).op->name != "constant"
                                        : !fits(graph_.type(input).shape))
                    return false;
            if (!fits(node.outputs[0].shape)) return false;
        }
        return true;
    }

    void visit(NodeId id) {
        const Node& node = graph_.node(id);
        if (std::string reason = refuse_in_nest(graph_, node, doubles_); !reason.empty())
            return refuse("{}", reason);
        const Value output{id, 0};
        if (node.op->name == "constant") {
            nest_.values[output] = Varies::not_at_all;
        } else if (const Reduces what = reduces(graph_, node); what != Reduces::nothing) {
            visit_reduction(node, what, output);
        } else if (node.op->name == "reshape") {
            visit_reshape(node, output);
        } else {
            const std::optional<Varies> varies = by_shape(node);
            if (!varies)
                return refuse("{} is neither {} rows, {} columns, both nor one element",
                              node.outputs[0].text(), nest_.rows, nest_.columns);
            if (reads_counter(node) && by_elements(node.outputs[0].shape, Varies::not_at_all) != varies)
                return refuse("a counter of {} could be one of rows or of columns", node.outputs[0].text());
            nest_.values[output] = *varies;
            for (std::size_t i = 0; i < node.inputs.size(); ++i) read(id, i, *varies);
        }
    }

    /// Whether an operand is made again from counters, in the node's shape.
    bool reads_counter(const Node& node) const {
        return std::any_of(node.inputs.begin(), node.inputs.end(), [this](Value input) {
            return from_source_(input) && !inside(input) && graph_.node(input.node).op->name != "constant";
        });
    }

    /// How a value of a shape may vary, where that is clear. `as` breaks the tie of a square.
    std::optional<Varies> by_elements(const Shape& shape, Varies as) const {
        const std::int64_t count = shape.elements();
        const bool whole =
            count == elements_ && (nest_.flat || (shape.rank() > 0 && shape[-1] == nest_.columns));
        if (as == Varies::by_both || (as == Varies::not_at_all && whole))
            return whole ? std::optional(Varies::by_both) : std::nullopt;
        const bool row = count == nest_.rows;
        const bool column = count == nest_.columns && shape.rank() > 0 && shape[-1] == count;
        if (count == 1 && as == Varies::not_at_all) return Varies::not_at_all;
        if (as == Varies::by_row) return row ? std::optional(as) : std::nullopt;
        if (as == Varies::by_column) return column ? std::optional(as) : std::nullopt;
        if (column && nest_.columns > 1) return Varies::by_column;
        if (row) return Varies::by_row;
        return std::nullopt;
    }

    std::optional<Varies> by_shape(const Node& node) const {
        Varies most = Varies::not_at_all;
        for (const Value& input : node.inputs) {
            if (!inside(input)) continue;
            const Varies varies = nest_.values.at(input);
            if (most == Varies::not_at_all)
                most = varies;
            else if (varies != Varies::not_at_all && varies != most)
                most = Varies::by_both;
        }
        // An operand inside that varies less may stand beside one from outside that varies more.
        if (most != Varies::not_at_all)
            if (const auto varies = by_elements(node.outputs[0].shape, most)) return varies;
        return by_elements(node.outputs[0].shape, most == Varies::not_at_all ? most : Varies::by_both);
    }

    /// A reshape of a value inside changes nothing; one from outside is read in its new shape.
    void visit_reshape(const Node& node, Value output) {
        if (!inside(node.inputs[0])) {
            refuse("a reshape of what lies outside is a view already");
            return;
        }
        const auto varies = by_elements(node.outputs[0].shape, nest_.values.at(node.inputs[0]));
        if (!varies) return refuse("{} is another shape than the nest's", node.outputs[0].text());
        nest_.values[output] = *varies;
    }

    void visit_reduction(const Node& node, Reduces what, Value output) {
        const Shape& shape = graph_.type(node.inputs[0]).shape;
        if (inside(node.inputs[0])) {
            const Varies varies = nest_.values.at(node.inputs[0]);
            if (varies == Varies::by_row && node.outputs[0].shape.elements() == 1)
                what = Reduces::everything;
            else if (varies != Varies::by_both)
                return refuse("{} of a value that does not vary by row and column", node.op->name);
        } else {
            if (shape.elements() != elements_ || shape[-1] != nest_.columns)
                return refuse("{} reduces {}, the nest is {} x {}", node.op->name, shape.text(), nest_.rows,
                              nest_.columns);
            nest_.reads[{output.node, 0}] = {.rows = true, .columns = true};
        }
        if (what != Reduces::row && node.op->name != "sum")
            return refuse("only sums go over rows, not {}", node.op->name);
        if (what != Reduces::row && node.outputs[0].dtype != DType::f32)
            return refuse("sums over rows are added in f32, not {}", name_of(node.outputs[0].dtype));
        nest_.values[output] = what == Reduces::row       ? Varies::by_row
                               : what == Reduces::columns ? Varies::by_column
                                                          : Varies::not_at_all;
        if (what != Reduces::row) unfinished_.push_back(output);
    }

    void read(NodeId id, std::size_t index, Varies varies) {
        const Node& node = graph_.node(id);
        const Value input = node.inputs[index];
        if (from_source_(input) && !inside(input)) return;
        if (std::find(unfinished_.begin(), unfinished_.end(), input) != unfinished_.end())
            return refuse("a sum over rows is not finished inside the nest");
        const Shape& shape = node.outputs[0].shape;
        const Shape& operand = graph_.type(input).shape;
        const std::optional<Access> access = access_of(shape, operand, varies);
        if (!access)
            return refuse("{} is not read by whole rows or columns for {}", graph_.type(input).text(),
                          node.outputs[0].text());
        if (!inside(input)) {
            nest_.reads[{id, index}] = *access;
            return;
        }
        // A value inside is there for this row and this column, and for no other.
        Access own;
        own.rows = access->rows;
        own.columns = access->columns;
        const Varies inner = nest_.values.at(input);
        const bool by_row = inner == Varies::by_row || inner == Varies::by_both;
        const bool by_column = inner == Varies::by_column || inner == Varies::by_both;
        const bool same = (by_row == own.rows || nest_.rows == 1) &&
                          (by_column == own.columns || nest_.columns == 1) && *access == own;
        if (graph_.node(input.node).op->name != "constant" && operand.elements() > 1 && !same)
            refuse("{} is read in another order than it is made", graph_.type(input).text());
    }

    std::optional<Access> access_of(const Shape& shape, const Shape& operand, Varies varies) const {
        const std::int64_t count = operand.elements();
        if (count == 1) return Access{};
        switch (varies) {
            case Varies::not_at_all:
                return std::nullopt;
            case Varies::by_column:
                if (count != nest_.columns) return std::nullopt;
                return Access{.columns = true};
            case Varies::by_row:
                return rows_of_operand(shape, operand, shape.rank());
            case Varies::by_both:
                break;
        }
        if (nest_.flat)
            return count == elements_ ? std::optional(Access{.rows = true, .columns = true}) : std::nullopt;
        std::optional<Access> access = rows_of_operand(shape, operand, shape.rank() - 1);
        if (access) access->columns = operand[-1] == shape[-1] && shape[-1] != 1;
        return access;
    }

    const Graph& graph_;
    FunctionRef<bool(Value)> from_source_;
    Loops loops_;
    Doubles doubles_;
    Nest nest_;
    std::int64_t elements_ = 1;
    std::vector<Value> unfinished_;  // sums over rows
    std::string reason_;
};

}  // namespace

Expected<Nest> make_nest(const Graph& graph, std::span<const NodeId> nodes,
                         FunctionRef<bool(Value)> from_source, Loops loops, Doubles doubles) {
    return NestMaker(graph, nodes, from_source, loops, doubles).run();
}

Expected<Nest> make_nest(const Graph& body, Loops loops, Doubles doubles) {
    std::vector<NodeId> nodes;
    for (NodeId id = 0; id < body.end(); ++id)
        if (body.node(id).op->name != "input") nodes.push_back(id);
    return make_nest(
        body, nodes, [](Value) { return false; }, loops, doubles);
}

int nest_instructions(std::string_view op) {
    if (op == "constant" || op == "reshape" || op == "broadcast") return 0;
    static const std::map<std::string_view, int> by_row = [] {
        std::map<std::string_view, int> all;
        for (const Op* row : op_table()) all.emplace(row->name, row->instructions);
        return all;
    }();
    const auto entry = by_row.find(op);
    return entry == by_row.end() ? 1 : entry->second;
}

Reduces reduces(const Graph& graph, const Node& node) {
    if (node.op->name != "sum" && node.op->name != "max") return Reduces::nothing;
    const int rank = graph.type(node.inputs[0]).shape.rank();
    std::vector<std::int64_t> axes = node.attributes.list("axes");
    std::sort(axes.begin(), axes.end());
    const int count = static_cast<int>(axes.size());
    if (count == 1 && axes[0] == rank - 1) return Reduces::row;
    if (count == rank) return Reduces::everything;
    return Reduces::columns;
}

std::string refuse_in_nest(const Graph& graph, const Node& node, Doubles doubles) {
    const std::string_view op = node.op->name;
    if (node.op->composite()) return fmt::format("{} stays whole, as one kernel", op);
    if (node.outputs.size() != 1) return fmt::format("{} has {} results", op, node.outputs.size());
    if (node.op->fuser == FuserClass::row_reduction) {
        const Shape& shape = graph.type(node.inputs[0]).shape;
        std::vector<std::int64_t> axes = node.attributes.list("axes");
        std::sort(axes.begin(), axes.end());
        const bool leading = !axes.empty() && axes.front() == 0 &&
                             axes.back() == static_cast<std::int64_t>(axes.size()) - 1 &&
                             static_cast<int>(axes.size()) >= shape.rank() - 1;
        const bool last = axes.size() == 1 && axes[0] == shape.rank() - 1;
        if (!leading && !last)
            return fmt::format("{} goes over other axes than the last or all before it", op);
    } else if (node.op->fuser != FuserClass::elementwise && !is_movement(node) && !is_made_anew(node)) {
        return fmt::format("{} is neither element-wise nor a reduction", op);
    }
    if (!fits(node.outputs[0], doubles)) return fmt::format("{} has no lanes", node.outputs[0].text());
    for (const Value& input : node.inputs)
        if (!fits(graph.type(input), doubles))
            return fmt::format("{} has no lanes", graph.type(input).text());
    return "";
}

Access counted_by(const Shape& shape, int axis, Varies varies) {
    const bool rows_only = varies == Varies::by_row;
    if (axis == shape.rank() - 1 && !rows_only) return {.columns = true};
    Shape counter;  // the counter as an operand that has this axis only
    std::vector<std::int64_t> extents(shape.rank(), 1);
    extents[axis] = shape[axis];
    const int row_axes = rows_only ? shape.rank() : shape.rank() - 1;
    const std::optional<Access> access = rows_of_operand(shape, Shape(extents), row_axes);
    check(access.has_value(), "one axis is one run of axes");
    return *access;
}

}  // namespace mantissa
