// Grouped contractions: one contraction a group, prepared when its rows are counted, on all threads.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "mantissa/base/buffer.h"
#include "mantissa/base/error.h"
#include "mantissa/device/cpu/contraction/contraction.h"
#include "mantissa/device/cpu/kernels/kernels.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// A group's contraction of so many rows: `rows` is M of grouped_matmul and K of grouped_outer.
struct GroupedContraction {
    ContractionProblem one_row = {};  ///< all but the number of rows
    bool sums_over_rows = false;
    Isa isa = Isa::generic;
    std::int64_t rows = 0, groups = 0;
    // Bytes from a row, or a group, to the next.
    std::int64_t row_of_a = 0, row_of_b = 0, row_of_out = 0, group_of_b = 0, group_of_out = 0;
    std::size_t workspace = 0;
    ThreadPool* pool = nullptr;

    PreparedContraction prepared(std::int64_t count) const {
        ContractionProblem problem = one_row;
        (sums_over_rows ? problem.k : problem.m) = count;
        return prepare_contraction(problem, isa);
    }

    /// Contracts rows from `first` on. Blocks follow from the number of rows, so fewer rows may need more
    /// workspace than was asked for: then it is allocated here.
    void contract_rows(const Operands& operands, std::int64_t group, std::int64_t first,
                       std::int64_t count) const {
        const PreparedContraction contraction = prepared(count);
        const std::size_t needed = contraction.workspace_bytes(pool->threads());
        Buffer own(needed > workspace ? needed : 0);
        const std::span<std::byte> given =
            needed > workspace ? own.as<std::byte>() : std::span(operands.workspace, workspace);
        contract(contraction,
                 {.a = operands.inputs[0] + first * row_of_a,
                  .b = operands.inputs[1] + first * row_of_b + group * group_of_b,
                  .out = operands.outputs[0] + first * row_of_out + group * group_of_out},
                 given, *pool);
    }

    void launch(const Operands& operands) const {
        const std::int32_t* const counts = operands.input<std::int32_t>(2);
        std::int64_t first = 0;
        for (std::int64_t group = 0; group < groups; ++group) {
            const std::int64_t count = counts[group];
            if (count < 0 || first + count > rows)
                throw UserError(fmt::format("group {} has {} rows from row {} on, and there are {}", group,
                                            count, first, rows));
            if (count > 0 || sums_over_rows) contract_rows(operands, group, first, count);
            first += count;
        }
        if (!sums_over_rows && first < rows)
            std::memset(operands.outputs[0] + first * row_of_out, 0,
                        static_cast<std::size_t>((rows - first) * row_of_out));
    }
};

/// The largest workspace of all rows, and of one, two, four, ... of them.
std::size_t workspace_of(const GroupedContraction& of) {
    std::size_t most = 0;
    for (std::int64_t count = 1; count < of.rows; count *= 2)
        most = std::max(most, of.prepared(count).workspace_bytes(of.pool->threads()));
    return std::max(most, of.prepared(of.rows).workspace_bytes(of.pool->threads()));
}

GroupedContraction grouped_contraction(const Problem& problem, const ContractionUnit& unit,
                                       ThreadPool& pool) {
    const Type &x = problem.inputs[0], &other = problem.inputs[1], &y = problem.outputs[0];
    const auto bytes = [](const Type& type, std::int64_t elements) {
        return elements * static_cast<std::int64_t>(mantissa::size_of(type.dtype));
    };
    GroupedContraction made{.sums_over_rows = problem.op.name == "grouped_outer",
                            .isa = unit.isa,
                            .rows = x.shape[0],
                            .groups = problem.inputs[2].shape[0],
                            .row_of_a = bytes(x, x.shape[1]),
                            .pool = &pool};
    ContractionProblem& one = made.one_row;
    one.multiply = unit.multiply;
    one.threads = unit.threads;
    one.n = y.shape[-1];
    one.a = {.dtype = x.dtype, .leading = x.shape[1]};
    one.b = {.dtype = other.dtype, .leading = other.shape[-1]};
    one.out = {.dtype = y.dtype, .leading = y.shape[-1]};
    if (made.sums_over_rows) {
        one.m = x.shape[1];
        one.a.transpose = Transpose::yes;
        made.row_of_b = bytes(other, other.shape[1]);
        made.group_of_out = bytes(y, y.shape[1] * y.shape[2]);
    } else {
        one.k = x.shape[1];
        one.b.transpose = problem.attributes.flag("transpose_b") ? Transpose::yes : Transpose::no;
        made.row_of_out = bytes(y, y.shape[1]);
        made.group_of_b = bytes(other, other.shape[1] * other.shape[2]);
    }
    return made;
}

Kernel grouped_kernel(const Context& context, const ContractionUnit& unit) {
    const auto prepare = [unit, &pool = context.pool](const Problem& problem) -> Expected<PreparedKernel> {
        if (std::string reason = unit.refusal(problem); !reason.empty()) return Unexpected{reason};
        GroupedContraction made = grouped_contraction(problem, unit, pool);
        ContractionProblem whole = made.one_row;
        (made.sums_over_rows ? whole.k : whole.m) = made.rows;
        if (std::string reason = refusal(whole); !reason.empty()) return Unexpected{reason};
        made.workspace = workspace_of(made);
        return PreparedKernel{.launch = [made](const Operands& operands) { made.launch(operands); },
                              .workspace = static_cast<std::int64_t>(made.workspace)};
    };
    return {.name = unit.name + ", by groups", .arithmetic = unit.arithmetic, .prepare = prepare};
}

}  // namespace

void add_grouped_contraction_kernels(KernelTable& table, const Context& context) {
    for (const ContractionUnit& unit : contraction_units(context.isa, context.threads))
        for (const char* op : {"grouped_matmul", "grouped_outer"})
            table[op].push_back(grouped_kernel(context, unit));
}

}  // namespace mantissa::on_cpu
