// Sums of whole numbers are exact, and everything in FP32 is done in the CPU's order with its roundings. So
// numbers and scales, and products in eight bits, have the CPU's bits.
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/IntrinsicsNVPTX.h>
#include <llvm/IR/Module.h>

#include <limits>

#include "mantissa/base/whole_units.h"
#include "mantissa/codegen/grid_kernel.h"
#include "mantissa/codegen/llvm/emit.h"
#include "mantissa/codegen/llvm/grid_thread.h"

namespace mantissa::inline v0::codegen {

namespace {

using llvm::Value;
using Values = Control::Values;

constexpr std::int64_t group = weights_of_group;
static_assert(group == lanes_of_warp);

class QuantizedCode : protected GridThread {
  protected:
    using GridThread::GridThread;

    Value* lane() { return b_.CreateURem(thread_, integer(lanes_of_warp)); }
    Value* bytes_behind(Value* address, Value* bytes) { return b_.CreateGEP(b_.getInt8Ty(), address, bytes); }

    /// Without the sign, as a whole number: a NaN is larger than all else.
    Value* size_of_f32(Value* x) { return b_.CreateAnd(bits(x), word(0x7fffffff)); }
    Value* sum_across_warp(Value* x) {
        for (int distance = lanes_of_warp / 2; distance > 0; distance /= 2)
            x = b_.CreateFAdd(x, b_.CreateIntrinsic(llvm::Intrinsic::nvvm_shfl_sync_bfly_f32, {},
                                                    {word(-1), x, word(distance), word(lanes_of_warp - 1)}));
        return x;
    }

    /// An element of a row of x, as FP32: 0 behind its end.
    Value* element_or_zero(Value* x, Value* row, Value* column, std::int64_t depth, DType dtype) {
        return control_.if_then(is_less(column, integer(depth)), {number(0)}, [&] {
            Value* const at = b_.CreateAdd(b_.CreateMul(row, integer(depth)), column);
            return Values{load(x, at, dtype)};
        })[0];
    }

    /// The scale by which the largest absolute value becomes 127, and the way back.
    struct Scale {
        Value *factor, *scale;
    };
    Scale scale_of(Value* largest_size) {
        Value* const largest = b_.CreateBitCast(largest_size, b_.getFloatTy());
        Value* const is_zero = b_.CreateFCmpOEQ(largest, number(0));
        return {b_.CreateSelect(is_zero, number(0), b_.CreateFDiv(number(127), largest)),
                b_.CreateFDiv(largest, number(127))};
    }
    /// To the nearest, ties to even; a NaN becomes 0. One byte, as i32.
    Value* narrowed(Value* x, Value* factor) {
        Value* const whole = b_.CreateIntrinsic(llvm::Intrinsic::nvvm_f2i_rn, {}, {b_.CreateFMul(x, factor)});
        Value* const least = larger(whole, word(-128));
        return b_.CreateSelect(b_.CreateICmpSLT(least, word(127)), least, word(127));
    }

    /// An i32 sum as FP32, times the product of both scales.
    Value* scaled(Value* sum, Value* of_x, Value* of_w) {
        return b_.CreateFMul(b_.CreateSIToFP(sum, b_.getFloatTy()), b_.CreateFMul(of_x, of_w));
    }
};

class QuantizeCode : QuantizedCode {
  public:
    QuantizeCode(llvm::Module& module, const std::string& name, const QuantizeKernel& kernel)
        : QuantizedCode(module, name, 3), kernel_(kernel) {}

    void run() {
        kernel_.by_groups ? make_group() : make_row();
        b_.CreateRetVoid();
    }

  private:
    Value* x(Value* row, Value* column) {
        return element_or_zero(parameter(0), row, column, kernel_.depth, kernel_.from);
    }

    /// A block a row.
    void make_row() {
        const auto over = [&](const char* name, std::int64_t columns, const Values& start,
                              const Control::Body& body) {
            return control_.loop(name, thread_, integer(columns), integer(grid_threads), start, body);
        };
        Value* const own =
            over("largest", kernel_.depth, {word(0)}, [&](Value* column, const Values& before) -> Values {
                return {larger(before[0], size_of_f32(x(block_, column)))};
            })[0];
        const Scale scale = scale_of(largest_of_block(own));
        if_then(b_.CreateICmpEQ(thread_, integer(0)),
                [&] { store(scale.scale, parameter(2), block_, DType::f32); });
        Value* const first = b_.CreateMul(block_, integer(kernel_.pitch));
        over("numbers", kernel_.pitch, {}, [&](Value* column, const Values&) -> Values {
            store(narrowed(x(block_, column), scale.factor), parameter(1), b_.CreateAdd(first, column),
                  DType::s8);
            return {};
        });
    }

