// The program as a user meets it: what it says to wrong input, and whether it keeps to the memory that it
// announces.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "mantissa/base/file.h"
#include "mantissa/codegen/compiler.h"
#include "tests/cli/run_program.h"
#include "tests/support/html_page.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

using testing::last_line;
using testing::Ran;
using testing::run;

struct BadInput {
    const char* arguments;
    int status;
    const char* says;  ///< part of its one line
};

TEST(Commands, ModelsAreTakenByTheirOtherNamesToo) {
    for (const char* name : {"gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"}) {
        const Ran ran = run(std::string("explain --batch 1 --sequence 8 --layers 1 --model ") + name);
        EXPECT_EQ(ran.status, 0) << ran.output;
    }
}

TEST(Commands, BadInputGetsOneClearLine) {
    const TemporaryDirectory directory;
    const std::string empty = (directory.path() / "empty.txt").string();
    const std::string binary = (directory.path() / "binary.bin").string();
    std::ofstream{empty};
    std::ofstream(binary) << std::string(5000, '\0');
    const BadInput inputs[] = {
        {"ladder --rungs fp31", 2, "there is no rung 'fp31'; there are: fp32"},
        {"ladder --model gpt3", 2, "there is no model 'gpt3'; there are gpt2-tiny"},
        {"ladder --batch 0", 2, "--batch must be 1 or more, and at most 2147483647, got 0"},
        {"ladder --batch -3", 2, "--batch must be 1 or more, and at most 2147483647, got -3"},
        {"ladder --batch 100000000", 1, "100000000"},
        {"ladder --batch 100000000000000000000", 2, "100000000000000000000 is out of range"},
        {"ladder --model gpt2-tiny --sequence 300", 2,
         "gpt2-tiny has a context of 256 tokens, a sequence of 300 does not fit"},
        {"train --heads 3", 2, "128 channels cannot be shared by 3 heads"},
        {"train --layers 0", 2, "a model's layers must be between 1 and 1000, got 0"},
        {"train --dropout 1", 2, "dropout must lie in [0, 1), got 1"},
        {"train --channels 1048576 --layers 1000", 1,
         "gpt2-1000x1048576 has 13194153972203520 parameters, which with gradients and moments need"},
        {"train --validate-batches -1", 2,
         "--validate-batches must be 0 (all of the held-out text) or more, got -1"},
        {"train --order alphabetical", 2, "--order is random or sequential, got 'alphabetical'"},
        {"train --optimizer adam", 2, "--optimizer is adamw, sgd or muon, got 'adam'"},
        {"train --optimizer sgd --nesterov", 2, "esterov"},
        {"ladder --steps 0", 2, "--steps must be 1 or more, got 0"},
        {"ladder --frobnicate", 2, "--frobnicate"},
        {"ladder --device tpu", 2, "--device tpu: expected cpu or cuda"},
        {"ladder --text /no/such/file.txt", 1, "/no/such/file.txt"},
        {"explain --memory -3", 2, "--memory must be 0 GB (what is available) or more, got -3"},
        {"train --passes differentiate", 2,
         "there is no optional pass 'differentiate'; there are: match_attention, fuse_linear_cross_entropy, "
         "simplify, pad, "
         "lay_out, fuse"},
        {"train --threads -1", 2, "threads"},
        {"train --dump-target sm_80", 2,
         "--dump-target says for which GPU --dump writes kernels: give --dump DIR"},
        {"train --learning-rate -1", 2, "--learning-rate must be 0 or more and finite in FP32, got -1"},
        {"train --learning-rate inf", 2, "--learning-rate must be 0 or more and finite in FP32, got inf"},
        {"train --learning-rate 1e39", 2, "--learning-rate must be 0 or more and finite in FP32, got 1e+39"},
        {"train --weight-decay inf", 2, "weight decay must be 0 or more and finite in FP32, got inf"},
        {"train --clip inf", 2, "clip must be 0 (off), or positive and finite in FP32, got inf"},
        {"train --clip 1e-40", 2, "clip must be 0 (off), or positive and finite in FP32, got 1e-40"},
        {"train --betas 0.9 1.5", 2, "betas must lie in [0, 1), got 1.5"},
        {"train --betas 0.9 0.99999999999", 2, "betas must lie in [0, 1), got 0.99999999999"},
        {"train --accumulate 0", 2, "--accumulate must be 1 or more micro-batches"},
        {"frobnicate", 2,
         "there is no command 'frobnicate'; there are: ladder, train, generate, predict, explain, "
         "lint, peaks, numerics, bench, tokenize"},
        {"lint --model gpt3", 2, "there is no model 'gpt3'; there are gpt2-tiny"},
        {"lint --batch 0", 2, "--batch must be 1 or more, and at most 2147483647, got 0"},
        {"lint --repeats 0", 2, "--repeats must be 1 or more, got 0"},
        {"lint --policy bf17", 2, "bf17"},
        {"lint --sequence 2000", 2, "a sequence of 2000 does not fit"},
        {"lint gpt2-1558m", 2, "gpt2-1558m"},
        {"explain --diff fp32 bf16 --json x.json", 2, "--diff prints a difference and does nothing else"},
        {"explain --trace x.json", 2, "--trace shows times: it needs --roofline"},
        {"explain --threads 8 --nodes", 2, "--threads predicts a step and prints tables: no --nodes"},
        {"explain --threads 2000", 2, "--threads: must be from 1 to 1024 to predict a step, got 2000"},
        {"explain --threads 8 --memory-rate -1", 2, "--memory-rate: must be more than 0 GB/s, got -1"},
        {"explain --threads 8 --roofline --memory-rate 100", 2,
         "--memory-rate is for predicting a step: it needs --threads, without --roofline"},
        {"train --emulate fp7", 2, "there is no format 'fp7' to emulate; there are tf32, bf16, fp16"},
        {"train --emulate mxfp8", 2,
         "mxfp8 is a policy of its own, seen on any machine: give it as the policy"},
        {"numerics --policy bf16", 2, "--policy bf16: give a policy below sixteen bits"},
        {"numerics --tensors rounded.safetensors", 2, "--tensors is for what --policy rounds"},
        {"bench --policy mxfp8", 2, "--policy mxfp8: the convolutions of networks for images stay in bf16"},
        {"train --emulate int8", 2, "there is no format 'int8' to emulate; there are tf32, bf16, fp16"},
        {"train --emulate bf16 --policy bf16", 2, "--emulate rounds what FP32 multiplies"},
        {"numerics converge --policies fp32", 2, "two precisions or more are compared, got 1"},
        {"numerics converge --policies fp32,fp7", 2, "there is no policy 'fp7'"},
        {"numerics converge --tolerance -1", 2, "--tolerance must be 0 or more, got -1"},
        {"numerics converge --seeds 0", 2, "--seeds must be 1 or more, got 0"},
        {"numerics converge --loss-scale 0", 2, "--loss-scale must be above 0, got 0"},
        {"numerics --steps 3 converge", 2,
         "--steps stands before converge, which has options of its own: give it behind"},
        {"peaks --of b17", 2, "there is no accelerator 'b17'; there are: a100, h100, h200"},
        {"peaks --device tpu", 2, "--device tpu: expected cpu or cuda"},
        {"", 2, "subcommand"},
    };
    for (const BadInput& input : inputs) {
        const Ran ran = run(input.arguments);
        EXPECT_EQ(ran.status, input.status) << input.arguments << ": " << ran.output;
        EXPECT_NE(ran.output.find(input.says), std::string::npos) << input.arguments << ": " << ran.output;
        if (std::string(input.says).starts_with("--")) {
            EXPECT_EQ(input.status, 2) << "an option's value is as wrong as an option's name";
        }
        if (input.status == 1) {
            EXPECT_EQ(last_line(ran.output).rfind("mantissa: ", 0), 0u) << ran.output;
        }
    }
    EXPECT_NE(run("train --text " + empty).output.find("empty.txt"), std::string::npos);
    EXPECT_NE(run("train --text " + binary).output.find("binary.bin"), std::string::npos);
    EXPECT_NE(run("train --text " + empty + " --tokens " + empty)
                  .output.find("--text and --tokens exclude one another"),
              std::string::npos);
}

