// Kernels of a GPU that make one element a thread, or a block of threads. Operands may lie where the output
// does if each thread reads just where it writes: nothing is read through the read-only cache.
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/IntrinsicsNVPTX.h>
#include <llvm/IR/Module.h>

#include <algorithm>
#include <limits>

#include "mantissa/base/error.h"
#include "mantissa/codegen/llvm/emit.h"
#include "mantissa/codegen/llvm/gpu_code.h"
#include "mantissa/codegen/llvm/grid_thread.h"
#include "mantissa/codegen/llvm/random_code.h"

namespace mantissa::inline v0::codegen {

namespace {

using llvm::Value;

/// A thread an element, or so many.
class GridCode : protected GridThread {
  public:
    GridCode(llvm::Module& module, const GridKernel& kernel, std::size_t parameters, PartTable table = {})
        : GridThread(module, kernel.name, parameters, table) {}

  protected:
    /// Runs the body where the index is inside; else it is reported.
    struct Reported {
        std::int32_t as = 1;
        Value* to = nullptr;
    };
    void if_inside(Value* index, std::int64_t limit, const Reported& report,
                   const std::function<void()>& body) {
        control_.if_then(b_.CreateICmpULT(index, integer(limit)), body, [&] {
            Value* both = b_.CreateOr(b_.CreateShl(index, 32), integer(report.as));  // one of many may win
            b_.CreateAtomicRMW(llvm::AtomicRMWInst::Xchg, report.to, both, llvm::Align(8),
                               llvm::AtomicOrdering::Monotonic);
        });
    }

    /// The values of so many threads, `distance` from one to the next, halves onto one another; `own`: which
    /// of them the thread is.
    Value* across(Value* value, int threads, int distance, Value* own, DType dtype,
                  const std::function<Value*(Value*, Value*)>& combine) {
        llvm::GlobalVariable* all =
            shared_bytes("of_threads", grid_threads * static_cast<std::int64_t>(size_of(dtype)));
        const auto slot = [&](Value* thread) { return control_.at(all, thread, dtype); };
        b_.CreateStore(value, slot(thread_));
        for (int half = threads / 2; half > 0; half /= 2) {
            barrier();
            if_then(is_less(own, integer(half)), [&] {
                llvm::Type* type = lanes_.type(dtype);
                Value* mine = b_.CreateLoad(type, slot(thread_));
                Value* other = b_.CreateLoad(type, slot(b_.CreateAdd(thread_, integer(half * distance))));
                b_.CreateStore(combine(mine, other), slot(thread_));
            });
        }
        barrier();
        return b_.CreateLoad(lanes_.type(dtype), slot(thread_));
    }
};

class ElementCode : GridCode {
  public:
    ElementCode(llvm::Module& module, const GridKernel& named, const ElementKernel& kernel)
        : GridCode(module, named, kernel.operands.size() + (kernel.indexed ? 2 : 1)), kernel_(kernel) {}

    void run() {
        std::int64_t count = 1;
        for (const std::int64_t extent : kernel_.extents) count *= extent;
        if (kernel_.at_once > 1) return run_by_groups(count / kernel_.at_once);
        if_then(is_less(number_, integer(count)), [&] {
            indices_ = indices_of(number_, kernel_.extents);
            if (const auto& indexed = kernel_.indexed) {
                Value* index = load_index(parameter(indexed->by), place(indexed->by));
                const Reported report{indexed->report, parameter(kernel_.operands.size() + 1)};
                if_inside(index, indexed->limit, report, [&] {
                    moved_ = b_.CreateMul(index, integer(indexed->pitch));
                    make_element();
                });
            } else {
                make_element();
            }
        });
        b_.CreateRetVoid();
    }

