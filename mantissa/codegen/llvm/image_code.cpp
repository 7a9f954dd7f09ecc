// Windows lie where tables in the kernel say, which all threads of a row read alike. Nothing is added
// atomically: a gradient's thread looks for the outputs whose windows its element lies in.
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <limits>

#include "mantissa/codegen/llvm/emit.h"
#include "mantissa/codegen/llvm/grid_thread.h"

namespace mantissa::inline v0::codegen {

namespace {

using llvm::Value;

/// Members of each entry, one array behind the other.
struct SpanTable {
    Value* base = nullptr;  // i32
    std::int64_t entries = 0;
};

class PoolCode : GridThread {
  public:
    PoolCode(llvm::Module& module, const std::string& name, const PoolKernel& kernel)
        : GridThread(module, name, kernel.is_maximum() ? 3 : 2),
          kernel_(kernel),
          sums_(kernel.dtype == DType::f64 ? DType::f64 : DType::f32),
          rows_{.image = static_cast<std::int64_t>(kernel.row_outputs.size()),
                .output = static_cast<std::int64_t>(kernel.row_spans.size())},
          columns_{.image = static_cast<std::int64_t>(kernel.column_outputs.size()),
                   .output = static_cast<std::int64_t>(kernel.column_spans.size())} {
        fill("rows", kernel.row_spans, kernel.row_outputs, rows_);
        fill("columns", kernel.column_spans, kernel.column_outputs, columns_);
    }

    void run() {
        if_then(is_less(number_, integer(kernel_.results())), [&] {
            const bool back = kernel_.is_gradient();
            const std::vector<Value*> at =
                indices_of(number_, {kernel_.images, back ? rows_.image : rows_.output,
                                     back ? columns_.image : columns_.output, kernel_.channels});
            image_ = at[0];
            row_ = at[1];
            column_ = at[2];
            channel_ = at[3];
            if (kernel_.makes == PoolResult::maximum)
                make_maximum();
            else if (kernel_.makes == PoolResult::average)
                make_average();
            else
                make_gradient();
        });
        b_.CreateRetVoid();
    }

  private:
    /// Along one axis of the images.
    struct Axis {
        std::int64_t image = 0, output = 0;  ///< elements
        SpanTable spans = {};                ///< start, first, last, count
        SpanTable outputs = {};              ///< first, last
    };
    enum Member : std::uint8_t { start, first, last, count };
    enum OfOutputs : std::uint8_t { first_output, last_output };

    SpanTable table(const std::string& name, const std::vector<std::vector<std::int64_t>>& members) {
        std::vector<std::uint64_t> bits;
        for (const std::vector<std::int64_t>& member : members)
            for (const std::int64_t value : member) bits.push_back(static_cast<std::uint64_t>(value));
        return {numbers_of(name.c_str(), DType::i32, bits), static_cast<std::int64_t>(members[0].size())};
    }

    void fill(const std::string& name, const std::vector<PoolSpan>& spans,
              const std::vector<PoolOutputs>& outputs, Axis& axis) {
        std::vector<std::vector<std::int64_t>> members(4), of_outputs(2);
        for (const PoolSpan& span : spans) {
            members[start].push_back(span.start);
            members[first].push_back(span.first);
            members[last].push_back(span.last);
            members[count].push_back(span.count);
        }
        for (const PoolOutputs& one : outputs) {
            of_outputs[first_output].push_back(one.first);
            of_outputs[last_output].push_back(one.last);
        }
        axis.spans = table(name, members);
        if (kernel_.is_gradient()) axis.outputs = table(name + "_of", of_outputs);
    }

    Value* entry(const SpanTable& of, std::int64_t member, Value* at) {
        return load_index(of.base, b_.CreateAdd(at, integer(member * of.entries)));
    }

    /// The element of the own image and channel in a row and column.
    Value* element(Value* row, Value* column, std::int64_t rows, std::int64_t columns) {
        return place_of({image_, row, column, channel_},
                        {rows * columns * kernel_.channels, columns * kernel_.channels, kernel_.channels, 1},
                        0);
    }

    /// Goes over all rows and columns of a window, or of the outputs that look at an element.
    struct Bounds {
        Value *first_row, *last_row, *first_column, *last_column;
    };
    using Body = std::function<Control::Values(Value* row, Value* column, const Control::Values& carried)>;
    Control::Values over(const Bounds& bounds, const Control::Values& from, const Body& body) {
        Value* const one = integer(1);
        return control_.loop("rows", bounds.first_row, bounds.last_row, one, from,
                             [&](Value* row, const Control::Values& before) {
                                 return control_.loop("columns", bounds.first_column, bounds.last_column, one,
                                                      before,
                                                      [&](Value* column, const Control::Values& carried) {
                                                          return body(row, column, carried);
                                                      });
                             });
    }
    Bounds window() {
        return {entry(rows_.spans, first, row_), entry(rows_.spans, last, row_),
                entry(columns_.spans, first, column_), entry(columns_.spans, last, column_)};
    }

