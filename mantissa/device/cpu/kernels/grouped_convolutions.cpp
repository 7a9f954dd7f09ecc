// Binds convolutions in groups of few channels, and of one group with no more than a vector of channels.
// Products are FP32's, whatever type operands have: exact for 16 bits, and better than TF32 where that was
// asked for. A unit for BF16 adds pairs of them.
#include <fmt/format.h>

#include "mantissa/device/cpu/convolution/grouped.h"
#include "mantissa/device/cpu/core_rates.h"
#include "mantissa/device/cpu/kernels/kernels.h"

namespace mantissa::inline v0::on_cpu {

namespace {

struct NamedResult {
    const char* op;
    GroupedResult makes;
};

constexpr NamedResult results[] = {
    {"conv2d", GroupedResult::output},
    {"conv2d_input_gradient", GroupedResult::gradient_of_input},
    {"conv2d_filter_gradient", GroupedResult::gradient_of_filter},
};

Launch launch_of(std::shared_ptr<const GroupedConvolution> made, const Problem& problem, ThreadPool& pool) {
    const DType first = problem.inputs[0].dtype, out = problem.outputs[0].dtype;
    const DType bias = problem.inputs.size() == 3 ? problem.inputs[2].dtype : DType::f32;
    return [made = std::move(made), first, out, bias, &pool](const Operands& o) {
        made->run({.first = {o.inputs[0], first},
                   .second = {o.inputs[1], first},
                   .bias = {o.inputs.size() == 3 ? o.inputs[2] : nullptr, bias},
                   .out = {o.outputs[0], out},
                   .workspace = reinterpret_cast<float*>(o.workspace)},
                  pool);
    };
}

Kernel grouped_convolution_kernel(const Context& context, const ContractionUnit& unit, GroupedResult makes) {
    const bool pairs = bf16_unit(unit.isa) != Bf16Unit::none;
    const auto prepare = [unit, makes, pairs, has_tiles = context.isa == Isa::amx,
                          &pool = context.pool](const Problem& problem) -> Expected<PreparedKernel> {
        if (std::string reason = unit.refusal(problem); !reason.empty()) return Unexpected{reason};
        const Convolution of = convolution_of(problem.inputs, problem.attributes);
        if (std::string reason = refuse_grouped(of, makes); !reason.empty()) return Unexpected{reason};
        if (of.groups == 1 && has_tiles) return Unexpected{"products of one group are those of tiles"};
        if (std::string reason = pairs ? refuse_pairs(of, makes) : ""; !reason.empty())
            return Unexpected{reason};
        auto made = std::make_shared<const GroupedConvolution>(of, makes, unit.isa, pairs, pool.threads());
        const std::int64_t workspace = made->workspace_bytes();
        return PreparedKernel{.launch = launch_of(std::move(made), problem, pool), .workspace = workspace};
    };
    const std::string format = unit.arithmetic.multiply;
    return {.name = fmt::format("groups {}*{}+f32 {}", format, format, unit.arithmetic.unit),
            .arithmetic = {.multiply = format, .unit = unit.arithmetic.unit},
            .prepare = prepare};
}

}  // namespace

void add_grouped_convolution_kernels(KernelTable& table, const Context& context) {
    // Tiles are for whole products: beside them the faster vectors.
    const Isa isa = context.isa == Isa::amx ? fastest_isa(Isa::avx512_bf16, core_rates()) : context.isa;
    for (const ContractionUnit& unit : contraction_units(isa, context.threads)) {
        if (unit.isa < std::min(isa, Isa::avx512)) continue;
        for (const NamedResult& result : results)
            table[result.op].push_back(grouped_convolution_kernel(context, unit, result.makes));
    }
}

}  // namespace mantissa::on_cpu
