// Loop nests on the CPU: one serial function over a range of rows or elements, sixteen columns at a time, or
// sixty-four where registers are long and chains of operations are.
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <algorithm>
#include <map>

#include "mantissa/codegen/llvm/control.h"
#include "mantissa/codegen/llvm/target_code.h"

namespace mantissa::inline v0::codegen {

namespace {

using llvm::Value;

/// How far ahead of its use memory is asked for: the hardware's own prefetch stops at the page, and with this
/// one GELU runs as quickly as a copy.
constexpr std::int64_t prefetch_bytes = 4096;

/// The longest rows, in bytes, that lie in L1 beside one another while they are walked over again.
constexpr std::int64_t short_row_bytes = 16384;

class HostCode final : public TargetCode {
  public:
    HostCode(llvm::IRBuilderBase& builder, const LoopNest& nest, const HostFeatures& features)
        : b_(builder),
          nest_(nest),
          control_(builder),
          lanes_(builder, Lanes::Form::sixteen, host_conversions(features)),
          two_(builder, Lanes::Form::thirty_two, host_conversions(features)),
          four_(builder, Lanes::Form::sixty_four, host_conversions(features)),
          has_long_registers_(std::ranges::find(features.bits, "avx512f") != features.bits.end()) {
        rows_together_ = rows_that_share_sums();
        if (!nest.flat && !nest.epilogue && (nest.walks.size() > 1 || rows_together_ > 1)) fetch_by_walks();
    }

    int rows_together() const override { return rows_together_; }
    bool asks_before_loops() const override { return true; }

    CodeArguments begin(llvm::Module& module, const std::string& name) override {
        return read_arguments(begin_host_function(b_, module, name));
    }

    const Lanes& lanes() const override { return *now_; }

    Values over(const Walk& walk, const Range& range, const ColumnsBody& body) override {
        walk_ = range.walk;
        Range with_fetches = range;
        if (!fetched_in_.empty()) with_fetches.from_memory = true;
        if (!walk.reductions.empty()) return over_known(walk, with_fetches, body);
        over_any(walk, with_fetches, body);
        return {};
    }

    void once_a_row(const std::function<void()>& body) override { body(); }

    /// An epilogue reads a line or two a row beside the sums, which no hardware foresees. It asks for the
    /// rows below when the contraction has made their sums.
    Value* load(Value* address, DType dtype, const Columns& columns) override {
        Value* value = now_->load(address, dtype, columns.mask);
        if (!columns.from_memory || size_of(dtype) == 1) return value;
        const auto entry = fetched_in_.find(columns.operand);
        if (!fetched_in_.empty() && (entry == fetched_in_.end() || entry->second != walk_)) return value;
        const std::int64_t bytes = now_->count() * static_cast<std::int64_t>(size_of(dtype));
        for (std::int64_t line = 0; line < bytes; line += 64)
            prefetch(nest_.epilogue ? control_.at(address, below_, dtype)
                                    : b_.CreateConstGEP1_64(b_.getInt8Ty(), address, ahead(dtype) + line));
        return value;
    }

    void store(Value* value, Value* address, int output, const Columns& columns) override {
        const DType dtype = nest_.outputs[output];
        const llvm::Align align(size_of(dtype));
        if (columns.mask) {
            b_.CreateMaskedStore(value, address, align, columns.mask);
            return;
        }
        if (value->getType()->getScalarType()->isHalfTy())  // vectors of words are stored whole
            value = b_.CreateBitCast(value, llvm::FixedVectorType::get(b_.getInt16Ty(), now_->count()));
        const auto past_caches = [&] {
            const std::uint64_t bytes = value->getType()->getPrimitiveSizeInBits() / 8;
            llvm::StoreInst* past =
                b_.CreateAlignedStore(value, address, llvm::Align(std::min<std::uint64_t>(bytes, 64)));
            past->setMetadata(
                llvm::LLVMContext::MD_nontemporal,
                llvm::MDNode::get(b_.getContext(), llvm::ConstantAsMetadata::get(b_.getInt32(1))));
        };
        const auto plainly = [&] { b_.CreateAlignedStore(value, address, align); };
        if (stores_ == Stores::any) return control_.if_then(streamed_[output], past_caches, plainly);
        stores_ == Stores::past_caches ? past_caches() : plainly();
    }

