// Binds the order of rows.
#include "mantissa/device/cpu/kernels/kernels.h"
#include "mantissa/device/cpu/rows/order.h"

namespace mantissa::inline v0::on_cpu {

void add_order_kernels(KernelTable& table, const Context& context) {
    const auto prepare = [&pool = context.pool](const Problem& problem) -> Expected<PreparedKernel> {
        const Type& x = problem.inputs[0];
        OrderOfRows order{.columns = x.shape[-1],
                          .count = problem.attributes.integer("count"),
                          .descending = problem.attributes.flag("descending"),
                          .dtype = x.dtype};
        order.rows = order.columns == 0 ? 0 : x.shape.elements() / order.columns;
        const auto launch = [order, &pool](const Operands& operands) {
            OrderOfRows bound = order;
            bound.x = operands.inputs[0];
            bound.order = operands.output<std::int32_t>(0);
            bound.scratch = reinterpret_cast<std::uint64_t*>(operands.workspace);
            order_rows(bound, pool);
        };
        return PreparedKernel{.launch = launch, .workspace = order_workspace(order, pool.threads())};
    };
    table["argsort"].push_back({.name = "digits of keys", .prepare = prepare});
}

}  // namespace mantissa::on_cpu