    Value* load_x(Value* row, Value* column) {
        return load(parameter(0), element(row, column, rows_.image, columns_.image), kernel_.dtype);
    }

    /// The element's place in the window of an output, where the columns of windows count.
    Value* in_window(Value* row, Value* column, Value* row_start, Value* column_start) {
        Value* const rows_down = b_.CreateMul(b_.CreateSub(row, row_start), integer(kernel_.window_columns));
        return b_.CreateAdd(rows_down, b_.CreateSub(column, column_start));
    }

    /// The first of equals stays, and the first NaN: as graph/reference_pools.cpp has it.
    void make_maximum() {
        const Bounds bounds = window();
        Value *const row_start = entry(rows_.spans, start, row_), *const column_start =
                                                                      entry(columns_.spans, start, column_);
        const Control::Values found = over(
            bounds,
            {lanes_.constant(-std::numeric_limits<double>::infinity(), kernel_.dtype),
             in_window(bounds.first_row, bounds.first_column, row_start, column_start)},
            [&](Value* row, Value* column, const Control::Values& before) -> Control::Values {
                Value* const x = load_x(row, column);
                Value* const first_nan =
                    b_.CreateAnd(b_.CreateFCmpUNO(x, x), b_.CreateFCmpORD(before[0], before[0]));
                Value* const wins = b_.CreateOr(b_.CreateFCmpOGT(x, before[0]), first_nan);
                return {b_.CreateSelect(wins, x, before[0]),
                        b_.CreateSelect(wins, in_window(row, column, row_start, column_start), before[1])};
            });
        store(found[0], parameter(1), number_, kernel_.dtype);
        store(b_.CreateTrunc(found[1], b_.getInt32Ty()), parameter(2), number_, DType::u8);
    }

    /// The divisor of an average.
    Value* elements_of(Value* row, Value* column) {
        Value* const product =
            b_.CreateMul(entry(rows_.spans, count, row), entry(columns_.spans, count, column));
        return b_.CreateSIToFP(product, lanes_.type(sums_));
    }

    void make_average() {
        Value* const sum = over(window(), {lanes_.constant(0, sums_)},
                                [&](Value* row, Value* column, const Control::Values& before) {
                                    return Control::Values{b_.CreateFAdd(before[0], load_x(row, column))};
                                })[0];
        store(b_.CreateFDiv(sum, elements_of(row_, column_)), parameter(1), number_, kernel_.dtype);
    }

    void make_gradient() {
        const Bounds outputs{
            entry(rows_.outputs, first_output, row_), entry(rows_.outputs, last_output, row_),
            entry(columns_.outputs, first_output, column_), entry(columns_.outputs, last_output, column_)};
        Value* const sum =
            over(outputs, {lanes_.constant(0, sums_)},
                 [&](Value* row, Value* column, const Control::Values& before) -> Control::Values {
                     return {b_.CreateFAdd(before[0], share_of(row, column))};
                 })[0];
        store(sum, parameter(kernel_.is_maximum() ? 2 : 1), number_, kernel_.dtype);
    }

    /// The share of an output's gradient that goes to the own element.
    Value* share_of(Value* row, Value* column) {
        Value* const output = element(row, column, rows_.output, columns_.output);
        Value* const dy = load(parameter(0), output, kernel_.dtype);
        if (!kernel_.is_maximum()) return b_.CreateFDiv(dy, elements_of(row, column));
        Value* const own =
            in_window(row_, column_, entry(rows_.spans, start, row), entry(columns_.spans, start, column));
        Value* const most = b_.CreateZExt(load(parameter(1), output, DType::u8), b_.getInt64Ty());
        return b_.CreateSelect(b_.CreateICmpEQ(own, most), dy, lanes_.constant(0, sums_));
    }

    const PoolKernel& kernel_;
    DType sums_;
    Axis rows_, columns_;
    Value *image_ = nullptr, *row_ = nullptr, *column_ = nullptr, *channel_ = nullptr;
};

class ConvolutionCode : ConvolutionThread {
  public:
    ConvolutionCode(llvm::Module& module, const std::string& name, const ConvolutionKernel& kernel)
        : ConvolutionThread(module, name, kernel.bias ? 4 : 3), kernel_(kernel), of_(kernel.of) {}

    void run() {
        if_then(is_less(number_, integer(kernel_.results())), [&] {
            Value* sum = nullptr;
            if (kernel_.makes == ConvolutionResult::output)
                sum = output();
            else if (kernel_.makes == ConvolutionResult::gradient_of_images)
                sum = gradient_of_images();
            else
                sum = gradient_of_filter();
            store(sum, parameter(kernel_.bias ? 3 : 2), number_, kernel_.to);
        });
        b_.CreateRetVoid();
    }

  private:
    using Term = std::function<Value*(Value* index, Value* sum)>;

