// Random graphs of work for fused kernels: element-wise work, broadcasts of every kind, reductions along and
// over rows, masks of counters, composites; over rows of awkward lengths. Values stay between about -4 and 4.
// Choices depend only on given numbers, so that rounding changes none.
#pragma once

#include <string>
#include <vector>

#include "mantissa/base/random.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/reference.h"
#include "mantissa/graph/tensor.h"

namespace mantissa::testing {

class RandomNest {
  public:
    explicit RandomNest(std::uint64_t seed) : random_{.seed = seed, .step = 1, .operation = 0} {
        constexpr std::int64_t columns[] = {1, 5, 15, 16, 17, 31, 33, 64, 67, 130};
        batch_ = 1 + static_cast<std::int64_t>(below(3));
        rows_ = 1 + static_cast<std::int64_t>(below(4));
        columns_ = columns[below(10)];
        for (int i = 0; i < 3; ++i) full_.push_back(input({batch_, rows_, columns_}));
        given_ = full_;
        beside_ = {input({columns_}), input({batch_, rows_, 1}), input({rows_, columns_}), input({1}),
                   input({rows_, 1})};
        // Half of the graphs have a backward pass, after an operation that no nest holds.
        const std::size_t forward = 4 + below(24);
        for (std::size_t i = 0; i < 16; ++i) {
            if (i == forward) {
                full_.push_back(full_.back() - mean(any(), {1}, KeepAxes::yes));
                graph.origin.stage = Stage::backward;
            }
            full_.push_back(next());
        }
        for (int i = 0; i < 2; ++i) add_result(full_[full_.size() - 1 - below(6)]);
        if (below(2) == 0) add_result(sum(any(), {0, 1}));
        if (below(3) == 0) add_result(sum(any(), {2}));
        if (below(3) == 0) add_result(sum(any(), {0, 1, 2}));
    }

    Graph graph;
    ReferenceFeed feed;

  private:
    std::size_t below(std::size_t limit) { return random_.bits(next_++) % limit; }
    Tensor any() { return full_[full_.size() - 1 - below(std::min<std::size_t>(full_.size(), 6))]; }
    Tensor given() { return given_[below(given_.size())]; }

    Tensor input(const Shape& shape) {
        const std::string name = "x" + std::to_string(feed.size());
        std::vector<double>& values = feed[name];
        for (std::int64_t i = 0; i < shape.elements(); ++i)
            values.push_back(
                static_cast<double>(random_.normal(1000 * feed.size() + static_cast<std::size_t>(i))));
        return {graph, graph.add_input(name, {DType::f32, shape})};
    }

    void add_result(const Tensor& y) {
        graph.add_result("y" + std::to_string(graph.results().size()), y.value());
    }

    /// x [B, T, C] with a mask of counters, as in attention.
    Tensor masked(const Tensor& x) {
        const Shape square{rows_, columns_};
        return select(less_equal(iota(graph, square, 1), iota(graph, square, 0)), x, constant(graph, -1.5));
    }

    Tensor next() {
        const Tensor x = any();
        const Tensor y = below(2) == 0 ? any() : beside_[below(beside_.size())];
        switch (below(16)) {
            case 0:
                return x * 0.5 + y * 0.5;
            case 1:
                return tanh(x) * y;
            case 2:
                return exp(-(x * x)) - erf(y);
            case 3:
                return log(x * x + 1.0);
            case 4:
                return sqrt(x * x + 0.5) - 1.0;
            case 5:
                return x * rsqrt(y * y + 1.0);
            case 6:
                return x / (y * y + 1.0);
            case 7:
                return maximum(x, y) * 0.75;
            case 8:
                return minimum(x, -y);
            case 9:
                return select(less(given(), given()), x, tanh(x));
            case 10:
                return x - mean(x, {-1}, KeepAxes::yes);
            case 11:
                return x * 0.5 - max(tanh(x), {-1}, KeepAxes::yes);
            case 12:
                return softmax(masked(x));
            case 13:
                return tanh(layer_norm(x, beside_[0], beside_[0]));
            case 14:
                return gelu(tanh(x) * 2.0);
            default:
                return reshape(tanh(reshape(x, {-1, columns_})), x.shape());
        }
    }

    RandomStream random_;
    std::uint64_t next_ = 0;
    std::int64_t batch_ = 1, rows_ = 1, columns_ = 1;
    std::vector<Tensor> full_;    // [B, T, C]
    std::vector<Tensor> given_;   // the inputs among full_
    std::vector<Tensor> beside_;  // broadcast to [B, T, C]
};

}  // namespace mantissa::testing
