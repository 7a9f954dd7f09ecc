// Binds quantised weights and their products to their operations.
#include <fmt/format.h>

#include "mantissa/device/cpu/kernels/kernels.h"
#include "mantissa/device/cpu/modes/grouped.h"
#include "mantissa/device/cpu/modes/quantized.h"

namespace mantissa::inline v0::on_cpu {

namespace {

PreparedKernel quantize_rows_kernel(const Type& w, ThreadPool& pool, Isa isa) {
    const QuantizeRows fixed{.rows = w.shape[0], .depth = w.shape[1], .x = {nullptr, w.dtype}};
    const auto launch = [=, &pool](const Operands& o) {
        QuantizeRows rows = fixed;
        rows.x.data = o.inputs[0];
        rows.numbers = o.output<std::uint8_t>(0);
        rows.scales = o.output<float>(1);
        rows.workspace = reinterpret_cast<float*>(o.workspace);
        quantize_rows(rows, pool, isa);
    };
    return {.launch = launch, .workspace = quantize_rows_workspace(w.shape[1], pool.threads())};
}

PreparedKernel quantize_groups_kernel(const Type& w, ThreadPool& pool) {
    const QuantizeGroups fixed{.rows = w.shape[0], .depth = w.shape[1], .x = {nullptr, w.dtype}};
    const auto launch = [=, &pool](const Operands& o) {
        QuantizeGroups groups = fixed;
        groups.x.data = o.inputs[0];
        groups.numbers = o.output<std::uint8_t>(0);
        groups.scales = o.output<BF16>(1);
        groups.workspace = reinterpret_cast<float*>(o.workspace);
        quantize_groups(groups, pool);
    };
    return {.launch = launch, .workspace = quantize_groups_workspace(w.shape[1], pool.threads())};
}

Kernel quantize_kernel(const Context& context) {
    const auto prepare = [isa = context.isa,
                          &pool = context.pool](const Problem& problem) -> OrReason<PreparedKernel> {
        const Type& w = problem.inputs[0];
        return problem.attributes.word("format") == "s4" ? quantize_groups_kernel(w, pool)
                                                         : quantize_rows_kernel(w, pool, isa);
    };
    return {.name = fmt::format("quantise {}", name_of(context.isa)), .prepare = prepare};
}

/// The operands that both kinds of product have.
template <class Product>
void place(Product& product, const Operands& o) {
    product.x.data = o.inputs[0];
    product.w = o.input<std::uint8_t>(1);
    product.bias = o.inputs.size() == 4 ? o.input<float>(3) : nullptr;
    product.y = o.output<float>(0);
    product.workspace = o.workspace;
}

PreparedKernel rows_kernel(const Problem& problem, ThreadPool& pool, Isa isa) {
    const QuantizedProduct fixed{.m = problem.inputs[0].shape[0],
                                 .n = problem.inputs[1].shape[0],
                                 .k = problem.inputs[0].shape[1],
                                 .x = {nullptr, problem.inputs[0].dtype}};
    const auto launch = [fixed, isa, &pool](const Operands& o) {
        QuantizedProduct product = fixed;
        place(product, o);
        product.scales = o.input<float>(2);
        quantized_product(product, pool, isa);
    };
    return {.launch = launch, .workspace = quantized_product_workspace(fixed, isa, pool.threads())};
}

PreparedKernel groups_kernel(const Problem& problem, ThreadPool& pool, Isa isa) {
    const GroupedProduct fixed{.m = problem.inputs[0].shape[0],
                               .n = problem.inputs[1].shape[0],
                               .k = problem.inputs[0].shape[1],
                               .x = {nullptr, problem.inputs[0].dtype}};
    const auto launch = [fixed, isa, &pool](const Operands& o) {
        GroupedProduct product = fixed;
        place(product, o);
        product.scales = o.input<BF16>(2);
        grouped_product(product, pool, isa);
    };
    return {.launch = launch, .workspace = grouped_product_workspace(fixed, isa, pool.threads())};
}

using Prepare = PreparedKernel (*)(const Problem& problem, ThreadPool& pool, Isa isa);

Kernel product_kernel(const Context& context, const char* format, Arithmetic arithmetic, Prepare make) {
    const auto prepare = [=, isa = context.isa,
                          &pool = context.pool](const Problem& problem) -> OrReason<PreparedKernel> {
        if (const std::string asked = problem.attributes.word("multiply"); asked != format)
            return NoValue{fmt::format("it multiplies {}, asked for {}", format, asked)};
        return make(problem, pool, isa);
    };
    return {.name = fmt::format("gemm {}*s8+s32 {}", format, arithmetic.unit),
            .arithmetic = arithmetic,
            .prepare = prepare};
}

}  // namespace

void add_quantized_kernels(KernelTable& table, const Context& context) {
    const auto arithmetic = [](const char* unit) {
        return Arithmetic{.multiply = "s8", .sums = DType::i32, .unit = unit};
    };
    table["quantize_weight"].push_back(quantize_kernel(context));
    table["quantized_matmul"].push_back(
        product_kernel(context, "s8", arithmetic(name_of_row_mode(context.isa)), rows_kernel));
    table["quantized_matmul"].push_back(
        product_kernel(context, "s4", arithmetic(name_of_grouped_rows(context.isa)), groups_kernel));
}

}  // namespace mantissa::on_cpu
