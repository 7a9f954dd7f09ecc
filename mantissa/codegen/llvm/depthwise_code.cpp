// Depthwise convolutions: the filter's rows are a loop, its columns lie in the code one by one. Places
// outside of the image are left out where all threads know them, and else read as 0 by a load under a
// predicate. No thread branches for them, so all loads of a row are on their way together.
#include <fmt/format.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/IntrinsicsNVPTX.h>
#include <llvm/IR/Module.h>

#include <map>

#include "mantissa/codegen/llvm/emit.h"
#include "mantissa/codegen/llvm/grid_thread.h"

namespace mantissa::inline v0::codegen {

namespace {

using llvm::Value;
using Values = Control::Values;

class DepthwiseCode : protected ConvolutionThread {
  public:
    DepthwiseCode(llvm::Module& module, const std::string& name, const DepthwiseKernel& kernel)
        : ConvolutionThread(module, name, kernel.convolution.bias ? 4 : 3),
          kernel_(kernel),
          of_(kernel.of()),
          slices_(kernel.threads_across() / kernel.side_by_side),
          element_bytes_(static_cast<std::int64_t>(size_of(kernel.convolution.from))) {}

  protected:
    /// Places along a row that a thread reads from, and whether they are inside; null: for all threads.
    using Columns = std::map<std::int64_t, Value*>;
    /// The numbers of a thread's channels, by place.
    using Row = std::map<std::int64_t, Values>;

    /// The places inside, counted from `from`, which is 0 to `last`.
    Columns inside(const std::set<std::int64_t>& places, Value* from, std::int64_t last,
                   std::int64_t extent) {
        Columns columns;
        const auto word = [&](std::int64_t x) { return b_.getInt32(static_cast<std::uint32_t>(x)); };
        Value* const narrow = b_.CreateTrunc(from, b_.getInt32Ty());
        for (const std::int64_t place : places) {
            if (place + last < 0 || place >= extent) continue;
            const bool always = place >= 0 && place + last < extent;
            columns[place] =
                always ? nullptr : b_.CreateICmpULT(b_.CreateAdd(narrow, word(place)), word(extent));
        }
        return columns;
    }

    /// The first of a thread's channels.
    Value* channel_of(Value* slice, Value* lane) {
        Value* const first = b_.CreateAdd(b_.CreateMul(slice, integer(kernel_.side_by_side)), lane);
        return b_.CreateMul(first, integer(kernel_.channels));
    }

    Value* address(std::size_t which, const std::vector<Value*>& at, const Shape& shape) {
        return control_.at(parameter(which), place_of(at, shape.strides(), 0), kernel_.convolution.from);
    }

    /// A thread's channels at places along a row; `address` is place 0, which may be outside.
    Row read(Value* address, const Columns& columns) {
        Row row;
        for (const auto& [place, is_inside] : columns)
            row[place] = numbers(word_at(address, place * of_.channels * element_bytes_, is_inside));
        return row;
    }

    /// All of a thread's channels that lie at an address and so many bytes behind it.
    Value* word_at(Value* address, std::int64_t bytes, Value* condition) {
        const std::int64_t size = kernel_.channels * element_bytes_;
        llvm::Type* const type = b_.getIntNTy(static_cast<unsigned>(8 * size));
        if (!condition)
            return b_.CreateAlignedLoad(type, b_.CreateGEP(b_.getInt8Ty(), address, integer(bytes)),
                                        llvm::Align(static_cast<std::uint64_t>(size)));
        llvm::InlineAsm* const load = llvm::InlineAsm::get(
            llvm::FunctionType::get(type, {address->getType(), condition->getType(), type}, false),
            fmt::format("@$2 ld.global.b{} $0, [$1+{}];", 8 * size, bytes),
            size == 4 ? "=r,l,b,0" : "=h,l,b,0", false);
        return b_.CreateCall(load, {address, condition, llvm::ConstantInt::get(type, 0)});
    }

    Values numbers(Value* word) {
        const DType dtype = kernel_.convolution.from;
        if (dtype == DType::f32) {
            Value* const number = b_.CreateBitCast(word, b_.getFloatTy());
            return {kernel_.convolution.tf32 ? rounded_to_tf32(number) : number};
        }
        Values all;
        for (std::int64_t i = 0; i < kernel_.channels; ++i) {
            Value* const behind = b_.CreateLShr(word, static_cast<std::uint64_t>(16 * i));
            all.push_back(lanes_.read(b_.CreateTrunc(behind, b_.getInt16Ty()), dtype));
        }
        return all;
    }

    /// Adds the products of two places' channels to the sums of one result.
    void add_products(const Values& a, const Values& b, Values& sums, std::int64_t result) {
        for (std::int64_t i = 0; i < kernel_.channels; ++i) {
            Value*& sum = sums[static_cast<std::size_t>(result * kernel_.channels + i)];
            sum = product(a[static_cast<std::size_t>(i)], b[static_cast<std::size_t>(i)], sum);
        }
    }
    Values zeros(std::int64_t results) {
        return Values(static_cast<std::size_t>(results * kernel_.channels), zero());
    }