TEST(Commands, AForcedInstructionSetIsTakenOrRefused) {
    const Ran bad =
        run("train --steps 1; MANTISSA_ISA=avx9000 " MANTISSA_BINARY_DIR "/mantissa train --steps 1");
    EXPECT_EQ(bad.status, 1);
    EXPECT_NE(last_line(bad.output).find("avx9000"), std::string::npos) << bad.output;
}

TEST(Commands, LadderPrintsItsTableAndWritesItsJson) {
    if (std::string reason = codegen::Compiler::refusal(); !reason.empty()) GTEST_SKIP() << reason;
    const TemporaryDirectory directory;
    const std::string file = (directory.path() / "ladder.json").string();
    const Ran ran =
        run("ladder --model gpt2-tiny --batch 1 --sequence 64 --steps 8 --repeats 3 --json " + file);
    ASSERT_EQ(ran.status, 0) << ran.output;
    for (const char* part : {"common-licenses", "rung", "fp32", "tokens/s", "kernels of matmul",
                             "no size to pad", "memory planned"})
        EXPECT_NE(ran.output.find(part), std::string::npos) << part << " is missing in\n" << ran.output;
    const auto json = nlohmann::json::parse(std::ifstream(file));
    EXPECT_EQ(json["command"], "ladder");
    EXPECT_EQ(json["model"]["parameters"], 891648);
    EXPECT_GT(json["machine"]["peaks"]["f32_fma_tflops"].get<double>(), 0);
    std::vector<std::string> expected = {"fp32", "bf16", "compiled", "flash", "nice", "loss"};
    // Tiles multiply TF32 faster than vectors do FP32, so its rung is one of the standard ones there.
    if (json["machine"]["isa"] == "amx") expected.insert(expected.begin() + 1, "tf32");
    // Where no unit multiplies BF16 faster, FP32 has its line with all passes.
    if (json["machine"]["bf16_unit"] == "") expected.emplace_back("fp32-all");
    std::vector<std::string> names;
    for (const auto& rung : json["rungs"]) names.push_back(rung["name"]);
    EXPECT_EQ(names, expected);
    for (const auto& rung : json["rungs"]) {
        EXPECT_EQ(rung["losses"].size(), 8u);
        EXPECT_LT(rung["losses"].back(), rung["losses"].front());
        // By itself, and from the rung compiled on with a tail, which AMX leaves at 16 bits.
        const bool fuses = rung["name"] != "fp32" && rung["name"] != "tf32" && rung["name"] != "bf16" &&
                           json["machine"]["isa"] != "amx";
        EXPECT_EQ(rung["kernels"]["matmul"].size(), fuses ? 2u : 1u);
        EXPECT_EQ(rung["kernels"]["linear_cross_entropy"].size(),
                  rung["name"] == "loss" || rung["name"] == "fp32-all" ? 1u : 0u);
        EXPECT_TRUE(rung["padded"].is_array() && rung["padded"].empty()) << "512 is a nice vocabulary";
        for (const char* member : {"ms_per_step", "ms_mad", "tokens_per_second", "speedup", "step_speedup",
                                   "mfu", "share_of_unit_peak", "peak_bytes", "build_ms"})
            EXPECT_TRUE(rung[member].is_number()) << member;
    }
    EXPECT_NE(json["rungs"][0]["losses"], json["rungs"][1]["losses"]);
}

