// Encoding, decoding and training speed of the tokenizer. By default it reads the text and GPT-2's tokenizer
// from MANTISSA_TEST_DATA (the folder with tinyshakespeare.txt and gpt2/); MANTISSA_BENCH_TEXT names a text
// to train on.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cstdlib>

#include "mantissa/base/error.h"
#include "mantissa/data/text_file.h"
#include "mantissa/data/tokenizer_files.h"
#include "mantissa/data/tokenizer_train.h"

namespace {

using namespace mantissa;

std::filesystem::path data_folder() {
    const char* folder = std::getenv("MANTISSA_TEST_DATA");
    if (!folder)
        throw UserError("set MANTISSA_TEST_DATA to the folder that holds tinyshakespeare.txt and gpt2/");
    return folder;
}

void skip(benchmark::State& state, const UserError& error) { state.SkipWithError(error.what()); }

/// Encodes on one core, with an empty cache of pieces at the start of each run.
void encode(benchmark::State& state) try {
    const TextFile text(data_folder() / "tinyshakespeare.txt");
    const Tokenizer tokenizer = load_tokenizer(data_folder() / "gpt2");
    std::size_t tokens = 0;
    for (auto _ : state) tokens = tokenizer.encode(text.text()).size();
    state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(text.text().size()));
    state.counters["tokens"] = static_cast<double>(tokens);
} catch (const UserError& error) {
    skip(state, error);
}
BENCHMARK(encode)->Unit(benchmark::kMillisecond);

void decode(benchmark::State& state) try {
    const TextFile text(data_folder() / "tinyshakespeare.txt");
    const Tokenizer tokenizer = load_tokenizer(data_folder() / "gpt2");
    const auto ids = tokenizer.encode(text.text());
    for (auto _ : state) benchmark::DoNotOptimize(tokenizer.decode(ids));
    state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(text.text().size()));
} catch (const UserError& error) {
    skip(state, error);
}
BENCHMARK(decode)->Unit(benchmark::kMillisecond);

/// A megabyte without a place to split: the worst case of the merges.
void encode_one_long_piece(benchmark::State& state) try {
    const Tokenizer tokenizer = load_tokenizer(data_folder() / "gpt2");
    std::string text;
    while (text.size() < (1u << 20)) text += "abracadabra";
    for (auto _ : state) benchmark::DoNotOptimize(tokenizer.encode(text));
    state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(text.size()));
} catch (const UserError& error) {
    skip(state, error);
}
BENCHMARK(encode_one_long_piece)->Unit(benchmark::kMillisecond);

void load(benchmark::State& state) try {
    for (auto _ : state) benchmark::DoNotOptimize(load_tokenizer(data_folder() / "gpt2"));
} catch (const UserError& error) {
    skip(state, error);
}
BENCHMARK(load)->Unit(benchmark::kMillisecond);

/// 50,257 tokens on two threads.
void train(benchmark::State& state) try {
    const char* path = std::getenv("MANTISSA_BENCH_TEXT");
    if (!path) throw UserError("set MANTISSA_BENCH_TEXT to a text of about 10 MB to train on");
    const std::vector<std::filesystem::path> texts = {path};
    ThreadPool pool(2);
    const auto quiet = [](const TrainProgress&) {};
    std::size_t pieces = 0;
    for (auto _ : state) {
        const PieceCounts counts = count_pieces(texts, pool, quiet);
        pieces = counts.size();
        benchmark::DoNotOptimize(train_tokenizer(counts, 50257, quiet));
    }
    state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(std::filesystem::file_size(path)));
    state.counters["pieces"] = static_cast<double>(pieces);
} catch (const UserError& error) {
    skip(state, error);
}
BENCHMARK(train)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
