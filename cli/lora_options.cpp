#include "cli/lora_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

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

}  // namespace

void add_lora_options(CLI::App& command, LoraArguments& arguments) {
    begin_section(command, section);
    command
        .add_option("--lora", arguments.rank,
                    "Train adapters of this rank beside linear layers (LoRA); all weights are frozen, and "
                    "kept once in the format of --policy")
        ->type_name("RANK");
    command
        .add_option("--lora-alpha", arguments.alpha,
                    "Adapters are scaled by this over their rank (default: the rank)")
        ->type_name("ALPHA");
    command.add_option("--lora-dropout", arguments.dropout, "Dropout of what adapters read (default: 0)")
        ->type_name("RATE");
    command
        .add_option("--lora-on", arguments.on,
                    "Layers with adapters: patterns of names with commas between, as *.attn.* (default: all "
                    "linear layers but the head)")
        ->delimiter(',')
        ->type_name("PATTERN");
    command.add_flag("--lora-rank-stabilized", arguments.rank_stabilized,
                     "Scale adapters by alpha over the root of their rank (rsLoRA)");
    command.add_flag("--lora-magnitudes", arguments.magnitudes,
                     "Train the norm of each output's weights, too, and adapters for their direction (DoRA)");
}

void add_adapter_options(CLI::App& command, LoraArguments& arguments) {
    begin_section(command, section);
    command
        .add_option("--adapter", arguments.adapter,
                    "Begin with these adapters, in place of --lora: a folder that train --lora or PEFT wrote")
        ->type_name("DIR");
    command
        .add_option("--merge", arguments.merge,
                    "At the end, write the whole model here, too, with its adapters added in FP32")
        ->type_name("DIR");
}

std::optional<nn::LoraOptions> lora_of(const RunOptions& options) {
    const LoraArguments& given = options.lora;
    const std::pair<bool, const char*> companions[] = {
        {given.alpha.has_value(), "--lora-alpha"}, {given.dropout.has_value(), "--lora-dropout"},
        {!given.on.empty(), "--lora-on"},          {given.rank_stabilized, "--lora-rank-stabilized"},
        {given.magnitudes, "--lora-magnitudes"},   {!given.merge.empty(), "--merge"}};
    if (!given.given()) {
        for (const auto& [is_given, name] : companions)
            if (is_given) throw UserError(fmt::format("{} belongs to --lora: give a rank, such as 16", name));
        return {};
    }
    if (nn::is_image_model(options.model))
        throw UserError(
            "--lora: on the command line, adapters are for language models, and this is a network for "
            "images; "
            "--freeze trunk trains its head alone");
    if (given.adapter.empty()) {
        nn::LoraOptions lora{.rank = *given.rank,
                             .alpha = given.alpha,
                             .dropout = given.dropout.value_or(0),
                             .rank_stabilized = given.rank_stabilized,
                             .magnitudes = given.magnitudes,
                             .layers = given.on};
        nn::validate(lora);
        return lora;
    }
    if (given.rank || given.alpha || !given.on.empty() || given.rank_stabilized || given.magnitudes)
        throw UserError(
            "--adapter: its files say ranks, scales and layers; leave out --lora and what belongs to it");
    nn::LoraOptions lora = folder_of(options).options();
    lora.dropout = given.dropout.value_or(0);
    nn::validate(lora);
    return lora;
}

void begin_with_adapters(const RunOptions& options, StateBlock& state) {
    if (!options.lora.adapter.empty()) folder_of(options).load(state);
}

}  // namespace mantissa::cli
