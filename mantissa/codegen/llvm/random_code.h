// Random numbers of base/random.h as LLVM instructions.
#pragma once

#include <cstdint>

#include "mantissa/codegen/llvm/lanes.h"

namespace mantissa::inline v0::codegen {

/// The key that the numbers are functions of: of each lane one number, or 64 bits.
struct RandomNumbers {
    llvm::Value* seed = nullptr;    ///< i64
    llvm::Value* step = nullptr;    ///< i64
    llvm::Value* number = nullptr;  ///< i64: the element's among all
    std::int64_t operation = 0;
};

/// Uniform in [0, 1), FP32: Philox4x32-10 of each element's block, and of its four words the element's own.
llvm::Value* uniform_numbers(llvm::IRBuilderBase& builder, const Lanes& lanes, const RandomNumbers& of);

}  // namespace mantissa::codegen
