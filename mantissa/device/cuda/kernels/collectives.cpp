// Sums over ranks: each gets everybody's terms of its own part, adds them over the tree that ranks on CPUs
// add over (ranks/tree_sum.h), and sends the sums to all. So the bits are those of ranks on CPUs, and the
// same on every rank. All of it is queued on a stream of its own, so that gradients travel while the backward
// pass works.
#include <fmt/format.h>

#include <bit>

#include "mantissa/base/error.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/device/cuda/gpu_ranks.h"
#include "mantissa/device/cuda/kernels/elements.h"

namespace mantissa::inline v0::on_cuda {

namespace {

/// Whole accesses of 16 bytes.
constexpr std::int64_t numbers_at_a_time = 4;

/// A tensor's part of a rank: [first, first + count).
struct TensorPart {
    std::int64_t first = 0, count = 0;
};

TensorPart part_of_rank(std::int64_t elements, int ranks, int rank) {
    const std::int64_t each = rounded_up(parts_of(elements, std::int64_t{ranks}), numbers_at_a_time);
    const std::int64_t first = std::min(elements, each * rank);
    return {first, std::min(each, elements - first)};
}

std::uint64_t number_at(std::uint64_t base, std::int64_t index) {
    return base + static_cast<std::uint64_t>(index) * sizeof(float);
}

/// to[i] = a[i] + b[i]
struct Addition {
    std::shared_ptr<const GpuKernel> kernel;
    std::int64_t blocks = 0;

    Addition(Context& context, std::int64_t count) {
        const codegen::Strided plain{.dtype = DType::f32, .strides = {1}};
        codegen::ElementKernel kernel_of_elements{
            .op = "add", .extents = {count}, .operands = {plain, plain}, .output = plain};
        blocks = codegen::blocks_of({.name = "", .code = kernel_of_elements});
        kernel = add_element_kernel(context, std::move(kernel_of_elements));
    }
};

/// The sum of tensors over all ranks, prepared.
class SumOverRanks {
  public:
    SumOverRanks(Context& context, GpuRanks& ranks, std::span<const Type> tensors) : ranks_(ranks) {
        for (const Type& type : tensors) {
            const std::int64_t elements = type.shape.elements();
            const TensorPart own = part_of_rank(elements, ranks.ranks(), ranks.rank());
            tensors_.push_back(
                {elements, own, own_numbers_, Addition(context, std::max<std::int64_t>(own.count, 1))});
            own_numbers_ += rounded_up(own.count, numbers_at_a_time);
        }
        ranks_.reserve(own_numbers_ * ranks.ranks() * static_cast<std::int64_t>(sizeof(float)));
    }

    /// Queues it on the ranks' stream; `at`: where each tensor lies.
    void queue(const Context& context, const std::vector<std::uint64_t>& at) const {
        GpuRanks::Places sends(size()), receives(size());
        for (int rank = 0; rank < ranks_.ranks(); ++rank) {
            if (rank == ranks_.rank()) continue;
            for (std::size_t i = 0; i < tensors_.size(); ++i) {
                sends[static_cast<std::size_t>(rank)].push_back(place(at, i, rank));
                receives[static_cast<std::size_t>(rank)].push_back(
                    {number_at(room_of(rank), tensors_[i].room), tensors_[i].own.count});
            }
        }
        ranks_.exchange(sends, receives);
        for (std::size_t i = 0; i < tensors_.size(); ++i)
            if (tensors_[i].own.count > 0) {
                std::vector<std::uint64_t> terms;
                for (int rank = 0; rank < ranks_.ranks(); ++rank)
                    terms.push_back(rank == ranks_.rank() ? place(at, i, rank).address
                                                          : number_at(room_of(rank), tensors_[i].room));
                add_up(context, tensors_[i].addition, terms, place(at, i, ranks_.rank()).address);
            }
        for (int rank = 0; rank < ranks_.ranks(); ++rank) {
            if (rank == ranks_.rank()) continue;
            const auto other = static_cast<std::size_t>(rank);
            sends[other].clear();
            receives[other].clear();
            for (std::size_t i = 0; i < tensors_.size(); ++i) {
                sends[other].push_back(place(at, i, ranks_.rank()));
                receives[other].push_back(place(at, i, rank));
            }
        }
        ranks_.exchange(sends, receives);
    }

  private:
    struct Tensor {
        std::int64_t elements = 0;
        TensorPart own;
        std::int64_t room = 0;  ///< numbers before its own in what a rank sends
        Addition addition;
    };

