// The peaks of the known accelerators against what their makers print, and the table and the JSON of peaks.
#include "mantissa/report/peaks.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "mantissa/base/error.h"

namespace mantissa {
namespace {

using nlohmann::json;

json computed(const std::string& accelerator) {
    return json::parse(peaks_json(accelerator_peaks(accelerator)));
}

constexpr double none = 0;

/// A datasheet rounds to three digits, which is up to half a percent.
void expect_figure(const json& got, double expected, const std::string& what) {
    if (expected == none) {
        EXPECT_TRUE(got.is_null()) << what << ": " << got;
        return;
    }
    ASSERT_TRUE(got.is_number()) << what << ": " << got;
    EXPECT_NEAR(got.get<double>(), expected, 0.005 * expected) << what;
}

struct MatrixFigure {
    const char* inputs;
    const char* accumulator;
    double dense, sparse;
};

void expect_matrix(const std::string& accelerator, const std::vector<MatrixFigure>& figures) {
    const json got = computed(accelerator)["matrix"];
    ASSERT_EQ(got.size(), figures.size());
    for (std::size_t i = 0; i < figures.size(); ++i) {
        EXPECT_EQ(got[i]["inputs"], figures[i].inputs);
        EXPECT_EQ(got[i]["accumulator"], figures[i].accumulator);
        expect_figure(got[i]["dense_tflops"], figures[i].dense, accelerator + " " + figures[i].inputs);
        expect_figure(got[i]["sparse_tflops"], figures[i].sparse, accelerator + " " + figures[i].inputs);
        expect_figure(got[i]["measured_tflops"], none, accelerator);
    }
}

void expect_vectors(const std::string& accelerator, const std::map<std::string, double>& figures) {
    const json got = computed(accelerator)["vector"];
    EXPECT_EQ(got.size(), figures.size());
    for (const json& entry : got) {
        const auto format = entry["format"].get<std::string>();
        ASSERT_TRUE(figures.contains(format)) << format;
        expect_figure(entry["tflops"], figures.at(format), accelerator + " vectors of " + format);
        expect_figure(entry["measured_tflops"], none, accelerator);
    }
}

TEST(PeaksOfAccelerators, TheA100sAreItsDatasheets) {
    expect_matrix("a100", {{"f64", "f64", 19.5, none},
                           {"tf32", "f32", 156, 312},
                           {"f16", "f32", 312, 624},
                           {"f16", "f16", 312, 624},
                           {"bf16", "f32", 312, 624},
                           {"s8", "s32", 624, 1248},
                           {"s4", "s32", 1248, 2496},
                           {"b1", "s32", 4992, none}});
    expect_vectors("a100", {{"f64", 9.7}, {"f32", 19.5}, {"bf16", 39}, {"f16", 78}, {"s32", 19.5}});
    const json got = computed("a100");
    expect_figure(got["memory_gbs"], 2039, "memory");
    expect_figure(got["memory_measured_gbs"], none, "memory");
    EXPECT_EQ(got["command"], "peaks");
    EXPECT_EQ(got["device"], "NVIDIA A100 SXM 80 GB");
}

TEST(PeaksOfAccelerators, TheH100sAndH200sAreTheirDatasheets) {
    for (const char* name : {"h100", "h200"}) {
        expect_matrix(name, {{"f64", "f64", 66.9, none},
                             {"tf32", "f32", 494.7, 989.4},
                             {"f16", "f32", 989.4, 1978.9},
                             {"f16", "f16", 989.4, 1978.9},
                             {"bf16", "f32", 989.4, 1978.9},
                             {"e4m3", "f32", 1978.9, 3957.8},
                             {"e5m2", "f32", 1978.9, 3957.8},
                             {"s8", "s32", 1978.9, 3957.8},
                             {"s4", "s32", none, none},
                             {"b1", "s32", none, none}});
        expect_vectors(name, {{"f64", 33.5}, {"f32", 66.9}, {"bf16", 133.8}, {"f16", 133.8}, {"s32", 33.5}});
    }
    expect_figure(computed("h100")["memory_gbs"], 3350, "memory");
    expect_figure(computed("h200")["memory_gbs"], 4800, "memory");
}

TEST(PeaksOfAccelerators, TheB200sAreItsDatasheets) {
    expect_matrix("b200", {{"f64", "f64", 37.5, none},
                           {"tf32", "f32", 1125, 2250},
                           {"f16", "f32", 2250, 4500},
                           {"f16", "f16", 2250, 4500},
                           {"bf16", "f32", 2250, 4500},
                           {"e4m3", "f32", 4500, 9000},
                           {"e5m2", "f32", 4500, 9000},
                           {"e3m2", "f32", 4500, 9000},
                           {"e2m3", "f32", 4500, 9000},
                           {"e2m1", "f32", 9000, 18000},
                           {"s8", "s32", 4500, 9000},
                           {"s4", "s32", none, none},
                           {"b1", "s32", none, none}});
    expect_vectors("b200", {{"f64", 37.5}, {"f32", 75}, {"bf16", 150}, {"f16", 150}, {"s32", 37.5}});
    expect_figure(computed("b200")["memory_gbs"], 8000, "memory");
}

TEST(PeaksOfAccelerators, AnUnknownOneIsRefusedByName) {
    try {
        accelerator_peaks("b17");
        FAIL() << "accepted";
    } catch (const UserError& error) {
        EXPECT_STREQ(error.what(), "there is no accelerator 'b17'; there are: a100, h100, h200, b200");
    }
}

TEST(PeaksTable, ShowsOnlyColumnsOfWhichSomethingIsKnown) {
    const std::string computed = peaks_table(accelerator_peaks("a100"));
    EXPECT_NE(computed.find("tf32*tf32+f32        155.9       311.9\n"), std::string::npos) << computed;
    EXPECT_NE(computed.find("b1*b1+s32           4989.9           -\n"), std::string::npos) << computed;
    EXPECT_EQ(computed.find("measured"), std::string::npos) << computed;

    FormatPeaks peaks{.device = "a machine"};
    peaks.matrix = {
        {.inputs = "s8", .accumulator = "s32", .dense = 2e12, .measured = 1.5e12, .by = "vpdpbusd"}};
    peaks.l1_measured = 1e11;
    const std::string measured = peaks_table(peaks);
    EXPECT_NE(measured.find("s8*s8+s32        2.000     1.500   75 %  vpdpbusd\n"), std::string::npos)
        << measured;
    EXPECT_EQ(measured.find("sparse"), std::string::npos) << measured;
    EXPECT_EQ(measured.find("whole"), std::string::npos) << measured;
    EXPECT_NE(measured.find("L1, reading, all cores, measured      100.0 GB/s\n"), std::string::npos)
        << measured;

    peaks.matrix[0].whole = 1.25e12;
    peaks.matrix[0].whole_sparse = 1.125e12;
    const std::string whole = peaks_table(peaks);
    EXPECT_NE(whole.find("measured  share  whole  whole 2:4  by\n"), std::string::npos) << whole;
    EXPECT_NE(whole.find("s8*s8+s32        2.000     1.500   75 %  1.250      1.125  vpdpbusd\n"),
              std::string::npos)
        << whole;
    const json written = json::parse(peaks_json(peaks))["matrix"][0];
    EXPECT_EQ(written["whole_tflops"], 1.25);
    EXPECT_EQ(written["whole_sparse_tflops"], 1.125);
}

}  // namespace
}  // namespace mantissa
