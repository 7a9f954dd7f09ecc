#include "mantissa/codegen/llvm/lanes.h"

#include <fmt/format.h>
#include <llvm/Analysis/VectorUtils.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <limits>
#include <numeric>

#include "mantissa/base/error.h"
#include "mantissa/numerics/exp2_body.h"
#include "mantissa/numerics/power_body.h"

namespace mantissa::inline v0::codegen {

namespace {

/// The lanes that numerics/elementary_body.h is written over: here each operation appends an instruction.
struct Instructions {
    using Float = llvm::Value*;
    using Int = llvm::Value*;
    using Mask = llvm::Value*;

    llvm::IRBuilderBase& b;
    const Lanes& lanes;

    Float constant(float x) const { return lanes.constant(static_cast<double>(x), DType::f32); }
    Int integer(int x) const { return lanes.constant(x, DType::i32); }
    Float add(Float x, Float y) const { return b.CreateFAdd(x, y); }
    Float subtract(Float x, Float y) const { return b.CreateFSub(x, y); }
    Float multiply(Float x, Float y) const { return b.CreateFMul(x, y); }
    Float divide(Float x, Float y) const { return b.CreateFDiv(x, y); }
    Float negate(Float x) const { return b.CreateFNeg(x); }
    Float fma(Float x, Float y, Float z) const {
        return b.CreateIntrinsic(llvm::Intrinsic::fma, {x->getType()}, {x, y, z});
    }
    /// y, where one of the two is a NaN, as x86's instruction has it.
    Float minimum(Float x, Float y) const { return b.CreateSelect(b.CreateFCmpOLT(x, y), x, y); }
    Float maximum(Float x, Float y) const { return b.CreateSelect(b.CreateFCmpOLT(y, x), x, y); }
    Int bits(Float x) const { return b.CreateBitCast(x, lanes.type(DType::i32)); }
    Float from_bits(Int x) const { return b.CreateBitCast(x, lanes.type(DType::f32)); }
    Int add_int(Int x, Int y) const { return b.CreateAdd(x, y); }
    Int subtract_int(Int x, Int y) const { return b.CreateSub(x, y); }
    Int and_int(Int x, Int y) const { return b.CreateAnd(x, y); }
    Int or_int(Int x, Int y) const { return b.CreateOr(x, y); }
    template <int Count>
    Int shift_left(Int x) const {
        return b.CreateShl(x, integer(Count));
    }
    template <int Count>
    Int shift_right_signed(Int x) const {
        return b.CreateAShr(x, integer(Count));
    }
    Float to_float(Int x) const { return b.CreateSIToFP(x, lanes.type(DType::f32)); }
    Float floor(Float x) const { return b.CreateUnaryIntrinsic(llvm::Intrinsic::floor, x); }
    Mask less(Float x, Float y) const { return b.CreateFCmpOLT(x, y); }
    Mask is_nan(Float x) const { return b.CreateFCmpUNO(x, x); }
    Float select(Mask mask, Float x, Float y) const { return b.CreateSelect(mask, x, y); }
};

/// x times a factor, together with one that x was multiplied by just before: one rounding less, and none
/// where nothing is left to multiply with.
llvm::Value* scaled(Instructions& ops, llvm::Value* x, double factor) {
    const auto* product = llvm::dyn_cast<llvm::BinaryOperator>(x);
    if (product && product->getOpcode() == llvm::Instruction::FMul) {
        const auto* constant = llvm::dyn_cast<llvm::Constant>(product->getOperand(1));
        if (constant && constant->getType()->isVectorTy()) constant = constant->getSplatValue();
        if (const auto* number = llvm::dyn_cast_or_null<llvm::ConstantFP>(constant)) {
            factor *= static_cast<double>(number->getValueAPF().convertToFloat());
            x = product->getOperand(0);
        }
    }
    return factor == 1 ? x : ops.multiply(x, ops.constant(static_cast<float>(factor)));
}

/// h (1 + tanh(x)) = 2 h / (1 + exp(-2 x)), which GELU needs. The exponential is kept finite and normal:
/// below that, adding 1 leaves 1; above, the quotient is at most h 2^-126. The exponent's one rounding moves
/// the result no more than the rounding of x itself did.
llvm::Value* times_one_plus_tanh(Instructions& ops, llvm::Value* h, llvm::Value* x) {
    constexpr double log2_e = 1.4426950408889634;
    llvm::Value* y = scaled(ops, x, -2 * log2_e);
    y = ops.maximum(ops.constant(elementary::exp2_least), y);
    y = ops.minimum(ops.constant(elementary::exp2_greatest), y);
    return ops.divide(scaled(ops, h, 2), elementary::one_plus_exp2(ops, y));
}

/// x - floor(x / y) y, exact but for one addition of y: the rest after a rounded quotient is a number of
/// FP32. Two steps take quotients below `most`; beyond it is NaN.
llvm::Value* remainder(Instructions& ops, llvm::Value* x, llvm::Value* y) {
    constexpr float most = 0x1p46f;
    const auto step = [&](llvm::Value* of) {
        llvm::Value* quotient = ops.b.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, ops.divide(of, y));
        return ops.fma(ops.negate(quotient), y, of);
    };
    llvm::Value *x_size = elementary::magnitude(ops, x), *y_size = elementary::magnitude(ops, y);
    llvm::Value* rest = step(step(x));
    rest = ops.select(ops.less(ops.multiply(y_size, ops.constant(most)), x_size),
                      ops.constant(std::numeric_limits<float>::quiet_NaN()), rest);
    rest = ops.select(ops.less(x_size, y_size), x, rest);
    llvm::Value* moved = ops.add(rest, y);
    llvm::Value* zero = ops.constant(0);
    return ops.select(ops.less(y, zero), ops.select(ops.less(zero, rest), moved, rest),
                      ops.select(ops.less(rest, zero), moved, rest));
}

/// The angle of |x| is the angle of -1 / |x| plus pi/2, or of (|x| - 1) / (|x| + 1) plus pi/4, so that the
/// series sees 0.415 at most. Its minimax polynomial errs by 7e-10; with all roundings it is 1.9 ULP.
llvm::Value* atan(Instructions& ops, llvm::Value* x) {
    constexpr float series[] = {-0x1.55554ap-2f, 0x1.9991aep-3f, -0x1.23b6bcp-3f, 0x1.b2023ap-4f,
                                -0x1.f25670p-5f};
    constexpr float middle = 0x1.a8279ap-2f, large = 0x1.3504f3p+1f;  // tan(pi/8), tan(3 pi/8)
    llvm::Value *size = elementary::magnitude(ops, x), *one = ops.constant(1);
    llvm::Value *is_large = ops.less(ops.constant(large), size),
                *is_middle = ops.less(ops.constant(middle), size);
    const auto choose = [&](llvm::Value* of_large, llvm::Value* of_middle, llvm::Value* else_value) {
        return ops.select(is_large, of_large, ops.select(is_middle, of_middle, else_value));
    };
    llvm::Value* u = ops.divide(choose(ops.constant(-1), ops.subtract(size, one), size),
                                choose(size, ops.add(size, one), one));
    llvm::Value* square = ops.multiply(u, u);
    // pi/2 and pi/4, each in two parts.
    llvm::Value* high = choose(ops.constant(0x1.921fb6p+0f), ops.constant(0x1.921fb6p-1f), ops.constant(0));
    llvm::Value* low =
        choose(ops.constant(-0x1.777a5cp-25f), ops.constant(-0x1.777a5cp-26f), ops.constant(0));
    llvm::Value* tail = ops.fma(ops.multiply(u, square), elementary::polynomial(ops, series, square), low);
    llvm::Value* angle = ops.add(high, ops.add(u, tail));
    return ops.b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, angle, x);
}

