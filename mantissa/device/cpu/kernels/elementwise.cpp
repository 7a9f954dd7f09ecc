// Element-wise operations on the CPU, over merged axes: each a nest of one operation, compiled. Formats that
// nests have no lanes for, FP64 and most integers, take one plain loop over the operation's meaning. Along
// the innermost axis an operand is dense or one number, so that one compiled function serves all shapes.
#include <fmt/format.h>

#include <array>

#include "mantissa/base/error.h"
#include "mantissa/device/bind/nest_body.h"
#include "mantissa/device/bind/strided_axes.h"
#include "mantissa/device/cpu/kernels/fused_stores.h"
#include "mantissa/device/cpu/kernels/kernels.h"
#include "mantissa/device/cpu/kernels/strided_loops.h"
#include "mantissa/graph/call.h"
#include "mantissa/graph/tensor.h"
#include "mantissa/numerics/coded_weights.h"
#include "mantissa/numerics/formats.h"
#include "mantissa/numerics/scalar.h"
#include "mantissa/passes/analysis/nest.h"

namespace mantissa::inline v0::on_cpu {

namespace {

StridedLoops loops_of(const Problem& problem) {
    const Shape& shape = problem.outputs[0].shape;
    std::vector<std::vector<std::int64_t>> strides;
    for (const Type& input : problem.inputs) {
        check(!has_codes(input.layout), "only products widen codes");
        strides.push_back(broadcast_strides(input.shape, shape));
    }
    strides.push_back(shape.strides());
    return {shape.extents(), strides};
}

/// The operation on rows of some elements, and on operands that are one number all along a row.
Graph operation_on_rows(const Problem& problem, const StridedLoops& loops) {
    constexpr std::int64_t some = 64;  // the compiled loop is told the count
    Graph body;
    std::vector<Tensor> operands;
    for (std::size_t i = 0; i < problem.inputs.size(); ++i) {
        const bool repeats =
            loops.inner.strides[i] == 0 && (loops.inner.extent > 1 || problem.inputs[i].shape.rank() == 0);
        const bool is_number = repeats && problem.outputs[0].shape.rank() > 0;
        operands.emplace_back(body,
                              body.add_input(fmt::format("x{}", i),
                                             {problem.inputs[i].dtype, is_number ? Shape{} : Shape{some}}));
    }
    body.add_result("y", call(body, problem.op.name, operands, problem.attributes)[0].value());
    return body;
}

struct BoundElements {
    std::shared_ptr<const codegen::FusedKernel> kernel;
    StridedLoops loops;
    std::vector<std::int64_t> sizes;  ///< bytes of an element, by operand, the output's last
    StreamedOutputs streamed;
    ThreadPool& pool;

