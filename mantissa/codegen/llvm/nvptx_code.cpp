// Loop nests on NVIDIA GPUs: a block of threads has some rows, or some elements of a flat nest, and each
// thread every so many columns of them, always the same ones of each row. So scratch rows and sums over rows
// need no thread to wait for another; reductions along a row do.
//
// No bit depends on how many blocks run at a time: which rows a block has is an argument, threads are
// combined in one order, and nothing is added atomically. Results of one element are those of the CPU.
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/IntrinsicsNVPTX.h>
#include <llvm/IR/Module.h>

#include "mantissa/base/error.h"
#include "mantissa/codegen/llvm/control.h"
#include "mantissa/codegen/llvm/gpu_kernel.h"
#include "mantissa/codegen/llvm/gpu_table.h"
#include "mantissa/codegen/llvm/ptx.h"
#include "mantissa/codegen/llvm/target_code.h"

namespace mantissa::inline v0::codegen {

namespace {

using llvm::Value;

constexpr unsigned global_memory = 1, shared_memory = 3;
constexpr int warp_threads = 32;

class NvptxCode final : public TargetCode {
  public:
    NvptxCode(llvm::IRBuilderBase& builder, const LoopNest& nest, const NvptxTarget& target)
        : b_(builder),
          nest_(nest),
          threads_(target.threads),
          in_place_(target.in_place),
          table_(table_of(target, nest.inputs.size(), nest.outputs.size())),
          control_(builder),
          lanes_(builder, Lanes::Form::one,
                 {.bf16 = Lanes::By::bits, .f16 = Lanes::By::instruction_on_integers}) {
        check(threads_ % warp_threads == 0 && threads_ > 0, "a block of threads is made of whole warps");
        check(table_.parts == 0 || (nest.flat && nest.partial_sums == 0 && nest.scratch_rows == 0),
              "parts of a table are flat nests without sums");
    }

    CodeArguments begin(llvm::Module& module, const std::string& name) override {
        module_ = &module;
        llvm::Type *pointer = b_.getPtrTy(global_memory), *number = b_.getInt64Ty();
        std::vector<llvm::Type*> parameters(nest_.inputs.size() + nest_.outputs.size(), pointer);
        parameters.insert(parameters.end(), {number, number, pointer, pointer});
        if (table_.parts > 0) parameters = {GpuTable::parameter_type(b_), number};
        function_ = llvm::Function::Create(llvm::FunctionType::get(b_.getVoidTy(), parameters, false),
                                           llvm::Function::ExternalLinkage, name, module);
        describe();
        b_.SetInsertPoint(llvm::BasicBlock::Create(b_.getContext(), "entry", function_));
        return read_arguments();
    }

    const Lanes& lanes() const override { return lanes_; }

    Values over(const Walk& walk, const Range& range, const ColumnsBody& body) override {
        // What is the same for the whole walk every thread has read before; where there is but one element,
        // one of them writes over it.
        if (in_place_) barrier();
        Values sums;
        for (const Reduction& reduction : walk.reductions) sums.push_back(lanes_.neutral(reduction.maximum));
        sums = control_.loop("columns", b_.CreateAdd(range.first, thread_), range.last,
                             control_.integer(threads_), sums, [&](Value* column, Values carried) {
                                 body({column, nullptr, range.from_memory}, carried.data());
                                 return carried;
                             });
        for (std::size_t i = 0; i < sums.size(); ++i)
            sums[i] = across_block(sums[i], walk.reductions[i].maximum);
        return sums;
    }

    void once_a_row(const std::function<void()>& body) override {
        control_.if_then(b_.CreateICmpEQ(thread_, control_.integer(0)), body, [] {});
    }

    Value* load(Value* address, DType dtype, const Columns&) override { return lanes_.load(address, dtype); }

    // LLVM 19 has no store past the caches for this target, whatever the hint.
    void store(Value* value, Value* address, int output, const Columns&) override {
        const DType dtype = nest_.outputs[output];
        b_.CreateAlignedStore(value, address, llvm::Align(size_of(dtype)));
    }

    void add_to(Value* address, Value* value, const Columns&) override {
        Value* before = b_.CreateAlignedLoad(value->getType(), address, llvm::Align(4));
        b_.CreateAlignedStore(b_.CreateFAdd(before, value), address, llvm::Align(4));
    }

  private:
    /// What the back end and the driver are told. Operands are in no output's memory, so that they may be
    /// read through the read-only cache.
    void describe() {
        make_gpu_kernel(*function_, threads_);
        if (table_.parts > 0) GpuTable::mark(*function_, table_);
        if (in_place_ || table_.parts > 0) return;
        unsigned parameter = 0;
        for (; parameter < nest_.inputs.size(); ++parameter) {
            function_->addParamAttr(parameter, llvm::Attribute::NoAlias);
            function_->addParamAttr(parameter, llvm::Attribute::ReadOnly);
        }
        for (; parameter < nest_.inputs.size() + nest_.outputs.size(); ++parameter)
            function_->addParamAttr(parameter, llvm::Attribute::NoAlias);
    }

