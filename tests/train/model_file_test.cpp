// Models on disk: what train saved and what others wrote are read alike, and what is none is refused by name.
#include "mantissa/train/model_file.h"
#include "mantissa/runtime/state_block.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "mantissa/base/error.h"
#include "mantissa/base/file.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/train/token_generator.h"
#include "mantissa/train/training_checkpoint.h"
#include "tests/support/error_of.h"
#include "tests/support/gpt2.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

namespace fs = std::filesystem;

const nn::Gpt2Config saved_gpt2{
    .name = "small", .layers = 2, .heads = 3, .channels = 12, .vocabulary = 31, .context = 9};

/// A checkpoint of a model after one step.
struct SavedGpt2 {
    TemporaryDirectory directory;
    std::unique_ptr<Device> device = make_cpu_device({.threads = 1});
    Trainer trainer{*device, nn::gpt2_model(saved_gpt2, 9), {.batch = 1}};

    SavedGpt2() {
        const std::vector<std::int32_t> tokens(9, 4), targets(9, 5);
        trainer.step({tokens, targets}, 1e-2);
        save_training(checkpoint(), trainer);
    }
    fs::path checkpoint() const { return directory / "ckpt"; }
    /// A directory as others write them: weights and config.json, nothing else.
    fs::path published() const {
        const fs::path path = directory / "hf";
        fs::create_directories(path);
        for (const char* name : {"model.safetensors", "config.json"})
            fs::copy_file(checkpoint() / name, path / name, fs::copy_options::overwrite_existing);
        return path;
    }
};

std::string opening_error(const fs::path& directory) {
    return testing::error_of([&] { ModelFile file(directory); });
}

TEST(ModelFile, ReadsCheckpointsAndPublishedDirectoriesAlike) {
    SavedGpt2 saved;
    for (const fs::path& path : {saved.checkpoint(), saved.published()}) {
        const ModelFile file(path);
        EXPECT_EQ(file.model().context, 9);
        EXPECT_EQ(file.model().vocabulary, 31);
        EXPECT_EQ(file.model().parameters, saved_gpt2.parameters());
        EXPECT_EQ(file.model().on_sequences(9).configuration, nn::gpt2_model(saved_gpt2, 9).configuration);
        EXPECT_EQ(file.warning(), "");
        StateBlock state(*saved.device, TokenGenerator(*saved.device, file.model(), 1).parameters());
        file.load(state);
        for (const State& each : state.states())
            EXPECT_TRUE(state.read(each.name) == saved.trainer.state().read(each.name)) << each.name;
    }
}

/// As somebody shares it: the optimizer's states are two thirds of it, and weights need none of them.
TEST(ModelFile, ReadsACheckpointWithoutItsOptimizer) {
    SavedGpt2 saved;
    fs::remove(saved.checkpoint() / "optimizer.safetensors");
    const ModelFile file(saved.checkpoint());
    EXPECT_EQ(file.warning(), "");
    StateBlock state(*saved.device, TokenGenerator(*saved.device, file.model(), 1).parameters());
    file.load(state);
    EXPECT_TRUE(state.read("wte.weight") == saved.trainer.state().read("wte.weight"));
}

TEST(ModelFile, GoesBackToTheCheckpointBefore) {
    SavedGpt2 saved;
    save_training(saved.checkpoint(), saved.trainer);
    fs::resize_file(saved.checkpoint() / "model.safetensors", 100);
    const ModelFile file(saved.checkpoint());
    EXPECT_NE(file.warning().find("went back to the checkpoint before it"), std::string::npos);
    EXPECT_EQ(file.directory(), saved.checkpoint().string() + ".previous");
}

/// As `from_pretrained("ckpt").save_pretrained("ckpt")` leaves it: weights and configuration are new, all
/// else is not.
TEST(ModelFile, ReadsWhatTransformersSavedOverACheckpoint) {
    SavedGpt2 saved;
    const fs::path config = saved.checkpoint() / "config.json";
    auto json = nlohmann::json::parse(read_file(config));
    json["transformers_version"] = "5.24.0";
    std::ofstream(config) << json.dump();
    const ModelFile file(saved.checkpoint());
    EXPECT_EQ(file.warning(), saved.checkpoint().string() +
                                  ": transformers 5.24.0 has saved a model over this "
                                  "checkpoint, whose weights are taken");
    EXPECT_EQ(file.model().context, 9);
    try {
        load_checkpoint(saved.checkpoint());
        ADD_FAILURE() << "states of an optimizer were taken that belong to other weights";
    } catch (const UserError& error) {
        EXPECT_NE(std::string(error.what()).find("begin with its weights"), std::string::npos)
            << error.what();
    }
    // Without that library's mark it is damage.
    json.erase("transformers_version");
    std::ofstream(config) << json.dump();
    EXPECT_NE(opening_error(saved.checkpoint()).find("config.json: damaged"), std::string::npos);
}

TEST(ModelFile, WhatIsNoModelIsRefused) {
    SavedGpt2 saved;
    EXPECT_EQ(opening_error(saved.directory / "none"),
              (saved.directory / "none").string() + ": does not exist");
    EXPECT_EQ(opening_error(saved.directory.path()),
              saved.directory.path().string() +
                  ": holds no model: expected a checkpoint that train wrote, "
                  "or model.safetensors with its config.json");
    const fs::path path = saved.published(), config = path / "config.json";
    const std::string good = read_file(config);
    const auto with = [&](const std::string& from, const std::string& to) {
        std::string text = good;
        text.replace(text.find(from), from.size(), to);
        std::ofstream(config) << text;
        return opening_error(path);
    };
    EXPECT_EQ(with("gelu_new", "relu"),
              config.string() + ": activation_function is \"relu\", only \"gelu_new\" can be run");
    EXPECT_EQ(with("\"n_head\": 3", "\"n_head\": 5"),
              config.string() + ": 12 channels cannot be shared by 5 heads");
    EXPECT_EQ(with("\"n_embd\": 12", "\"n_embd\": 24"),
              config.string() + ": n_embd is 24, but the weights beside it are of 12");
    EXPECT_EQ(with("\"n_layer\": ", "\"n_layer\": 7").find(config.string() + ": n_layer is 7"), 0u);
    EXPECT_NE(with("\"n_head\": 3", "\"n_heads\": 3").find("n_head"), std::string::npos);
    fs::remove(config);
    EXPECT_EQ(opening_error(path),
              config.string() + ": is missing, and only it says how many heads this model has");
    // A family that is not known is named before what else the directory lacks.
    const fs::path other = saved.directory / "other";
    fs::create_directory(other);
    std::ofstream(other / "config.json") << R"({"model_type": "mamba"})";
    const std::string error = opening_error(other);
    EXPECT_EQ(error.find((other / "config.json").string() +
                         ": model_type is \"mamba\"; known are \"gpt2\", \"llama\", \"mistral\", "),
              0u);
    EXPECT_TRUE(
        error.ends_with(". In Python mantissa.torch.trainer trains the PyTorch module of most other "
                        "families as it is"));
}

}  // namespace
}  // namespace mantissa
