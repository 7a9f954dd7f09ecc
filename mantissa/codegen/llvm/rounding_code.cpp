// Rounding below sixteen bits by the steps of the CPU's kernel, one number at a time, so that the bits are
// its (device/cpu/modes/block_rounding_of_level.cpp).
//
// A thread has some rows of neighbours. Places behind the end of a block stand for its last ones, which
// changes no maximum; they are not stored twice by different threads.
#include <llvm/IR/Function.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/IntrinsicsNVPTX.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "mantissa/base/error.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/codegen/grid_kernel.h"
#include "mantissa/codegen/llvm/emit.h"
#include "mantissa/codegen/llvm/grid_thread.h"
#include "mantissa/codegen/llvm/random_code.h"

namespace mantissa::inline v0::codegen {

namespace {

using llvm::Value;
using Values = Control::Values;
using Lies = RoundingKernel::Block;

constexpr std::int64_t infinity_bits = 0x7f800000, magnitude_bits = 0x7fffffff, quiet_nan = 0x7fc00000;
constexpr float most = std::numeric_limits<float>::max();
/// Words of a block of Philox: draws of numbers that lie `hadamard_size` apart in a row.
constexpr std::int64_t words_of_block = 4;
/// Rows that a thread keeps in registers; of more it reads them twice.
constexpr std::int64_t kept_rows = 32;

std::int64_t bits_of(float x) { return std::bit_cast<std::int32_t>(x); }

/// Adding so much to a number's binade makes a number whose addition rounds to that many fraction bits.
std::int64_t magic_of(int fraction_bits) { return (std::int64_t{23 - fraction_bits} << 23) + (1 << 22); }

class RoundingCode : GridThread {
  public:
    RoundingCode(llvm::Module& module, const std::string& name, const RoundingKernel& kernel)
        : GridThread(module, name, parameters_of(kernel)),
          kernel_(kernel),
          limits_(limits_of(kernel.element)),
          columns_(kernel.columns_of_thread()) {}

    void run() {
        find_place();
        load_key();
        const std::int64_t rows = kernel_.rows_of_thread();
        if (kernel_.finds_largest) {
            Value* own = word(0);
            for (Value* const largest : largest_of(numbers(integer(0), rows), rows))
                own = larger(own, largest);
            Value* const all = largest_of_block(own);
            if_then(b_.CreateICmpEQ(thread_, integer(0)),
                    [&] { store(all, parameter(1), block_, DType::i32); });
        } else if (rows <= kept_rows) {
            const Values x = numbers(integer(0), rows);
            round_rows(integer(0), x, shares_of(joined(largest_of(x, rows))));
        } else {
            round_in_two_walks(rows);
        }
        b_.CreateRetVoid();
    }

  private:
    static std::size_t parameters_of(const RoundingKernel& kernel) {
        if (kernel.finds_largest) return 2;
        return 2 + (has_tensor_scale(kernel.rule) ? 1u : 0u) + (kernel.random ? 2u : 0u);
    }

    /// Some neighbours of the thread: [first, first + columns) of a line, which ends at `end`.
    struct Row {
        Value *line = nullptr, *first = nullptr, *end = nullptr;
        Value* there = nullptr;   ///< whether it is the thread's to store
        Value* number = nullptr;  ///< the line's among all, as random numbers are drawn
    };

    Value* smaller(Value* a, Value* b) { return b_.CreateSelect(is_less(a, b), a, b); }
    Value* times(Value* a, std::int64_t b) { return b_.CreateMul(a, integer(b)); }
    Value* plus(Value* a, Value* b) { return b_.CreateAdd(a, b); }

    /// The thread's part of the tensor.
    void find_place() {
        if (kernel_.lies == Lies::none) return;
        is_own_ = is_less(number_, integer(kernel_.threads()));
        Value* const own = smaller(number_, integer(kernel_.threads() - 1));
        at_ = indices_of(
            own, {kernel_.outer, kernel_.blocks_deep(), kernel_.blocks_beside(), kernel_.threads_of_scale()});
    }

