// A small text model, trained by all given processes: one alone, or several by mpirun -n 2 several_ranks.
// Then the first generates a text with the saved model.
#include <cstdio>
#include <string>

#include "mantissa/mantissa.h"

constexpr std::int64_t T = 32;

int main() {
    mantissa::RankGroup ranks;
    const auto text_model = mantissa::nn::language_model(
        "gpt2-tiny", {.layers = 1, .heads = 2, .channels = 64, .context = T, .vocabulary = 256});
    const mantissa::TrainerOptions options{.batch = 8, .policy = "bf16", .ranks = ranks};
    mantissa::Trainer trainer(ranks.cpu(), text_model.on_sequences(T), options);
    std::vector<std::int32_t> bytes;
    while (bytes.size() < 20000)
        for (const char c : std::string("the quick brown fox jumps over the lazy dog; ")) bytes.push_back(c);
    const mantissa::TokenStream stream(bytes);
    const mantissa::TextWindows windows(stream, stream.all(), T, options.batches());
    for (int step = 0; step < 100; ++step) {
        const float loss = trainer.step(windows, 3e-3).loss;
        if (step % 20 == 0 && ranks.rank() == 0)
            std::printf("step %2d  loss %.4f on %d ranks\n", step, static_cast<double>(loss), ranks.size());
    }
    trainer.save("ranks.ckpt");
    if (ranks.rank() > 0) return 0;
    mantissa::Generator generator(mantissa::cpu(), "ranks.ckpt", {.tokenizer = "bytes"});
    const std::string text = generator.text("the quick ", {.sampling = {.temperature = 0}, .length = 9});
    std::printf("the quick %s\n", text.c_str());
    return text == "brown fox" ? 0 : 1;
}
