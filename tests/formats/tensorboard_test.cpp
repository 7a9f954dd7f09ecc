// Event files, read back by a reader of the test's own.
#include "mantissa/formats/tensorboard.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <ctime>

#include "tests/support/error_of.h"
#include "tests/support/event_file.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

using testing::error_of;
using testing::event_file_in;
using testing::events_of;
using testing::Message;
using testing::values_of;

TEST(Tensorboard, AFileBeginsWithItsVersionAndFromWhereItCounts) {
    const TemporaryDirectory directory;
    const EventFile file(directory / "runs" / "a", 300);
    const std::string name = event_file_in(directory / "runs" / "a").filename();
    EXPECT_EQ(file.path().filename(), name);
    EXPECT_EQ(name.rfind("events.out.tfevents.", 0), 0u) << name;
    EXPECT_EQ(name.substr(name.rfind('.') + 1), std::to_string(::getpid()));
    const std::vector<Message> events = events_of(file.path());
    ASSERT_EQ(events.size(), 2u);
    EXPECT_EQ(events[0].bytes(3), "brain.Event:2");
    EXPECT_NEAR(events[0].as<double>(1), static_cast<double>(std::time(nullptr)), 60);
    EXPECT_EQ(events[1].as<std::int64_t>(2), 300);
    EXPECT_EQ(events[1].message(7).as<std::int64_t>(1), 1);  // START
}

TEST(Tensorboard, AStepIsThereAsSoonAsItIsWritten) {
    const TemporaryDirectory directory;
    EventFile file(directory.path(), 0);
    for (std::int64_t step : {0, 1, 200, 1000000}) {
        file.add_scalar("loss/training", 0.5 + static_cast<double>(step));
        file.add_scalar("speed/mfu", NAN);
        file.write(step);
        const Message event = events_of(file.path()).back();
        EXPECT_EQ(event.as<std::int64_t>(2), step);
        EXPECT_EQ(event.message(5).all(1).size(), 2u);
        ASSERT_EQ(values_of(event, "loss/training").size(), 1u);
        EXPECT_EQ(values_of(event, "loss/training")[0].as<float>(2), static_cast<float>(step) + 0.5f);
        EXPECT_TRUE(std::isnan(values_of(event, "speed/mfu")[0].as<float>(2)));
    }
}

TEST(Tensorboard, AHistogramHoldsItsNumbersDividedByTheScale) {
    const TemporaryDirectory directory;
    EventFile file(directory.path(), 0);
    ValueHistogram numbers;
    numbers.add(std::vector<float>{-8, -1, 0, 0, 1, 16, INFINITY});
    file.add_histogram("gradients/wte.weight", numbers, 4);
    file.write(7);
    const Message histogram =
        values_of(events_of(file.path()).back(), "gradients/wte.weight").at(0).message(5);
    EXPECT_EQ(histogram.as<double>(1), -2);
    EXPECT_EQ(histogram.as<double>(2), 4);
    EXPECT_EQ(histogram.as<double>(3), 6);
    EXPECT_EQ(histogram.as<double>(4), 2);
    EXPECT_EQ(histogram.as<double>(5), (64 + 1 + 1 + 256) / 16.0);
    const std::vector<double> limits = histogram.doubles(6), counts = histogram.doubles(7);
    ASSERT_EQ(limits.size(), counts.size());
    double total = 0;
    for (std::size_t i = 0; i < limits.size(); ++i) {
        total += counts[i];
        if (i > 0) {
            EXPECT_LT(limits[i - 1], limits[i]);
        }
    }
    EXPECT_EQ(total, 6);
    EXPECT_GE(limits.back(), 4);
}

TEST(Tensorboard, ATextIsATensorForItsDashboard) {
    const TemporaryDirectory directory;
    EventFile file(directory.path(), 0);
    const std::string text(300, 'x');  // its length takes two bytes
    file.add_text("sample", text);
    file.write(0);
    const Message value = values_of(events_of(file.path()).back(), "sample").at(0);
    EXPECT_EQ(value.message(8).as<std::int64_t>(1), 7);  // DT_STRING
    EXPECT_EQ(value.message(8).message(2).message(2).as<std::int64_t>(1), 1);
    EXPECT_EQ(value.message(8).bytes(8), text);
    EXPECT_EQ(value.message(9).message(1).bytes(1), "text");
}

TEST(Tensorboard, TheReaderOfThisTestSeesADamagedBit) {
    const TemporaryDirectory directory;
    EventFile file(directory.path(), 0);
    file.add_scalar("loss", 1);
    file.write(0);
    const auto size = static_cast<std::int64_t>(std::filesystem::file_size(file.path()));
    for (const std::int64_t at : {size - 6, std::int64_t{9}, std::int64_t{3}}) {
        std::fstream damaged(file.path(), std::ios::in | std::ios::out | std::ios::binary);
        damaged.seekg(at);
        const auto byte = static_cast<char>(damaged.get());
        damaged.seekp(at);
        damaged.put(static_cast<char>(byte ^ 4)).flush();
        EXPECT_THROW(events_of(file.path()), std::runtime_error) << at;
        damaged.seekp(at);
        damaged.put(byte).flush();
        EXPECT_NO_THROW(events_of(file.path()));
    }
}

TEST(Tensorboard, APlaceThatIsNoneIsNamed) {
    const TemporaryDirectory directory;
    const std::string file = directory / "file";
    std::ofstream(file) << "x";
    for (const std::string& place : {file, file + "/below"}) {
        EXPECT_EQ(error_of([&] { require_event_directory(place); }),
                  "'" + place + "': " + file + " is no folder; name one for the event files");
        EXPECT_EQ(error_of([&] { EventFile(place, 0); }), place + ": cannot be made: Not a directory");
    }
    EXPECT_EQ(error_of([] { require_event_directory(""); }),
              "'': that is no folder; name one for the event files");
    require_event_directory(directory / "new" / "one");
    EXPECT_FALSE(std::filesystem::exists(directory / "new"));  // it only asked
}

TEST(Tensorboard, AFullDiskIsAnError) {
    const SmallDisk disk(64 << 10);
    if (!disk.mounted()) GTEST_SKIP() << "no right to mount";
    EventFile file(disk.path(), 0);
    file.add_text("sample", std::string(100 << 10, 'x'));
    EXPECT_EQ(error_of([&] { file.write(0); }),
              file.path().string() + ": cannot be written: No space left on device");
}

}  // namespace
}  // namespace mantissa