TEST(Commands, TrainWritesItsKernelsForAGpu) {
    if (std::string reason = codegen::Compiler::refusal(); !reason.empty()) GTEST_SKIP() << reason;
    const TemporaryDirectory directory;
    const std::string train = "train --batch 1 --sequence 16 --steps 1 --dump " + directory.path().string();
    const Ran unknown = run(train + " --dump-target sm_12");
    EXPECT_EQ(unknown.status, 1);
    EXPECT_NE(last_line(unknown.output).find("no code can be made for 'sm_12'; known are sm_80"),
              std::string::npos)
        << unknown.output;
    const Ran ran = run(train + " --dump-target sm_90a");
    ASSERT_EQ(ran.status, 0) << ran.output;
    std::ifstream kernel(directory / "fused_0-sm_90a.ptx");
    std::string first;
    std::getline(kernel, first);
    EXPECT_EQ(first, "// fused_0 for sm_90a.");
}

TEST(Commands, LintNamesUglySizesAndWritesItsJson) {
    const TemporaryDirectory directory;
    const std::string file = (directory.path() / "lint.json").string();
    const Ran ran = run("lint --model gpt2-1558m --no-measure --json " + file);
    ASSERT_EQ(ran.status, 0) << ran.output;
    for (const char* part : {"gpt2-1558m, 4 x 1024 tokens a step", "50257    50304  wte.weight",
                             "25       20  h.0.attn and 47 more", "not measured"})
        EXPECT_NE(ran.output.find(part), std::string::npos) << part << " is missing in\n" << ran.output;
    const auto json = nlohmann::json::parse(std::ifstream(file));
    EXPECT_EQ(json["command"], "lint");
    ASSERT_EQ(json["findings"].size(), 2u);
    EXPECT_EQ(json["findings"][1]["is"], 25);
    const Ran measured = run("lint --model gpt2-tiny --sequence 60 --repeats 1");
    EXPECT_NE(measured.output.find("sequence           60       64  h.0.attn and 3 more"), std::string::npos)
        << measured.output;
    EXPECT_NE(measured.output.find("x the work, gain "), std::string::npos) << measured.output;
}

void expect_page(const std::string& file, std::initializer_list<const char*> parts) {
    const std::string page = read_file(file);
    EXPECT_EQ(fault_of_page(page), "");
    for (const char* part : parts)
        EXPECT_NE(page.find(part), std::string::npos) << part << " is missing in " << file;
}

TEST(Commands, PagesAreWrittenWithTheCommandThatWasTyped) {
    const TemporaryDirectory directory;
    const std::string file = (directory.path() / "it's.html").string();
    const std::string html = " --html \"" + file + "\"";
    const Ran ladder = run(
        "ladder --model gpt2-tiny --batch 1 --sequence 32 --steps 2 --repeats 1 --rungs fp32,bf16" + html);
    ASSERT_EQ(ladder.status, 0) << ladder.output;
    expect_page(file, {"from fp32 to", "One A100", "mantissa ladder --model gpt2-tiny --batch 1",
                       "it&#39;\\&#39;&#39;s.html"});
    const Ran explain = run("explain --model gpt2-tiny --batch 1 --sequence 16 --policy bf16" + html);
    ASSERT_EQ(explain.status, 0) << explain.output;
    expect_page(file, {"bf16*bf16+f32", "mantissa explain"});
    EXPECT_EQ(read_file(file).find("Roofline"), std::string::npos);
    const Ran roofline =
        run("explain --roofline --model gpt2-tiny --batch 1 --sequence 16 --policy bf16" + html);
    ASSERT_EQ(roofline.status, 0) << roofline.output;
    expect_page(file, {"bf16*bf16+f32", "Roofline", "<circle", "of roof"});
    const Ran numerics = run("numerics --batch 1 --sequence 16 --steps 1" + html);
    ASSERT_EQ(numerics.status, 0) << numerics.output;
    expect_page(file, {"The loss scale for FP16", "h.3.mlp", "wte.weight", "mantissa numerics"});
    const Ran converge =
        run("numerics converge --batch 1 --sequence 16 --steps 2 --policies fp32,bf16 --emulate tf32" + html);
    ASSERT_EQ(converge.status, 0) << converge.output;
    EXPECT_NE(converge.output.find("emulated tf32"), std::string::npos) << converge.output;
    expect_page(file, {"gpt2-tiny in 3 precisions", "emulated tf32", "mantissa numerics converge"});
}

TEST(Commands, ExplainRanksNamesModelAndSequence) {
    const Ran ran = run("explain --ranks 2 --link 10 --on a100 --model gpt2-tiny --batch 2 --sequence 32");
    EXPECT_EQ(ran.output.find("predicted, not measured: gpt2-tiny, 2 ranks, 2 x 32 tokens each, "), 0u)
        << ran.output;
}

TEST(Commands, ConvergeEndsWithOneWhereAPrecisionDoesNotAgree) {
    const std::string small = "numerics converge --batch 1 --sequence 16 --steps 2 --policies fp32,bf16";
    const Ran agrees = run(small);
    EXPECT_EQ(agrees.status, 0) << agrees.output;
    EXPECT_NE(agrees.output.find("fp32 from the seeds 1337, 1338, 1339 ends at "), std::string::npos)
        << agrees.output;
    EXPECT_NE(agrees.output.find("\nall agree with fp32, by the last step's loss\n"), std::string::npos);
    const Ran differs = run(small + " --tolerance 0");
    EXPECT_EQ(differs.status, 1) << differs.output;
    EXPECT_EQ(last_line(differs.output), "mantissa: not all precisions agree with fp32");
    EXPECT_NE(differs.output.find("bf16 does not agree with fp32, by"), std::string::npos) << differs.output;
}

