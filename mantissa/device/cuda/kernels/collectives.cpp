// The data that ranks exchange. Each rank gets everybody's terms of its own part of a sum. It adds them over
// the tree that ranks on CPUs add over (ranks/tree_sum.h), so the bits are those of CPUs, and the same on
// every rank. Where all ranks need the whole sum, each sends its part to them. The work is queued on a stream
// of its own, so that gradients travel while the backward pass works.
#include <bit>
#include <map>
#include <optional>
#include <utility>

#include "mantissa/base/whole_units.h"
#include "mantissa/device/bind/exchanges.h"
#include "mantissa/device/cuda/gpu_ranks.h"
#include "mantissa/device/cuda/kernels/kernels.h"
#include "mantissa/ranks/shard.h"

namespace mantissa::inline v0::on_cuda {

namespace {

/// [first, first + count) of a tensor.
using TensorPart = mantissa::Shard;

/// The part of a rank of a tensor of so many elements.
using Cut = TensorPart (*)(std::int64_t elements, std::int64_t ranks, std::int64_t rank);

/// Whole accesses of 16 bytes, in BF16, too.
constexpr std::int64_t numbers_at_a_time = 8;

/// A rank's part of a tensor that no rank holds in parts. The parts are as even as they can be.
TensorPart even_part(std::int64_t elements, std::int64_t ranks, std::int64_t rank) {
    const std::int64_t each = align_up(ceil_div(elements, ranks), numbers_at_a_time);
    const std::int64_t first = std::min(elements, each * rank);
    return {first, std::min(each, elements - first)};
}

std::int64_t width_of(DType dtype) { return static_cast<std::int64_t>(size_of(dtype)); }

std::uint64_t number_at(std::uint64_t base, std::int64_t index, DType dtype) {
    return base + static_cast<std::uint64_t>(index * width_of(dtype));
}

/// An element-wise operation over so many numbers that lie side by side.
class OverNumbers {
  public:
    OverNumbers(Context& context, const char* op, std::int64_t count, const std::vector<DType>& operands,
                DType output) {
        codegen::ElementKernel kernel{.op = op,
                                      .extents = {std::max<std::int64_t>(count, 1)},
                                      .operands = {},
                                      .output = {.dtype = output, .strides = {1}}};
        for (const DType dtype : operands) kernel.operands.push_back({.dtype = dtype, .strides = {1}});
        made_ = add_element_kernel(context, std::move(kernel));
    }

    void queue(const Context& context, cuda::Stream stream, std::vector<std::uint64_t> addresses) const {
        launch_on(context, stream, made_, std::move(addresses));
    }

  private:
    SizedKernel made_;
};

/// The terms of the sum: the received ones, or the sum of some.
struct Term {
    std::uint64_t address = 0;
    DType dtype = DType::f32;
};

/// Additions of so many numbers of `ranks` terms, in FP32, over the tree of tree_sum (ranks/exchange.h).
class TreeOfTerms {
  public:
    TreeOfTerms(Context& context, std::int64_t count, int ranks, DType terms) {
        make_additions(context, count, ranks, terms);
    }

    /// `places`: where the sum of some terms may lie on its way, by the first of them; may be the terms' own
    /// places where they are FP32. The last sum lies at `to`.
    Term queue(const Context& context, cuda::Stream stream, std::span<const Term> terms,
               std::span<const std::uint64_t> places, std::uint64_t to) const {
        if (terms.size() == 1) return terms[0];
        const std::size_t half = std::bit_ceil(terms.size()) / 2;
        const Term first = queue(context, stream, terms.first(half), places, places[0]),
                   second = queue(context, stream, terms.subspan(half), places.subspan(half), places[half]);
        additions_.at({first.dtype, second.dtype})
            .queue(context, stream, {first.address, second.address, to});
        return {to, DType::f32};
    }

  private:
    /// Makes the additions for a sum of so many terms; returns the sum's type.
    DType make_additions(Context& context, std::int64_t count, int terms, DType dtype) {
        if (terms == 1) return dtype;
        const int half = static_cast<int>(std::bit_ceil(static_cast<unsigned>(terms)) / 2);
        const DType first = make_additions(context, count, half, dtype),
                    second = make_additions(context, count, terms - half, dtype);
        additions_.try_emplace({first, second}, context, "add", count, std::vector{first, second},
                               DType::f32);
        return DType::f32;
    }

