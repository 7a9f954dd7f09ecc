// Movement on the CPU: strided copies, indices.
#include <fmt/format.h>

#include <cstring>
#include <memory>

#include "mantissa/base/error.h"
#include "mantissa/device/cpu/kernels/kernels.h"
#include "mantissa/device/cpu/kernels/strided_loops.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// Copies of `element` bytes from where the loops read to where they write.
template <class T>
void copy_elements(const StridedLoops& loops, const std::byte* from, std::byte* to, ThreadPool& pool) {
    const T* source = reinterpret_cast<const T*>(from);
    T* target = reinterpret_cast<T*>(to);
    const std::int64_t a = loops.inner.strides[0], b = loops.inner.strides[1];
    loops.for_each_piece(pool, [&](const StridedLoops::Strides& start, std::int64_t count) {
        const T* x = source + start[0];
        T* y = target + start[1];
        if (a == 1 && b == 1)
            std::memcpy(y, x, static_cast<std::size_t>(count) * sizeof(T));
        else if (a == 0 && b == 1)
            std::fill_n(y, count, *x);
        else
            for (std::int64_t i = 0; i < count; ++i) y[i * b] = x[i * a];
    });
}

void copy_along(const StridedLoops& loops, std::size_t element, const std::byte* from, std::byte* to,
                ThreadPool& pool) {
    switch (element) {
        case 1:
            return copy_elements<std::uint8_t>(loops, from, to, pool);
        case 2:
            return copy_elements<std::uint16_t>(loops, from, to, pool);
        case 4:
            return copy_elements<std::uint32_t>(loops, from, to, pool);
        default:
            return copy_elements<std::uint64_t>(loops, from, to, pool);
    }
}

/// One strided copy between parts of two tensors.
struct Piece {
    StridedLoops loops;
    std::int64_t from = 0;  ///< offsets in bytes
    std::int64_t to = 0;
    std::size_t input = 0;
    std::size_t output = 0;
};

Launch copy_pieces(std::vector<Piece> pieces, std::size_t element, const Context& context) {
    return [pieces = std::make_shared<const std::vector<Piece>>(std::move(pieces)), element,
            &pool = context.pool](const Operands& operands) {
        for (const Piece& piece : *pieces)
            copy_along(piece.loops, element, operands.inputs[piece.input] + piece.from,
                       operands.outputs[piece.output] + piece.to, pool);
    };
}

/// The part of `whole` that starts at `offset` along an axis, as offset in bytes.
std::int64_t part_offset(const Type& whole, int axis, std::int64_t offset) {
    return offset * whole.shape.strides()[axis] * static_cast<std::int64_t>(size_of(whole.dtype));
}

Launch prepare_transpose(const Problem& problem, const Context& context) {
    const std::vector<std::int64_t> dense = problem.inputs[0].shape.strides();
    std::vector<std::int64_t> from;
    for (std::int64_t axis : problem.attributes.list("order")) from.push_back(dense[axis]);
    const Shape& shape = problem.outputs[0].shape;
    return copy_pieces({{.loops = StridedLoops(shape.extents(), {from, shape.strides()})}},
                       size_of(problem.inputs[0].dtype), context);
}

Launch prepare_broadcast(const Problem& problem, const Context& context) {
    const Shape& shape = problem.outputs[0].shape;
    const auto from = broadcast_strides(problem.inputs[0].shape, shape);
    return copy_pieces({{.loops = StridedLoops(shape.extents(), {from, shape.strides()})}},
                       size_of(problem.inputs[0].dtype), context);
}

Launch prepare_slice(const Problem& problem, const Context& context) {
    const Type &x = problem.inputs[0], &y = problem.outputs[0];
    return copy_pieces({{.loops = StridedLoops(y.shape.extents(), {x.shape.strides(), y.shape.strides()}),
                         .from = part_offset(x, axis_of(problem), problem.attributes.integer("start"))}},
                       size_of(x.dtype), context);
}

Launch prepare_split(const Problem& problem, const Context& context) {
    const Type &x = problem.inputs[0], &y = problem.outputs[0];
    const int axis = axis_of(problem);
    std::vector<Piece> pieces;
    for (std::size_t i = 0; i < problem.outputs.size(); ++i)
        pieces.push_back({.loops = StridedLoops(y.shape.extents(), {x.shape.strides(), y.shape.strides()}),
                          .from = part_offset(x, axis, static_cast<std::int64_t>(i) * y.shape[axis]),
                          .output = i});
    return copy_pieces(std::move(pieces), size_of(x.dtype), context);
}

