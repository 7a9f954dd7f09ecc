// The tutorial's table: one A100, 128 images of 224 x 224 a batch.
#pragma once

#include <string_view>

namespace mantissa::inline v0 {

struct PublishedBench {
    std::string_view model, precision;
    double rate;     ///< images a second
    double speedup;  ///< over FP32
    double loss;     ///< of the first iteration
};

inline constexpr PublishedBench a100_bench[] = {
    {"ResNet50", "fp32", 455.9, 1.00, 7.45765},    {"ResNet50", "tf32", 750.6, 1.65, 7.45651},
    {"ResNet50", "fp16", 1087.6, 2.38, 7.45703},   {"VGG19", "fp32", 212.7, 1.00, 6.90778},
    {"VGG19", "tf32", 550.3, 2.59, 6.90778},       {"VGG19", "fp16", 1099.8, 5.17, 6.90625},
    {"DenseNet121", "fp32", 391.9, 1.00, 6.96142}, {"DenseNet121", "tf32", 591.5, 1.51, 6.96145},
    {"DenseNet121", "fp16", 876.2, 2.24, 6.96094}};

/// Null where the table has no such row.
inline const PublishedBench* published_bench(std::string_view model, std::string_view precision) {
    for (const PublishedBench& row : a100_bench)
        if (row.model == model && row.precision == precision) return &row;
    return nullptr;
}

}  // namespace mantissa
