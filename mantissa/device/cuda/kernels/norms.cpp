// The norm of all gradients: their squares, of many in one launch, and the sum of the squares. Among ranks
// each squares its own parts, and all get everybody's sums.
#include <fmt/format.h>

#include <optional>

#include "mantissa/base/whole_units.h"
#include "mantissa/device/bind/exchanges.h"
#include "mantissa/device/cuda/gpu_ranks.h"
#include "mantissa/device/cuda/kernels/kernels.h"
#include "mantissa/ranks/shard.h"

namespace mantissa::inline v0::on_cuda {

namespace {

constexpr std::int64_t number = sizeof(double);

std::int64_t sums_of(std::int64_t elements) { return ceil_div(elements, shard_block); }

/// Gradients of one format, whose squares one kernel adds up. It sums each block by which ranks cut
/// (ranks/shard.h), so that a part has the sums that it has in the whole.
class Squares {
  public:
    /// A gradient: so many elements of an operand; where its first sum goes.
    struct Gradient {
        std::size_t operand = 0;
        std::int64_t elements = 0, first_sum = 0;
    };

    Squares(Context& context, DType dtype, std::vector<Gradient> gradients)
        : gradients_(std::move(gradients)) {
        codegen::SquaresKernel kernel{.from = dtype, .of_sum = shard_block};
        kernel.parts = codegen::parts_of_launch(std::ssize(gradients_), kernel.table().words, 1);
        table_ = kernel.table();
        kernel_ = context.modules.add({.name = fmt::format("squares_{}", name_of(dtype)), .code = kernel});
    }

    std::int64_t launches() const { return ceil_div(std::ssize(gradients_), table_.parts); }

    void queue(const Context& context, const Operands& operands, std::uint64_t sums) const {
        std::vector<Part> parts;
        for (const Gradient& each : gradients_)
            parts.push_back(
                {ceil_div(sums_of(each.elements), codegen::SquaresKernel::sums_of_block),
                 {address_of(operands.inputs[each.operand]), static_cast<std::uint64_t>(each.elements),
                  static_cast<std::uint64_t>(each.first_sum)}});
        launch_parts(context, *kernel_, table_, parts, {sums});
    }

  private:
    std::vector<Gradient> gradients_;
    codegen::PartTable table_;
    std::shared_ptr<const GpuKernel> kernel_;
};

/// The root of so many sums, and whether it is finite.
class RootOfSums {
  public:
    RootOfSums(Context& context, std::int64_t sums)
        : sums_(sums),
          whole_(stages_of(context, Shape{sums}, {0},
                           {.from = DType::f64, .sums = DType::f64, .to = DType::f64})),
          root_(context.modules.add({.name = "norm", .code = codegen::NormKernel{}})) {}

    std::int64_t launches() const { return whole_.launches() + 1; }
    /// Bytes of the sums, then their sum, and partial sums on the way.
    std::int64_t workspace() const { return (sums_ + 1) * number + whole_.partial_bytes; }

    void queue(const Context& context, const Operands& operands) const {
        const std::uint64_t sums = address_of(operands.workspace),
                            sum = sums + static_cast<std::uint64_t>(sums_ * number);
        whole_.queue(context, sums, sum + number, sum);
        launch(context, *root_, 1, {sum, address_of(operands.outputs[0]), address_of(operands.outputs[1])});
    }