/// 1 - erf(x) for |x| below 1/2, else exp(-x^2) times a polynomial in 1 / (|x| + 1) that errs by 2e-8, and 2
/// less that for x < 0. The rounding error of x^2, which exp would magnify, is put back; with all roundings
/// 4.5 ULP.
llvm::Value* erfc(Instructions& ops, llvm::Value* x) {
    constexpr float series[] = {0x1.20dc48p-1f,  0x1.210688p-1f,  0x1.1c9ab0p-2f, -0x1.091a0ep-2f,
                                -0x1.67df84p-1f, -0x1.cbbc9ep-1f, 0x1.7f549ep+2f, -0x1.245478p+3f,
                                0x1.96ed92p+2f,  -0x1.c45d9ep+0f};
    constexpr float end = 11;  // the result is 0 from 9.2 on
    llvm::Value *one = ops.constant(1), *size = elementary::magnitude(ops, x);
    llvm::Value* near = ops.subtract(one, elementary::erf(ops, x));
    llvm::Value *a = ops.minimum(size, ops.constant(end)), *square = ops.multiply(a, a);
    llvm::Value* lost = ops.fma(a, a, ops.negate(square));
    llvm::Value* u = ops.divide(one, ops.add(a, one));
    llvm::Value* part = ops.multiply(elementary::polynomial(ops, series, u), u);
    part = ops.fma(ops.negate(lost), part, part);
    llvm::Value* far = ops.multiply(elementary::exp(ops, ops.negate(square)), part);
    far = ops.select(ops.less(x, ops.constant(0)), ops.subtract(ops.constant(2), far), far);
    return ops.select(ops.is_nan(x), x, ops.select(ops.less(size, ops.constant(0.5f)), near, far));
}

