// Binds the contraction to `matmul`, and to the three products of a convolution.
#include <emmintrin.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "mantissa/device/cpu/contraction/contraction.h"
#include "mantissa/device/cpu/kernels/depth_shares.h"
#include "mantissa/device/cpu/kernels/kernels.h"
#include "mantissa/device/cpu/kernels/swapped_gradient.h"
#include "mantissa/device/tf32_refusal.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// A prepared part, with the place of rows that do not lie one after another.
struct BoundPart {
    BoundPart(const ContractionPart& of, Isa isa)
        : part(of),
          contraction(prepare_contraction(own_problem(), isa)),
          swapped(SwappedGradient::of(contraction, isa)),
          shares(swapped ? std::nullopt : DepthShares::of(contraction)) {}

    /// The problem with an epilogue of ours where rows lie apart.
    ContractionProblem own_problem() const {
        ContractionProblem problem = part.problem;
        if (!part.rows) return problem;
        problem.out = {};
        problem.custom_epilogue = true;
        return problem;
    }

    std::size_t workspace_bytes(int threads) const {
        if (swapped) return swapped->workspace_bytes(threads);
        return shares ? shares->workspace_bytes(threads) : contraction.workspace_bytes(threads);
    }

    /// The contraction that reads the panels of a b that is kept.
    const PreparedContraction& reads_panels() const { return shares ? shares->contraction() : contraction; }
    /// Bytes of these panels, of all groups.
    std::int64_t kept_bytes() const {
        return part.repeats * static_cast<std::int64_t>(reads_panels().kept_bytes());
    }
    /// The b of a group, or its panels.
    const std::byte* b_of(const Operands& operands, std::int64_t group) const {
        if (const std::size_t bytes = reads_panels().kept_bytes())
            return operands.kept + kept_at + group * static_cast<std::int64_t>(bytes);
        return operands.inputs[1] +
               group * part.step_of_b * static_cast<std::int64_t>(size_of(part.problem.b.dtype));
    }

    /// Packs a b that is kept.
    void keep(const Operands& operands, ThreadPool& pool) const;
    void launch(const Operands& operands, ThreadPool& pool) const;
    /// Clears rows that lie apart, where nothing is multiplied: `out` is the group's.
    void write_zeros(std::byte* out, ThreadPool& pool) const;

    ContractionPart part;
    PreparedContraction contraction;
    // In its place:
    std::optional<SwappedGradient> swapped;
    std::optional<DepthShares> shares;
    std::int64_t kept_at = 0;  ///< in Operands::kept
};

/// Arguments of an epilogue for rows that lie apart.
struct RowsCall {
    const BoundPart& bound;
    std::byte* out;
};

void write_rows(float* sums, std::int64_t ld, std::int64_t row0, std::int64_t col0, std::int64_t rows,
                std::int64_t cols, const void* args) {
    const auto& [bound, out] = *static_cast<const RowsCall*>(args);
    const MatrixLayout& layout = bound.part.problem.out;
    const PixelRows& pixels = *bound.part.rows;
    for (std::int64_t row = 0, run = 0; row < rows; row += run) {
        run = pixels.run_from(row0 + row, rows - row);
        const std::int64_t at = pixels.of(row0 + row) * layout.leading + col0;
        EpilogueBlock block;
        block.sums = sums + row * ld;
        block.ld = ld;
        block.rows = run;
        block.cols = cols;
        block.out = out + at * static_cast<std::int64_t>(size_of(layout.dtype));
        block.out_dtype = layout.dtype;
        block.out_ld = pixels.horizontal.stride * layout.leading;
        block.streaming = bound.contraction.large;
        bound.contraction.kernels.finish(block);
    }
}

/// `streaming`: whole lines go past the caches.
void clear_row(std::byte* to, std::int64_t bytes, bool streaming) {
    if (!streaming || reinterpret_cast<std::uintptr_t>(to) % 64 != 0 || bytes % 64 != 0) {
        std::memset(to, 0, static_cast<std::size_t>(bytes));
        return;
    }
    for (std::int64_t at = 0; at < bytes; at += 16)
        _mm_stream_si128(reinterpret_cast<__m128i*>(to + at), _mm_setzero_si128());
}