    /// A result's channels, side by side.
    void store_channels(const Values& sums, std::int64_t result, Value* base, Value* element, DType dtype) {
        const auto first = static_cast<std::size_t>(result * kernel_.channels);
        if (kernel_.channels == 1) return store(sums[first], base, element, dtype);
        b_.CreateAlignedStore(pair(sums[first], sums[first + 1], dtype), control_.at(base, element, dtype),
                              llvm::Align(2 * size_of(dtype)));
    }
    /// Two numbers as they are stored.
    Value* pair(Value* low, Value* high, DType dtype) {
        if (size_of(dtype) == 2)
            return b_.CreateIntrinsic(
                dtype == DType::bf16 ? llvm::Intrinsic::nvvm_ff2bf16x2_rn : llvm::Intrinsic::nvvm_ff2f16x2_rn,
                {}, {high, low});
        Value* const none = llvm::PoisonValue::get(llvm::FixedVectorType::get(b_.getFloatTy(), 2));
        return b_.CreateInsertElement(b_.CreateInsertElement(none, low, std::uint64_t{0}), high,
                                      std::uint64_t{1});
    }

    const DepthwiseKernel& kernel_;
    const Convolution& of_;
    std::int64_t slices_;  ///< of the channels
    std::int64_t element_bytes_;
};

/// A thread's results lie side by side in a row of the output, or of the images' gradient.
class DepthwiseWindows : DepthwiseCode {
  public:
    using DepthwiseCode::DepthwiseCode;

    void run() {
        if_then(is_less(number_, integer(kernel_.threads())), [&] { make_columns(); });
        b_.CreateRetVoid();
    }

  private:
    bool is_forward() const { return kernel_.makes(ConvolutionResult::output); }

    void make_columns() {
        const Shape made = is_forward() ? of_.y_shape() : of_.x_shape(),
                    met = is_forward() ? of_.x_shape() : of_.y_shape();
        const std::vector<Value*> at =
            indices_of(number_, {of_.images, slices_, kernel_.column_steps(), made[1], kernel_.side_by_side});
        Value *const step = at[2], *const row = at[3], *const channel = channel_of(at[1], at[4]);
        Value* const from = b_.CreateMul(step, integer(kernel_.step_of_met()));
        const Columns columns =
            inside(kernel_.all_met(), from, (kernel_.column_steps() - 1) * kernel_.step_of_met(), met[2]);
        const Values sums = control_.loop(
            "rows", integer(0), integer(of_.vertical.filter), integer(1), zeros(kernel_.columns),
            [&](Value* r, const Values& before) {
                const Place place =
                    is_forward() ? image_place(of_.vertical, row, r) : output_place(of_.vertical, row, r);
                return control_.if_then(place.is_one, before, [&] {
                    return with_row(read(address(0, {at[0], place.at, from, channel}, met), columns),
                                    address(1, {r, integer(0), integer(0), channel}, of_.filter_shape()),
                                    before);
                });
            });
        Value* const first = b_.CreateMul(step, integer(kernel_.columns));
        store_columns(sums, place_of({at[0], row, first, channel}, made.strides(), 0), first, channel);
    }

    Values with_row(const Row& row, Value* filter_row, Values sums) {
        for (std::int64_t tap = 0; tap < kernel_.taps; ++tap) {
            const Values filter = read(filter_row, {{tap, nullptr}}).at(tap);
            for (std::int64_t column = 0; column < kernel_.columns; ++column)
                if (const auto place = kernel_.met(column, tap); place && row.contains(*place))
                    add_products(row.at(*place), filter, sums, column);
        }
        return sums;
    }

    void store_columns(Values sums, Value* element, Value* first, Value* channel) {
        const ConvolutionKernel& convolution = kernel_.convolution;
        for (std::size_t i = 0; convolution.bias && i < static_cast<std::size_t>(kernel_.channels); ++i) {
            Value* const own = b_.CreateAdd(channel, integer(static_cast<std::int64_t>(i)));
            Value* const bias = load(parameter(2), own, *convolution.bias);
            for (std::size_t at = i; at < sums.size(); at += static_cast<std::size_t>(kernel_.channels))
                sums[at] = b_.CreateFAdd(sums[at], bias);
        }
        for (std::int64_t column = 0; column < kernel_.columns; ++column) {
            const auto store = [&] {
                store_channels(sums, column, parameter(convolution.bias ? 3 : 2),
                               b_.CreateAdd(element, integer(column * of_.channels)), convolution.to);
            };
            if (column + (kernel_.column_steps() - 1) * kernel_.columns < kernel_.columns_of_all())
                store();
            else
                if_then(is_less(b_.CreateAdd(first, integer(column)), integer(kernel_.columns_of_all())),
                        store);
        }
    }
};

/// A thread's results are taps of a row of the filter, over a part of the strips: so many rows and columns of
/// the outputs of an image.
class DepthwiseFilterGradient : DepthwiseCode {
  public:
    using DepthwiseCode::DepthwiseCode;

