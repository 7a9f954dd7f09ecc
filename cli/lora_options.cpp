#include "cli/lora_options.h"

#include "cli/command_line.h"
#include "cli/run_options.h"
#include "mantissa/base/error.h"
#include "mantissa/nn/lora.h"
#include "mantissa/train/adapter_files.h"

namespace mantissa::cli {

namespace {

constexpr const char* section = "Adapters";

AdapterFolder folder_of(const RunOptions& options) {
    return {options.lora.adapter, nn::files_of(language_model(options).on_sequences(1))};
}

Layout trunk_of(const LoraArguments& given) {
    if (given.trunk.empty()) return Layout::row_major;
    return in_option("--trunk", [&] { return nn::trunk_named(given.trunk); });
}

}  // namespace

void add_lora_options(Command& command, LoraArguments& arguments) {
    const Company lora{{"--lora", "--adapter"}, "belongs to --lora: give a rank, such as 16"};
    command.add(
        section,
        {Row("--lora", &arguments.rank,
             "Train adapters of this rank beside linear layers (LoRA); all weights are frozen, and "
             "kept once in the format of --policy",
             {.type = "RANK"}),
         Row("--lora-alpha", &arguments.alpha,
             "Adapters are scaled by this over their rank (default: the rank)",
             {.type = "ALPHA", .beside = lora}),
         Row("--lora-dropout", &arguments.dropout, "Dropout of what adapters read (default: 0)",
             {.type = "RATE", .beside = lora}),
         Row("--lora-on", &arguments.on,
             "Layers with adapters: patterns of names with commas between, as *.attn.* (default: all "
             "linear layers but the head)",
             {.type = "PATTERN", .commas = true, .beside = lora}),
         Row("--trunk", &arguments.trunk,
             "Keep frozen weights of linear layers but the head in nf4, int4 or int8, to be widened as "
             "they are multiplied (default: as --policy stores)",
             {.type = "FORMAT", .words = {"nf4", "int4", "int8"}, .beside = lora}),
         Row("--lora-rank-stabilized", &arguments.rank_stabilized,
             "Scale adapters by alpha over the root of their rank (rsLoRA)", {.beside = lora}),
         Row("--lora-magnitudes", &arguments.magnitudes,
             "Train the norm of each output's weights, too, and adapters for their direction (DoRA)",
             {.beside = lora})});
}

void add_adapter_options(Command& command, LoraArguments& arguments) {
    command.add(
        section,
        {Row("--adapter", &arguments.adapter,
             "Begin with these adapters, in place of --lora: a folder that train --lora or PEFT wrote",
             {.type = "DIR", .is_path = true, .is_read = true}),
         Row("--merge", &arguments.merge,
             "At the end, write the whole model here, too, with its adapters added in FP32",
             {.type = "DIR",
              .beside = {{"--lora", "--adapter"}, "belongs to --lora: give a rank, such as 16"},
              .kept = Kept::nothing})});
}

std::optional<nn::LoraOptions> lora_of(const RunOptions& options) {
    const LoraArguments& given = options.lora;
    if (!given.given()) return {};
    if (nn::is_image_model(options.model))
        throw UserError(
            "--lora: on the command line, adapters are for language models, and this is a network for "
            "images; --freeze trunk trains its head alone");
    if (given.adapter.empty()) {
        nn::LoraOptions lora{.rank = *given.rank,
                             .alpha = given.alpha,
                             .dropout = given.dropout.value_or(0),
                             .rank_stabilized = given.rank_stabilized,
                             .magnitudes = given.magnitudes,
                             .layers = given.on,
                             .trunk = trunk_of(given)};
        nn::validate(lora);
        return lora;
    }
    if (given.rank || given.alpha || !given.on.empty() || given.rank_stabilized || given.magnitudes)
        throw UserError(
            "--adapter: its files say ranks, scales and layers; leave out --lora and what belongs to it");
    nn::LoraOptions lora = folder_of(options).options();
    lora.dropout = given.dropout.value_or(0);
    lora.trunk = trunk_of(given);
    nn::validate(lora);
    return lora;
}

void begin_with_adapters(const RunOptions& options, StateBlock& state) {
    if (!options.lora.adapter.empty()) folder_of(options).load(state);
}

}  // namespace mantissa::cli