    Row row(Value* which) {
        if (kernel_.lies == Lies::none) return row_of_tensor(which);
        Value* first = times(at_[1], kernel_.block);
        if (kernel_.has_four_blocks())
            first = times(plus(times(at_[1], words_of_block), which), kernel_.block);
        Value* const end = smaller(plus(first, integer(kernel_.block)), integer(kernel_.depth));
        if (kernel_.lies == Lies::along) {
            Row row{.line = times(at_[0], kernel_.depth),
                    .first = plus(first, times(at_[3], columns_)),
                    .end = end,
                    .number = at_[0]};
            row.there = b_.CreateAnd(is_own_, is_less(row.first, end));
            return row;
        }
        Value* below = plus(first, which);
        Row row{.first = times(at_[2], columns_), .end = integer(kernel_.inner), .there = is_own_};
        if (kernel_.spread())
            row.first =
                plus(times(b_.CreateUDiv(at_[2], integer(hadamard_size)), words_of_block * hadamard_size),
                     b_.CreateURem(at_[2], integer(hadamard_size)));
        if (kernel_.lies == Lies::square) {
            const std::int64_t beside = kernel_.threads_of_row();
            row.first =
                plus(times(at_[2], kernel_.block), times(b_.CreateURem(at_[3], integer(beside)), columns_));
            row.end = smaller(times(plus(at_[2], integer(1)), kernel_.block), row.end);
            below = plus(plus(first, b_.CreateUDiv(at_[3], integer(beside))),
                         times(which, kernel_.threads_of_scale() / beside));
            row.there = b_.CreateAnd(is_own_, b_.CreateAnd(is_less(row.first, row.end), is_less(below, end)));
        }
        row.number = plus(times(at_[0], kernel_.depth), smaller(below, b_.CreateSub(end, integer(1))));
        row.line = times(row.number, kernel_.inner);
        return row;
    }

    Row row_of_tensor(Value* which) {
        const std::int64_t of_block = kernel_.rows_of_thread() * columns_ * grid_threads;
        Row row{.line = integer(0), .end = integer(kernel_.elements()), .number = integer(0)};
        row.first = plus(plus(times(block_, of_block), times(which, columns_ * grid_threads)),
                         times(thread_, columns_));
        row.there = is_less(row.first, row.end);
        return row;
    }

    /// The place of a row's column, or of one that stands for it where it is behind the end.
    Value* own_column(const Row& row, std::int64_t i) {
        return plus(row.first, integer(kernel_.spread() ? i * hadamard_size : i));
    }
    Value* column(const Row& row, std::int64_t i) {
        return smaller(own_column(row, i), b_.CreateSub(row.end, integer(1)));
    }
    Value* start_of_pieces(const Row& row) {
        return plus(row.line, smaller(row.first, b_.CreateSub(row.end, integer(columns_))));
    }

    // Memory.

    /// Calls `visit(first word, words, address)` for each piece of so many bytes an access, at most 16.
    void for_each_piece(Value* base, Value* start, DType dtype,
                        const std::function<void(std::int64_t, llvm::Type*, Value*, llvm::Align)>& visit) {
        const auto size = static_cast<std::int64_t>(size_of(dtype));
        const std::int64_t words = columns_ * size / 4, at_once = std::min<std::int64_t>(words, 4);
        llvm::Type* const type =
            at_once == 1 ? static_cast<llvm::Type*>(b_.getInt32Ty())
                         : llvm::FixedVectorType::get(b_.getInt32Ty(), static_cast<unsigned>(at_once));
        for (std::int64_t first = 0; first < words; first += at_once)
            visit(first, type, control_.at(base, plus(start, integer(first * 4 / size)), dtype),
                  llvm::Align(static_cast<std::uint64_t>(at_once * 4)));
    }

    /// The numbers of a row, as FP32.
    Values numbers_of_row(const Row& row) {
        Values x;
        if (!kernel_.in_pieces()) {
            for (std::int64_t i = 0; i < columns_; ++i)
                x.push_back(load(parameter(0), plus(row.line, column(row, i)), kernel_.from));
            return x;
        }
        const auto add = [&](Value* bits) { x.push_back(b_.CreateBitCast(bits, b_.getFloatTy())); };
        for_each_piece(parameter(0), start_of_pieces(row), kernel_.from,
                       [&](std::int64_t, llvm::Type* type, Value* address, llvm::Align align) {
                           Value* const piece = b_.CreateAlignedLoad(type, address, align);
                           for (Value* const bits : words_of(piece)) {
                               if (kernel_.from == DType::f32) {
                                   add(bits);
                                   continue;
                               }
                               add(b_.CreateShl(bits, word(16)));
                               add(b_.CreateAnd(bits, word(std::int32_t{-0x10000})));
                           }
                       });
        return x;
    }
    Values words_of(Value* piece) {
        const auto* const vector = llvm::dyn_cast<llvm::FixedVectorType>(piece->getType());
        if (!vector) return {piece};
        Values words;
        for (unsigned i = 0; i < vector->getNumElements(); ++i)
            words.push_back(b_.CreateExtractElement(piece, i));
        return words;
    }

