// Binds quantised weights and their products, and the rounding of operands, to their operations.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/kernels/kernels.h"
#include "mantissa/device/cpu/modes/block_rounding.h"
#include "mantissa/device/cpu/modes/quantized.h"
#include "mantissa/numerics/short_formats.h"

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

constexpr std::int64_t long_line = 1024;  // numbers: a strip whose beginning costs little
constexpr std::int64_t piece = std::int64_t{1}
                               << 15;  // numbers of a launch's part, some microseconds of work

BlockRounding block_rounding(const Problem& problem) {
    const Shape& shape = problem.inputs[0].shape;
    const Attributes& attributes = problem.attributes;
    const ShortFormat format = find_short_format(attributes.word("element"));
    const ShortLimits& element = limits_of(format);
    BlockRounding rounding{.block = attributes.integer("block"),
                           .square = attributes.has("square"),
                           .hadamard = attributes.has("hadamard"),
                           .random = attributes.has("random"),
                           .max = element.max,
                           .min_normal = std::ldexp(1.0f, element.min_exponent),
                           .magic = ((23 - element.fraction_bits) << 23) + (1 << 22),
                           .max_exponent = element.max_exponent,
                           .fraction_bits = element.fraction_bits};
    switch (find_scale_rule(attributes.word("rule"))) {
        case ScaleRule::up:
            rounding.rule = BlockRounding::Scale::up;
            break;
        case ScaleRule::floor:
            rounding.rule = BlockRounding::Scale::floor;
            break;
        case ScaleRule::tensor:
            rounding.rule = BlockRounding::Scale::tensor;
            break;
        case ScaleRule::two_level:
            rounding.rule = BlockRounding::Scale::two_level;
            break;
    }
    if (rounding.random) rounding.operation = static_cast<std::uint32_t>(attributes.integer("random"));
    // With one scale for the tensor, lines are rounded.
    const bool lines = rounding.rule == BlockRounding::Scale::tensor;
    const auto axis = lines ? shape.rank() - 1 : static_cast<int>(axis_of(problem));
    rounding.depth = shape[axis];
    for (int i = 0; i < axis; ++i) rounding.outer *= shape[i];
    for (int i = axis + 1; i < shape.rank(); ++i) rounding.inner *= shape[i];
    if (rounding.square) {
        rounding.depth = shape[-2];
        rounding.inner = shape[-1];
        rounding.outer = shape.elements() / (rounding.depth * rounding.inner);
        rounding.strip = rounding.inner;
        return rounding;
    }
    if (lines || rounding.block > rounding.depth) rounding.block = rounding.depth;
    // Short lines of whole blocks, as an image's channels, are parts of longer ones.
    const bool joins =
        rounding.inner == 1 && rounding.depth % rounding.block == 0 && !rounding.random && !rounding.hadamard;
    for (; joins && rounding.outer % 2 == 0 && rounding.depth < long_line; rounding.outer /= 2)
        rounding.depth *= 2;
    const std::int64_t columns = piece / rounding.block / strip_columns * strip_columns;
    rounding.strip = std::min(std::max(columns, strip_columns), rounding.inner);
    return rounding;
}

/// The rounding of a tensor, cut into pieces of some microseconds of work.
struct RoundingLaunch {
    RoundStrips round;
    LargestOfStrips largest;
    BlockRounding fixed;
    bool wide, given, measured, has_tensor_scale;
    ShortFormat element;
    std::int64_t strips, at_once;
    ThreadPool* pool;

    std::int64_t pieces() const { return ceil_div(strips, at_once); }

    void operator()(const Operands& o) const {
        BlockRounding rounding = fixed;
        if (wide)
            rounding.wide = o.input<float>(0);
        else
            rounding.x = o.input<BF16>(0);
        rounding.y = o.output<BF16>(0);
        if (rounding.random) set_random(rounding, o);
        if (has_tensor_scale) set_tensor_scale(rounding, o);
        pool->for_each_block(pieces(), [&](std::int64_t index, int) {
            round(rounding, index * at_once, std::min(strips, (index + 1) * at_once));
        });
    }