  private:
    std::int64_t sums_;
    Stages whole_;
    std::shared_ptr<const GpuKernel> root_;
};

/// Squares are added in FP64, where squares of FP32 numbers cannot overflow: by blocks of all gradients at
/// once, then over the blocks.
Expected<PreparedKernel> norm_of_all(const Problem& problem, Context& context) {
    std::vector<Squares> all;
    std::int64_t sums = 0, launches = 0;
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
        std::vector<Squares::Gradient> gradients;
        for (std::size_t i = 0; i < problem.inputs.size(); ++i) {
            const std::int64_t elements = problem.inputs[i].shape.elements();
            if (problem.inputs[i].dtype != dtype || elements == 0) continue;
            gradients.push_back({i, elements, sums});
            sums += sums_of(elements);
        }
        if (gradients.empty()) continue;
        all.emplace_back(context, dtype, std::move(gradients));
        launches += all.back().launches();
    }
    const RootOfSums root(context, sums);
    const auto queue = [&context, all = std::move(all), root](const Operands& operands) {
        for (const Squares& squares : all) squares.queue(context, operands, address_of(operands.workspace));
        root.queue(context, operands);
    };
    return PreparedKernel{
        .launch = queue, .workspace = root.workspace(), .launches = launches + root.launches()};
}

/// The number of the sum that the norm of parts exchanges: no other sum has it.
constexpr int norms = -2;

/// The norm of gradients that this rank has parts of, or all: the same sums of blocks, in the same order.
Expected<PreparedKernel> norm_of_parts(const Problem& problem, Context& context) {
    if (std::string reason = refuse_ranks(problem, context.ranks ? context.ranks->ranks() : 1);
        !reason.empty())
        return Unexpected{std::move(reason)};
    const std::int64_t ranks = problem.attributes.integer("ranks"),
                       self = context.ranks ? context.ranks->rank() : 0;
    std::vector<Squares::Gradient> own;
    GpuRanks::Places by_rank(static_cast<std::size_t>(ranks));  // of sums, from the first one on
    std::int64_t sums = 0;
    const std::vector<std::int64_t>& cut = problem.attributes.list("elements");
    for (std::size_t i = 0; i < cut.size(); ++i) {
        const std::int64_t elements = cut[i] > 0 ? cut[i] : problem.inputs[i].shape.elements();
        const auto part = cut[i] > 0 ? shard_of(elements, ranks, self) : mantissa::Shard{0, elements};
        if (part.count > 0) own.push_back({i, part.count, sums + part.first / shard_block});
        for (std::int64_t rank = 0; cut[i] > 0 && rank < ranks; ++rank) {
            const auto theirs = shard_of(elements, ranks, rank);
            by_rank[static_cast<std::size_t>(rank)].push_back(
                {static_cast<std::uint64_t>((sums + theirs.first / shard_block) * number),
                 sums_of(theirs.count) * number});
        }
        sums += sums_of(elements);
    }
    std::optional<Squares> squares;
    const std::int64_t squared = own.empty() ? 0 : squares.emplace(context, DType::f32, own).launches();
    const RootOfSums root(context, sums);
    const auto queue = [=, &context](const Operands& operands) {
        const bool is_alone = !context.ranks || context.ranks->is_alone();
        // Sums of the other ranks are missing where a rank looks alone.
        if (is_alone) queue_zeros(context, operands.workspace, static_cast<std::size_t>(sums * number));
        const std::uint64_t first = address_of(operands.workspace);
        if (squares) squares->queue(context, operands, first);
        if (!is_alone) {
            GpuRanks::Places receives = by_rank;
            for (std::vector<GpuRanks::Place>& of_rank : receives)
                for (GpuRanks::Place& place : of_rank) place.address += first;
            GpuRanks::Places sends(by_rank.size(), receives[static_cast<std::size_t>(self)]);
            sends[static_cast<std::size_t>(self)].clear();
            receives[static_cast<std::size_t>(self)].clear();
            context.ranks->begin_behind(context.work, norms);
            context.ranks->exchange(sends, receives);
            context.ranks->end(norms);
            context.ranks->wait(context.work, norms);
        }
        root.queue(context, operands);
    };
    return PreparedKernel{
        .launch = queue, .workspace = root.workspace(), .launches = squared + 1 + root.launches()};
}

}  // namespace

void add_norm_kernels(KernelTable& table, Context& context) {
    table["global_norm"].push_back({.name = "tree of squares", .prepare = [&context](const Problem& problem) {
                                        return norm_of_all(problem, context);
                                    }});
    table["norm_of_parts"].push_back(
        {.name = "tree of squares of ranks",
         .prepare = [&context](const Problem& problem) { return norm_of_parts(problem, context); }});
}

}  // namespace mantissa::on_cuda
