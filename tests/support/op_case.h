// A case of an operation: operands, their values, and how to call it.
#pragma once

#include <fmt/format.h>

#include <cctype>
#include <cmath>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "mantissa/base/random.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/reference.h"
#include "mantissa/graph/tensor.h"

namespace mantissa::testing {

/// The distribution of an operand's values.
enum class Values { normal, positive, boolean, index, one, finite_or_not, scalar_step, wide };

struct Operand {
    Type type;
    Values values = Values::normal;
    std::int64_t limit = 0;  ///< index: below this
    std::int64_t least = 0;  ///< index: from this on
};

/// The allowed difference of a kernel's FP32 result from the reference: `ulps` of itself, plus `sums`
/// rounding errors of 2^-24 each, relative to the operation on absolute values.
struct Error {
    double ulps = 0;
    double sums = 0;
    /// In 16 bits: roundings of intermediate values that a kernel stores and the reference does not, each
    /// relative to the largest result.
    double stored = 0;
    /// Whether these roundings reach results of FP32, too.
    bool reaches_f32 = false;
};

struct OpCase {
    std::string op;
    std::string name;
    std::vector<Operand> operands;
    std::function<std::vector<Tensor>(Graph&, const std::vector<Tensor>&)> build;
    Error error = {};

    friend std::ostream& operator<<(std::ostream& out, const OpCase& test) { return out << test.name; }
};

/// A case's name for tests, with only letters, digits and "_": softmax_rows.
inline std::string test_name(const OpCase& test) {
    std::string name;
    for (const char c : test.name) {
        const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0;
        if (plain || (!name.empty() && name.back() != '_')) name += plain ? c : '_';
    }
    if (name.ends_with('_')) name.pop_back();
    return name;
}

inline Operand f32(Shape shape, Values values = Values::normal) {
    return {{DType::f32, std::move(shape)}, values};
}
inline Operand ids(Shape shape, std::int64_t limit) {
    return {{DType::i32, std::move(shape)}, Values::index, limit};
}
inline Operand flags(Shape shape) { return {{DType::boolean, std::move(shape)}, Values::boolean}; }
inline Operand counter() { return {{DType::i64, {}}, Values::one}; }

/// Reproducible values of an operand, exact in its type.
inline std::vector<double> values_of(const Operand& operand, std::uint32_t which) {
    const RandomStream random{.seed = 20, .step = 0, .operation = which};
    std::vector<double> values(static_cast<std::size_t>(operand.type.shape.elements()));
    for (std::size_t i = 0; i < values.size(); ++i) {
        const double normal = static_cast<double>(random.normal(i));
        switch (operand.values) {
            case Values::normal:
                values[i] = normal;
                break;
            case Values::positive:
                values[i] = static_cast<float>(0.25 + std::abs(normal));
                break;
            case Values::boolean:
                values[i] = random.bits(i) & 1;
                break;
            case Values::index:
                values[i] = static_cast<double>(
                    operand.least +
                    static_cast<std::int64_t>(random.bits(i) %
                                              static_cast<std::uint64_t>(operand.limit - operand.least)));
                break;
            case Values::one:
                values[i] = 1;
                break;
            case Values::scalar_step:
                values[i] = 3;
                break;
            case Values::wide:
                values[i] = static_cast<float>(17 * normal);
                break;
            case Values::finite_or_not:
                values[i] = i % 5 == 3 ? INFINITY : i % 7 == 2 ? NAN : normal;
                break;
        }
    }
    return values;
}

/// A case recorded in a graph of its own.
struct Recorded {
    Graph graph;
    std::vector<Tensor> inputs, outputs;
    ReferenceFeed feed;

    explicit Recorded(const OpCase& test) {
        for (std::size_t i = 0; i < test.operands.size(); ++i) {
            const std::string name = fmt::format("x{}", i);
            inputs.emplace_back(graph, graph.add_input(name, test.operands[i].type));
            feed[name] = values_of(test.operands[i], static_cast<std::uint32_t>(i));
        }
        outputs = test.build(graph, inputs);
        for (std::size_t i = 0; i < outputs.size(); ++i)
            graph.add_result(fmt::format("y{}", i), outputs[i].value());
    }
    Recorded(const Recorded&) = delete;
};

using In = const std::vector<Tensor>&;

}  // namespace mantissa::testing
