// Texts of several files and of folders, as train and tokenize take them; what a resumed run validates on.
#include <gtest/gtest.h>

#include <filesystem>

#include "mantissa/base/file.h"
#include "tests/cli/run_program.h"
#include "tests/support/image_files.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

using testing::last_line;
using testing::quoted;
using testing::Ran;
using testing::run;
using testing::write_file;

const std::string tiny_gpt2 =
    " --layers 1 --heads 1 --channels 16 --context 16 --vocabulary 512 --batch 2 --policy fp32 --threads 1 "
    "--print-every 9 ";

class Texts : public ::testing::Test {
  protected:
    Texts() {
        for (const char letter : {'a', 'b', 'c'}) {
            std::string text;
            for (int i = 0; i < 200; ++i) text += std::string(1, letter) + std::to_string(i % 7) + "\n";
            write_file(directory_ / "notes" / (std::string(1, letter) + ".md"), text);
        }
        write_file(directory_ / "notes" / "empty.md", "");
        write_file(directory_ / "chats.jsonl", std::string(500, 'x'));
    }
    std::string at(const char* name) const { return quoted((directory_ / name).string()); }

    TemporaryDirectory directory_;
};

TEST_F(Texts, OfAFolderAndAFileAreNamedTogether) {
    const Ran ran = run("train --text " + at("notes") + " " + at("chats.jsonl") + tiny_gpt2 + "--steps 1");
    EXPECT_EQ(ran.status, 0) << ran.output;
    EXPECT_EQ(ran.output.rfind("4 files of " + (directory_ / "notes").string() + " and " +
                                   (directory_ / "chats.jsonl").string() + ", 2303 bytes as 2303 tokens",
                               0),
              0u)
        << ran.output;
    EXPECT_NE(ran.output.find("\ntaken: a.md, b.md, c.md; left out: empty.md (empty)\n"), std::string::npos)
        << ran.output;
    EXPECT_EQ(
        last_line(
            run("train --text " + at("notes") + tiny_gpt2 + "--steps 1 --log " + at("notes/log")).output),
        "mantissa: --log " + (directory_ / "notes" / "log").string() +
            ": lies in the folder of --text, where each file of text is trained on; name another place");
}

/// The loss that was printed behind these words.
double number_behind(const std::string& output, const std::string& words) {
    const std::size_t at = output.find(words);
    EXPECT_NE(at, std::string::npos) << output;
    return at == std::string::npos ? -1 : std::stod(output.substr(at + words.size()));
}

TEST_F(Texts, AreValidatedOnTheTailOfEachOrOnOthers) {
    const std::string train = "train --text " + at("notes") + tiny_gpt2 + "--steps 2 --validate-every 2 ";
    const std::string words = "validation loss ";
    const double each = number_behind(run(train + "--checkpoint " + at("ck")).output, words);
    const double last = number_behind(run(train + "--held-out last").output, words);
    EXPECT_NE(each, last);
    const Ran apart = run(train + "--validation " + at("chats.jsonl"));
    EXPECT_NE(apart.output.find("\nvalidated on " + (directory_ / "chats.jsonl").string() + ", 500 bytes"),
              std::string::npos)
        << apart.output;
    EXPECT_NE(number_behind(apart.output, words), each);
    // A checkpoint remembers the split; one that does not say is of a time when there was another.
    const std::string state = (directory_ / "ck" / "state.json").string();
    EXPECT_NE(read_file(state).find("\"--held-out\": [\n      \"each\""), std::string::npos);
    const Ran same = run("train --resume " + at("ck") + " --steps 4 --checkpoint " + at("other"));
    EXPECT_EQ(same.output.find("warning"), std::string::npos) << same.output;
    const Ran changed =
        run("train --resume " + at("ck") + " --steps 4 --held-out last --checkpoint " + at("third"));
    EXPECT_NE(changed.output.find("warning"), std::string::npos) << changed.output;
    EXPECT_EQ(
        last_line(
            run("train --text " + at("notes") + tiny_gpt2 + "--validation " + at("chats.jsonl")).output),
        "mantissa: --validation belongs to validations; give --validate-every, too");
}

TEST_F(Texts, ThatHaveMovedMayBeGivenAnew) {
    ASSERT_EQ(
        run("train --text " + at("chats.jsonl") + tiny_gpt2 + "--steps 1 --checkpoint " + at("ck")).status,
        0);
    std::filesystem::rename(directory_ / "chats.jsonl", directory_ / "moved");
    EXPECT_EQ(
        last_line(run("train --resume " + at("ck") + " --steps 2").output),
        "mantissa: " + (directory_ / "chats.jsonl").string() + ": is not there any more; --resume " +
            (directory_ / "ck").string() +
            " goes on with the text that it was trained on: where that has moved, say where to by --text");
    const Ran ran = run("train --resume " + at("ck") + " --steps 2 --text " + at("moved"));
    EXPECT_EQ(ran.status, 0) << ran.output;
    EXPECT_EQ(ran.output.find("warning"), std::string::npos) << ran.output;
}

TEST_F(Texts, AreTokenizedTogether) {
    const std::string with = " --tokenizer " + at("tok");
    ASSERT_EQ(run("tokenize --train " + at("notes") + " --vocabulary 257 --out " + at("tok")).status, 0);
    const Ran counted = run("tokenize --count " + at("notes") + " " + at("chats.jsonl") + with);
    EXPECT_EQ(counted.status, 0) << counted.output;
    EXPECT_NE(counted.output.find("left out: empty.md (empty)"), std::string::npos) << counted.output;
    EXPECT_NE(counted.output.find(" tokens from 2303 bytes"), std::string::npos) << counted.output;
    // As train joins them.
    write_file(directory_ / "joined", read_file((directory_ / "notes" / "b.md").string()) + "\n" +
                                          read_file((directory_ / "chats.jsonl").string()));
    const std::string two = at("notes/b.md") + " " + at("chats.jsonl");
    EXPECT_EQ(run("tokenize --encode " + two + with).output,
              run("tokenize --encode " + at("joined") + with).output);
    // Shards remember all texts that they are of.
    ASSERT_EQ(run("tokenize --encode " + two + with + " --out " + at("shards")).status, 0);
    const std::string train = "train --tokens " + at("shards_000000.bin") + tiny_gpt2 + "--steps 1";
    EXPECT_EQ(run(train).status, 0);
    write_file(directory_ / "chats.jsonl", "changed");
    EXPECT_NE(last_line(run(train).output).find("chats.jsonl: has changed since the tokens"),
              std::string::npos);
}

}  // namespace
}  // namespace mantissa
