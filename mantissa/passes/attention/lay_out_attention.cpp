#include "mantissa/passes/attention/lay_out_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mantissa/graph/attention_layout.h"
#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/tensor.h"
#include "mantissa/passes/analysis/plan_memory.h"
#include "mantissa/passes/analysis/uses.h"
#include "mantissa/passes/attention/axis_map.h"
#include "mantissa/passes/rewriter.h"

namespace mantissa::inline v0 {

namespace {

/// The order in which attention's axes are stored in a tensor, as AttentionTensor's word says it. The heads
/// are made from the tensor, or the tensor from them, by reshapes, transpositions and cuts into equal parts.
struct StoredAxes {
    std::string axes;         ///< as in "btphd"; empty if attention cannot read or write them there
    std::int64_t parts = 1;   ///< extent of p
    std::int64_t index = 0;   ///< along p
    std::string reason = {};  ///< why it cannot
};

/// Follows a tensor through movements.
class StoredAxesReader {
  public:
    explicit StoredAxesReader(const Shape& shape) : shape_(shape), map_(shape) {}

    /// On to this output of the node that reads the tensor at hand.
    void follow(const Node& node, std::int32_t output);

    /// Where the tensor at hand, whose axes are `letters` (`index` along p), lies in the first.
    StoredAxes in_first(std::string_view letters, std::int64_t index);
    /// The order of axes of the tensor at hand, where the first had the axes `letters`, without p.
    StoredAxes at_hand(std::string_view letters) const;

  private:
    /// A part of the first tensor that holds all of the tensor at hand.
    struct Cut {
        AxisAtom part;
        std::int64_t index = 0;
    };
    /// Keeps part `index` of `parts` equal ones of an axis.
    void cut(int axis, std::int64_t parts, std::int64_t index);
    void slice(const Node& node);

