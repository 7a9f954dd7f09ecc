// Loop nests on NVIDIA GPUs: a block of threads has some rows, or some elements of a flat nest, and each
// thread every so many columns of them, always the same ones of each row. So scratch rows and sums over rows
// need no thread to wait for another; reductions along a row do. A thread makes some neighbouring columns at
// one time (NvptxTarget::at_once): the first of them reads for all, and the last writes for all.
//
// No bit depends on how many blocks run at a time: the rows of a block are an argument, threads are combined
// in one order, and nothing is added atomically. Results of one element are the CPU's.
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/IntrinsicsNVPTX.h>
#include <llvm/IR/Module.h>

#include <algorithm>
#include <bit>
#include <map>

#include "mantissa/base/error.h"
#include "mantissa/base/function_ref.h"
#include "mantissa/codegen/llvm/control.h"
#include "mantissa/codegen/llvm/gpu_code.h"
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
          at_once_(target.at_once),
          side_by_side_(target.side_by_side),
          one_place_(has_one_place(nest, target)),
          in_place_(target.in_place),
          table_(table_of(target, nest.inputs.size(), nest.outputs.size())),
          control_(builder),
          lanes_(builder, Lanes::Form::one,
                 {.bf16 = Lanes::By::bits, .f16 = Lanes::By::instruction_on_integers}) {
        check(threads_ * side_by_side_ % warp_threads == 0 && threads_ > 0,
              "a block of threads is made of whole warps");
        check(side_by_side_ == 1 ||
                  (!in_place_ && one_place_ &&
                   std::ranges::all_of(
                       nest.walks,
                       [](const Walk& walk) { return walk.reductions.empty() && walk.row_sums.empty(); })),
              "rows side by side do not wait");
        check(nest.flat || nest.columns % at_once_ == 0,
              "rows are a multiple of what a thread makes at one time");
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
        // Values that are constant for the whole walk were read by every thread before; where there is but
        // one element, one of the threads writes over it.
        if (in_place_) barrier();
        Values sums;
        for (const Reduction& reduction : walk.reductions) sums.push_back(lanes_.neutral(reduction.maximum));
        const auto group = [&](Value* column, const Values& carried) {
            return emit_group(column, body, carried);
        };
        Value* first = b_.CreateAdd(range.first, b_.CreateMul(thread_, control_.integer(at_once_)));
        if (one_place_ && range.columns == threads_ * at_once_) {
            sums = group(first, sums);
        } else if (one_place_) {
            sums = control_.if_then(b_.CreateICmpSLT(first, range.last), sums,
                                    [&] { return group(first, sums); });
        } else {
            Value* left = b_.CreateURem(b_.CreateSub(range.last, range.first), control_.integer(at_once_));
            Value* whole = nest_.flat ? b_.CreateSub(range.last, left) : range.last;
            sums = control_.loop("columns", first, whole, control_.integer(threads_ * at_once_), sums, group);
            if (nest_.flat && at_once_ > 1) over_the_rest(whole, range.last, body);
        }
        for (std::size_t i = 0; i < sums.size(); ++i)
            sums[i] = across_block(sums[i], walk.reductions[i].maximum);
        return sums;
    }

    void once_a_row(const std::function<void()>& body) override {
        control_.if_then(b_.CreateICmpEQ(thread_, control_.integer(0)), body, [] {});
    }

    Value* load(Value* address, DType dtype, const Columns&) override {
        if (group_ == 1) return lanes_.load(address, dtype);
        if (member_ == 0) {
            llvm::Type* type =
                llvm::FixedVectorType::get(lanes_.memory_type(dtype), static_cast<unsigned>(group_));
            llvm::LoadInst* all = b_.CreateAlignedLoad(type, address, alignment_of(dtype));
            // Nobody writes it while the kernel runs: a walk need not read again after an earlier walk.
            if (!in_place_)
                all->setMetadata(llvm::LLVMContext::MD_invariant_load,
                                 llvm::MDNode::get(b_.getContext(), {}));
            read_.push_back(all);
        }
        return lanes_.read(
            b_.CreateExtractElement(read_.at(next_read_++), static_cast<std::uint64_t>(member_)), dtype);
    }

    // LLVM 19 has no store past the caches for this target, whatever the hint.
    void store(Value* value, Value* address, int output, const Columns&) override {
        const DType dtype = nest_.outputs[output];
        if (group_ == 1) {
            b_.CreateAlignedStore(value, address, llvm::Align(size_of(dtype)));
            return;
        }
        if (member_ == 0)
            written_.push_back({address, llvm::PoisonValue::get(llvm::FixedVectorType::get(
                                             value->getType(), static_cast<unsigned>(group_)))});
        Written& all = written_.at(next_written_++);
        all.values = b_.CreateInsertElement(all.values, value, static_cast<std::uint64_t>(member_));
        if (member_ + 1 == group_) b_.CreateAlignedStore(all.values, all.address, alignment_of(dtype));
    }

    void add_to(const RowSum& sum, Value* address, const Values& values, const Columns&) override {
        Value* const value = values[0];
        if (one_place_) {
            Value* own = variable(sums_, sum.offset, value->getType());
            b_.CreateStore(b_.CreateFAdd(b_.CreateLoad(value->getType(), own), value), own);
            return;
        }
        Value* before = b_.CreateAlignedLoad(value->getType(), address, llvm::Align(4));
        b_.CreateAlignedStore(b_.CreateFAdd(before, value), address, llvm::Align(4));
    }

    void keep(const Keep& keep, Value* address, Value* value) override {
        b_.CreateStore(value, one_place_ ? variable(kept_, keep.value, value->getType()) : address);
    }
    Value* kept(const Keep& keep, Value* address, llvm::Type* type) override {
        return b_.CreateLoad(type, one_place_ ? variable(kept_, keep.value, type) : address);
    }

    /// Writes each thread's sums over rows, which it has in variables.
    void end() override {
        if (sums_.empty()) return;
        if (side_by_side_ == 1) {
            store_sums(partial_sums_, [](std::int64_t offset, std::size_t) { return offset; });
            return;
        }
        const std::int64_t of_rows = side_by_side_ * nest_.columns;
        llvm::GlobalVariable* all = shared("of_rows", std::ssize(sums_) * of_rows);
        store_sums(control_.at(all, b_.CreateMul(row_, control_.integer(nest_.columns)), DType::f32),
                   [&](std::int64_t, std::size_t sum) { return static_cast<std::int64_t>(sum) * of_rows; });
        barrier();
        Value* thread = b_.CreateAdd(b_.CreateMul(row_, control_.integer(threads_)), thread_);
        control_.loop(
            "sums", thread, control_.integer(nest_.columns),
            control_.integer(std::int64_t{threads_} * side_by_side_), {}, [&](Value* column, const Values&) {
                std::int64_t sum = 0;
                for (const auto& [offset, variables] : sums_)
                    b_.CreateStore(sum_of_rows(all, column, sum++ * of_rows),
                                   control_.at(partial_sums_, b_.CreateAdd(column, control_.integer(offset)),
                                               DType::f32));
                return Values{};
            });
    }

  private:
    /// Stores the thread's sums of its columns, each where `place` says that its first column lies, by its
    /// offset and its number.
    void store_sums(Value* base, FunctionRef<std::int64_t(std::int64_t, std::size_t)> place) {
        Value* first = b_.CreateMul(thread_, control_.integer(at_once_));
        const auto store = [&] {
            std::size_t sum = 0;
            for (const auto& [offset, variables] : sums_) {
                const std::int64_t begin = place(offset, sum++);
                for (std::size_t i = 0; i < variables.size(); ++i) {
                    Value* column =
                        b_.CreateAdd(first, control_.integer(begin + static_cast<std::int64_t>(i)));
                    b_.CreateStore(b_.CreateLoad(b_.getFloatTy(), variables[i]),
                                   control_.at(base, column, DType::f32));
                }
            }
        };
        control_.if_then(b_.CreateICmpSLT(first, control_.integer(nest_.columns)), store, [] {});
    }

    /// One column's sum over the rows of the block, in their order.
    Value* sum_of_rows(Value* all, Value* column, std::int64_t first) {
        Value* sum = nullptr;
        for (std::int64_t row = 0; row < side_by_side_; ++row) {
            Value* at = b_.CreateAdd(column, control_.integer(first + row * nest_.columns));
            Value* own = b_.CreateLoad(b_.getFloatTy(), control_.at(all, at, DType::f32));
            sum = sum ? b_.CreateFAdd(sum, own) : own;
        }
        return sum;
    }

    /// One output of a group: its members collect their values, and the last one writes all.
    struct Written {
        Value* address = nullptr;
        Value* values = nullptr;
    };
    using Variables = std::map<std::int64_t, std::vector<llvm::AllocaInst*>>;

    /// Neighbouring columns, which one thread makes.
    Values emit_group(Value* column, const ColumnsBody& body, Values carried) {
        group_ = at_once_;
        read_.clear();
        written_.clear();
        for (member_ = 0; member_ < group_; ++member_) {
            next_read_ = next_written_ = 0;
            body({b_.CreateAdd(column, control_.integer(member_)), nullptr, false}, carried.data());
        }
        member_ = 0;
        group_ = 1;
        return carried;
    }

    /// The elements of a flat nest that fill no group.
    void over_the_rest(Value* first, Value* last, const ColumnsBody& body) {
        control_.loop("rest", b_.CreateAdd(first, thread_), last, control_.integer(threads_), {},
                      [&](Value* column, const Values&) {
                          body({column, nullptr, false}, nullptr);
                          return Values{};
                      });
    }

    llvm::Align alignment_of(DType dtype) const {
        constexpr std::uint64_t widest = 16;  // bytes of one access
        return llvm::Align(
            std::min(widest, std::bit_floor(static_cast<std::uint64_t>(group_) * size_of(dtype))));
    }

    /// The thread's own of a number, for the member at hand; it begins as 0.
    llvm::AllocaInst* variable(Variables& all, std::int64_t number, llvm::Type* type) {
        std::vector<llvm::AllocaInst*>& own = all[number];
        const auto member = static_cast<std::size_t>(member_);
        if (member == own.size()) {
            llvm::BasicBlock& entry = function_->getEntryBlock();
            llvm::IRBuilder<> at_entry(&entry, entry.begin());
            own.push_back(at_entry.CreateAlloca(type));
            at_entry.CreateStore(llvm::Constant::getNullValue(type), own.back());
        }
        return own.at(member);
    }

    /// Tells the back end and the driver about the kernel. Operands are in no output's memory, so that they
    /// may be read through the read-only cache.
    void describe() {
        make_gpu_kernel(*function_, threads_ * side_by_side_);
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
        Value* const grid_block =
            b_.CreateZExt(special(llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_x), b_.getInt64Ty());
        Value* block = grid_block;
        if (side_by_side_ > 1) {
            Value* const threads = control_.integer(threads_);
            row_ = b_.CreateUDiv(thread_, threads);
            block = b_.CreateAdd(b_.CreateMul(grid_block, control_.integer(side_by_side_)), row_);
            thread_ = b_.CreateURem(thread_, threads);
        }
        CodeArguments arguments;
        if (table_.parts > 0) return arguments_of_part(block);
        unsigned parameter = 0;
        for (std::size_t i = 0; i < nest_.inputs.size(); ++i)
            arguments.inputs.push_back(function_->getArg(parameter++));
        for (std::size_t i = 0; i < nest_.outputs.size(); ++i)
            arguments.outputs.push_back(function_->getArg(parameter++));
        take_rows(arguments, block, function_->getArg(parameter), function_->getArg(parameter + 1));
        const auto of_block = [&](Value* base, Value* number, std::int64_t floats) {
            return control_.at(base, b_.CreateMul(number, control_.integer(floats)), DType::f32);
        };
        arguments.partial_sums = partial_sums_ =
            of_block(function_->getArg(parameter + 2), grid_block, nest_.partial_sums);
        if (const std::int64_t floats = global_scratch_floats(nest_); floats > 0)
            arguments.scratch = of_block(function_->getArg(parameter + 3), block, floats);
        else if (one_place_)
            arguments.scratch = llvm::PoisonValue::get(b_.getPtrTy());  // it has variables instead
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
    int threads_, at_once_, side_by_side_;
    bool one_place_, in_place_;
    PartTable table_;
    Control control_;
    Lanes lanes_;
    llvm::Module* module_ = nullptr;
    llvm::Function* function_ = nullptr;
    Value* thread_ = nullptr;
    Value* row_ = nullptr;  ///< of the thread, among the rows side by side
    Value* partial_sums_ = nullptr;
    int group_ = 1, member_ = 0;  ///< columns of a group, and which of them is being made
    std::vector<Value*> read_;    ///< by the members of a group, in their order
    std::vector<Written> written_;
    std::size_t next_read_ = 0, next_written_ = 0;
    Variables sums_, kept_;
    llvm::GlobalVariable* of_warps_ = nullptr;
};

}  // namespace

std::unique_ptr<TargetCode> make_nvptx_code(llvm::IRBuilderBase& builder, const LoopNest& nest,
                                            const NvptxTarget& target) {
    return std::make_unique<NvptxCode>(builder, nest, target);
}

}  // namespace mantissa::codegen