    /// A warp a group: a lane a number. Whole warps have no group.
    void make_group() {
        if_then(is_less(number_, integer(kernel_.rows * kernel_.groups() * group)), [&] {
            Value* const which = b_.CreateUDiv(number_, integer(group));
            Value* const row = b_.CreateUDiv(which, integer(kernel_.groups()));
            Value* const first =
                b_.CreateMul(b_.CreateURem(which, integer(kernel_.groups())), integer(group));
            Value* const own = x(row, b_.CreateAdd(first, lane()));
            const Scale scale = scale_of(across_warp(llvm::Intrinsic::nvvm_redux_sync_max, size_of_f32(own)));
            if_then(b_.CreateICmpEQ(lane(), integer(0)),
                    [&] { store(scale.scale, parameter(2), which, DType::f32); });
            Value* const eight = b_.CreateAnd(lane(), integer(~std::int64_t{7}));
            Value* const odd = b_.CreateAnd(lane(), integer(1));
            Value* const pair = b_.CreateLShr(b_.CreateAnd(lane(), integer(7)), integer(1));
            Value* const place =
                b_.CreateAdd(eight, b_.CreateAdd(b_.CreateMul(odd, integer(numbers_of_word)), pair));
            store(narrowed(own, scale.factor), parameter(1),
                  b_.CreateAdd(b_.CreateMul(which, integer(group)), place), DType::s8);
        });
    }

    const QuantizeKernel& kernel_;
};

/// numerics/weight_groups.cpp, addition by addition.
class WeightGroupsCode : QuantizedCode {
  public:
    WeightGroupsCode(llvm::Module& module, const std::string& name, const WeightGroupsKernel& kernel)
        : QuantizedCode(module, name, 3), kernel_(kernel) {}

    void run() {
        if_then(is_less(number_, integer(kernel_.rows * kernel_.groups())), [&] { make_group(); });
        b_.CreateRetVoid();
    }

  private:
    void make_group() {
        Value* const row = b_.CreateUDiv(number_, integer(kernel_.groups()));
        first_ = b_.CreateMul(b_.CreateURem(number_, integer(kernel_.groups())), integer(group));
        for (std::int64_t i = 0; i < group; ++i)
            weights_.push_back(element_or_zero(parameter(0), row, b_.CreateAdd(first_, integer(i)),
                                               kernel_.depth, kernel_.from));
        Value *largest = weights_[0], *size = size_of_f32(largest);
        for (std::size_t i = 1; i < weights_.size(); ++i) {
            Value* const other = size_of_f32(weights_[i]);
            Value* const takes = b_.CreateICmpSGT(other, size);
            largest = b_.CreateSelect(takes, weights_[i], largest);
            size = b_.CreateSelect(takes, other, size);
        }
        Value* const is_finite = b_.CreateICmpSLT(size, word(0x7f800000));
        Value* const is_tiny = b_.CreateFCmpOLT(b_.CreateBitCast(size, b_.getFloatTy()), number(1e-15f));
        Value* const rounded = lanes_.apply("cast", {best_scale(largest)}, DType::f32, DType::bf16);
        // Scales of the groups that have numbers.
        Value* const counts = b_.CreateAnd(is_finite, b_.CreateNot(is_tiny));
        Value* const scale =
            b_.CreateSelect(is_finite, b_.CreateSelect(is_tiny, number(0), rounded),
                            number(static_cast<double>(std::numeric_limits<float>::quiet_NaN())));
        store(scale, parameter(2), number_, DType::bf16);
        store_numbers(row, b_.CreateSelect(counts, b_.CreateFDiv(number(1), rounded), number(0)), counts);
    }

    /// To the nearest in -8 ... 7.
    Value* whole(Value* x) {
        constexpr double far = 12582912;
        Value* const least = b_.CreateSelect(b_.CreateFCmpOLT(x, number(-8)), number(-8), x);
        Value* const inside = b_.CreateSelect(b_.CreateFCmpOLT(number(7), least), number(7), least);
        return b_.CreateFSub(b_.CreateFAdd(inside, number(far)), number(far));
    }

