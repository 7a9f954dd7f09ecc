// The exchanges of ranks as operations of the graph, alike on every device: the copies, and the place of
// each rank's bytes. The device moves the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "mantissa/device/device.h"

namespace mantissa::inline v0 {

/// [rank][tensor]
using BytesByRank = std::vector<std::vector<std::span<std::byte>>>;

/// The ranks among which a device is one, and its way to move bytes.
struct DeviceExchange {
    int ranks = 1, rank = 0;
    std::string name;  ///< of its kernels
    std::function<void(std::byte* to, const std::byte* from, std::int64_t bytes)> copy;
    std::function<void(std::byte* to, std::int64_t bytes)> zero;
    /// False for the only rank, and in a look that a rank takes alone: nothing is exchanged then.
    std::function<bool()> has_others;
    std::function<void(int sum)> wait;
    /// Begins to bring each rank's parts to all ranks.
    std::function<void(int sum, const BytesByRank& by_rank)> gather;
};

/// The number of the sum that an exchange is.
int sum_of(const Problem& problem);
/// Every output over its operand.
std::vector<std::vector<int>> each_over_its_operand(const Problem& problem);
std::vector<std::int64_t> bytes_of(std::span<const Type> types);
/// Copies operands that do not lie where they are wanted.
void copy_to_outputs(const DeviceExchange& exchange, const Operands& operands,
                     std::span<const std::int64_t> bytes);

/// Why a problem is not for so many ranks; empty if it is.
std::string refuse_ranks(const Problem& problem, int ranks);

using PrepareExchange = std::function<PreparedKernel(const Problem&)>;
/// The kernel where a problem is one of as many ranks as the device is one of.
Kernel kernel_among_ranks(const DeviceExchange& exchange, PrepareExchange prepare);

/// Adds all exchanges; sums begin as the device says.
void add_exchanges(std::map<std::string, std::vector<Kernel>, std::less<>>& table,
                   const DeviceExchange& exchange, PrepareExchange all_reduce_start,
                   PrepareExchange reduce_scatter_start);

}  // namespace mantissa