/// Division of integers toward minus infinity; by 0 it is 0. No processor meets operands that it traps on.
struct FloorDivision {
    llvm::Value *quotient, *rest;
};

FloorDivision floor_division(llvm::IRBuilderBase& b, const Lanes& lanes, llvm::Value* x, llvm::Value* y) {
    const auto number = [&](int value) { return lanes.constant(value, DType::i32); };
    llvm::Value* none = b.CreateICmpEQ(y, number(0));
    llvm::Value* opposite = b.CreateICmpEQ(y, number(-1));
    llvm::Value* divisor = b.CreateSelect(b.CreateOr(none, opposite), number(1), y);
    llvm::Value* rest = b.CreateSRem(x, divisor);
    llvm::Value* quotient = b.CreateSDiv(x, divisor);
    llvm::Value* is_below =
        b.CreateAnd(b.CreateICmpNE(rest, number(0)), b.CreateICmpSLT(b.CreateXor(rest, divisor), number(0)));
    quotient = b.CreateSelect(is_below, b.CreateSub(quotient, number(1)), quotient);
    quotient = b.CreateSelect(opposite, b.CreateNeg(x), b.CreateSelect(none, number(0), quotient));
    return {quotient, b.CreateSelect(is_below, b.CreateAdd(rest, divisor), rest)};
}

llvm::Value* sign(Instructions& ops, llvm::Value* x) {
    llvm::Value* zero = ops.constant(0);
    return ops.select(ops.less(zero, x), ops.constant(1), ops.select(ops.less(x, zero), ops.constant(-1), x));
}

constexpr char sums_of_contraction[] = "mantissa.sums_of_contraction";

/// Whether a number comes from arithmetic, which flushes subnormals where kernels run, and not from memory or
/// a choice between numbers.
bool made_by_arithmetic(const llvm::Value* value) {
    const auto* instruction = llvm::dyn_cast<llvm::Instruction>(value);
    if (!instruction) return false;
    switch (instruction->getOpcode()) {
        case llvm::Instruction::Load:
            return instruction->hasMetadata(sums_of_contraction);
        case llvm::Instruction::FAdd:
        case llvm::Instruction::FSub:
        case llvm::Instruction::FMul:
        case llvm::Instruction::FDiv:
            return true;
        case llvm::Instruction::Select:
            return made_by_arithmetic(instruction->getOperand(1)) &&
                   made_by_arithmetic(instruction->getOperand(2));
        default: {
            const auto* call = llvm::dyn_cast<llvm::IntrinsicInst>(instruction);
            return call && call->getIntrinsicID() == llvm::Intrinsic::fma;
        }
    }
}

}  // namespace

llvm::Type* Lanes::shaped(llvm::Type* element) const {
    return form_ == Form::one ? element : llvm::FixedVectorType::get(element, static_cast<unsigned>(count()));
}

llvm::Type* Lanes::type(DType dtype) const {
    if (dtype == DType::f64) return shaped(b_.getDoubleTy());
    if (is_floating(dtype)) return shaped(b_.getFloatTy());
    if (dtype == DType::i64) return shaped(b_.getInt64Ty());
    return shaped(dtype == DType::boolean ? static_cast<llvm::Type*>(b_.getInt1Ty()) : b_.getInt32Ty());
}