    Shape shape_;  // of the tensor at hand
    AxisMap map_;  // of the tensor at hand, in axes of the first
    std::vector<Cut> cuts_;
    std::string reason_;
};

/// A part of the axis of that letter, or of p.
struct Piece {
    char letter = 0;
    std::int64_t stride = 1;  ///< in its axis
    std::int64_t extent = 1;
    std::int64_t index = 0;  ///< of p
};

std::string name_of_letter(char letter) {
    switch (letter) {
        case 'b':
            return "sequences";
        case 'h':
            return "heads";
        case 't':
            return "positions";
        case 'd':
            return "the elements of a head";
        default:
            return "parts";
    }
}

/// Neighbours of one axis become one.
std::vector<Piece> joined(const std::vector<Piece>& pieces) {
    std::vector<Piece> runs;
    for (const Piece& piece : pieces) {
        Piece* const last = runs.empty() || runs.back().letter != piece.letter ? nullptr : &runs.back();
        const bool is_next = last && (piece.letter == 'p' || last->stride == piece.stride * piece.extent);
        if (!is_next) {
            runs.push_back(piece);
            continue;
        }
        last->stride = piece.stride;
        last->index = last->index * piece.extent + piece.index;
        last->extent *= piece.extent;
    }
    return runs;
}

/// Axes of one element lie anywhere: where the plain order has them, if that is the order, else outermost.
std::string with_missing_letters(std::string axes) {
    std::string plain = plain_attention_axes;
    std::erase_if(plain, [&](char letter) { return axes.find(letter) == std::string::npos; });
    if (axes == plain) return plain_attention_axes;
    if (axes.find('d') == std::string::npos) axes += 'd';
    for (const char letter : {'t', 'h', 'b'})
        if (axes.find(letter) == std::string::npos) axes.insert(axes.begin(), letter);
    return axes;
}

/// Pieces in the order of memory, outermost first.
StoredAxes stored_as(const std::vector<Piece>& pieces) {
    StoredAxes stored;
    for (const Piece& run : joined(pieces)) {
        if (stored.axes.find(run.letter) != std::string::npos)
            return {.axes = {},
                    .reason = fmt::format("there {} are no single axis", name_of_letter(run.letter))};
        stored.axes += run.letter;
        if (run.letter == 'p') stored.parts = run.extent, stored.index = run.index;
    }
    const auto d = stored.axes.find('d');
    if (d != std::string::npos && d + 1 != stored.axes.size())
        return {.axes = {}, .reason = "there the elements of a head do not stand side by side"};
    stored.axes = with_missing_letters(std::move(stored.axes));
    return stored;
}

/// Whether the node only moves elements, in a way that StoredAxesReader may follow.
bool is_followed(const Node& node) {
    const std::string_view op = node.op->name;
    return op == "reshape" || op == "transpose" || op == "split" || op == "slice";
}

void StoredAxesReader::follow(const Node& node, std::int32_t output) {
    if (!reason_.empty()) return;
    const std::string_view op = node.op->name;
    if (op == "reshape" && !map_.reshape(node.outputs[0].shape))
        reason_ = fmt::format("the reshape to {} cuts an axis apart", node.outputs[0].shape.text());
    if (op == "transpose") map_.transpose(node.attributes.list("order"));
    if (op == "split")
        cut(static_cast<int>(node.attributes.integer("axis")), node.attributes.integer("parts"), output);
    if (op == "slice") slice(node);
    shape_ = node.outputs[output].shape;
}

void StoredAxesReader::slice(const Node& node) {
    const int axis = static_cast<int>(node.attributes.integer("axis"));
    const std::int64_t start = node.attributes.integer("start");
    const std::int64_t length = node.attributes.integer("stop") - start, whole = shape_[axis];
    if (length < 1 || whole % length != 0 || start % length != 0)
        reason_ = fmt::format("elements {} to {} of {} are no equal part", start, start + length, whole);
    else
        cut(axis, whole / length, start / length);
}

void StoredAxesReader::cut(int axis, std::int64_t parts, std::int64_t index) {
    if (parts == 1) return;
    const std::int64_t rest = shape_[axis] / parts;
    std::vector<std::int64_t> extents = shape_.extents();
    extents[axis] = parts;
    extents.insert(extents.begin() + axis + 1, rest);
    AxisMap map = map_;
    if (!map.reshape(Shape(extents)) || map[axis].size() != 1) {
        reason_ = fmt::format("a cut into {} parts is none of one axis", parts);
        return;
    }
    cuts_.push_back({map[axis][0], index});
    std::vector<AxisAtoms> axes;
    for (int i = 0; i < map.rank(); ++i)
        if (i != axis) axes.push_back(map[i]);
    map_ = AxisMap(std::move(axes));
    extents.erase(extents.begin() + axis);
    shape_ = Shape(extents);
}

StoredAxes StoredAxesReader::in_first(std::string_view letters, std::int64_t index) {
    if (const auto p = letters.find('p'); p != std::string_view::npos && reason_.empty())
        cut(static_cast<int>(p), shape_[static_cast<int>(p)], index);
    if (!reason_.empty()) return {.axes = {}, .reason = reason_};
    std::map<std::pair<int, std::int64_t>, Piece> by_place;  // in memory: axis of the first, then stride
    for (int axis = 0; axis < map_.rank(); ++axis) {
        std::int64_t stride = 1;
        for (auto atom = map_[axis].rbegin(); atom != map_[axis].rend(); ++atom) {
            by_place[{atom->axis, -atom->stride}] = {letters[axis], stride, atom->extent, 0};
            stride *= atom->extent;
        }
    }
    for (const Cut& cut : cuts_)
        by_place[{cut.part.axis, -cut.part.stride}] = {'p', 1, cut.part.extent, cut.index};
    std::vector<Piece> pieces;
    for (const auto& [place, piece] : by_place) pieces.push_back(piece);
    return stored_as(pieces);
}

StoredAxes StoredAxesReader::at_hand(std::string_view letters) const {
    if (!reason_.empty()) return {.axes = {}, .reason = reason_};
    std::vector<Piece> pieces;
    for (const AxisAtom& atom : map_.flattened())
        pieces.push_back({letters[atom.axis], atom.stride, atom.extent, 0});
    return stored_as(pieces);
}

/// A tensor from which an operand is made, and where the operand lies in it.
struct Source {
    Value base;
    StoredAxes stored;
    bool saves_a_copy = false;  ///< whether a movement between this and the source before is no view
};

/// Facts about q, k or v.
struct Heads {
    char name = 0;
    std::vector<Source> sources;  ///< the operand itself, then each of its sources, step by step
    std::size_t chosen = 0;       ///< among `sources`