TEST(Commands, ExplainShowsTheStepThatTrainRuns) {
    const std::string model = " --batch 1 --sequence 64 --policy bf16 ";
    const Ran train = run("train --steps 1" + model), explain = run("explain --model gpt2-tiny" + model);
    ASSERT_EQ(train.status, 0) << train.output;
    ASSERT_EQ(explain.status, 0) << explain.output;
    // state + activations and gradients + inputs, to a tenth of a MB.
    const auto after = [](const std::string& text, const std::string& label) {
        const std::size_t at = text.find(label);
        EXPECT_NE(at, std::string::npos) << label << " is missing in\n" << text;
        return at == std::string::npos ? 0 : std::stod(text.substr(at + label.size()));
    };
    EXPECT_EQ(after(explain.output, "as planned: state "), after(train.output, " MB = "));
    EXPECT_EQ(after(explain.output, "activations and gradients "), after(train.output, " state + "));
    EXPECT_NE(
        explain.output.find("\npasses: match_attention, fuse_linear_cross_entropy, simplify, pad, lay_out"),
        std::string::npos)
        << explain.output;
    const Ran simple = run("explain --passes simplify --model gpt2-tiny" + model);
    EXPECT_GT(after(simple.output, "activations and gradients "),
              after(explain.output, "activations and gradients "));
}

TEST(Commands, TheDifferenceToAPolicyForInferenceIsThatOfInference) {
    const Ran ran = run("explain --model gpt2-tiny --batch 1 --sequence 16 --diff bf16 int8");
    ASSERT_EQ(ran.status, 0) << ran.output;
    EXPECT_NE(ran.output.find(": what bf16 and int8 do differently in a forward pass, for inference\n"),
              std::string::npos)
        << ran.output;
    EXPECT_NE(ran.output.find("quantized_matmul"), std::string::npos) << ran.output;
    for (const char* part : {"backward", "adamw", "layer_norm"})
        EXPECT_EQ(ran.output.find(part), std::string::npos) << part << " is in\n" << ran.output;
}

TEST(Commands, MfuIsOfAKeptPeakAndNeverAboveOne) {
    const TemporaryDirectory directory;
    const std::string file = (directory / "cache/mantissa/peaks.json").string(),
                      report = (directory / "report.json").string();
    const std::string train = "XDG_CACHE_HOME=" + (directory / "cache").string() +
                              " " MANTISSA_BINARY_DIR "/mantissa train --batch 4 --steps 5 --json " + report;
    const auto shares = [&] {
        std::vector<double> mfu;
        for (const auto& step : nlohmann::json::parse(std::ifstream(report))["steps"])
            mfu.push_back(step["mfu"].get<double>());
        return mfu;
    };
    const Ran first = testing::run_in_shell(train);
    ASSERT_EQ(first.status, 0) << first.output;
    EXPECT_NE(first.output.find("LOP/s "), std::string::npos) << first.output;
    EXPECT_NE(first.output.find(", kept in " + file + "\n"), std::string::npos) << first.output;
    auto kept = nlohmann::json::parse(std::ifstream(file));
    ASSERT_EQ(kept["machines"].size(), 1u);
    // A neighbour took all but a hundredth while it was measured.
    for (const char* peak : {"f32_fma", "bf16_matrix"})
        kept["machines"][0][peak] = kept["machines"][0][peak].get<double>() / 100;
    std::ofstream(file) << kept.dump();
    ASSERT_EQ(testing::run_in_shell(train).status, 0);
    for (const double mfu : shares()) EXPECT_LE(mfu, 1);
    EXPECT_GT(nlohmann::json::parse(std::ifstream(file))["machines"][0]["f32_fma"].get<double>(),
              kept["machines"][0]["f32_fma"].get<double>());
    // A peak out of reach is believed: what was kept counts, not what is measured now.
    kept["machines"][0]["f32_fma"] = 1e17;
    std::ofstream(file) << kept.dump();
    ASSERT_EQ(testing::run_in_shell(train).status, 0);
    for (const double mfu : shares()) EXPECT_LT(mfu, 0.01);
}

TEST(Commands, EmulationsSayWhatTheyAre) {
    const Ran train = run("train --batch 1 --sequence 16 --steps 1 --emulate fp16");
    ASSERT_EQ(train.status, 0) << train.output;
    for (const char* part :
         {", emulated fp16, ",
          "operands of contractions are rounded to f16 and multiplied in FP32: its numbers, not its speed"})
        EXPECT_NE(train.output.find(part), std::string::npos) << part << " is missing in " << train.output;
    const Ran explain = run("explain --model gpt2-tiny --emulate tf32 --policy fp32");
    ASSERT_EQ(explain.status, 0) << explain.output;
    for (const char* part : {"policy emulated tf32", "round_to", "emulate tf32: matmul", "f32*f32+f32"})
        EXPECT_NE(explain.output.find(part), std::string::npos)
            << part << " is missing in " << explain.output;
}

