// The differences between the processors that loop nests are lowered for: how a function begins, which rows
// and columns it has, how its threads bring a row together, how it touches memory. Everything else is
// emit.cpp's.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mantissa/codegen/compiler.h"
#include "mantissa/codegen/llvm/lanes.h"

namespace llvm {
class Module;
}

namespace mantissa::inline v0::codegen {

using Values = std::vector<llvm::Value*>;

/// Arguments of a function.
struct CodeArguments {
    Values inputs = {};
    Values outputs = {};
    llvm::Value* first = nullptr;  ///< of its rows, or of its elements where the nest is flat
    llvm::Value* last = nullptr;
    llvm::Value* scratch = nullptr;
    llvm::Value* partial_sums = nullptr;
    // The place of a block of sums of a contraction; null: operand 0 and the columns are whole.
    llvm::Value* leading = nullptr;
    llvm::Value* first_column = nullptr;
    llvm::Value* last_column = nullptr;
};

/// Columns of one row, or elements of a flat nest.
struct Range {
    llvm::Value* first = nullptr;
    llvm::Value* last = nullptr;
    std::int64_t columns = -1;  ///< all of so many; -1: known when it runs
    bool from_memory = false;   ///< no earlier walk has read them
    std::size_t walk = 0;
};

/// The columns that are computed at one time, as many as the target's lanes.
struct Columns {
    llvm::Value* first = nullptr;
    llvm::Value* mask = nullptr;  ///< which of them there are; null: all
    bool from_memory = false;
    int operand = -1;  ///< that is loaded
};

class TargetCode {
  public:
    /// Computes some columns; replaces the value of each reduction in `sums`.
    using ColumnsBody = std::function<void(const Columns& columns, llvm::Value** sums)>;

    virtual ~TargetCode() = default;

    /// Adds the function to the module and leaves the builder at its beginning.
    virtual CodeArguments begin(llvm::Module& module, const std::string& name) = 0;
    /// The lanes that columns are computed in.
    virtual const Lanes& lanes() const = 0;
    /// The number of rows that are walked over side by side: one where rows are reduced.
    virtual int rows_together() const { return 1; }
    /// Whether a condition that holds for all elements alike is asked once.
    virtual bool asks_before_loops() const { return false; }
    /// Goes over a range, and gives the walk's reductions over the whole of it.
    virtual Values over(const Walk& walk, const Range& range, const ColumnsBody& body) = 0;
    /// Runs work for a row, not for each of its columns, that changes memory.
    virtual void once_a_row(const std::function<void()>& body) = 0;

    virtual llvm::Value* load(llvm::Value* address, DType dtype, const Columns& columns) = 0;
    /// `value`: of the type that it has in memory.
    virtual void store(llvm::Value* value, llvm::Value* address, int output, const Columns& columns) = 0;
    /// Adds the values of rows, one after another, to a sum over rows, whose place in memory is given.
    virtual void add_to(const RowSum& sum, llvm::Value* address, const Values& values,
                        const Columns& columns) = 0;
    /// Keeps a value of a row for later walks, whose place in memory is given.
    virtual void keep(const Keep& keep, llvm::Value* address, llvm::Value* value) = 0;
    virtual llvm::Value* kept(const Keep& keep, llvm::Value* address, llvm::Type* type) = 0;
    /// Ends behind the last row.
    virtual void end() {}
};

/// How the host makes and reads numbers of 16 bits.
Lanes::Conversions host_conversions(const HostFeatures& features);
/// Adds a function that takes one pointer and returns nothing, and builds in it. Returns the pointer.
llvm::Value* begin_host_function(llvm::IRBuilderBase& builder, llvm::Module& module, const std::string& name);
/// Serial functions of the type `FusedFunction`, over sixteen lanes.
std::unique_ptr<TargetCode> make_host_code(llvm::IRBuilderBase& builder, const LoopNest& nest,
                                           const HostFeatures& features);
/// Kernels of CUDA: a block of threads has some rows, a thread every so many columns of them.
std::unique_ptr<TargetCode> make_nvptx_code(llvm::IRBuilderBase& builder, const LoopNest& nest,
                                            const NvptxTarget& target);

}  // namespace mantissa::codegen
