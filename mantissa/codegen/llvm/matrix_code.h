// Products of small matrices by a GPU's matrix units, out of tiles in shared memory: mma.sync of 16 rows, 8
// columns and 16 terms in BF16 or FP16, summed in FP32 (PTX ISA, "Matrix fragments for mma.m16n8k16").
//
// A tile has rows of 16-bit numbers, `pitch` bytes apart. A warp has sums of 16 rows and 8 columns. Its
// thread t has rows t / 4 and t / 4 + 8, columns 2 (t % 4) and the next.
#pragma once

#include <array>
#include <functional>
#include <vector>

#include "mantissa/codegen/llvm/gpu_code.h"

namespace mantissa::inline v0::codegen {

class MatrixCode : public GpuCode {
  public:
    struct Format {
        DType dtype = DType::bf16;
        int head_size = 0;     ///< numbers of a row in global memory
        int columns = 0;       ///< of a row in shared memory, a multiple of 16: filled up with zeros
        int pitch = 0;         ///< bytes
        bool aligned = false;  ///< rows begin at multiples of 16 bytes, and have as many
        /// Products are wgmma.mma_async's, for four warps at a time, out of tiles that are swizzled.
        bool warpgroups = false;
    };
    MatrixCode(llvm::Module& module, llvm::IRBuilderBase& builder, const GpuFunction& function,
               const Format& format);

  protected:
    using Values = std::vector<llvm::Value*>;
    /// Registers of a thread that hold its part of 16 rows of 16 numbers.
    using Fragment = std::array<llvm::Value*, 4>;
    /// Gives rows [16 i, 16 i + 16) and columns [16 j, 16 j + 16) of the left operand.
    using Operand = std::function<Fragment(int i, int j)>;
    /// FP32: for each 16 rows, for each 8 columns, two of row t / 4 and two of row t / 4 + 8.
    using Sums = Values;

    /// Rows of global memory and a tile for them.
    struct Rows {
        llvm::Value* at = nullptr;    ///< the first row, global
        std::int64_t position = 0;    ///< elements from one to the next
        llvm::Value* left = nullptr;  ///< i64: how many rows there are; others are zeros in the tile
        llvm::Value* tile = nullptr;  ///< shared
        int count = 0;
        /// 64 columns of all rows after the other, in rows of 128 bytes whose 16-byte pieces change places:
        /// in row r each stands at its number xor r % 8 (PTX ISA, "Shared Memory Matrix Layout").
        bool swizzled = false;
    };
    /// Begins to copy rows into a tile, by all threads of the block. They are there for all once each thread
    /// has waited and come to a barrier.
    void copy_in(const Rows& rows);
    /// Copies 16 bytes of a thread; zeros where they are not there.
    void copy_in(llvm::Value* to, llvm::Value* from, llvm::Value* is_there);
    void wait_for_copies();
    /// Ends a group of copies; waits for all groups of the thread but the last ones.
    void end_copies();
    void wait_for_copies_before(int last_groups);
    /// Copies rows of a tile to global memory.
    void copy_out(const Rows& rows);

    struct Chunk {
        llvm::Value *row = nullptr, *column = nullptr;  ///< i64
        std::int64_t behind = 0;  ///< rows, to be added: known, so that they take no register of their own
    };
    /// Shares out pieces of `moved_bytes` among all threads of the block.
    void for_each_chunk(int rows, int chunks_of_row, const std::function<void(const Chunk&)>& body);

    llvm::Value* tile_row(llvm::Value* tile, llvm::Value* row);
    llvm::Value* bytes_behind(llvm::Value* address, std::int64_t bytes);

    Sums zeros(int rows, int columns);
    /// 16 rows and columns of a tile, from row and column on.
    Fragment fragment(llvm::Value* tile, int row, int column);
    /// The fragment of a tile that stores it as columns: 16 rows of the tile from one on, `apart` from one to
    /// the next, are columns of the operand, and its first 16 columns are rows.
    Fragment fragment_of_columns(llvm::Value* tile, int row, int apart);
    /// sums [16 I, n] += a [16 I, 16 J] b, by warpgroups 16 rows a warp: of b a tile has the n columns as
    /// rows of 16 J numbers, or the 16 J rows of n numbers.
    enum class TileHas : std::uint8_t { columns, rows };
    struct Extents {
        int rows = 0, terms = 0, columns = 0;
    };
    struct Product {
        Sums& sums;
        Extents extents;
        Operand a;
        llvm::Value* tile;
        TileHas has;
    };
    /// Multiplies several products that do not wait for one another.
    void multiply(const std::vector<Product>& products);
    /// Sums [16 I, 16 J] rounded to the format, as a left operand.
    Operand rounded(const Sums& sums, int columns);
    /// Writes sums [16 I, columns], rounded, to a tile, from the warp's own row on.
    void put(const Sums& sums, int columns, llvm::Value* tile, llvm::Value* first_row);

    llvm::Value* word(std::int64_t value);
    llvm::Value* number(double value);
    llvm::Value* fma(llvm::Value* a, llvm::Value* b, llvm::Value* c);
    llvm::Value* exp2(llvm::Value* x);
    /// Reduces over the four threads that share rows.
    llvm::Value* across_row(llvm::Value* x, bool maximum);

    Format format_;
    int threads_ = 0;
    llvm::Value *warp_ = nullptr, *lane_ = nullptr;  ///< i32

  private:
    llvm::Value* offset_of(llvm::Value* row, llvm::Value* column_of_eight);
    llvm::Value* by_columns(int apart);
    Fragment load_matrices(llvm::Value* tile, llvm::Value* of_lane, std::int64_t bytes, bool transposed);
    std::array<llvm::Value*, 4> multiplied(const Fragment& a, llvm::Value* b0, llvm::Value* b1,
                                           const std::array<llvm::Value*, 4>& sums);
    void multiply_by_warps(const Product& product);
    // warpgroup_code.cpp
    void multiply_by_warpgroups(const std::vector<Product>& products);
    llvm::Value* descriptor_of(const Product& product, int step);
    /// Shows the thread's writes to shared memory to the unit that multiplies.
    void show_to_warpgroups();
    llvm::Value* packed(llvm::Value* low, llvm::Value* high);
    llvm::Value* as_operand(llvm::Value* bits);

    llvm::Value *by_rows_ = nullptr,
                *by_columns_ = nullptr;  ///< where a lane points to for ldmatrix, in bytes
};

}  // namespace mantissa::codegen
