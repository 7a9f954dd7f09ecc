// Every report as a call on a network of one's own, with its page and its JSON.
#include "mantissa/report/reports.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "mantissa/base/file.h"
#include "mantissa/device/devices.h"
#include "tests/support/own_models.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

constexpr std::int64_t batch = 16;

/// The demands on each report: text and page that name the model, and JSON of that command.
void expect_whole(const report::Report& made, const std::string& command, const std::string& in_text) {
    const TemporaryDirectory directory;
    made.write_page(directory / "page.html");
    made.write_json(directory / "report.json");
    EXPECT_NE(made.text.find(in_text), std::string::npos) << made.text;
    EXPECT_EQ(read_file(directory / "page.html"), made.page);
    EXPECT_TRUE(made.page.starts_with("<!doctype html>")) << made.page.substr(0, 40);
    EXPECT_NE(made.page.find("report::"), std::string::npos) << "which call made it";
    const auto json = nlohmann::json::parse(read_file(directory / "report.json"));
    EXPECT_EQ(json.at("command"), command);
    EXPECT_THROW(made.write_page(directory / "no such folder" / "page.html"), UserError);
}

TEST(Reports, PlanOfAStep) {
    const report::Options options{.trainer = {.batch = batch, .policy = "bf16"}};
    expect_whole(report::explain(cpu(), image_mlp(), options), "explain", "mlp at 16 images, policy bf16");
    expect_whole(report::lint(cpu(), image_mlp(), {.trainer = {.batch = batch}, .repeats = 0}), "lint",
                 "mlp, 16 images a step, fp32");
}

TEST(Reports, RunsOfAStep) {
    const nn::Model model = image_mlp();
    const Examples source = batches_of_images(model, {.batch = batch});
    const report::Options few{.trainer = {.batch = batch}, .steps = 2, .repeats = 1};
    expect_whole(report::roofline(cpu(), model, source, few), "explain", "mlp");
    expect_whole(report::numerics(cpu(), model, source, few), "numerics", "mlp");
    report::Options two = few;
    two.names = {"fp32", "bf16"};
    expect_whole(report::ladder(cpu(), model, source, two), "ladder", "mlp");
    expect_whole(report::converge(cpu(), model, source, two), "numerics converge", "fp32");
    two.names = {"fp31"};
    EXPECT_THROW(report::ladder(cpu(), model, source, two), UserError);
}

}  // namespace
}  // namespace mantissa
