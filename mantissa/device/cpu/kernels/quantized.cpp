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
    const auto prepare = [isa = context.isa,
                          &pool = context.pool](const Problem& problem) -> OrReason<PreparedKernel> {
        const Type& w = problem.inputs[0];
        const QuantizeRows fixed{.mode = mode_of(problem, "format"),
                                 .rows = w.shape[0],
                                 .depth = w.shape[1],
                                 .x = {nullptr, w.dtype}};
        const auto launch = [=, &pool](const Operands& o) {
            QuantizeRows rows = fixed;
            rows.x.data = o.inputs[0];
            rows.numbers = o.output<std::uint8_t>(0);
            rows.scales = o.output<float>(1);
            rows.workspace = reinterpret_cast<float*>(o.workspace);
            quantize_rows(rows, pool, isa);
        };
        return PreparedKernel{.launch = launch,
                              .workspace = quantize_rows_workspace(w.shape[1], pool.threads())};
    };
    return {.name = fmt::format("quantise {}", name_of(context.isa)), .prepare = prepare};
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
    const auto prepare = [=, isa = context.isa,
                          &pool = context.pool](const Problem& problem) -> OrReason<PreparedKernel> {
        if (std::string reason = refuse(problem); !reason.empty()) return NoValue{reason};
        const QuantizedProduct fixed = product_of(problem);
        const auto launch = [fixed, isa, &pool](const Operands& o) {
            QuantizedProduct product = fixed;
            product.x.data = o.inputs[0];
            product.w = o.input<std::uint8_t>(1);
            product.scales = o.input<float>(2);
            product.bias = o.inputs.size() == 4 ? o.input<float>(3) : nullptr;
            product.y = o.output<float>(0);
            product.workspace = o.workspace;
            quantized_product(product, pool, isa);
        };
        return PreparedKernel{.launch = launch,
                              .workspace = quantized_product_workspace(fixed, isa, pool.threads())};
    };
    const std::string unit(name_of_row_mode(context.isa));
    return {.name = fmt::format("gemm {0}*{0}+s32 {1}", format, unit),
            .arithmetic = {.multiply = format, .sums = DType::i32, .unit = unit},
            .prepare = prepare};
}

}  // namespace

void add_quantized_kernels(KernelTable& table, const Context& context) {
    table["quantize_weight"].push_back(quantize_kernel(context));
    table["quantized_matmul"].push_back(product_kernel(context, MatrixMode::s8, "s8"));
    table["quantized_matmul"].push_back(product_kernel(context, MatrixMode::s4, "s4"));
}

}  // namespace mantissa::on_cpu