    std::map<std::pair<DType, DType>, OverNumbers> additions_;
};

/// The sum of FP32 tensors over all ranks, prepared. `wire`: the format that terms are rounded to before they
/// travel, a rank's own as the others'; sums are of FP32, and travel as such.
class SumOverRanks {
  public:
    SumOverRanks(Context& context, std::span<const Type> tensors, Cut cut, DType wire)
        : ranks_(*context.ranks), cut_(cut), wire_(wire) {
        for (const Type& type : tensors) {
            const std::int64_t elements = type.shape.elements(), own = part(elements, ranks_.rank()).count;
            tensors_.push_back({.elements = elements,
                                .own = own,
                                .room = own_numbers_,
                                .room_of_all = all_numbers_,
                                .rounding = {},
                                .additions = {context, own, ranks_.ranks(), wire}});
            if (is_rounded())
                tensors_.back().rounding.emplace(context, "cast", elements, std::vector{DType::f32}, wire);
            own_numbers_ += align_up(own, numbers_at_a_time);
            all_numbers_ += align_up(elements, numbers_at_a_time);
        }
        ranks_.reserve(sums_room() +
                       (is_rounded() ? own_numbers_ * ranks_.ranks() * width_of(DType::f32) : 0));
    }

    /// Queues the sums of this rank's parts on the ranks' stream; `at`: where each tensor lies.
    void queue_sums(const Context& context, const std::vector<std::uint64_t>& at) const {
        if (is_rounded())
            for (std::size_t i = 0; i < tensors_.size(); ++i)
                tensors_[i].rounding->queue(context, ranks_.stream(), {at[i], sent(at, i, 0)});
        GpuRanks::Places sends = no_places(), receives = no_places();
        for (int rank = 0; rank < ranks_.ranks(); ++rank) {
            if (rank == ranks_.rank()) continue;
            for (std::size_t i = 0; i < tensors_.size(); ++i) {
                const TensorPart theirs = part(tensors_[i].elements, rank);
                of(sends, rank).push_back({sent(at, i, theirs.first), theirs.count * width_of(wire_)});
                of(receives, rank).push_back({received(i, rank), tensors_[i].own * width_of(wire_)});
            }
        }
        ranks_.exchange(sends, receives);
        for (std::size_t i = 0; i < tensors_.size(); ++i)
            if (tensors_[i].own > 0) add_up(context, at, i);
    }

    /// Queues the copies that bring every rank's sums to all.
    void queue_to_all(const std::vector<std::uint64_t>& at) const {
        GpuRanks::Places sends = no_places(), receives = no_places();
        for (int rank = 0; rank < ranks_.ranks(); ++rank) {
            if (rank == ranks_.rank()) continue;
            for (std::size_t i = 0; i < tensors_.size(); ++i) {
                of(sends, rank).push_back(sums_of(at, i, ranks_.rank()));
                of(receives, rank).push_back(sums_of(at, i, rank));
            }
        }
        ranks_.exchange(sends, receives);
    }

    /// The terms of `queue_sums`.
    std::int64_t launches() const {
        return 1 + std::ssize(tensors_) * (ranks_.ranks() - 1 + (is_rounded() ? 1 : 0));
    }

  private:
    struct Tensor {
        std::int64_t elements = 0, own = 0;
        std::int64_t room = 0, room_of_all = 0;  ///< numbers before its own, of parts and of wholes
        std::optional<OverNumbers> rounding;
        TreeOfTerms additions;
    };

    bool is_rounded() const { return wire_ != DType::f32; }
    TensorPart part(std::int64_t elements, int rank) const { return cut_(elements, ranks_.ranks(), rank); }
    GpuRanks::Places no_places() const { return GpuRanks::Places(static_cast<std::size_t>(ranks_.ranks())); }
    static std::vector<GpuRanks::Place>& of(GpuRanks::Places& places, int rank) {
        return places[static_cast<std::size_t>(rank)];
    }

    // The ranks' room: received terms, by rank. Where terms are rounded to travel, sent terms, and sums on
    // their way, by rank.
    std::uint64_t received(std::size_t i, int rank) const {
        return number_at(ranks_.room(), own_numbers_ * rank + tensors_[i].room, wire_);
    }
    std::uint64_t sent(const std::vector<std::uint64_t>& at, std::size_t i, std::int64_t first) const {
        if (!is_rounded()) return number_at(at[i], first, DType::f32);
        return number_at(ranks_.room(), own_numbers_ * ranks_.ranks() + tensors_[i].room_of_all + first,
                         wire_);
    }
    std::int64_t sums_room() const {
        return (own_numbers_ * ranks_.ranks() + (is_rounded() ? all_numbers_ : 0)) * width_of(wire_);
    }
    std::uint64_t sum_on_its_way(std::size_t i, int rank) const {
        return number_at(ranks_.room() + static_cast<std::uint64_t>(sums_room()),
                         own_numbers_ * rank + tensors_[i].room, DType::f32);
    }
    GpuRanks::Place sums_of(const std::vector<std::uint64_t>& at, std::size_t i, int rank) const {
        const TensorPart theirs = part(tensors_[i].elements, rank);
        return {number_at(at[i], theirs.first, DType::f32), theirs.count * width_of(DType::f32)};
    }

