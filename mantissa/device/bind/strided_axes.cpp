#include "mantissa/device/bind/strided_axes.h"

#include <algorithm>

namespace mantissa::inline v0 {

std::vector<CopiedPiece> copied_pieces(const Problem& problem) {
    const std::string_view op = problem.op.name;
    const Shape &x = problem.inputs[0].shape, &y = problem.outputs[0].shape;
    if (op == "broadcast") return {{y, broadcast_strides(x, y), y.strides()}};
    if (op == "transpose") {
        CopiedPiece whole{y, {}, y.strides()};
        for (const std::int64_t axis : problem.attributes.list("order"))
            whole.from_strides.push_back(x.strides()[static_cast<std::size_t>(axis)]);
        return {whole};
    }
    const auto axis = static_cast<int>(problem.attributes.integer("axis"));
    const auto elements_before = [&](const Shape& whole, std::int64_t index) {
        return index * whole.strides()[static_cast<std::size_t>(axis)];
    };
    if (op == "slice")
        return {{y, x.strides(), y.strides(), elements_before(x, problem.attributes.integer("start"))}};
    if (op == "pad")
        return {{x, x.strides(), y.strides(), 0, elements_before(y, problem.attributes.integer("before"))}};
    std::vector<CopiedPiece> pieces;
    std::int64_t place = 0;
    const bool splits = op == "split";
    for (std::size_t i = 0; i < (splits ? problem.outputs : problem.inputs).size(); ++i) {
        const Shape& part = splits ? y : problem.inputs[i].shape;
        CopiedPiece& piece = pieces.emplace_back(CopiedPiece{part, x.strides(), y.strides()});
        if (splits) {
            piece.from = elements_before(x, place);
            piece.output = i;
        } else {
            piece.from_strides = part.strides();
            piece.to = elements_before(y, place);
            piece.input = i;
        }
        place += part[axis];
    }
    return pieces;
}

std::vector<std::int64_t> broadcast_strides(const Shape& operand, const Shape& shape) {
    const std::vector<std::int64_t> dense = operand.strides();
    std::vector<std::int64_t> strides(shape.rank());
    for (int back = 1; back <= operand.rank(); ++back)
        if (operand[-back] != 1)
            strides[strides.size() - static_cast<std::size_t>(back)] =
                dense[dense.size() - static_cast<std::size_t>(back)];
    return strides;
}

void merge_axes(std::vector<std::int64_t>& extents, const std::vector<std::vector<std::int64_t>*>& strides) {
    std::size_t kept = 0;
    for (std::size_t axis = 0; axis < extents.size(); ++axis) {
        if (extents[axis] == 1) continue;
        const bool behind =
            kept > 0 && std::ranges::all_of(strides, [&](const std::vector<std::int64_t>* of) {
                return (*of)[kept - 1] == (*of)[axis] * extents[axis];
            });
        if (!behind) {
            extents[kept] = extents[axis];
            for (std::vector<std::int64_t>* of : strides) (*of)[kept] = (*of)[axis];
            ++kept;
            continue;
        }
        extents[kept - 1] *= extents[axis];
        for (std::vector<std::int64_t>* of : strides) (*of)[kept - 1] = (*of)[axis];
    }
    extents.resize(kept);
    for (std::vector<std::int64_t>* of : strides) of->resize(kept);
}

}  // namespace mantissa
