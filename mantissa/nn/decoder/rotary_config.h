// Rotary positions in config.json: rope_theta and rope_scaling of transformers 4, rope_parameters of
// transformers 5, for all layers or for each kind of layer.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "mantissa/nn/decoder/family.h"

namespace mantissa::inline v0::nn {

/// Whether read_rotary and write_rotary handle the key, for a family with rotary positions.
bool is_rotary_key(const DecoderFamily& family, std::string_view key);

/// Reads rotary positions into `parts`, with known sizes. Throws UserError as read_decoder_config does.
void read_rotary(const ConfigFile& file, const DecoderFamily& family, Decoder& parts);

void write_rotary(const DecoderFamily& family, const Decoder& parts, nlohmann::ordered_json& config);

}  // namespace mantissa::nn
