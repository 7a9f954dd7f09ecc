// Sums and maxima over any axes.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "mantissa/base/whole_units.h"
#include "mantissa/device/cuda/kernels/kernels.h"

namespace mantissa::inline v0::on_cuda {

namespace {

/// Threads that keep any GPU of these architectures busy: 148 multiprocessors of 2,048 at most.
constexpr std::int64_t enough_threads = 148 * 2048;
/// The least work of a thread that is worth a launch of its own.
constexpr std::int64_t min_terms = 64;

using Axis = codegen::ReductionKernel::Axis;

/// The axes of an operand taken apart, neighbours merged.
struct ReducedAxes {
    std::vector<Axis> kept, reduced;
    std::int64_t results = 1, terms = 1;
    bool last_is_reduced = false;
};

ReducedAxes taken_apart(const Shape& shape, const std::vector<std::int64_t>& axes) {
    ReducedAxes apart;
    const std::vector<std::int64_t> strides = shape.strides();
    for (std::size_t axis = 0; axis < strides.size(); ++axis) {
        const std::int64_t extent = shape.extents()[axis];
        const bool goes = std::ranges::find(axes, static_cast<std::int64_t>(axis)) != axes.end();
        (goes ? apart.terms : apart.results) *= extent;
        if (extent == 1) continue;
        std::vector<Axis>& to = goes ? apart.reduced : apart.kept;
        if (!to.empty() && to.back().stride == strides[axis] * extent)
            to.back() = {to.back().extent * extent, strides[axis]};
        else
            to.push_back({extent, strides[axis]});
        apart.last_is_reduced = goes;
    }
    return apart;
}

/// Threads of one result: neighbours read neighbours where the last axis goes, and there are enough terms.
int threads_of_result(bool along_terms, std::int64_t terms) {
    if (!along_terms || terms < 32) return 1;
    return static_cast<int>(
        std::bit_floor(static_cast<std::uint64_t>(std::min<std::int64_t>(codegen::grid_threads, terms))));
}

/// How many neighbouring results a thread has, so that it reads 16 bytes at once where they lie side by side.
int at_once_of(const ReducedAxes& apart, DType from) {
    if (apart.last_is_reduced || apart.kept.empty() || apart.kept.back().stride != 1) return 1;
    int count = std::min(8, 16 / static_cast<int>(size_of(from)));
    const auto fits = [&] {
        return apart.kept.back().extent % count == 0 &&
               std::ranges::all_of(apart.reduced, [&](Axis axis) { return axis.stride % count == 0; }) &&
               std::all_of(apart.kept.begin(), apart.kept.end() - 1,
                           [&](Axis axis) { return axis.stride % count == 0; });
    };
    while (!fits()) count /= 2;
    return count;
}

std::int64_t chunks_of(std::int64_t threads_of_chunk, std::int64_t terms, int threads) {
    const std::int64_t wanted = enough_threads / std::max<std::int64_t>(1, threads_of_chunk);
    const std::int64_t most = terms / (min_terms * threads);
    return std::clamp<std::int64_t>(std::min(wanted, most), 1, 1024);
}

/// Threads of one result of the second launch. Where there are many results its terms lie apart, but there
/// are few.
int threads_of_second(std::int64_t results, std::int64_t chunks) {
    constexpr std::int64_t many_chunks = 64, few_results = 32;
    if (results < few_results) return threads_of_result(true, chunks);
    return chunks < many_chunks ? 1 : 32;
}

}  // namespace

void Stages::queue(const Context& context, std::uint64_t x, std::uint64_t partials, std::uint64_t y) const {
    launch(context, first, {x, second.kernel ? partials : y});
    if (second.kernel) launch(context, second, {partials, y});
}

Stages stages_of(Context& context, const Shape& shape, const std::vector<std::int64_t>& axes,
                 const Reduced& what) {
    const ReducedAxes apart = taken_apart(shape, axes);
    codegen::ReductionKernel first{.maximum = what.maximum,
                                   .kept = apart.kept,
                                   .reduced = apart.reduced,
                                   .from = what.from,
                                   .sums = what.sums,
                                   .to = what.to};
    first.threads = threads_of_result(apart.last_is_reduced, apart.terms);
    first.at_once = what.askew ? 1 : at_once_of(apart, what.from);
    first.chunks = chunks_of(apart.results / first.at_once * first.threads, apart.terms, first.threads);
    first.terms_of_chunk = ceil_div(apart.terms, first.chunks);
    Stages stages;
    const std::string name = fmt::format("{}_{}", what.maximum ? "max" : "sum", name_of(what.from));
    if (first.chunks > 1) {
        codegen::ReductionKernel second{.maximum = what.maximum,
                                        .kept = {{apart.results, 1}},
                                        .reduced = {{first.chunks, apart.results}},
                                        .terms_of_chunk = first.chunks,
                                        .from = what.sums,
                                        .sums = what.sums,
                                        .to = what.to};
        second.threads = threads_of_second(apart.results, first.chunks);
        first.to = what.sums;
        stages.second = add_sized(context, {.name = name, .code = second});
        stages.partial_bytes = first.chunks * apart.results * static_cast<std::int64_t>(size_of(what.sums));
    }
    stages.first = add_sized(context, {.name = name, .code = first});
    return stages;
}

namespace {

Kernel reduction_kernel(Context& context, bool maximum) {
    const auto prepare = [&context, maximum](const Problem& problem) -> Expected<PreparedKernel> {
        const DType from = problem.inputs[0].dtype;
        const Stages stages = stages_of(context, problem.inputs[0].shape, problem.attributes.list("axes"),
                                        {.maximum = maximum,
                                         .from = from,
                                         .sums = from == DType::f64 ? DType::f64 : DType::f32,
                                         .to = problem.outputs[0].dtype,
                                         .askew = problem.askew});
        return PreparedKernel{.launch =
                                  [&context, stages](const Operands& operands) {
                                      stages.queue(context, address_of(operands.inputs[0]),
                                                   address_of(operands.workspace),
                                                   address_of(operands.outputs[0]));
                                  },
                              .workspace = stages.partial_bytes,
                              .launches = stages.launches()};
    };
    return {.name = "tree", .arithmetic = {.unit = context.unit}, .prepare = prepare};
}

}  // namespace

void add_reduction_kernels(KernelTable& table, Context& context) {
    table["sum"].push_back(reduction_kernel(context, false));
    table["max"].push_back(reduction_kernel(context, true));
}

}  // namespace mantissa::on_cuda