    /// In an epilogue, columns beside the block's belong to other threads, and a block starts anywhere.
    void add_to(const RowSum&, Value* address, const Values& values, const Columns& columns) override {
        const llvm::Align align(nest_.epilogue ? 4 : 64);
        const bool is_masked = nest_.epilogue && columns.mask;
        llvm::Type* const type = values[0]->getType();
        Value* sum = is_masked ? static_cast<Value*>(b_.CreateMaskedLoad(type, address, align, columns.mask))
                               : b_.CreateAlignedLoad(type, address, align);
        for (Value* value : values) sum = b_.CreateFAdd(sum, value);
        if (is_masked)
            b_.CreateMaskedStore(sum, address, align, columns.mask);
        else
            b_.CreateAlignedStore(sum, address, align);
    }

    void keep(const Keep&, Value* address, Value* value) override {
        b_.CreateAlignedStore(value, address, llvm::Align(64));
    }
    Value* kept(const Keep&, Value* address, llvm::Type* type) override {
        return b_.CreateAlignedLoad(type, address, llvm::Align(64));
    }

  private:
    /// How an output is stored: as its argument says, or as it said before the loop.
    enum class Stores : std::uint8_t { any, plain, past_caches };

    CodeArguments read_arguments(Value* from) {
        llvm::Type *pointer = b_.getPtrTy(), *number = b_.getInt64Ty();
        const auto field = [&](std::size_t offset, llvm::Type* type) -> Value* {
            return b_.CreateLoad(type, b_.CreateConstGEP1_64(b_.getInt8Ty(), from, offset));
        };
        const auto entry = [&](Value* array, std::size_t index) -> Value* {
            return b_.CreateLoad(pointer, b_.CreateConstGEP1_64(pointer, array, index));
        };
        Value* inputs = field(offsetof(FusedArguments, inputs), pointer);
        Value* outputs = field(offsetof(FusedArguments, outputs), pointer);
        CodeArguments arguments{.first = field(offsetof(FusedArguments, first), number),
                                .last = field(offsetof(FusedArguments, last), number),
                                .scratch = field(offsetof(FusedArguments, scratch), pointer),
                                .partial_sums = field(offsetof(FusedArguments, partial_sums), pointer)};
        Value* streamed = field(offsetof(FusedArguments, streamed), number);
        for (std::size_t i = 0; i < nest_.inputs.size(); ++i) arguments.inputs.push_back(entry(inputs, i));
        if (nest_.epilogue) {
            arguments.inputs[0] = field(offsetof(FusedArguments, sums), pointer);
            arguments.leading = field(offsetof(FusedArguments, leading), number);
            arguments.first_column = field(offsetof(FusedArguments, first_column), number);
            arguments.last_column = field(offsetof(FusedArguments, last_column), number);
            below_ =
                b_.CreateMul(b_.CreateSub(arguments.last, arguments.first), control_.integer(nest_.columns));
        }
        for (std::size_t i = 0; i < nest_.outputs.size(); ++i) {
            arguments.outputs.push_back(entry(outputs, i));
            streamed_.push_back(b_.CreateICmpNE(b_.CreateAnd(streamed, b_.getInt64(std::uint64_t{1} << i)),
                                                control_.integer(0)));
        }
        return arguments;
    }

    /// Rows that go side by side: where little is done but to add them to sums over rows, by column, these
    /// are loaded and stored once.
    int rows_that_share_sums() const {
        constexpr std::size_t few_steps = 8;
        const Walk& walk = nest_.walks[0];
        const bool only_adds = !nest_.flat && !nest_.epilogue && nest_.walks.size() == 1 &&
                               !walk.sums.empty() && walk.reductions.empty();
        return only_adds && walk.steps.size() <= few_steps ? 4 : 1;
    }

    std::int64_t row_bytes(DType dtype) const {
        return nest_.columns * static_cast<std::int64_t>(size_of(dtype));
    }

    /// Chooses the walk that fetches an operand of the next rows, where short rows are walked over more than
    /// once. It is the walk with the most other work, so that memory is never idle.
    void fetch_by_walks() {
        std::vector<int> work;
        for (const Walk& walk : nest_.walks) {
            int instructions = 1;
            for (int index : walk.steps) instructions += nest_instructions(step_of(index).op);
            work.push_back(instructions);
        }
        for (std::size_t operand = 0; operand < nest_.inputs.size(); ++operand) {
            int most = 0;
            for (std::size_t walk = 0; walk < nest_.walks.size(); ++walk) {
                const auto loads = [&](int index) {
                    const Step& step = step_of(index);
                    return step.op == "load" && step.operand == static_cast<int>(operand) &&
                           step.access.rows && row_bytes(step.dtype) <= short_row_bytes;
                };
                if (std::ranges::none_of(nest_.walks[walk].steps, loads) || work[walk] < most) continue;
                most = work[walk];
                fetched_in_[static_cast<int>(operand)] = walk;
            }
            if (most > 0) work[fetched_in_.at(static_cast<int>(operand))] /= 2;
        }
    }

