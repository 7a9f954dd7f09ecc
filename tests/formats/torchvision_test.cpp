// The layouts of torchvision's state dicts: what goes into a file and comes out of it again, against loops
// that say where each number lies.
#include "mantissa/formats/torchvision.h"

#include <gtest/gtest.h>

#include <cstring>

#include "mantissa/base/error.h"
#include "mantissa/formats/safetensors.h"
#include "mantissa/formats/weight_files.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

constexpr std::int64_t R = 3, S = 5, C = 4, K = 6, pixels = vgg_pixels, out = 7;

/// Element i of each is i, and a thousand more for each before.
struct Weights {
    std::vector<TensorSpec> specs = {{"features.0.weight", DType::f32, {R, S, C, K}},
                                     {"features.0.bias", DType::f32, {K}},
                                     {"classifier.0.weight", DType::f32, {out, pixels* pixels* C}},
                                     {"classifier.3.weight", DType::f32, {K, out}}};
    std::vector<std::vector<float>> values;

    Weights() {
        for (const TensorSpec& spec : specs) {
            auto& data = values.emplace_back(static_cast<std::size_t>(element_count(spec.shape)));
            for (std::size_t i = 0; i < data.size(); ++i)
                data[i] = static_cast<float>(10000 * values.size() + i);
        }
    }
    std::vector<TensorToWrite> to_write() const {
        std::vector<TensorToWrite> tensors;
        for (std::size_t i = 0; i < specs.size(); ++i)
            tensors.push_back({{specs[i].name, specs[i].dtype, specs[i].shape,
                                reinterpret_cast<const std::byte*>(values[i].data())}});
        return tensors;
    }
    void read(std::span<const TensorView> file) {
        std::size_t next = 0;
        read_weights(file, specs, torchvision_files("VGG19"), "m",
                     [&](const TensorSpec&, std::span<const std::byte> value) {
                         std::memcpy(values[next++].data(), value.data(), value.size());
                     });
    }
};

float number(const TensorView& view, std::int64_t at) {
    float value;
    std::memcpy(&value, view.data + at * 4, 4);
    return value;
}

TEST(Torchvision, FiltersAndTheFirstLayerBehindThemArePermuted) {
    const TemporaryDirectory directory;
    Weights weights;
    const auto stored = stored_weights(weights.to_write(), torchvision_files("VGG19"));
    write_safetensors(directory / "m", std::span<const TensorToWrite>(stored));
    const SafetensorsFile file(directory / "m");
    const TensorView filter = file.view("features.0.weight"), first = file.view("classifier.0.weight");
    ASSERT_EQ(filter.shape, (std::vector<std::int64_t>{K, C, R, S}));
    ASSERT_EQ(first.shape, (std::vector<std::int64_t>{out, C * pixels * pixels}));
    for (std::int64_t k = 0; k < K; ++k)
        for (std::int64_t c = 0; c < C; ++c)
            for (std::int64_t p = 0; p < R * S; ++p)
                EXPECT_EQ(number(filter, (k * C + c) * R * S + p),
                          weights.values[0][static_cast<std::size_t>((p * C + c) * K + k)]);
    for (std::int64_t o = 0; o < out; ++o)
        for (std::int64_t c = 0; c < C; ++c)
            for (std::int64_t p = 0; p < pixels * pixels; ++p)
                EXPECT_EQ(number(first, (o * C + c) * pixels * pixels + p),
                          weights.values[2][static_cast<std::size_t>((o * pixels * pixels + p) * C + c)]);
    EXPECT_EQ(file.view("classifier.3.weight").shape, (std::vector<std::int64_t>{K, out}));
    EXPECT_EQ(number(file.view("classifier.3.weight"), 5), weights.values[3][5]);

    const auto written = weights.values;
    for (auto& data : weights.values) std::fill(data.begin(), data.end(), 0.0f);
    weights.read(file.views());
    EXPECT_EQ(weights.values, written);
}

TEST(Torchvision, CountsOfBatchesAreNoParametersAndWrongShapesAreNamed) {
    Weights weights;
    std::vector<TensorView> file;
    for (const TensorToWrite& each : weights.to_write()) file.push_back(each.tensor);
    file[0].shape = {K, C, R, S};  // any numbers will do
    const std::int64_t count = 3;
    file.push_back(
        {"features.1.num_batches_tracked", DType::i64, {}, reinterpret_cast<const std::byte*>(&count)});
    EXPECT_NO_THROW(weights.read(file));
    file[0].shape = {R, S, C, K};
    try {
        weights.read(file);
        FAIL() << "a filter that is not in their order was taken";
    } catch (const UserError& error) {
        EXPECT_STREQ(error.what(),
                     "m: tensor \"features.0.weight\" has shape [3, 5, 4, 6], expected [6, 4, 3, 5]");
    }
    file.erase(file.begin());
    try {
        weights.read(file);
        FAIL() << "a missing filter was not missed";
    } catch (const UserError& error) {
        EXPECT_STREQ(error.what(),
                     "m: tensor \"features.0.weight\" is missing; expected a state dict of VGG19 "
                     "under torchvision's names");
    }
    // Their resnet50 is another of ours.
    EXPECT_EQ(torchvision_files("ResNet50").kind,
              "a state dict of ResNet50 with biases in its convolutions; torchvision's resnet50 is "
              "ResNet50v1.5");
}

}  // namespace
}  // namespace mantissa
