// Each way in which a command turns text into ids gives those of Hugging Face's tokenizers (the fixture of
// tests/data/text_ids_test.cpp, which has the ways of the library), and a model is used as it was trained.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <sstream>

#include "mantissa/base/checksum.h"
#include "mantissa/base/file.h"
#include "mantissa/data/text_windows.h"
#include "mantissa/data/token_file.h"
#include "mantissa/data/tokenizer_files.h"
#include "mantissa/train/checkpoint.h"
#include "tests/cli/run_program.h"
#include "tests/cli/written_files.h"
#include "tests/support/random_draws.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/text_ids_fixture.h"

namespace mantissa {
namespace {

using Json = nlohmann::json;
using testing::quoted;
using testing::Ran;
using testing::run;
using testing::TextIds;
using testing::TokenizerOfFixture;
using Ids = std::vector<TokenId>;

const std::string tiny =
    "--policy fp32 --threads 1 --passes none --layers 1 --heads 1 --channels 8 --context 64 --vocabulary 320 "
    "--batch 1 ";

class TextIdsByCommand : public ::testing::Test {
  protected:
    std::string at(const std::string& name) const { return (directory_ / name).string(); }
    void write(const std::string& name, const std::string& text) const {
        std::ofstream(directory_ / name) << text;
    }
    std::string succeed(const std::string& arguments) const {
        const Ran ran = run(arguments);
        EXPECT_EQ(ran.status, 0) << arguments << "\n" << ran.output;
        return ran.output;
    }
    Json json_of(const std::string& arguments) const {
        succeed(arguments + " --json " + at("out.json"));
        return Json::parse(read_file(directory_ / "out.json"));
    }
    void put(const TokenizerOfFixture& kind) const {
        std::filesystem::create_directories(directory_ / "tok");
        write("tok/tokenizer.json", kind.json);
        write("tok/tokenizer_config.json", kind.config);
    }
    Json state_of(const std::string& checkpoint) const {
        return Json::parse(read_file(directory_ / checkpoint / "state.json"));
    }
    /// A file of a checkpoint, and its line in the list of files.
    void write_into_checkpoint(const std::string& checkpoint, const std::string& name,
                               const std::string& text) const {
        const std::filesystem::path list = directory_ / checkpoint / "manifest.json";
        Manifest manifest = parse_manifest(read_file(list), "manifest.json");
        manifest[name].bytes = text.size();
        manifest[name].checksum = checksum_of(std::as_bytes(std::span(text)));
        write(checkpoint + "/" + name, text);
        write(checkpoint + "/manifest.json", manifest_text(manifest));
    }
    /// The way's name where it gives other ids.
    void expect(const std::string& way, const Json& got, const Json& expected) const {
        EXPECT_EQ(got, expected) << way;
    }

