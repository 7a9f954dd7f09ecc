// Element-wise operations, each a nest of one operation, compiled. Along the innermost axis an operand is
// dense or one number, as strided loops cut it, so that one compiled function serves all shapes.
#include <fmt/format.h>

#include <array>

#include "mantissa/base/error.h"
#include "mantissa/device/cpu/kernels/fused_stores.h"
#include "mantissa/device/cpu/kernels/kernels.h"
#include "mantissa/device/cpu/kernels/strided_loops.h"
#include "mantissa/graph/call.h"
#include "mantissa/graph/tensor.h"
#include "mantissa/passes/analysis/nest.h"

namespace mantissa::inline v0::on_cpu {

namespace {

StridedLoops loops_of(const Problem& problem) {
    const Shape& shape = problem.outputs[0].shape;
    std::vector<std::vector<std::int64_t>> strides;
    for (const Type& input : problem.inputs) strides.push_back(broadcast_strides(input.shape, shape));
    strides.push_back(shape.strides());
    return {shape.extents(), strides};
}

/// The operation on rows of some elements, and on what is one number all along a row.
Graph operation_on_rows(const Problem& problem, const StridedLoops& loops) {
    constexpr std::int64_t some = 64;  // the compiled loop is told how many
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

std::string refuse_nest(const Graph& body) {
    const NodeId operation = body.results()[0].value.node;
    return make_nest(body, {&operation, 1}, [](Value) { return false; }).reason();
}

/// Rows that follow one another are as one: then pieces begin on whole vectors.
StreamedOutputs streamed_outputs(const Problem& problem, const StridedLoops& loops) {
    constexpr std::int64_t of_piece = 64;
    return {problem, loops.rows == 1 ? of_piece : loops.inner.extent};
}

Kernel compiled_elements(const Context& context, codegen::Compiler& compiler) {
    return compiled_kernel(
        context, [&pool = context.pool, &compiler](const Problem& problem) -> Expected<PreparedKernel> {
            StridedLoops loops = loops_of(problem);
            const Graph body = operation_on_rows(problem, loops);
            if (std::string reason = refuse_nest(body); !reason.empty()) return Unexpected{reason};
            std::vector<std::int64_t> sizes;
            for (const auto& types : {problem.inputs, problem.outputs})
                for (const Type& type : types)
                    sizes.push_back(static_cast<std::int64_t>(size_of(type.dtype)));
            const StreamedOutputs streamed = streamed_outputs(problem, loops);
            const BoundElements bound{compiler.add(body), std::move(loops), std::move(sizes), streamed, pool};
            return PreparedKernel{.launch = [bound](const Operands& operands) { bound.launch(operands); }};
        });
}

}  // namespace

void add_compiled_elements(KernelTable& table, const Context& context, codegen::Compiler& compiler) {
    for (const Op* op : op_table())
        if (op->meaning || op->name == "cast")
            table[std::string(op->name)].push_back(compiled_elements(context, compiler));
}

}  // namespace mantissa::on_cpu