  private:
    /// Copies or casts several neighbours a thread, by one access each.
    void run_by_groups(std::int64_t groups) {
        const Strided &from = kernel_.operands[0], &to = kernel_.output;
        check(from.strides.back() == 1 && to.strides.back() == 1 &&
                  kernel_.extents.back() % kernel_.at_once == 0,
              "what is moved at once lies side by side");
        if_then(is_less(number_, integer(groups)), [&] {
            std::vector<std::int64_t> extents = kernel_.extents;
            extents.back() /= kernel_.at_once;
            indices_ = indices_of(number_, extents);
            indices_.back() = b_.CreateMul(indices_.back(), integer(kernel_.at_once));
            Value* read = b_.CreateAlignedLoad(group_type(from.dtype), address(parameter(0), from),
                                               group_alignment(from.dtype));
            Value* written = kernel_.op == "copy" ? read : cast_group(read);
            b_.CreateAlignedStore(written, address(parameter(1), to), group_alignment(to.dtype));
        });
        b_.CreateRetVoid();
    }

    Value* address(Value* base, const Strided& of) {
        return control_.at(base, place_of(indices_, of.strides, of.offset), of.dtype);
    }
    llvm::Type* group_type(DType dtype) {
        return llvm::FixedVectorType::get(lanes_.memory_type(dtype), static_cast<unsigned>(kernel_.at_once));
    }
    llvm::Align group_alignment(DType dtype) const {
        constexpr std::uint64_t widest = 16;  // bytes of one access
        return llvm::Align(std::min(widest, static_cast<std::uint64_t>(kernel_.at_once) * size_of(dtype)));
    }
    Value* cast_group(Value* group) {
        const DType from = kernel_.operands[0].dtype, to = kernel_.output.dtype;
        Value* made = llvm::PoisonValue::get(group_type(to));
        for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(kernel_.at_once); ++i) {
            Value* number = lanes_.read(b_.CreateExtractElement(group, i), from);
            Value* stored = lanes_.stored(lanes_.apply("cast", {number}, from, to), to, false);
            made = b_.CreateInsertElement(made, stored, i);
        }
        return made;
    }

    Value* place(std::size_t operand) {
        const Strided& of = kernel_.operands[operand];
        Value* at = place_of(indices_, of.strides, of.offset);
        const bool is_moved = moved_ && kernel_.indexed->operand == operand;
        return is_moved ? b_.CreateAdd(at, moved_) : at;
    }

    void make_element() {
        Value* to = place_of(indices_, kernel_.output.strides, kernel_.output.offset);
        if (moved_ && !kernel_.indexed->operand) to = b_.CreateAdd(to, moved_);
        Value* base = parameter(kernel_.operands.size());
        const DType dtype = kernel_.output.dtype;
        if (kernel_.op != "copy") return store(element(), base, to, dtype);
        llvm::Type* bits = b_.getIntNTy(static_cast<unsigned>(8 * size_of(dtype)));
        const llvm::Align align(size_of(dtype));
        Value* value = b_.CreateAlignedLoad(bits, control_.at(parameter(0), place(0), dtype), align);
        b_.CreateAlignedStore(value, control_.at(base, to, dtype), align);
    }

    Value* element() {
        if (kernel_.op == "iota")
            return lanes_.counted_from(place_of(indices_, kernel_.counter, 0), kernel_.output.dtype);
        if (kernel_.op == "random_uniform") return uniform();
        std::vector<Value*> arguments;
        for (std::size_t i = 0; i < kernel_.operands.size(); ++i)
            arguments.push_back(load(parameter(i), place(i), kernel_.operands[i].dtype));
        if (kernel_.op.starts_with("round_to ")) return rounded_to(kernel_.op.substr(9), arguments[0]);
        if (kernel_.op == "stop_gradient") return arguments[0];
        return lanes_.apply(kernel_.op, arguments, kernel_.operands.back().dtype, kernel_.output.dtype);
    }

    Value* rounded_to(const std::string& format, Value* x) {
        if (format == "bf16") return lanes_.apply("cast", {x}, DType::f32, DType::bf16);
        if (format == "f16") return lanes_.apply("cast", {x}, DType::f32, DType::f16);
        check(format == "tf32", "numbers are rounded to tf32, bf16 or f16");
        return rounded_to_tf32(x);
    }

    Value* uniform() {
        return uniform_numbers(b_, lanes_,
                               {.seed = load(parameter(0), integer(0), DType::i64),
                                .step = load(parameter(1), integer(0), DType::i64),
                                .number = number_,
                                .operation = kernel_.operation});
    }

