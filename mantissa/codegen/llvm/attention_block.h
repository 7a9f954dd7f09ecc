// What attention's kernels share: a block of threads has some rows, queries or keys, in registers, and goes
// over the columns, keys or queries, a tile in shared memory at a time, of which the next is on its way. Each
// warp has rows of its own, so that only tiles are shared.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "mantissa/codegen/attention_kernel.h"
#include "mantissa/codegen/llvm/grid_thread.h"
#include "mantissa/codegen/llvm/matrix_code.h"

namespace mantissa::inline v0::codegen {

class AttentionBlock : OwnBuilder, protected MatrixCode {
  protected:
    AttentionBlock(llvm::Module& module, const std::string& name, const AttentionKernel& kernel,
                   std::size_t parameters);

    static constexpr int stages = 2;  ///< pairs of tiles: one is read while the next is on its way

    int rows_of_warp() const { return tiles_.rows_of_warp; }
    int columns() const { return tiles_.columns; }
    int head_size() const { return tiles_.head_size; }
    std::int64_t tile_bytes() const { return std::int64_t{tiles_.columns} * tiles_.pitch(); }
    std::int64_t rows_bytes() const { return std::int64_t{tiles_.rows()} * tiles_.pitch(); }
    /// Keys that a query of position 0 sees before it, where causal: query i sees keys up to i + these.
    std::int64_t keys_before() const { return kernel_.keys - kernel_.queries; }
    double to_binary() const;

    /// Which rows the block has, of `all` in each of `heads`; `last_first` where the last have the most to
    /// do.
    void take_rows(std::int64_t all, std::int64_t heads, bool last_first);

    llvm::Value* narrow(llvm::Value* x);
    llvm::Value* smaller(llvm::Value* a, llvm::Value* b);
    llvm::Value* larger(llvm::Value* a, llvm::Value* b);

    /// Rows of a head from a position on.
    Rows rows(std::size_t tensor, const HeadPlaces& places, llvm::Value* head, llvm::Value* position);
    Rows rows(const Rows& from, std::int64_t all, llvm::Value* position, llvm::Value* tile, int count);
    llvm::Value* tile_of_stage(llvm::Value* number, int which);
    /// The warp's own rows of a tile, in registers.
    Operand held(llvm::Value* tile);

    /// For each of a thread's rows: its number, and where its elements are in sums of `columns` columns.
    struct ThreadRow {
        int behind = 0;                     ///< the warp's first row and t / 4
        std::vector<std::size_t> elements;  ///< two of each 8 columns
    };
    std::vector<ThreadRow> thread_rows(int columns_of_sums) const;
    /// i32
    llvm::Value* number_of(const ThreadRow& row);
    /// Of element 0 of a row in a tile.
    llvm::Value* first_column_of_lane();
    static int column_of(std::size_t element) { return static_cast<int>(element / 2 * 8 + element % 2); }

    // Where rows are queries.
    llvm::Value* first_key(llvm::Value* tile);
    /// -infinity where a query does not see a key.
    Sums hidden_by_keys(const Sums& scores, llvm::Value* tile_first);
    llvm::Value* key_tiles_of_rows();
    /// Whether any of the warp's queries sees any key of the tile.
    llvm::Value* sees_tile(llvm::Value* tile_first);
    /// Begins to bring in tiles of keys and values.
    void bring_keys(std::size_t k, std::size_t v, llvm::Value* number);

    /// Goes over tiles: `bring` begins to bring one in, `body` computes where `has_work`.
    Values over_tiles(llvm::Value* count, const Values& start, const std::function<void(llvm::Value*)>& bring,
                      const std::function<llvm::Value*(llvm::Value*)>& has_work,
                      const std::function<Values(llvm::Value*, const Values&)>& body);

    /// Writes the warps' sums over head size to a tensor, by way of the pool.
    void write(const Sums& sums, std::size_t tensor, const HeadPlaces& places, std::int64_t all);
    Sums scaled(Sums sums, llvm::Value* by);
    /// Where the FP32 number of a query stands in [B, H, T].
    llvm::Value* of_query(llvm::Value* base, llvm::Value* row);
    void for_its_first_thread(llvm::Value* row, const std::function<void()>& body);
    void store_f32(llvm::Value* value, llvm::Value* at);

    const AttentionKernel& kernel_;
    AttentionTiles tiles_;
    llvm::GlobalVariable* pool_ = nullptr;
    // i64: the block's head among all of its kind, its sequence, its head in it, its first row.
    llvm::Value *head_of_all_ = nullptr, *sequence_ = nullptr, *head_ = nullptr, *first_ = nullptr;
    // i32: the warp's first row in the block and among all.
    llvm::Value *own_row_ = nullptr, *warp_first_ = nullptr;
};

}  // namespace mantissa::codegen
