// Random numbers and dropout on the CPU. The numbers are functions of (seed, step, operation, element), so
// the cutting into blocks changes none.
#include "mantissa/base/random.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/kernels/kernels.h"
#include "mantissa/numerics/scalar.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// Calls body(element, uniform number) for all elements, in parallel.
template <class Body>
void for_each_uniform(const RandomStream& stream, std::int64_t count, ThreadPool& pool, Body&& body) {
    constexpr std::int64_t block = 1 << 13;  // a multiple of the four numbers that one Philox block gives
    pool.for_each_block(ceil_div(count, block), [&](std::int64_t index, int) {
        const std::int64_t last = std::min(count, (index + 1) * block);
        for (std::int64_t i = index * block; i < last; i += 4) {
            const auto words = stream.block(static_cast<std::uint64_t>(i) / 4);
            for (std::int64_t lane = 0; lane < std::min<std::int64_t>(4, last - i); ++lane)
                body(i + lane, uniform_from_bits(words[lane]));
        }
    });
}

RandomStream stream_of(const Operands& operands, std::size_t first, std::uint32_t operation) {
    return {.seed = static_cast<std::uint64_t>(*operands.input<std::int64_t>(first)),
            .step = static_cast<std::uint32_t>(*operands.input<std::int64_t>(first + 1)),
            .operation = operation};
}

Launch prepare_uniform(const Problem& problem, const Context& context) {
    return [count = problem.outputs[0].shape.elements(), &pool = context.pool,
            operation = static_cast<std::uint32_t>(problem.attributes.integer("operation"))](
               const Operands& operands) {
        float* y = operands.output<float>(0);
        for_each_uniform(stream_of(operands, 0, operation), count, pool,
                         [&](std::int64_t i, float u) { y[i] = u; });
    };
}

template <class T>
Launch prepare_dropout(const Problem& problem, const Context& context) {
    const auto rate = static_cast<float>(problem.attributes.number("rate"));
    const auto scale = static_cast<float>(1.0 / (1.0 - problem.attributes.number("rate")));
    return [=, count = problem.outputs[0].shape.elements(), &pool = context.pool,
            operation = static_cast<std::uint32_t>(problem.attributes.integer("operation"))](
               const Operands& operands) {
        const T* x = operands.input<T>(0);
        T* y = operands.output<T>(0);
        for_each_uniform(stream_of(operands, 1, operation), count, pool, [&](std::int64_t i, float u) {
            y[i] = stored_as<T>(u < rate ? 0.0f : static_cast<float>(number(x[i])) * scale);
        });
    };
}

}  // namespace

void add_random_kernels(KernelTable& table, const Context& context) {
    table["random_uniform"].push_back(
        kernel_of("philox", [=](const Problem& problem) { return prepare_uniform(problem, context); }));
    const auto refuse = [](const Problem& problem) -> std::string {
        return problem.inputs[0].dtype == DType::f64 ? "it computes in f32, got f64" : "";
    };
    const auto prepare = [=](const Problem& problem) {
        return with_floating_type(problem.inputs[0].dtype,
                                  [&](auto x) { return prepare_dropout<decltype(x)>(problem, context); });
    };
    table["dropout"].push_back(kernel_of("philox", prepare, refuse));
}

}  // namespace mantissa::on_cpu