    void run() {
        if_then(is_less(number_, integer(kernel_.threads())), [&] {
            const std::vector<Value*> at =
                indices_of(number_, {kernel_.parts(), slices_, of_.vertical.filter, kernel_.pieces_of_row(),
                                     kernel_.side_by_side});
            filter_row_ = at[2];
            piece_ = at[3];
            channel_ = channel_of(at[1], at[4]);
            Value* const first = b_.CreateMul(at[0], integer(kernel_.strips_of_part));
            const Values sums =
                control_.loop("strips", first, end_of(first, kernel_.strips_of_part, kernel_.strips()),
                              integer(1), zeros(kernel_.taps),
                              [&](Value* strip, const Values& before) { return with_strip(strip, before); });
            store_taps(sums, at[0]);
        });
        b_.CreateRetVoid();
    }

  private:
    Value* end_of(Value* first, std::int64_t count, std::int64_t all) {
        Value* const end = b_.CreateAdd(first, integer(count));
        return b_.CreateSelect(is_less(end, integer(all)), end, integer(all));
    }
    Value* first_tap() { return b_.CreateMul(piece_, integer(kernel_.taps)); }

    Values with_strip(Value* strip, const Values& sums) {
        const std::vector<Value*> at =
            indices_of(strip, {of_.images, kernel_.column_steps(), kernel_.strips_of_column()});
        const std::int64_t steps = kernel_.column_steps() - 1, dilation = of_.horizontal.dilation;
        Value* const first = b_.CreateMul(at[1], integer(kernel_.columns));
        Value* const from = b_.CreateAdd(b_.CreateMul(at[1], integer(kernel_.step_of_met())),
                                         b_.CreateMul(first_tap(), integer(dilation)));
        const std::int64_t last_piece = (kernel_.pieces_of_row() - 1) * kernel_.taps * dilation;
        const Columns of_x =
            inside(kernel_.all_met(), from, steps * kernel_.step_of_met() + last_piece, of_.horizontal.image);
        std::set<std::int64_t> outputs;
        for (std::int64_t column = 0; column < kernel_.columns; ++column) outputs.insert(column);
        const Columns of_dy = inside(outputs, first, steps * kernel_.columns, of_.horizontal.output);
        Value* const top = b_.CreateMul(at[2], integer(kernel_.rows_of_strip));
        return control_.loop(
            "rows", top, end_of(top, kernel_.rows_of_strip, of_.vertical.output), integer(1), sums,
            [&](Value* row, const Values& before) {
                const Place place = image_place(of_.vertical, row, filter_row_);
                return control_.if_then(place.is_one, before, [&] {
                    const Row dy = read(address(1, {at[0], row, first, channel_}, of_.y_shape()), of_dy);
                    const Row x = read(address(0, {at[0], place.at, from, channel_}, of_.x_shape()), of_x);
                    return with_rows(x, dy, of_dy, before);
                });
            });
    }

    /// Sums pass by the columns beyond the output: a gradient of 0 times an infinite pixel would be no
    /// number.
    Values with_rows(const Row& x, const Row& dy, const Columns& of_dy, Values sums) {
        for (const auto& [column, gradient] : dy) {
            const Values before = sums;
            for (std::int64_t tap = 0; tap < kernel_.taps; ++tap)
                if (const auto place = kernel_.met(column, tap); x.contains(*place))
                    add_products(x.at(*place), gradient, sums, tap);
            if (Value* const is_inside = of_dy.at(column))
                for (std::size_t i = 0; i < sums.size(); ++i)
                    sums[i] = b_.CreateSelect(is_inside, sums[i], before[i]);
        }
        return sums;
    }

    void store_taps(const Values& sums, Value* part) {
        const Shape& filter = of_.filter_shape();
        for (std::int64_t tap = 0; tap < kernel_.taps; ++tap) {
            Value* const column = b_.CreateAdd(first_tap(), integer(tap));
            const auto store = [&] {
                Value* const place = place_of({part, filter_row_, column, channel_},
                                              {filter.elements(), filter[1] * filter[3], filter[3], 1}, 0);
                store_channels(sums, tap, parameter(2), place, DType::f32);
            };
            if (kernel_.pieces_of_row() * kernel_.taps == of_.horizontal.filter)
                store();
            else
                if_then(is_less(column, integer(of_.horizontal.filter)), store);
        }
    }

    Value *filter_row_ = nullptr, *piece_ = nullptr, *channel_ = nullptr;
};

}  // namespace

void emit(llvm::Module& module, const std::string& name, const DepthwiseKernel& kernel) {
    if (kernel.makes(ConvolutionResult::gradient_of_filter))
        DepthwiseFilterGradient(module, name, kernel).run();
    else
        DepthwiseWindows(module, name, kernel).run();
}

}  // namespace mantissa::codegen