llvm::Type* Lanes::memory_type(DType dtype) const {
    switch (dtype) {
        case DType::f32:
            return shaped(b_.getFloatTy());
        case DType::f16:
            return shaped(conversions_.f16 == By::instruction ? b_.getHalfTy() : b_.getInt16Ty());
        case DType::bf16:
            return shaped(b_.getInt16Ty());
        case DType::i32:
            return shaped(b_.getInt32Ty());
        case DType::f64:
            return shaped(b_.getDoubleTy());
        case DType::i64:
            return shaped(b_.getInt64Ty());
        case DType::boolean:
        case DType::u8:
        case DType::s8:
            return shaped(b_.getInt8Ty());
    }
    throw InternalError("a storage type outside of its enumeration");
}

llvm::Value* Lanes::constant(double value, DType dtype) const {
    if (dtype == DType::f64) return llvm::ConstantFP::get(type(dtype), value);
    if (is_floating(dtype)) {
        // As FP32 rounds it; NaN and infinities are kept.
        return llvm::ConstantFP::get(shaped(b_.getFloatTy()), llvm::APFloat(static_cast<float>(value)));
    }
    if (dtype == DType::boolean) return llvm::ConstantInt::get(type(dtype), value != 0 ? 1 : 0);
    return llvm::ConstantInt::getSigned(type(dtype), static_cast<std::int64_t>(value));
}

llvm::Value* Lanes::widened(llvm::Value* value) const {
    if (form_ == Form::one || value->getType()->isVectorTy()) return value;
    return b_.CreateVectorSplat(static_cast<unsigned>(count()), value);
}

llvm::Value* Lanes::rounded_to_bf16(llvm::Value* value) const {
    if (form_ != Form::one && conversions_.bf16 == By::instruction && made_by_arithmetic(value))
        return rounded_by_instruction(value);
    // To nearest, ties to even, on the bits; a NaN keeps its upper half and becomes quiet.
    llvm::Value* bits = b_.CreateBitCast(value, type(DType::i32));
    const auto integer = [&](int x) { return constant(x, DType::i32); };
    llvm::Value* odd = b_.CreateAnd(b_.CreateLShr(bits, integer(16)), integer(1));
    llvm::Value* rounded = b_.CreateAdd(bits, b_.CreateAdd(odd, integer(0x7fff)));
    llvm::Value* quiet = b_.CreateOr(bits, integer(0x400000));
    llvm::Value* kept = b_.CreateSelect(b_.CreateFCmpUNO(value, value), quiet, rounded);
    return b_.CreateTrunc(b_.CreateLShr(kept, integer(16)), memory_type(DType::bf16));
}

llvm::Value* Lanes::part(llvm::Value* value, int first) const {
    std::vector<int> lanes(16);
    std::iota(lanes.begin(), lanes.end(), first);
    return count() == 16 ? value : b_.CreateShuffleVector(value, lanes);
}

/// Sixteen at a time, or thirty-two: one instruction that fills a line.
llvm::Value* Lanes::rounded_by_instruction(llvm::Value* value) const {
    if (count() == 16)
        return b_.CreateBitCast(
            b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512bf16_cvtneps2bf16_512, {}, {value}),
            memory_type(DType::bf16));
    std::vector<llvm::Value*> lines;
    for (int first = 0; first < count(); first += 32)
        lines.push_back(
            b_.CreateBitCast(b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512bf16_cvtne2ps2bf16_512, {},
                                                {part(value, first + 16), part(value, first)}),
                             llvm::FixedVectorType::get(b_.getInt16Ty(), 32)));
    return llvm::concatenateVectors(b_, lines);
}

llvm::Value* Lanes::widened_from_bf16(llvm::Value* value) const {
    return b_.CreateBitCast(b_.CreateShl(b_.CreateZExt(value, type(DType::i32)), constant(16, DType::i32)),
                            type(DType::f32));
}