    void store_number(Value* y, Value* place) {
        b_.CreateAlignedStore(b_.CreateTrunc(b_.CreateLShr(y, word(16)), b_.getInt16Ty()),
                              control_.at(parameter(1), place, DType::bf16), llvm::Align(2));
    }

    /// FP32 bits whose lower halves are zero.
    void store_row(const Row& row, const Values& y) {
        if_then(row.there, [&] {
            if (!kernel_.in_pieces()) {
                // A place that stands for another had another draw.
                for (std::int64_t i = 0; i < columns_; ++i)
                    if_then(is_less(own_column(row, i), row.end), [&] {
                        store_number(y[static_cast<std::size_t>(i)], plus(row.line, column(row, i)));
                    });
                return;
            }
            for_each_piece(parameter(1), start_of_pieces(row), DType::bf16,
                           [&](std::int64_t first, llvm::Type* type, Value* address, llvm::Align align) {
                               const auto both = [&](std::int64_t i) {
                                   const auto at = static_cast<std::size_t>(2 * i);
                                   return b_.CreateOr(y[at + 1], b_.CreateLShr(y[at], word(16)));
                               };
                               Value* piece = both(first);
                               if (const auto* const vector = llvm::dyn_cast<llvm::FixedVectorType>(type)) {
                                   piece = llvm::PoisonValue::get(type);
                                   for (unsigned i = 0; i < vector->getNumElements(); ++i)
                                       piece = b_.CreateInsertElement(piece, both(first + i), i);
                               }
                               b_.CreateAlignedStore(piece, address, align);
                           });
        });
    }

    /// Rows from `first` on, one after the other, turned where they are.
    Values numbers(Value* first, std::int64_t rows) {
        Values x;
        for (std::int64_t i = 0; i < rows; ++i) {
            const Values of_row = numbers_of_row(row(plus(first, integer(i))));
            x.insert(x.end(), of_row.begin(), of_row.end());
        }
        if (kernel_.hadamard && kernel_.block == hadamard_size) turn(x);
        return x;
    }

    /// Along the depth, `hadamard` of numerics/short_formats.h; a shorter block stays as it is.
    void turn(Values& x) {
        const bool along = kernel_.lies == Lies::along;
        const std::int64_t lines = std::ssize(x) / hadamard_size, beside = along ? 1 : lines;
        for (std::int64_t n = 0; n < lines; ++n) {
            Value* const block =
                kernel_.has_four_blocks() ? plus(times(at_[1], words_of_block), integer(n)) : at_[1];
            Value* const whole =
                b_.CreateICmpSLE(times(plus(block, integer(1)), kernel_.block), integer(kernel_.depth));
            const auto place = [&](int i) {
                return static_cast<std::size_t>(along ? n * hadamard_size + i : i * beside + n);
            };
            Values line;
            for (int i = 0; i < hadamard_size; ++i) line.push_back(x[place(i)]);
            line = turned(std::move(line));
            for (int i = 0; i < hadamard_size; ++i)
                x[place(i)] = b_.CreateSelect(whole, line[static_cast<std::size_t>(i)], x[place(i)]);
        }
    }
    Values turned(Values x) {
        constexpr bool negative[hadamard_size] = {false, false, false, true,  false, true,  true, true,
                                                  true,  true,  true,  false, true,  false, true, true};
        for (std::size_t i = 0; i < x.size(); ++i)
            if (negative[i]) x[i] = b_.CreateFNeg(x[i]);
        for (std::size_t half = 1; half < x.size(); half *= 2)
            for (std::size_t i = 0; i < x.size(); ++i) {
                if (i & half) continue;
                Value *const a = x[i], *const b = x[i + half];
                x[i] = b_.CreateFAdd(a, b);
                x[i + half] = b_.CreateFSub(a, b);
            }
        for (Value*& each : x)
            each = lanes_.apply("cast", {b_.CreateFMul(each, number(0.25))}, DType::f32, DType::bf16);
        return x;
    }

