// Binds quantised weights and products of whole numbers to their operations.
#include <fmt/format.h>

#include "mantissa/device/cpu/kernels/kernels.h"
#include "mantissa/device/cpu/modes/quantized.h"

namespace mantissa::inline v0::on_cpu {

namespace {

MatrixMode mode_of(const Problem& problem, const char* attribute) {
    return problem.attributes.word(attribute) == "s4" ? MatrixMode::s4 : MatrixMode::s8;
}

Kernel quantize_kernel(const Context& context) {
    const auto workspace = [threads = context.pool.threads()](const Problem& problem) {
        return quantize_rows_workspace(problem.inputs[0].shape[1], threads);
    };
    const auto prepare = [isa = context.isa, &pool = context.pool](const Problem& problem) -> Launch {
        const Type& w = problem.inputs[0];
        const QuantizeRows fixed{.mode = mode_of(problem, "format"),
                                 .rows = w.shape[0],
                                 .depth = w.shape[1],
                                 .x = {nullptr, w.dtype}};
        return [=, &pool](const Operands& o) {
            QuantizeRows rows = fixed;
            rows.x.data = o.inputs[0];
            rows.numbers = o.output<std::uint8_t>(0);
            rows.scales = o.output<float>(1);
            rows.workspace = reinterpret_cast<float*>(o.workspace);
            quantize_rows(rows, pool, isa);
        };
    };
    return {
        .name = fmt::format("quantise {}", name_of(context.isa)), .prepare = prepare, .workspace = workspace};
}

QuantizedProduct product_of(const Problem& problem) {
    return {.mode = mode_of(problem, "multiply"),
            .m = problem.inputs[0].shape[0],
            .n = problem.inputs[1].shape[0],
            .k = problem.inputs[0].shape[1],
            .x = {nullptr, problem.inputs[0].dtype}};
}

Kernel product_kernel(const Context& context, MatrixMode mode, const char* format) {
    const auto refuse = [=](const Problem& problem) {
        return mode_of(problem, "multiply") == mode ? std::string()
                                                    : fmt::format("it multiplies {}, asked for {}", format,
                                                                  problem.attributes.word("multiply"));
    };
    const auto workspace = [isa = context.isa, threads = context.pool.threads()](const Problem& problem) {
        return quantized_product_workspace(product_of(problem), isa, threads);
    };
    const auto prepare = [isa = context.isa, &pool = context.pool](const Problem& problem) -> Launch {
        return [fixed = product_of(problem), isa, &pool](const Operands& o) {
            QuantizedProduct product = fixed;
            product.x.data = o.inputs[0];
            product.w = o.input<std::uint8_t>(1);
            product.scales = o.input<float>(2);
            product.bias = o.inputs.size() == 4 ? o.input<float>(3) : nullptr;
            product.y = o.output<float>(0);
            product.workspace = o.workspace;
            quantized_product(product, pool, isa);
        };
    };
    return {.name = fmt::format("gemm {0}*{0}+s32 {1}", format, name_of_row_mode(context.isa)),
            .refusal = refuse,
            .prepare = prepare,
            .sums = DType::i32,
            .workspace = workspace};
}

}  // namespace

void add_quantized_kernels(KernelTable& table, const Context& context) {
    table["quantize_weight"].push_back(quantize_kernel(context));
    table["quantized_matmul"].push_back(product_kernel(context, MatrixMode::s8, "s8"));
    table["quantized_matmul"].push_back(product_kernel(context, MatrixMode::s4, "s4"));
}

}  // namespace mantissa::on_cpu
