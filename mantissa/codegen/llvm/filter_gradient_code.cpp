// Gradients of filters on matrix units. A warp's sums over places are products of pixels and dy. They differ
// from tap to tap in the pixels alone, which lie elsewhere in the stage.
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/IntrinsicsNVPTX.h>
#include <llvm/IR/Module.h>

#include <algorithm>

#include "mantissa/codegen/llvm/emit.h"
#include "mantissa/codegen/llvm/grid_thread.h"
#include "mantissa/codegen/llvm/matrix_code.h"

namespace mantissa::inline v0::codegen {

namespace {

using llvm::Value;

constexpr int channels_of_warp = FilterGradientKernel::channels_of_warp,
              filters_of_warp = FilterGradientKernel::filters_of_warp;
/// One load of matrices of dy.
constexpr int terms_at_once = 16, filters_at_once = 16;
static_assert(32 * FilterGradientKernel::warps == grid_threads);

class FilterGradientCode : OwnBuilder, MatrixCode {
  public:
    FilterGradientCode(llvm::Module& module, const std::string& name, const FilterGradientKernel& kernel)
        : OwnBuilder(module),
          MatrixCode(module, *own_builder, {name, 3, grid_threads},
                     {.dtype = kernel.dtype, .pitch = static_cast<int>(kernel.row_bytes()), .aligned = true}),
          kernel_(kernel),
          of_(kernel.of),
          stage_(kernel.stage()),
          places_(static_cast<int>(stage_.places)),
          pixels_(static_cast<int>(stage_.pixels)),
          taps_(static_cast<int>(kernel.tap_rows() * of_.horizontal.filter)),
          stage_bytes_(stage_.rows() * kernel.row_bytes()) {}

    void run() {
        pool_ = shared_bytes("stages", stage_.buffers * stage_bytes_);
        take_tile();
        Value* const end = b_.CreateMul(b_.CreateAdd(part_, integer(1)), integer(kernel_.stages_of_part()));
        Value* const first = b_.CreateMul(part_, integer(kernel_.stages_of_part()));
        Value* const last =
            b_.CreateSelect(is_less(end, integer(kernel_.stages())), end, integer(kernel_.stages()));
        const std::int64_t ahead = stage_.buffers - 1;
        for (std::int64_t i = 0; i < ahead; ++i) {
            Value* const stage = b_.CreateAdd(first, integer(i));
            if_then(is_less(stage, last), [&] { bring(stage); });
            end_copies();
        }
        store(control_.loop("stages", first, last, integer(1),
                            zeros(channels_of_warp * taps_, filters_of_warp),
                            [&](Value* stage, const Control::Values& before) {
                                wait_for_copies_before(static_cast<int>(ahead) - 1);
                                barrier();  // and the stage before has been read by all
                                return one_stage(stage, b_.CreateAdd(stage, integer(ahead)), last, before);
                            }));
        b_.CreateRetVoid();
    }

  private:
    /// A row of a stage: whether there is such a pixel or place, and its number among all.
    struct Pixel {
        Value *is_there, *number;  // i32
    };

    Value* narrow(Value* x) { return b_.CreateTrunc(x, b_.getInt32Ty()); }
    Value* is_below(Value* x, std::int64_t end) { return b_.CreateICmpULT(x, word(end)); }

    /// Half of the warps bring their part of a later stage behind their first products: so no unit waits
    /// while addresses are computed.
    Sums one_stage(Value* stage, Value* later, Value* last, const Sums& before) {
        Value* const has_later = is_less(later, last);
        const auto bring_if = [&](Value* own_turn) {
            if_then(b_.CreateAnd(has_later, own_turn), [&] { bring(later); });
        };
        Value* const is_early = is_below(warp_, FilterGradientKernel::warps / 2);
        bring_if(is_early);
        return multiplied(stage, before, [&] {
            bring_if(b_.CreateNot(is_early));
            end_copies();
        });
    }

