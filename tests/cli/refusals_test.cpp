// Options that were taken for something else, or refused with words that named no option.
#include <gtest/gtest.h>

#include <fstream>

#include "tests/cli/run_program.h"
#include "tests/cli/written_files.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

using testing::last_line;
using testing::Ran;
using testing::run;

TEST(Refusals, ANegativeSeedIsNone) {
    for (const char* command :
         {"train --steps 1 --seed -5", "generate --checkpoint x --prompt y --seed -5"}) {
        const Ran ran = run(command);
        EXPECT_EQ(ran.status, 2) << ran.output;
        EXPECT_EQ(ran.output.find("mantissa: --seed: must be 0 or more, got -5"), 0u) << ran.output;
    }
}

TEST(Refusals, AFileInTheWayOfADumpIsNamedWithTheOption) {
    const TemporaryDirectory directory;
    const std::string file = (directory / "file").string();
    std::ofstream(file) << "x";
    const Ran ran = run("train --batch 1 --sequence 16 --steps 1 --dump " + file);
    EXPECT_EQ(ran.status, 2) << ran.output;
    EXPECT_EQ(last_line(ran.output), "mantissa: --dump: " + file + ": cannot make the folder: File exists");
}

TEST(Refusals, AFolderIsNoNameForShards) {
    const TemporaryDirectory directory;
    const std::string text = (directory / "text.txt").string(), tok = (directory / "tok").string();
    std::ofstream(text) << "the cat sat on the mat";
    ASSERT_EQ(run("tokenize --train " + text + " --vocabulary 257 --out " + tok).status, 0);
    for (const char* end : {"/", "/."}) {
        const std::string out = directory.path().string() + end;
        const Ran ran = run("tokenize --encode " + text + " --tokenizer " + tok + " --out " + out);
        EXPECT_EQ(ran.status, 2) << ran.output;
        EXPECT_NE(ran.output.find("--out " + out + ": is a folder; name the shards in it, as in " +
                                  directory.path().string() + "/shards"),
                  std::string::npos)
            << ran.output;
    }
}

TEST(Refusals, NamesTheOptionAndWhatItWants) {
    const std::string tokenizer =
        "mantissa: --tokenizer: nowhere: does not exist; a tokenizer is a folder with tokenizer.json, or "
        "with "
        "vocab.json and merges.txt, or a file such as tokenizer.json";
    EXPECT_EQ(last_line(run("train --steps 1 --tokenizer nowhere").output), tokenizer);
    EXPECT_EQ(
        last_line(run("generate --prompt x --tokenizer nowhere --checkpoint " + testing::fixtures + "/text")
                      .output),
        tokenizer);
    EXPECT_EQ(
        last_line(run("train --model llama-tiny --resume " + testing::fixtures + "/text").output),
        "mantissa: --model llama-tiny: " + testing::fixtures + "/text is a gpt2-tiny; leave the option out");
    const std::string proc = run("train --steps 1 --batch 1 --sequence 16 --checkpoint /proc/x").output;
    EXPECT_EQ(proc.find("disk space"), std::string::npos) << proc;
}

TEST(Refusals, AFileIsNoFolderAndAFolderNoFile) {
    const TemporaryDirectory directory;
    const std::string file = (directory / "model.safetensors").string(), folder = directory.path().string();
    std::ofstream(file) << "x";
    for (const std::string& command : {"generate --prompt x --checkpoint " + file, "explain --from " + file})
        EXPECT_EQ(run(command).output,
                  "mantissa: " + file + ": is a file; give the folder that holds it with its config.json\n");
    EXPECT_EQ(run("train --tokens " + folder).output,
              "mantissa: " + folder + ": is a folder; expected a file\n");
}

TEST(Refusals, AModelThatIsNoneIsAnsweredWithAllThatThereAre) {
    for (const char* command : {"train --model gpt3", "lint --model gpt3"}) {
        const Ran ran = run(command);
        EXPECT_EQ(ran.status, 2);
        EXPECT_EQ(ran.output.find("mantissa: --model: there is no model 'gpt3'; there are gpt2-tiny, "), 0u)
            << ran.output;
        EXPECT_NE(ran.output.find("; for images ResNet50, "), std::string::npos) << ran.output;
    }
}

TEST(Refusals, ANetworkForImagesWritesNoText) {
    const std::string checkpoint = MANTISSA_SOURCE_DIR "/tests/fixtures/248ad45/pictures_run";
    const Ran ran = run("generate --prompt x --checkpoint " + checkpoint);
    EXPECT_EQ(ran.status, 2);
    EXPECT_EQ(ran.output, "mantissa: --checkpoint " + checkpoint +
                              ": is of a network for images, which writes no text; predict takes it\n");
}

TEST(Refusals, TokensOfATokenizerAreNoBytes) {
    const TemporaryDirectory directory;
    const std::string text = (directory / "text.txt").string(), tok = (directory / "tok").string();
    std::ofstream(text) << "the cat sat on the mat";
    ASSERT_EQ(run("tokenize --train " + text + " --vocabulary 257 --out " + tok).status, 0);
    ASSERT_EQ(run("tokenize --encode " + text + " --tokenizer " + tok + " --out " + tok + "/sh").status, 0);
    const Ran ran =
        run("train --sequence 4 --batch 1 --steps 1 --tokenizer bytes --tokens " + tok + "/sh_000000.bin");
    EXPECT_EQ(ran.status, 1);
    EXPECT_EQ(ran.output.find("mantissa: bytes: is not the tokenizer with which the tokens that " + tok +
                              "/sh.tokens.json names were made"),
              0u)
        << ran.output;
}

TEST(Refusals, AVocabularyThatIsTooSmallIsKnownBeforeATextIsRead) {
    const Ran ran = run("tokenize --train /dev/null --out tok --vocabulary 10");
    EXPECT_EQ(ran.status, 2);
    EXPECT_EQ(
        ran.output,
        "mantissa: --vocabulary: a vocabulary of 10 tokens is too small: 256 bytes and <|endoftext|> take "
        "257\n");
}

}  // namespace
}  // namespace mantissa
