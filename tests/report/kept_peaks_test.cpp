// Peaks from file to run: the larger wins, whatever the file holds, and no share exceeds 1.
#include "mantissa/report/kept_peaks.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "mantissa/device/cpu/cpu_device.h"
#include "tests/support/device_around.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

/// A machine of a name, which measures what it is told to.
class MeasuringMachine final : public testing::DeviceAround {
  public:
    explicit MeasuringMachine(Peaks peaks, const std::string& name = "a processor", int threads = 2,
                              const std::string& isa = "amx")
        : DeviceAround(make_cpu_device({.threads = 1})), peaks_(peaks), target_(DeviceAround::target()) {
        target_.name = name;
        target_.threads = threads;
        target_.isa = isa;
        target_.bf16_unit = "amx";
    }
    const Target& target() const override { return target_; }
    Peaks measure_peaks(DeviceMemory&) override {
        ++times;
        return peaks_;
    }

    int times = 0;

  private:
    Peaks peaks_;
    Target target_;
};

Peaks peaks(double f32_fma, double bf16_matrix, double copy = 0) {
    return {.f32_fma = f32_fma, .bf16_matrix = bf16_matrix, .copy = copy};
}

class KeptPeaksInAFile : public ::testing::Test {
  protected:
    std::string text() const {
        std::ifstream stream(file_);
        return {std::istreambuf_iterator<char>(stream), {}};
    }
    void write(const std::string& text) const {
        std::filesystem::create_directories(file_.parent_path());
        std::ofstream(file_) << text;
    }
    /// The fastest peak of a machine whose own measurement says 1 GFLOP/s.
    double known(const std::string& name = "a processor", int threads = 2) const {
        MeasuringMachine machine(peaks(1e9, 0), name, threads);
        return KeptPeaks(machine, file_).peaks().fastest();
    }

    TemporaryDirectory directory_;
    std::filesystem::path file_ = directory_ / "cache" / "mantissa" / "peaks.json";
};

TEST_F(KeptPeaksInAFile, AreMeasuredOnceAndFoundAgain) {
    MeasuringMachine first(peaks(1e11, 2e12, 5e10));
    const KeptPeaks measured(first, file_);
    EXPECT_GT(first.times, 5);  // several rounds
    EXPECT_EQ(measured.peaks().bf16_matrix, 2e12);
    EXPECT_EQ(measured.peaks().copy, 0);  // of a megabyte it says nothing
    EXPECT_EQ(measured.text().find("2.00 TFLOP/s BF16, measured 20"), 0u) << measured.text();
    EXPECT_NE(measured.text().find(", kept in " + file_.string()), std::string::npos) << measured.text();

    MeasuringMachine second(peaks(9e10, 1e12));  // as beside a neighbour
    const KeptPeaks found(second, file_);
    EXPECT_EQ(second.times, 1);
    EXPECT_EQ(found.peaks().f32_fma, 1e11);
    EXPECT_EQ(found.peaks().bf16_matrix, 2e12);
}

TEST_F(KeptPeaksInAFile, ABetterMeasurementReplacesAWorseAndNeverTheOtherWayRound) {
    MeasuringMachine machine(peaks(1e11, 2e12));
    KeptPeaks kept(machine, file_);
    const std::string before = text();
    kept.raise(peaks(5e10, 1e12));
    EXPECT_EQ(text(), before);
    kept.raise(peaks(5e10, 3e12, 4e10));
    EXPECT_EQ(known(), 3e12);
    MeasuringMachine again(peaks(1e9, 1e9));
    EXPECT_EQ(KeptPeaks(again, file_).peaks().copy, 4e10);
    EXPECT_EQ(KeptPeaks(again, file_).peaks().f32_fma, 1e11);
}

TEST_F(KeptPeaksInAFile, WhatAnotherRunKeptMeanwhileStays) {
    MeasuringMachine machine(peaks(1e11, 2e12)), other(peaks(1e11, 5e12));
    KeptPeaks kept(machine, file_);
    const KeptPeaks meanwhile(other, file_);
    kept.raise(peaks(0, 3e12));
    EXPECT_EQ(kept.peaks().bf16_matrix, 5e12);
    EXPECT_EQ(known(), 5e12);
}

TEST_F(KeptPeaksInAFile, EveryLevelHasItsOwn) {
    MeasuringMachine with_tiles(peaks(1e11, 2e12)), without(peaks(4e10, 4e10), "a processor", 2, "avx2");
    const KeptPeaks of_tiles(with_tiles, file_), of_vectors(without, file_);
    EXPECT_EQ(of_vectors.peaks().fastest(), 4e10);
    EXPECT_EQ(known(), 2e12);
}

TEST_F(KeptPeaksInAFile, EveryMachineHasItsOwn) {
    MeasuringMachine machine(peaks(1e11, 2e12)), smaller(peaks(1e10, 2e11), "another processor"),
        half(peaks(5e10, 1e12), "a processor", 1);
    const KeptPeaks of_one(machine, file_), of_another(smaller, file_), of_half(half, file_);
    EXPECT_EQ(of_another.peaks().fastest(), 2e11);
    EXPECT_EQ(known(), 2e12);
    EXPECT_EQ(known("another processor"), 2e11);
    EXPECT_EQ(known("a processor", 1), 1e12);
    EXPECT_EQ(known("a third"), 1e9);
    EXPECT_EQ(nlohmann::json::parse(text())["machines"].size(), 4u);
}