    const ElementKernel& kernel_;
    std::vector<Value*> indices_;
    Value* moved_ = nullptr;  ///< elements by which an index moves
};

class ReductionCode : GridCode {
  public:
    ReductionCode(llvm::Module& module, const GridKernel& named, const ReductionKernel& kernel)
        : GridCode(module, named, 2), kernel_(kernel) {}

    void run() {
        std::int64_t results = 1, terms = 1;
        for (const ReductionKernel::Axis& axis : kernel_.kept) results *= axis.extent;
        for (const ReductionKernel::Axis& axis : kernel_.reduced) terms *= axis.extent;
        check(kernel_.at_once == 1 || kernel_.threads == 1 || kernel_.spread,
              "a thread has several results, or a result neighbouring threads");
        const int neighbours = kernel_.spread ? grid_threads / kernel_.threads : 1;  // results side by side
        Value *const per_result = integer(kernel_.threads), *const beside = integer(neighbours);
        Value* own = kernel_.spread ? b_.CreateUDiv(thread_, beside) : b_.CreateURem(number_, per_result);
        Value* result = kernel_.spread
                            ? b_.CreateAdd(b_.CreateMul(block_, beside), b_.CreateURem(thread_, beside))
                            : b_.CreateUDiv(number_, per_result);
        result = b_.CreateMul(result, integer(kernel_.at_once));
        Value* is_there = is_less(result, integer(results * kernel_.chunks));
        // All threads come to the barriers; threads without a result have no terms.
        Value* chunk = b_.CreateUDiv(result, integer(results));
        Value* first = b_.CreateMul(chunk, integer(kernel_.terms_of_chunk));
        Value* end = b_.CreateAdd(first, integer(kernel_.terms_of_chunk));
        end = b_.CreateSelect(is_less(end, integer(terms)), end, integer(terms));
        end = b_.CreateSelect(is_there, end, integer(0));
        Value* start = place(kernel_.kept, b_.CreateURem(result, integer(results)));
        Control::Values sums = summed(start, b_.CreateAdd(first, own), end);
        for (Value*& sum : sums)
            if (kernel_.threads > 1)
                sum = across(sum, kernel_.threads, neighbours, own, kernel_.sums,
                             [&](Value* a, Value* b) { return combine(a, b); });
        is_there = b_.CreateAnd(is_there, b_.CreateICmpEQ(own, integer(0)));
        if_then(is_there, [&] {
            for (std::size_t i = 0; i < sums.size(); ++i)
                store(lanes_.apply("cast", {sums[i]}, kernel_.sums, kernel_.to), parameter(1),
                      b_.CreateAdd(result, integer(static_cast<std::int64_t>(i))), kernel_.to);
        });
        b_.CreateRetVoid();
    }

  private:
    /// Terms that are asked for before the first of them is added: memory answers late.
    static constexpr std::int64_t terms_ahead = 8;

    /// The thread's sums over its terms, in their order.
    Control::Values summed(Value* start, Value* from, Value* end) {
        Control::Values carried(static_cast<std::size_t>(kernel_.at_once), neutral());
        carried.insert(carried.begin(), from);
        const auto add = [&](std::int64_t terms) {
            Value* const behind = integer((terms - 1) * kernel_.threads);
            carried = control_.repeat(
                "terms", carried,
                [&](const Control::Values& now) { return is_less(b_.CreateAdd(now[0], behind), end); },
                [&](Control::Values now) {
                    std::vector<Control::Values> read;
                    for (std::int64_t term = 0; term < terms; ++term)
                        read.push_back(values(start, b_.CreateAdd(now[0], integer(term * kernel_.threads))));
                    for (const Control::Values& term : read)
                        for (std::size_t i = 0; i < term.size(); ++i)
                            now[i + 1] = combine(now[i + 1], term[i]);
                    now[0] = b_.CreateAdd(now[0], integer(terms * kernel_.threads));
                    return now;
                });
        };
        if (kernel_.terms_of_chunk >= terms_ahead * kernel_.threads) add(terms_ahead);
        add(1);
        carried.erase(carried.begin());
        return carried;
    }

