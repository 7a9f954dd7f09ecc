// GPT-2 in the files of Hugging Face's library.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "mantissa/base/error.h"
#include "mantissa/formats/safetensors.h"
#include "mantissa/formats/weight_files.h"
#include "mantissa/numerics/formats.h"
#include "tests/support/gpt2_parameters.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

const nn::Gpt2Config tiny = {
    .name = "tiny", .layers = 2, .heads = 1, .channels = 3, .vocabulary = 7, .context = 5};

WeightFiles files() { return nn::decoder_files(nn::decoder_of(tiny)); }
bool is_transposed(const std::string& name) { return !files().stored({name, DType::f32, {}}).order.keeps(); }

/// The model that weights say beside a config.json of the heads alone.
nn::Decoder parts_of(const std::vector<TensorView>& weights) {
    const TemporaryDirectory directory;
    std::ofstream(directory / "config.json") << R"({"n_head": 1})";
    return nn::decoder_config_of(directory.path(), weights, "m").parts;
}

/// A model in memory; element i of parameter p is 1000 p + i.
struct Model {
    explicit Model(const nn::Gpt2Config& sizes = tiny) {
        for (const testing::Gpt2Parameter& parameter : testing::gpt2_parameters(sizes)) {
            auto& data = values.emplace_back(static_cast<std::size_t>(element_count(parameter.shape)));
            for (std::size_t i = 0; i < data.size(); ++i)
                data[i] = static_cast<float>(1000 * values.size() + i);
            specs.push_back({parameter.name, DType::f32, parameter.shape});
        }
    }
    std::vector<TensorView> views() const {
        std::vector<TensorView> views;
        for (std::size_t i = 0; i < specs.size(); ++i)
            views.push_back({specs[i].name, specs[i].dtype, specs[i].shape,
                             reinterpret_cast<const std::byte*>(values[i].data())});
        return views;
    }
    std::vector<TensorToWrite> to_write() const {
        std::vector<TensorToWrite> tensors;
        for (const TensorView& view : views()) tensors.push_back({view});
        return tensors;
    }
    void read(const std::vector<TensorView>& file) {
        std::size_t next = 0;
        read_weights(file, specs, files(), "m",
                     [&](const TensorSpec& parameter, std::span<const std::byte> value) {
                         ASSERT_EQ(parameter.name, specs[next].name);
                         ASSERT_EQ(value.size(), values[next].size() * sizeof(float));
                         std::memcpy(values[next++].data(), value.data(), value.size());
                     });
    }
    void clear() {
        for (auto& data : values) std::fill(data.begin(), data.end(), 0.0f);
    }
    std::vector<std::vector<float>> values;
    std::vector<TensorSpec> specs;
};

/// A checkpoint as Hugging Face's library would write it, built element by element.
struct Checkpoint {
    explicit Checkpoint(const Model& model, const std::string& prefix = "") {
        for (const TensorView& p : model.views()) {
            const auto* from = reinterpret_cast<const float*>(p.data);
            const bool turned = p.shape.size() == 2 && p.name.find("c_") != p.name.npos;
            std::vector<float> data(static_cast<std::size_t>(element_count(p.shape)));
            const auto columns = static_cast<std::size_t>(p.shape.back());
            const std::size_t rows = data.size() / columns;
            for (std::size_t r = 0; r < rows; ++r)
                for (std::size_t c = 0; c < columns; ++c)
                    data[turned ? c * rows + r : r * columns + c] = from[r * columns + c];
            std::vector<std::int64_t> shape = p.shape;
            if (turned) std::swap(shape[0], shape[1]);
            add(prefix + p.name, shape, data);
        }
    }
    void add(const std::string& name, const std::vector<std::int64_t>& shape,
             const std::vector<float>& data) {
        values.push_back(std::make_unique<std::vector<float>>(data));
        tensors.push_back(
            {name, DType::f32, shape, reinterpret_cast<const std::byte*>(values.back()->data())});
    }
    TensorView& operator[](const std::string& name) {
        for (TensorView& tensor : tensors)
            if (tensor.name == name) return tensor;
        throw std::out_of_range(name);
    }
    std::vector<std::unique_ptr<std::vector<float>>> values;
    std::vector<TensorView> tensors;
};

