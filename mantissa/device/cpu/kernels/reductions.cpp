// Sums and maxima over any axes, in plain C++: each result is computed by one thread, its terms in row-major
// order.
#include <cmath>
#include <limits>
#include <memory>

#include "mantissa/device/cpu/kernels/kernels.h"

namespace mantissa::cpu {

namespace {

/// The axes of a reduction taken apart: those that stay and those that are reduced, outermost first.
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

/// FP32 terms are added in FP64: one rounding a result, whatever the number of terms.
template <class T>
Launch prepare_sum(const Problem& problem, const Context& context) {
    return [reduction = std::make_shared<const Reduction>(problem),
            &pool = context.pool](const Operands& operands) {
        const T* x = operands.input<T>(0);
        T* y = operands.output<T>(0);
        pool.for_each_block((reduction->results + 255) / 256, [&](std::int64_t block, int) {
            for (std::int64_t i = block * 256; i < std::min(reduction->results, (block + 1) * 256); ++i) {
                double total = 0;
                reduction->for_each_term(Reduction::offset(reduction->kept, i),
                                         [&](std::int64_t at) { total += x[at]; });
                y[i] = static_cast<T>(total);
            }
        });
    };
}

template <class T>
Launch prepare_max(const Problem& problem, const Context& context) {
    return [reduction = std::make_shared<const Reduction>(problem),
            &pool = context.pool](const Operands& operands) {
        const T* x = operands.input<T>(0);
        T* y = operands.output<T>(0);
        pool.for_each_block((reduction->results + 255) / 256, [&](std::int64_t block, int) {
            for (std::int64_t i = block * 256; i < std::min(reduction->results, (block + 1) * 256); ++i) {
                T largest = -std::numeric_limits<T>::infinity();
                reduction->for_each_term(Reduction::offset(reduction->kept, i), [&](std::int64_t at) {
                    largest = largest != largest || largest > x[at] ? largest : x[at];  // NaN wins
                });
                y[i] = largest;
            }
        });
    };
}

std::string refuse_unless_wide(const Problem& problem) {
    const DType dtype = problem.inputs[0].dtype;
    return dtype == DType::f32 || dtype == DType::f64 ? "" : "it is written for f32 and f64";
}

}  // namespace

void add_reduction_kernels(KernelTable& table, const Context& context) {
    table["sum"].push_back(
        {.name = "plain loop", .refusal = refuse_unless_wide, .prepare = [=](const Problem& problem) {
             return problem.inputs[0].dtype == DType::f32 ? prepare_sum<float>(problem, context)
                                                          : prepare_sum<double>(problem, context);
         }});
    table["max"].push_back(
        {.name = "plain loop", .refusal = refuse_unless_wide, .prepare = [=](const Problem& problem) {
             return problem.inputs[0].dtype == DType::f32 ? prepare_max<float>(problem, context)
                                                          : prepare_max<double>(problem, context);
         }});
}

}  // namespace mantissa::cpu