    // Scales.

    std::size_t scales_of_thread() const {
        if (kernel_.has_four_blocks()) return words_of_block;
        return kernel_.lies == Lies::across ? static_cast<std::size_t>(columns_) : 1;
    }
    /// The scale of a number, by its row and column.
    std::size_t scale_of(std::int64_t row, std::int64_t column) const {
        return static_cast<std::size_t>(kernel_.has_four_blocks()      ? row
                                        : kernel_.lies == Lies::across ? column
                                                                       : 0);
    }

    /// The largest magnitude of the thread's numbers, for each of its scales.
    Values largest_of(const Values& x, std::int64_t rows) {
        Values all(scales_of_thread(), word(0));
        if (kernel_.lies == Lies::none && !kernel_.finds_largest) return all;
        check(std::ssize(x) == rows * columns_, "a thread has whole rows");
        for (std::int64_t i = 0; i < std::ssize(x); ++i) {
            Value*& largest = all[scale_of(i / columns_, i % columns_)];
            largest =
                larger(largest, b_.CreateAnd(bits(x[static_cast<std::size_t>(i)]), word(magnitude_bits)));
        }
        return all;
    }

    /// Joins the largest magnitudes of the threads that share a scale; all of these threads come here.
    Values joined(Values largest) {
        const std::int64_t threads = kernel_.threads_of_scale();
        for (Value*& own : largest) {
            if (threads > lanes_of_warp) {
                own = largest_of_block(own);
                continue;
            }
            for (std::int64_t distance = threads / 2; distance > 0; distance /= 2)
                own =
                    larger(own, b_.CreateIntrinsic(llvm::Intrinsic::nvvm_shfl_sync_bfly_i32, {},
                                                   {word(-1), own, word(distance), word(lanes_of_warp - 1)}));
        }
        return largest;
    }

    /// As the CPU's: numbers are rounded where they are, to a grid that a power of two scales.
    struct Share {
        Value *down = nullptr, *up = nullptr;  ///< null: 1
        Value *top = nullptr, *least = nullptr;
        Value* is_nan = nullptr;  ///< null: never
    };

    Value* float_of(Value* bits) { return b_.CreateBitCast(bits, b_.getFloatTy()); }

    std::vector<Share> shares_of(const Values& largest) {
        if (has_tensor_scale(kernel_.rule)) scale_ = load(parameter(2), integer(0), DType::f32);
        std::vector<Share> shares;
        for (Value* const of : largest) shares.push_back(share_of(of));
        return shares;
    }

    Share share_of(Value* largest) {
        const float min_normal = std::ldexp(1.0f, limits_.min_exponent);
        Share share{.top = number(static_cast<double>(limits_.max)), .least = word(bits_of(min_normal))};
        if (kernel_.rule == ScaleRule::tensor) {
            share.down = scale_;
            return share;
        }
        share.is_nan = b_.CreateICmpSGE(largest, word(infinity_bits));
        Value* const exponent = b_.CreateLShr(largest, word(23));
        Value* const is_zero = b_.CreateICmpEQ(exponent, word(0));
        if (kernel_.rule == ScaleRule::two_level) {
            Value* const flushed = float_of(b_.CreateSelect(is_zero, word(0), largest));
            Value* const sixth = b_.CreateFMul(scale_, number(static_cast<double>(1.0f / 6.0f)));
            share.up = to_grid(b_.CreateFMul(flushed, sixth), number(448), word(bits_of(0x1p-6f)),
                               magic_of(limits_of(ShortFormat::e4m3).fraction_bits));
            Value* const encode =
                b_.CreateFDiv(number(1), b_.CreateFMul(share.up, b_.CreateFDiv(number(1), scale_)));
            share.down = least_of(encode, number(static_cast<double>(most)));
            return share;
        }
        Value* const fraction =
            float_of(b_.CreateOr(b_.CreateAnd(largest, word(0x7fffff)), word(0x3f800000)));
        Value* const part = bits(b_.CreateFMul(fraction, number(static_cast<double>(1.0f / limits_.max))));
        Value* code = kernel_.rule == ScaleRule::floor
                          ? b_.CreateSub(exponent, word(limits_.max_exponent))
                          : b_.CreateAdd(b_.CreateSub(exponent, word(127)),
                                         b_.CreateAShr(b_.CreateAdd(part, word(0x7fffff)), word(23)));
        code = larger(code, word(0));
        code = b_.CreateSelect(b_.CreateICmpSLT(code, word(254)), code, word(254));
        code = b_.CreateSelect(is_zero, word(127), code);
        // Far from 1 the grid would leave the range: numbers are brought nearer first.
        Value* const is_small = b_.CreateAnd(b_.CreateNot(is_zero), b_.CreateICmpSLT(exponent, word(63)));
        Value* const shift = b_.CreateSelect(
            is_small, word(64), b_.CreateSelect(b_.CreateICmpSGT(exponent, word(191)), word(-64), word(0)));
        Value* const scale = b_.CreateShl(b_.CreateAdd(b_.CreateSub(code, word(127)), shift), word(23));
        const auto power = [&](Value* of) {
            return float_of(b_.CreateShl(b_.CreateAdd(of, word(127)), word(23)));
        };
        share.down = power(shift);
        share.up = power(b_.CreateNeg(shift));
        share.top = float_of(b_.CreateAdd(bits(share.top), scale));
        share.least = b_.CreateAdd(share.least, scale);
        return share;
    }