    CodeArguments read_arguments() {
        thread_ = b_.CreateZExt(special(llvm::Intrinsic::nvvm_read_ptx_sreg_tid_x), b_.getInt64Ty());
        Value* block = b_.CreateZExt(special(llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_x), b_.getInt64Ty());
        CodeArguments arguments;
        if (table_.parts > 0) return arguments_of_part(block);
        unsigned parameter = 0;
        for (std::size_t i = 0; i < nest_.inputs.size(); ++i)
            arguments.inputs.push_back(function_->getArg(parameter++));
        for (std::size_t i = 0; i < nest_.outputs.size(); ++i)
            arguments.outputs.push_back(function_->getArg(parameter++));
        take_rows(arguments, block, function_->getArg(parameter), function_->getArg(parameter + 1));
        const auto of_block = [&](Value* base, std::int64_t floats) {
            return control_.at(base, b_.CreateMul(block, control_.integer(floats)), DType::f32);
        };
        arguments.partial_sums = of_block(function_->getArg(parameter + 2), nest_.partial_sums);
        if (const std::int64_t floats = global_scratch_floats(nest_); floats > 0)
            arguments.scratch = of_block(function_->getArg(parameter + 3), floats);
        else if (nest_.scratch_rows > 0)
            arguments.scratch = shared("scratch", scratch_floats(nest_));
        return arguments;
    }

    CodeArguments arguments_of_part(Value* block) {
        GpuTable part(b_, *function_, table_, block);
        CodeArguments arguments;
        std::int64_t word = 1;
        for (std::size_t i = 0; i < nest_.inputs.size(); ++i)
            arguments.inputs.push_back(part.address(word++));
        for (std::size_t i = 0; i < nest_.outputs.size(); ++i)
            arguments.outputs.push_back(part.address(word++));
        take_rows(arguments, part.block(), part.number(word), function_->getArg(1));
        return arguments;
    }

    void take_rows(CodeArguments& arguments, Value* block, Value* rows, Value* rows_per_block) {
        arguments.first = b_.CreateMul(block, rows_per_block);
        Value* end = b_.CreateAdd(arguments.first, rows_per_block);
        arguments.last = b_.CreateSelect(b_.CreateICmpSLT(end, rows), end, rows);
    }

    Value* special(llvm::Intrinsic::ID which) { return b_.CreateIntrinsic(which, {}, {}); }

    /// An array of FP32 in the block's shared memory.
    llvm::GlobalVariable* shared(const char* name, std::int64_t floats) {
        llvm::Type* type = llvm::ArrayType::get(b_.getFloatTy(), static_cast<std::uint64_t>(floats));
        auto* array = new llvm::GlobalVariable(  // the module owns it
            *module_, type, false, llvm::GlobalValue::InternalLinkage, llvm::UndefValue::get(type), name,
            nullptr, llvm::GlobalValue::NotThreadLocal, shared_memory);
        array->setAlignment(llvm::Align(16));
        return array;
    }

    /// One number a thread as one for all of them: by halves within a warp, then warp after warp.
    Value* across_block(Value* value, bool maximum) {
        for (int distance = warp_threads / 2; distance > 0; distance /= 2)
            value = lanes_.combine(value, shuffled(value, distance), maximum);
        const int warps = threads_ / warp_threads;
        if (warps == 1) return value;
        if (!of_warps_) of_warps_ = shared("of_warps", warps);
        const auto slot = [&](Value* warp) { return control_.at(of_warps_, warp, DType::f32); };
        Value* lane = b_.CreateAnd(thread_, control_.integer(warp_threads - 1));
        control_.if_then(
            b_.CreateICmpEQ(lane, control_.integer(0)),
            [&] { b_.CreateStore(value, slot(b_.CreateUDiv(thread_, control_.integer(warp_threads)))); },
            [] {});
        barrier();
        Value* whole = b_.CreateLoad(b_.getFloatTy(), slot(control_.integer(0)));
        for (int warp = 1; warp < warps; ++warp)
            whole =
                lanes_.combine(whole, b_.CreateLoad(b_.getFloatTy(), slot(control_.integer(warp))), maximum);
        barrier();  // before anybody writes the next reduction's
        return whole;
    }

    /// The value of the thread whose number in the warp differs in one bit.
    Value* shuffled(Value* value, int distance) {
        return b_.CreateIntrinsic(
            llvm::Intrinsic::nvvm_shfl_sync_bfly_f32, {},
            {b_.getInt32(~std::uint32_t{0}), value, b_.getInt32(static_cast<std::uint32_t>(distance)),
             b_.getInt32(warp_threads - 1)});
    }

    void barrier() { b_.CreateIntrinsic(llvm::Intrinsic::nvvm_barrier0, {}, {}); }

    llvm::IRBuilderBase& b_;
    const LoopNest& nest_;
    int threads_;
    bool in_place_;
    PartTable table_;
    Control control_;
    Lanes lanes_;
    llvm::Module* module_ = nullptr;
    llvm::Function* function_ = nullptr;
    Value* thread_ = nullptr;
    llvm::GlobalVariable* of_warps_ = nullptr;
};

}  // namespace

std::unique_ptr<TargetCode> make_nvptx_code(llvm::IRBuilderBase& builder, const LoopNest& nest,
                                            const NvptxTarget& target) {
    return std::make_unique<NvptxCode>(builder, nest, target);
}

}  // namespace mantissa::codegen