    /// Neighbouring blocks read the same places.
    void take_tile() {
        Value* tile = b_.CreateURem(block_, integer(kernel_.tiles()));
        part_ = b_.CreateUDiv(block_, integer(kernel_.tiles()));
        const auto next = [&](std::int64_t count) {
            Value* const index = b_.CreateURem(tile, integer(count));
            tile = b_.CreateUDiv(tile, integer(count));
            return index;
        };
        filter_ = b_.CreateMul(next(kernel_.filter_tiles()), integer(kernel_.filter_tile()));
        channel_ = b_.CreateMul(next(kernel_.channel_tiles()), integer(kernel_.channel_tile()));
        tap_row_ = b_.CreateMul(tile, integer(kernel_.tap_rows()));
    }

    Value* buffer_of(Value* stage) {
        Value* const buffer = b_.CreateURem(narrow(stage), word(stage_.buffers));
        return b_.CreateGEP(b_.getInt8Ty(), pool_,
                            b_.CreateZExt(b_.CreateMul(buffer, word(stage_bytes_)), b_.getInt64Ty()));
    }

    /// Begins to copy dy's places of a stage, line by line, and behind them the rows of pixels.
    void bring(Value* stage) {
        Value* const buffer = buffer_of(stage);
        Value* const first = b_.CreateMul(narrow(stage), word(stage_.columns()));
        bring_rows(places_, buffer, {parameter(1), filter_, of_.filters, kernel_.filter_tile()},
                   [&](Value* row) {
                       Value* const column = b_.CreateURem(row, word(stage_.columns()));
                       return place(b_.CreateAdd(first, column), b_.CreateUDiv(row, word(stage_.columns())));
                   });
        bring_rows(static_cast<int>(stage_.pixel_rows) * pixels_,
                   bytes_behind(buffer, places_ * kernel_.row_bytes()),
                   {parameter(0), channel_, of_.channels, kernel_.channel_tile()}, [&](Value* row) {
                       Value* const behind = b_.CreateURem(row, word(pixels_));
                       return pixel(b_.CreateAdd(b_.CreateMul(first, word(of_.horizontal.stride)), behind),
                                    b_.CreateUDiv(row, word(pixels_)));
                   });
    }

    /// Numbers [pixels, columns], of them `tile` columns from one on.
    struct Matrix {
        Value *at, *first;
        std::int64_t columns, tile;
    };
    template <class PixelOf>
    void bring_rows(int rows, Value* tile, const Matrix& from, const PixelOf& pixel_of) {
        constexpr std::int64_t moved = FilterGradientKernel::moved;
        for_each_chunk(rows, static_cast<int>(from.tile / moved), [&](const Chunk& chunk) {
            Value* const row = b_.CreateAdd(chunk.row, integer(chunk.behind));
            const Pixel pixel = pixel_of(narrow(row));
            Value* const column = b_.CreateAdd(from.first, b_.CreateMul(chunk.column, integer(moved)));
            Value* const element = b_.CreateAdd(
                b_.CreateMul(b_.CreateZExt(pixel.number, b_.getInt64Ty()), integer(from.columns)), column);
            Value* is_there = pixel.is_there;
            if (from.columns % from.tile != 0)
                is_there = b_.CreateAnd(is_there, is_less(column, integer(from.columns)));
            Value* const to = b_.CreateGEP(b_.getInt8Ty(), tile,
                                           b_.CreateAdd(b_.CreateMul(chunk.row, integer(kernel_.row_bytes())),
                                                        b_.CreateMul(chunk.column, integer(2 * moved))));
            copy_in(bytes_behind(to, chunk.behind * kernel_.row_bytes()),
                    control_.at(from.at, element, kernel_.dtype), is_there);
        });
    }

    /// Column `at` of all, in one of the lines that are taken together.
    Pixel place(Value* at, Value* line_of_stage) {
        Value* const lines = b_.CreateMul(b_.CreateUDiv(at, word(kernel_.pitch())), word(stage_.lines));
        Value *const line = b_.CreateAdd(lines, line_of_stage), *const column =
                                                                    b_.CreateURem(at, word(kernel_.pitch()));
        return {b_.CreateAnd(is_below(line, kernel_.lines()), is_below(column, of_.horizontal.output)),
                b_.CreateAdd(b_.CreateMul(line, word(of_.horizontal.output)), column)};
    }