    // One number.

    /// A NaN becomes the limit.
    Value* least_of(Value* x, Value* limit) { return b_.CreateSelect(b_.CreateFCmpOLT(x, limit), x, limit); }
    Value* binade_of(Value* size, Value* least) {
        return larger(b_.CreateAnd(bits(size), word(infinity_bits)), least);
    }

    /// Adding and subtracting 1.5 x 2^23 units rounds to whole units, ties to even.
    Value* to_grid(Value* size, Value* top, Value* least, std::int64_t magic) {
        size = least_of(size, top);
        Value* const whole = float_of(b_.CreateAdd(binade_of(size, least), word(magic)));
        return b_.CreateFSub(b_.CreateFAdd(size, whole), whole);
    }

    /// Up with the probability of the distance from the lower value.
    Value* to_grid_at_random(Value* size, const Share& share, Value* draw) {
        size = least_of(size, share.top);
        Value* const unit =
            b_.CreateSub(binade_of(size, share.least), word(std::int64_t{limits_.fraction_bits} << 23));
        Value* const units = b_.CreateFMul(size, float_of(b_.CreateSub(word(std::int64_t{254} << 23), unit)));
        Value* const whole = b_.CreateSIToFP(b_.CreateFPToSI(units, b_.getInt32Ty()), b_.getFloatTy());
        Value* const goes_up = b_.CreateFCmpOLT(draw, b_.CreateFSub(units, whole));
        Value* const up = b_.CreateSelect(goes_up, number(1), number(0));
        return b_.CreateFMul(b_.CreateFAdd(whole, up), float_of(unit));
    }

    /// Its bits.
    Value* rounded(Value* x, const Share& share, Value* draw) {
        Value* const sign = b_.CreateAnd(bits(x), word(~magnitude_bits));
        Value* const scaled = share.down ? b_.CreateFMul(x, share.down) : x;
        Value* size = float_of(b_.CreateAnd(bits(scaled), word(magnitude_bits)));
        size = draw ? to_grid_at_random(size, share, draw)
                    : to_grid(size, share.top, share.least, magic_of(limits_.fraction_bits));
        if (share.up) size = b_.CreateFMul(size, share.up);
        Value* made = bits(size);
        if (share.is_nan) made = b_.CreateSelect(share.is_nan, word(quiet_nan), made);
        return b_.CreateOr(made, sign);
    }

    using Draws = std::array<Value*, words_of_block>;

    /// The draws of a block of Philox of a row: `rounding_bits`.
    Draws draws_of(const Row& row, Value* block) {
        const std::int64_t columns = kernel_.lies == Lies::along ? kernel_.depth : kernel_.inner;
        const std::int64_t blocks = ceil_div(columns, words_of_block * hadamard_size) * hadamard_size;
        Draws words = random_block(b_, lanes_, {.seed = seed_, .step = step_, .operation = kernel_.operation},
                                   plus(times(row.number, blocks), block));
        for (Value*& each : words) each = uniform_of_word(b_, lanes_, each);
        return words;
    }

    void load_key() {
        if (!kernel_.random) return;
        const std::size_t behind = parameters_of(kernel_) - 2;
        seed_ = load(parameter(behind), integer(0), DType::i64);
        step_ = load(parameter(behind + 1), integer(0), DType::i64);
    }

