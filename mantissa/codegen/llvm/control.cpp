#include "mantissa/codegen/llvm/control.h"

#include <llvm/IR/IRBuilder.h>

namespace mantissa::inline v0::codegen {

using llvm::BasicBlock;
using llvm::Value;

BasicBlock* Control::block(const char* name) {
    return BasicBlock::Create(b_.getContext(), name, b_.GetInsertBlock()->getParent());
}

Value* Control::integer(std::int64_t value) { return b_.getInt64(static_cast<std::uint64_t>(value)); }

Value* Control::at(Value* base, Value* element, DType dtype) {
    return b_.CreateGEP(b_.getInt8Ty(), base,
                        b_.CreateMul(element, integer(static_cast<std::int64_t>(size_of(dtype)))));
}

Control::Values Control::loop(const char* name, Value* from, Value* to, Value* step_by, const Values& start,
                              const Body& body) {
    Values first{from};
    first.insert(first.end(), start.begin(), start.end());
    const auto behind_index = [](const Values& all) { return Values(all.begin() + 1, all.end()); };
    const auto is_inside = [&](const Values& now) { return b_.CreateICmpSLT(now[0], to); };
    return behind_index(repeat(name, first, is_inside, [&](const Values& now) {
        Values next = body(now[0], behind_index(now));
        next.insert(next.begin(), b_.CreateNSWAdd(now[0], step_by));
        return next;
    }));
}

Control::Values Control::repeat(const char* name, const Values& start,
                                const std::function<Value*(const Values&)>& goes_on,
                                const std::function<Values(const Values&)>& body) {
    BasicBlock *before = b_.GetInsertBlock(), *head = block(name), *inside = block("inside"),
               *after = block("after");
    b_.CreateBr(head);
    b_.SetInsertPoint(head);
    std::vector<llvm::PHINode*> phis;
    Values carried;
    for (Value* value : start) {
        phis.push_back(b_.CreatePHI(value->getType(), 2));
        phis.back()->addIncoming(value, before);
        carried.push_back(phis.back());
    }
    b_.CreateCondBr(goes_on(carried), inside, after);
    b_.SetInsertPoint(inside);
    const Values next = body(carried);
    for (std::size_t i = 0; i < phis.size(); ++i) phis[i]->addIncoming(next[i], b_.GetInsertBlock());
    b_.CreateBr(head);
    b_.SetInsertPoint(after);
    return carried;
}

void Control::if_then(Value* condition, const std::function<void()>& then,
                      const std::function<void()>& otherwise) {
    BasicBlock *yes = block("yes"), *no = block("no"), *after = block("after");
    b_.CreateCondBr(condition, yes, no);
    b_.SetInsertPoint(yes);
    then();
    b_.CreateBr(after);
    b_.SetInsertPoint(no);
    otherwise();
    b_.CreateBr(after);
    b_.SetInsertPoint(after);
}

Control::Values Control::if_then(Value* condition, const Values& otherwise,
                                 const std::function<Values()>& then) {
    BasicBlock *before = b_.GetInsertBlock(), *yes = block("yes"), *after = block("after");
    b_.CreateCondBr(condition, yes, after);
    b_.SetInsertPoint(yes);
    const Values made = then();
    BasicBlock* end = b_.GetInsertBlock();
    b_.CreateBr(after);
    b_.SetInsertPoint(after);
    Values chosen;
    for (std::size_t i = 0; i < otherwise.size(); ++i) {
        llvm::PHINode* one = b_.CreatePHI(otherwise[i]->getType(), 2);
        one->addIncoming(otherwise[i], before);
        one->addIncoming(made[i], end);
        chosen.push_back(one);
    }
    return chosen;
}

}  // namespace mantissa::codegen