    /// Column `at` of all, in one of the rows of pixels. There is a line more, before the first, for the
    /// pixels before column 0.
    Pixel pixel(Value* at, Value* row_of_stage) {
        const std::int64_t pitch = kernel_.pitch() * of_.horizontal.stride,
                           lines_of_image = of_.vertical.output / stage_.lines;
        at = b_.CreateAdd(at, word(pitch - of_.horizontal.before));
        Value* const lines = b_.CreateSub(b_.CreateUDiv(at, word(pitch)), word(1));
        Value* const column = b_.CreateURem(at, word(pitch));
        Value *const image = b_.CreateUDiv(lines, word(lines_of_image)), *const output = b_.CreateURem(
                                                                             lines, word(lines_of_image));
        Value* const tap = b_.CreateAdd(narrow(tap_row_), row_of_stage);
        Value* const row =
            b_.CreateSub(b_.CreateAdd(b_.CreateMul(output, word(stage_.lines * of_.vertical.stride)),
                                      b_.CreateMul(tap, word(of_.vertical.dilation))),
                         word(of_.vertical.before));
        Value* const is_inside =
            b_.CreateAnd(is_below(row, of_.vertical.image), is_below(column, of_.horizontal.image));
        Value* const row_of_all = b_.CreateAdd(b_.CreateMul(image, word(of_.vertical.image)), row);
        return {b_.CreateAnd(is_below(lines, kernel_.lines() / stage_.lines), is_inside),
                b_.CreateAdd(b_.CreateMul(row_of_all, word(of_.horizontal.image)), column)};
    }

    /// The warp's first channel and filter of the block's, and its share of the places.
    std::int64_t channel_warps() const { return kernel_.channel_tile() / channels_of_warp; }
    std::int64_t filter_warps() const { return kernel_.filter_tile() / filters_of_warp; }
    Value* channel_of_warp() {
        return b_.CreateMul(b_.CreateURem(warp_, word(channel_warps())), word(channels_of_warp));
    }
    Value* filter_of_warp() {
        Value* const behind = b_.CreateUDiv(warp_, word(channel_warps()));
        return b_.CreateMul(b_.CreateURem(behind, word(filter_warps())), word(filters_of_warp));
    }
    Value* share_of_warp() { return b_.CreateUDiv(warp_, word(channel_warps() * filter_warps())); }

    /// A tile from a row and a column on.
    Value* tile_from(Value* tile, Value* row, Value* column) {
        Value* const bytes =
            b_.CreateAdd(b_.CreateMul(row, word(kernel_.row_bytes())), b_.CreateMul(column, word(2)));
        return b_.CreateGEP(b_.getInt8Ty(), tile, b_.CreateZExt(bytes, b_.getInt64Ty()));
    }

    /// The first pixel of tap 0 for a place of the stage, or of a share that ends with the line.
    int pixel_of(int place) const {
        const auto columns = static_cast<int>(stage_.columns());
        return place / columns * pixels_ + place % columns * static_cast<int>(of_.horizontal.stride);
    }
    Value* pixel_of(Value* place) {
        Value *const line = b_.CreateUDiv(place, word(stage_.columns())), *const column = b_.CreateURem(
                                                                              place, word(stage_.columns()));
        return b_.CreateAdd(b_.CreateMul(line, word(pixels_)),
                            b_.CreateMul(column, word(of_.horizontal.stride)));
    }

