// A graph with the values of its inputs and states, evaluated by the reference: for tests of a construct's
// meaning.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "mantissa/graph/gradient.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/reference.h"
#include "tests/support/error_of.h"

namespace mantissa::testing {

using Numbers = std::vector<double>;

inline constexpr double infinity = std::numeric_limits<double>::infinity();
inline constexpr double nan = std::numeric_limits<double>::quiet_NaN();

/// A graph with the values of its inputs and states.
struct Recording {
    Graph graph;
    ReferenceFeed feed;

    Tensor given(Shape shape, Numbers values, DType dtype = DType::f32) {
        const std::string name = "x" + std::to_string(feed.size());
        feed[name] = std::move(values);
        return {graph, graph.add_input(name, {dtype, std::move(shape)})};
    }
    /// A vector.
    Tensor given(Numbers values, DType dtype = DType::f32) {
        const auto extent = static_cast<std::int64_t>(values.size());
        return given({extent}, std::move(values), dtype);
    }
    Tensor kept(const std::string& name, Numbers values, State::Kind kind = State::Kind::parameter) {
        const Type type{DType::f32, {static_cast<std::int64_t>(values.size())}};
        feed[name] = std::move(values);
        return {graph, graph.add_state({.kind = kind, .name = name, .type = type, .initializer = {}})};
    }
    Numbers values(Tensor x) const { return ReferenceRun(graph, feed)[x.value()].values; }
    /// The gradient of the sum of y's elements; zeros where x has no influence.
    Numbers gradient(Tensor y, Tensor x) {
        const Tensor ones = constant(graph, 1.0, y.dtype(), y.shape());
        const Tensor found = backpropagate(graph, {&y, 1}, {&ones, 1}, {&x, 1})[0];
        return found ? values(found) : Numbers(static_cast<std::size_t>(x.shape().elements()));
    }
};

/// Equal, including signs of zeros; a NaN equals a NaN.
inline void expect_same(const Numbers& got, const Numbers& expected) {
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
        if (std::isnan(got[i]) && std::isnan(expected[i])) continue;
        EXPECT_EQ(got[i], expected[i]) << "element " << i;
        EXPECT_EQ(std::signbit(got[i]), std::signbit(expected[i])) << "the sign of element " << i;
    }
}

/// Within an absolute tolerance.
inline void expect_near(const Numbers& got, const Numbers& expected, double tolerance) {
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i)
        EXPECT_NEAR(got[i], expected[i], tolerance) << "element " << i;
}

}  // namespace mantissa::testing
