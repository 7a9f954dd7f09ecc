// Files that revision 248ad45 wrote (tests/fixtures/248ad45, made by make.sh there): checkpoints go on to the
// same bits as they did then, generate the same tokens, and reports have at least the members that they had.
// docs/json.md names each member that they have now.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "mantissa/base/file.h"
#include "mantissa/formats/safetensors.h"
#include "tests/cli/documented_members.h"
#include "tests/cli/run_program.h"
#include "tests/cli/written_files.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

using nlohmann::json;
using testing::fixtures;
using testing::Ran;
using testing::run_in_shell;

json read_json(const std::filesystem::path& path) { return json::parse(read_file(path)); }

/// The program on the level whose bits every machine has.
Ran run_generic(const std::string& arguments) {
    return run_in_shell("MANTISSA_ISA=generic " MANTISSA_BINARY_DIR "/mantissa " + arguments);
}

/// CRC-32 as zlib's, continued from `crc`.
std::uint32_t crc32_of(std::span<const std::byte> bytes, std::uint32_t crc) {
    crc = ~crc;
    for (const std::byte byte : bytes) {
        crc ^= static_cast<std::uint32_t>(byte);
        for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

/// Checksum of all tensors whose names begin so, in the order of their names.
std::uint32_t crc32_of_tensors(const std::filesystem::path& path, const std::string& begin = "") {
    const SafetensorsFile file(path);
    std::map<std::string, std::span<const std::byte>> tensors;
    for (const SafetensorsEntry& entry : file.tensors())
        if (entry.name.starts_with(begin)) tensors[entry.name] = entry.data;
    std::uint32_t crc = 0;
    for (const auto& [name, bytes] : tensors) crc = crc32_of(bytes, crc);
    return crc;
}

std::vector<double> losses_in(const std::filesystem::path& log) {
    std::vector<double> losses;
    std::ifstream lines(log);
    for (std::string line; std::getline(lines, line);)
        if (const json step = json::parse(line); step.contains("loss")) losses.push_back(step["loss"]);
    return losses;
}

class OldFiles : public ::testing::Test {
  protected:
    /// Goes on from a copy of checkpoint `name` for four steps. The data lie elsewhere now, so `data` names
    /// them anew.
    void expect_same_bits(const std::string& name, const std::string& data) {
        const std::filesystem::path checkpoint = directory_ / name;
        std::filesystem::copy(fixtures + "/" + name, checkpoint, std::filesystem::copy_options::recursive);
        const std::string log = (directory_ / "log.jsonl").string();
        const Ran ran =
            run_generic("train --resume " + checkpoint.string() + " --steps 8 --log " + log + " " + data);
        ASSERT_EQ(ran.status, 0) << ran.output;
        // Names that a later version gave to a thing make no difference.
        for (const char* words : {"trained with passes", "trained with pictures"})
            EXPECT_EQ(ran.output.find(words), std::string::npos) << ran.output;
        const json expected = read_json(fixtures + "/" + name + ".expected.json");
        EXPECT_EQ(losses_in(log), expected.at("losses").get<std::vector<double>>()) << ran.output;
        EXPECT_EQ(crc32_of_tensors(checkpoint / "model.safetensors"),
                  expected.at("weights_crc32").get<std::uint32_t>());
    }

    /// Tokens are those of the report that was written then. Their probabilities may differ by roundings:
    /// norms and softmax were kernels by hand then, and are the generator's now.
    void expect_same_tokens(const std::string& name, const std::string& options) {
        const std::filesystem::path report = directory_ / "generated.json";
        const Ran ran =
            run_generic("generate --checkpoint " + fixtures + "/" + name +
                        " --prompt 'the cat' --length 12 " + options + " --json " + report.string());
        ASSERT_EQ(ran.status, 0) << ran.output;
        const json got = read_json(report), expected = read_json(fixtures + "/" + name + ".generated.json");
        for (const char* member : {"tokens", "text", "ended_by"})
            EXPECT_EQ(got.at(member), expected.at(member)) << member;
        const auto now = got.at("log_probabilities").get<std::vector<double>>();
        const auto then = expected.at("log_probabilities").get<std::vector<double>>();
        ASSERT_EQ(now.size(), then.size());
        // Logits in FP32 have 24 bits.
        for (std::size_t i = 0; i < now.size(); ++i)
            EXPECT_NEAR(now[i], then[i], 0x1p-22 * std::abs(then[i])) << i;
    }

    const TemporaryDirectory directory_;
};

TEST_F(OldFiles, ATextCheckpointGoesOnToTheSameBits) {
    expect_same_bits("text", "--text " + fixtures + "/text.txt");
}

TEST_F(OldFiles, ACheckpointOfPackedDocumentsGoesOnToTheSameBits) {
    expect_same_bits("packed",
                     "--tokens " + fixtures + "/documents.bin --tokenizer " + fixtures + "/tokenizer");
}

/// Said once: what the run saves says it.
TEST_F(OldFiles, ATokenizedCheckpointKeepsItsReadingAndSaysSoOnce) {
    const std::filesystem::path checkpoint = directory_ / "packed";
    std::filesystem::copy(fixtures + "/packed", checkpoint, std::filesystem::copy_options::recursive);
    const auto resumed = [&](const char* steps) {
        const Ran ran = run_generic("train --resume " + checkpoint.string() + " --steps " + steps +
                                    " --tokens " + fixtures + "/documents.bin");
        EXPECT_EQ(ran.status, 0) << ran.output;
        return ran.output;
    };
    const std::string words = checkpoint.string() +
                              " is of an earlier version, and texts are read as they were there: special "
                              "tokens in texts read as text\n";
    const std::string first = resumed("5");
    EXPECT_NE(first.find(words), std::string::npos) << first;
    EXPECT_EQ(read_json(checkpoint / "state.json")["reading"]["special_tokens"], "text");
    const std::string second = resumed("6");
    EXPECT_EQ(second.find("earlier version"), std::string::npos) << second;
}

TEST_F(OldFiles, AImageCheckpointGoesOnToTheSameBits) {
    expect_same_bits("pictures_run", "--images " + fixtures + "/pictures");
}

TEST_F(OldFiles, ACheckpointOfTwoRanksGoesOnInOneProcessToTheSameBits) {
    expect_same_bits("ranks", "--text " + fixtures + "/text.txt");
}

/// Revision be3cae47 averaged parameters and no running statistics, and did not keep what a lowest loss is of
/// (tests/fixtures/be3cae47, make_judged.sh). What is trained follows from neither.
TEST_F(OldFiles, AveragesOfParametersAloneGoOnToTheSameBits) {
    const std::string of_then = MANTISSA_SOURCE_DIR "/tests/fixtures/be3cae47/";
    const std::filesystem::path checkpoint = directory_ / "averages", log = directory_ / "log.jsonl";
    std::filesystem::copy(of_then + "averages", checkpoint, std::filesystem::copy_options::recursive);
    const std::string resume =
        "train --quiet --resume " + checkpoint.string() + " --images " + fixtures + "/pictures";
    const Ran ran = run_generic(resume + " --steps 8 --log " + log.string());
    ASSERT_EQ(ran.status, 0) << ran.output;
    const std::string once = "it kept no averages of running statistics, which begin here";
    EXPECT_NE(ran.output.find(once), std::string::npos) << ran.output;
    const json expected = read_json(of_then + "averages.expected.json");
    EXPECT_EQ(losses_in(log), expected.at("losses").get<std::vector<double>>());
    EXPECT_EQ(crc32_of_tensors(checkpoint / "optimizer.safetensors", "raw."),
              expected.at("trained_crc32").get<std::uint32_t>());
    EXPECT_EQ(run_generic(resume + " --steps 9").output.find(once), std::string::npos);
}

TEST_F(OldFiles, ALowestLossThatDoesNotSayWhatItIsOfGoesOn) {
    const std::string of_then = MANTISSA_SOURCE_DIR "/tests/fixtures/be3cae47/";
    for (const char* name : {"best", "best.best"}) std::filesystem::copy(of_then + name, directory_ / name);
    const std::string place = directory_ / "best";
    const json before = read_json(place + "/state.json").at("validations");
    const std::string resume =
        "train --quiet --resume " + place + " --text " + fixtures + "/text.txt --learning-rate 0 ";
    const Ran same = run_generic(resume + "--steps 6 --validation " + fixtures + "/documents.txt");
    ASSERT_EQ(same.status, 0) << same.output;
    // The files are named anew, since they have moved: whether they are the same is not known.
    EXPECT_NE(same.output.find("does not say which data it is of, and data are given anew"),
              std::string::npos)
        << same.output;
    EXPECT_EQ(read_json(place + "/state.json").at("validations").at("since"), 0);
    EXPECT_EQ(before.at("since"), 0);
}

TEST_F(OldFiles, CheckpointsGenerateTheSameTokens) {
    expect_same_tokens("text", "--temperature 0.7 --seed 3");
    expect_same_tokens("packed", "--temperature 0");
}

/// Members of `old` that `now` lacks, with their paths. The first of a list is held against the
/// element that lacks the least: not every mode of multiplying has every rate.
void find_missing(const json& old, const json& now, const std::string& path,
                  std::vector<std::string>& missing) {
    if (old.is_object()) {
        for (const auto& [name, value] : old.items())
            if (now.is_object() && now.contains(name))
                find_missing(value, now.at(name), path + "/" + name, missing);
            else
                missing.push_back(path + "/" + name);
    } else if (old.is_array() && !old.empty()) {
        std::vector<std::string> least = {path + "/0"};
        for (bool first = true; const json& element : now.is_array() ? now : json::array()) {
            std::vector<std::string> of_element;
            find_missing(old.front(), element, path + "/0", of_element);
            if (first || of_element.size() < least.size()) least = of_element;
            first = false;
        }
        missing.insert(missing.end(), least.begin(), least.end());
    } else if (old.is_number() != now.is_number() || old.is_string() != now.is_string()) {
        missing.push_back(path + " is of another type");
    }
}

/// A report that `command` writes has the members of the one of then.
void expect_members(const std::string& name, const std::string& command) {
    SCOPED_TRACE(command);
    const TemporaryDirectory directory;
    const std::filesystem::path report = directory / (name + ".json");
    // The ladder of so small a model may end in an error, for what its rungs cost is noise.
    const Ran ran = run_generic(command + " --json " + report.string());
    ASSERT_TRUE(std::filesystem::exists(report)) << ran.output;
    std::vector<std::string> missing;
    const json now = read_json(report);
    find_missing(read_json(fixtures + "/" + name + ".json"), now, name, missing);
    EXPECT_EQ(missing, std::vector<std::string>{}) << ran.output;
    const std::string section = name == "converge"     ? "numerics converge"
                                : name == "perplexity" ? "generate"
                                                       : name;
    EXPECT_EQ(testing::undocumented_members(now, section), std::vector<std::string>{});
}

TEST_F(OldFiles, ReportsHaveTheMembersThatTheyHad) {
    const std::string tiny = "--layers 1 --heads 1 --channels 8 --context 16 --threads 1 ",
                      text = tiny + "--batch 2 --text " + fixtures + "/text.txt ";
    const std::string log = (directory_ / "log.jsonl").string();
    expect_members("train", "train " + text + "--steps 3 --validate-every 1 --sample-every 2 --log " + log);
    std::ifstream then(fixtures + "/log.jsonl"), now(log);
    for (std::string old_step, step; std::getline(then, old_step);) {
        ASSERT_TRUE(std::getline(now, step));
        std::vector<std::string> missing;
        find_missing(json::parse(old_step), json::parse(step), "log", missing);
        EXPECT_EQ(missing, std::vector<std::string>{}) << step;
        const json steps = {{"steps", {json::parse(step)}}};
        EXPECT_EQ(testing::undocumented_members(steps, "train"), std::vector<std::string>{});
    }
    expect_members("ladder", "ladder " + text + "--steps 2 --repeats 1");
    expect_members("explain", "explain " + tiny + "--batch 2");
    expect_members("lint", "lint " + tiny);
    expect_members("numerics", "numerics " + text + "--steps 2");
    expect_members("converge", "numerics converge " + text + "--steps 4 --policies fp32,bf16");
    expect_members("bench",
                   "bench --model ResNet20 --width 4 --batch-size 2 --num-warmup-batches 1 "
                   "--num-batches-per-iter 1 --num-iters 2 --compare --threads 1");
    expect_members("perplexity", "generate --checkpoint " + fixtures + "/text --validation " + fixtures +
                                     "/text.txt --prompt 'the cat' --length 4");
    expect_members("tokenize", "tokenize --train " + fixtures + "/text.txt --vocabulary 300 --out " +
                                   (directory_ / "tokenizer").string());
}

TEST(OldFilesSlow, PeaksHaveTheMembersThatTheyHad) { expect_members("peaks", "peaks"); }

}  // namespace
}  // namespace mantissa
