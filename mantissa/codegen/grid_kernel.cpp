#include "mantissa/codegen/grid_kernel.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "mantissa/base/error.h"
#include "mantissa/base/whole_units.h"

namespace mantissa::inline v0::codegen {

namespace {

std::int64_t product(const std::vector<std::int64_t>& extents) {
    std::int64_t all = 1;
    for (const std::int64_t extent : extents) all *= extent;
    return all;
}

std::int64_t results_of(const ReductionKernel& kernel) {
    std::int64_t all = kernel.chunks;
    for (const ReductionKernel::Axis& axis : kernel.kept) all *= axis.extent;
    return all;
}

std::int64_t threads_of(const ElementKernel& kernel) { return product(kernel.extents) / kernel.at_once; }
std::int64_t threads_of(const ReductionKernel& kernel) {
    return results_of(kernel) / kernel.at_once * kernel.threads;
}
std::int64_t threads_of(const EmbeddingGradientKernel& kernel) {
    return kernel.stage == EmbeddingGradientKernel::Stage::firsts ? kernel.tokens
                                                                  : kernel.tokens * grid_threads;
}
std::int64_t threads_of(const SquaresKernel&) { return 0; }  // its table has the number of blocks
std::int64_t threads_of(const NormKernel&) { return 1; }
std::int64_t threads_of(const TurnKernel& kernel) {
    return kernel.tokens * kernel.heads * kernel.half / kernel.at_once;
}
std::int64_t threads_of(const PeakKernel& kernel) { return kernel.blocks * grid_threads; }
std::int64_t threads_of(const PoolKernel& kernel) { return kernel.results(); }
std::int64_t threads_of(const ConvolutionKernel& kernel) { return kernel.results(); }
std::int64_t threads_of(const FilterGradientKernel& kernel) {
    return kernel.tiles() * kernel.parts * grid_threads;
}
std::int64_t threads_of(const DepthwiseKernel& kernel) { return kernel.threads(); }
/// A block a row, or a warp a group.
std::int64_t threads_of(const QuantizeKernel& kernel) {
    return kernel.rows * (kernel.by_groups ? kernel.groups() * weights_of_group : grid_threads);
}
std::int64_t threads_of(const WeightGroupsKernel& kernel) { return kernel.rows * kernel.groups(); }
std::int64_t threads_of(const QuantizedRowsKernel& kernel) { return kernel.warps() * 32; }
std::int64_t threads_of(const ScaledSumsKernel& kernel) { return kernel.rows * kernel.columns; }
std::int64_t threads_of(const RoundingKernel& kernel) { return kernel.threads(); }
std::int64_t threads_of(const TensorScaleKernel&) { return 1; }
std::int64_t threads_of(const AttentionKernel& kernel) {
    return blocks_of(kernel) * tiles_of(kernel).threads();
}
std::int64_t threads_of(const SeenTilesKernel& kernel) {
    constexpr std::int64_t warp = 32;
    return warp * kernel.bytes();
}

std::string text_of(const Strided& strided) {
    return fmt::format("{}({}; {})", name_of(strided.dtype), fmt::join(strided.strides, ","), strided.offset);
}

std::string text_of(const std::vector<ReductionKernel::Axis>& axes) {
    std::string text;
    for (const ReductionKernel::Axis& axis : axes) text += fmt::format("{}*{} ", axis.extent, axis.stride);
    return text;
}

std::string body_of(const ElementKernel& kernel) {
    std::string text =
        fmt::format("{} [{}] -> {}", kernel.op, fmt::join(kernel.extents, ","), text_of(kernel.output));
    for (const Strided& operand : kernel.operands) text += " " + text_of(operand);
    if (const auto& at = kernel.indexed)
        text += fmt::format(" indexed by {}, moving {}, {} each below {}, else {}", at->by,
                            at->operand ? std::to_string(*at->operand) : "the output", at->pitch, at->limit,
                            at->report);
    if (kernel.at_once > 1) text += fmt::format(" {} at once", kernel.at_once);
    if (!kernel.counter.empty()) text += fmt::format(" counting {}", fmt::join(kernel.counter, ","));
    return text + fmt::format(" of operation {}", kernel.operation);
}

std::string body_of(const ReductionKernel& kernel) {
    return fmt::format("{} of {}over {}{} to {} to {}, {} chunks of {}, {} {}threads each, {} at once",
                       kernel.maximum ? "max" : "sum", text_of(kernel.kept), text_of(kernel.reduced),
                       name_of(kernel.from), name_of(kernel.sums), name_of(kernel.to), kernel.chunks,
                       kernel.terms_of_chunk, kernel.threads, kernel.spread ? "spread " : "", kernel.at_once);
}

std::string body_of(const EmbeddingGradientKernel& kernel) {
    return fmt::format("stage {} of {} tokens in stretches of {}, {} columns, {} rows, {}, else {}",
                       static_cast<int>(kernel.stage), kernel.tokens, kernel.of_stretch, kernel.columns,
                       kernel.rows, name_of(kernel.dtype), kernel.report);
}

std::string body_of(const SquaresKernel& kernel) {
    return fmt::format("squares of {} in {} parts, {} a sum", name_of(kernel.from), kernel.parts,
                       kernel.of_sum);
}

std::string body_of(const NormKernel&) { return "norm"; }

std::string body_of(const TurnKernel& kernel) {
    return fmt::format("{} tokens in {} positions, {} heads of 2 x {} {}, {} at once", kernel.tokens,
                       kernel.positions, kernel.heads, kernel.half, name_of(kernel.dtype), kernel.at_once);
}

std::string body_of(const AttentionKernel& kernel) { return text_of(kernel); }

std::string body_of(const SeenTilesKernel& kernel) { return text_of(kernel); }

std::string body_of(const PoolKernel& kernel) { return text_of(kernel); }

std::string body_of(const ConvolutionKernel& kernel) { return text_of(kernel); }

std::string body_of(const FilterGradientKernel& kernel) { return text_of(kernel); }
std::string body_of(const DepthwiseKernel& kernel) { return text_of(kernel); }

std::string body_of(const QuantizeKernel& kernel) { return text_of(kernel); }
std::string body_of(const WeightGroupsKernel& kernel) { return text_of(kernel); }
std::string body_of(const QuantizedRowsKernel& kernel) { return text_of(kernel); }
std::string body_of(const ScaledSumsKernel& kernel) { return text_of(kernel); }
std::string body_of(const RoundingKernel& kernel) { return text_of(kernel); }
std::string body_of(const TensorScaleKernel& kernel) { return text_of(kernel); }

std::string body_of(const PeakKernel& kernel) {
    return fmt::format("products of {} summed in {}", kernel.inputs, kernel.accumulator);
}

}  // namespace

std::int64_t parts_of_launch(std::int64_t parts, std::int64_t words, std::int64_t further_parameters) {
    const auto most = parameter_bytes / static_cast<std::int64_t>(sizeof(std::uint64_t)) - further_parameters;
    const std::int64_t launches = ceil_div(parts, most / words);
    return ceil_div(parts, launches);
}

int block_threads(const GridKernel& kernel) {
    const auto* attention = std::get_if<AttentionKernel>(&kernel.code);
    return attention ? tiles_of(*attention).threads() : grid_threads;
}

std::int64_t blocks_of(const GridKernel& kernel) {
    const std::int64_t threads = std::visit([](const auto& code) { return threads_of(code); }, kernel.code);
    return ceil_div(threads, std::int64_t{block_threads(kernel)});
}

std::string text_of(const GridKernel& kernel) {
    return kernel.name + ": " + std::visit([](const auto& code) { return body_of(code); }, kernel.code);
}

std::string refuse_element(std::string_view op, DType from, DType to) {
    constexpr std::string_view of_f32[] = {"log", "tanh", "erf", "sin", "cos"};
    if ((from == DType::f64 || to == DType::f64) && std::ranges::find(of_f32, op) != std::end(of_f32))
        return fmt::format("{} is computed in f32, not in f64", op);
    return "";
}

namespace {

struct PeakMode {
    const char *inputs, *accumulator;
    std::int64_t rows, columns, terms;
};

// PTX ISA, "mma": the largest shape of each that sm_80 has.
constexpr PeakMode peak_modes[] = {{"f64", "f64", 8, 8, 4},    {"tf32", "f32", 16, 8, 8},
                                   {"f16", "f32", 16, 8, 16},  {"f16", "f16", 16, 8, 16},
                                   {"bf16", "f32", 16, 8, 16}, {"s8", "s32", 16, 8, 32}};

}  // namespace

std::vector<PeakKernel> peak_kernels() {
    std::vector<PeakKernel> all;
    for (const PeakMode& mode : peak_modes) all.push_back({mode.inputs, mode.accumulator});
    return all;
}

std::int64_t operations_of_product(const PeakKernel& kernel) {
    const auto* const mode = std::ranges::find_if(peak_modes, [&](const PeakMode& one) {
        return kernel.inputs == one.inputs && kernel.accumulator == one.accumulator;
    });
    check(mode != std::end(peak_modes), "a mode of mma.sync");
    return 2 * mode->rows * mode->columns * mode->terms;
}

}  // namespace mantissa::codegen
