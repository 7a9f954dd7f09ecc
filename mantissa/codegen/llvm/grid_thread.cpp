#include "mantissa/codegen/llvm/grid_thread.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsNVPTX.h>
#include <llvm/IR/Module.h>

#include <limits>

#include "mantissa/codegen/grid_kernel.h"

namespace mantissa::inline v0::codegen {

using llvm::Value;

OwnBuilder::OwnBuilder(llvm::Module& module)
    : own_builder(std::make_shared<llvm::IRBuilder<>>(module.getContext())) {}

GridThread::GridThread(llvm::Module& module, const std::string& name, std::size_t parameters, PartTable table)
    : OwnBuilder(module), GpuCode(module, *own_builder, {name, parameters, grid_threads, table}) {
    number_ = b_.CreateAdd(b_.CreateMul(block_, control_.integer(grid_threads)), thread_);
}

Value* GridThread::load_index(Value* base, Value* element) {
    return b_.CreateSExt(load(base, element, DType::i32), b_.getInt64Ty());
}

std::vector<Value*> GridThread::indices_of(Value* number, const std::vector<std::int64_t>& extents) {
    std::int64_t all = 1;
    for (const std::int64_t extent : extents) all *= extent;
    const bool narrow = all <= std::numeric_limits<std::int32_t>::max();
    const auto constant = [&](std::int64_t x) -> Value* {
        return narrow ? b_.getInt32(static_cast<std::uint32_t>(x)) : integer(x);
    };
    if (narrow) number = b_.CreateTrunc(number, b_.getInt32Ty());
    std::vector<Value*> indices(extents.size());
    for (std::size_t axis = extents.size(); axis-- > 0;) {
        indices[axis] = axis == 0 ? number : b_.CreateURem(number, constant(extents[axis]));
        if (axis > 0) number = b_.CreateUDiv(number, constant(extents[axis]));
        if (narrow) indices[axis] = b_.CreateZExt(indices[axis], b_.getInt64Ty());
    }
    return indices;
}

Value* GridThread::place_of(const std::vector<Value*>& indices, const std::vector<std::int64_t>& strides,
                            std::int64_t offset) {
    Value* place = integer(offset);
    for (std::size_t axis = 0; axis < indices.size(); ++axis)
        if (strides[axis] != 0)
            place = b_.CreateAdd(place, b_.CreateMul(indices[axis], integer(strides[axis])));
    return place;
}

Value* GridThread::numbers_of(const char* name, DType dtype, const std::vector<std::uint64_t>& bits) {
    llvm::Type* type = b_.getIntNTy(static_cast<unsigned>(8 * size_of(dtype)));
    std::vector<llvm::Constant*> values;
    for (const std::uint64_t one : bits) values.push_back(llvm::ConstantInt::get(type, one));
    llvm::ArrayType* array = llvm::ArrayType::get(type, bits.size());
    auto* numbers = new llvm::GlobalVariable(  // the module owns it
        module_, array, true, llvm::GlobalValue::InternalLinkage, llvm::ConstantArray::get(array, values),
        name, nullptr, llvm::GlobalValue::NotThreadLocal, 1);
    numbers->setAlignment(llvm::Align(16));
    return numbers;
}

Value* GridThread::word(std::int64_t value) { return b_.getInt32(static_cast<std::uint32_t>(value)); }
Value* GridThread::number(double value) { return lanes_.constant(value, DType::f32); }
Value* GridThread::bits(Value* x) { return b_.CreateBitCast(x, b_.getInt32Ty()); }
Value* GridThread::larger(Value* a, Value* b) { return b_.CreateSelect(b_.CreateICmpSGT(a, b), a, b); }

Value* GridThread::across_warp(unsigned reduction, Value* x) {
    return b_.CreateIntrinsic(reduction, {}, {x, word(-1)});
}

Value* GridThread::largest_of_block(Value* own) {
    constexpr std::int64_t warps = grid_threads / lanes_of_warp;
    llvm::GlobalVariable* const all = shared_bytes("of_warps", warps * 4);
    Value* const of_warp = across_warp(llvm::Intrinsic::nvvm_redux_sync_max, own);
    if_then(b_.CreateICmpEQ(b_.CreateURem(thread_, integer(lanes_of_warp)), integer(0)), [&] {
        b_.CreateStore(of_warp, control_.at(all, b_.CreateUDiv(thread_, integer(lanes_of_warp)), DType::i32));
    });
    barrier();
    Value* largest = word(0);
    for (std::int64_t warp = 0; warp < warps; ++warp)
        largest =
            larger(largest, b_.CreateLoad(b_.getInt32Ty(), control_.at(all, integer(warp), DType::i32)));
    return largest;
}

Value* GridThread::rounded_to_tf32(Value* x) {
    Value* bits = this->bits(x);
    Value* odd = b_.CreateAnd(b_.CreateLShr(bits, word(13)), word(1));
    Value* up = b_.CreateAdd(bits, b_.CreateAdd(odd, word(0xfff)));
    Value* overflows = b_.CreateICmpUGE(b_.CreateAnd(up, word(0x7fffffff)), word(0x7f800000));
    Value* number = b_.CreateSelect(overflows, bits, up);
    Value* is_nan = b_.CreateICmpUGT(b_.CreateAnd(bits, word(0x7fffffff)), word(0x7f800000));
    Value* chosen = b_.CreateSelect(is_nan, b_.CreateOr(bits, word(0x00400000)), number);
    return b_.CreateBitCast(b_.CreateAnd(chosen, word(0xffffe000)), b_.getFloatTy());
}

using llvm::Value;

Value* ConvolutionThread::zero() { return lanes_.constant(0, DType::f32); }

Value* ConvolutionThread::product(Value* a, Value* b, Value* sum) {
    return b_.CreateIntrinsic(llvm::Intrinsic::fma, {a->getType()}, {a, b, sum});
}

Value* ConvolutionThread::is_inside(Value* place, std::int64_t extent) {
    return b_.CreateICmpULT(place, integer(extent));
}

ConvolutionThread::Place ConvolutionThread::image_place(const ConvolutionAxis& axis, Value* place,
                                                        Value* tap) {
    Value* const first = b_.CreateSub(b_.CreateMul(place, integer(axis.stride)), integer(axis.before));
    Value* const at = b_.CreateAdd(first, b_.CreateMul(tap, integer(axis.dilation)));
    return {at, is_inside(at, axis.image)};
}

ConvolutionThread::Place ConvolutionThread::output_place(const ConvolutionAxis& axis, Value* pixel,
                                                         Value* tap) {
    Value* const steps =
        b_.CreateSub(b_.CreateAdd(pixel, integer(axis.before)), b_.CreateMul(tap, integer(axis.dilation)));
    Value* const at = b_.CreateSDiv(steps, integer(axis.stride));
    Value* const hits = b_.CreateICmpEQ(b_.CreateMul(at, integer(axis.stride)), steps);
    return {at, b_.CreateAnd(hits, is_inside(at, axis.output))};
}

}  // namespace mantissa::codegen
