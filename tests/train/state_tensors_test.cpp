// The entries that files are told of a model's states: each that is chosen, once, and whole.
#include "mantissa/train/state_tensors.h"

#include <gtest/gtest.h>

#include "mantissa/device/cpu/cpu_device.h"

namespace mantissa {
namespace {

TEST(StateTensors, EachChosenStateIsInTheFileWithItsShape) {
    const auto device = make_cpu_device({.threads = 1});
    Graph graph;
    const auto add = [&](State::Kind kind, const char* name, const Shape& shape) {
        graph.add_state({.kind = kind, .name = name, .type = {DType::f32, shape}, .initializer = {}});
    };
    add(State::Kind::optimizer, "first", {2, 3});
    add(State::Kind::parameter, "weight", {4});
    add(State::Kind::optimizer, "scalar", {});
    add(State::Kind::optimizer, "last", {5});
    const StateBlock block(*device, graph.states());

    std::vector<std::string> described;
    for (const TensorSpec& spec : specs_of(block, is_of_optimizer)) described.push_back(spec.name);
    EXPECT_EQ(described, (std::vector<std::string>{"first", "scalar", "last"}));
    std::vector<std::string> written;
    std::vector<std::vector<std::int64_t>> shapes;
    for (const TensorToWrite& item : tensors_of(block, is_of_optimizer)) {
        written.push_back(item.tensor.name);
        shapes.push_back(item.tensor.shape);
    }
    EXPECT_EQ(written, described);
    EXPECT_EQ(shapes, (std::vector<std::vector<std::int64_t>>{{2, 3}, {}, {5}}));
}

}  // namespace
}  // namespace mantissa