    Value* place(const std::vector<ReductionKernel::Axis>& axes, Value* number) {
        std::vector<std::int64_t> extents, strides;
        for (const ReductionKernel::Axis& axis : axes) {
            extents.push_back(axis.extent);
            strides.push_back(axis.stride);
        }
        return place_of(indices_of(number, extents), strides, 0);
    }

    Value* neutral() {
        return lanes_.constant(kernel_.maximum ? -std::numeric_limits<double>::infinity() : 0.0,
                               kernel_.sums);
    }

    Value* combine(Value* a, Value* b) { return lanes_.combine(a, b, kernel_.maximum); }

    /// The terms of the thread's results.
    Control::Values values(Value* start, Value* term) {
        Value* element = b_.CreateAdd(start, place(kernel_.reduced, term));
        const auto cast = [&](Value* x) { return lanes_.apply("cast", {x}, kernel_.from, kernel_.sums); };
        if (kernel_.at_once == 1) return {cast(load(parameter(0), element, kernel_.from))};
        llvm::Type* type = llvm::FixedVectorType::get(lanes_.memory_type(kernel_.from),
                                                      static_cast<unsigned>(kernel_.at_once));
        const auto bytes = static_cast<std::uint64_t>(kernel_.at_once) * size_of(kernel_.from);
        Value* all = b_.CreateAlignedLoad(type, control_.at(parameter(0), element, kernel_.from),
                                          llvm::Align(std::min<std::uint64_t>(16, bytes)));
        Control::Values terms;
        for (int i = 0; i < kernel_.at_once; ++i)
            terms.push_back(
                cast(lanes_.read(b_.CreateExtractElement(all, static_cast<std::uint64_t>(i)), kernel_.from)));
        return terms;
    }

    const ReductionKernel& kernel_;
};

class EmbeddingGradientCode : GridCode {
  public:
    EmbeddingGradientCode(llvm::Module& module, const GridKernel& named,
                          const EmbeddingGradientKernel& kernel)
        : GridCode(module, named, kernel.stage == Stage::firsts ? 3 : 4), kernel_(kernel) {}

    void run() {
        if (kernel_.stage == Stage::firsts)
            if_then(is_less(number_, integer(kernel_.tokens)), [&] { note_first(); });
        else
            if_first([&](Value* id, Value* stretch) {
                control_.loop("columns", integer(0), integer(kernel_.columns), integer(grid_threads), {},
                              [&](Value* first, const Control::Values&) -> Control::Values {
                                  add_columns(id, stretch, b_.CreateAdd(first, thread_));
                                  return {};
                              });
            });
        b_.CreateRetVoid();
    }

  private:
    using Stage = EmbeddingGradientKernel::Stage;

    Value* stretch_of(Value* token) { return b_.CreateUDiv(token, integer(kernel_.of_stretch)); }
    Value* first_at(Value* id, Value* stretch) {
        return b_.CreateAdd(b_.CreateMul(id, integer(kernel_.stretches())), stretch);
    }
    Value* element(Value* row, Value* column) {
        return b_.CreateAdd(b_.CreateMul(row, integer(kernel_.columns)), column);
    }

    void note_first() {
        Value* id = load_index(parameter(0), number_);
        if_inside(id, kernel_.rows, {kernel_.report, parameter(2)}, [&] {
            Value* at = control_.at(parameter(1), first_at(id, stretch_of(number_)), DType::i32);
            Value* left = b_.CreateTrunc(b_.CreateSub(integer(kernel_.tokens), number_), b_.getInt32Ty());
            // The largest of all, whatever their order.
            b_.CreateAtomicRMW(llvm::AtomicRMWInst::UMax, at, left, llvm::Align(4),
                               llvm::AtomicOrdering::Monotonic);
        });
    }