    std::size_t size() const { return static_cast<std::size_t>(ranks_.ranks()); }
    /// Where what a rank sends arrives; the own one's is where sums are made on the way.
    std::uint64_t room_of(int rank) const { return number_at(ranks_.room(), own_numbers_ * rank); }
    GpuRanks::Place place(const std::vector<std::uint64_t>& at, std::size_t tensor, int rank) const {
        const TensorPart part = part_of_rank(tensors_[tensor].elements, ranks_.ranks(), rank);
        return {number_at(at[tensor], part.first), part.count};
    }

    /// The tree of ranks/tree_sum.h. Sums of some of the terms lie over the first of them, the last over
    /// `to`.
    void add_up(const Context& context, const Addition& addition, std::span<const std::uint64_t> terms,
                std::uint64_t to) const {
        if (terms.size() == 1) return;
        const std::size_t half = std::bit_ceil(terms.size()) / 2;
        const auto first = terms.first(half), second = terms.subspan(half);
        add_up(context, addition, first, first[0]);
        add_up(context, addition, second, second[0]);
        launch_on(context, ranks_.stream(), *addition.kernel, addition.blocks, {first[0], second[0], to});
    }

    GpuRanks& ranks_;
    std::vector<Tensor> tensors_;
    std::int64_t own_numbers_ = 0;  ///< of all parts of this rank
};

int sum_of(const Problem& problem) { return static_cast<int>(problem.attributes.integer("sum")); }

std::vector<std::vector<int>> each_over_its_operand(const Problem& problem) {
    std::vector<std::vector<int>> over;
    for (int i = 0; i < static_cast<int>(problem.inputs.size()); ++i) over.push_back({i});
    return over;
}

std::vector<std::int64_t> bytes_of(std::span<const Type> types) {
    std::vector<std::int64_t> bytes;
    for (const Type& type : types) bytes.push_back(type.bytes());
    return bytes;
}

void copy_to_outputs(const Context& context, const Operands& operands,
                     const std::vector<std::int64_t>& bytes) {
    for (std::size_t i = 0; i < bytes.size(); ++i)
        if (operands.outputs[i] != operands.inputs[i])
            queue_copy(context, operands.outputs[i], operands.inputs[i], static_cast<std::size_t>(bytes[i]));
}

std::string refuse_ranks(const Context& context, const Problem& problem) {
    const std::int64_t wanted = problem.attributes.integer("ranks");
    const int have = context.ranks ? context.ranks->ranks() : 1;
    return wanted == have ? "" : fmt::format("it is for {} ranks, the device is one of {}", wanted, have);
}

OrReason<PreparedKernel> prepare_start(Context& context, const Problem& problem) {
    if (std::string reason = refuse_ranks(context, problem); !reason.empty())
        return NoValue{std::move(reason)};
    if (context.ranks && problem.attributes.has("wire")) return NoValue{"among GPUs terms travel in FP32"};
    std::shared_ptr<const SumOverRanks> over;
    if (context.ranks) over = std::make_shared<const SumOverRanks>(context, *context.ranks, problem.outputs);
    const auto launch = [&context, over, sum = sum_of(problem),
                         bytes = bytes_of(problem.outputs)](const Operands& operands) {
        copy_to_outputs(context, operands, bytes);
        if (!over || context.ranks->is_alone()) return;
        std::vector<std::uint64_t> at;
        for (const std::byte* output : operands.outputs) at.push_back(address_of(output));
        context.ranks->begin_behind(context.work, sum);
        over->queue(context, at);
        context.ranks->end(sum);
    };
    return PreparedKernel{.launch = launch,
                          .may_write_over = each_over_its_operand(problem),
                          .launches = 2 + std::ssize(problem.outputs)};
}

OrReason<PreparedKernel> prepare_end(Context& context, const Problem& problem) {
    if (std::string reason = refuse_ranks(context, problem); !reason.empty())
        return NoValue{std::move(reason)};
    const auto launch = [&context, sum = sum_of(problem),
                         bytes = bytes_of(problem.outputs)](const Operands& operands) {
        if (context.ranks && !context.ranks->is_alone()) context.ranks->wait(context.work, sum);
        copy_to_outputs(context, operands, bytes);
    };
    return PreparedKernel{.launch = launch, .may_write_over = each_over_its_operand(problem), .launches = 0};
}

}  // namespace

void add_collective_kernels(KernelTable& table, Context& context) {
    const std::string name = context.ranks ? "exchange of GPUs by NCCL" : "exchange with nobody";
    table["all_reduce_start"].push_back({.name = name, .prepare = [&context](const Problem& problem) {
                                             return prepare_start(context, problem);
                                         }});
    table["all_reduce_wait"].push_back({.name = name, .prepare = [&context](const Problem& problem) {
                                            return prepare_end(context, problem);
                                        }});
}

}  // namespace mantissa::on_cuda