llvm::Value* Lanes::rounded_to_f16(llvm::Value* value) const {
    if (conversions_.f16 == By::instruction_on_integers)
        return b_.CreateIntrinsic(llvm::Intrinsic::convert_to_fp16, {value->getType()}, {value});
    if (conversions_.f16 == By::instruction) return b_.CreateFPTrunc(value, memory_type(DType::f16));
    const Instructions ops{b_, *this};
    llvm::Value* bits = ops.bits(value);
    llvm::Value* magnitude = ops.and_int(bits, ops.integer(0x7fffffff));
    // Rounds to nearest, ties to even: the exponent gets FP16's bias, and 13 bits of the fraction are
    // dropped.
    llvm::Value* odd = ops.and_int(b_.CreateLShr(magnitude, ops.integer(13)), ops.integer(1));
    llvm::Value* rebased = ops.add_int(magnitude, ops.integer(0xfff - (112 << 23)));
    llvm::Value* normal = b_.CreateLShr(ops.add_int(rebased, odd), ops.integer(13));
    // Subnormal results: numbers from 1/2 on have FP16's spacing there, so adding 1/2 rounds. A subnormal of
    // FP32 is zero, be it flushed or not.
    llvm::Value* moved = ops.add(ops.from_bits(magnitude), ops.constant(0.5f));
    llvm::Value* subnormal = ops.add_int(ops.bits(moved), ops.integer(-(126 << 23)));
    // A NaN becomes quiet and keeps the upper bits of its payload.
    llvm::Value* payload = ops.and_int(b_.CreateLShr(magnitude, ops.integer(13)), ops.integer(0x3ff));
    llvm::Value* nan = ops.or_int(payload, ops.integer(0x7e00));
    const auto below = [&](int bound) { return b_.CreateICmpULT(magnitude, ops.integer(bound)); };
    constexpr int min_normal = 113 << 23, first_infinite = 0x477ff000, first_nan = 0x7f800001;
    llvm::Value* finite = b_.CreateSelect(below(min_normal), subnormal, normal);
    llvm::Value* number = b_.CreateSelect(below(first_infinite), finite, ops.integer(0x7c00));
    llvm::Value* sign = ops.and_int(b_.CreateLShr(bits, ops.integer(16)), ops.integer(0x8000));
    return b_.CreateTrunc(ops.or_int(sign, b_.CreateSelect(below(first_nan), number, nan)),
                          memory_type(DType::f16));
}

llvm::Value* Lanes::widened_from_f16(llvm::Value* value) const {
    if (conversions_.f16 == By::instruction_on_integers)
        return b_.CreateIntrinsic(llvm::Intrinsic::convert_from_fp16, {type(DType::f32)}, {value});
    if (conversions_.f16 == By::instruction) return b_.CreateFPExt(value, type(DType::f32));
    const Instructions ops{b_, *this};
    llvm::Value* bits = b_.CreateZExt(value, type(DType::i32));
    llvm::Value* magnitude = ops.shift_left<13>(ops.and_int(bits, ops.integer(0x7fff)));
    llvm::Value* normal = ops.add_int(magnitude, ops.integer(112 << 23));
    // Infinities keep FP32's largest exponent, NaN become quiet.
    llvm::Value* special = ops.or_int(magnitude, ops.integer(0x7f800000));
    special = b_.CreateSelect(b_.CreateICmpEQ(special, ops.integer(0x7f800000)), special,
                              ops.or_int(special, ops.integer(0x400000)));
    // A subnormal's fraction under the exponent of the least normal number is that much too large.
    llvm::Value* under = ops.from_bits(ops.or_int(magnitude, ops.integer(113 << 23)));
    llvm::Value* subnormal = ops.bits(ops.subtract(under, ops.from_bits(ops.integer(113 << 23))));
    const auto below = [&](int bound) { return b_.CreateICmpULT(magnitude, ops.integer(bound)); };
    constexpr int min_normal = 1 << 23, infinite = 31 << 23;
    llvm::Value* finite = b_.CreateSelect(below(min_normal), subnormal, normal);
    llvm::Value* number = b_.CreateSelect(below(infinite), finite, special);
    return ops.from_bits(ops.or_int(ops.shift_left<16>(ops.and_int(bits, ops.integer(0x8000))), number));
}

/// A cast where one of the types has eight bytes.
llvm::Value* Lanes::cast_wide(llvm::Value* value, DType from, DType to) const {
    if (from == to) return value;
    if (from == DType::f64 && is_floating(to))
        return cast(b_.CreateFPTrunc(value, type(DType::f32)), DType::f32, to);
    if (is_floating(from) && to == DType::f64) return b_.CreateFPExt(value, type(to));
    if (to == DType::boolean)
        return from == DType::f64 ? b_.CreateFCmpUNE(value, constant(0, from))
                                  : b_.CreateICmpNE(value, constant(0, from));
    if (is_floating(from)) return b_.CreateFPToSI(value, type(to));
    if (!is_floating(to))
        return from == DType::boolean ? b_.CreateZExt(value, type(to))
                                      : b_.CreateSExtOrTrunc(value, type(to));
    llvm::Type* number = type(to == DType::f64 ? to : DType::f32);
    llvm::Value* converted =
        from == DType::boolean ? b_.CreateUIToFP(value, number) : b_.CreateSIToFP(value, number);
    return to == DType::f64 ? converted : cast(converted, DType::f32, to);
}

