// Sums and maxima over any axes, in plain C++: each result is computed by one thread, its terms in row-major
// order.
#include <functional>
#include <limits>
#include <memory>

#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/kernels/kernels.h"
#include "mantissa/device/cpu/rows/order.h"
#include "mantissa/numerics/scalar.h"

namespace mantissa::inline v0::on_cpu {

void add_order_kernels(KernelTable& table, const Context& context) {
    const auto prepare = [&pool = context.pool](const Problem& problem) -> Expected<PreparedKernel> {
        const Type& x = problem.inputs[0];
        OrderOfRows order{.columns = x.shape[-1],
                          .count = problem.attributes.integer("count"),
                          .descending = problem.attributes.flag("descending"),
                          .dtype = x.dtype};
        order.rows = order.columns == 0 ? 0 : x.shape.elements() / order.columns;
        const auto launch = [order, &pool](const Operands& operands) {
            OrderOfRows bound = order;
            bound.x = operands.inputs[0];
            bound.order = operands.output<std::int32_t>(0);
            bound.scratch = reinterpret_cast<std::uint64_t*>(operands.workspace);
            order_rows(bound, pool);
        };
        return PreparedKernel{.launch = launch, .workspace = order_workspace(order, pool.threads())};
    };
    table["argsort"].push_back({.name = "digits of keys", .prepare = prepare});
}

namespace {

/// The axes of a reduction taken apart: axes that stay and axes that are reduced, outermost first.
struct Reduction {
    struct Axis {
        std::int64_t extent;
        std::int64_t stride;
    };
    std::vector<Axis> kept, reduced;
    std::int64_t results = 1, terms = 1;

    explicit Reduction(const Problem& problem) {
        const Shape& shape = problem.inputs[0].shape;
        const std::vector<std::int64_t> strides = shape.strides();
        const auto& axes = problem.attributes.list("axes");
        for (std::size_t axis = 0; axis < strides.size(); ++axis) {
            const bool goes =
                std::find(axes.begin(), axes.end(), static_cast<std::int64_t>(axis)) != axes.end();
            (goes ? reduced : kept).push_back({shape.extents()[axis], strides[axis]});
            (goes ? terms : results) *= shape.extents()[axis];
        }
    }

    static std::int64_t offset(const std::vector<Axis>& axes, std::int64_t index) {
        std::int64_t total = 0;
        for (std::size_t axis = axes.size(); axis-- > 0; index /= axes[axis].extent)
            total += index % axes[axis].extent * axes[axis].stride;
        return total;
    }

    /// Calls body(element) for each term of a result, in row-major order.
    template <class Body>
    void for_each_term(std::int64_t start, Body&& body) const {
        if (terms == 0) return;
        const std::int64_t run = reduced.empty() ? 1 : reduced.back().extent;
        const std::int64_t stride = reduced.empty() ? 0 : reduced.back().stride;
        for (std::int64_t first = 0; first < terms; first += run) {
            const std::int64_t from = start + offset(reduced, first);
            for (std::int64_t i = 0; i < run; ++i) body(from + i * stride);
        }
    }
};

/// Terms are put together in FP64: one rounding a result, whatever the number of terms (two where the result
/// is of 16 bits, by way of FP32).
template <class T, class Y, class Fold>
Launch prepare_fold(const Problem& problem, const Context& context, double start, Fold fold) {
    return [=, reduction = std::make_shared<const Reduction>(problem),
            &pool = context.pool](const Operands& operands) {
        const T* x = operands.input<T>(0);
        Y* y = operands.output<Y>(0);
        pool.for_each_block(ceil_div(reduction->results, 256), [&](std::int64_t block, int) {
            for (std::int64_t i = block * 256; i < std::min(reduction->results, (block + 1) * 256); ++i) {
                double total = start;
                reduction->for_each_term(Reduction::offset(reduction->kept, i), [&](std::int64_t at) {
                    total = fold(total, static_cast<double>(number(x[at])));
                });
                y[i] = stored_as<Y>(total);
            }
        });
    };
}

double greater(double largest, double term) {  // NaN wins
    return largest != largest || largest > term ? largest : term;
}

std::string refuse_unless_floating(const Problem& problem) {
    return is_floating(problem.inputs[0].dtype) ? "" : "it is written for floating-point numbers";
}

}  // namespace

void add_reduction_kernels(KernelTable& table, const Context& context) {
    const auto sum = [=](const Problem& problem) {
        return with_floating_type(problem.inputs[0].dtype, [&](auto x) {
            using T = decltype(x);
            if (problem.outputs[0].dtype == problem.inputs[0].dtype)
                return prepare_fold<T, T>(problem, context, 0, std::plus<>());
            return prepare_fold<T, float>(problem, context, 0, std::plus<>());
        });
    };
    table["sum"].push_back(kernel_of("plain loop", sum, refuse_unless_floating));
    table["sum"].back().arithmetic.sums = DType::f64;
    const auto max = [=](const Problem& problem) {
        return with_floating_type(problem.inputs[0].dtype, [&](auto x) {
            using T = decltype(x);
            return prepare_fold<T, T>(problem, context, -std::numeric_limits<double>::infinity(), greater);
        });
    };
    table["max"].push_back(kernel_of("plain loop", max, refuse_unless_floating));
}

}  // namespace mantissa::on_cpu