void BoundPart::write_zeros(std::byte* out, ThreadPool& pool) const {
    const auto element_bytes = static_cast<std::int64_t>(size_of(part.problem.out.dtype));
    const std::int64_t pixels = part.rows->horizontal.output, row_bytes = part.problem.n * element_bytes;
    const std::int64_t step = part.problem.out.leading * element_bytes;
    pool.for_each_block(part.problem.m / pixels, [&](std::int64_t line, int) {
        std::byte* at = out + part.rows->of(line * pixels) * step;
        for (std::int64_t pixel = 0; pixel < pixels; ++pixel, at += part.rows->horizontal.stride * step)
            clear_row(at, row_bytes, contraction.large);
        _mm_sfence();
    });
}

void BoundPart::keep(const Operands& operands, ThreadPool& pool) const {
    const PreparedContraction& of = reads_panels();
    const auto* b = operands.inputs[1];
    for (std::int64_t group = 0; group < part.repeats; ++group) {
        std::byte* const panels =
            operands.kept + kept_at + group * static_cast<std::int64_t>(of.kept_bytes());
        pack_b(of, b, {panels, of.kept_bytes()}, pool);
        b += part.step_of_b * static_cast<std::int64_t>(size_of(part.problem.b.dtype));
    }
}

void BoundPart::launch(const Operands& operands, ThreadPool& pool) const {
    const ContractionProblem& problem = part.problem;
    const auto at = [](auto* base, std::int64_t elements, DType dtype) {
        return base + elements * static_cast<std::int64_t>(size_of(dtype));
    };
    for (std::int64_t group = 0; group < part.repeats; ++group) {
        ContractionArguments arguments{.a = at(operands.inputs[0], group * part.step_of_a, problem.a.dtype),
                                       .b = b_of(operands, group)};
        std::byte* const out = at(operands.outputs[0], group * part.step_of_out, problem.out.dtype);
        const RowsCall call{*this, out};
        if (part.rows && problem.k == 0) {
            write_zeros(out, pool);
            continue;
        }
        if (part.rows) {
            arguments.epilogue = write_rows;
            arguments.epilogue_args = &call;
        } else {
            arguments.out = out;
        }
        if (problem.epilogue.bias)
            arguments.bias = at(operands.inputs[2], group * part.step_of_bias, problem.epilogue.bias_dtype);
        const std::span workspace(operands.workspace, workspace_bytes(pool.threads()));
        if (swapped)
            swapped->run(arguments, workspace, pool);
        else if (shares)
            shares->run(arguments, workspace, pool);
        else
            contract(contraction, arguments, workspace, pool);
    }
}

Kernel make_kernel(const Context& context, const ContractionUnit& unit) {
    const auto bound_parts = [unit](const Problem& problem) {
        std::vector<BoundPart> parts;
        for (const ContractionPart& part : unit.parts(problem)) parts.emplace_back(part, unit.isa);
        std::int64_t kept = 0;
        for (BoundPart& part : parts) part.kept_at = std::exchange(kept, kept + part.kept_bytes());
        return parts;
    };
    const auto refuse = [=](const Problem& problem) {
        std::string reason = unit.refusal(problem);
        if (!reason.empty()) return reason;
        for (const ContractionPart& part : unit.parts(problem))
            if (reason = refusal(part.problem); !reason.empty()) break;
        return reason;
    };
    const auto prepare = [=, &pool = context.pool](const Problem& problem) -> Expected<PreparedKernel> {
        if (std::string reason = refuse(problem); !reason.empty()) return Unexpected{reason};
        std::vector<BoundPart> parts = bound_parts(problem);
        std::size_t most = 0;
        for (const BoundPart& part : parts) most = std::max(most, part.workspace_bytes(pool.threads()));
        PreparedKernel prepared{.launch = {}, .workspace = static_cast<std::int64_t>(most)};
        for (const BoundPart& part : parts) prepared.kept += part.kept_bytes();
        if (prepared.kept > 0)
            prepared.keep = [parts, &pool](const Operands& operands) {
                for (const BoundPart& part : parts) part.keep(operands, pool);
            };
        prepared.launch = [parts = std::move(parts), &pool](const Operands& operands) {
            for (const BoundPart& part : parts) part.launch(operands, pool);
        };
        return prepared;
    };
    return {.name = unit.name, .arithmetic = unit.arithmetic, .prepare = prepare};
}

}  // namespace

