// Convolutions in groups of few channels, for the CPU's kernel table. Sums are FP32, in an order that follows
// from the shape alone.
#pragma once

#include "mantissa/base/thread_pool.h"
#include "mantissa/device/cpu/convolution/grouped_problems.h"
#include "mantissa/device/cpu/isa.h"
#include "mantissa/graph/convolution.h"

namespace mantissa::inline v0::on_cpu {

/// The best kernels for a CPU of this level.
const GroupedKernels& grouped_kernels(Isa);

enum class GroupedResult : std::uint8_t { output, gradient_of_input, gradient_of_filter };

/// Why a convolution is left to a product a group; empty if it is not.
std::string refuse_grouped(const Convolution& of, GroupedResult makes);

/// Why the products of two BF16 cannot be added to a sum at a time; empty if they can.
std::string refuse_pairs(const Convolution& of, GroupedResult makes);

/// Addresses of one call, in the operation's order: x, filter and perhaps a bias; dy, filter; x, dy.
struct GroupedArguments {
    ConstView first, second, bias;
    View out;
    float* workspace = nullptr;
};

/// One of the three products, with everything that follows from its sizes.
class GroupedConvolution {
  public:
    /// `pairs` asks for a unit that multiplies pairs of BF16.
    GroupedConvolution(const Convolution& of, GroupedResult makes, Isa isa, bool pairs, int threads);

    std::int64_t workspace_bytes() const;
    void run(const GroupedArguments& arguments, ThreadPool& pool) const;

  private:
    void plan_sums(Isa isa);
    void plan_filter_gradient(Isa isa);
    void run_sums(const GroupedArguments& arguments, ThreadPool& pool) const;
    void run_filter_gradient(const GroupedArguments& arguments, ThreadPool& pool) const;

    Convolution of_;
    GroupedResult makes_;
    const GroupedKernels& kernels_;
    bool pairs_;
    int threads_;
    std::vector<WindowPhase> row_phases_, column_phases_;
    GroupedSums sums_;
    GroupedFilterGradient gradient_;
    std::int64_t blocks_ = 0;          ///< of sixteen channels
    std::int64_t blocks_of_item_ = 0;  ///< done by a thread one after another
    std::int64_t rows_of_item_ = 0;
    std::int64_t scratch_floats_ = 0;  ///< of a thread
    std::int64_t shared_floats_ = 0;   ///< the packed filter, or the sums of parts
};

}  // namespace mantissa::on_cpu
