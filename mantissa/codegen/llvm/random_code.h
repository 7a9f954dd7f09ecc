// Random numbers of base/random.h as LLVM instructions.
#pragma once

#include <array>
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

/// The four words, i32, of Philox4x32-10's block of that number, i64. `of.number` is not read.
std::array<llvm::Value*, 4> random_block(llvm::IRBuilderBase& builder, const Lanes& lanes,
                                         const RandomNumbers& of, llvm::Value* block);

/// A word as a number in [0, 1), FP32.
llvm::Value* uniform_of_word(llvm::IRBuilderBase& builder, const Lanes& lanes, llvm::Value* word);

/// Uniform in [0, 1), FP32: the element's own word of its block.
llvm::Value* uniform_numbers(llvm::IRBuilderBase& builder, const Lanes& lanes, const RandomNumbers& of);

}  // namespace mantissa::codegen