    const Source& source() const { return sources[chosen]; }
};

/// How one attention is to be laid out.
struct Choice {
    AttentionLayout layout;
    std::vector<Value> tensors;     ///< of the operands
    std::optional<Value> result;    ///< the value in the result's new order; none: the result itself
    std::vector<Value> superseded;  ///< the result and the values between
};

class AttentionLayouts {
  public:
    AttentionLayouts(const Graph& graph, std::span<const Value> kept) : graph_(graph), uses_(graph, kept) {}

    /// Nothing if the node stays as it is.
    std::optional<Choice> choose(NodeId id) {
        const Node& node = graph_.node(id);
        if (node.outputs[0].shape.elements() == 0 || is_differentiated(id)) return std::nullopt;
        const AttentionLayout before = attention_layout(node.attributes);
        std::array<Heads, 3> heads;
        for (std::size_t i = 0; i < heads.size(); ++i) heads[i] = sources_of(id, before, "qkv"[i]);
        choose_sources(heads);
        for (const Heads& one : heads) explain(node, one);
        Choice choice = laid_out(heads);
        keep_unchanged(choice, before, node);
        choose_result(id, before, choice);
        if (choice.layout == before) return std::nullopt;
        superseded_.insert(choice.superseded.begin(), choice.superseded.end());
        return choice;
    }

    std::vector<PassRefusal> refused() const { return refused_; }

  private:
    /// Its gradient reads o by the same layout.
    bool is_differentiated(NodeId id) const {
        const auto& users = uses_.of({id, 1});
        return std::ranges::any_of(
            users, [&](NodeId user) { return user >= 0 && graph_.node(user).op->name == "attention_grad"; });
    }

    Heads sources_of(NodeId id, const AttentionLayout& layout, char name) const {
        const auto [tensor, index] = part_of(layout, name);
        const std::string& letters = layout.operands[tensor].axes;
        Heads heads{.name = name, .sources = {}};
        std::vector<Value> way{graph_.node(id).inputs[tensor]};  // back from the operand
        while (true) {
            const Value base = way.back();
            StoredAxesReader reader(graph_.type(base).shape);
            for (std::size_t i = way.size() - 1; i-- > 0;)
                reader.follow(graph_.node(way[i].node), way[i].output);
            const bool copies = way.size() > 1 && !is_view(graph_, graph_.node(way[way.size() - 2].node));
            heads.sources.push_back({base, reader.in_first(letters, index), copies});
            const Node& maker = graph_.node(base.node);
            if (!is_followed(maker) || superseded_.contains(maker.inputs[0])) return heads;
            way.push_back(maker.inputs[0]);
        }
    }

    /// The farthest source that attention can read; one with parts only where it reads all of them.
    static void choose_sources(std::array<Heads, 3>& heads) {
        for (Heads& one : heads) {
            one.chosen = one.sources.size() - 1;
            while (one.source().stored.axes.empty()) --one.chosen;
        }
        while (true) {
            std::array<std::string, 3> missing;
            for (std::size_t i = 0; i < heads.size(); ++i) missing[i] = missing_parts(heads[i], heads);
            if (std::ranges::all_of(missing, &std::string::empty)) return;
            for (std::size_t i = 0; i < heads.size(); ++i) {
                if (missing[i].empty()) continue;
                heads[i].sources[heads[i].chosen].stored.reason = missing[i];
                do --heads[i].chosen;
                while (heads[i].source().stored.axes.empty());
            }
        }
    }