TEST_F(KeptPeaksInAFile, ADamagedFileIsMeasuredAnewAndReplaced) {
    MeasuringMachine machine(peaks(1e11, 2e12));
    { const KeptPeaks kept(machine, file_); }
    const std::string whole = text();
    auto with = [&](const char* member, const nlohmann::json& value) {
        auto json = nlohmann::json::parse(whole);
        json["machines"][0][member] = value;
        return json.dump();
    };
    auto of_other_version = nlohmann::json::parse(whole);
    of_other_version["version"] = 99;
    for (const std::string& damaged :
         {std::string(), std::string("no JSON"), whole.substr(0, whole.size() / 2), std::string("[1, 2]"),
          std::string(R"({"version": 1})"), std::string(R"({"version": 1, "machines": [3, null, {}]})"),
          std::string(R"({"version": "x", "machines": {}})"), of_other_version.dump(),
          with("bf16_matrix", "fast"), with("bf16_matrix", -1), with("bf16_matrix", 1e30),
          with("f32_fma", nullptr), with("f32_fma", 0), with("measured", 7)}) {
        write(damaged);
        EXPECT_EQ(known(), 1e9) << damaged;
        EXPECT_EQ(nlohmann::json::parse(text())["machines"][0]["f32_fma"], 1e9) << damaged;
    }
    write(whole);
    EXPECT_EQ(known(), 2e12);
}

TEST_F(KeptPeaksInAFile, APlaceWhereNothingCanBeWrittenStopsNothing) {
    // A file stands where the folder should be; root may write to what is merely read-only.
    write("");
    MeasuringMachine machine(peaks(1e11, 2e12));
    KeptPeaks kept(machine, file_ / "peaks.json");
    EXPECT_EQ(kept.peaks().fastest(), 2e12);
    EXPECT_EQ(kept.place().find("not kept: "), 0u) << kept.place();
    EXPECT_NE(kept.place().find("peaks.json"), std::string::npos) << kept.place();
    KeptPeaks nowhere(machine, {});
    EXPECT_EQ(nowhere.peaks().fastest(), 2e12);
    EXPECT_EQ(nowhere.place(), "not kept: neither XDG_CACHE_HOME nor HOME names a folder");
    // The file of one process; a proc file cannot be made.
    KeptPeaks in_proc(machine, "/proc/mantissa/peaks.json");
    EXPECT_EQ(in_proc.share_of_fastest(1e12), 0.5);
}

TEST_F(KeptPeaksInAFile, NoShareExceedsOneAndAStepAboveThePeakRaisesIt) {
    MeasuringMachine machine(peaks(1e11, 2e12));
    KeptPeaks kept(machine, file_);
    EXPECT_EQ(kept.share_of_fastest(1e12), 0.5);
    const int before = machine.times;
    EXPECT_EQ(kept.share_of_fastest(3e12), 1);
    EXPECT_EQ(machine.times, before + 1);  // looked at again first
    EXPECT_EQ(kept.peaks().bf16_matrix, 3e12);
    EXPECT_EQ(kept.peaks().f32_fma, 1e11);
    EXPECT_EQ(known(), 3e12);
    // Ten times the peak is no measurement of it.
    EXPECT_EQ(kept.share_of_fastest(3e13), 1);
    const int measured = machine.times;
    EXPECT_EQ(kept.share_of_fastest(1 / 0.0), 1);
    EXPECT_EQ(machine.times, measured);  // which once was enough
    EXPECT_EQ(known(), 3e12);
}

TEST_F(KeptPeaksInAFile, AKeptPeakThatIsTooLowIsMeasuredAgainBeforeAStepCounts) {
    MeasuringMachine slow(peaks(1e9, 0));
    KeptPeaks(slow, file_).raise(peaks(1e9, 0));
    MeasuringMachine machine(peaks(1e11, 2e12));
    KeptPeaks kept(machine, file_);
    EXPECT_EQ(kept.share_of_fastest(1e12), 0.5);
    EXPECT_EQ(known(), 2e12);
}

TEST(PeaksFile, LiesWhereCachesDo) {
    const auto with = [](const char* cache, const char* home) {
        cache ? ::setenv("XDG_CACHE_HOME", cache, 1) : ::unsetenv("XDG_CACHE_HOME");
        home ? ::setenv("HOME", home, 1) : ::unsetenv("HOME");
        return peaks_file().string();
    };
    const char* const before[] = {std::getenv("XDG_CACHE_HOME"), std::getenv("HOME")};
    const std::string cache = before[0] ? before[0] : "", home = before[1] ? before[1] : "";
    EXPECT_EQ(with("/c", "/h"), "/c/mantissa/peaks.json");
    EXPECT_EQ(with(nullptr, "/h"), "/h/.cache/mantissa/peaks.json");
    EXPECT_EQ(with("relative", "/h"), "/h/.cache/mantissa/peaks.json");  // as the specification has it
    EXPECT_EQ(with("", "h"), "");
    EXPECT_EQ(with(nullptr, nullptr), "");
    with(before[0] ? cache.c_str() : nullptr, before[1] ? home.c_str() : nullptr);
}

}  // namespace
}  // namespace mantissa
