// The parts that go on when a run is resumed: its logs and pages, and the recipe that it began with.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "mantissa/base/checksum.h"
#include "mantissa/base/file.h"
#include "mantissa/train/checkpoint.h"
#include "tests/cli/run_program.h"
#include "tests/support/html_page.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

namespace fs = std::filesystem;
using testing::Ran;
using testing::run;

const std::string train_one_layer = "train --batch 1 --sequence 16 --layers 1 --threads 1 ";

/// The steps of a log, in its order.
std::string steps_in(const fs::path& log) {
    std::istringstream lines(read_file(log));
    std::string steps;
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("{\"step\":")) line.erase(0, 8);
        steps += line.substr(0, line.find(',')) + " ";
    }
    return steps;
}

/// In each line of a log without what is measured: step and loss.
std::string losses_in(const fs::path& log) {
    std::istringstream lines(read_file(log));
    std::string losses;
    for (std::string line; std::getline(lines, line);)
        losses += line.substr(0, line.find(',', line.find(',') + 1)) + "\n";
    return losses;
}

std::size_t event_files_in(const fs::path& place) {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(place), fs::directory_iterator()));
}

TEST(TrainReports, GoOnOverTwoResumesWithoutHolesAndRepetitions) {
    for (const std::string kind : {"csv", "jsonl"}) {
        const TemporaryDirectory directory;
        const std::string place = directory / "ck", log = directory / ("log." + kind),
                          page = directory / "p.html", events = directory / "tb",
                          whole = directory / ("whole." + kind);
        const std::string reports = "--log " + log + " --html " + page + " --tensorboard " + events;
        ASSERT_EQ(run(train_one_layer + "--steps 9 --log " + whole).status, 0);
        ASSERT_EQ(
            run(train_one_layer + "--steps 5 --save-every 3 --checkpoint " + place + " " + reports).status,
            0);
        // As after a stop by force: steps 3 and 4 were logged, and are not in the checkpoint.
        fs::remove_all(place);
        fs::rename(place + ".previous", place);
        const Ran first = run("train --steps 7 --resume " + place);
        ASSERT_EQ(first.status, 0) << first.output;
        EXPECT_NE(first.output.find(log + ": 2 lines of step 3 and later went"), std::string::npos)
            << first.output;
        const Ran second = run("train --steps 9 --resume " + place);
        ASSERT_EQ(second.status, 0) << second.output;
        EXPECT_EQ(steps_in(log), kind == "csv" ? "step 0 1 2 3 4 5 6 7 8 " : "0 1 2 3 4 5 6 7 8 ");
        EXPECT_EQ(losses_in(log), losses_in(whole));
        const std::string shown = read_file(page);
        EXPECT_EQ(fault_of_page(shown), "");
        for (int step = 0; step < 9; ++step)
            EXPECT_NE(shown.find("<title>loss, step " + std::to_string(step) + ": "), std::string::npos)
                << step;
        EXPECT_NE(shown.find("9 of 9 steps are done, "), std::string::npos);
        EXPECT_EQ(event_files_in(events), 3u);
        EXPECT_EQ((first.output + second.output).find("not continued"), std::string::npos);
    }
}

TEST(TrainReports, OfARunThatSavesElsewhereStayAsTheyAre) {
    const TemporaryDirectory directory;
    const std::string place = directory / "ck", log = directory / "log.csv";
    ASSERT_EQ(run(train_one_layer + "--steps 4 --checkpoint " + place + " --log " + log).status, 0);
    const std::string before = read_file(log);
    const Ran ran =
        run("train --steps 6 --resume " + place + " --checkpoint " + std::string(directory / "other"));
    ASSERT_EQ(ran.status, 0) << ran.output;
    EXPECT_EQ(read_file(log), before);
    EXPECT_NE(ran.output.find("mantissa: not continued: --log " + log + " (the run saves elsewhere)\n"),
              std::string::npos)
        << ran.output;
}

/// A file that is no log of such a run is neither cut nor added to.
TEST(TrainReports, ALogThatIsNoneOfTheRunIsLeftAsItIs) {
    const TemporaryDirectory directory;
    const std::string place = directory / "ck", table = directory / "data.csv", notes = directory / "notes";
    ASSERT_EQ(run(train_one_layer + "--steps 1 --checkpoint " + place).status, 0);
    const std::string rows = "x,y\n1,2\n3,4\n", lines = "5 apples\n6,7\n";
    std::ofstream(table) << rows;
    std::ofstream(notes) << lines;
    const Ran ran = run("train --steps 2 --resume " + place + " --log " + table);
    EXPECT_EQ(ran.status, 2) << ran.output;
    EXPECT_NE(ran.output.find("mantissa: --log " + table +
                              ": begins with other columns than this run's, step,loss,"),
              std::string::npos)
        << ran.output;
    EXPECT_EQ(read_file(table), rows);
    ASSERT_EQ(run("train --steps 2 --resume " + place + " --log " + notes).status, 0);
    EXPECT_EQ(read_file(notes).find(lines + "{\"step\":1,"), 0u) << read_file(notes);
}

