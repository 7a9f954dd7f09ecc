// Code that attention's kernels share. A block of threads has some rows, queries or keys, in registers. It
// goes over the columns, keys or queries, a tile in shared memory at a time, and fetches the next tile
// meanwhile. Each warp has rows of its own, so that only tiles are shared.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "mantissa/codegen/attention_kernel.h"
#include "mantissa/codegen/llvm/body_values.h"
#include "mantissa/codegen/llvm/grid_thread.h"
#include "mantissa/codegen/llvm/matrix_code.h"

namespace mantissa::inline v0::codegen {

class AttentionBlock : OwnBuilder, protected MatrixCode {
  protected:
    AttentionBlock(llvm::Module& module, const std::string& name, const AttentionKernel& kernel);

    static constexpr int stages = 2;  ///< pairs of tiles: one is read while the next is on its way

    int rows_of_warp() const { return tiles_.rows_of_warp; }
    int columns() const { return tiles_.columns; }
    int head_size() const { return tiles_.head_size; }
    std::int64_t tile_bytes() const {
        return std::int64_t{tiles_.columns} * (format_.warpgroups ? 2 * tiles_.head_size : tiles_.pitch());
    }
    std::int64_t rows_bytes() const { return std::int64_t{tiles_.rows()} * tiles_.pitch(); }
    /// Keys that query 0 sees behind key 0, where causal: query i sees keys up to i + these.
    std::int64_t keys_before() const { return kernel_.keys - kernel_.queries; }
    /// Scores that a function made are natural logarithms already; others wait for the scale.
    double scale_left() const { return remakes() ? 1 : kernel_.scale; }
    double to_binary() const;

    /// Takes the block's rows, of `all` in each of `heads`; `last_first` where the last have the most work.
    void take_rows(std::int64_t all, std::int64_t heads, bool last_first);

    llvm::Value* narrow(llvm::Value* x);
    llvm::Value* smaller(llvm::Value* a, llvm::Value* b);
    llvm::Value* larger(llvm::Value* a, llvm::Value* b);

    /// Rows of a head from a position on.
    Rows rows(std::size_t tensor, const HeadPlaces& places, llvm::Value* head, llvm::Value* position);
    Rows rows(const Rows& from, std::int64_t all, llvm::Value* position, llvm::Value* tile, int count);
    /// Begins to bring in a tile of columns, from a position on.
    void bring_tile(const Rows& from, std::int64_t all, llvm::Value* position, llvm::Value* tile);
    llvm::GlobalVariable* shared_pool(std::int64_t bytes);
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
    /// The lane's column of element 0 of a row in a tile.
    llvm::Value* first_column_of_lane();
    static int column_of(std::size_t element) { return static_cast<int>(element / 2 * 8 + element % 2); }

    // Scores.
    bool remakes() const { return kernel_.score && kernel_.score->remade; }
    bool masks() const { return kernel_.score && kernel_.score->mask; }
    struct Remade {
        Sums scores;
        Sums slopes = {}, multipliers = {};  ///< empty: all are 1
    };
    /// The function's result on products of a tile, whose first column this is; `head`: of the queries.
    Remade remade(const Sums& products, llvm::Value* tile_first, llvm::Value* head);
    /// Adds the contributions of pairs to the gradients that this kernel makes. `cotangents`: of the new
    /// scores, 0 where hidden. `rows`: for each gradient by rows a sum for each of the thread's rows.
    void add_score_gradients(const Sums& products, const Sums& cotangents, llvm::Value* tile_first,
                             llvm::Value* head, std::span<llvm::Value*> rows);
    std::size_t row_sums_of_thread() const;
    /// Gradients of scaled scores, from gradients of new scores.
    Sums through_slopes(Sums gradients, const Sums& slopes);
    /// Writes the sums of add_score_gradients. `all`: rows of a head.
    void write_row_sums(std::span<llvm::Value* const> rows, std::int64_t all);
    /// The scores of a tile after the mask, by the part's byte of its word.
    Sums hidden_by_mask(const Sums& scores, llvm::Value* tile_first, llvm::Value* head, llvm::Value* sees);

