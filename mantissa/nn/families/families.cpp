#include "mantissa/nn/families/families.h"

namespace mantissa::inline v0::nn {

std::span<const DecoderFamily* const> decoder_families() {
    static const DecoderFamily* const all[] = {
        &gpt2_family(),    &llama_family(),    &mistral_family(), &qwen2_family(),
        &qwen3_family(),   &gpt_neox_family(), &opt_family(),     &gemma_family(),
        &gemma2_family(),  &gemma3_family(),   &phi_family(),     &phi3_family(),
        &smollm3_family(), &granite_family(),  &olmo2_family(),   &starcoder2_family()};
    return all;
}

}  // namespace mantissa::nn