TEST(TrainReports, ThatCannotBeWrittenAnyMoreAreNamedAndStopNothing) {
    const TemporaryDirectory directory;
    const std::string place = directory / "ck", folder = directory / "logs";
    fs::create_directory(folder);
    ASSERT_EQ(run(train_one_layer + "--steps 2 --checkpoint " + place + " --log " + folder + "/l.csv").status,
              0);
    fs::remove_all(folder);
    const Ran ran = run("train --steps 3 --resume " + place);
    EXPECT_EQ(ran.status, 0) << ran.output;
    EXPECT_NE(ran.output.find("not continued: --log " + folder + "/l.csv ("), std::string::npos)
        << ran.output;
    EXPECT_NE(ran.output.find("there is no folder " + folder), std::string::npos) << ran.output;
}

TEST(TrainReports, APageThatTheCheckpointKnowsNothingOfIsNotReplaced) {
    const TemporaryDirectory directory;
    const std::string place = directory / "ck", page = directory / "p.html";
    ASSERT_EQ(run(train_one_layer + "--steps 2 --checkpoint " + place).status, 0);
    std::ofstream(page) << "the page of before";
    const Ran ran = run("train --steps 3 --resume " + place + " --html " + page);
    EXPECT_EQ(ran.status, 0) << ran.output;
    EXPECT_EQ(read_file(page + ".before-2"), "the page of before");
    EXPECT_NE(ran.output.find("keeps no curves of the steps before 2; the page as it was is now " + page +
                              ".before-2"),
              std::string::npos)
        << ran.output;
    EXPECT_NE(read_file(page).find("3 of 3 steps are done (1 of them on this page)"), std::string::npos);
}

/// As a checkpoint was written when neither warm-up nor clipping was the default.
void forget_recipe(const fs::path& checkpoint) {
    auto state = nlohmann::ordered_json::parse(read_file(checkpoint / "state.json"));
    for (const char* option : {"--warmup", "--clip"}) ASSERT_EQ(state["options"].erase(option), 1u);
    const std::string text = state.dump(2) + "\n";
    std::ofstream(checkpoint / "state.json", std::ios::binary) << text;
    Manifest manifest = parse_manifest(read_file(checkpoint / "manifest.json"), "manifest.json");
    manifest["state.json"].bytes = text.size();
    manifest["state.json"].checksum = checksum_of(std::as_bytes(std::span(text)));
    std::ofstream(checkpoint / "manifest.json", std::ios::binary) << manifest_text(manifest);
}

TEST(TrainReports, ARunGoesOnWithTheRecipeThatItBeganWith) {
    const TemporaryDirectory directory;
    const std::string place = directory / "ck", other = directory / "other", log = directory / "l.csv",
                      whole = directory / "w.csv";
    const std::string without = train_one_layer + "--warmup 0 --clip 0 ";
    ASSERT_EQ(run(without + "--steps 6 --log " + whole).status, 0);
    ASSERT_EQ(run(without + "--steps 3 --checkpoint " + place + " --log " + log).status, 0);
    forget_recipe(place);
    const Ran old = run("train --steps 6 --resume " + place);
    ASSERT_EQ(old.status, 0) << old.output;
    EXPECT_EQ(old.output.find("warning"), std::string::npos) << old.output;
    EXPECT_EQ(losses_in(log), losses_in(whole));
    // A new run remembers the defaults that it began with.
    ASSERT_EQ(run(train_one_layer + "--steps 1 --checkpoint " + other).status, 0);
    const auto options = nlohmann::json::parse(read_file(fs::path(other) / "state.json"))["options"];
    EXPECT_EQ(options["--warmup"], nlohmann::json({"20"}));
    EXPECT_EQ(options["--clip"], nlohmann::json({"1"}));
    ASSERT_EQ(run(train_one_layer + "--steps 1 --optimizer sgd --checkpoint " + other).status, 0);
    EXPECT_EQ(nlohmann::json::parse(read_file(fs::path(other) / "state.json"))["options"]["--clip"],
              nlohmann::json({"0"}));
}

TEST(TrainReports, APageOnAFullDiskSaysWhatItNeeds) {
    const SmallDisk disk(16 << 10);
    if (!disk.mounted()) GTEST_SKIP() << "no right to mount";
    const std::string page = disk.path() / "p.html";
    std::ofstream(disk.path() / "full") << std::string(16 << 10, 'x');
    const Ran ran = run(train_one_layer + "--steps 1 --html " + page);
    EXPECT_EQ(ran.status, 1) << ran.output;
    EXPECT_EQ(ran.output.find(" 0 bytes needed"), std::string::npos) << ran.output;
    EXPECT_NE(ran.output.find("not enough disk space: "), std::string::npos) << ran.output;
}

}  // namespace
}  // namespace mantissa