    const Step& step_of(int index) const { return nest_.steps[static_cast<std::size_t>(index)]; }

    /// Bytes from the element read to the element fetched: whole rows where walks fetch the next ones.
    std::int64_t ahead(DType dtype) const {
        if (fetched_in_.empty()) return prefetch_bytes;
        const std::int64_t rows = std::max<std::int64_t>(prefetch_bytes / row_bytes(dtype), rows_together_);
        return rows * row_bytes(dtype);
    }

    /// Lines of later rows go to L2: on their way to L1 they take the buffers that the walk's own loads and
    /// stores need.
    void prefetch(Value* address) {
        b_.CreateIntrinsic(
            llvm::Intrinsic::prefetch, {b_.getPtrTy()},
            {address, b_.getInt32(0), b_.getInt32(fetched_in_.empty() ? 3 : 2), b_.getInt32(1)});
    }

    Value* mask_of(Value* count) {
        return b_.CreateICmpULT(lanes_.lane_numbers(),
                                b_.CreateVectorSplat(lanes_.count(), b_.CreateTrunc(count, b_.getInt32Ty())));
    }

    /// Whether a walk takes its columns by longer vectors. It does if it has long chains, since a core that
    /// looks ahead sees few of them, or 16-bit elements, since sixteen do not fill a line.
    bool gains_by_length(const Walk& walk) const {
        if (!has_long_registers_ || nest_.epilogue) return false;
        constexpr int long_chain = 12;
        const auto is_long = [&](int index) {
            const Step& step = step_of(index);
            if (step.op == "load") return size_of(step.dtype) == 2;
            return step.op.ends_with("one_plus_tanh") || nest_instructions(step.op) >= long_chain;
        };
        return std::ranges::any_of(walk.steps, is_long) ||
               std::ranges::any_of(walk.stores, [&](const Store& store) {
                   return size_of(nest_.outputs[store.output]) == 2;
               });
    }

    /// Where the whole vectors of a length from `first` on end.
    Value* end_of_whole(const Lanes& length, Value* first, const Range& range) {
        Value* lanes = control_.integer(length.count());
        return b_.CreateSub(range.last, b_.CreateURem(b_.CreateSub(range.last, first), lanes));
    }

    /// Goes over the whole vectors of that length, without reductions.
    void over_whole(const Lanes& length, Value* first, const Range& range, const ColumnsBody& body) {
        Value* end = end_of_whole(length, first, range);
        now_ = &length;
        control_.loop("columns", first, end, control_.integer(length.count()), {},
                      [&](Value* column, const Values&) {
                          body({column, nullptr, range.from_memory}, nullptr);
                          return Values{};
                      });
        now_ = &lanes_;
    }

    /// Goes over whole vectors with one loop for either way to store, where there is little beside the one
    /// output: a loop that asks each time was a tenth slower.
    void over_whole_by_stores(const Walk& walk, const Lanes& length, Value* first, const Range& range,
                              const ColumnsBody& body) {
        constexpr std::size_t few_steps = 12;
        if (nest_.epilogue || walk.stores.size() != 1 || walk.steps.size() > few_steps) {
            over_whole(length, first, range, body);
            return;
        }
        const auto with = [&](Stores stores) {
            return [&, stores] {
                stores_ = stores;
                over_whole(length, first, range, body);
            };
        };
        control_.if_then(streamed_[walk.stores[0].output], with(Stores::past_caches), with(Stores::plain));
        stores_ = Stores::any;
    }

    /// A range without reductions.
    void over_any(const Walk& walk, const Range& range, const ColumnsBody& body) {
        Value* first = range.first;
        if (gains_by_length(walk)) {
            over_whole_by_stores(walk, four_, first, range, body);
            first = end_of_whole(four_, first, range);
        }
        over_whole_by_stores(walk, lanes_, first, range, body);
        Value* whole = end_of_whole(lanes_, first, range);
        control_.if_then(
            b_.CreateICmpSLT(whole, range.last),
            [&] {
                body({whole, mask_of(b_.CreateSub(range.last, whole)), false}, nullptr);
            },
            [] {});
    }

    /// Vectors in one turn of a walk's loop: an addition takes four cycles, so a reduction with little else
    /// to do wants four sums side by side.
    std::int64_t vectors_in_turn(const Walk& walk, std::int64_t columns) const {
        std::int64_t count = walk.steps.size() <= 12 ? 4 : walk.steps.size() <= 24 ? 2 : 1;
        while (count > 1 && columns < 2 * count * lanes_.count()) count /= 2;
        return count;
    }

