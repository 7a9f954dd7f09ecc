#include "mantissa/codegen/llvm/random_code.h"

#include <llvm/IR/IRBuilder.h>

namespace mantissa::inline v0::codegen {

std::array<llvm::Value*, 4> random_block(llvm::IRBuilderBase& b, const Lanes& lanes, const RandomNumbers& of,
                                         llvm::Value* block) {
    using llvm::Value;
    llvm::Type *word = lanes.type(DType::i32), *wide = lanes.type(DType::i64);
    const auto low = [&](Value* x) { return b.CreateTrunc(x, word); };
    const auto high = [&](Value* x) { return low(b.CreateLShr(x, 32)); };
    const auto number_of = [&](std::uint32_t x) {
        return lanes.constant(static_cast<double>(static_cast<std::int32_t>(x)), DType::i32);
    };
    const auto product = [&](std::uint32_t factor, Value* x) {
        return b.CreateMul(b.CreateZExt(x, wide), lanes.constant(static_cast<double>(factor), DType::i64));
    };
    std::array<Value*, 4> counter{low(block), high(block),
                                  number_of(static_cast<std::uint32_t>(of.operation)), low(of.step)};
    Value* key[] = {low(of.seed), high(of.seed)};
    for (int round = 0; round < 10; ++round) {
        Value *first = product(0xD2511F53, counter[0]), *second = product(0xCD9E8D57, counter[2]);
        counter = {b.CreateXor(b.CreateXor(high(second), counter[1]), key[0]), low(second),
                   b.CreateXor(b.CreateXor(high(first), counter[3]), key[1]), low(first)};
        key[0] = b.CreateAdd(key[0], number_of(0x9E3779B9));
        key[1] = b.CreateAdd(key[1], number_of(0xBB67AE85));
    }
    return counter;
}

llvm::Value* uniform_of_word(llvm::IRBuilderBase& b, const Lanes& lanes, llvm::Value* word) {
    return b.CreateFMul(b.CreateSIToFP(b.CreateLShr(word, 8), lanes.type(DType::f32)),
                        lanes.constant(0x1p-24, DType::f32));
}

llvm::Value* uniform_numbers(llvm::IRBuilderBase& b, const Lanes& lanes, const RandomNumbers& of) {
    using llvm::Value;
    const std::array<Value*, 4> all = random_block(b, lanes, of, b.CreateLShr(of.number, 2));
    Value* which =
        b.CreateAnd(b.CreateTrunc(of.number, lanes.type(DType::i32)), lanes.constant(3, DType::i32));
    Value* chosen = all[3];
    for (int i = 0; i < 3; ++i)
        chosen = b.CreateSelect(b.CreateICmpEQ(which, lanes.constant(i, DType::i32)),
                                all[static_cast<std::size_t>(i)], chosen);
    return uniform_of_word(b, lanes, chosen);
}

}  // namespace mantissa::codegen