std::string import_error(const Checkpoint& checkpoint) {
    Model model;
    const auto before = model.values;
    try {
        model.read(checkpoint.tensors);
    } catch (const UserError& error) {
        EXPECT_EQ(model.values, before) << "a refused checkpoint changed the model";
        return error.what();
    }
    return "imported";
}

TEST(HfGpt2, ListsTheParametersOf124M) {
    const nn::Gpt2Config sizes = nn::gpt2_config("gpt2-124m");
    std::int64_t count = 0;
    int transposed = 0;
    const auto parameters = testing::gpt2_parameters(sizes);
    for (const testing::Gpt2Parameter& parameter : parameters) {
        count += element_count(parameter.shape);
        transposed += is_transposed(parameter.name);
    }
    EXPECT_EQ(count, 124'439'808);
    EXPECT_EQ(parameters.size(), 148u);  // the published file has these and twelve masks: 160
    EXPECT_EQ(transposed, 4 * 12);
    EXPECT_EQ(parameters[2].name, "h.0.ln_1.weight");
    EXPECT_EQ(parameters[4].name, "h.0.attn.c_attn.weight");
    EXPECT_EQ(parameters[4].shape, (std::vector<std::int64_t>{2304, 768}));
    EXPECT_FALSE(is_transposed("wte.weight"));
    EXPECT_FALSE(is_transposed("h.0.attn.c_attn.bias"));
    EXPECT_FALSE(is_transposed("h.x.mlp.c_fc.weight"));
}

TEST(HfGpt2, ImportsWithAndWithoutPrefix) {
    const Model expected;
    for (const char* prefix : {"", "transformer."}) {
        const Checkpoint checkpoint(expected, prefix);
        EXPECT_EQ(parts_of(checkpoint.tensors), nn::decoder_of(tiny).parts);
        Model model;
        model.clear();
        model.read(checkpoint.tensors);
        EXPECT_EQ(model.values, expected.values);
    }
}

TEST(HfGpt2, SkipsMasksAndATiedHead) {
    const Model expected;
    Checkpoint checkpoint(expected, "transformer.");
    checkpoint.add("transformer.h.0.attn.bias", {1, 1, 5, 5}, std::vector<float>(25));
    checkpoint.add("transformer.h.1.attn.masked_bias", {}, {-1e4f});
    checkpoint.add("lm_head.weight", {7, 3}, expected.values[0]);
    EXPECT_EQ(import_error(checkpoint), "imported");
    (*checkpoint.values.back())[20] += 1;
    EXPECT_EQ(import_error(checkpoint),
              "m: tensor \"lm_head.weight\" differs from \"wte.weight\"; only models where they are "
              "one can be loaded");
}

TEST(HfGpt2, ExportGivesBackTheCheckpoint) {
    const Model model;
    const Checkpoint checkpoint(model);
    const TemporaryDirectory directory;
    write_safetensors(directory / "m",
                      std::span<const TensorToWrite>(stored_weights(model.to_write(), files())),
                      {{"format", "pt"}});
    const SafetensorsFile file(directory / "m");
    ASSERT_EQ(file.tensors().size(), checkpoint.tensors.size());
    for (const TensorView& expected : checkpoint.tensors) {
        const TensorView written = file.view(expected.name);
        EXPECT_EQ(written.shape, expected.shape) << expected.name;
        EXPECT_EQ(std::memcmp(written.data, expected.data, byte_count(expected.dtype, expected.shape)), 0)
            << expected.name;
    }
}

TEST(HfGpt2, ConfigSaysTheSizes) {
    const nlohmann::json config = nlohmann::json::parse(nn::decoder_config_text(nn::decoder_of(tiny)));
    EXPECT_EQ(config["model_type"], "gpt2");
    EXPECT_EQ(config["architectures"], nlohmann::json::array({"GPT2LMHeadModel"}));
    EXPECT_EQ(config["n_layer"], 2);
    EXPECT_EQ(config["n_embd"], 3);
    EXPECT_EQ(config["n_positions"], 5);
    EXPECT_EQ(config["vocab_size"], 7);
    EXPECT_EQ(config["n_head"], 1);
    EXPECT_TRUE(config.at("eos_token_id").is_null());  // a tokenizer's matter, not a size's
}

