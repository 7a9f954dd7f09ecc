#include "cli/names_elsewhere.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "cli/command_line.h"

namespace mantissa::cli {

namespace {

struct OldOption {
    std::string_view before, today;
};
constexpr std::array<OldOption, 4> options = {
    {{"simulate", "emulate"}, {"deviation", "std"}, {"bad-pictures", "bad-images"}, {"pictures", "images"}}};

struct OldWord {
    std::string_view option, before, today;
};
constexpr std::array<OldWord, 2> values = {
    {{"augment", "mirror", "flip"}, {"passes", "chunk_loss", "fuse_linear_cross_entropy"}}};

}  // namespace

std::string option_today(std::string_view name) {
    const auto old = std::ranges::find(options, name, &OldOption::before);
    return std::string(old == options.end() ? name : old->today);
}

std::string value_today(std::string_view option, std::string_view value) {
    if (std::ranges::find(values, option, &OldWord::option) == values.end()) return std::string(value);
    std::vector<std::string> words = split_at(',', value);
    for (std::string& word : words)
        for (const OldWord& old : values)
            if (old.option == option && old.before == word) word = old.today;
    return fmt::format("{}", fmt::join(words, ","));
}

std::vector<std::string> words_today(const std::vector<std::string>& words) {
    std::vector<std::string> today;
    std::string option;  // the option of the following values
    for (const std::string& word : words) {
        if (!word.starts_with("--")) {
            today.push_back(value_today(option, word));
            continue;
        }
        const std::size_t equals = word.find('=');
        option = option_today(std::string_view(word).substr(2, equals == word.npos ? word.npos : equals - 2));
        today.push_back("--" + option);
        if (equals != word.npos) today.back() += "=" + value_today(option, word.substr(equals + 1));
    }
    return today;
}

namespace {

const std::vector<NamesElsewhere> table = {
    {{"lr", "max-lr", "learning-rate-max", "base-lr"}, {"--learning-rate"}},
    {{"min-lr", "lr-min", "eta-min", "lr-scheduler-type", "lr-scheduler", "scheduler", "lr-decay"},
     {"--min-learning-rate"},
     "a cosine falls to it by the last step"},
    {{"max-steps", "max-iters", "max-iter", "iters", "iterations", "num-steps", "n-steps", "train-steps",
      "total-steps", "num-iterations"},
     {"--steps", "--num-iters"}},
    {{"epochs", "epoch", "num-epochs", "n-epochs", "max-epochs", "num-train-epochs"},
     {"--steps"},
     "training is counted in steps; an epoch is so many as the batches of the data"},
    {{"batch-size", "bs", "train-batch-size", "micro-batch-size", "per-device-train-batch-size",
      "device-batch-size", "eval-batch-size"},
     {"--batch", "--batch-size"}},
    {{"batch"}, {"--batch-size"}},
    {{"gradient-accumulation-steps", "grad-accum", "grad-accum-steps", "accumulation-steps",
      "accumulate-grad-batches"},
     {"--accumulate"}},
    {{"wd", "decay"}, {"--weight-decay"}},
    {{"warmup-steps", "warmup-iters", "num-warmup-steps", "lr-warmup-steps"}, {"--warmup"}},
    {{"grad-clip", "clip-grad", "clip-grad-norm", "max-grad-norm", "max-norm", "gradient-clip-val",
      "gradient-clipping"},
     {"--clip"}},
    {{"optim"}, {"--optimizer"}},
    {{"split-special-tokens", "encode-special-tokens", "allowed-special", "parse-special"},
     {"--special-tokens"},
     "text reads them letter by letter"},
    {{"beta1", "beta2", "adam-beta1", "adam-beta2"},
     {"--betas"},
     "both stand behind it, as --betas 0.9 0.95"},
    {{"seq-len", "seq-length", "sequence-length", "max-seq-len", "max-seq-length", "block-size", "ctx",
      "n-ctx", "context-length", "context-size", "max-length"},
     {"--sequence", "--length"}},
    {{"max-new-tokens", "max-tokens", "num-tokens", "n-tokens", "n-predict"}, {"--length"}},
    {{"n-layer", "n-layers", "num-layers", "num-hidden-layers", "depth"}, {"--layers"}},
    {{"n-head", "n-heads", "num-heads", "num-attention-heads"}, {"--heads"}},
    {{"n-embd", "n-embed", "hidden-size", "d-model", "dim", "embed-dim", "hidden-dim", "width"},
     {"--channels"}},
    {{"vocab-size", "vocab"}, {"--vocabulary"}},
    {{"num-classes", "n-classes"}, {"--classes"}},
    {{"img-size", "imgsz", "input-size", "resolution"}, {"--image-size"}},
    {{"dtype", "torch-dtype", "precision", "mixed-precision", "amp", "autocast", "half", "fp16", "bf16",
      "fp32", "tf32", "float16", "bfloat16"},
     {"--policy"},
     "with fp32, tf32, bf16 or fp16 behind it"},
    {{"data", "dataset", "data-dir", "data-path", "train-file", "train-data", "input", "input-file", "corpus",
      "files"},
     {"--text"},
     "--chats takes chats, --tokens token shards, and --images images, where the command has them"},
    {{"val-file", "validation-file", "val-data", "eval-data", "eval-file"},
     {"--validation", "--validate-every"}},
    {{"eval-interval", "eval-steps", "eval-every", "eval-freq", "val-interval", "val-every",
      "val-check-interval"},
     {"--validate-every"}},
    {{"eval-iters", "eval-batches", "val-batches", "limit-val-batches"}, {"--validate-batches"}},
    {{"log-interval", "logging-steps", "log-every", "print-freq", "print-interval"}, {"--print-every"}},
    {{"log-file", "log-dir", "logdir"}, {"--log"}, "--tensorboard takes a folder, --html a page"},
    {{"output-dir", "out-dir", "output", "save-dir", "save", "ckpt-dir", "checkpoint-dir",
      "default-root-dir"},
     {"--checkpoint", "--out"}},
    {{"save-steps", "save-interval", "save-freq", "checkpoint-every", "ckpt-every"}, {"--save-every"}},
    {{"resume-from", "resume-from-checkpoint", "ckpt-path", "load-checkpoint"}, {"--resume", "--checkpoint"}},
    {{"model-name-or-path", "model-name", "model-path", "pretrained", "init-from", "weights", "load", "ckpt"},
     {"--from", "--checkpoint"},
     "a folder with model.safetensors; nothing is fetched from elsewhere"},
    {{"tokenizer-path", "tokenizer-name", "tokenizer-file"}, {"--tokenizer"}},
    {{"num-workers", "workers", "n-workers", "dataloader-num-workers"}, {"--read-threads", "--threads"}},
    {{"num-threads", "n-threads", "nthreads", "jobs", "cpus", "num-cpus"}, {"--threads"}},
    {{"gpu", "gpus", "cuda", "cpu", "accelerator"}, {"--device"}, "with cpu or cuda behind it"},
    {{"compile", "torch-compile"}, {"--passes"}, "every step is compiled; this chooses the passes"},
    {{"gradient-checkpointing", "activation-checkpointing", "checkpoint-activations"},
     {"--recompute"},
     "with what is computed again behind it, as block"},
    {{"temp"}, {"--temperature"}},
    {{"topk"}, {"--top-k"}},
    {{"topp", "nucleus"}, {"--top-p"}},
    {{"minp"}, {"--min-p"}},
    {{"repeat-penalty", "rep-pen", "frequency-penalty", "presence-penalty"}, {"--repetition-penalty"}},
    {{"num-samples", "num-return-sequences", "n-samples"}, {"--samples"}},
    {{"start", "text-prompt", "input-text"}, {"--prompt"}},
    {{"eos", "stop-words", "stop-sequences", "stop-strings"}, {"--stop"}},
};

/// The name without leading hyphens, in small letters, with hyphens for underscores.
std::string plain_name(std::string_view word) {
    std::string name(word.substr(std::min(word.find_first_not_of('-'), word.size())));
    for (char& c : name) c = c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return name;
}

}  // namespace

std::span<const NamesElsewhere> names_elsewhere() { return table; }

std::string what_to_type(const std::vector<std::string>& options, std::string_view word) {
    const auto has = [&](std::string_view option) {
        return std::ranges::find(options, option) != options.end();
    };
    const std::string name = plain_name(word);
    if (has("--" + name)) return did_you_mean(options, "--" + name);
    for (const NamesElsewhere& row : table) {
        if (std::ranges::find(row.names, name) == row.names.end()) continue;
        const auto option = std::ranges::find_if(row.options, has);
        if (option == row.options.end()) continue;
        return row.remark.empty() ? fmt::format("; did you mean {}?", *option)
                                  : fmt::format("; did you mean {} ({})?", *option, row.remark);
    }
    return did_you_mean(options, "--" + name);
}

}  // namespace mantissa::cli
