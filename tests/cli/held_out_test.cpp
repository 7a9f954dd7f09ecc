// Images and texts that are held out stay so, and where they were trained on before, train says so.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "mantissa/base/file.h"
#include "tests/cli/run_program.h"
#include "tests/cli/written_files.h"
#include "tests/support/image_files.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

using testing::pictures;
using testing::quoted;
using testing::Ran;
using testing::run;
using testing::write_file;

/// Words on what was trained on before; empty: nothing is said.
std::string warning_in(const Ran& ran) {
    EXPECT_EQ(ran.status, 0) << ran.output;
    const std::size_t end = ran.output.find(", so the validation loss does not tell of new data\n");
    if (end == std::string::npos) return "";
    const std::string begin = "mantissa: warning: ";
    return ran.output.substr(ran.output.rfind(begin, end) + begin.size(),
                             end - ran.output.rfind(begin, end) - begin.size());
}

class HeldOut : public ::testing::Test {
  protected:
    std::string at(const char* name) const { return quoted((directory_ / name).string()); }
    Ran train(const std::string& options, const char* to = "") const {
        return run("train --policy fp32 --threads 1 --steps 1 --quiet " + options +
                   (*to ? " --checkpoint " + at(to) : ""));
    }

    TemporaryDirectory directory_;
};

class HeldOutImages : public HeldOut {
  protected:
    HeldOutImages() {
        for (const char* name : {"cat", "dog"})
            for (int i = 0; i < 30; ++i) write_image(name, i);
    }
    void write_image(const char* name, int i) const {
        write_file(directory_ / "drawn" / name / (std::to_string(i) + ".png"),
                   testing::png_of(4, 4, testing::smooth_image(4, 4, i + (*name == 'c' ? 0 : 50))));
    }
    const std::string small = "--batch 8 --images " + at("drawn") + " ";
    const std::string anew = small + "--model ResNet20 --width 2 ";
};

TEST_F(HeldOutImages, StayApartWhateverSeedAndFiles) {
    EXPECT_EQ(warning_in(train(anew + "--validate-every 1 --seed 1", "ck")), "");
    for (int i = 30; i < 40; ++i) write_image("dog", i);
    std::filesystem::remove(directory_ / "drawn" / "cat" / "0.png");
    const Ran tuned = train(small + "--validate-every 1 --seed 2 --from " + at("ck"));
    EXPECT_EQ(warning_in(tuned), "");
    EXPECT_EQ(warning_in(run("train --quiet --steps 2 --resume " + at("ck"))), "");
    // Renamed, some change sides.
    for (int i = 1; i < 30; ++i) {
        const std::filesystem::path cats = directory_ / "drawn" / "cat", name = std::to_string(i) + ".png";
        std::filesystem::rename(cats / name, cats / ("a" + name.string()));
    }
    EXPECT_NE(warning_in(train(small + "--validate-every 1 --from " + at("ck"))).find(" % of what is "),
              std::string::npos);
}

TEST_F(HeldOutImages, ThatWereTrainedOnAreWarnedOf) {
    EXPECT_EQ(warning_in(train(anew, "all")), "");
    const std::string learnt =
        "about 100 % of what is validated on was trained on by " + (directory_ / "all").string();
    EXPECT_EQ(warning_in(train(small + "--validate-every 1 --from " + at("all"), "tuned")), learnt);
    EXPECT_EQ(warning_in(run("train --quiet --steps 2 --validate-every 1 --resume " + at("all") +
                             " --checkpoint " + at("more"))),
              learnt);
    // Tuned twice, it is still so.
    EXPECT_EQ(warning_in(train(small + "--validate-every 1 --from " + at("tuned"))),
              "about 100 % of what is validated on was trained on by " + (directory_ / "tuned").string());
    // Moved to val/, too.
    const std::filesystem::path drawn = directory_ / "drawn";
    for (const char* name : {"cat", "dog"}) {
        std::filesystem::create_directories(drawn / "val" / name);
        for (int i = 0; i < 4; ++i)
            std::filesystem::rename(drawn / name / (std::to_string(i) + ".png"),
                                    drawn / "val" / name / ("v" + std::to_string(i) + ".png"));
        std::filesystem::create_directories(drawn / "train");
        std::filesystem::rename(drawn / name, drawn / "train" / name);
    }
    EXPECT_EQ(warning_in(train(small + "--validate-every 1 --from " + at("all"))), learnt);
}

/// A run of revision 248ad45, which chose by the seed.
TEST_F(HeldOut, ByAnEarlierVersionStaysAndIsSaidOnce) {
    std::filesystem::copy(testing::fixtures + "/pictures_run", directory_ / "old",
                          std::filesystem::copy_options::recursive);
    const std::string resume = "train --quiet --images " + pictures + " --resume " + at("old");
    const std::string said = " is of an earlier version, which held out images by --seed; ";
    const Ran first = run(resume + " --steps 5"), second = run(resume + " --steps 6");
    EXPECT_NE(first.output.find("mantissa: " + (directory_ / "old").string() + said), std::string::npos)
        << first.output;
    EXPECT_NE(second.output.find(", 3 held out for validation"), std::string::npos) << second.output;
    EXPECT_EQ(second.output.find(said), std::string::npos) << second.output;
    EXPECT_EQ(warning_in(second), "");
    // A new run holds out others.
    EXPECT_NE(warning_in(train("--validate-every 1 --batch 8 --images " + pictures + " --from " + at("old"))),
              "");
}