    void launch(const Operands& operands) const {
        check(kernel->function != nullptr, "compiled kernels are compiled before they are launched");
        const std::uint64_t past_caches = streamed.of(operands);
        const std::size_t inputs = operands.inputs.size();
        loops.for_each_piece(pool, [&](const StridedLoops::Strides& start, std::int64_t count) {
            std::array<const std::byte*, max_loop_operands> from{};
            for (std::size_t i = 0; i < inputs; ++i) from[i] = operands.inputs[i] + start[i] * sizes[i];
            std::byte* const to = operands.outputs[0] + start[inputs] * sizes[inputs];
            const codegen::FusedArguments arguments{
                .inputs = from.data(), .outputs = &to, .first = 0, .last = count, .streamed = past_caches};
            kernel->function(&arguments);
        });
    }
};

/// Rows that follow one another count as one: then pieces begin on whole vectors.
StreamedOutputs streamed_outputs(const Problem& problem, const StridedLoops& loops) {
    constexpr std::int64_t of_piece = 64;
    return {problem, loops.rows == 1 ? of_piece : loops.inner.extent};
}

/// Steps have some scalars of their own, such as a clipping factor: code for each would take milliseconds.
constexpr std::int64_t min_compiled = 16;

Expected<codegen::LoopNest> nest_of_elements(const Problem& problem) {
    const bool rounds_alike = problem.op.instructions == 1;  // of FP64 as of FP32
    if (rounds_alike && problem.outputs[0].shape.elements() < min_compiled)
        return Unexpected{fmt::format("a loop over fewer than {} elements needs no code", min_compiled)};
    const Graph body = operation_on_rows(problem, loops_of(problem));
    Expected<Nest> nest = make_nest(body);
    if (!nest) return Unexpected{nest.reason()};
    return codegen::lower(body, std::move(*nest));
}

Kernel compiled_elements(const Context& context, codegen::Compiler& compiler) {
    return compiled_kernel<codegen::LoopNest>(
        std::string(instructions_of(context.isa)), nest_of_elements,
        [&pool = context.pool, &compiler](const Problem& problem, const codegen::LoopNest& nest) {
            StridedLoops loops = loops_of(problem);
            std::vector<std::int64_t> sizes;
            for (const auto& types : {problem.inputs, problem.outputs})
                for (const Type& type : types)
                    sizes.push_back(static_cast<std::int64_t>(size_of(type.dtype)));
            const StreamedOutputs streamed = streamed_outputs(problem, loops);
            const BoundElements bound{compiler.add(nest), std::move(loops), std::move(sizes), streamed, pool};
            return PreparedKernel{.launch = [bound](const Operands& operands) { bound.launch(operands); }};
        });
}

/// Reads and writes an element of a storage type as FP64.
struct ElementAccess {
    double (*read)(const std::byte*, std::int64_t);
    void (*write)(std::byte*, std::int64_t, double);
};

ElementAccess access_to(DType dtype) {
    return with_type(dtype, [](auto type) -> ElementAccess {
        using T = decltype(type);
        return {.read =
                    [](const std::byte* from, std::int64_t i) {
                        return static_cast<double>(number(reinterpret_cast<const T*>(from)[i]));
                    },
                .write = [](std::byte* to, std::int64_t i,
                            double x) { reinterpret_cast<T*>(to)[i] = stored_as<T>(x); }};
    });
}

/// An element at a time, in FP64: large operands of FP32 or shorter do not come here.
Launch by_plain_loop(const Problem& problem, ThreadPool& pool, ElementMeaning meaning) {
    std::vector<ElementAccess> accesses;
    for (const auto& types : {problem.inputs, problem.outputs})
        for (const Type& type : types) accesses.push_back(access_to(type.dtype));
    return [loops = loops_of(problem), accesses, &pool, meaning](const Operands& o) {
        const std::size_t inputs = o.inputs.size();
        loops.for_each_piece(pool, [&](const StridedLoops::Strides& start, std::int64_t count) {
            std::array<double, max_loop_operands> x{};
            for (std::int64_t c = 0; c < count; ++c) {
                for (std::size_t i = 0; i < inputs; ++i)
                    x[i] = accesses[i].read(o.inputs[i], start[i] + c * loops.inner.strides[i]);
                accesses[inputs].write(o.outputs[0], start[inputs] + c, meaning({x.data(), inputs}));
            }
        });
    };
}

Kernel plain_loop(const Context& context, ElementMeaning (*meaning)(const Problem&)) {
    return kernel_of("plain loop", [&pool = context.pool, meaning](const Problem& problem) {
        return by_plain_loop(problem, pool, meaning(problem));
    });
}

ElementMeaning meaning_in_row(const Problem& problem) { return problem.op.meaning; }

ElementMeaning number_itself(const Problem&) {
    return [](std::span<const double> x) { return x[0]; };
}

/// Emulated formats need not be fast.
ElementMeaning meaning_of_rounding(const Problem& problem) {
    const std::string& format = problem.attributes.word("format");
    if (format == "tf32")
        return [](std::span<const double> x) { return double{to_tf32(static_cast<float>(x[0]))}; };
    if (format == "bf16")
        return [](std::span<const double> x) { return double{to_f32(to_bf16(static_cast<float>(x[0])))}; };
    return [](std::span<const double> x) { return double{to_f32(to_fp16(static_cast<float>(x[0])))}; };
}

}  // namespace

void add_elementwise_kernels(KernelTable& table, const Context& context, codegen::Compiler& compiler) {
    const auto add = [&](std::string_view op, ElementMeaning (*meaning)(const Problem&)) {
        std::vector<Kernel>& kernels = table[std::string(op)];
        kernels.push_back(compiled_elements(context, compiler));
        kernels.push_back(plain_loop(context, meaning));
    };
    for (const Op* op : op_table())
        if (op->meaning) add(op->name, meaning_in_row);
    add("cast", number_itself);
    add("round_to", meaning_of_rounding);
}

}  // namespace mantissa::on_cpu