    /// Sums of `filters_at_once` filters for all taps, then of the next filters.
    Sums multiplied(Value* stage, Sums sums, const std::function<void()>& behind_first) {
        const int places = places_ / static_cast<int>(kernel_.shares());
        Value *const tile = buffer_of(stage), *const first = b_.CreateMul(share_of_warp(), word(places));
        Value* const dy = tile_from(tile, first, filter_of_warp());
        Value* const x =
            tile_from(bytes_behind(tile, places_ * kernel_.row_bytes()), pixel_of(first), channel_of_warp());
        const auto stride = static_cast<int>(of_.horizontal.stride),
                   taps_of_row = static_cast<int>(of_.horizontal.filter),
                   dilation = static_cast<int>(of_.horizontal.dilation);
        const Extents extents{channels_of_warp * taps_, terms_at_once, filters_at_once};
        for (int place = 0; place < places; place += terms_at_once) {
            std::vector<Fragment> pixels;
            for (int tap = 0; tap < taps_; ++tap)
                pixels.push_back(fragment_of_columns(
                    x, tap / taps_of_row * pixels_ + tap % taps_of_row * dilation + pixel_of(place), stride));
            auto some = sums.begin();
            for (int filter = 0; filter < filters_of_warp; filter += filters_at_once) {
                Sums added(some, some + std::ssize(sums) * filters_at_once / filters_of_warp);
                multiply(
                    {{added, extents, [&](int tap, int) { return pixels[static_cast<std::size_t>(tap)]; },
                      bytes_behind(dy, place * kernel_.row_bytes() + 2 * filter), TileHas::rows}});
                some = std::ranges::copy(added, some).out;
                if (place == 0 && filter == 0) behind_first();
            }
        }
        return sums;
    }

    void store(const Sums& sums) {
        const std::int64_t of_tap = of_.channels * of_.filters;
        Value* const tap = b_.CreateMul(tap_row_, integer(of_.horizontal.filter));
        Value* const sums_before = b_.CreateAdd(b_.CreateMul(part_, integer(kernel_.shares())),
                                                b_.CreateZExt(share_of_warp(), b_.getInt64Ty()));
        Value* const taps_before = b_.CreateAdd(
            b_.CreateMul(sums_before, integer(of_.vertical.filter * of_.horizontal.filter)), tap);
        const auto in_block = [&](Value* first, Value* of_warp, Value* of_lane) {
            return b_.CreateAdd(first, b_.CreateZExt(b_.CreateAdd(of_warp, of_lane), b_.getInt64Ty()));
        };
        Value* const channel = in_block(channel_, channel_of_warp(), b_.CreateLShr(lane_, 2));
        Value* const filter =
            in_block(filter_, filter_of_warp(), b_.CreateMul(b_.CreateAnd(lane_, word(3)), word(2)));
        Value* const place =
            b_.CreateAdd(b_.CreateMul(b_.CreateAdd(b_.CreateMul(taps_before, integer(of_.channels)), channel),
                                      integer(of_.filters)),
                         filter);
        Value* const at = control_.at(parameter(2), place, DType::f32);
        constexpr int eights = filters_at_once / 8;
        for (const int half : {0, 1})
            for (int eight = 0; eight < filters_of_warp / 8; ++eight)
                if_then(
                    b_.CreateAnd(is_less(channel, integer(of_.channels - 8 * half)),
                                 is_less(filter, integer(of_.filters - 8 * eight))),
                    [&] {
                        for (int i = 0; i < taps_; ++i)
                            store_two(
                                sums,
                                static_cast<std::size_t>(
                                    4 * ((eight / eights * taps_ + i) * eights + eight % eights) + 2 * half),
                                bytes_behind(at, 4 * (i * of_tap + 8 * half * of_.filters + 8 * eight)));
                    });
    }

    void store_two(const Sums& sums, std::size_t first, Value* at) {
        Value* two = llvm::PoisonValue::get(llvm::FixedVectorType::get(b_.getFloatTy(), 2));
        for (const unsigned which : {0u, 1u}) two = b_.CreateInsertElement(two, sums[first + which], which);
        b_.CreateAlignedStore(two, at, llvm::Align(8));
    }

    const FilterGradientKernel& kernel_;
    const Convolution& of_;
    FilterGradientStage stage_;
    int places_, pixels_, taps_;  // of a stage, of a row there, of a block
    std::int64_t stage_bytes_;
    Value* pool_ = nullptr;
    Value *part_ = nullptr, *filter_ = nullptr, *channel_ = nullptr,
          *tap_row_ = nullptr;  // the block's first
};

}  // namespace

void emit(llvm::Module& module, const std::string& name, const FilterGradientKernel& kernel) {
    FilterGradientCode(module, name, kernel).run();
}

}  // namespace mantissa::codegen