    // Tiles.
    struct Tile {
        llvm::Value* number = nullptr;  ///< i64: how many tiles came before it
        llvm::Value* place = nullptr;   ///< i64: its number among all
        llvm::Value* sees = nullptr;    ///< i32: SeenTilesKernel's word of it; null: no mask
    };
    struct TileWork {
        llvm::Value* count = nullptr;  ///< i64
        /// Begins to bring in a tile.
        std::function<void(const Tile&)> bring;
        /// Whether the warp's part has work at a tile, where there is no mask.
        std::function<llvm::Value*(llvm::Value* place)> has_work;
        /// The head of queries and the tile of columns at a place, i64.
        std::function<std::pair<llvm::Value*, llvm::Value*>(llvm::Value* place)> seen_at;
        std::function<Values(const Tile&, const Values&)> body;
    };
    /// Begins to bring in the first tile.
    void begin_tiles(const TileWork& work);
    Values over_tiles(const TileWork& work, const Values& start);

    // For rows that are queries.
    /// -infinity where a query does not see a key.
    Sums hidden_by_keys(const Sums& scores, llvm::Value* tile_first);
    llvm::Value* key_tiles_of_rows();
    /// Whether any query of the warp's part sees any key of the tile.
    llvm::Value* sees_tile(llvm::Value* tile_first);
    /// Begins to bring in tiles of keys and values.
    void bring_keys(std::size_t k, std::size_t v, const Tile& tile);
    /// The tiles of keys that the block's queries may see.
    TileWork key_tiles(std::size_t k, std::size_t v,
                       const std::function<Values(const Tile&, const Values&)>& body);

    /// Writes the warps' sums over head size to a tensor, by way of the pool.
    void write(const Sums& sums, std::size_t tensor, const HeadPlaces& places, std::int64_t all);
    Sums scaled(Sums sums, llvm::Value* by);
    /// Where the FP32 number of a query stands in [B, H, T].
    llvm::Value* of_query(llvm::Value* base, llvm::Value* row);
    void for_its_first_thread(llvm::Value* row, const std::function<void()>& body);
    void store_f32(llvm::Value* value, llvm::Value* at);

    const AttentionKernel& kernel_;
    AttentionTiles tiles_;
    std::size_t of_score_ = 0;  ///< the first parameter that the score needs
    llvm::GlobalVariable* pool_ = nullptr;
    // i64: the block's head among all of its kind, its sequence, its head in it, its first row.
    llvm::Value *head_of_all_ = nullptr, *sequence_ = nullptr, *head_ = nullptr, *first_ = nullptr;
    // i32: the warp's first row in the block and among all, and its part's first row among all.
    llvm::Value *own_row_ = nullptr, *warp_first_ = nullptr, *part_first_ = nullptr;

  private:
    bool rows_are_queries() const { return kernel_.makes != AttentionKernel::Makes::key_gradients; }
    PairSite site_of(llvm::Value* tile_first, llvm::Value* head);
    PairValues::Pair pair_of(std::size_t row, std::size_t column, llvm::Value* score) const;
    Values score_operands();
    std::size_t first_gradient() const;
    void store_of_pair(const PairScore::Gradient& gradient, const PairSite& site,
                       const PairValues::Pair& pair, llvm::Value* value, llvm::Value* to);
    llvm::Value* part();

    /// A tile that a part sees pairs of.
    struct Seen {
        llvm::Value *place = nullptr, *word = nullptr;  ///< i64, i32
    };
    Seen next_seen(const TileWork& work, llvm::Value* from);
    Values over_seen_tiles(const TileWork& work, const Values& start);

    llvm::Value* row_tile_ = nullptr;  ///< i64: of the block
    Seen first_seen_;
};

}  // namespace mantissa::codegen
