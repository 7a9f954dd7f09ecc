// Numbers rounded to the values of a format below sixteen bits that share scales, as kernels of a GPU: plain
// data. numerics/short_formats.h defines rounding; the bits are the CPU's
// (device/cpu/modes/block_rounding.h).
#pragma once

#include <cstdint>
#include <string>

#include "mantissa/numerics/dtype.h"
#include "mantissa/numerics/short_formats.h"

namespace mantissa::inline v0::codegen {

/// x [outer, depth, inner] -> its values, bf16. Parameters: x; y, or the largest magnitudes; by a rule with a
/// scale for the tensor the scale f32; where rounding is random, seed and step i64.
struct RoundingKernel {
    /// Numbers of a block, which share a scale.
    enum class Block : std::uint8_t {
        none,    ///< numbers have the tensor's scale alone
        along,   ///< they lie side by side: inner is 1
        across,  ///< one below another
        square,  ///< as many rows, of the depth, as columns
    };
    DType from = DType::f32;  ///< f32 or bf16
    std::int64_t outer = 1, depth = 1, inner = 1;
    Block lies = Block::none;
    std::int64_t block = 1;  ///< numbers along an axis; the last block may be shorter
    bool hadamard = false;   ///< whole blocks, of `hadamard_size`, are turned before
    bool random = false;     ///< blocks are of `hadamard_size`, as numbers that share a block of Philox lie
    std::int64_t operation = 0;  ///< tells its random numbers from other operations'
    ScaleRule rule = ScaleRule::up;
    ShortFormat element = ShortFormat::e4m3;
    /// Nothing is rounded. Each block of threads gives the largest magnitude of its numbers as i32 bits;
    /// infinities and NaN have the largest.
    bool finds_largest = false;
    /// Values go to bytes of FP8: to y by rows, and behind them the transpose. Blocks are `across`, whole,
    /// and of 16 or 32.
    bool fp8 = false;
    bool askew = false;  ///< x and y begin at any of their elements

    std::int64_t elements() const { return outer * depth * inner; }
    /// Numbers of a row that a thread has: neighbours, but `spread` ones lie `hadamard_size` apart.
    std::int64_t columns_of_thread() const;
    bool spread() const { return random && lies == Block::across; }
    /// Whether a thread has numbers of four blocks of a line.
    bool has_four_blocks() const { return random && lies == Block::along; }
    /// Whether a thread's numbers all exist, at a multiple of their bytes or of 16: moved in few pieces.
    bool in_pieces() const;
    std::int64_t rows_of_thread() const;
    /// Threads that share a scale: a power of two.
    std::int64_t threads_of_scale() const;
    /// Threads side by side in a row of a square.
    std::int64_t threads_of_row() const;
    /// Places of threads that share no scale, along the depth and behind.
    std::int64_t blocks_deep() const;
    std::int64_t blocks_beside() const;
    std::int64_t threads() const;
};

/// The tensor's scale by the largest of so many largest magnitudes. Parameters: the magnitudes' bits, i32
/// [parts]; where `given`, f32, a magnitude that is taken for the scale in their place; the scale, which is
/// the factor of products, and the largest magnitude, f32. One block of threads.
struct TensorScaleKernel {
    ScaleRule rule = ScaleRule::tensor;
    ShortFormat element = ShortFormat::e4m3;
    std::int64_t parts = 1;
    bool given = false;
};

std::string text_of(const RoundingKernel& kernel);
std::string text_of(const TensorScaleKernel& kernel);

}  // namespace mantissa::codegen