    static void set_random(BlockRounding& rounding, const Operands& o) {
        const auto seed = static_cast<std::uint64_t>(*o.input<std::int64_t>(o.inputs.size() - 2));
        rounding.key[0] = static_cast<std::uint32_t>(seed);
        rounding.key[1] = static_cast<std::uint32_t>(seed >> 32);
        rounding.step = static_cast<std::uint32_t>(*o.input<std::int64_t>(o.inputs.size() - 1));
    }

    float largest_of_all(const BlockRounding& rounding, std::byte* workspace) const {
        auto* const of_pieces = reinterpret_cast<std::int32_t*>(workspace);
        pool->for_each_block(pieces(), [&](std::int64_t index, int) {
            of_pieces[index] = largest(rounding, index * at_once, std::min(strips, (index + 1) * at_once));
        });
        const std::int32_t bits = *std::max_element(of_pieces, of_pieces + pieces());
        // Subnormal numbers are zeros.
        return bits < (1 << 23) ? 0.0f : std::bit_cast<float>(bits);
    }

    void set_tensor_scale(BlockRounding& rounding, const Operands& o) const {
        const float own = measured ? *o.input<float>(given ? 2 : 1) : largest_of_all(rounding, o.workspace);
        const float taken = given ? *o.input<float>(1) : own;
        rounding.tensor_scale = rounding.rule == BlockRounding::Scale::tensor ? tensor_scale(element, taken)
                                                                              : two_level_tensor_scale(taken);
        *o.output<float>(1) =
            std::isfinite(own) ? 1.0f / rounding.tensor_scale : std::numeric_limits<float>::quiet_NaN();
        *o.output<float>(2) = own;
    }
};

PreparedKernel prepare_block_rounding(const Problem& problem, ThreadPool& pool, Isa isa) {
    const BlockRounding fixed = block_rounding(problem);
    const bool along = fixed.inner == 1 && !fixed.square;
    const std::int64_t of_strip = along ? fixed.depth : fixed.block * fixed.strip;
    const RoundingLaunch launch{
        .round = of_level(isa, round_strips_generic, round_strips_avx2, round_strips_avx512,
                          round_strips_avx512bf16),
        .largest = of_level(isa, largest_of_strips_generic, largest_of_strips_avx2, largest_of_strips_avx512,
                            largest_of_strips_avx512bf16),
        .fixed = fixed,
        .wide = problem.inputs[0].dtype == DType::f32,
        .given = problem.attributes.has("given"),
        .measured = problem.attributes.has("measured"),
        .has_tensor_scale = problem.outputs.size() > 1,
        .element = find_short_format(problem.attributes.word("element")),
        .strips = along
                      ? fixed.outer
                      : fixed.outer * ceil_div(fixed.depth, fixed.block) * ceil_div(fixed.inner, fixed.strip),
        .at_once = std::max<std::int64_t>(1, piece / std::max<std::int64_t>(1, of_strip)),
        .pool = &pool};
    const std::int64_t workspace =
        launch.has_tensor_scale ? launch.pieces() * static_cast<std::int64_t>(sizeof(std::int32_t)) : 0;
    return {.launch = launch, .workspace = workspace};
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
    table["round_blocks"].push_back({.name = fmt::format("round blocks {}", instructions_of(context.isa)),
                                     .prepare = [&pool = context.pool, isa = context.isa](
                                                    const Problem& problem) -> Expected<PreparedKernel> {
                                         if (problem.outputs[0].shape.elements() == 0)
                                             return Unexpected{"it needs one element or more"};
                                         if (problem.attributes.has("fp8"))
                                             return Unexpected{"it stores no FP8"};
                                         return prepare_block_rounding(problem, pool, isa);
                                     }});
    table["quantized_matmul"].push_back(product_kernel(
        context, "s8", arithmetic(name_of_bytes(context.isa)),
        prepared_product<QuantizedProduct, float, quantized_product, quantized_product_workspace>));
    table["quantized_matmul"].push_back(
        product_kernel(context, "s4", arithmetic(name_of_bytes(context.isa)),
                       prepared_product<GroupedProduct, BF16, grouped_product, grouped_product_workspace>));
}

}  // namespace mantissa::on_cpu