    /// The scale of least squares, by the candidate with the least error.
    Value* best_scale(Value* largest) {
        constexpr float candidates[] = {-6.5f, -6.9f, -7.3f, -7.7f, -8.1f, -8.5f, -8.9f};
        Value *scale = number(0), *most = number(-1);
        for (const float candidate : candidates) {
            Value* const factor = b_.CreateFDiv(number(static_cast<double>(candidate)), largest);
            Value *products = nullptr, *squares = nullptr;
            for (std::size_t lane = 0; lane < 8; ++lane) {
                Value *of_products = nullptr, *of_squares = nullptr;
                for (std::size_t i = lane; i < weights_.size(); i += 8) {
                    Value* const near = whole(b_.CreateFMul(weights_[i], factor));
                    of_products = plus(of_products, b_.CreateFMul(weights_[i], near));
                    of_squares = plus(of_squares, b_.CreateFMul(near, near));
                }
                products = plus(products, of_products);
                squares = plus(squares, of_squares);
            }
            Value* const gain = b_.CreateFMul(products, b_.CreateFDiv(products, squares));
            Value* const stays = b_.CreateFCmpOLE(gain, most);
            most = b_.CreateSelect(stays, most, gain);
            scale = b_.CreateSelect(stays, scale, b_.CreateFDiv(products, squares));
        }
        return scale;
    }
    Value* plus(Value* a, Value* b) { return a ? b_.CreateFAdd(a, b) : b; }

    void store_numbers(Value* row, Value* factor, Value* counts) {
        Value* const first =
            b_.CreateMul(row, integer(kernel_.depth / 2));  // rows are even, as groups are but the last
        for (std::size_t i = 0; i < weights_.size(); i += 2) {
            Value* const column = b_.CreateAdd(first_, integer(static_cast<std::int64_t>(i)));
            if_then(is_less(column, integer(kernel_.depth)), [&] {
                const auto half = [&](Value* weight) {
                    Value* const near =
                        b_.CreateSelect(counts, whole(b_.CreateFMul(weight, factor)), number(0));
                    return b_.CreateAnd(b_.CreateFPToSI(near, b_.getInt32Ty()), word(15));
                };
                Value* const both =
                    b_.CreateOr(half(weights_[i]), b_.CreateShl(half(weights_[i + 1]), word(4)));
                store(both, parameter(1), b_.CreateAdd(first, b_.CreateLShr(column, integer(1))), DType::u8);
            });
        }
    }

    const WeightGroupsKernel& kernel_;
    Value* first_ = nullptr;  ///< column of the group
    Values weights_;
};

class QuantizedRowsCode : QuantizedCode {
  public:
    QuantizedRowsCode(llvm::Module& module, const std::string& name, const QuantizedRowsKernel& kernel)
        : QuantizedCode(module, name, kernel.bias ? 6 : 5), kernel_(kernel) {}

    void run() {
        if_then(is_less(number_, integer(kernel_.warps() * lanes_of_warp)), [&] { multiply(); });
        b_.CreateRetVoid();
    }

  private:
    std::size_t rows() const { return static_cast<std::size_t>(kernel_.rows_of_warp()); }
    std::size_t columns() const { return static_cast<std::size_t>(kernel_.columns_of_warp()); }
    std::size_t place(std::size_t row, std::size_t column) const { return row * columns() + column; }

    /// Warps next to one another have the same rows of w and others of x.
    void multiply() {
        const std::int64_t chunks = ceil_div(kernel_.rows, kernel_.rows_of_warp());
        Value* const warp = b_.CreateUDiv(number_, integer(lanes_of_warp));
        Value* const first_row =
            b_.CreateMul(b_.CreateURem(warp, integer(chunks)), integer(kernel_.rows_of_warp()));
        Value* const first_column =
            b_.CreateMul(b_.CreateUDiv(warp, integer(chunks)), integer(kernel_.columns_of_warp()));
        // The last rows and columns begin earlier, so that all exist; other warps make the first of them,
        // too. One address and known distances take fewer registers than an address for each.
        const auto moved = [&](Value* first, std::int64_t last) {
            return b_.CreateSelect(is_less(first, integer(last)), first, integer(last));
        };
        const auto from = [&](Value* first, std::size_t count) {
            Values all;
            for (std::size_t i = 0; i < count; ++i)
                all.push_back(b_.CreateAdd(first, integer(static_cast<std::int64_t>(i))));
            return all;
        };
        rows_ = from(moved(first_row, kernel_.rows - kernel_.rows_of_warp()), rows());
        columns_ = from(moved(first_column, kernel_.columns - kernel_.columns_of_warp()), columns());
        Value* const nothing = kernel_.four_bits ? number(0) : word(0);
        const std::int64_t pieces = ceil_div(kernel_.bytes_of_row(), kernel_.bytes_at_once());
        Values sums = control_.loop(
            "pieces", lane(), integer(pieces), integer(lanes_of_warp), Values(rows() * columns(), nothing),
            [&](Value* piece, const Values& before) { return with_piece(piece, before); });
        for (Value*& sum : sums)
            sum = kernel_.four_bits ? sum_across_warp(sum)
                                    : across_warp(llvm::Intrinsic::nvvm_redux_sync_add, sum);
        store_sums(sums, first_row, first_column);
    }

