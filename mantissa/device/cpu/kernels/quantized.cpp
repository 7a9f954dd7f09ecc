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
                          &pool = context.pool](const Problem& problem) -> Expected<PreparedKernel> {
        const Type& w = problem.inputs[0];
        return problem.attributes.word("format") == "s4" ? quantize_groups_kernel(w, pool)
                                                         : quantize_rows_kernel(w, pool, isa);
    };
    return {.name = fmt::format("quantise {}", instructions_of(context.isa)), .prepare = prepare};
}

/// A product with weights that have a scale a row, or a group.
template <class Product, class Scale, auto multiply, auto workspace_of>
PreparedKernel prepared_product(const Problem& problem, ThreadPool& pool, Isa isa) {
    const Product fixed{.m = problem.inputs[0].shape[0],
                        .n = problem.inputs[1].shape[0],
                        .k = problem.inputs[0].shape[1],
                        .x = {nullptr, problem.inputs[0].dtype}};
    const auto launch = [fixed, isa, &pool](const Operands& o) {
        Product product = fixed;
        product.x.data = o.inputs[0];
        product.w = o.input<std::uint8_t>(1);
        product.scales = o.input<Scale>(2);
        product.bias = o.inputs.size() == 4 ? o.input<float>(3) : nullptr;
        product.y = o.output<float>(0);
        product.workspace = o.workspace;
        multiply(product, pool, isa);
    };
    return {.launch = launch, .workspace = workspace_of(fixed, isa, pool.threads())};
}

using Prepare = PreparedKernel (*)(const Problem& problem, ThreadPool& pool, Isa isa);

Kernel product_kernel(const Context& context, const char* format, Arithmetic arithmetic, Prepare make) {
    const auto prepare = [=, isa = context.isa,
                          &pool = context.pool](const Problem& problem) -> Expected<PreparedKernel> {
        if (const std::string asked = problem.attributes.word("multiply"); asked != format)
            return Unexpected{fmt::format("it multiplies {}, asked for {}", format, asked)};
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
    table["quantized_matmul"].push_back(product_kernel(
        context, "s8", arithmetic(name_of_row_mode(context.isa)),
        prepared_product<QuantizedProduct, float, quantized_product, quantized_product_workspace>));
    table["quantized_matmul"].push_back(
        product_kernel(context, "s4", arithmetic(name_of_grouped_rows(context.isa)),
                       prepared_product<GroupedProduct, BF16, grouped_product, grouped_product_workspace>));
}

}  // namespace mantissa::on_cpu