Launch prepare_concat(const Problem& problem, const Context& context) {
    const Type& y = problem.outputs[0];
    const int axis = axis_of(problem);
    std::vector<Piece> pieces;
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < problem.inputs.size(); ++i) {
        const Shape& part = problem.inputs[i].shape;
        pieces.push_back({.loops = StridedLoops(part.extents(), {part.strides(), y.shape.strides()}),
                          .to = part_offset(y, axis, offset),
                          .input = i});
        offset += part[axis];
    }
    return copy_pieces(std::move(pieces), size_of(y.dtype), context);
}

Launch prepare_pad(const Problem& problem, const Context& context) {
    const Type &x = problem.inputs[0], &y = problem.outputs[0];
    const Launch copy =
        copy_pieces({{.loops = StridedLoops(x.shape.extents(), {x.shape.strides(), y.shape.strides()}),
                      .to = part_offset(y, axis_of(problem), problem.attributes.integer("before"))}},
                    size_of(x.dtype), context);
    return [copy, bytes = static_cast<std::size_t>(y.bytes())](const Operands& operands) {
        std::memset(operands.outputs[0], 0, bytes);
        copy(operands);
    };
}

/// x, part, start, or one for each index of axis 0. Where the output is x itself, only the part is touched.
Launch prepare_write_slice(const Problem& problem, const Context& context) {
    const Type &x = problem.inputs[0], &part = problem.inputs[1];
    const int axis = axis_of(problem);
    const std::int64_t starts = problem.inputs[2].shape.elements();
    std::vector<std::int64_t> extents = part.shape.extents();
    if (problem.inputs[2].shape.rank() > 0) extents[0] = std::min<std::int64_t>(extents[0], 1);
    const auto loops =
        std::make_shared<const StridedLoops>(extents, std::vector{part.shape.strides(), x.shape.strides()});
    const std::int64_t parts = std::max<std::int64_t>(starts, 1);
    return [=, length = part.shape[axis], extent = x.shape[axis], step = part_offset(x, axis, 1),
            element = size_of(x.dtype), bytes = static_cast<std::size_t>(x.bytes()),
            of_part = part.bytes() / parts, of_x = x.bytes() / parts,
            &pool = context.pool](const Operands& operands) {
        if (operands.outputs[0] != operands.inputs[0])
            std::memcpy(operands.outputs[0], operands.inputs[0], bytes);
        for (std::int64_t i = 0; i < starts; ++i) {
            const std::int64_t start = operands.input<std::int32_t>(2)[i];
            if (start < 0 || start + length > extent)
                throw UserError(fmt::format("write_slice: [{}, {}) is outside an axis of {}", start,
                                            start + length, extent));
            copy_along(*loops, element, operands.inputs[1] + i * of_part,
                       operands.outputs[0] + i * of_x + start * step, pool);
        }
    };
}

template <class T>
Launch fill_iota(const Problem& problem, const Context& context) {
    const Shape& shape = problem.outputs[0].shape;
    const auto axis = static_cast<std::size_t>(problem.attributes.integer("axis"));
    const std::int64_t stride = shape.strides()[axis], extent = shape.extents()[axis];
    // Along the axis each index stands `stride` times; the whole repeats for every index further out.
    return [=, repeats = extent * stride == 0 ? 0 : shape.elements() / (extent * stride),
            &pool = context.pool](const Operands& operands) {
        T* y = operands.output<T>(0);
        pool.for_each_block(repeats, [&](std::int64_t repeat, int) {
            T* row = y + repeat * extent * stride;
            for (std::int64_t index = 0; index < extent; ++index)
                std::fill_n(row + index * stride, stride, static_cast<T>(index));
        });
    };
}

}  // namespace

void add_movement_kernels(KernelTable& table, const Context& context) {
    const auto add = [&](const char* op, Launch (*prepare)(const Problem&, const Context&)) {
        table[op].push_back(
            kernel_of("strided copy", [=](const Problem& problem) { return prepare(problem, context); }));
    };
    add("transpose", prepare_transpose);
    add("broadcast", prepare_broadcast);
    add("slice", prepare_slice);
    add("split", prepare_split);
    add("concat", prepare_concat);
    add("pad", prepare_pad);
    add("write_slice", prepare_write_slice);
    const auto count = [=](const Problem& problem) {
        return problem.outputs[0].dtype == DType::i32 ? fill_iota<std::int32_t>(problem, context)
                                                      : fill_iota<float>(problem, context);
    };
    table["iota"].push_back(kernel_of("plain loop", count, [](const Problem& problem) -> std::string {
        const DType dtype = problem.outputs[0].dtype;
        return dtype == DType::i32 || dtype == DType::f32 ? "" : "it counts in i32 and f32";
    }));
}

}  // namespace mantissa::on_cpu