    /// Empty if every part of the tensor is read once.
    static std::string missing_parts(const Heads& one, const std::array<Heads, 3>& heads) {
        const StoredAxes& stored = one.source().stored;
        std::set<std::int64_t> read;
        std::int64_t readers = 0;
        for (const Heads& other : heads) {
            const Source& source = other.source();
            if (source.base != one.source().base || source.stored.axes != stored.axes) continue;
            read.insert(source.stored.index);
            ++readers;
        }
        const auto parts = static_cast<std::int64_t>(read.size());
        if (stored.parts == 1 || (parts == stored.parts && readers == stored.parts)) return "";
        return fmt::format("of the {} parts there attention reads {}", stored.parts, parts);
    }

    /// Heads that are parts of one tensor share it.
    static AttentionLayout grouped(const std::array<Heads, 3>& heads, std::vector<Value>& tensors) {
        AttentionLayout layout{.operands = {}};
        for (const Heads& one : heads) {
            const Source& source = one.source();
            const auto parts = static_cast<std::size_t>(source.stored.parts);
            const auto is_its = [&](const AttentionTensor& tensor) {
                const auto at = static_cast<std::size_t>(&tensor - layout.operands.data());
                return parts > 1 && tensors[at] == source.base && tensor.axes == source.stored.axes;
            };
            auto found = std::ranges::find_if(layout.operands, is_its);
            if (found == layout.operands.end()) {
                layout.operands.push_back({std::string(parts, ' '), source.stored.axes});
                tensors.push_back(source.base);
                found = layout.operands.end() - 1;
            }
            found->holds[source.stored.index] = one.name;
        }
        return layout;
    }

    static Choice laid_out(const std::array<Heads, 3>& heads) {
        Choice choice;
        choice.layout = grouped(heads, choice.tensors);
        return choice;
    }

    /// Keeps the former operand where attention reads it in its former order.
    static void keep_unchanged(Choice& choice, const AttentionLayout& before, const Node& node) {
        for (std::size_t i = 0; i < choice.tensors.size(); ++i) {
            const auto same = std::ranges::find(before.operands, choice.layout.operands[i]);
            if (same != before.operands.end())
                choice.tensors[i] = node.inputs[same - before.operands.begin()];
        }
    }

    /// Why the nearest source from which a copy would be saved cannot be read.
    void explain(const Node& node, const Heads& heads) {
        std::string reason;
        for (std::size_t i = heads.chosen + 1; i < heads.sources.size(); ++i) {
            const Source& source = heads.sources[i];
            if (reason.empty()) reason = source.stored.reason;
            if (!source.saves_a_copy || reason.empty()) continue;
            const char* const what = heads.name == 'q' ? "queries" : heads.name == 'k' ? "keys" : "values";
            const Value moved = heads.sources[i - 1].base;
            refused_.push_back(
                {"lay_out", "attention", node.origin.scope,
                 fmt::format("{} are not read before '{}' to {}: {}", what, graph_.node(moved.node).op->name,
                             graph_.type(moved).shape.text(), reason)});
            return;
        }
    }

    /// Chooses the order of the result: that order in which the farthest value made from the result alone is
    /// stored, if attention can write it.
    void choose_result(NodeId id, const AttentionLayout& before, Choice& choice) {
        choice.layout.result = before.result;
        Value at{id, 0};
        StoredAxesReader reader(graph_.type(at).shape);
        std::vector<Value> passed;
        std::string reason;
        while (true) {
            const auto& users = uses_.of(at);
            const auto moves = [&](NodeId user) {
                return user >= 0 &&
                       (graph_.node(user).op->name == "reshape" || graph_.node(user).op->name == "transpose");
            };
            if (users.size() != 1 && std::ranges::any_of(users, moves))
                reason = fmt::format("it is read in {} places", users.size());
            if (users.size() != 1 || !moves(users[0])) break;
            passed.push_back(at);
            at = {users[0], 0};
            reader.follow(graph_.node(at.node), 0);
            const StoredAxes stored = reader.at_hand(before.result);
            if (stored.axes.empty()) {
                reason = stored.reason;
            } else if (stored.axes != choice.layout.result) {
                choice.layout.result = stored.axes;
                choice.result = at;
                choice.superseded = passed;
                reason.clear();
            }
        }
        if (choice.layout.result == before.result) choice.result.reset(), choice.superseded.clear();
        if (reason.empty()) return;
        refused_.push_back({"lay_out", "attention", graph_.node(id).origin.scope,
                            fmt::format("the result is not written in another order: {}", reason)});
    }