    /// Tokens behind the first one of an id in a stretch, that one counted, of all; 0: it is not there.
    Value* left_at(Value* id, Value* stretch) { return load_index(parameter(2), first_at(id, stretch)); }
    Value* has_id(Value* id, Value* stretch) { return b_.CreateICmpNE(left_at(id, stretch), integer(0)); }

    /// Runs the body where the block's token is the first of its id in its stretch, or in all of them.
    void if_first(const std::function<void(Value* id, Value* stretch)>& body) {
        Value* id = load_index(parameter(1), block_);
        if_then(b_.CreateICmpULT(id, integer(kernel_.rows)), [&] {
            Value* stretch = stretch_of(block_);
            Value* own = b_.CreateSub(integer(kernel_.tokens), block_);
            if_then(b_.CreateICmpEQ(left_at(id, stretch), own), [&] {
                if (kernel_.stage == Stage::stretches) return body(id, stretch);
                Value* earlier = over_each(
                    integer(0), stretch, integer(0), [&](Value* other) { return has_id(id, other); },
                    [&](Value*, Value* count) { return b_.CreateAdd(count, integer(1)); });
                if_then(b_.CreateICmpEQ(earlier, integer(0)), [&] { body(id, stretch); });
            });
        });
    }

    /// Goes through the elements of `from` up to `end` that `is_one` holds for, in order. The lanes of a warp
    /// look at 32 of them at a time; all of its threads come here together.
    Value* over_each(Value* from, Value* end, Value* start, const std::function<Value*(Value*)>& is_one,
                     const std::function<Value*(Value*, Value*)>& body) {
        constexpr std::int64_t warp = 32;
        llvm::Type* word = b_.getInt32Ty();
        Value* lane = b_.CreateAnd(thread_, integer(warp - 1));
        return control_.loop(
            "of_warp", from, end, integer(warp), {start},
            [&](Value* first, const Control::Values& before) -> Control::Values {
                Value* own = b_.CreateAdd(first, lane);
                Value* some = control_.if_then(is_less(own, end), {b_.getFalse()},
                                               [&] { return Control::Values{is_one(own)}; })[0];
                Value* found = b_.CreateIntrinsic(llvm::Intrinsic::nvvm_vote_ballot_sync, {},
                                                  {llvm::ConstantInt::getSigned(word, -1), some});
                const auto any_left = [&](const Control::Values& now) {
                    return b_.CreateICmpNE(now[0], b_.getInt32(0));
                };
                return {
                    control_.repeat("found", {found, before[0]}, any_left, [&](const Control::Values& now) {
                        Value* next =
                            b_.CreateIntrinsic(llvm::Intrinsic::cttz, {word}, {now[0], b_.getTrue()});
                        Value* one = b_.CreateAdd(first, b_.CreateZExt(next, b_.getInt64Ty()));
                        Value* rest = b_.CreateAnd(now[0], b_.CreateSub(now[0], b_.getInt32(1)));
                        return Control::Values{rest, body(one, now[1])};
                    })[1]};
            })[0];
    }

    /// Each thread's column; one behind the last does the work of the first, and stores nothing.
    void add_columns(Value* id, Value* stretch, Value* column) {
        Value* is_there = is_less(column, integer(kernel_.columns));
        column = b_.CreateSelect(is_there, column, integer(0));
        Value* const sum = kernel_.stage == Stage::stretches ? sum_of_stretch(id, stretch, column)
                                                             : sum_of_stretches(id, stretch, column);
        if_then(is_there, [&] {
            if (kernel_.stage == Stage::stretches)
                return store(sum, parameter(3), element(block_, column), kernel_.sums());
            Value* before = load(parameter(3), element(id, column), kernel_.dtype);
            Value* added = b_.CreateFAdd(widened(before), sum);
            store(lanes_.apply("cast", {added}, kernel_.sums(), kernel_.dtype), parameter(3),
                  element(id, column), kernel_.dtype);
        });
    }