    Values with_piece(Value* piece, const Values& before) {
        std::vector<Values> of_w;
        for (Value* const column : columns_) of_w.push_back(words_of_w(column, piece));
        Values after = before;
        for (std::size_t row = 0; row < rows(); ++row) {
            Value* const x = bytes_behind(parameter(0), b_.CreateMul(rows_[row], integer(kernel_.pitch)));
            const std::int64_t bytes = kernel_.four_bits ? group : kernel_.bytes_at_once();
            const Values of_x = words_at(x, b_.CreateMul(piece, integer(bytes)), bytes);
            for (std::size_t column = 0; column < columns(); ++column) {
                Value*& sum = after[place(row, column)];
                sum = kernel_.four_bits ? with_group(of_x, of_w[column], row, column, piece, sum)
                                        : with_bytes(of_x, of_w[column], sum);
            }
        }
        return after;
    }

    /// Four products of bytes added to a sum.
    Value* dot(Value* a, Value* b, Value* sum) {
        llvm::Type* const type = b_.getInt32Ty();
        llvm::InlineAsm* const instruction =
            llvm::InlineAsm::get(llvm::FunctionType::get(type, {type, type, type}, false),
                                 "dp4a.s32.s32 $0, $1, $2, $3;", "=r,r,r,r", false);
        return b_.CreateCall(instruction, {a, b, sum});
    }

    Value* with_bytes(const Values& x, const Values& w, Value* sum) {
        for (std::size_t i = 0; i < w.size(); ++i) sum = dot(x[i], w[i], sum);
        return sum;
    }

    /// The upper half of a byte is its number times 16, and the lower half is moved up: sums are exactly 16
    /// times too large.
    Value* with_group(const Values& x, const Values& w, std::size_t row, std::size_t column, Value* piece,
                      Value* total) {
        Value* sum = word(0);
        for (std::size_t i = 0; i < w.size(); ++i) {
            sum = dot(x[2 * i], b_.CreateAnd(b_.CreateShl(w[i], word(4)), word(0xf0f0f0f0)), sum);
            sum = dot(x[2 * i + 1], b_.CreateAnd(w[i], word(0xf0f0f0f0)), sum);
        }
        const auto scale = [&](std::size_t operand, Value* of, DType dtype) {
            Value* const at = b_.CreateAdd(b_.CreateMul(of, integer(kernel_.groups())), piece);
            return load(parameter(operand), at, dtype);
        };
        Value* const scales =
            b_.CreateFMul(scale(1, rows_[row], DType::f32), scale(3, columns_[column], DType::bf16));
        Value* const whole = b_.CreateSIToFP(b_.CreateAShr(sum, word(4)), b_.getFloatTy());
        return b_.CreateIntrinsic(llvm::Intrinsic::fma, {b_.getFloatTy()}, {whole, scales, total});
    }

    /// Loads so many neighbouring bytes, all of them in the matrix.
    Values words_at(Value* base, Value* first, std::int64_t bytes) {
        Values words;
        for (std::int64_t done = 0; done < bytes; done += 16) {
            const auto count = static_cast<unsigned>(std::min<std::int64_t>(bytes - done, 16) / 4);
            Value* const at = bytes_behind(base, b_.CreateAdd(first, integer(done)));
            if (count == 1) {
                words.push_back(b_.CreateAlignedLoad(b_.getInt32Ty(), at, llvm::Align(4)));
                continue;
            }
            Value* const several = b_.CreateAlignedLoad(llvm::FixedVectorType::get(b_.getInt32Ty(), count),
                                                        at, llvm::Align(4 * count));
            for (unsigned i = 0; i < count; ++i) words.push_back(b_.CreateExtractElement(several, i));
        }
        return words;
    }

