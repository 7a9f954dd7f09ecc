// Random graphs of small integers, exact in every format: passes and kernels must agree with the reference to
// the bit. They mix shapes and formats, read one value twice in one operation, put counters beside sums, and
// transpose products in all ways. Results may be views, inputs or duplicates; states are replaced.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/base/random.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/reference.h"
#include "mantissa/graph/tensor.h"

namespace mantissa::testing {

class RandomExact {
  public:
    explicit RandomExact(std::uint64_t seed) : random_{.seed = seed, .step = 2, .operation = 0} {
        constexpr std::int64_t extents[] = {1, 1, 2, 3, 4, 5, 8, 16, 17, 33};
        for (std::int64_t& extent : domain_) extent = extents[below(10)];
        if (below(3) == 0)
            domain_[2] = domain_[1];  // a square, so that swapped rows and columns keep the shape
        const Shape whole{domain_[0], domain_[1], domain_[2]};
        for (int i = 0; i < 2; ++i) pool_.push_back(input(whole, DType::f32));
        for (int i = 0; i < 5; ++i) pool_.push_back(input(part_of_domain(), format()));
        for (const Shape& shape : {whole, Shape{domain_[2]}}) pool_.push_back(state(shape));
        const std::size_t nodes = 6 + below(24), backward = 4 + below(40);
        for (std::size_t i = 0; i < nodes; ++i) {
            if (i == backward) graph.origin.stage = Stage::backward;
            add_node();
        }
        const std::size_t results = 1 + below(4);
        for (std::size_t i = 0; i < results; ++i) add_result(any());
        if (below(3) == 0) graph.add_result("again", graph.results()[0].value);
        for (std::size_t i = 0; i < graph.states().size(); ++i) update(static_cast<int>(i));
    }

    Graph graph;
    ReferenceFeed feed;

  private:
    std::size_t below(std::size_t limit) { return random_.bits(next_++) % limit; }
    Tensor any() { return pool_[below(pool_.size())]; }
    DType format() { return std::vector{DType::f32, DType::f32, DType::bf16, DType::f16}[below(4)]; }
    KeepAxes keep() { return below(2) == 0 ? KeepAxes::no : KeepAxes::yes; }
    int axis_of(const Tensor& x) { return static_cast<int>(below(static_cast<std::size_t>(x.rank()))); }

    /// The last axes of the domain, some with one element.
    Shape part_of_domain() {
        std::vector<std::int64_t> extents;
        for (std::size_t axis = below(4); axis < 3; ++axis)
            extents.push_back(below(3) == 0 ? 1 : domain_[axis]);
        return Shape(extents);
    }

    void feed_numbers(const std::string& name, const Shape& shape) {
        for (std::int64_t i = 0; i < shape.elements(); ++i)
            feed[name].push_back(static_cast<double>(below(9)) - 4);
    }

    Tensor input(const Shape& shape, DType dtype) {
        const std::string name = "x" + std::to_string(feed.size());
        feed_numbers(name, shape);
        return {graph, graph.add_input(name, {dtype, shape})};
    }

    Tensor state(const Shape& shape) {
        const std::string name = "s" + std::to_string(feed.size());
        feed_numbers(name, shape);
        const State made{
            .kind = State::Kind::optimizer, .name = name, .type = {DType::f32, shape}, .initializer = {}};
        return {graph, graph.add_state(made)};
    }

    /// A value inside a state is no result, and no update of another state.
    bool lies_in_a_state(Value value) const {
        for (;;) {
            const Node& node = graph.node(value.node);
            if (node.inputs.empty()) return graph.state_of(value.node) >= 0;
            if (node.op->name != "reshape" && node.op->name != "slice" && node.op->name != "split")
                return false;
            value = node.inputs[0];
        }
    }

    void add_result(const Tensor& y) {
        const Tensor result = lies_in_a_state(y.value()) ? y * 1.0 : y;
        graph.add_result("y" + std::to_string(graph.results().size()), result.value());
    }

