// `mantissa tokenize`: trains a byte-level BPE tokenizer, or encodes, decodes and counts text with one.
#pragma once

namespace CLI {
class App;
}

namespace mantissa::cli {

/// Registers the subcommand, which runs in its callback and throws UserError.
void add_tokenize_command(CLI::App& app);

}  // namespace mantissa::cli