    /// Splits the sums of a turn by its vectors, one after another.
    Values of_vectors(const Values& sums, std::int64_t vectors) const {
        Values parts;
        for (std::int64_t i = 0; i < vectors; ++i)
            for (Value* sum : sums) parts.push_back(now_->part(sum, static_cast<int>(16 * i)));
        return parts;
    }

    Values over_known(const Walk& walk, const Range& range, const ColumnsBody& body) {
        const std::int64_t vectors = vectors_in_turn(walk, range.columns), turn = vectors * lanes_.count();
        const std::int64_t by_turns = range.columns / turn * turn;
        const std::int64_t whole = range.columns / lanes_.count() * lanes_.count();
        const auto integer = [&](std::int64_t value) { return control_.integer(value); };
        // Vectors of a turn are one long vector, or follow one another: the sums have the same bits.
        const bool is_long = has_long_registers_ && vectors > 1;
        if (is_long) now_ = vectors == 4 ? &four_ : &two_;
        Values sums;
        for (std::int64_t i = 0; i < (is_long ? 1 : vectors); ++i)
            for (const Reduction& reduction : walk.reductions)
                sums.push_back(now_->neutral(reduction.maximum));
        if (by_turns > 0)
            sums = control_.loop(
                "columns", integer(0), integer(by_turns), integer(turn), sums,
                [&](Value* column, Values carried) {
                    Value** at = carried.data();
                    for (std::int64_t i = 0; i < turn; i += now_->count()) {
                        body({b_.CreateAdd(column, integer(i)), nullptr, range.from_memory}, at);
                        at += walk.reductions.size();
                    }
                    return carried;
                });
        if (is_long) sums = of_vectors(sums, vectors);
        now_ = &lanes_;
        fold(walk, vectors, sums);
        if (whole > by_turns)
            sums = control_.loop("last columns", integer(by_turns), integer(whole), integer(lanes_.count()),
                                 sums, [&](Value* column, Values carried) {
                                     body({column, nullptr, false}, carried.data());
                                     return carried;
                                 });
        if (range.columns > whole)
            body({integer(whole), mask_of(integer(range.columns - whole)), false}, sums.data());
        for (std::size_t i = 0; i < sums.size(); ++i)
            sums[i] = lanes_.across(sums[i], walk.reductions[i].maximum);
        return sums;
    }

    /// The sums of the vectors of a turn as one set, to which the last columns are added.
    void fold(const Walk& walk, std::int64_t vectors, Values& sums) {
        const std::size_t each = walk.reductions.size();
        for (std::int64_t count = vectors; count > 1; count /= 2) {
            const std::size_t half = static_cast<std::size_t>(count / 2) * each;
            for (std::size_t i = 0; i < half; ++i)
                sums[i] = lanes_.combine(sums[i], sums[i + half], walk.reductions[i % each].maximum);
        }
        sums.resize(each);
    }

    llvm::IRBuilderBase& b_;
    const LoopNest& nest_;
    Control control_;
    Lanes lanes_, two_, four_;
    const Lanes* now_ = &lanes_;  // length in which columns are computed
    std::size_t walk_ = 0;
    std::map<int, std::size_t> fetched_in_;  // by operand: the walk that fetches the next rows
    int rows_together_ = 1;
    bool has_long_registers_;
    Stores stores_ = Stores::any;
    Values streamed_;         // by output: whether it is stored past the caches
    Value* below_ = nullptr;  // of an epilogue: elements from a column to the same column of the next block
                              // of as many rows
};

}  // namespace

Lanes::Conversions host_conversions(const HostFeatures& features) {
    const auto by = [&](const char* bit) {
        const bool has = std::ranges::find(features.bits, bit) != features.bits.end();
        return has ? Lanes::By::instruction : Lanes::By::bits;
    };
    return {.bf16 = by("avx512bf16"), .f16 = by("f16c")};
}

llvm::Value* begin_host_function(llvm::IRBuilderBase& builder, llvm::Module& module,
                                 const std::string& name) {
    llvm::FunctionType* type = llvm::FunctionType::get(builder.getVoidTy(), {builder.getPtrTy()}, false);
    llvm::Function* function = llvm::Function::Create(type, llvm::Function::ExternalLinkage, name, module);
    function->addFnAttr(llvm::Attribute::NoUnwind);
    function->addFnAttr("prefer-vector-width", "512");
    function->addFnAttr("min-legal-vector-width", "512");
    builder.SetInsertPoint(llvm::BasicBlock::Create(builder.getContext(), "entry", function));
    return function->getArg(0);
}

std::unique_ptr<TargetCode> make_host_code(llvm::IRBuilderBase& builder, const LoopNest& nest,
                                           const HostFeatures& features) {
    return std::make_unique<HostCode>(builder, nest, features);
}

}  // namespace mantissa::codegen
