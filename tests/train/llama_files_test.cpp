// LLaMA's directories: one file or several with an index, in FP32, BF16 and FP16, there and back; and what is
// wrong with one is said in one line.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "mantissa/base/file.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/formats/safetensors_write.h"
#include "mantissa/nn/decoder/family.h"
#include "mantissa/numerics/formats.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/generate.h"
#include "mantissa/train/model_file.h"
#include "mantissa/train/training_checkpoint.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

namespace fs = std::filesystem;

nn::DecoderConfig small_llama(bool tied) {
    return {.name = "small",
            .parts = {.layers = 2,
                      .heads = 3,
                      .key_heads = 1,
                      .head_size = 4,
                      .channels = 12,
                      .hidden = 20,
                      .vocabulary = 31,
                      .context = 9,
                      .tied = tied}};
}

/// A tensor that owns its numbers.
struct StoredTensor {
    std::string name;
    DType dtype;
    std::vector<std::int64_t> shape;
    std::vector<std::byte> bytes;

    TensorView view() const { return {name, dtype, shape, bytes.data()}; }
};

/// A model after one step, and its directory as others write it.
struct SavedLlama {
    TemporaryDirectory directory;
    nn::DecoderConfig config;
    std::unique_ptr<Device> device = make_cpu_device({.threads = 1});
    Trainer trainer;

    explicit SavedLlama(bool tied = false)
        : config(small_llama(tied)), trainer(*device, nn::decoder_model(config, 9), {.batch = 1}) {
        const std::vector<std::int32_t> tokens(9, 4), targets(9, 5);
        trainer.step({tokens, targets}, 1e-2);
        save_training(checkpoint(), trainer);
        fs::create_directories(path());
        fs::copy_file(checkpoint() / "config.json", path() / "config.json");
    }
    fs::path checkpoint() const { return directory / "ckpt"; }
    fs::path path() const { return directory / "hf"; }

    /// Its weights in a format.
    std::vector<StoredTensor> weights(DType dtype = DType::f32) const {
        std::vector<StoredTensor> all;
        for (const State& state : trainer.state().states()) {
            if (state.kind != State::Kind::parameter) continue;
            StoredTensor stored{state.name, dtype, state.type.shape.extents(), {}};
            for (const float x : trainer.state().read_f32(state.name)) {
                const BF16 bf16 = to_bf16(x);
                const FP16 fp16 = to_fp16(x);
                const void* const from = dtype == DType::f32    ? static_cast<const void*>(&x)
                                         : dtype == DType::bf16 ? static_cast<const void*>(&bf16)
                                                                : static_cast<const void*>(&fp16);
                const auto* const first = static_cast<const std::byte*>(from);
                stored.bytes.insert(stored.bytes.end(), first, first + size_of(dtype));
            }
            all.push_back(std::move(stored));
        }
        return all;
    }
    void write(const std::vector<StoredTensor>& weights, const char* name = "model.safetensors") const {
        std::vector<TensorView> views;
        for (const StoredTensor& each : weights) views.push_back(each.view());
        write_safetensors(path() / name, views, {{"format", "pt"}});
    }
    /// In two files with an index.
    void write_shards(const std::vector<StoredTensor>& weights) const {
        nlohmann::json map = nlohmann::json::object();
        std::vector<StoredTensor> halves[2];
        for (std::size_t i = 0; i < weights.size(); ++i) {
            halves[i % 2].push_back(weights[i]);
            map[weights[i].name] = shard(i % 2);
        }
        for (std::size_t i : {0u, 1u}) write(halves[i], shard(i));
        std::ofstream(path() / "model.safetensors.index.json")
            << nlohmann::json{{"metadata", nlohmann::json::object()}, {"weight_map", map}};
    }
    static const char* shard(std::size_t i) {
        return i == 0 ? "model-00001-of-00002.safetensors" : "model-00002-of-00002.safetensors";
    }

    /// Relative, or half a step of what FP16 has next to zero.
    void expect_weights(double tolerance) const {
        const ModelFile file(path());
        StateBlock state(*device, TokenGenerator(*device, file.model(), 1).parameters());
        file.load(state);
        for (const State& each : state.states()) {
            const auto got = state.read_f32(each.name), expected = trainer.state().read_f32(each.name);
            for (std::size_t i = 0; i < got.size(); ++i)
                ASSERT_LE(std::abs(got[i] - expected[i]),
                          tolerance == 0 ? 0 : std::max(tolerance * std::abs(expected[i]), 0x1p-25))
                    << each.name;
        }
    }
    /// The one line that loading it ends in.
    std::string error() const {
        const std::string text = testing::error_of([&] {
            const ModelFile file(path());
            StateBlock state(*device, TokenGenerator(*device, file.model(), 1).parameters());
            file.load(state);
        });
        EXPECT_EQ(text.find('\n'), std::string::npos) << text;
        return text;
    }
};

TEST(LlamaFiles, OneFileOrSeveralInEveryFormat) {
    for (const bool tied : {false, true}) {
        const SavedLlama saved(tied);
        for (const auto& [dtype, tolerance] :
             {std::pair{DType::f32, 0.0}, {DType::bf16, 0x1p-8}, {DType::f16, 0x1p-10}}) {
            saved.write(saved.weights(dtype));
            saved.expect_weights(tolerance);
            fs::remove(saved.path() / "model.safetensors");
            saved.write_shards(saved.weights(dtype));
            saved.expect_weights(tolerance);
            fs::remove(saved.path() / "model.safetensors.index.json");
        }
        // A checkpoint of ours is such a directory, too.
        const ModelFile file(saved.checkpoint());
        EXPECT_EQ(file.model().parameters, saved.config.parameters());
        EXPECT_EQ(file.model().on_sequences(9).configuration,
                  nn::decoder_model(saved.config, 9).configuration);
    }
}

