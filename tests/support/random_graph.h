// Random graphs for tests of passes: element-wise work, movement, reductions and composites on small tensors,
// with many removable nodes (repeated nodes, reshapes of reshapes, products with one, unused nodes).
#pragma once

#include <string>
#include <vector>

#include "mantissa/base/random.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/reference.h"
#include "mantissa/graph/tensor.h"

namespace mantissa::testing {

class RandomGraph {
  public:
    explicit RandomGraph(std::uint64_t seed) : random_{.seed = seed, .step = 0, .operation = 0} {
        for (const Shape& shape : {Shape{4, 6}, Shape{4, 6}, Shape{6}}) add_input(shape);
        for (int i = 0; i < 24; ++i) add_node();
        for (int i = 0; i < 3; ++i) graph.add_result("y" + std::to_string(i), any().value());
    }

    Graph graph;
    ReferenceFeed feed;

  private:
    std::size_t below(std::size_t limit) { return random_.bits(next_++) % limit; }
    Tensor any() { return pool_[below(pool_.size())]; }

    void add_input(const Shape& shape) {
        const std::string name = "x" + std::to_string(pool_.size());
        pool_.emplace_back(graph, graph.add_input(name, {DType::f32, shape}));
        std::vector<double>& values = feed[name];
        for (std::int64_t i = 0; i < shape.elements(); ++i)
            values.push_back(
                static_cast<double>(random_.normal(1000 * pool_.size() + static_cast<std::size_t>(i))));
    }

    /// Another value of the same shape, or x.
    Tensor like(const Tensor& x) {
        const Tensor y = any();
        return y.shape() == x.shape() ? y : x;
    }

    void add_node() {
        const Tensor x = any();
        switch (below(12)) {
            case 0:
                return pool_.push_back(x + like(x));
            case 1:
                return pool_.push_back(x * like(x));
            case 2:
                return pool_.push_back(x * 1.0);
            case 3:
                return pool_.push_back(-(-x));
            case 4:
                return pool_.push_back(reshape(reshape(x, {-1}), x.shape()));
            case 5:
                return pool_.push_back(tanh(x));
            case 6:
                return pool_.push_back(select(less(x, like(x)), x, like(x)));
            case 7:
                return pool_.push_back(x.rank() == 2 ? transpose(transpose(x, {1, 0}), {1, 0}) : x);
            case 8:
                return pool_.push_back(x - mean(x, {-1}, KeepAxes::yes));
            case 9:
                return pool_.push_back(softmax(x));
            case 10:
                return pool_.push_back(gelu(x));
            default:
                return pool_.push_back(x.rank() == 2 ? matmul(x, like(x), {.transpose_b = true}) : x / 1.0);
        }
    }

    RandomStream random_;
    std::uint64_t next_ = 0;
    std::vector<Tensor> pool_;
};

}  // namespace mantissa::testing