    Value* sum_over(const char* name, std::int64_t count, Value* from, const Term& term) {
        return control_.loop(name, integer(0), integer(count), integer(1), {from},
                             [&](Value* index, const Control::Values& before) -> Control::Values {
                                 return {term(index, before[0])};
                             })[0];
    }
    Value* sum_where(Value* condition, Value* sum, const std::function<Value*()>& then) {
        return control_.if_then(condition, {sum}, [&]() -> Control::Values { return {then()}; })[0];
    }

    Value* operand(std::size_t which, const Shape& shape, const std::vector<Value*>& at) {
        Value* const value = load(parameter(which), place_of(at, shape.strides(), 0), kernel_.from);
        return kernel_.tf32 ? rounded_to_tf32(value) : value;
    }
    /// The first channel, or filter, of a group.
    Value* first_of(Value* group, std::int64_t each) { return b_.CreateMul(group, integer(each)); }
    std::vector<Value*> indices(const Shape& shape) { return indices_of(number_, shape.extents()); }

    Value* output() {
        const std::vector<Value*> y = indices(of_.y_shape());
        Value* const first =
            first_of(b_.CreateUDiv(y[3], integer(of_.group_filters())), of_.group_channels());
        Value* sum = sum_over("rows", of_.vertical.filter, zero(), [&](Value* r, Value* of_rows) {
            return sum_over("columns", of_.horizontal.filter, of_rows, [&](Value* s, Value* before) {
                const Place h = image_place(of_.vertical, y[1], r), w = image_place(of_.horizontal, y[2], s);
                return sum_where(b_.CreateAnd(h.is_one, w.is_one), before, [&] {
                    return sum_over("channels", of_.group_channels(), before, [&](Value* c, Value* total) {
                        Value* const x =
                            operand(0, of_.x_shape(), {y[0], h.at, w.at, b_.CreateAdd(first, c)});
                        return product(x, operand(1, of_.filter_shape(), {r, s, c, y[3]}), total);
                    });
                });
            });
        });
        return kernel_.bias ? b_.CreateFAdd(sum, load(parameter(2), y[3], *kernel_.bias)) : sum;
    }

    /// dy, filter.
    Value* gradient_of_images() {
        const std::vector<Value*> x = indices(of_.x_shape());
        Value* const group = b_.CreateUDiv(x[3], integer(of_.group_channels()));
        Value* const c = b_.CreateURem(x[3], integer(of_.group_channels()));
        Value* const first = first_of(group, of_.group_filters());
        return sum_over("rows", of_.vertical.filter, zero(), [&](Value* r, Value* of_rows) {
            return sum_over("columns", of_.horizontal.filter, of_rows, [&](Value* s, Value* before) {
                const Place i = output_place(of_.vertical, x[1], r),
                            j = output_place(of_.horizontal, x[2], s);
                return sum_where(b_.CreateAnd(i.is_one, j.is_one), before, [&] {
                    return sum_over("filters", of_.group_filters(), before, [&](Value* of, Value* total) {
                        Value* const k = b_.CreateAdd(first, of);
                        Value* const dy = operand(0, of_.y_shape(), {x[0], i.at, j.at, k});
                        return product(dy, operand(1, of_.filter_shape(), {r, s, c, k}), total);
                    });
                });
            });
        });
    }

    /// x, dy. Each image is added up for itself, so that sums of many rows stay accurate.
    Value* gradient_of_filter() {
        const std::vector<Value*> f = indices(of_.filter_shape());
        Value* const group = b_.CreateUDiv(f[3], integer(of_.group_filters()));
        Value* const c = b_.CreateAdd(first_of(group, of_.group_channels()), f[2]);
        return sum_over("images", of_.images, zero(), [&](Value* n, Value* of_images) {
            Value* const own = sum_over("rows", of_.vertical.output, zero(), [&](Value* i, Value* of_rows) {
                return sum_over("columns", of_.horizontal.output, of_rows, [&](Value* j, Value* before) {
                    const Place h = image_place(of_.vertical, i, f[0]),
                                w = image_place(of_.horizontal, j, f[1]);
                    return sum_where(b_.CreateAnd(h.is_one, w.is_one), before, [&] {
                        return product(operand(0, of_.x_shape(), {n, h.at, w.at, c}),
                                       operand(1, of_.y_shape(), {n, i, j, f[3]}), before);
                    });
                });
            });
            return b_.CreateFAdd(of_images, own);
        });
    }

    const ConvolutionKernel& kernel_;
    const Convolution& of_;
};

}  // namespace

void emit(llvm::Module& module, const std::string& name, const ConvolutionKernel& kernel) {
    ConvolutionCode(module, name, kernel).run();
}

void emit(llvm::Module& module, const std::string& name, const PoolKernel& kernel) {
    PoolCode(module, name, kernel).run();
}

}  // namespace mantissa::codegen