/// A run of revision be3cae47, which took documents from the end of each file; its loss then.
TEST_F(HeldOut, DocumentsOfAnEarlierVersionStay) {
    std::filesystem::copy(MANTISSA_SOURCE_DIR "/tests/fixtures/be3cae47/packed_each", directory_ / "old",
                          std::filesystem::copy_options::recursive);
    const auto resume = [&](int steps) {
        return testing::run_in_shell("MANTISSA_ISA=generic " + testing::program + " train --steps " +
                                     std::to_string(steps) + " --tokens " + testing::fixtures +
                                     "/documents.bin --resume " + at("old"));
    };
    const Ran first = resume(6), second = resume(7);
    EXPECT_NE(first.output.find("validation loss 5.686727 over 4 batches"), std::string::npos)
        << first.output;
    const std::string said = " is of an earlier version, which held out documents at the end of each file; ";
    EXPECT_NE(first.output.find(said), std::string::npos) << first.output;
    EXPECT_EQ(second.output.find(said), std::string::npos) << second.output;
}

class HeldOutText : public HeldOut {
  protected:
    HeldOutText() {
        for (const char name : {'b', 'd'}) write_notes(std::string(1, name) + ".txt", name, 300);
    }
    /// Lines that no other note has.
    void write_notes(const std::string& name, int first, int lines) const {
        std::string text;
        for (int i = 0; i < lines; ++i)
            text += "note " + std::to_string(first * 7919 % 1009 + i * 104729 % 99991) + " of " +
                    std::to_string(first) + "\n";
        write_file(directory_ / "notes" / name, text);
    }
    const std::string text = "--batch 2 --text " + at("notes") + " ";
    const std::string anew = text + "--layers 1 --heads 1 --channels 16 --context 16 --vocabulary 512 ";
};

TEST_F(HeldOutText, MovesOnlyWhereATextIsCutShortOrTheTailIsOfAll) {
    const std::string validate = text + "--validate-every 1 ", by = " was trained on by ";
    EXPECT_EQ(warning_in(train(anew + "--validate-every 1", "ck")), "");
    EXPECT_EQ(warning_in(train(anew + "--validate-every 1 --held-out last", "last")), "");
    EXPECT_EQ(warning_in(train(anew, "all")), "");
    EXPECT_EQ(warning_in(train(validate + "--seed 8 --from " + at("ck"))), "");
    EXPECT_NE(warning_in(train(validate + "--from " + at("all"))).find(by), std::string::npos);
    EXPECT_NE(warning_in(train(validate + "--from " + at("last"))).find(by), std::string::npos);
    // One more in front: each file's end stays, that of all moves.
    write_notes("a.txt", 'a', 300);
    EXPECT_EQ(warning_in(train(validate + "--from " + at("ck"))), "");
    EXPECT_NE(warning_in(train(validate + "--held-out last --from " + at("last"))).find(by),
              std::string::npos);
    // It grows: nothing of its new end was trained on. It loses its end: that was.
    write_notes("d.txt", 'd', 330);
    EXPECT_EQ(warning_in(train(validate + "--from " + at("ck"))), "");
    write_notes("d.txt", 'd', 250);
    EXPECT_NE(warning_in(train(validate + "--from " + at("ck"))).find(by), std::string::npos);
    // Others to validate on.
    EXPECT_NE(warning_in(train("--batch 2 --text " + at("notes/a.txt") + " --validation " +
                               at("notes/b.txt") + " --validate-every 1 --from " + at("all")))
                  .find(by),
              std::string::npos);
}

TEST_F(HeldOutText, OfPackedDocumentsIsChosenByName) {
    for (int i = 0; i < 60; ++i) write_notes("n" + std::to_string(i) + ".txt", i, 8);
    const std::string tokenizer = " --tokenizer " + at("tok"),
                      packed = " --documents packed --validate-every 1 ";
    ASSERT_EQ(run("tokenize --train " + at("notes") + " --vocabulary 300 --out " + at("tok")).status, 0);
    const Ran ran = train(anew + tokenizer + packed, "ck");
    EXPECT_EQ(warning_in(ran), "");
    EXPECT_NE(ran.output.find("\nheld out: "), std::string::npos) << ran.output;
    for (int i = 60; i < 70; ++i) write_notes("a" + std::to_string(i) + ".txt", i, 8);
    EXPECT_EQ(warning_in(train(text + packed + "--seed 3 --from " + at("ck"))), "");
    EXPECT_NE(warning_in(train(text + packed + "--held-out each --from " + at("ck"))), "");
    const Ran joined = run("train --validate-every 1 --held-out name --text " + at("notes"));
    EXPECT_EQ(joined.output,
              "mantissa: --held-out name: joined texts are no documents with names; give each or last, or "
              "--documents packed\n");
}

}  // namespace
}  // namespace mantissa