    void add_up(const Context& context, const std::vector<std::uint64_t>& at, std::size_t i) const {
        const std::int64_t first = part(tensors_[i].elements, ranks_.rank()).first;
        std::vector<Term> terms;
        std::vector<std::uint64_t> places;
        for (int rank = 0; rank < ranks_.ranks(); ++rank) {
            terms.push_back({rank == ranks_.rank() ? sent(at, i, first) : received(i, rank), wire_});
            places.push_back(is_rounded() ? sum_on_its_way(i, rank) : terms.back().address);
        }
        tensors_[i].additions.queue(context, ranks_.stream(), terms, places,
                                    sums_of(at, i, ranks_.rank()).address);
    }

    GpuRanks& ranks_;
    Cut cut_;
    DType wire_;
    std::vector<Tensor> tensors_;
    std::int64_t own_numbers_ = 0;  ///< of all parts of this rank
    std::int64_t all_numbers_ = 0;  ///< of all tensors
};

bool has_others(const Context& context) { return context.ranks && !context.ranks->is_alone(); }

DeviceExchange exchange_of(Context& context) {
    const int ranks = context.ranks ? context.ranks->ranks() : 1,
              self = context.ranks ? context.ranks->rank() : 0;
    const auto gather = [&context, self](int sum, const BytesByRank& by_rank) {
        GpuRanks::Places sends(by_rank.size()), receives(by_rank.size());
        const auto add = [](std::vector<GpuRanks::Place>& to,
                            const std::vector<std::span<std::byte>>& tensors) {
            for (const std::span<std::byte> bytes : tensors)
                to.push_back({address_of(bytes.data()), std::ssize(bytes)});
        };
        for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
            if (rank == static_cast<std::size_t>(self)) continue;
            add(sends[rank], by_rank[static_cast<std::size_t>(self)]);
            add(receives[rank], by_rank[rank]);
        }
        context.ranks->begin_behind(context.work, sum);
        context.ranks->exchange(sends, receives);
        context.ranks->end(sum);
    };
    return {
        .ranks = ranks,
        .rank = self,
        .name = context.ranks ? "exchange of GPUs by NCCL" : "exchange with nobody",
        .copy = [&context](
                    std::byte* to, const std::byte* from,
                    std::int64_t bytes) { queue_copy(context, to, from, static_cast<std::size_t>(bytes)); },
        .zero = [&context](std::byte* to,
                           std::int64_t bytes) { queue_zeros(context, to, static_cast<std::size_t>(bytes)); },
        .has_others = [&context] { return has_others(context); },
        .wait = [&context](int sum) { context.ranks->wait(context.work, sum); },
        .gather = gather};
}

/// Whom the sums are for.
enum class For : std::uint8_t { all, owners };

PreparedKernel prepare_sum(Context& context, const DeviceExchange& exchange, const Problem& problem,
                           For whom) {
    const DType wire = problem.attributes.has("wire") ? problem.attributes.dtype("wire") : DType::f32;
    std::shared_ptr<const SumOverRanks> over;
    if (context.ranks)
        over = std::make_shared<const SumOverRanks>(
            context, problem.outputs, whom == For::all ? even_part : Cut{mantissa::shard_of}, wire);
    const auto launch = [&context, exchange, over, whom, sum = sum_of(problem),
                         bytes = bytes_of(problem.outputs)](const Operands& operands) {
        copy_to_outputs(exchange, operands, bytes);
        if (!exchange.has_others()) return;
        std::vector<std::uint64_t> at;
        for (const std::byte* output : operands.outputs) at.push_back(address_of(output));
        context.ranks->begin_behind(context.work, sum);
        over->queue_sums(context, at);
        if (whom == For::all) over->queue_to_all(at);
        context.ranks->end(sum);
    };
    return {.launch = launch,
            .may_write_over = each_over_its_operand(problem),
            .launches = over ? over->launches() + (whom == For::all ? 1 : 0) : 0};
}

}  // namespace

void add_collective_kernels(KernelTable& table, Context& context) {
    const DeviceExchange exchange = exchange_of(context);
    const auto sums = [&context, exchange](For whom) -> PrepareExchange {
        return [&context, exchange, whom](const Problem& problem) {
            return prepare_sum(context, exchange, problem, whom);
        };
    };
    add_exchanges(table, exchange, sums(For::all), sums(For::owners));
}

}  // namespace mantissa::on_cuda