    void update(int state) {
        const Type& type = graph.states()[static_cast<std::size_t>(state)].type;
        for (int attempt = 0; attempt < 10; ++attempt) {
            const Tensor value = any();
            if (value.type() != type || lies_in_a_state(value.value())) continue;
            return graph.add_update(state, value.value());
        }
    }

    /// Limits values to numbers that all formats hold, whatever the rounding of long sums.
    static Tensor held(const Tensor& x) {
        const auto number = [&](double value) { return constant(x.graph(), value, x.dtype()); };
        return minimum(maximum(x, number(-8)), number(8));
    }

    void add_node() {
        try {
            Tensor y = next();
            if (y.dtype() == DType::boolean || y.dtype() == DType::i32) y = cast(y, format());
            if (y.rank() <= 5 && y.shape().elements() > 0 && y.shape().elements() < 4000)
                pool_.push_back(held(y));
        } catch (const UserError&) {
            // The shapes do not fit; another node is tried.
        }
    }

    Tensor next() {
        const Tensor x = any();
        const Tensor y = below(5) == 0 ? x : cast(any(), x.dtype());
        const std::size_t kind = below(18);
        if (kind < 8) return elementwise(kind, x, y);
        if (x.rank() == 0) return transpose(x, {});
        if (kind < 11) return reduction(x);
        return kind < 14 ? product(x, y) : movement(kind, x, y);
    }

    Tensor elementwise(std::size_t kind, const Tensor& x, const Tensor& y) {
        switch (kind) {
            case 0:
                return x + y;
            case 1:
                return x - y;
            case 2:
                return x * y;
            case 3:
                return x * 1.0;
            case 4:
                return select(less_equal(x, y), x, cast(any(), x.dtype()));
            case 5:
                return less(x, y);
            case 6: {
                const Shape square{domain_[1], domain_[2]};
                const Tensor seen = less_equal(iota(graph, square, 1), iota(graph, square, 0));
                return select(seen, x, constant(graph, -3, x.dtype()));
            }
            default:
                return x.rank() == 0 ? -(-x) : x + cast(iota(graph, x.shape(), axis_of(x)), x.dtype());
        }
    }

    Tensor reduction(const Tensor& x) {
        std::vector<std::int64_t> axes;
        for (int axis = 0; axis < x.rank(); ++axis)
            if (below(2) == 0) axes.push_back(axis);
        if (axes.empty()) axes.push_back(x.rank() - 1);
        return below(3) == 0 ? max(x, axes, keep()) : sum(x, axes, keep());
    }

    Tensor product(const Tensor& x, const Tensor& y) {
        return matmul(x, y, {.transpose_a = below(2) == 0, .transpose_b = below(2) == 0});
    }

    Tensor movement(std::size_t kind, const Tensor& x, const Tensor& y) {
        const int axis = axis_of(x);
        const std::int64_t extent = x.dim(axis);
        switch (kind) {
            case 14: {
                std::vector<std::int64_t> order;
                for (int i = 0; i < x.rank(); ++i)
                    order.insert(order.begin() + static_cast<std::ptrdiff_t>(below(order.size() + 1)), i);
                return transpose(x, order);
            }
            case 15: {
                std::vector<std::int64_t> extents = x.shape().extents();
                if (below(2) == 0)
                    extents.insert(extents.begin() + axis, 1);
                else
                    extents = {x.shape().elements()};
                return reshape(x, Shape(extents));
            }
            case 16: {
                const auto start = static_cast<std::int64_t>(below(static_cast<std::size_t>(extent)));
                const Tensor part = slice(x, axis, start, extent);
                return below(2) == 0 ? part : pad(part, axis, 1, start);
            }
            default:
                return below(2) == 0 ? concat(std::vector{x, y}, axis)
                                     : broadcast_to(x, {domain_[0], domain_[1], domain_[2]});
        }
    }

    RandomStream random_;
    std::uint64_t next_ = 0;
    std::array<std::int64_t, 3> domain_{};
    std::vector<Tensor> pool_;
};

}  // namespace mantissa::testing