std::vector<ContractionPart> ContractionUnit::parts(const Problem& problem) const {
    std::vector<ContractionPart> parts = contraction_parts(problem);
    for (ContractionPart& part : parts) {
        part.problem.multiply = multiply;
        part.problem.keeps_b = std::ranges::find(problem.lasting, 1) != problem.lasting.end();
        part.problem.threads = threads;
        part.problem.leaves_zeros_out = problem.backward || problem.attributes.has("leaves_zeros_out");
    }
    return parts;
}

std::string ContractionUnit::refusal(const Problem& problem) const {
    for (const Type& type : problem.inputs)
        if (is_floating(type.dtype) && type.shape.rank() > 0 && type.dtype != operands)
            return fmt::format("it multiplies {}, got {}", mantissa::name_of(operands), type.text());
    if (is_fp8(problem.inputs[0].layout) || is_fp8(problem.inputs[1].layout))
        return "a CPU multiplies no FP8";
    if (has_codes(problem.inputs[0].layout)) return "it widens no codes of its first operand";
    const bool as_tf32 = multiply == Multiply::tf32;
    const bool wants_tf32 = problem.attributes.has("multiply");
    if (wants_tf32 && !as_tf32)
        return fmt::format("it multiplies {} as it is stored, asked for {}", mantissa::name_of(operands),
                           problem.attributes.word("multiply"));
    if (as_tf32 && !wants_tf32) return "it multiplies f32 as tf32, which was not asked for";
    return as_tf32 ? tf32_refusal() : "";
}

std::vector<ContractionUnit> contraction_units(Isa best, int threads) {
    // Levels from the CPU's best to plain C++: the plan shows the first that can, and why earlier ones
    // cannot.
    std::vector<ContractionUnit> units;
    for (int level = static_cast<int>(best); level >= 0; --level) {
        const Isa isa = static_cast<Isa>(level);
        const Bf16Unit unit = bf16_unit(isa);
        const std::string by(unit == Bf16Unit::none ? instructions_of(isa) : mantissa::on_cpu::name_of(unit));
        const auto add = [&](DType operands, Multiply multiply, const char* how) {
            const std::string format(multiply == Multiply::tf32 ? "tf32" : mantissa::name_of(operands));
            units.push_back({isa,
                             operands,
                             multiply,
                             fmt::format("gemm {0}*{0}+f32 {1}{2}", format, by, how),
                             {.multiply = format, .unit = by},
                             threads});
        };
        // Beside tiles, widened operands come second, and not dot products of pairs.
        if (unit == Bf16Unit::avx512_bf16 && best > isa) continue;
        const bool tiles = unit == Bf16Unit::amx;
        if (unit == Bf16Unit::none) add(DType::f32, Multiply::as_stored, "");
        if (unit != Bf16Unit::avx512_bf16)
            add(DType::f32, Multiply::tf32, tiles ? ", three products of bf16" : ", rounded");
        add(DType::bf16, Multiply::as_stored, unit == Bf16Unit::none ? ", widened" : "");
        if (unit != Bf16Unit::avx512_bf16)
            add(DType::f16, Multiply::as_stored, tiles ? ", four products of bf16" : ", widened");
    }
    return units;
}

void add_contraction_kernels(KernelTable& table, const Context& context) {
    for (const ContractionUnit& unit : contraction_units(context.isa, context.threads))
        for (const char* op : {"matmul", "conv2d", "conv2d_input_gradient", "conv2d_filter_gradient"})
            table[op].push_back(make_kernel(context, unit));
}

}  // namespace mantissa::on_cpu