TEST(Commands, PoliciesBelowSixteenBitsSayWhatTheyRound) {
    const Ran train = run("train --batch 1 --sequence 16 --steps 1 --policy mxfp4");
    ASSERT_EQ(train.status, 0) << train.output;
    for (const char* part :
         {"policy mxfp4: layers multiply e2m1 in blocks of 32, scales rounded down, as bf16; FP32 sums",
          "policy mxfp4: no operand is a parameter, as in attention: it stays in bf16 (4 places)",
          "policy mxfp4: the head, joined with the loss, stays in bf16 (1 place)"})
        EXPECT_NE(train.output.find(part), std::string::npos) << part << " is missing in " << train.output;
    const Ran explain = run("explain --model gpt2-tiny --policy mxfp8");
    ASSERT_EQ(explain.status, 0) << explain.output;
    for (const char* part :
         {"policy mxfp8", "mxfp8: e4m3 in blocks of 32 along the depth, scale a power of two, rounded up",
          "mxfp8 list: a linear layer's product", "the products of attention stay in bf16"})
        EXPECT_NE(explain.output.find(part), std::string::npos)
            << part << " is missing in " << explain.output;
}

TEST(Commands, NumericsShowsWhatAPolicyLoses) {
    const Ran ran = run("numerics --batch 1 --sequence 16 --steps 1 --policy mxfp4 --quiet");
    ASSERT_EQ(ran.status, 0) << ran.output;
    for (const char* part :
         {"step 1, policy mxfp4: 96 tensors are rounded", "become zero", "saturate", " dB"})
        EXPECT_NE(ran.output.find(part), std::string::npos) << part << " is missing in " << ran.output;
}

TEST(Commands, ForbiddenTf32IsTheFirstThingSaid) {
    for (const char* command :
         {"ladder --model gpt2-tiny --rungs fp32,tf32", "train --policy tf32", "explain --policy tf32"}) {
        const Ran ran = run(
            std::string("--version > /dev/null; NVIDIA_TF32_OVERRIDE=0 " MANTISSA_BINARY_DIR "/mantissa ") +
            command);
        EXPECT_EQ(ran.status, 1);
        EXPECT_EQ(last_line(ran.output),
                  "mantissa: NVIDIA_TF32_OVERRIDE=0 forbids TF32, which the policy tf32 asks for; unset it, "
                  "or use another policy");
    }
}

TEST(Commands, FilesThatCannotBeWrittenAreNamedBeforeTheWork) {
    const TemporaryDirectory directory;
    const std::string folder = directory.path().string(), file = folder + "/file";
    std::ofstream(file) << "x";
    const std::string commands[] = {
        "ladder --json ",
        "train --json ",
        "train --log ",
        "peaks --json ",
        "explain --json ",
        "explain --roofline --html ",
        "numerics --json ",
        "explain --roofline --trace ",
        "generate --prompt x --checkpoint " + folder + " --json ",
        "tokenize --train /usr/share/common-licenses/GPL-2 --out " + folder + "/tok --json "};
    // Obstacles, and what is said of them; the last is a folder where nobody can make a file.
    const std::pair<std::string, std::string> places[] = {
        {folder + "/no/such.json", folder + "/no/such.json: there is no folder " + folder + "/no\n"},
        {file + "/in.json", file + "/in.json: there is no folder " + file + "\n"},
        {folder, "'" + folder + "': that is no file; name one\n"},
        {"/proc/such.json", "/proc/such.json: cannot create: No such file or directory\n"}};
    for (const std::string& command : commands) {
        const std::string option = command.substr(command.rfind("--"));
        for (const auto& [place, says] : places) {
            const Ran ran = run(command + place);
            EXPECT_EQ(ran.status, 2) << command;
            EXPECT_EQ(ran.output, "mantissa: " + option + says);  // one line, and no work before it
        }
    }
    EXPECT_FALSE(std::filesystem::exists(folder + "/tok"));
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);  // no traces
}

TEST(Commands, AStreamCanTakeTheJson) {
    const Ran ran = run("peaks --of a100 --json /dev/stdout | cat");
    const auto json = nlohmann::json::parse(ran.output.substr(ran.output.find("\n{") + 1));
    EXPECT_EQ(json["command"], "peaks");
}

/// The text of standard output alone.
std::string output_of(const std::string& arguments) {
    const TemporaryDirectory directory;
    const std::string file = (directory.path() / "out").string();
    const Ran ran = run(arguments + " 2>/dev/null >" + file + "; echo $?");
    EXPECT_EQ(ran.output, "0\n") << arguments;
    std::ifstream stream(file);
    return {std::istreambuf_iterator<char>(stream), {}};
}