    /// The FP8 byte of a value, given by its FP32 bits, as 32 bits; NaN for a value that is not finite.
    Value* code_of(Value* y) {
        Value* const size = b_.CreateAnd(y, word(magnitude_bits));
        const int fraction = limits_.fraction_bits;
        Value* const normal = b_.CreateSub(b_.CreateLShr(size, word(23 - fraction)),
                                           word(std::int64_t{126 + limits_.min_exponent} << fraction));
        const double units = std::ldexp(1.0, fraction - limits_.min_exponent);
        Value* const small = b_.CreateFPToSI(b_.CreateFMul(float_of(size), number(units)), b_.getInt32Ty());
        Value* const is_small = b_.CreateICmpSLT(size, word(bits_of(std::ldexp(1.0f, limits_.min_exponent))));
        Value* const is_finite = b_.CreateICmpSLT(size, word(infinity_bits));
        Value* const code = b_.CreateSelect(is_finite, b_.CreateSelect(is_small, small, normal), word(0x7f));
        return b_.CreateOr(code, b_.CreateAnd(b_.CreateLShr(y, word(24)), word(0x80)));
    }

    /// A block's values, row after row: two bytes a row, and 16 at a time of the transpose.
    void store_fp8(const Values& y) {
        check(columns_ == 2, "a thread has two columns");
        Values codes;
        for (Value* const each : y) codes.push_back(code_of(each));
        const auto code = [&](std::int64_t r, std::int64_t c) {
            return codes[static_cast<std::size_t>(2 * r + c)];
        };
        const std::int64_t rows = std::ssize(y) / columns_;
        const auto address = [&](Value* byte) { return control_.at(parameter(1), byte, DType::u8); };
        if_then(is_own_, [&] {
            for (std::int64_t r = 0; r < rows; ++r) {
                Value* const both = b_.CreateOr(code(r, 0), b_.CreateShl(code(r, 1), word(8)));
                const Row of = row(integer(r));
                b_.CreateAlignedStore(b_.CreateTrunc(both, b_.getInt16Ty()), address(plus(of.line, of.first)),
                                      llvm::Align(2));
            }
            auto* const piece_type = llvm::FixedVectorType::get(b_.getInt32Ty(), 4);
            const Row top = row(integer(0));
            for (std::int64_t c = 0; c < columns_; ++c)
                for (std::int64_t first = 0; first < rows; first += 16) {
                    Value* piece = llvm::PoisonValue::get(piece_type);
                    for (std::int64_t i = 0; i < 4; ++i) {
                        Value* of_four = code(first + 4 * i, c);
                        for (std::int64_t k = 1; k < 4; ++k)
                            of_four =
                                b_.CreateOr(of_four, b_.CreateShl(code(first + 4 * i + k, c), word(8 * k)));
                        piece = b_.CreateInsertElement(piece, of_four, static_cast<std::uint64_t>(i));
                    }
                    Value* const column = times(plus(top.first, integer(c)), kernel_.depth);
                    b_.CreateAlignedStore(
                        piece, address(plus(plus(column, top.number), integer(kernel_.elements() + first))),
                        llvm::Align(16));
                }
        });
    }

    void round_rows(Value* first, const Values& x, const std::vector<Share>& shares) {
        std::vector<Draws> of_columns;  // one word of each for each of four blocks
        for (std::int64_t i = 0; kernel_.has_four_blocks() && i < columns_; ++i)
            of_columns.push_back(draws_of(row(integer(0)), plus(times(at_[1], hadamard_size),
                                                                plus(times(at_[3], columns_), integer(i)))));
        const std::int64_t rows = std::ssize(x) / columns_;
        Values all;
        for (std::int64_t r = 0; r < rows; ++r) {
            const Row of = row(plus(first, integer(r)));
            const Draws of_row = kernel_.spread() ? draws_of(of, at_[2]) : Draws{};
            Values y;
            for (std::int64_t i = 0; i < columns_; ++i) {
                const auto column = static_cast<std::size_t>(i), line = static_cast<std::size_t>(r);
                Value* const draw = kernel_.has_four_blocks() ? of_columns[column][line]
                                    : kernel_.spread()        ? of_row[column]
                                                              : nullptr;
                y.push_back(
                    rounded(x[static_cast<std::size_t>(r * columns_ + i)], shares[scale_of(r, i)], draw));
            }
            if (kernel_.fp8)
                all.insert(all.end(), y.begin(), y.end());
            else
                store_row(of, y);
        }
        if (kernel_.fp8) store_fp8(all);
    }

