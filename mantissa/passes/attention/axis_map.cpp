#include "mantissa/passes/attention/axis_map.h"

namespace mantissa::inline v0 {

namespace {

/// Adds a part, joined to the one before where both lie side by side in one axis.
void append(AxisAtoms& atoms, const AxisAtom& atom) {
    if (atom.extent == 1) return;
    if (!atoms.empty() && atoms.back().axis == atom.axis &&
        atoms.back().stride == atom.stride * atom.extent) {
        atoms.back().stride = atom.stride;
        atoms.back().extent *= atom.extent;
    } else {
        atoms.push_back(atom);
    }
}

}  // namespace

AxisMap::AxisMap(const Shape& shape) {
    for (int axis = 0; axis < shape.rank(); ++axis) {
        axes_.emplace_back();
        append(axes_.back(), {.axis = axis, .stride = 1, .extent = shape[axis]});
    }
}

AxisAtoms AxisMap::flattened() const {
    AxisAtoms all;
    for (const AxisAtoms& atoms : axes_) all.insert(all.end(), atoms.begin(), atoms.end());
    return all;
}

bool AxisMap::reshape(const Shape& shape) {
    AxisAtoms rest = flattened();
    std::vector<AxisAtoms> axes;
    std::size_t next = 0;
    for (int axis = 0; axis < shape.rank(); ++axis) {
        AxisAtoms& atoms = axes.emplace_back();
        std::int64_t wanted = shape[axis];
        while (wanted > 1) {
            if (next == rest.size()) return false;
            AxisAtom& atom = rest[next];
            if (wanted % atom.extent == 0) {
                append(atoms, atom);
                wanted /= atom.extent;
                ++next;
            } else if (atom.extent % wanted == 0) {
                const std::int64_t inner = atom.extent / wanted;
                append(atoms, {.axis = atom.axis, .stride = atom.stride * inner, .extent = wanted});
                atom.extent = inner;
                wanted = 1;
            } else {
                return false;
            }
        }
    }
    axes_ = std::move(axes);
    return next == rest.size();
}

void AxisMap::transpose(std::span<const std::int64_t> order) {
    std::vector<AxisAtoms> axes;
    for (const std::int64_t axis : order) axes.push_back(axes_[axis]);
    axes_ = std::move(axes);
}

void AxisMap::undo_transpose(std::span<const std::int64_t> order) {
    std::vector<AxisAtoms> axes(axes_.size());
    for (std::size_t i = 0; i < order.size(); ++i) axes[order[i]] = axes_[i];
    axes_ = std::move(axes);
}

bool is_whole(const AxisAtoms& atoms, int axis, std::int64_t extent) {
    if (extent == 1) return atoms.empty();
    return atoms == AxisAtoms{{.axis = axis, .stride = 1, .extent = extent}};
}

std::vector<std::int64_t> extents_over_one(const Shape& shape) {
    std::vector<std::int64_t> extents = shape.extents();
    std::erase(extents, 1);
    return extents;
}

}  // namespace mantissa