std::vector<nlohmann::json> json_lines_of(const std::string& file) {
    std::vector<nlohmann::json> lines;
    std::ifstream stream(file);
    for (std::string line; std::getline(stream, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
}

TEST(Commands, TrainLogsALineAStepAndGoesOnAfterAResume) {
    const TemporaryDirectory directory;
    const std::string log = (directory.path() / "log.jsonl").string(),
                      checkpoint = (directory.path() / "ckpt").string();
    const std::string train =
        "train --batch 1 --sequence 16 --accumulate 2 --validate-every 2 --sample-every 3 "
        "--prompt Once --save-every 3 --log " +
        log + " --checkpoint " + checkpoint;
    const Ran first = run(train + " --steps 3");
    ASSERT_EQ(first.status, 0) << first.output;
    EXPECT_NE(first.output.find("step     2 | sample | Once"), std::string::npos) << first.output;
    ASSERT_EQ(run(train + " --steps 5 --resume " + checkpoint).status, 0);
    const auto lines = json_lines_of(log);
    ASSERT_EQ(lines.size(), 5u);
    for (std::size_t i = 0; i < lines.size(); ++i) {
        EXPECT_EQ(lines[i]["step"], i);
        EXPECT_TRUE(lines[i]["applied"].get<bool>());
        for (const char* member :
             {"loss", "learning_rate", "gradient_norm", "ms", "tokens_per_second", "mfu"})
            EXPECT_GT(lines[i][member].get<double>(), 0) << member;
        EXPECT_EQ(lines[i].contains("validation_loss"), i % 2 == 1);
        EXPECT_EQ(lines[i].contains("sample"), i == 2);
        EXPECT_FALSE(lines[i].contains("non_finite"));
    }
    ASSERT_EQ(run(train + " --steps 1").status, 0);
    EXPECT_EQ(json_lines_of(log).size(), 1u);  // anew
}

TEST(Commands, AModelOfOnesOwnSizesIsTrainedSavedAndContinued) {
    const TemporaryDirectory directory;
    const std::string checkpoint = (directory.path() / "ckpt").string();
    const std::string train =
        "train --layers 1 --channels 16 --context 32 --vocabulary 256 --no-bias --dropout 0.1 --batch 2 "
        "--steps 2 "
        "--heads ";
    const Ran first = run(train + "2 --checkpoint " + checkpoint);
    ASSERT_EQ(first.status, 0) << first.output;
    EXPECT_NE(first.output.find("gpt2-1x16, 7728 parameters, 2 x 32 tokens a step"), std::string::npos)
        << first.output;
    std::ifstream file(checkpoint + "/config.json");
    const nlohmann::json config = nlohmann::json::parse(file);
    const std::pair<const char*, int> sizes[] = {
        {"n_layer", 1}, {"n_head", 2}, {"n_embd", 16}, {"n_positions", 32}, {"vocab_size", 256}};
    for (const auto& [member, value] : sizes) EXPECT_EQ(config[member], value) << member;
    const Ran continued = run("generate --length 3 --prompt ab --checkpoint " + checkpoint);
    EXPECT_EQ(continued.status, 0) << continued.output;
    const Ran other = run(train + "4 --resume " + checkpoint);
    EXPECT_EQ(other.status, 1);
    EXPECT_NE(other.output.find("it was trained with model.heads = 2, this run has 4; give the same"),
              std::string::npos)
        << other.output;
}

TEST(Commands, TrainFindsOutBeforeItsFirstStepWhatCannotBeDoneAfterIt) {
    const TemporaryDirectory directory;
    const std::string text = (directory.path() / "text.txt").string();
    std::ofstream(text) << std::string(1000, 'x');
    const std::string train = "train --batch 1 --sequence 256 --steps 4 --text " + text;
    const std::pair<std::string, const char*> cases[] = {
        {" --checkpoint /proc/run", "/proc/run: cannot create directory"},
        {" --checkpoint /proc/self/fd", "/proc/self/fd: holds"}};
    for (const auto& [option, says] : cases) {
        const Ran ran = run(train + option);
        EXPECT_EQ(ran.status, last_line(ran.output).starts_with("mantissa: --") ? 2 : 1) << ran.output;
        EXPECT_NE(last_line(ran.output).find(says), std::string::npos) << ran.output;
        EXPECT_EQ(ran.output.find("\nstep "), std::string::npos) << ran.output;
    }
}

TEST(Commands, AResumedRunSaysWhatIsOtherAndSavesWhereItIsTold) {
    const TemporaryDirectory directory;
    const std::string first = (directory.path() / "first").string(),
                      second = (directory.path() / "second").string();
    const std::string train = "train --batch 1 --sequence 16 --steps 2";
    ASSERT_EQ(run(train + " --checkpoint " + first).status, 0);
    const Ran done = run(train + " --resume " + first + " --checkpoint " + second);
    EXPECT_EQ(done.status, 0);
    EXPECT_NE(done.output.find(first + " has made 2 steps; --steps 2 counts from the first"),
              std::string::npos)
        << done.output;
    EXPECT_TRUE(std::filesystem::exists(second + "/manifest.json"));
    // In the same place it lies already.
    EXPECT_EQ(run(train + " --resume " + first + " --checkpoint " + first).output.find("saved"),
              std::string::npos);
    const std::string further = "train --batch 1 --sequence 16 --steps 3 --resume " + first;
    EXPECT_EQ(run(further).output.find("warning"), std::string::npos);
    const Ran other = run(further + " --learning-rate 0.01 --text /usr/share/common-licenses/GPL-2");
    EXPECT_EQ(other.status, 0);
    for (const char* part :
         {"learning_rate = \"0.001 after 20 steps of warm-up\", this run has \"0.01 after ", "tokens = "})
        EXPECT_NE(other.output.find(part), std::string::npos) << other.output;
}

TEST(Commands, APromptThatIsNoUtf8EndsNoTraining) {
    const TemporaryDirectory directory;
    const std::string log = (directory.path() / "log.jsonl").string();
    const Ran ran =
        run("train --batch 1 --sequence 16 --steps 2 --sample-every 1 --prompt $(printf '\\377') "
            "--json /dev/null --log " +
            log);
    EXPECT_EQ(ran.status, 0) << ran.output;
    ASSERT_EQ(json_lines_of(log).size(), 2u);
    EXPECT_EQ(json_lines_of(log)[1]["sample"].get<std::string>().rfind("\xEF\xBF\xBD", 0), 0u);  // U+FFFD
}

TEST(Commands, WhatCouldNotBeWrittenIsNoSuccess) {
    const std::string mantissa = MANTISSA_BINARY_DIR "/mantissa ";
    for (const char* command :
         {"--help", "--version", "peaks --of a100", "explain --model gpt2-tiny --batch 1",
          "train --batch 1 --sequence 16 --steps 1"}) {
        const Ran ran = testing::run_in_shell("(" + mantissa + command + " > /dev/full)");
        EXPECT_EQ(ran.status, 1) << command << ": " << ran.output;
        EXPECT_EQ(last_line(ran.output).rfind("mantissa: ", 0), 0u) << command << ": " << ran.output;
    }
    // Files of 512 bytes x 100 at most: the system says so by a signal, which must not end the program.
    const TemporaryDirectory directory;
    const Ran ran = testing::run_in_shell("(ulimit -f 100; " + mantissa +
                                          "train --batch 1 --sequence 16 --steps 1 --checkpoint " +
                                          (directory.path() / "run").string() + ")");
    EXPECT_EQ(ran.status, 1) << ran.output;
    EXPECT_NE(last_line(ran.output).find("File too large"), std::string::npos) << ran.output;
    EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(Commands, TrainSkipsAndNamesBadStepsAndStopsAfterSeveral) {
    const TemporaryDirectory directory;
    const std::string log = (directory.path() / "log.jsonl").string(),
                      checkpoint = (directory.path() / "ckpt").string();
    // The first update makes weights of 1e38, with which no loss is finite.
    const std::string train = "train --batch 1 --sequence 16 --steps 9 --learning-rate 1e38 --log " + log +
                              " --checkpoint " + checkpoint;
    const Ran stopped = run(train + " --bad-steps 2");
    EXPECT_EQ(stopped.status, 1);
    EXPECT_NE(last_line(stopped.output)
                  .find("stopped after 2 steps in a row that were not finite, with the parameters as before "
                        "them; in the last, "),
              std::string::npos)
        << stopped.output;
    const auto lines = json_lines_of(log);
    ASSERT_EQ(lines.size(), 3u);
    EXPECT_TRUE(lines[0]["applied"].get<bool>());
    for (std::size_t i : {1u, 2u}) {
        EXPECT_FALSE(lines[i]["applied"].get<bool>());
        EXPECT_NE(lines[i]["non_finite"].get<std::string>().find("(forward"), std::string::npos) << lines[i];
    }
    EXPECT_TRUE(std::filesystem::exists(checkpoint + "/manifest.json"));
    const Ran skipped = run(train + " --bad-steps 0");
    EXPECT_EQ(skipped.status, 0) << skipped.output;
    EXPECT_EQ(json_lines_of(log).size(), 9u);
}

TEST(Commands, GenerateContinuesAPromptFromACheckpoint) {
    const TemporaryDirectory directory;
    const std::string checkpoint = (directory.path() / "ckpt").string(),
                      json = (directory.path() / "out.json").string();
    const Ran trained = run("train --batch 2 --steps 2 --checkpoint " + checkpoint);
    ASSERT_EQ(trained.status, 0) << trained.output;
    const std::string generate = "generate --checkpoint " + checkpoint;
    const std::string text = output_of(generate + " --prompt 'The licence' --length 40 --json " + json);
    EXPECT_EQ(text.rfind("The licence", 0), 0u) << text;
    EXPECT_EQ(output_of(generate + " --prompt 'The licence' --length 40 --threads 1"), text);
    EXPECT_NE(output_of(generate + " --prompt 'The licence' --length 40 --seed 7"), text);
    const auto report = nlohmann::json::parse(std::ifstream(json));
    EXPECT_EQ(report["command"], "generate");
    EXPECT_EQ(report["prompt_tokens"], 11);
    EXPECT_EQ(report["tokens"].size(), 40u);
    EXPECT_EQ("The licence" + report["text"].get<std::string>() + "\n", text);
    EXPECT_EQ(report["ended_by"], "length");
    EXPECT_GT(report["tokens_per_second"].get<double>(), 0);
    EXPECT_GT(report["prompt_tokens_per_second"].get<double>(), 0);
    for (const char* policy : {"fp32", "int8", "int4"}) {
        EXPECT_EQ(run(generate + " --prompt x --length 4 --json " + json + " --policy " + policy).status, 0);
        EXPECT_EQ(nlohmann::json::parse(std::ifstream(json))["policy"], policy);
    }
    const std::string long_text = generate + " --prompt x --length 400 --quiet --json " + json;
    const Ran full = run(long_text);
    EXPECT_EQ(full.status, 0) << full.output;
    const auto whole = nlohmann::json::parse(std::ifstream(json));
    EXPECT_EQ(whole["ended_by"], "context");
    EXPECT_EQ(whole["tokens"].size(), 256u);
    EXPECT_EQ(whole["slides"], 0);
    const Ran further = run(long_text + " --full-context slide");
    EXPECT_EQ(further.status, 0) << further.output;
    const auto beyond = nlohmann::json::parse(std::ifstream(json));
    EXPECT_EQ(beyond["ended_by"], "length");
    ASSERT_EQ(beyond["tokens"].size(), 400u);
    EXPECT_EQ(beyond["slides"], 2);  // at 256 tokens, and 128 later
    for (std::size_t i = 0; i < 256; ++i) ASSERT_EQ(beyond["tokens"][i], whole["tokens"][i]) << i;
}

TEST(Commands, GeneratePrintsThePerplexityOfInt8BesideThatOfBf16) {
    const TemporaryDirectory directory;
    const std::string checkpoint = (directory.path() / "ckpt").string(),
                      json = (directory.path() / "out.json").string();
    ASSERT_EQ(run("train --batch 1 --sequence 8 --steps 1 --checkpoint " + checkpoint).status, 0);
    const Ran ran = run("generate --checkpoint " + checkpoint +
                        " --validation /usr/share/common-licenses/BSD --policy int8 --json " + json);
    EXPECT_EQ(ran.status, 0) << ran.output;
    const auto report = nlohmann::json::parse(std::ifstream(json));
    ASSERT_EQ(report["validation"].size(), 2u);
    EXPECT_EQ(report["validation"][0]["policy"], "int8");
    EXPECT_EQ(report["validation"][1]["policy"], "bf16");
    for (const auto& each : report["validation"]) EXPECT_GT(each["perplexity"].get<double>(), 1);
    EXPECT_NE(ran.output.find(" under bf16: "), std::string::npos) << ran.output;
    EXPECT_NE(output_of("explain --model gpt2-tiny --batch 1 --policy int8").find("s8*s8+s32"),
              std::string::npos);
}

TEST(Commands, GenerateNamesBadInputInOneLine) {
    const TemporaryDirectory directory;
    const std::string checkpoint = (directory.path() / "ckpt").string();
    ASSERT_EQ(run("train --batch 1 --steps 1 --checkpoint " + checkpoint).status, 0);
    const std::string large = (directory.path() / "large").string();
    ASSERT_EQ(run("tokenize --train /usr/share/common-licenses/GPL-2 --vocabulary 600 --out " + large).status,
              0);
    const std::string generate = "generate --checkpoint " + checkpoint + " ";
    const BadInput inputs[] = {
        {"generate --prompt x", 2, "--checkpoint DIR is missing"},
        {"generate --prompt x --checkpoint /no/such", 1, "/no/such: does not exist"},
        {"generate --prompt x --checkpoint /usr", 1, "/usr: holds no model"},
        {"train --steps 1 --policy int8", 2, "--policy int8 is for inference only"},
    };
    for (const BadInput& input : inputs) {
        const Ran ran = run(input.arguments);
        EXPECT_EQ(ran.status, input.status) << ran.output;
        EXPECT_NE(last_line(ran.output).find(input.says), std::string::npos) << ran.output;
    }
    const std::pair<std::string, const char*> options[] = {
        {"", "--prompt TEXT is missing"},
        {"--prompt ''", "--prompt TEXT is missing"},
        {"--prompt x --top-k 0", "--top-k must be 1 or more tokens, got 0"},
        {"--prompt x --top-k -2", "--top-k must be 1 or more tokens, got -2"},
        {"--prompt x --temperature -1",
         "the temperature must be 0 (always the likeliest token) or more, got -1"},
        {"--prompt x --temperature nan", "the temperature must be 0"},
        {"--prompt x --length 0", "--length must be 1 token or more, got 0"},
        {"--prompt x --tokenizer /no/such", "/no/such"},
        {"--prompt x --policy int5", "there is no policy 'int5'"},
        {"--validation /no/such", "/no/such"},
        {"--prompt x --tokenizer " + large, "has 600 tokens, the vocabulary of gpt2-tiny only 512"},
        {"--prompt '" + std::string(257, 'a') + "'",
         "the prompt has 257 tokens, gpt2-tiny has a context of 256; give a shorter prompt"},
    };
    for (const auto& [given, says] : options) {
        const Ran ran = run(generate + given);
        EXPECT_EQ(ran.status, ran.output.starts_with("mantissa: --") ? 2 : 1) << given << ": " << ran.output;
        EXPECT_EQ(ran.output.rfind("mantissa: ", 0), 0u) << given << ": " << ran.output;
        EXPECT_NE(ran.output.find(says), std::string::npos) << given << ": " << ran.output;
        EXPECT_EQ(std::count(ran.output.begin(), ran.output.end(), '\n'), 1) << ran.output;
    }
}

/// Some seconds for each format; peaks of an emulated GPU are printed and written likewise.
TEST(CommandsSlow, PeaksMeasuresThisMachine) {
    const TemporaryDirectory directory;
    const std::string file = (directory.path() / "peaks.json").string();
    const Ran ran = run("peaks --threads 1 --json " + file);
    ASSERT_EQ(ran.status, 0) << ran.output;
    EXPECT_NE(ran.output.find("s8*s8+s32"), std::string::npos) << ran.output;
    const auto json = nlohmann::json::parse(std::ifstream(file));
    EXPECT_EQ(json["command"], "peaks");
    EXPECT_EQ(json["matrix"].size(), 9u);
    for (const auto& mode : json["matrix"]) {
        EXPECT_TRUE(mode["sparse_tflops"].is_null()) << mode;
        if (mode["inputs"] == "s8" || mode["inputs"] == "f64") {
            EXPECT_GT(mode["measured_tflops"].get<double>(), 0) << mode;
            EXPECT_GT(mode["dense_tflops"].get<double>(), 0) << mode;
        }
    }
    EXPECT_TRUE(json["memory_gbs"].is_null());
    EXPECT_GT(json["memory_measured_gbs"].get<double>(), 0);
}

/// The number of megabytes after `label`.
double megabytes_after(const std::string& output, const std::string& label) {
    const std::size_t at = output.find(label);
    EXPECT_NE(at, std::string::npos) << label << " is missing in\n" << output;
    return at == std::string::npos ? 0 : std::stod(output.substr(at + label.size()));
}

TEST(Commands, ResidentMemoryIsWithinFivePercentOfThePlan) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "under a sanitizer: it holds memory of its own";
#endif
    const Ran ran = run("train --steps 2");
    ASSERT_EQ(ran.status, 0) << ran.output;
    const double planned = megabytes_after(ran.output, "memory planned: ");
    const double measured = megabytes_after(ran.output, "memory at most: ");
    EXPECT_LE(std::abs(measured - planned), 0.05 * planned) << ran.output;
}

}  // namespace
}  // namespace mantissa
