// Kernels of a GPU that make one element a thread, or a block of threads. Operands may lie where the output
// does if each thread reads there what it writes: nothing is read through the read-only cache.
#include "mantissa/codegen/llvm/grid_code.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/IntrinsicsNVPTX.h>
#include <llvm/IR/Module.h>

#include <algorithm>
#include <limits>

#include "mantissa/base/error.h"
#include "mantissa/codegen/llvm/attention_code.h"
#include "mantissa/codegen/llvm/gpu_table.h"
#include "mantissa/codegen/llvm/grid_thread.h"
#include "mantissa/codegen/llvm/image_code.h"
#include "mantissa/codegen/llvm/peak_code.h"
#include "mantissa/codegen/llvm/quantized_code.h"
#include "mantissa/codegen/llvm/random_code.h"
#include "mantissa/codegen/llvm/seen_tiles_code.h"

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

    /// The values of so many neighbouring threads, halves onto one another.
    Value* across(Value* value, int threads, DType dtype,
                  const std::function<Value*(Value*, Value*)>& combine) {
        llvm::GlobalVariable* all =
            shared_bytes("of_threads", grid_threads * static_cast<std::int64_t>(size_of(dtype)));
        const auto slot = [&](Value* thread) { return control_.at(all, thread, dtype); };
        Value* own = b_.CreateURem(thread_, integer(threads));
        b_.CreateStore(value, slot(thread_));
        for (int half = threads / 2; half > 0; half /= 2) {
            barrier();
            if_then(is_less(own, integer(half)), [&] {
                llvm::Type* type = lanes_.type(dtype);
                Value* mine = b_.CreateLoad(type, slot(thread_));
                Value* other = b_.CreateLoad(type, slot(b_.CreateAdd(thread_, integer(half))));
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
        check(kernel_.at_once == 1 || kernel_.threads == 1,
              "a thread has several results, or a result several threads");
        Value* const per_result = integer(kernel_.threads);
        Value* result = b_.CreateMul(b_.CreateUDiv(number_, per_result), integer(kernel_.at_once));
        Value* is_there = is_less(result, integer(results * kernel_.chunks));
        // All threads come to the barriers; those without a result have no terms.
        Value* chunk = b_.CreateUDiv(result, integer(results));
        Value* first = b_.CreateMul(chunk, integer(kernel_.terms_of_chunk));
        Value* end = b_.CreateAdd(first, integer(kernel_.terms_of_chunk));
        end = b_.CreateSelect(is_less(end, integer(terms)), end, integer(terms));
        end = b_.CreateSelect(is_there, end, integer(0));
        Value* start = place(kernel_.kept, b_.CreateURem(result, integer(results)));
        Value* own = b_.CreateURem(number_, per_result);
        Control::Values sums = summed(start, b_.CreateAdd(first, own), end);
        if (kernel_.threads > 1)
            sums[0] = across(sums[0], kernel_.threads, kernel_.sums,
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
        : GridCode(module, named, kernel.next ? 2 : 5), kernel_(kernel) {}

    void run() {
        if (kernel_.next)
            if_then(is_less(number_, integer(kernel_.tokens)), [&] { find_next(); });
        else
            add_rows();
        b_.CreateRetVoid();
    }

  private:
    void find_next() {
        Value* const count = integer(kernel_.tokens);
        Value* id = load_index(parameter(0), number_);
        const auto same = [&](Value* token) { return b_.CreateICmpEQ(load_index(parameter(0), token), id); };
        // The nearest behind, and whether there is one before: those furthest away are looked at first.
        Value* next = control_.loop("after", b_.CreateAdd(number_, integer(1)), count, integer(1), {count},
                                    [&](Value* back, const Control::Values& found) -> Control::Values {
                                        Value* token = b_.CreateSub(b_.CreateAdd(count, number_), back);
                                        return {b_.CreateSelect(same(token), token, found[0])};
                                    })[0];
        Value* first = control_.loop("before", integer(0), number_, integer(1), {b_.getInt32(1)},
                                     [&](Value* token, const Control::Values& yet) -> Control::Values {
                                         return {b_.CreateSelect(same(token), b_.getInt32(0), yet[0])};
                                     })[0];
        store(b_.CreateTrunc(next, b_.getInt32Ty()), parameter(1), number_, DType::i32);
        store(first, parameter(1), b_.CreateAdd(count, number_), DType::i32);
    }

    void add_rows() {
        Value* const count = integer(kernel_.tokens);
        Value *dy = parameter(0), *next = parameter(2), *table = parameter(3);
        Value* id = load_index(parameter(1), block_);
        Value* is_first = b_.CreateICmpEQ(load_index(next, b_.CreateAdd(count, block_)), integer(1));
        if_then(is_first, [&] {
            if_inside(id, kernel_.rows, {kernel_.report, parameter(4)}, [&] {
                control_.loop("columns", thread_, integer(kernel_.columns), integer(grid_threads), {},
                              [&](Value* column, const Control::Values&) -> Control::Values {
                                  add_column(dy, next, table, id, column);
                                  return {};
                              });
            });
        });
    }

    void add_column(Value* dy, Value* next, Value* table, Value* id, Value* column) {
        const auto element = [&](Value* row) {
            return b_.CreateAdd(b_.CreateMul(row, integer(kernel_.columns)), column);
        };
        const DType sums = kernel_.dtype == DType::f64 ? DType::f64 : DType::f32;
        Value* sum = load(table, element(id), kernel_.dtype);
        // A walk along the chain, as a loop that leaves no token out.
        llvm::BasicBlock* before = b_.GetInsertBlock();
        auto* walk = llvm::BasicBlock::Create(b_.getContext(), "walk", function_);
        auto* done = llvm::BasicBlock::Create(b_.getContext(), "done", function_);
        b_.CreateBr(walk);
        b_.SetInsertPoint(walk);
        llvm::PHINode* token = b_.CreatePHI(b_.getInt64Ty(), 2);
        llvm::PHINode* total = b_.CreatePHI(lanes_.type(sums), 2);
        token->addIncoming(block_, before);
        total->addIncoming(sum, before);
        Value* added = b_.CreateFAdd(total, load(dy, element(token), kernel_.dtype));
        Value* following = load_index(next, token);
        token->addIncoming(following, walk);
        total->addIncoming(added, walk);
        b_.CreateCondBr(is_less(following, integer(kernel_.tokens)), walk, done);
        b_.SetInsertPoint(done);
        store(added, table, element(id), kernel_.dtype);
    }

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
        sum = across(sum, threads, DType::f64, [&](Value* a, Value* b) { return b_.CreateFAdd(a, b); });
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
void emit_code(llvm::Module& module, const GridKernel& named, const AttentionKernel& kernel) {
    emit_attention(module, named.name, kernel);
}
void emit_code(llvm::Module& module, const GridKernel& named, const SeenTilesKernel& kernel) {
    emit_seen_tiles(module, named.name, kernel);
}
void emit_code(llvm::Module& module, const GridKernel& named, const PoolKernel& kernel) {
    emit_pool(module, named.name, kernel);
}
void emit_code(llvm::Module& module, const GridKernel& named, const ConvolutionKernel& kernel) {
    emit_convolution(module, named.name, kernel);
}
void emit_code(llvm::Module& module, const GridKernel& named, const PeakKernel& kernel) {
    emit_peak(module, named.name, kernel);
}
void emit_code(llvm::Module& module, const GridKernel& named, const QuantizeKernel& kernel) {
    emit_quantized(module, named.name, kernel);
}
void emit_code(llvm::Module& module, const GridKernel& named, const WeightGroupsKernel& kernel) {
    emit_quantized(module, named.name, kernel);
}
void emit_code(llvm::Module& module, const GridKernel& named, const QuantizedRowsKernel& kernel) {
    emit_quantized(module, named.name, kernel);
}
void emit_code(llvm::Module& module, const GridKernel& named, const ScaledSumsKernel& kernel) {
    emit_quantized(module, named.name, kernel);
}

}  // namespace

void emit(llvm::Module& module, const GridKernel& kernel) {
    std::visit([&](const auto& code) { emit_code(module, kernel, code); }, kernel.code);
}

}  // namespace mantissa::codegen
