// Rotary positions in config.json: rope_theta and rope_scaling as transformers 4 writes them, rope_parameters
// of transformers 5, and the same for each kind of layer.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "mantissa/nn/decoder/family.h"

namespace mantissa::inline v0::nn {

/// Whether it is one of the keys that the next two read and write, for a family that turns.
bool is_rotary_key(const DecoderFamily& family, std::string_view key);

/// Reads them into `parts`, whose other sizes are known. Throws UserError as read_decoder_config.
void read_rotary(const ConfigFile& file, const DecoderFamily& family, Decoder& parts);

void write_rotary(const DecoderFamily& family, const Decoder& parts, nlohmann::ordered_json& config);

}  // namespace mantissa::nn
