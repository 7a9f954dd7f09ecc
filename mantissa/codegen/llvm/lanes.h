// Sixteen lanes, or one number, as LLVM values: arithmetic, memory and reductions for the loops of emit.cpp.
//
// The host has sixteen at every instruction-set level, and the back end splits them where registers are
// shorter: sums then have one order, and the same bits at every level. A thread of a GPU has one.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "mantissa/numerics/dtype.h"

namespace llvm {
class IRBuilderBase;
class Type;
class Value;
}  // namespace llvm

namespace mantissa::inline v0::codegen {

/// Builds instructions on values that are all vectors of one length or all single numbers. Floating-point
/// values are FP32 whatever they are stored in, or FP64; integers have 32 bits, or 64; booleans one.
class Lanes {
  public:
    /// One number, or a vector of so many. The back end splits long vectors into registers, whose chains of
    /// operations then run side by side.
    enum class Form : std::uint8_t { one = 1, sixteen = 16, thirty_two = 32, sixty_four = 64 };
    enum class By : std::uint8_t {
        bits,
        instruction,
        /// The instruction on integers of 16 bits, which LLVM does not look into. Else it compares widened
        /// numbers as FP16, and a GPU that flushes subnormals of FP32 then flushes subnormals of FP16, too.
        instruction_on_integers,
    };
    /// How numbers of 16 bits are made and read; both ways give the same bits.
    struct Conversions {
        /// Rounding sixteen numbers that arithmetic made. The instruction is AVX512_BF16's, which takes
        /// subnormals for zero; arithmetic gives none where kernels run. Others are rounded on their bits.
        By bf16 = By::bits;
        By f16 = By::instruction;  ///< rounding and widening: F16C's on x86, which its plainest level lacks
    };

    Lanes(llvm::IRBuilderBase& builder, Form form, const Conversions& conversions)
        : b_(builder), form_(form), conversions_(conversions) {}

    /// One number, converted likewise.
    Lanes of_one() const { return {b_, Form::one, conversions_}; }

    int count() const { return static_cast<int>(form_); }
    /// Sixteen lanes of a longer vector, from a lane on.
    llvm::Value* part(llvm::Value* value, int first) const;
    /// The type of a value in registers.
    llvm::Type* type(DType dtype) const;
    llvm::Value* constant(double value, DType dtype) const;
    /// The neutral element of a reduction: 0, or -infinity for a maximum.
    llvm::Value* neutral(bool maximum) const;
    /// 0 to 15, one a lane.
    llvm::Value* lane_numbers() const;
    /// Counts from a number on, one a lane.
    llvm::Value* counted_from(llvm::Value* first, DType dtype) const;
    /// The value as it is, or a single number in every lane.
    llvm::Value* widened(llvm::Value* value) const;

    /// An element-wise operation of the op table. Throws InternalError for an unknown one.
    llvm::Value* apply(std::string_view op, const std::vector<llvm::Value*>& arguments, DType from,
                       DType to) const;

    /// The type of a value in memory.
    llvm::Type* memory_type(DType dtype) const;
    /// A value that was in memory, as registers have it.
    llvm::Value* read(llvm::Value* raw, DType dtype) const;
    /// `mask` null: all lanes.
    llvm::Value* load(llvm::Value* address, DType dtype, llvm::Value* mask = nullptr) const;
    /// Loads FP32 sums that a contraction just made.
    llvm::Value* load_sums(llvm::Value* address, llvm::Value* mask = nullptr) const;
    /// `rounded`: the value is exact in its type already.
    llvm::Value* stored(llvm::Value* value, DType dtype, bool rounded) const;

    llvm::Value* combine(llvm::Value* a, llvm::Value* b, bool maximum) const;
    /// The sixteen lanes as one number, by halves.
    llvm::Value* across(llvm::Value* value, bool maximum) const;

  private:
    llvm::Value* cast(llvm::Value* value, DType from, DType to) const;
    llvm::Value* cast_wide(llvm::Value* value, DType from, DType to) const;
    llvm::Value* exp_of_f64(llvm::Value* x) const;
    llvm::Value* arithmetic(std::string_view op, llvm::Value* a, llvm::Value* b, bool floating) const;
    llvm::Value* function(std::string_view op, llvm::Value* x) const;
    /// As in memory.
    llvm::Value* rounded_to_bf16(llvm::Value* value) const;
    llvm::Value* rounded_by_instruction(llvm::Value* value) const;
    llvm::Value* widened_from_bf16(llvm::Value* value) const;
    llvm::Value* rounded_to_f16(llvm::Value* value) const;
    llvm::Value* widened_from_f16(llvm::Value* value) const;
    llvm::Type* shaped(llvm::Type* element) const;

    llvm::IRBuilderBase& b_;
    Form form_;
    Conversions conversions_;
};

}  // namespace mantissa::codegen
