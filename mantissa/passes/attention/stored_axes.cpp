#include "mantissa/passes/attention/stored_axes.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "mantissa/graph/attention_layout.h"

namespace mantissa::inline v0 {

namespace {

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

}  // namespace

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

}  // namespace mantissa