TEST(LlamaFiles, ATiedHeadMayBeStoredButMustBeTheEmbedding) {
    const SavedLlama saved(true);
    std::vector<StoredTensor> weights = saved.weights();
    const auto table = std::ranges::find(weights, "model.embed_tokens.weight", &StoredTensor::name);
    StoredTensor head = *table;
    head.name = "lm_head.weight";
    weights.push_back(head);
    // As files of the first LLaMAs have it.
    weights.push_back(
        {"model.layers.0.self_attn.rotary_emb.inv_freq", DType::f32, {2}, std::vector<std::byte>(8)});
    saved.write(weights);
    saved.expect_weights(0);
    weights[weights.size() - 2].bytes[3] ^= std::byte{1};
    saved.write(weights);
    EXPECT_NE(saved.error().find("tensor \"lm_head.weight\" differs from \"model.embed_tokens.weight\""),
              std::string::npos)
        << saved.error();
}

TEST(LlamaFiles, WhatIsWrongIsSaidInOneLine) {
    const SavedLlama saved;
    const auto says = [&](const std::string& part) {
        EXPECT_NE(saved.error().find(part), std::string::npos) << saved.error();
    };
    const std::vector<StoredTensor> good = saved.weights();
    saved.write(good);
    EXPECT_EQ(saved.error(), "no error");

    std::vector<StoredTensor> weights = good;
    weights.push_back(good[0]);
    weights.back().name = "model.layers.2.mlp.up_proj.weight";
    saved.write(weights);
    says("tensor \"model.layers.2.mlp.up_proj.weight\" is no parameter of this model");

    weights = good;
    const auto q = std::ranges::find(weights, "model.layers.1.self_attn.q_proj.weight", &StoredTensor::name);
    q->shape = {6, 24};
    saved.write(weights);
    says("tensor \"model.layers.1.self_attn.q_proj.weight\" has shape [6, 24], expected [12, 12]");

    weights.erase(q);
    saved.write(weights);
    says("tensor \"model.layers.1.self_attn.q_proj.weight\" is missing; expected a llama checkpoint");
    fs::remove(saved.path() / "model.safetensors");

    saved.write_shards(good);
    EXPECT_EQ(saved.error(), "no error");
    // Readers ignore the frequencies of rotary embeddings, so an index may list them in vain, or leave them
    // out.
    const std::string index = read_file(saved.path() / "model.safetensors.index.json");
    std::string listed = index;
    const std::size_t at = listed.find('{', listed.find("weight_map")) + 1;
    listed.insert(at, std::string("\"model.layers.0.self_attn.rotary_emb.inv_freq\": \"") +
                          SavedLlama::shard(0) + "\",");
    std::ofstream(saved.path() / "model.safetensors.index.json") << listed;
    EXPECT_EQ(saved.error(), "no error");
    std::ofstream(saved.path() / "model.safetensors.index.json") << index;
    fs::remove(saved.path() / SavedLlama::shard(1));
    says(SavedLlama::shard(1));
    saved.write_shards(good);

    const std::string config = read_file(saved.path() / "config.json");
    const auto with = [&](const std::string& from, const std::string& to) {
        std::string text = config;
        text.replace(text.find(from), from.size(), to);
        std::ofstream(saved.path() / "config.json") << text;
    };
    with("\"llama\"", "\"mamba\"");
    says((saved.path() / "config.json").string() +
         ": model_type is \"mamba\"; known are \"gpt2\", \"llama\", \"mistral\", ");
    says(". In Python mantissa.torch.trainer trains the PyTorch module of most other families as it is");
    with("\"default\"", "\"proportional\"");
    says("rope_type is \"proportional\"; known are");
    with("\"num_key_value_heads\": 1", "\"num_key_value_heads\": 2");
    EXPECT_EQ(saved.error(), (saved.path() / "config.json").string() +
                                 ": 3 heads of queries cannot share 2 heads of keys and values");
    with("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1");
    says("9 tensors do not fit: unknown \"model.layers.1.input_layernorm.weight\", ");
    fs::remove(saved.path() / "config.json");
    says("config.json");
}

/// Scores of the last token, taken in at once or one by one.
TEST(LlamaFiles, KeysThatAreKeptChangeNoScore) {
    const SavedLlama saved;
    const ModelFile file(saved.checkpoint());
    StateBlock parameters(*saved.device, TokenGenerator(*saved.device, file.model(), 1).parameters());
    file.load(parameters);
    const std::vector<std::int32_t> tokens = {3, 17, 4, 30, 4, 9, 22};
    TokenGenerator whole(*saved.device, file.model(), 7), part(*saved.device, file.model(), 2);
    whole.allocate(parameters);
    part.allocate(parameters);
    const std::vector<float> expected = whole.prompt(tokens);
    std::vector<float> got = part.prompt(std::span(tokens).first(2));
    for (std::size_t i = 2; i < tokens.size(); ++i) got = part.next(tokens[i]);
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-5f) << i;
}

}  // namespace
}  // namespace mantissa
