// How the drivers of row kernels cut a problem into blocks, choose the stores, and check their
// arguments.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "mantissa/base/function_ref.h"
#include "mantissa/base/thread_pool.h"
#include "mantissa/device/cpu/rows/kernel_table.h"

namespace mantissa::inline v0::on_cpu {

/// About 256 KB of traffic: some 20 microseconds, long beside the cost of handing a block out, short beside
/// the time that a thread waits for a slower neighbour at the end.
inline constexpr std::int64_t block_bytes = 256 << 10;

/// Elements of a flat array in a block; a multiple of 16, so that blocks keep an array's alignment.
inline constexpr std::int64_t block_elements = 32 << 10;

/// Outputs of this size and more do not stay in L2 (1 to 2 MB a core) until they are read again.
inline constexpr std::int64_t streaming_bytes = 4 << 20;

/// How many rows of `bytes_per_row` make a block: from the shape alone.
std::int64_t rows_per_block(std::int64_t bytes_per_row);

inline constexpr std::int64_t float_bytes = sizeof(float);

/// Bytes of an element.
inline std::int64_t bytes_of(DType type) { return static_cast<std::int64_t>(size_of(type)); }

/// body(range, block) for each block of `per_block` in [0, total), on all threads.
void for_each_range(ThreadPool& pool, std::int64_t total, std::int64_t per_block,
                    FunctionRef<void(Range range, std::int64_t block)> body);

/// Adds `blocks` arrays of `width` sums, `width` apart in `partials`, in a fixed tree, into `sum`.
/// Overwrites `partials`.
void add_partial_sums(ThreadPool& pool, float* partials, std::int64_t blocks, std::int64_t width, float* sum);

/// Checks the arguments of a kernel, naming kernel and argument in an InternalError.
class ProblemCheck {
  public:
    explicit ProblemCheck(const char* kernel) : kernel_(kernel) {}

    /// At least 1.
    ProblemCheck& size(const char* name, std::int64_t value);
    ProblemCheck& input(const char* name, const void* data, std::int64_t bytes);
    ProblemCheck& input(const char* name, ConstView view, std::int64_t elements);
    ProblemCheck& output(const char* name, void* data, std::int64_t bytes);
    ProblemCheck& output(const char* name, View view, std::int64_t elements);
    ProblemCheck& same_type(const char* name, DType type, DType wanted);
    ProblemCheck& that(bool holds, const char* promise);

    /// Throws if an output overlaps an input otherwise than exactly, or another output at all. `automatic`
    /// becomes streaming where the outputs are large and none is in place; in place is never streamed.
    Stores finish(Stores wanted = Stores::plain) const;

  private:
    struct Extent {
        const char* name;
        const char* begin;
        std::int64_t bytes;
    };
    [[noreturn]] void fail(const std::string& what) const;
    void add(std::array<Extent, 8>& to, int& count, Extent extent);

    const char* kernel_;
    std::array<Extent, 8> inputs_{};
    std::array<Extent, 8> outputs_{};
    int input_count_ = 0;
    int output_count_ = 0;
};

}  // namespace mantissa::on_cpu
