// The rows of all families, one file each, and keys that several of them share.
#pragma once

#include "mantissa/nn/decoder/family.h"

namespace mantissa::inline v0::nn {

const DecoderFamily& mistral_family();
const DecoderFamily& qwen2_family();
const DecoderFamily& qwen3_family();
const DecoderFamily& gpt_neox_family();
const DecoderFamily& opt_family();
const DecoderFamily& gemma_family();
const DecoderFamily& gemma2_family();
const DecoderFamily& gemma3_family();
const DecoderFamily& phi_family();
const DecoderFamily& phi3_family();
const DecoderFamily& smollm3_family();
const DecoderFamily& granite_family();
const DecoderFamily& olmo2_family();
const DecoderFamily& starcoder2_family();

/// "attention_bias" of most families.
inline ConfigKey::Flags biases_of_attention() { return {&Decoder::bias_qkv, &Decoder::bias_output}; }

}  // namespace mantissa::nn
