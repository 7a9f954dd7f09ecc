// Kernels of rows and of images as lines of tables: the operands of each, and its binding to a problem.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "mantissa/device/cpu/kernels/kernels.h"
#include "mantissa/device/cpu/rows/rows.h"

namespace mantissa::inline v0::on_cpu {

/// The parts of a problem that a launch needs to remember.
struct BoundRows {
    const RowKernels& kernels;
    ThreadPool& pool;
    std::int64_t rows = 1;     ///< all axes but the last
    std::int64_t columns = 1;  ///< the last axis
    std::vector<DType> inputs = {}, outputs = {};

    std::int64_t count() const { return rows * columns; }
    ConstView in(const Operands& operands, std::size_t i) const { return {operands.inputs[i], inputs[i]}; }
    View out(const Operands& operands, std::size_t i) const { return {operands.outputs[i], outputs[i]}; }
};

/// Refuses FP64, and problems without elements.
std::string refuse_empty_or_wide(const Problem& problem);

inline std::vector<std::vector<int>> write_over_nothing(const Problem&) { return {}; }

struct RowBinding {
    const char* op;
    Launch (*prepare)(const Problem&, const BoundRows&);
    /// The operand with the shape of the walk.
    std::size_t shaped_by = 0;
    std::string (*refuse)(const Problem&) = refuse_empty_or_wide;
    std::int64_t (*workspace)(const Problem&) = no_workspace;
    /// Operands that the kernel reads in FP32 only: scales, statistics, scalars.
    std::vector<std::size_t> f32_inputs = {};
    DType sums = DType::f32;
    /// As in device.h.
    std::vector<std::vector<int>> (*may_write_over)(const Problem&) = write_over_nothing;
};

/// The gradient of a norm: dy, x, gamma, mean, 1/sigma -> dx, dgamma, dbeta.
template <class Gradient, void (*run)(const RowKernels&, const Gradient&, ThreadPool&, Stores)>
Launch prepare_norm_grad(const Problem&, const BoundRows& b) {
    return [b](const Operands& o) {
        run(b.kernels,
            {.rows = b.rows,
             .channels = b.columns,
             .dy = b.in(o, 0),
             .x = b.in(o, 1),
             .gamma = o.input<float>(2),
             .mean = o.input<float>(3),
             .rstd = o.input<float>(4),
             .dx = b.out(o, 0),
             .dgamma = o.output<float>(1),
             .dbeta = o.output<float>(2),
             .workspace = reinterpret_cast<float*>(o.workspace)},
            b.pool, Stores::automatic);
    };
}

/// The bindings must outlive the table.
void add_bindings(KernelTable& table, const Context& context, const std::string& name,
                  std::span<const RowBinding> all);

}  // namespace mantissa::on_cpu