llvm::Value* Lanes::cast(llvm::Value* value, DType from, DType to) const {
    if (size_of(from) == 8 || size_of(to) == 8) return cast_wide(value, from, to);
    if (to == DType::bf16 && from != DType::bf16 && is_floating(from))
        return widened_from_bf16(rounded_to_bf16(value));
    if (to == DType::f16 && from != DType::f16 && is_floating(from))
        return widened_from_f16(rounded_to_f16(value));
    if (is_floating(from) && is_floating(to)) return value;
    if (to == DType::boolean)
        return is_floating(from)        ? b_.CreateFCmpUNE(value, constant(0, DType::f32))
               : from == DType::boolean ? value
                                        : b_.CreateICmpNE(value, constant(0, DType::i32));
    if (is_floating(from)) return b_.CreateFPToSI(value, type(to));
    if (!is_floating(to)) return from == to ? value : b_.CreateZExt(value, type(to));
    llvm::Value* number = from == DType::boolean ? b_.CreateUIToFP(value, type(DType::f32))
                                                 : b_.CreateSIToFP(value, type(DType::f32));
    return to == DType::f32 || from == DType::boolean ? number : cast(number, DType::f32, to);
}

llvm::Value* Lanes::arithmetic(std::string_view op, llvm::Value* a, llvm::Value* b, bool floating) const {
    if (op == "add") return floating ? b_.CreateFAdd(a, b) : b_.CreateAdd(a, b);
    if (op == "sub") return floating ? b_.CreateFSub(a, b) : b_.CreateSub(a, b);
    if (op == "mul") return floating ? b_.CreateFMul(a, b) : b_.CreateMul(a, b);
    if (op == "div") return b_.CreateFDiv(a, b);
    if (op == "less") return floating ? b_.CreateFCmpOLT(a, b) : b_.CreateICmpSLT(a, b);
    if (op == "less_equal") return floating ? b_.CreateFCmpOLE(a, b) : b_.CreateICmpSLE(a, b);
    if (op == "equal") return floating ? b_.CreateFCmpOEQ(a, b) : b_.CreateICmpEQ(a, b);
    if (op == "logical_and" || op == "bit_and") return b_.CreateAnd(a, b);
    if (op == "bit_or") return b_.CreateOr(a, b);
    if (op == "bit_xor") return b_.CreateXor(a, b);
    Instructions ops{b_, *this};
    if (op == "pow") return elementary::pow(ops, a, b);
    if (op == "remainder") return remainder(ops, a, b);
    if (op == "copysign")
        return ops.from_bits(
            ops.or_int(ops.and_int(ops.bits(a), ops.integer(0x7fffffff)),
                       ops.and_int(ops.bits(b), ops.integer(static_cast<int>(0x80000000u)))));
    if (op == "integer_remainder") return floor_division(b_, *this, a, b).rest;
    if (op == "integer_division") return floor_division(b_, *this, a, b).quotient;
    if (op == "larger") return ops.maximum(a, b);
    if (op != "maximum" && op != "minimum") return nullptr;
    const bool larger = op == "maximum";
    if (!floating) return b_.CreateSelect(larger ? b_.CreateICmpSGT(a, b) : b_.CreateICmpSLT(a, b), a, b);
    // NaN wins: b where it is NaN, since comparisons with it fail; a where that is NaN, by the second choice.
    llvm::Value* taken = b_.CreateSelect(larger ? b_.CreateFCmpOGT(a, b) : b_.CreateFCmpOLT(a, b), a, b);
    return b_.CreateSelect(b_.CreateFCmpUNO(a, a), a, taken);
}

