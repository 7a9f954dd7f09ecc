// The tokenizer beside a model, by the command: which one it is, what ends a text, and that what was saved
// with it opens again.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "mantissa/base/checksum.h"
#include "mantissa/base/file.h"
#include "mantissa/data/tokenizer_alphabet.h"
#include "mantissa/data/tokenizer_files.h"
#include "mantissa/train/checkpoint.h"
#include "tests/cli/run_program.h"
#include "tests/cli/written_files.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

using testing::Ran;
using testing::run;
using Json = nlohmann::json;
namespace fs = std::filesystem;

const std::string train_quietly =
    "train --quiet --model gpt2-tiny --layers 1 --heads 2 --channels 32 --context 32 "
    "--batch 4 --sequence 16 --policy fp32 --threads 1 ";

class TokenizerBeside : public ::testing::Test {
  protected:
    TokenizerBeside() {
        testing::write_sentences(directory_ / "my.txt", 200);
        fs::create_directory(directory_ / "tok");
        Json vocabulary = Json::object();
        int id = 0;
        for (const std::uint8_t byte : bytes_in_token_order())
            vocabulary[spell_bytes(std::string(1, static_cast<char>(byte)))] = id++;
        const auto special = [&](const char* content, int of) {
            return Json{{"id", of},        {"content", content},  {"single_word", false}, {"lstrip", false},
                        {"rstrip", false}, {"normalized", false}, {"special", true}};
        };
        const Json byte_level = {
            {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
        json_ = {{"version", "1.0"},
                 {"truncation", nullptr},
                 {"padding", nullptr},
                 {"added_tokens", Json::array({special("[PAD]", 256), special("EOS", 257)})},
                 {"normalizer", nullptr},
                 {"pre_tokenizer", byte_level},
                 {"post_processor", byte_level},
                 {"decoder", byte_level},
                 {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", Json::array()}}}};
        write("tok/tokenizer.json", json_.dump());
        write("tok/config.json", R"({"bos_token_id": 256, "eos_token_id": 257})");
    }
    void write(const std::string& name, const std::string& text) { std::ofstream(directory_ / name) << text; }
    std::string at(const char* name) const { return (directory_ / name).string(); }
    void expect_runs(const std::string& arguments) {
        const Ran ran = run(arguments);
        EXPECT_EQ(ran.status, 0) << arguments << "\n" << ran.output;
    }
    /// The weights and their config.json, as others publish them.
    void publish(const char* checkpoint, const char* folder) {
        fs::create_directory(directory_ / folder);
        for (const char* name : {"model.safetensors", "config.json"})
            fs::copy_file(directory_ / checkpoint / name, directory_ / folder / name);
    }
    void set_ends(const char* folder, const Json& ends) {
        Json config = Json::parse(read_file(directory_ / folder / "config.json"));
        config["eos_token_id"] = ends;
        write(std::string(folder) + "/config.json", config.dump());
    }
    /// In the checkpoint and in its list of files.
    void put_in_place_of_tokenizer(const std::map<std::string, std::string>& texts) {
        const fs::path file = directory_ / "ck/manifest.json";
        Manifest manifest = parse_manifest(read_file(file), "manifest.json");
        for (const std::string& name : tokenizer_file_names())
            if (manifest.erase(name) > 0) fs::remove(directory_ / "ck" / name);
        for (const auto& [name, text] : texts) {
            ManifestFile& entry = manifest[name];
            entry.bytes = text.size();
            entry.checksum = checksum_of(std::as_bytes(std::span(text)));
            write("ck/" + name, text);
        }
        write("ck/manifest.json", manifest_text(manifest));
    }
    Json generated(const std::string& options) {
        expect_runs("generate --quiet --policy fp32 --threads 1 --temperature 0 --length 12 " + options +
                    " --json " + at("out.json"));
        return Json::parse(read_file(directory_ / "out.json"));
    }

    TemporaryDirectory directory_;
    Json json_;
};

TEST_F(TokenizerBeside, ACheckpointWithSpecialTokensOfAnySpellingOpensAgain) {
    expect_runs(train_quietly + "--steps 2 --text " + at("my.txt") + " --tokenizer " + at("tok") +
                " --checkpoint " + at("ck"));
    EXPECT_EQ(read_file(directory_ / "ck/tokenizer.json"), json_.dump());
    EXPECT_FALSE(fs::exists(directory_ / "ck/vocab.json"));
    for (const char* name : {"ck/config.json", "ck/generation_config.json"}) {
        const Json config = Json::parse(read_file(directory_ / name));
        EXPECT_EQ(config["bos_token_id"], 256) << name;
        EXPECT_EQ(config["eos_token_id"], 257) << name;
    }
    fs::remove_all(directory_ / "tok");
    expect_runs(train_quietly + "--steps 4 --resume " + at("ck"));
    expect_runs("generate --quiet --length 3 --prompt the --checkpoint " + at("ck"));
    // By --from the ids go on to the next model.
    expect_runs("train --quiet --threads 1 --policy fp32 --batch 4 --sequence 16 --steps 1 --from " +
                at("ck") + " --text " + at("my.txt") + " --checkpoint " + at("next"));
    EXPECT_EQ(Json::parse(read_file(directory_ / "next/config.json"))["eos_token_id"], 257);
}

/// As an earlier version saved it: a pair that no version reads.
TEST_F(TokenizerBeside, ACheckpointWhoseTokenizerCannotBeReadGoesOnWithTheOneItWasTrainedWith) {
    const std::string tokens = at("my.txt") + " --tokenizer " + at("tok");
    expect_runs(train_quietly + "--steps 2 --text " + tokens + " --checkpoint " + at("ck"));
    Json vocabulary = json_["model"]["vocab"];
    std::string text = "{";
    std::vector<std::string> by_id(258);
    for (const auto& [spelling, id] : vocabulary.items()) by_id[id.get<std::size_t>()] = spelling;
    by_id[256] = "[PAD]", by_id[257] = "EOS";
    for (std::size_t id = 0; id < by_id.size(); ++id)
        text += (id == 0 ? "" : ", ") + Json(by_id[id]).dump() + ": " + std::to_string(id);
    put_in_place_of_tokenizer({{"vocab.json", text + "}\n"}, {"merges.txt", "#version: 0.2\n"}});
    const Ran refused = run(train_quietly + "--steps 4 --resume " + at("ck"));
    EXPECT_EQ(refused.status, 2);
    EXPECT_NE(refused.output.find("the tokenizer in it cannot be read"), std::string::npos) << refused.output;
    EXPECT_NE(refused.output.find("give the one that it was trained with as --tokenizer DIR"),
              std::string::npos);
    expect_runs(train_quietly + "--steps 4 --resume " + at("ck") + " --tokenizer " + at("tok"));
    EXPECT_EQ(read_file(directory_ / "ck/tokenizer.json"), json_.dump());
    expect_runs(train_quietly + "--steps 6 --resume " + at("ck"));
}

TEST_F(TokenizerBeside, WithoutOneBytesAreTokensOnlyIfSomebodySaysSo) {
    expect_runs(train_quietly + "--steps 2 --text " + at("my.txt") + " --checkpoint " + at("ck"));
    EXPECT_TRUE(Json::parse(read_file(directory_ / "ck/config.json")).at("eos_token_id").is_null());
    expect_runs("generate --quiet --length 3 --prompt the --checkpoint " +
                at("ck"));  // it was trained on them
    publish("ck", "model");
    write("model/tokenizer.model", "SentencePiece");
    const std::string tail =
        "; its tokenizer.model alone is not enough: save the tokenizer as tokenizer.json";
    for (const std::string& command :
         {"generate --prompt the --checkpoint " + at("model"),
          "train --steps 1 --batch 4 --sequence 16 --text " + at("my.txt") + " --from " + at("model")}) {
        const Ran ran = run(command);
        EXPECT_EQ(ran.status, 2) << ran.output;
        EXPECT_NE(ran.output.find("there is no tokenizer beside the weights; give the one they were trained "
                                  "with as --tokenizer DIR, or --tokenizer bytes if it was bytes" +
                                  tail),
                  std::string::npos)
            << ran.output;
    }
    expect_runs("generate --quiet --length 3 --prompt the --tokenizer bytes --checkpoint " + at("model"));
    expect_runs(
        "train --quiet --threads 1 --policy fp32 --steps 1 --batch 4 --sequence 16 --tokenizer bytes "
        "--text " +
        at("my.txt") + " --from " + at("model") + " --checkpoint " + at("next"));
    expect_runs("generate --quiet --length 3 --prompt the --checkpoint " + at("next"));
    expect_runs("train --quiet --steps 2 --resume " + at("next"));
}

TEST_F(TokenizerBeside, EachEndThatTheModelsFilesNameEndsAText) {
    expect_runs(train_quietly + "--steps 30 --text " + at("my.txt") + " --checkpoint " + at("ck"));
    publish("ck", "model");
    const std::string model = "--tokenizer bytes --prompt 'the cat sat' --checkpoint " + at("model");
    const Json all = generated(model);
    EXPECT_EQ(all["ended_by"], "length");
    const auto tokens = all["tokens"].get<std::vector<int>>();
    const int end = tokens[4];
    const auto first = std::find(tokens.begin(), tokens.end(), end) - tokens.begin();
    set_ends("model", {300, 1, end});
    const Json ended = generated(model);
    EXPECT_EQ(ended["ended_by"], "end_of_text");
    EXPECT_EQ(ended["tokens"], std::vector<int>(tokens.begin(), tokens.begin() + first));
    // generation_config.json is asked first.
    write("model/generation_config.json", R"({"eos_token_id": 1})");
    EXPECT_EQ(generated(model)["ended_by"], "length");
}

TEST_F(TokenizerBeside, LinesOfPromptsHaveNoCarriageReturnAndNoByteOrderMark) {
    expect_runs(train_quietly + "--steps 1 --text " + at("my.txt") + " --checkpoint " + at("ck"));
    write("prompts", "\xEF\xBB\xBFthe cat\r\n\r\nsaw\r\n");
    const Json texts = generated("--prompts " + at("prompts") + " --checkpoint " + at("ck"))["texts"];
    ASSERT_EQ(texts.size(), 2u);
    EXPECT_EQ(texts[0]["prompt"], "the cat");
    EXPECT_EQ(texts[1]["prompt"], "saw");
}

}  // namespace
}  // namespace mantissa
