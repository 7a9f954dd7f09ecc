#include "mantissa/codegen/llvm/convolution_thread.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>

namespace mantissa::inline v0::codegen {

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