/// e^x in FP64: 2^n e^r with |r| at most ln(2) / 2. The terms of e^r's series up to r^13 are added; the rest
/// is less than 2^-57 of it. Results below the smallest normal number are zero. NaN gives NaN.
llvm::Value* Lanes::exp_of_f64(llvm::Value* x) const {
    constexpr double log2_e = 0x1.71547652b82fep+0, ln2_high = 0x1.62e42fefa39efp-1,
                     ln2_low = 0x1.abc9e3b39803fp-56, shift = 0x1.8p52, least = -708, greatest = 709.78;
    const auto number = [&](double value) { return constant(value, DType::f64); };
    const auto fma = [&](llvm::Value* a, llvm::Value* b, llvm::Value* c) {
        return b_.CreateIntrinsic(llvm::Intrinsic::fma, {x->getType()}, {a, b, c});
    };
    llvm::Value* shifted = fma(x, number(log2_e), number(shift));
    llvm::Value* n = b_.CreateFSub(shifted, number(shift));
    llvm::Value* r = fma(n, number(-ln2_low), fma(n, number(-ln2_high), x));
    llvm::Value* sum = number(1);
    for (int k = 13; k >= 1; --k)  // 1 + r / k (1 + r / (k + 1) (...))
        sum = fma(b_.CreateFMul(r, number(1.0 / k)), sum, number(1));
    // n sits in the low bits of `shifted`. It is added to the exponent in two steps, so that neither needs
    // 2^1024.
    llvm::Value* bits = b_.CreateSub(b_.CreateBitCast(shifted, type(DType::i64)),
                                     b_.CreateBitCast(number(shift), type(DType::i64)));
    llvm::Value* half = b_.CreateAShr(bits, constant(1, DType::i64));
    for (llvm::Value* part : {half, b_.CreateSub(bits, half)})
        sum = b_.CreateFMul(sum,
                            b_.CreateBitCast(b_.CreateShl(b_.CreateAdd(part, constant(1023, DType::i64)), 52),
                                             type(DType::f64)));
    sum = b_.CreateSelect(b_.CreateFCmpOLT(x, number(least)), number(0), sum);
    sum = b_.CreateSelect(b_.CreateFCmpOGT(x, number(greatest)),
                          number(std::numeric_limits<double>::infinity()), sum);
    return b_.CreateSelect(b_.CreateFCmpUNO(x, x), x, sum);
}

llvm::Value* Lanes::function(std::string_view op, llvm::Value* x) const {
    const bool wide = x->getType()->getScalarType()->isDoubleTy();
    const DType own = wide ? DType::f64 : DType::f32;
    if (op == "sqrt") return b_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, x);
    if (op == "rsqrt")
        return b_.CreateFDiv(constant(1, own), b_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, x));
    if (op == "is_finite")
        return b_.CreateFCmpOLT(b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x),
                                constant(std::numeric_limits<double>::infinity(), own));
    if (wide && op == "exp") return exp_of_f64(x);
    if (wide) throw InternalError(fmt::format("{} cannot be compiled in f64", op));
    Instructions ops{b_, *this};
    if (op == "exp") return elementary::exp(ops, x);
    if (op == "exp_up_to_zero") return elementary::exp_up_to_zero(ops, x);
    if (op == "log") return elementary::log(ops, x);
    if (op == "tanh") return elementary::tanh(ops, x);
    if (op == "erf") return elementary::erf(ops, x);
    if (op == "sin") return elementary::sin(ops, x);
    if (op == "cos") return elementary::cos(ops, x);
    if (op == "log1p") return elementary::log1p(ops, x);
    if (op == "expm1") return elementary::expm1(ops, x);
    if (op == "atan") return atan(ops, x);
    if (op == "erfc") return erfc(ops, x);
    if (op == "floor") return ops.floor(x);
    if (op == "ceil") return b_.CreateUnaryIntrinsic(llvm::Intrinsic::ceil, x);
    if (op == "round") return b_.CreateUnaryIntrinsic(llvm::Intrinsic::nearbyint, x);
    if (op == "trunc") return b_.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, x);
    if (op == "sign") return sign(ops, x);
    if (op == "one_plus_tanh") return times_one_plus_tanh(ops, constant(1, DType::f32), x);
    throw InternalError(fmt::format("{} cannot be compiled", op));
}