    Value* sum_of_stretch(Value* id, Value* stretch, Value* column) {
        Value* end = b_.CreateMul(b_.CreateAdd(stretch, integer(1)), integer(kernel_.of_stretch));
        end = b_.CreateSelect(is_less(end, integer(kernel_.tokens)), end, integer(kernel_.tokens));
        return over_each(
            block_, end, lanes_.constant(0, kernel_.sums()),
            [&](Value* token) { return b_.CreateICmpEQ(load_index(parameter(1), token), id); },
            [&](Value* token, Value* yet) {
                return b_.CreateFAdd(yet, widened(load(parameter(0), element(token, column), kernel_.dtype)));
            });
    }

    Value* sum_of_stretches(Value* id, Value* stretch, Value* column) {
        return over_each(
            stretch, integer(kernel_.stretches()), lanes_.constant(0, kernel_.sums()),
            [&](Value* other) { return has_id(id, other); },
            [&](Value* other, Value* yet) {
                Value* token = b_.CreateSub(integer(kernel_.tokens), left_at(id, other));
                return b_.CreateFAdd(yet, load(parameter(0), element(token, column), kernel_.sums()));
            });
    }

    Value* widened(Value* number) { return lanes_.apply("cast", {number}, kernel_.dtype, kernel_.sums()); }

    const EmbeddingGradientKernel& kernel_;
};

class SquaresCode : GridCode {
  public:
    SquaresCode(llvm::Module& module, const GridKernel& named, const SquaresKernel& kernel)
        : GridCode(module, named, 1, kernel.table()), kernel_(kernel) {}

    void run() {
        GpuTable part(b_, *function_, kernel_.table(), block_);
        Value *x = part.address(1), *elements = part.number(2);
        static_assert(SquaresKernel::sums_of_block * threads == grid_threads);
        Value* own = b_.CreateURem(thread_, integer(threads));
        Value* sum_of_part = b_.CreateAdd(b_.CreateMul(part.block(), integer(SquaresKernel::sums_of_block)),
                                          b_.CreateUDiv(thread_, integer(threads)));
        Value* first = b_.CreateMul(sum_of_part, integer(kernel_.of_sum));
        Value* end = b_.CreateAdd(first, integer(kernel_.of_sum));
        end = b_.CreateSelect(is_less(end, elements), end, elements);
        Value* sum = control_.loop(
            "terms", b_.CreateAdd(first, own), end, integer(threads), {lanes_.constant(0, DType::f64)},
            [&](Value* term, const Control::Values& before) -> Control::Values {
                Value* value = lanes_.apply("cast", {load(x, term, kernel_.from)}, kernel_.from, DType::f64);
                return {b_.CreateFAdd(before[0], b_.CreateFMul(value, value))};
            })[0];
        sum = across(sum, threads, 1, b_.CreateURem(thread_, integer(threads)), DType::f64,
                     [&](Value* a, Value* b) { return b_.CreateFAdd(a, b); });
        Value* writes = b_.CreateAnd(b_.CreateICmpEQ(own, integer(0)), is_less(first, elements));
        if_then(writes,
                [&] { store(sum, parameter(0), b_.CreateAdd(part.number(3), sum_of_part), DType::f64); });
        b_.CreateRetVoid();
    }

  private:
    static constexpr int threads = SquaresKernel::threads_of_sum;

    const SquaresKernel& kernel_;
};

class NormCode : GridCode {
  public:
    NormCode(llvm::Module& module, const GridKernel& named) : GridCode(module, named, 3) {}

    void run() {
        if_then(b_.CreateICmpEQ(number_, integer(0)), [&] {
            Value* total = load(parameter(0), integer(0), DType::f64);
            Value* root = lanes_.apply("sqrt", {total}, DType::f64, DType::f64);
            store(lanes_.apply("cast", {root}, DType::f64, DType::f32), parameter(1), integer(0), DType::f32);
            store(lanes_.apply("is_finite", {total}, DType::f64, DType::boolean), parameter(2), integer(0),
                  DType::boolean);
        });
        b_.CreateRetVoid();
    }
};

class TurnCode : GridCode {
  public:
    TurnCode(llvm::Module& module, const GridKernel& named, const TurnKernel& kernel)
        : GridCode(module, named, 4), kernel_(kernel) {}