    /// Long blocks: some rows at a time, for the maximum and again to be rounded.
    void round_in_two_walks(std::int64_t rows) {
        const std::int64_t at_once = std::gcd(rows, kept_rows);
        const auto over = [&](const char* name, const Values& start, const Control::Body& body) {
            return control_.loop(name, integer(0), integer(rows), integer(at_once), start, body);
        };
        const Values largest =
            over("largest", Values(scales_of_thread(), word(0)), [&](Value* first, const Values& before) {
                Values all = largest_of(numbers(first, at_once), at_once);
                for (std::size_t i = 0; i < all.size(); ++i) all[i] = larger(all[i], before[i]);
                return all;
            });
        const std::vector<Share> shares = shares_of(joined(largest));
        over("rounded", {}, [&](Value* first, const Values&) {
            round_rows(first, numbers(first, at_once), shares);
            return Values{};
        });
    }

    const RoundingKernel& kernel_;
    const ShortLimits& limits_;
    std::int64_t columns_;
    Values at_;  ///< outer, block along the depth, place behind it, thread of the scale
    Value *is_own_ = nullptr, *scale_ = nullptr, *seed_ = nullptr, *step_ = nullptr;
};

class TensorScaleCode : GridThread {
  public:
    TensorScaleCode(llvm::Module& module, const std::string& name, const TensorScaleKernel& kernel)
        : GridThread(module, name, kernel.given ? 5 : 4), kernel_(kernel) {
        // The factor may be subnormal, and stays: the CPU makes it on the thread that launches.
        function_->removeFnAttr("denormal-fp-math-f32");
    }

    void run() {
        Value* const own = control_.loop("largest", thread_, integer(kernel_.parts), integer(grid_threads),
                                         {word(0)}, [&](Value* part, const Values& before) -> Values {
                                             return {larger(before[0], load(parameter(0), part, DType::i32))};
                                         })[0];
        Value* const all = largest_of_block(own);
        if_then(b_.CreateICmpEQ(thread_, integer(0)), [&] { store_scale(all); });
        b_.CreateRetVoid();
    }

  private:
    void store_scale(Value* largest) {
        const bool is_tensor = kernel_.rule == ScaleRule::tensor;
        const float top = is_tensor ? limits_of(kernel_.element).max
                                    : limits_of(ShortFormat::e4m3).max * limits_of(ShortFormat::e2m1).max;
        Value* const flushed = b_.CreateSelect(b_.CreateICmpSLT(largest, word(1 << 23)), word(0), largest);
        Value* const own = b_.CreateBitCast(flushed, b_.getFloatTy());
        Value* const taken = kernel_.given ? load(parameter(1), integer(0), DType::f32) : own;
        Value* const infinity = number(std::numeric_limits<double>::infinity());
        Value* const has_scale =
            b_.CreateAnd(b_.CreateFCmpOGT(taken, number(0)), b_.CreateFCmpOLT(taken, infinity));
        Value* const ratio = b_.CreateFDiv(number(static_cast<double>(top)), taken);
        Value* const limit = number(static_cast<double>(most));
        Value* const scale = b_.CreateSelect(
            has_scale, b_.CreateSelect(b_.CreateFCmpOLT(limit, ratio), limit, ratio), number(1));
        Value* const factor =
            b_.CreateSelect(b_.CreateICmpSLT(largest, word(infinity_bits)), b_.CreateFDiv(number(1), scale),
                            b_.CreateBitCast(word(quiet_nan), b_.getFloatTy()));
        std::size_t to = kernel_.given ? 2 : 1;
        for (Value* const made : {scale, factor, own}) store(made, parameter(to++), integer(0), DType::f32);
    }

    const TensorScaleKernel& kernel_;
};

}  // namespace

void emit(llvm::Module& module, const std::string& name, const RoundingKernel& kernel) {
    RoundingCode(module, name, kernel).run();
}

void emit(llvm::Module& module, const std::string& name, const TensorScaleKernel& kernel) {
    TensorScaleCode(module, name, kernel).run();
}

}  // namespace mantissa::codegen
