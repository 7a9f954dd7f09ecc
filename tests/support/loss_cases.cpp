#include "tests/support/loss_cases.h"

#include "mantissa/graph/graph.h"

namespace mantissa::testing {

namespace {

/// Targets that are probabilities of classes; logits plain, or from a product.
OpCase soft_cross_entropy_case(const char* name, bool product, double smoothing, Reduction reduction) {
    constexpr std::int64_t N = 5, C = 4, V = 23;
    const auto loss = [=](Graph& g, Tensor logits, Tensor parts) {
        CrossEntropyOptions options{.label_smoothing = smoothing, .reduction = reduction};
        std::vector<double> weights;
        for (int i = 0; i < V; ++i) weights.push_back(0.25 + i % 5);
        if (smoothing > 0) options.class_weights = literal(g, std::move(weights), DType::f32, {V});
        return std::vector{cross_entropy(logits, parts / 32.0, options)};
    };
    if (!product)
        return {"cross_entropy",
                fmt::format("cross_entropy {}", name),
                {f32({N, V}), f32({N, V}, Values::positive)},
                [=](Graph& g, In x) { return loss(g, x[0], x[1]); },
                {4, 16}};
    return {"cross_entropy",
            fmt::format("cross_entropy {}", name),
            {f32({N, C}), f32({V, C}), f32({N, V}, Values::positive)},
            [=](Graph& g, In x) { return loss(g, matmul(x[0], x[1], {.transpose_b = true}), x[2]); },
            {8, 32, 4, true}};
}

}  // namespace

std::vector<OpCase> soft_loss_cases() {
    return {
        soft_cross_entropy_case("of parts of classes", false, 0, Reduction::none),
        soft_cross_entropy_case("of parts of classes, smoothed and weighted", false, 0.1, Reduction::mean),
        soft_cross_entropy_case("of parts of classes of a product", true, 0, Reduction::sum),
        soft_cross_entropy_case("of parts of classes of a product, smoothed and weighted", true, 0.2,
                                Reduction::none),
    };
}

}  // namespace mantissa::testing
