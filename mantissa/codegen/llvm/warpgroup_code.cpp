// Products of MatrixCode for four warps at a time: wgmma.mma_async of 64 rows with 16 terms, the left operand
// in registers, the right one where a descriptor finds it in shared memory (PTX ISA 8.7, "Asynchronous
// Warpgroup Level Matrix Instructions"). A warp has 16 of the rows, and its lanes have them as for mma.sync.
#include <fmt/format.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InlineAsm.h>

#include <algorithm>

#include "mantissa/codegen/llvm/matrix_code.h"

namespace mantissa::inline v0::codegen {

using llvm::Value;

namespace {

constexpr int terms_of_step = 16;
constexpr std::int64_t row_bytes = 128, step_bytes = 2 * terms_of_step;

/// Addresses and distances of a descriptor count 16 bytes.
constexpr std::uint64_t in_descriptor(std::int64_t bytes) { return static_cast<std::uint64_t>(bytes) / 16; }

bool is_zero(Value* x) {
    const auto* constant = llvm::dyn_cast<llvm::Constant>(x);
    return constant && constant->isNullValue();
}

llvm::CallInst* call_assembly(llvm::IRBuilderBase& builder, llvm::Type* result, const std::string& text,
                              const std::string& constraints, const std::vector<Value*>& operands) {
    std::vector<llvm::Type*> types;
    for (Value* operand : operands) types.push_back(operand->getType());
    llvm::CallInst* call = builder.CreateCall(
        llvm::InlineAsm::get(llvm::FunctionType::get(result, types, false), text, constraints, true),
        operands);
    call->addFnAttr(llvm::Attribute::Convergent);
    return call;
}

}  // namespace

/// Threads and cp.async write by another path than the unit reads by.
void MatrixCode::show_to_warpgroups() {
    call_assembly(b_, b_.getVoidTy(), "fence.proxy.async.shared::cta;", "~{memory}", {});
}

/// Where the 16 terms of a step are. Rows of terms (`columns`): eight rows, 1,024 bytes, follow on eight; a
/// step is 32 bytes of each row, and 64 terms on comes the next tile of as many rows. Rows of columns: a step
/// is 16 rows, and 64 columns on comes the next tile.
Value* MatrixCode::descriptor_of(const Product& product, int step) {
    const auto& [rows, terms, columns] = product.extents;
    constexpr std::int64_t steps_of_row = row_bytes / step_bytes, eight_rows = 8 * row_bytes;
    const bool has_terms = product.has == TileHas::columns;
    const std::int64_t bytes =
        has_terms ? step / steps_of_row * columns * row_bytes + step % steps_of_row * step_bytes
                  : std::int64_t{step} * terms_of_step * row_bytes;
    const std::uint64_t next_tile = has_terms ? 1 : in_descriptor(terms * row_bytes);  // 1: it is not used
    constexpr std::uint64_t swizzled_128 = 1;
    const std::uint64_t fixed =
        in_descriptor(bytes) + (next_tile << 16) + (in_descriptor(eight_rows) << 32) + (swizzled_128 << 62);
    Value* address = b_.CreateLShr(b_.CreatePtrToInt(product.tile, b_.getInt64Ty()), 4);
    return b_.CreateAdd(b_.CreateAnd(address, b_.getInt64(0x3fff)), b_.getInt64(fixed));
}

/// One piece of assembly, at whose end the sums are there: nobody can touch them before.
void MatrixCode::multiply_by_warpgroups(const std::vector<Product>& products) {
    std::size_t results = 0;
    for (const Product& product : products) results += product.sums.size();
    const char* const type = format_.dtype == DType::bf16 ? "bf16" : "f16";
    std::string text = "wgmma.fence.sync.aligned;\n", outputs, inputs, added_to;
    Values operands, before;
    const auto list = [](std::size_t from, std::size_t count) {
        std::string names;
        for (std::size_t i = from; i < from + count; ++i)
            names += fmt::format("{}${}", i == from ? "" : ", ", i);
        return "{" + names + "}";
    };
    std::size_t first = 0;
    for (const Product& product : products) {
        const std::size_t count = product.sums.size();
        const bool from_zero = std::ranges::all_of(product.sums, is_zero);
        for (int step = 0; step < product.extents.terms / terms_of_step; ++step) {
            const std::size_t left = results + operands.size();
            const Fragment a = product.a(0, step);
            operands.insert(operands.end(), a.begin(), a.end());
            operands.push_back(descriptor_of(product, step));
            inputs += ",r,r,r,r,l";
            text += fmt::format(
                "wgmma.mma_async.sync.aligned.m64n{}k16.f32.{}.{} {}, {}, ${}, {}, 1, 1, {};\n",
                product.extents.columns, type, type, list(first, count), list(left, a.size()),
                left + a.size(), from_zero && step == 0 ? 0 : 1, product.has == TileHas::rows ? 1 : 0);
        }
        for (std::size_t i = first; i < first + count; ++i) {
            outputs += outputs.empty() ? "=f" : ",=f";
            if (!from_zero) added_to += fmt::format(",{}", i);
        }
        if (!from_zero) before.insert(before.end(), product.sums.begin(), product.sums.end());
        first += count;
    }
    text += "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;";
    operands.insert(operands.end(), before.begin(), before.end());
    llvm::Type* made_type =
        llvm::StructType::get(b_.getContext(), std::vector<llvm::Type*>(results, b_.getFloatTy()));
    Value* made = call_assembly(b_, made_type, text, outputs + inputs + added_to + ",~{memory}", operands);
    unsigned next = 0;
    for (const Product& product : products)
        for (Value*& sum : product.sums) sum = b_.CreateExtractValue(made, next++);
}

}  // namespace mantissa::codegen
