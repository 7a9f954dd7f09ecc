#include "mantissa/codegen/llvm/matrix_code.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/IntrinsicsNVPTX.h>
#include <llvm/IR/Module.h>

#include "mantissa/base/error.h"

namespace mantissa::inline v0::codegen {

using llvm::Value;

namespace {

constexpr int warp_lanes = 32;
constexpr int matrix = 16, narrow = 8;  // rows and terms of a product; its columns, or a moved piece's
constexpr std::int64_t moved_bytes = 16, swizzled_bytes = 128;
constexpr std::uint32_t all_lanes = ~std::uint32_t{0};

}  // namespace

MatrixCode::MatrixCode(llvm::Module& module, llvm::IRBuilderBase& builder, const GpuFunction& function,
                       const Format& format)
    : GpuCode(module, builder, function), format_(format), threads_(function.threads) {
    check(format.dtype == DType::bf16 || format.dtype == DType::f16, "matrices are of BF16 or FP16");
    Value* thread = b_.CreateTrunc(thread_, b_.getInt32Ty());
    lane_ = b_.CreateAnd(thread, word(warp_lanes - 1));
    // Read from one lane, so that the assembler sees that all lanes have one value.
    warp_ = b_.CreateIntrinsic(llvm::Intrinsic::nvvm_shfl_sync_idx_i32, {},
                               {word(-1), b_.CreateLShr(thread, 5), word(0), word(warp_lanes - 1)});
    by_rows_ = offset_of(b_.CreateAnd(lane_, word(matrix - 1)), b_.CreateLShr(lane_, 4));
    by_columns_ = by_columns(1);
}

Value* MatrixCode::by_columns(int apart) {
    Value *eighth = b_.CreateAnd(lane_, word(7)), *half = b_.CreateLShr(lane_, 4);
    Value* row = b_.CreateAdd(b_.CreateMul(half, word(narrow)), eighth);
    return offset_of(b_.CreateMul(row, word(apart)), b_.CreateAnd(b_.CreateLShr(lane_, 3), word(1)));
}

Value* MatrixCode::offset_of(Value* row, Value* column_of_eight) {
    Value* bytes = b_.CreateAdd(b_.CreateMul(row, word(format_.pitch)),
                                b_.CreateMul(column_of_eight, word(moved_bytes)));
    return b_.CreateZExt(bytes, b_.getInt64Ty());
}

Value* MatrixCode::word(std::int64_t value) { return b_.getInt32(static_cast<std::uint32_t>(value)); }

Value* MatrixCode::number(double value) { return lanes_.constant(value, DType::f32); }

Value* MatrixCode::fma(Value* a, Value* b, Value* c) {
    return b_.CreateIntrinsic(llvm::Intrinsic::fma, {b_.getFloatTy()}, {a, b, c});
}

Value* MatrixCode::exp2(Value* x) {
    return b_.CreateIntrinsic(llvm::Intrinsic::nvvm_ex2_approx_ftz_f, {}, {x});
}

Value* MatrixCode::across_row(Value* x, bool maximum) {
    for (const int distance : {1, 2}) {
        Value* other = b_.CreateIntrinsic(llvm::Intrinsic::nvvm_shfl_sync_bfly_f32, {},
                                          {b_.getInt32(all_lanes), x, word(distance), word(warp_lanes - 1)});
        x = maximum ? b_.CreateMaxNum(x, other) : b_.CreateFAdd(x, other);
    }
    return x;
}

Value* MatrixCode::bytes_behind(Value* address, std::int64_t bytes) {
    return b_.CreateGEP(b_.getInt8Ty(), address, integer(bytes));
}

Value* MatrixCode::tile_row(Value* tile, Value* row) {
    Value* bytes = b_.CreateMul(b_.CreateZExt(row, b_.getInt64Ty()), integer(format_.pitch));
    return b_.CreateGEP(b_.getInt8Ty(), tile, bytes);
}

void MatrixCode::for_each_chunk(int rows, int chunks_of_row, const std::function<void(const Chunk&)>& body) {
    const int chunks = rows * chunks_of_row;
    for (int first = 0; first < chunks; first += threads_) {
        Value* chunk = b_.CreateAdd(thread_, integer(first));
        const auto taken_apart = [&] {
            if (threads_ % chunks_of_row == 0)  // the same column each time
                body({b_.CreateUDiv(thread_, integer(chunks_of_row)),
                      b_.CreateURem(thread_, integer(chunks_of_row)), first / chunks_of_row});
            else
                body({b_.CreateUDiv(chunk, integer(chunks_of_row)),
                      b_.CreateURem(chunk, integer(chunks_of_row))});
        };
        if (first + threads_ <= chunks)
            taken_apart();
        else
            if_then(is_less(chunk, integer(chunks)), taken_apart);
    }
}

void MatrixCode::copy_in(const Rows& rows) {
    const auto from = [&](const Chunk& chunk, int numbers) {
        Value* at = control_.at(rows.at,
                                b_.CreateAdd(b_.CreateMul(chunk.row, integer(rows.position)),
                                             b_.CreateMul(chunk.column, integer(numbers))),
                                format_.dtype);
        return bytes_behind(at, 2 * chunk.behind * rows.position);
    };
    const auto to = [&](const Chunk& chunk, int numbers) {
        Value* column = b_.CreateMul(chunk.column, integer(2 * numbers));
        std::int64_t pitch = format_.pitch;
        if (rows.swizzled) {
            pitch = swizzled_bytes;
            Value* eighth = b_.CreateAnd(chunk.row, integer(7));
            Value* in_row = b_.CreateXor(b_.CreateURem(column, integer(pitch)),
                                         b_.CreateMul(eighth, integer(moved_bytes)));
            Value* before = b_.CreateMul(b_.CreateUDiv(column, integer(pitch)), integer(rows.count * pitch));
            column = b_.CreateAdd(before, in_row);
        }
        Value* at = b_.CreateGEP(b_.getInt8Ty(), rows.tile,
                                 b_.CreateAdd(b_.CreateMul(chunk.row, integer(pitch)), column));
        return bytes_behind(at, chunk.behind * pitch);
    };
    const auto is_there = [&](const Chunk& chunk, int numbers) {
        Value* there = is_less(chunk.row, b_.CreateSub(rows.left, integer(chunk.behind)));
        if (format_.head_size == format_.columns) return there;
        return b_.CreateAnd(there, is_less(chunk.column, integer(format_.head_size / numbers)));
    };
    if (format_.aligned) {
        for_each_chunk(rows.count, format_.columns / narrow, [&](const Chunk& chunk) {
            copy_in(to(chunk, narrow), from(chunk, narrow), is_there(chunk, narrow));
        });
        return;
    }
    control_.loop("elements", thread_, integer(std::int64_t{rows.count} * format_.columns), integer(threads_),
                  {}, [&](Value* element, const Control::Values&) -> Control::Values {
                      const Chunk one{b_.CreateUDiv(element, integer(format_.columns)),
                                      b_.CreateURem(element, integer(format_.columns))};
                      Value* bits = control_.if_then(is_there(one, 1), {b_.getInt16(0)}, [&] {
                          return Values{b_.CreateAlignedLoad(b_.getInt16Ty(), from(one, 1), llvm::Align(2))};
                      })[0];
                      b_.CreateAlignedStore(bits, to(one, 1), llvm::Align(2));
                      return {};
                  });
}

void MatrixCode::copy_in(Value* to, Value* from, Value* is_there) {
    Value* bytes = b_.CreateSelect(is_there, word(moved_bytes), word(0));
    b_.CreateIntrinsic(llvm::Intrinsic::nvvm_cp_async_cg_shared_global_16_s, {}, {to, from, bytes});
}

void MatrixCode::wait_for_copies() {
    b_.CreateIntrinsic(llvm::Intrinsic::nvvm_cp_async_wait_all, {}, {});
    if (format_.warpgroups) show_to_warpgroups();
}

void MatrixCode::end_copies() { b_.CreateIntrinsic(llvm::Intrinsic::nvvm_cp_async_commit_group, {}, {}); }

void MatrixCode::wait_for_copies_before(int last_groups) {
    b_.CreateIntrinsic(llvm::Intrinsic::nvvm_cp_async_wait_group, {}, {word(last_groups)});
}

void MatrixCode::copy_out(const Rows& rows) {
    const int numbers = format_.aligned ? narrow : 1;
    llvm::Type* type = format_.aligned
                           ? static_cast<llvm::Type*>(llvm::FixedVectorType::get(b_.getInt32Ty(), 4))
                           : b_.getInt16Ty();
    const llvm::Align align(static_cast<std::uint64_t>(2 * numbers));
    const int per_row = format_.head_size / numbers;
    const auto move = [&](Value* chunk) {
        Value *row = b_.CreateUDiv(chunk, integer(per_row)), *column = b_.CreateURem(chunk, integer(per_row));
        if_then(is_less(row, rows.left), [&] {
            Value* from = b_.CreateGEP(b_.getInt8Ty(), rows.tile,
                                       b_.CreateAdd(b_.CreateMul(row, integer(format_.pitch)),
                                                    b_.CreateMul(column, integer(2 * numbers))));
            Value* to = control_.at(rows.at,
                                    b_.CreateAdd(b_.CreateMul(row, integer(rows.position)),
                                                 b_.CreateMul(column, integer(numbers))),
                                    format_.dtype);
            b_.CreateAlignedStore(b_.CreateAlignedLoad(type, from, align), to, align);
        });
    };
    control_.loop("rows_out", thread_, integer(std::int64_t{rows.count} * per_row), integer(threads_), {},
                  [&](Value* chunk, const Control::Values&) -> Control::Values {
                      move(chunk);
                      return {};
                  });
}

MatrixCode::Sums MatrixCode::zeros(int rows, int columns) {
    return Sums(static_cast<std::size_t>(4 * (rows / matrix) * (columns / narrow)), number(0));
}

MatrixCode::Fragment MatrixCode::load_matrices(Value* tile, Value* of_lane, std::int64_t bytes,
                                               bool transposed) {
    Value* at = bytes_behind(b_.CreateGEP(b_.getInt8Ty(), tile, of_lane), bytes);
    const auto which = transposed ? llvm::Intrinsic::nvvm_ldmatrix_sync_aligned_m8n8_x4_trans_b16
                                  : llvm::Intrinsic::nvvm_ldmatrix_sync_aligned_m8n8_x4_b16;
    Value* four = b_.CreateIntrinsic(which, {at->getType()}, {at});
    Fragment parts;
    for (unsigned i = 0; i < 4; ++i) parts[i] = b_.CreateExtractValue(four, i);
    return parts;
}

MatrixCode::Fragment MatrixCode::fragment(Value* tile, int row, int column) {
    return load_matrices(tile, by_rows_, std::int64_t{row} * format_.pitch + 2 * column, false);
}

MatrixCode::Fragment MatrixCode::fragment_of_columns(Value* tile, int row, int apart) {
    return load_matrices(tile, by_columns(apart), std::int64_t{row} * format_.pitch, true);
}

Value* MatrixCode::as_operand(Value* bits) {
    return format_.dtype == DType::bf16
               ? bits
               : b_.CreateBitCast(bits, llvm::FixedVectorType::get(b_.getHalfTy(), 2));
}

std::array<Value*, 4> MatrixCode::multiplied(const Fragment& a, Value* b0, Value* b1,
                                             const std::array<Value*, 4>& sums) {
    const auto which = format_.dtype == DType::bf16 ? llvm::Intrinsic::nvvm_mma_m16n8k16_row_col_bf16
                                                    : llvm::Intrinsic::nvvm_mma_m16n8k16_row_col_f32_f32;
    Values operands;
    for (Value* part : a) operands.push_back(as_operand(part));
    for (Value* part : {b0, b1}) operands.push_back(as_operand(part));
    operands.insert(operands.end(), sums.begin(), sums.end());
    Value* made = b_.CreateIntrinsic(which, {}, operands);
    std::array<Value*, 4> parts;
    for (unsigned i = 0; i < 4; ++i) parts[i] = b_.CreateExtractValue(made, i);
    return parts;
}

void MatrixCode::multiply(const std::vector<Product>& products) {
    if (format_.warpgroups) return multiply_by_warpgroups(products);
    for (const Product& product : products) multiply_by_warps(product);
}

void MatrixCode::multiply_by_warps(const Product& product) {
    const auto& [sums, extents, a, tile, has] = product;
    const int column_pairs = extents.columns / matrix;
    for (int j = 0; j < extents.terms / matrix; ++j) {
        std::vector<Fragment> left;
        for (int i = 0; i < extents.rows / matrix; ++i) left.push_back(a(i, j));
        for (int pair = 0; pair < column_pairs; ++pair) {
            const bool is_columns = has == TileHas::columns;
            const int row = matrix * (is_columns ? pair : j), column = matrix * (is_columns ? j : pair);
            const Fragment b = load_matrices(tile, is_columns ? by_columns_ : by_rows_,
                                             std::int64_t{row} * format_.pitch + 2 * column, !is_columns);
            for (std::size_t i = 0; i < left.size(); ++i)
                for (const std::size_t half : {0u, 1u}) {
                    const std::size_t at =
                        4 *
                        ((i * static_cast<std::size_t>(column_pairs) + static_cast<std::size_t>(pair)) * 2 +
                         half);
                    const std::array<Value*, 4> added =
                        multiplied(left[i], b[2 * half], b[2 * half + 1],
                                   {sums[at], sums[at + 1], sums[at + 2], sums[at + 3]});
                    for (std::size_t part = 0; part < 4; ++part) sums[at + part] = added[part];
                }
        }
    }
}

Value* MatrixCode::packed(Value* low, Value* high) {
    const auto which =
        format_.dtype == DType::bf16 ? llvm::Intrinsic::nvvm_ff2bf16x2_rn : llvm::Intrinsic::nvvm_ff2f16x2_rn;
    return b_.CreateBitCast(b_.CreateIntrinsic(which, {}, {high, low}), b_.getInt32Ty());
}

/// Two neighbouring matrices of 8 columns of sums are the four of 16 columns of an operand.
MatrixCode::Operand MatrixCode::rounded(const Sums& sums, int columns) {
    Values words;
    for (std::size_t i = 0; i < sums.size(); i += 2) words.push_back(packed(sums[i], sums[i + 1]));
    return [words, pairs = columns / matrix](int i, int j) {
        const auto at = static_cast<std::size_t>(4 * (i * pairs + j));
        return Fragment{words[at], words[at + 1], words[at + 2], words[at + 3]};
    };
}

void MatrixCode::put(const Sums& sums, int columns, Value* tile, Value* first_row) {
    Value* row = b_.CreateAdd(first_row, b_.CreateLShr(lane_, 2));
    Value* column = b_.CreateMul(b_.CreateAnd(lane_, word(3)), word(4));  // bytes
    Value* base = b_.CreateGEP(b_.getInt8Ty(), tile_row(tile, row), b_.CreateZExt(column, b_.getInt64Ty()));
    const int blocks = columns / narrow;
    for (std::size_t at = 0; at < sums.size(); at += 2) {
        const int block = static_cast<int>(at / 4), half = static_cast<int>(at / 2 % 2);
        const std::int64_t bytes = std::int64_t{block / blocks * matrix + half * narrow} * format_.pitch +
                                   2 * narrow * (block % blocks);
        b_.CreateAlignedStore(packed(sums[at], sums[at + 1]), bytes_behind(base, bytes), llvm::Align(4));
    }
}

}  // namespace mantissa::codegen
