// Networks for images: how many parameters, under which names and how they start, what they give, and what
// is said of sizes that make none.
#include "mantissa/graph/graph.h"
#include "mantissa/nn/image_model_parts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "mantissa/nn/models/networks.h"
#include "tests/support/error_of.h"

namespace mantissa::nn {
namespace {

using testing::error_of;

constexpr ImageSizes small{.classes = 10, .image = 32, .width = 4};

/// The states of a network by name, as its trace has them.
std::map<std::string, State> states_of(const Model& model) {
    Graph graph;
    trace_loss(model, graph, 2, Mode::training(graph));
    std::map<std::string, State> states;
    for (const State& state : graph.states()) states.emplace(state.name, state);
    return states;
}

std::int64_t elements(const std::map<std::string, State>& states, State::Kind kind) {
    std::int64_t count = 0;
    for (const auto& [name, state] : states)
        if (state.kind == kind) count += state.type.shape.elements();
    return count;
}

std::string refusal(std::string_view name, const ImageSizes& sizes) {
    return error_of([&] { image_model(name, sizes); });
}

struct Published {
    const char* name;
    std::int64_t parameters, statistics;
};

/// Keras counts both of ResNet50 and DenseNet121: 25,636,712 and 8,062,504.
constexpr Published published[] = {{"ResNet50", 25'583'592, 53'120}, {"ResNet50v1.5", 25'557'032, 53'120},
                                   {"VGG19", 143'667'240, 0},        {"DenseNet121", 7'978'856, 83'648},
                                   {"ResNet20", 269'722, 1'376},     {"ResNet56", 853'018, 4'064}};

TEST(ImageModels, HaveAsManyParametersAsThoseThatWerePublished) {
    for (const Published& expected : published) {
        const Model model = image_model(expected.name).model;
        EXPECT_EQ(facts_of(model).parameters, expected.parameters) << expected.name;
        EXPECT_EQ(elements(states_of(model), State::Kind::running), expected.statistics) << expected.name;
    }
}

TEST(ImageModels, DoTheArithmeticThatWasPublished) {
    // Multiply-adds of a forward pass, in 10^9: Keras's stride in the 1x1 convolution does less.
    const std::map<std::string, double> billions = {{"ResNet50", 3.86},   {"ResNet50v1.5", 4.09},
                                                    {"VGG19", 19.63},     {"DenseNet121", 2.83},
                                                    {"ResNet20", 0.0406}, {"ResNet56", 0.1250}};
    for (const auto& [name, expected] : billions) {
        const Model model = image_model(name).model;
        // A step does each product three times; of the first layer there is no gradient of the input.
        EXPECT_NEAR(facts_of(model).flops_per_example / 6e9, expected, 0.03 * expected) << name;
    }
}

TEST(ImageModels, BearTorchvisionsNames) {
    const auto expect = [](const std::map<std::string, State>& states, const char* name, const Shape& shape) {
        const auto found = states.find(name);
        ASSERT_NE(found, states.end()) << name;
        EXPECT_EQ(found->second.type, (Type{DType::f32, shape})) << name;
    };
    const auto resnet = states_of(image_model("ResNet50").model);
    expect(resnet, "conv1.weight", {7, 7, 3, 64});
    expect(resnet, "conv1.bias", {64});
    expect(resnet, "bn1.running_var", {64});
    expect(resnet, "layer1.0.downsample.0.weight", {1, 1, 64, 256});
    expect(resnet, "layer4.2.conv2.weight", {3, 3, 512, 512});
    expect(resnet, "layer4.2.bn3.weight", {2048});
    expect(resnet, "fc.weight", {1000, 2048});
    EXPECT_FALSE(states_of(image_model("ResNet50v1.5").model).contains("conv1.bias"));
    const auto vgg = states_of(image_model("VGG19").model);
    expect(vgg, "features.0.weight", {3, 3, 3, 64});
    expect(vgg, "features.34.weight", {3, 3, 512, 512});
    expect(vgg, "classifier.0.weight", {4096, 25088});
    expect(vgg, "classifier.6.bias", {1000});
    const auto densenet = states_of(image_model("DenseNet121").model);
    expect(densenet, "features.conv0.weight", {7, 7, 3, 64});
    expect(densenet, "features.denseblock4.denselayer16.norm1.running_mean", {992});
    expect(densenet, "features.denseblock1.denselayer1.conv2.weight", {3, 3, 128, 32});
    expect(densenet, "features.transition3.conv.weight", {1, 1, 1024, 512});
    expect(densenet, "features.norm5.bias", {1024});
    expect(densenet, "classifier.weight", {1000, 1024});
}

TEST(ImageModels, StartAsKerasStartsThem) {
    for (const std::string& name : image_model_names())
        for (const auto& [state_name, state] : states_of(image_model(name, small).model)) {
            const Shape& shape = state.type.shape;
            if (shape.rank() == 1) {
                const bool ones = state_name.ends_with("running_var") ||
                                  (state_name.ends_with("weight") && shape.rank() == 1);
                EXPECT_EQ(state.initializer.kind, Initializer::Kind::constant) << state_name;
                EXPECT_EQ(state.initializer.mean, ones ? 1 : 0) << state_name;
                continue;
            }
            if (shape.rank() == 0) continue;
            // Filters [R, S, C, K], matrices [out, in].
            const std::int64_t pixels = shape.rank() == 4 ? shape[0] * shape[1] : 1;
            const double fans = static_cast<double>(pixels * (shape[-1] + shape[-2]));
            EXPECT_EQ(state.initializer.kind, Initializer::Kind::uniform) << state_name;
            EXPECT_EQ(state.initializer.mean, 0) << state_name;
            EXPECT_NEAR(state.initializer.limit, std::sqrt(6 / fans), 1e-12) << state_name;
        }
}

TEST(ImageModels, ASmallResNetHalvesTwiceAndAddsNoParametersBesideItsBlocks) {
    Graph graph;
    const Tensor images(graph, graph.add_input("images", {DType::f32, {2, 32, 32, 3}}));
    const ImageModel model = image_model("ResNet20");
    EXPECT_EQ(model.sizes, (ImageSizes{.classes = 10, .image = 32, .width = 16}));
    EXPECT_EQ(model.logits(images, {}).type(), (Type{DType::f32, {2, 10}}));
    std::vector<Shape> sums;
    for (std::size_t i = 0; i < graph.size(); ++i) {
        const Node& node = graph.node(static_cast<NodeId>(i));
        if (node.op->name == "add" && node.outputs[0].shape.rank() == 4)
            sums.push_back(node.outputs[0].shape);
    }
    ASSERT_GE(sums.size(), 9u);
    EXPECT_EQ(sums.front(), (Shape{2, 32, 32, 16}));
    EXPECT_EQ(sums.back(), (Shape{2, 8, 8, 64}));
    EXPECT_FALSE(states_of(model.model).contains("layer2.0.downsample.0.weight"));
}

TEST(ImageModels, SizesThatAreGivenTakeThePlaceOfTheNetworksOwn) {
    EXPECT_EQ(image_sizes("resnet50"), ImageSizes{});
    EXPECT_EQ(image_sizes("ResNet20", {.classes = 3}), (ImageSizes{.classes = 3, .image = 32, .width = 16}));
    EXPECT_EQ(image_sizes("VGG19", {.image = 64, .width = 8}),
              (ImageSizes{.classes = 1000, .image = 64, .width = 8}));
}

TEST(ImageModels, ResNetsDifferInWhereTheStrideIs) {
    for (const ResNetVersion version : {ResNetVersion::v1, ResNetVersion::v1_5}) {
        Graph graph;
        const Tensor images(graph, graph.add_input("images", {DType::f32, {2, 64, 64, 3}}));
        resnet_model({.version = version, .sizes = small}).logits(images, {});
        for (std::size_t i = 0; i < graph.size(); ++i) {
            const Node& node = graph.node(static_cast<NodeId>(i));
            if (node.op->name != "conv2d" || !node.origin.scope.starts_with("layer2.0.conv")) continue;
            const std::string convolution = version == ResNetVersion::v1 ? "conv1" : "conv2";
            const std::int64_t rows = node.outputs[0].shape[1];
            const std::int64_t in = graph.type(node.inputs[0]).shape[1];
            EXPECT_EQ(in / rows, node.origin.scope.ends_with(convolution) ? 2 : 1) << node.origin.scope;
        }
    }
}

TEST(ImageModels, TakeAnySizeThatMakesOne) {
    for (const std::string& name : image_model_names())
        for (const std::int64_t image : {32, 33, 64, 71}) {
            Graph graph;
            const Tensor images(graph, graph.add_input("images", {DType::f32, {2, image, image, 3}}));
            const ImageModel model = image_model(name, {.classes = 3, .image = image, .width = 2});
            EXPECT_EQ(model.logits(images, {}).shape(), (Shape{2, 3})) << name << " " << image;
            EXPECT_EQ(model.model.inputs[0].shape, (Shape{image, image, 3}));
        }
    EXPECT_EQ(image_model("resnet50", small).model.name, "ResNet50");
    EXPECT_EQ(batch_text(image_model("VGG19").model, 16), "16 images");
}

TEST(ImageModels, RefuseSizesThatMakeNoneInOneLine) {
    EXPECT_EQ(
        refusal("ResNet5", {}),
        "there is no network 'ResNet5'; there are: ResNet50, ResNet50v1.5, VGG19, DenseNet121, ResNet20, "
        "ResNet56");
    EXPECT_EQ(refusal("VGG19", {.classes = 1}),
              "VGG19: the classes must be 2 or more, and at most 16777216, got 1");
    EXPECT_EQ(refusal("ResNet50", {.image = 31}),
              "ResNet50: the image size must be 32 or more, and at most 16384, got 31");
    EXPECT_EQ(refusal("DenseNet121", {.width = 0}),
              "DenseNet121: the width must be 2 or more, and at most 16384, got 0");
    EXPECT_EQ(refusal("DenseNet121", {.width = 7}), "DenseNet121: the width must be even, got 7");
    EXPECT_EQ(error_of([] {
                  resnet_model({.blocks = {1, 0, 1, 1}});
              }),
              "ResNet50: a stage must have 1 block or more, got 0");
    EXPECT_EQ(error_of([] {
                  densenet_model({.layers = {1, 1, 1, -1}});
              }),
              "DenseNet121: a block must have 1 layer or more, got -1");
    EXPECT_EQ(error_of([] {
                  vgg_model({.convolutions = {1, 1, 1, 1, 0}});
              }),
              "VGG19: a stage must have 1 convolution or more, got 0");
    EXPECT_EQ(error_of([] { vgg_model({.dropout = 1}); }),
              "VGG19: dropout must be 0 or more and less than 1, got 1");
}

}  // namespace
}  // namespace mantissa::nn
