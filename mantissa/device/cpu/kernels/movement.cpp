// Movement on the CPU: strided copies, indices.
#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <optional>

#include "mantissa/base/error.h"
#include "mantissa/device/bind/strided_axes.h"
#include "mantissa/device/cpu/kernels/kernels.h"
#include "mantissa/device/cpu/kernels/strided_loops.h"
#include "mantissa/device/cpu/rows/rows.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// Threads, and copies of neighbouring bytes.
struct Copying {
    explicit Copying(const Context& context) : pool(context.pool), kernels(row_kernels(context.isa)) {}

    ThreadPool& pool;
    const RowKernels& kernels;
};

/// Copies of `T` between the loops' source and destination.
template <class T>
void copy_elements(const StridedLoops& loops, const std::byte* from, std::byte* to, const Copying& by) {
    const T* source = reinterpret_cast<const T*>(from);
    T* target = reinterpret_cast<T*>(to);
    const std::int64_t a = loops.inner.strides[0], b = loops.inner.strides[1];
    loops.for_each_piece(by.pool, [&](const StridedLoops::Strides& start, std::int64_t count) {
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

/// Below this, a call for each row costs more than moving it.
constexpr std::int64_t min_row_bytes = 64;

/// Rows of neighbouring bytes, as the parts of a tensor along an axis are; nothing where the loops are
/// others.
std::optional<CopyRows> rows_of(const StridedLoops& loops, std::int64_t element) {
    const std::int64_t bytes = loops.inner.extent * element;
    if (loops.inner.strides[0] != 1 || loops.inner.strides[1] != 1 || loops.outer.size() > 1)
        return std::nullopt;
    CopyRows rows{.rows = loops.rows, .bytes = bytes, .source_stride = bytes, .target_stride = bytes};
    if (!loops.outer.empty()) {
        rows.source_stride = loops.outer[0].strides[0] * element;
        rows.target_stride = loops.outer[0].strides[1] * element;
    }
    const bool apart = rows.source_stride >= bytes && rows.target_stride >= bytes;
    return rows.rows > 0 && bytes >= min_row_bytes && apart ? std::optional(rows) : std::nullopt;
}

void copy_along(const StridedLoops& loops, std::int64_t element, const std::byte* from, std::byte* to,
                const Copying& by) {
    if (std::optional<CopyRows> rows = rows_of(loops, element)) {
        rows->source = from;
        rows->target = to;
        return copy_rows(by.kernels, *rows, by.pool);
    }
    switch (element) {
        case 1:
            return copy_elements<std::uint8_t>(loops, from, to, by);
        case 2:
            return copy_elements<std::uint16_t>(loops, from, to, by);
        case 4:
            return copy_elements<std::uint32_t>(loops, from, to, by);
        default:
            return copy_elements<std::uint64_t>(loops, from, to, by);
    }
}

Launch prepare_copies(const Problem& problem, const Context& context) {
    struct Piece {
        StridedLoops loops;
        std::int64_t from, to;  ///< bytes
        std::size_t input, output;
    };
    const auto element = static_cast<std::int64_t>(size_of(problem.inputs[0].dtype));
    const auto pieces = std::make_shared<std::vector<Piece>>();
    for (CopiedPiece& piece : copied_pieces(problem))
        pieces->push_back({StridedLoops(piece.shape.extents(), {piece.from_strides, piece.to_strides}),
                           piece.from * element, piece.to * element, piece.input, piece.output});
    const std::int64_t zeros = problem.op.name == "pad" ? problem.outputs[0].bytes() : 0;
    return [pieces, element, zeros, by = Copying(context)](const Operands& operands) {
        if (zeros > 0) std::memset(operands.outputs[0], 0, static_cast<std::size_t>(zeros));
        for (const Piece& piece : *pieces)
            copy_along(piece.loops, element, operands.inputs[piece.input] + piece.from,
                       operands.outputs[piece.output] + piece.to, by);
    };
}

/// x, part, start, or a start for each index of axis 0. If the output is x itself, only the part is written.
Launch prepare_write_slice(const Problem& problem, const Context& context) {
    const Type &x = problem.inputs[0], &part = problem.inputs[1];
    const int axis = axis_of(problem);
    const std::int64_t starts = problem.inputs[2].shape.elements();
    std::vector<std::int64_t> extents = part.shape.extents();
    if (problem.inputs[2].shape.rank() > 0) extents[0] = std::min<std::int64_t>(extents[0], 1);
    const auto loops =
        std::make_shared<const StridedLoops>(extents, std::vector{part.shape.strides(), x.shape.strides()});
    const std::int64_t parts = std::max<std::int64_t>(starts, 1);
    const auto element = static_cast<std::int64_t>(size_of(x.dtype));
    return [=, length = part.shape[axis], extent = x.shape[axis], step = x.shape.strides()[axis] * element,
            bytes = static_cast<std::size_t>(x.bytes()), of_part = part.bytes() / parts,
            of_x = x.bytes() / parts, by = Copying(context)](const Operands& operands) {
        if (operands.outputs[0] != operands.inputs[0])
            std::memcpy(operands.outputs[0], operands.inputs[0], bytes);
        for (std::int64_t i = 0; i < starts; ++i) {
            const std::int64_t start = operands.input<std::int32_t>(2)[i];
            if (start < 0 || start + length > extent)
                throw UserError(fmt::format("write_slice: [{}, {}) is outside an axis of {}", start,
                                            start + length, extent));
            copy_along(*loops, element, operands.inputs[1] + i * of_part,
                       operands.outputs[0] + i * of_x + start * step, by);
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
    for (const char* op : {"transpose", "broadcast", "slice", "split", "concat", "pad"})
        add(op, prepare_copies);
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
