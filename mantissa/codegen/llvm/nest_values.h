// The values of a nest's steps as instructions: those of a row or of the whole nest as single numbers, those
// of a walk for the columns at hand.
#pragma once

#include "mantissa/codegen/llvm/control.h"
#include "mantissa/codegen/llvm/target_code.h"

namespace mantissa::inline v0::codegen {

class NestValues {
  public:
    NestValues(llvm::IRBuilderBase& builder, const LoopNest& nest, TargetCode& target,
               const CodeArguments& arguments);

    /// Makes the addresses of a row; before any step that varies by row.
    void begin_row(llvm::Value* row);
    llvm::Value* row() const { return row_; }
    /// Where the row of an output starts.
    llvm::Value* output_row(int output) const { return output_rows_[static_cast<std::size_t>(output)]; }

    /// A step of which there is one a row, or one alone.
    void compute_single(int index);
    void set_single(int index, llvm::Value* value) { single(index) = value; }
    llvm::Value* single_value(int index) const { return single_[static_cast<std::size_t>(index)]; }

    /// Forgets the values of other columns.
    void begin_columns() { in_lanes_.assign(nest_.steps.size(), nullptr); }
    void compute_lanes(int index, const Columns& columns);
    void set_lanes(int index, llvm::Value* value) { in_lanes(index) = value; }
    /// The value for the columns at hand, in every lane if it does not vary along them.
    llvm::Value* lane_value(int index);

  private:
    const Step& step(int index) const { return nest_.steps[static_cast<std::size_t>(index)]; }
    DType from_type(const Step& now) const { return step(now.arguments.back()).dtype; }
    llvm::Value*& single(int index) { return single_[static_cast<std::size_t>(index)]; }
    llvm::Value*& in_lanes(int index) { return in_lanes_[static_cast<std::size_t>(index)]; }
    llvm::Value* row_of(const Access& access);
    llvm::Value* row_base(const Step& now);

    llvm::IRBuilderBase& b_;
    const LoopNest& nest_;
    TargetCode& target_;
    const CodeArguments& arguments_;
    Control control_;
    Lanes one_;
    llvm::Value* row_ = nullptr;
    Values row_bases_;  // by step: where its operand's row starts
    Values output_rows_;
    Values single_;    // by step: one number, of the row or for good
    Values in_lanes_;  // by step: of the columns at hand
};

}  // namespace mantissa::codegen