llvm::Value* Lanes::apply(std::string_view op, const std::vector<llvm::Value*>& arguments, DType from,
                          DType to) const {
    if (op == "cast") return cast(arguments[0], from, to);
    if (op == "select") return b_.CreateSelect(arguments[0], arguments[1], arguments[2]);
    if (op == "fma") return Instructions{b_, *this}.fma(arguments[0], arguments[1], arguments[2]);
    if (op == "neg") return is_floating(from) ? b_.CreateFNeg(arguments[0]) : b_.CreateNeg(arguments[0]);
    if (arguments.size() == 1) return function(op, arguments[0]);
    if (op == "times_one_plus_tanh") {
        Instructions ops{b_, *this};
        return times_one_plus_tanh(ops, arguments[0], arguments[1]);
    }
    llvm::Value* result = arithmetic(op, arguments[0], arguments[1], is_floating(from));
    if (!result) throw InternalError(fmt::format("{} cannot be compiled", op));
    return result;
}

llvm::Value* Lanes::lane_numbers() const {
    std::vector<std::uint32_t> counts;
    for (int i = 0; i < count(); ++i) counts.push_back(static_cast<std::uint32_t>(i));
    return llvm::ConstantDataVector::get(b_.getContext(), counts);
}

llvm::Value* Lanes::counted_from(llvm::Value* first, DType dtype) const {
    llvm::Value* counted = b_.CreateTrunc(first, b_.getInt32Ty());
    if (form_ != Form::one) counted = b_.CreateAdd(widened(counted), lane_numbers());
    return is_floating(dtype) ? b_.CreateSIToFP(counted, type(DType::f32)) : counted;
}

llvm::Value* Lanes::neutral(bool maximum) const {
    return constant(maximum ? -std::numeric_limits<double>::infinity() : 0.0, DType::f32);
}

llvm::Value* Lanes::load(llvm::Value* address, DType dtype, llvm::Value* mask) const {
    llvm::Type* type_in_memory = memory_type(dtype);
    const llvm::Align align(size_of(dtype));
    llvm::Value* raw = mask ? b_.CreateMaskedLoad(type_in_memory, address, align, mask,
                                                  llvm::Constant::getNullValue(type_in_memory))
                            : static_cast<llvm::Value*>(b_.CreateAlignedLoad(type_in_memory, address, align));
    return read(raw, dtype);
}

llvm::Value* Lanes::read(llvm::Value* raw, DType dtype) const {
    switch (dtype) {
        case DType::f16:
            return widened_from_f16(raw);
        case DType::bf16:
            return widened_from_bf16(raw);
        case DType::boolean:
            return b_.CreateICmpNE(raw, llvm::Constant::getNullValue(raw->getType()));
        case DType::u8:
            return b_.CreateZExt(raw, type(dtype));
        case DType::s8:
            return b_.CreateSExt(raw, type(dtype));
        default:
            return raw;
    }
}

llvm::Value* Lanes::load_sums(llvm::Value* address, llvm::Value* mask) const {
    llvm::Value* sums = load(address, DType::f32, mask);
    if (auto* instruction = llvm::dyn_cast<llvm::LoadInst>(sums))
        instruction->setMetadata(sums_of_contraction, llvm::MDNode::get(b_.getContext(), {}));
    return sums;
}

llvm::Value* Lanes::stored(llvm::Value* value, DType dtype, bool rounded) const {
    switch (dtype) {
        case DType::f16:
            return rounded_to_f16(value);
        case DType::bf16:
            if (!rounded) return rounded_to_bf16(value);
            return b_.CreateTrunc(
                b_.CreateLShr(b_.CreateBitCast(value, type(DType::i32)), constant(16, DType::i32)),
                memory_type(dtype));
        case DType::boolean:
            return b_.CreateZExt(value, memory_type(dtype));
        case DType::u8:
        case DType::s8:
            return b_.CreateTrunc(value, memory_type(dtype));
        default:
            return value;
    }
}

llvm::Value* Lanes::combine(llvm::Value* a, llvm::Value* b, bool maximum) const {
    return maximum ? arithmetic("maximum", a, b, true) : b_.CreateFAdd(a, b);
}

llvm::Value* Lanes::across(llvm::Value* value, bool maximum) const {
    for (int half = count() / 2; half >= 1; half /= 2) {
        std::vector<int> low, high;
        for (int i = 0; i < half; ++i) {
            low.push_back(i);
            high.push_back(i + half);
        }
        value = combine(b_.CreateShuffleVector(value, low), b_.CreateShuffleVector(value, high), maximum);
    }
    return b_.CreateExtractElement(value, std::uint64_t{0});
}

}  // namespace mantissa::codegen