    /// Zeros behind the row's end.
    Values words_of_w(Value* column, Value* piece) {
        const std::int64_t bytes = kernel_.bytes_at_once();
        Value* const w = bytes_behind(parameter(2), b_.CreateMul(column, integer(kernel_.bytes_of_row())));
        Value* const first = b_.CreateMul(piece, integer(bytes));
        if (kernel_.is_aligned()) return words_at(w, first, bytes);
        Values words;
        for (std::int64_t i = 0; i < bytes; ++i) {
            Value* const at = b_.CreateAdd(first, integer(i));
            Value* const byte = control_.if_then(is_less(at, integer(kernel_.bytes_of_row())), {word(0)},
                                                 [&] { return Values{load(w, at, DType::u8)}; })[0];
            if (i % 4 == 0) words.push_back(word(0));
            words.back() = b_.CreateOr(words.back(), b_.CreateShl(byte, word(8 * (i % 4))));
        }
        return words;
    }

    /// All lanes have all sums: each stores one of them.
    void store_sums(const Values& sums, Value* first_row, Value* first_column) {
        static_assert(8 * 4 <= lanes_of_warp);
        const auto count = static_cast<std::int64_t>(columns());
        Value* own = sums[0];
        for (std::size_t i = 1; i < sums.size(); ++i)
            own =
                b_.CreateSelect(b_.CreateICmpEQ(lane(), integer(static_cast<std::int64_t>(i))), sums[i], own);
        Value* const row = b_.CreateAdd(rows_[0], b_.CreateUDiv(lane(), integer(count)));
        Value* const column = b_.CreateAdd(columns_[0], b_.CreateURem(lane(), integer(count)));
        Value* is_there = is_less(lane(), integer(static_cast<std::int64_t>(sums.size())));
        is_there = b_.CreateAnd(is_there, b_.CreateICmpSGE(row, first_row));
        is_there = b_.CreateAnd(is_there, b_.CreateICmpSGE(column, first_column));
        if_then(is_there, [&] {
            Value* y = own;
            if (!kernel_.four_bits)
                y = scaled(own, load(parameter(1), row, DType::f32), load(parameter(3), column, DType::f32));
            if (kernel_.bias) y = b_.CreateFAdd(y, load(parameter(4), column, DType::f32));
            store(y, parameter(kernel_.bias ? 5 : 4),
                  b_.CreateAdd(b_.CreateMul(row, integer(kernel_.leading)), column), DType::f32);
        });
    }

    const QuantizedRowsKernel& kernel_;
    Values rows_, columns_;
};

class ScaledSumsCode : QuantizedCode {
  public:
    ScaledSumsCode(llvm::Module& module, const std::string& name, const ScaledSumsKernel& kernel)
        : QuantizedCode(module, name, kernel.bias ? 5 : 4), kernel_(kernel) {}

    void run() {
        if_then(is_less(number_, integer(kernel_.rows * kernel_.columns)), [&] {
            const Values at = indices_of(number_, {kernel_.rows, kernel_.columns});
            Value* y = scaled(load(parameter(0), number_, DType::i32), load(parameter(1), at[0], DType::f32),
                              load(parameter(2), at[1], DType::f32));
            if (kernel_.bias) y = b_.CreateFAdd(y, load(parameter(3), at[1], DType::f32));
            store(y, parameter(kernel_.bias ? 4 : 3), place_of(at, {kernel_.leading, 1}, 0), DType::f32);
        });
        b_.CreateRetVoid();
    }

  private:
    const ScaledSumsKernel& kernel_;
};

}  // namespace

void emit(llvm::Module& module, const std::string& name, const QuantizeKernel& kernel) {
    QuantizeCode(module, name, kernel).run();
}

void emit(llvm::Module& module, const std::string& name, const WeightGroupsKernel& kernel) {
    WeightGroupsCode(module, name, kernel).run();
}

void emit(llvm::Module& module, const std::string& name, const QuantizedRowsKernel& kernel) {
    QuantizedRowsCode(module, name, kernel).run();
}

void emit(llvm::Module& module, const std::string& name, const ScaledSumsKernel& kernel) {
    ScaledSumsCode(module, name, kernel).run();
}

}  // namespace mantissa::codegen