    void run() {
        const std::int64_t groups = kernel_.half / kernel_.at_once;
        if_then(is_less(number_, integer(kernel_.tokens * kernel_.heads * groups)), [&] {
            const std::vector<Value*> at = indices_of(number_, {kernel_.tokens, kernel_.heads, groups});
            Value* first =
                place_of(at, {2 * kernel_.heads * kernel_.half, 2 * kernel_.half, kernel_.at_once}, 0);
            Value* second = b_.CreateAdd(first, integer(kernel_.half));
            Value* position = b_.CreateURem(at[0], integer(kernel_.positions));
            Value* angle = place_of({position, at[2]}, {kernel_.half, kernel_.at_once}, 0);
            Value *x = group(0, first, kernel_.dtype), *y = group(0, second, kernel_.dtype),
                  *cosines = group(1, angle, DType::f32), *sines = group(2, angle, DType::f32);
            Value *turned_x = x, *turned_y = y;
            for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(kernel_.at_once); ++i) {
                Value *a = number(x, i), *b = number(y, i), *c = b_.CreateExtractElement(cosines, i),
                      *s = b_.CreateExtractElement(sines, i);
                turned_x = b_.CreateInsertElement(
                    turned_x, stored(b_.CreateFSub(b_.CreateFMul(a, c), b_.CreateFMul(b, s))), i);
                turned_y = b_.CreateInsertElement(
                    turned_y, stored(b_.CreateFAdd(b_.CreateFMul(b, c), b_.CreateFMul(a, s))), i);
            }
            b_.CreateAlignedStore(turned_x, control_.at(parameter(3), first, kernel_.dtype),
                                  alignment(kernel_.dtype));
            b_.CreateAlignedStore(turned_y, control_.at(parameter(3), second, kernel_.dtype),
                                  alignment(kernel_.dtype));
        });
        b_.CreateRetVoid();
    }

  private:
    llvm::Align alignment(DType dtype) const {
        return llvm::Align(
            std::min<std::uint64_t>(16, static_cast<std::uint64_t>(kernel_.at_once) * size_of(dtype)));
    }
    Value* group(std::size_t operand, Value* place, DType dtype) {
        llvm::Type* type =
            llvm::FixedVectorType::get(lanes_.memory_type(dtype), static_cast<unsigned>(kernel_.at_once));
        return b_.CreateAlignedLoad(type, control_.at(parameter(operand), place, dtype), alignment(dtype));
    }
    Value* number(Value* of, std::uint64_t i) {
        return lanes_.apply("cast", {lanes_.read(b_.CreateExtractElement(of, i), kernel_.dtype)},
                            kernel_.dtype, DType::f32);
    }
    Value* stored(Value* number) {
        return lanes_.stored(lanes_.apply("cast", {number}, DType::f32, kernel_.dtype), kernel_.dtype, false);
    }

    const TurnKernel& kernel_;
};

void emit_code(llvm::Module& module, const GridKernel& named, const ElementKernel& kernel) {
    ElementCode(module, named, kernel).run();
}
void emit_code(llvm::Module& module, const GridKernel& named, const ReductionKernel& kernel) {
    ReductionCode(module, named, kernel).run();
}
void emit_code(llvm::Module& module, const GridKernel& named, const EmbeddingGradientKernel& kernel) {
    EmbeddingGradientCode(module, named, kernel).run();
}
void emit_code(llvm::Module& module, const GridKernel& named, const SquaresKernel& kernel) {
    SquaresCode(module, named, kernel).run();
}
void emit_code(llvm::Module& module, const GridKernel& named, const NormKernel&) {
    NormCode(module, named).run();
}
void emit_code(llvm::Module& module, const GridKernel& named, const TurnKernel& kernel) {
    TurnCode(module, named, kernel).run();
}
/// Emits a kernel that has a source of its own.
void emit_code(llvm::Module& module, const GridKernel& named, const auto& kernel) {
    emit(module, named.name, kernel);
}

}  // namespace

void emit(llvm::Module& module, const GridKernel& kernel) {
    std::visit([&](const auto& code) { emit_code(module, kernel, code); }, kernel.code);
}

}  // namespace mantissa::codegen