    const Graph& graph_;
    const Uses uses_;
    std::set<Value> superseded_;
    std::vector<PassRefusal> refused_;
};

/// Nodes that nothing reads any more: movements whose sources attention reads instead.
std::set<NodeId> unread(const Graph& graph, std::span<const Value> kept,
                        const std::map<NodeId, Choice>& choices) {
    const Uses uses(graph, kept);
    std::set<Value> read;
    for (const auto& [id, choice] : choices) {
        read.insert(choice.tensors.begin(), choice.tensors.end());
        const std::vector<Value>& inputs = graph.node(id).inputs;  // behind the tensors stand the score's
        const std::size_t tensors = attention_layout(graph.node(id).attributes).operands.size();
        read.insert(inputs.begin() + static_cast<std::ptrdiff_t>(tensors), inputs.end());
    }
    std::set<NodeId> gone;
    for (NodeId id = graph.end(); id-- > 0;) {
        const Node& node = graph.node(id);
        if (!is_followed(node)) continue;
        bool lost = false, needed = false;
        for (std::int32_t i = 0; i < static_cast<std::int32_t>(node.outputs.size()); ++i) {
            needed = needed || read.contains({id, i});
            for (const NodeId user : uses.of({id, i})) {
                const bool stays = user < 0 || (!gone.contains(user) && !choices.contains(user));
                needed = needed || stays;
                lost = lost || !stays;
            }
        }
        if (lost && !needed) gone.insert(id);
    }
    return gone;
}

void replace(const Graph& source, Rewriter& rewriter, NodeId id, const Choice& choice) {
    const Node& node = source.node(id);
    Graph& target = rewriter.target();
    const OriginScope scope(target, node.origin);
    const AttentionLayout before = attention_layout(node.attributes);
    std::vector<Type> types;
    for (const Value& input : node.inputs) types.push_back(source.type(input));
    const AttentionExtents e = attention_extents(before, types);
    std::vector<Tensor> operands;
    for (std::size_t i = 0; i < choice.tensors.size(); ++i) {
        const Shape shape = operand_shape(choice.layout.operands[i], e);
        const Tensor tensor(target, rewriter.map(choice.tensors[i]));
        operands.push_back(tensor.shape() == shape ? tensor : reshape(tensor, shape));
    }
    for (std::size_t i = before.operands.size(); i < node.inputs.size(); ++i)  // operands of the score
        operands.emplace_back(target, rewriter.map(node.inputs[i]));
    const std::vector<Tensor> outputs =
        call(target, "attention", operands, with_layout(node.attributes, choice.layout));
    rewriter.place({id, 1}, outputs[1].value());
    const Value result = choice.result.value_or(Value{id, 0});
    const Shape& shape = source.type(result).shape;
    rewriter.place(result, (outputs[0].shape() == shape ? outputs[0] : reshape(outputs[0], shape)).value());
}

}  // namespace

LaidOutAttention lay_out_attention(const Graph& graph, std::span<Value> kept) {
    AttentionLayouts layouts(graph, kept);
    std::map<NodeId, Choice> choices;
    std::set<NodeId> gone;
    for (NodeId id = 0; id < graph.end(); ++id) {
        if (graph.node(id).op->name != "attention") continue;
        if (auto choice = layouts.choose(id)) {
            for (const Value& value : choice->superseded) gone.insert(value.node);
            if (choice->result) gone.insert(choice->result->node);
            choices.emplace(id, std::move(*choice));
        }
    }
    gone.merge(unread(graph, kept, choices));
    Rewriter rewriter(graph);
    for (NodeId id = 0; id < graph.end(); ++id) {
        if (const auto choice = choices.find(id); choice != choices.end())
            replace(graph, rewriter, id, choice->second);
        else if (!gone.contains(id))
            rewriter.copy(id);
    }
    for (Value& value : kept) value = rewriter.map(value);
    return {rewriter.finish(), layouts.refused()};
}

}  // namespace mantissa