    TemporaryDirectory directory_;
};

Ids printed_ids(const std::string& output) {
    std::istringstream words(output);
    Ids ids;
    for (TokenId id; words >> id;) ids.push_back(id);
    return ids;
}

/// Words that `train` notes of the tokens that it trains on.
std::string description_of(const Ids& ids) {
    const TokenStream stream(ids);
    return TextWindows(stream, stream.all(), 8, {.batch = 1}).description();
}

TEST_F(TextIdsByCommand, AreTheLibrarysInEveryWay) {
    const TextIds fixture;
    for (const TokenizerOfFixture& kind : fixture.tokenizers)
        for (const char* word : {"tokens", "text"}) {
            SCOPED_TRACE(kind.name + ", special tokens as " + word);
            const bool as_tokens = word == std::string("tokens");
            // bench/peers/text_ids_table.py has all of them. The other way with one of each spelling.
            const std::set<std::string> kinds =
                as_tokens ? std::set<std::string>{"gpt2 chat", "llama3", "one token begins and ends",
                                                  "byte fallback", "metaspace chat"}
                          : std::set<std::string>{"gpt2 chat", "byte fallback"};
            if (!kinds.contains(kind.name)) continue;
            const bool is_chosen = kind.name == (as_tokens ? "gpt2 chat" : "byte fallback");
            if (!is_chosen && !testing::sweeps_are_whole()) continue;
            const std::vector<Ids>& expected = as_tokens ? kind.tokens : kind.text;
            // Without a word they are tokens.
            const std::string option = as_tokens ? "" : " --special-tokens text ";
            put(kind);
            const std::string tokenizer = " --tokenizer " + at("tok") + option;
            std::string prompts;
            std::vector<std::size_t> lines;  // texts of prompts
            for (std::size_t i = 0; i < fixture.texts.size(); ++i)
                if (fixture.texts[i].find('\n') == std::string::npos) {
                    prompts += fixture.texts[i] + "\n";
                    lines.push_back(i);
                }
            // tests/data/text_ids_test.cpp has all texts.
            for (const std::size_t i : {1, 3, 6}) {
                write("t.txt", fixture.texts[i]);
                expect("tokenize --encode",
                       printed_ids(succeed("tokenize --encode " + at("t.txt") + tokenizer)), expected[i]);
            }
            constexpr std::size_t chat = 1;
            write("chat.txt", fixture.texts[chat]);
            expect("tokenize --count", json_of("tokenize --count " + at("chat.txt") + tokenizer)["tokens"],
                   expected[chat].size());
            succeed("tokenize --encode " + at("chat.txt") + tokenizer + " --out " + at("shard.bin"));
            const TokenFile shard(directory_ / "shard.bin");
            Ids of_shard(shard.size());
            shard.copy(0, of_shard);
            expect("tokenize --encode --out", of_shard, expected[chat]);

            const std::string train = "train " + tiny + "--sequence 8 --order sequential --steps 1 ";
            const Json trained =
                json_of(train + "--validate-every 1 --validation " + at("chat.txt") + " --text " +
                        at("chat.txt") + tokenizer + " --checkpoint " + at("ck"));
            expect("train --text", state_of("ck")["inputs"]["tokens"], description_of(expected[chat]));
            expect("state.json", state_of("ck")["reading"]["special_tokens"], word);
            const Json of_tokens =
                json_of(train + "--validate-every 1 --validation " + at("shard.bin") + " --tokens " +
                        at("shard.bin") + " --tokenizer " + at("tok") + " --checkpoint " + at("by_tokens"));
            expect("train --tokens", state_of("by_tokens")["inputs"]["tokens"],
                   description_of(expected[chat]));
            expect("the record of shards", state_of("by_tokens")["reading"], state_of("ck")["reading"]);
            expect("train --validation", trained["validation"][0]["loss"],
                   of_tokens["validation"][0]["loss"]);

            // A model reads prompts no longer than the sequences that it was trained on.
            std::string chats;
            for (int i = 0; i < 10; ++i) chats += fixture.texts[chat];
            write("chats.txt", chats);
            succeed("train " + tiny + "--sequence 60 --steps 1 --text " + at("chats.txt") + tokenizer +
                    " --checkpoint " + at("used"));
            const std::string generate =
                "generate --quiet --length 1 --full-context slide --policy fp32 --checkpoint " + at("used") +
                " ";
            write("prompts", prompts);
            const Json of_prompts = json_of(generate + "--prompts " + at("prompts"))["texts"];
            ASSERT_EQ(of_prompts.size(), lines.size());
            for (std::size_t line = 0; line < lines.size(); ++line)
                expect("generate --prompts", of_prompts[line]["prompt_tokens"], expected[lines[line]].size());
            const Json of_prompt = json_of(generate + "--prompt " + quoted(fixture.texts[2]) +
                                           " --validation " + at("chat.txt"));
            expect("generate --prompt", of_prompt["prompt_tokens"], expected[2].size());
            expect("generate --validation", of_prompt["validation"][0]["tokens"], expected[chat].size() - 1);
            const Json other = json_of(generate + "--special-tokens " + (as_tokens ? "text" : "tokens") +
                                       " --prompt " + quoted(fixture.texts[2]));
            expect("generate --special-tokens", other["prompt_tokens"],
                   (as_tokens ? kind.text : kind.tokens)[2].size());
        }
}

/// Losses of held-out documents in training are found by generate, too, whatever begins them and however they
/// lie.
TEST_F(TextIdsByCommand, ValidationIsTheSameInTrainingAndInUse) {
    const TextIds fixture;
    testing::write_sentences(directory_ / "text.txt", 60);
    std::filesystem::create_directories(directory_ / "held");
    write("held/a.txt", "the user asks the assistant" + fixture.texts[1]);
    write("held/b.txt", "the assistant answers the user");
    for (const char* name : testing::some_of<const char*>(
             {"gpt2 chat", "llama3", "one token begins and ends", "byte fallback", "metaspace"}, 2))
        for (const char* documents : {"joined", "packed"}) {
            SCOPED_TRACE(std::string(name) + " " + documents);
            put(fixture.named(name));
            const Json trained =
                json_of("train " + tiny +
                        "--steps 3 --validate-every 3 --order sequential --learning-rate 0.1 --documents " +
                        documents + " --text " + at("text.txt") + " --validation " + at("held") +
                        " --tokenizer " + at("tok") + " --checkpoint " + at("ck"));
            const Json used = json_of("generate --quiet --policy fp32 --checkpoint " + at("ck") +
                                      " --validation " + at("held"));
            const double loss = trained["validation"][0]["loss"];
            EXPECT_NEAR(used["validation"][0]["loss"].get<double>(), loss, 1e-5 * loss);
            const std::string marks = documents == std::string("packed") ? "--documents " : "";
            const std::size_t tokens = json_of("tokenize --count " + at("held") + " " + marks +
                                               "--tokenizer " + at("tok"))["tokens"];
            // Tokens that begin a document are no targets, nor is the first of all.
            EXPECT_LE(used["validation"][0]["tokens"], tokens - 1);
            if (marks.empty()) {
                EXPECT_EQ(used["validation"][0]["tokens"], tokens - 1);
            }
        }
}

TEST_F(TextIdsByCommand, ARunGoesOnAndIsTunedAsItRead) {
    const TextIds fixture;
    put(fixture.named("byte fallback"));
    write("text.txt", fixture.texts[1] + fixture.texts[3] + fixture.texts[7]);
    const std::string text = " --text " + at("text.txt");
    succeed("train " + tiny + "--sequence 8 --steps 1 --special-tokens text --tokenizer " + at("tok") + text +
            " --checkpoint " + at("ck"));
    const Json reading = {{"special_tokens", "text"}, {"first_tokens", true}};
    const std::string again = succeed("train --steps 2 --resume " + at("ck"));
    EXPECT_EQ(again.find("earlier version"), std::string::npos) << again;
    EXPECT_EQ(state_of("ck")["reading"], reading);
    succeed("train --policy fp32 --batch 1 --sequence 8 --steps 1 --from " + at("ck") + text +
            " --checkpoint " + at("tuned"));
    EXPECT_EQ(state_of("tuned")["reading"], reading);
    const std::string other = succeed("train --steps 3 --special-tokens tokens --resume " + at("ck"));
    EXPECT_NE(other.find("special_tokens = \"text\", this run has \"tokens\""), std::string::npos) << other;

    // As a version before wrote it: special tokens were text, and nothing stood before one.
    succeed("train " + tiny + "--sequence 8 --steps 1 --special-tokens text --tokenizer " + at("tok") + text +
            " --checkpoint " + at("old"));
    Json state = state_of("old");
    state.erase("reading");
    write_into_checkpoint("old", "state.json", state.dump());
    const std::string words =
        "old is of an earlier version, and texts are read as they were there: special "
        "tokens in texts read as text, no <s> before each";
    const Json used = json_of("generate --length 1 --checkpoint " + at("old") + " --prompt '<s>the user'");
    EXPECT_EQ(used["prompt_tokens"],
              load_tokenizer(directory_ / "tok")
                  .encode_whole("<s>the user", {.specials = SpecialsInText::as_text, .begins = false})
                  .size());
    const std::string resumed = succeed("train --steps 2 --resume " + at("old"));
    EXPECT_NE(resumed.find(words), std::string::npos) << resumed;
    EXPECT_EQ(state_of("old")["reading"], (Json{{"special_tokens", "text"}, {"first_tokens", false}}));
    EXPECT_EQ(succeed("train --steps 3 --resume " + at("old")).find("earlier version"), std::string::npos);
}

TEST_F(TextIdsByCommand, ABeginningThatStandsThereTwiceIsSaid) {
    const TextIds fixture;
    put(fixture.named("byte fallback"));
    write("text.txt", fixture.texts[3]);
    const std::string words =
        " begins with <s>, which the tokenizer puts there anyway: it stands there twice";
    const std::string trained = succeed("train " + tiny + "--sequence 4 --steps 1 --tokenizer " + at("tok") +
                                        " --text " + at("text.txt") + " --checkpoint " + at("ck"));
    EXPECT_NE(trained.find("text.txt" + words), std::string::npos) << trained;
    const std::string generate = "generate --quiet --length 1 --checkpoint " + at("ck") + " --prompt ";
    const std::string twice = succeed(generate + "'<s>the user'"), once = succeed(generate + "'the user<s>'");
    EXPECT_NE(twice.find("the prompt" + words), std::string::npos) << twice;
    EXPECT_EQ(once.find(words), std::string::npos) << once;
}

TEST_F(TextIdsByCommand, WhatDoesNothingIsRefused) {
    const TextIds fixture;
    put(fixture.named("gpt2 chat"));
    write("text.txt", fixture.texts[1]);
    const auto refused = [&](const std::string& arguments, const std::string& words) {
        const Ran ran = run(arguments);
        EXPECT_EQ(ran.status, 2) << ran.output;
        EXPECT_NE(ran.output.find(words), std::string::npos) << ran.output;
    };
    refused("train " + tiny + "--special-tokens text --text " + at("text.txt"),
            "--special-tokens says how a tokenizer reads texts: give --tokenizer DIR");
    refused("tokenize --decode 1 --tokenizer " + at("tok") + " --special-tokens text",
            "--special-tokens belongs to --encode and --count; leave it out");
    succeed("tokenize --encode " + at("text.txt") + " --tokenizer " + at("tok") + " --out " +
            at("shard.bin"));
    refused(
        "train " + tiny + "--special-tokens text --tokens " + at("shard.bin") + " --tokenizer " + at("tok"),
        "shard.bin were made with --special-tokens tokens; leave the option out, or make them anew");
}

}  // namespace
}  // namespace mantissa