TEST(HfGpt2, WidensHalfPrecisionExactly) {
    const Model expected(tiny);
    for (const DType type : {DType::bf16, DType::f16}) {
        Checkpoint checkpoint(expected);
        std::vector<std::vector<std::uint16_t>> halves;
        for (TensorView& tensor : checkpoint.tensors) {
            auto& half = halves.emplace_back();
            for (std::int64_t i = 0; i < element_count(tensor.shape); ++i) {
                // 0.5, 1, 1.5...: exact in both formats up to 128.
                const float value = static_cast<float>(i + 1) * 0.5f;
                half.push_back(type == DType::bf16 ? to_bf16(value).bits : to_fp16(value).bits);
            }
        }
        for (std::size_t i = 0; i < halves.size(); ++i) {
            checkpoint.tensors[i].dtype = type;
            checkpoint.tensors[i].data = reinterpret_cast<const std::byte*>(halves[i].data());
        }
        Model model;
        model.read(checkpoint.tensors);
        EXPECT_EQ(model.values[0][20], 10.5f);
        // c_attn [3, 9] in the file: element (1, 2) of the file is (2, 1) of [9, 3] here.
        EXPECT_EQ(model.values[4][2 * 3 + 1], static_cast<float>(1 * 9 + 2 + 1) * 0.5f);
    }
}

TEST(HfGpt2, NamesWhatDoesNotFit) {
    const Model model;
    Checkpoint missing(model);
    missing["h.1.mlp.c_fc.bias"].name = "h.1.mlp.c_fc.bais";
    EXPECT_EQ(
        import_error(missing),
        "m: 2 tensors do not fit: missing \"h.1.mlp.c_fc.bias\"; unknown \"h.1.mlp.c_fc.bais\"; expected "
        "a GPT-2 checkpoint");
    // A layer that lacks a tensor is still a layer; one that is far beyond the others is none.
    missing.add("h.999999999.ln_1.weight", {3}, {1, 2, 3});
    missing["h.0.ln_1.weight"].name = "h.0.ln_1.wieght";
    EXPECT_EQ(parts_of(missing.tensors).layers, 2);
    Checkpoint unknown(model);
    unknown.add("h.2.ln_1.weight", {3}, {1, 2, 3});
    EXPECT_EQ(import_error(unknown), "m: tensor \"h.2.ln_1.weight\" is no parameter of this model");
    unknown.add("score.weight", {3}, {1, 2, 3});
    EXPECT_EQ(import_error(unknown),
              "m: 2 tensors do not fit: unknown \"h.2.ln_1.weight\", \"score.weight\"; expected a GPT-2 "
              "checkpoint");
    unknown["h.0.ln_1.bias"].shape = {3, 1};
    unknown["wpe.weight"].dtype = DType::i32;
    unknown["ln_f.weight"].name = "ln_g.weight";
    EXPECT_EQ(import_error(unknown),
              "m: 6 tensors do not fit: missing \"ln_f.weight\"; unknown \"h.2.ln_1.weight\", "
              "\"ln_g.weight\", \"score.weight\"; \"wpe.weight\" is i32, which cannot become f32 without "
              "loss; save it as f32; \"h.0.ln_1.bias\" has shape [3, 1], expected [3]; expected a GPT-2 "
              "checkpoint");
    Checkpoint twice(model);
    twice.add("transformer.ln_f.bias", {3}, {1, 2, 3});
    EXPECT_EQ(import_error(twice), "m: tensor \"ln_f.bias\" is there with and without \"transformer.\"");
    Checkpoint shape(model, "transformer.");
    shape["transformer.h.0.attn.c_attn.weight"].shape = {9, 3};
    EXPECT_EQ(import_error(shape),
              "m: tensor \"transformer.h.0.attn.c_attn.weight\" has shape [9, 3], expected [3, 9]");
    Checkpoint type(model);
    type["wpe.weight"].dtype = DType::i32;
    EXPECT_EQ(import_error(type),
              "m: tensor \"wpe.weight\" is i32, which cannot become f32 without loss; save it as f32");
    Checkpoint other(model);
    other["wte.weight"].name = "embed_tokens.weight";
    EXPECT_THROW(parts_of(other.tensors), UserError);
    Checkpoint flat(model);
    flat["wpe.weight"].shape = {15};
    EXPECT_THROW(parts_of(flat.tensors), UserError);
}

}  // namespace
}  // namespace mantissa
