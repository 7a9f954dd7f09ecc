"""Hugging Face's families from their configurations: 2 layers, hidden 64, 4 heads, vocabulary 99, labels inside."""
import torch

_SIZES = dict(
    vocab_size=99, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    intermediate_size=128, max_position_embeddings=64, n_embd=64, n_layer=2, n_head=4, n_positions=64, n_ctx=64,
    d_model=64, n_heads=4, n_layers=2, max_seq_len=64, ffn_dim=128, word_embed_proj_dim=64, n_inner=128, rotary_dim=8,
    multi_query=True, attention_heads=4, num_layers=2, hidden_dropout=0.0, attention_dropout=0.0,
    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    dropout=0.0, activation_dropout=0.0, classifier_dropout=0.0, summary_last_dropout=0.0, dropout_rate=0.0,
    layerdrop=0.0, encoder_layerdrop=0.0, decoder_layerdrop=0.0, use_cache=False, pad_token_id=1, bos_token_id=0,
    eos_token_id=2, embedding_size=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
    decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128, d_ff=128, d_kv=16, num_heads=4,
    num_labels=3, decoder_start_token_id=0)


def _config(name, **options):
    """The configuration of a model class, with those of the sizes that it knows."""
    import transformers
    kind = getattr(transformers, name).config_class
    known = kind().to_dict()
    sizes = {key: value for key, value in _SIZES.items() if key in known or key in getattr(kind, "attribute_map", {})}
    mapped = set(getattr(kind, "attribute_map", {}).values()) & set(sizes)
    sizes = {key: value for key, value in sizes.items()
             if not (key in getattr(kind, "attribute_map", {}) and kind.attribute_map[key] in mapped)}
    config = kind(**dict(sizes, num_labels=3, **options))
    config.decoder_start_token_id = 0
    config.problem_type = "single_label_classification"
    return config


def _of(name, inputs, **options):
    def make():
        import transformers
        config = _config(name, **options)
        torch.manual_seed(torch.initial_seed() % 2**31)
        model = getattr(transformers, name)(config).train()
        return model, None, inputs(config)
    return make


def _ids(config, low=3):
    return torch.randint(low, 99, (2, 16))


def _language(config):
    ids = _ids(config)
    return {"input_ids": ids, "labels": ids.clone()}


def _masked(config):
    labels = _ids(config)
    labels[:, ::3] = -100
    return {"input_ids": _ids(config), "labels": labels}


def _classes(config):
    return {"input_ids": _ids(config), "labels": torch.tensor([1, 2])}


def _tokens(config):
    return {"input_ids": _ids(config), "labels": torch.randint(0, 3, (2, 16))}


def _boxes(config):
    corner = torch.randint(0, 400, (2, 16, 2))
    return dict(_tokens(config), bbox=torch.cat([corner, corner + 50], -1))


def _replaced(config):
    return {"input_ids": _ids(config), "labels": torch.randint(0, 2, (2, 16))}


def _both(config):
    return {"input_ids": _ids(config), "labels": _ids(config)}


def _picture(size, classes=3):
    return lambda config: {"pixel_values": torch.randn(2, 3, size, size), "labels": torch.tensor([1, 2])}


def _segments(config):
    return {"pixel_values": torch.randn(2, 3, 64, 64), "labels": torch.randint(0, 3, (2, 64, 64))}


def _sound(config):
    return {"input_values": torch.randn(2, 4000), "labels": torch.tensor([1, 2])}


def _mel(config):
    return {"input_features": torch.randn(2, 80, 60), "labels": _ids(config)}


def _clip():
    import transformers
    text = dict(vocab_size=99, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
                max_position_embeddings=32, eos_token_id=2, pad_token_id=1, bos_token_id=0, projection_dim=32)
    vision = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, image_size=32,
                  patch_size=8, projection_dim=32)
    config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=32)
    model = transformers.CLIPModel(config).train()
    ids = torch.randint(3, 90, (2, 16))
    ids[:, -1] = 2

    class WithLoss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.clip = model

        def forward(self, input_ids, pixel_values):
            return self.clip(input_ids=input_ids, pixel_values=pixel_values, return_loss=True)

    return WithLoss(), None, {"input_ids": ids, "pixel_values": torch.randn(2, 3, 32, 32)}


def _pairs(name, **options):
    """An encoder tuned on pairs: the mean of what it makes of each text's tokens, the other pairs as negatives."""
    def make():
        import transformers
        config = _config(name, **options)
        tower = getattr(transformers, name)(config).train()

        class Pairs(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.tower = tower

            def embedded(self, ids, mask):
                made = self.tower(input_ids=ids, attention_mask=mask).last_hidden_state
                mean = (made * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
                return torch.nn.functional.normalize(mean, dim=-1)

            def forward(self, ids, mask, other_ids, other_mask):
                return self.embedded(ids, mask) @ self.embedded(other_ids, other_mask).T

        def texts(*lengths):
            mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
            return torch.randint(3, 99, mask.shape) * mask + (1 - mask), mask

        return (Pairs(), lambda scores: torch.nn.functional.cross_entropy(scores * 20, torch.arange(len(scores))),
                (*texts(9, 16, 1, 5), *texts(24, 3, 8, 7)), dict(inputs=4))
    return make


def cases():
    made = {}
    for name, options in {
            "GPT2LMHeadModel": {}, "LlamaForCausalLM": {}, "MistralForCausalLM": dict(sliding_window=8),
            "MixtralForCausalLM": dict(num_local_experts=4, num_experts_per_tok=2), "Qwen2ForCausalLM": {},
            "Qwen3ForCausalLM": dict(head_dim=16), "OlmoForCausalLM": {}, "Olmo2ForCausalLM": {},
            "StableLmForCausalLM": {}, "FalconForCausalLM": {}, "BloomForCausalLM": {}, "MptForCausalLM": {},
            "OPTForCausalLM": {}, "GPTJForCausalLM": {}, "GPTBigCodeForCausalLM": {}, "CodeGenForCausalLM": {},
            "Starcoder2ForCausalLM": {}, "CohereForCausalLM": {}, "GraniteForCausalLM": {}, "XGLMForCausalLM": {},
            "BertLMHeadModel": dict(is_decoder=True), "RobertaForCausalLM": dict(is_decoder=True)}.items():
        made[name] = _of(name, _language, **options)
    for name in ("BertForMaskedLM", "RobertaForMaskedLM", "AlbertForMaskedLM", "MPNetForMaskedLM", "FNetForMaskedLM",
                 "MobileBertForMaskedLM", "SqueezeBertForMaskedLM"):
        made[name] = _of(name, _masked)
    made["MobileBertForMaskedLM"] = _of("MobileBertForMaskedLM", _masked, intra_bottleneck_size=64,
                                        true_hidden_size=64, embedding_size=32)
    made["LongformerForMaskedLM"] = _of("LongformerForMaskedLM", _masked, attention_window=[8, 8])
    made["BigBirdForMaskedLM"] = _of("BigBirdForMaskedLM", _masked, attention_type="original_full")
    made["BertForSequenceClassification"] = _of("BertForSequenceClassification", _classes)
    made["DebertaV2ForSequenceClassification"] = _of("DebertaV2ForSequenceClassification", _classes,
                                                     relative_attention=True, position_biased_input=False,
                                                     pos_att_type=["p2c", "c2p"], pooler_hidden_size=64)
    made["ElectraForPreTraining"] = _of("ElectraForPreTraining", _replaced)
    made["XLMRobertaForTokenClassification"] = _of("XLMRobertaForTokenClassification", _tokens)
    made["LayoutLMForTokenClassification"] = _of("LayoutLMForTokenClassification", _boxes)
    made["T5ForConditionalGeneration"] = _of("T5ForConditionalGeneration", _both, num_decoder_layers=2)
    for name in ("MarianMTModel", "PegasusForConditionalGeneration"):
        made[name] = _of(name, _both)
    for name in ("ViTForImageClassification", "BeitForImageClassification"):
        made[name] = _of(name, _picture(32), image_size=32, patch_size=8)
    made["ResNetForImageClassification"] = _of("ResNetForImageClassification", _picture(32), hidden_sizes=[16, 32],
                                               depths=[1, 1], embedding_size=16, layer_type="basic")
    made["SegformerForSemanticSegmentation"] = _of(
        "SegformerForSemanticSegmentation", _segments, hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1],
        num_attention_heads=[1, 2, 4, 4], decoder_hidden_size=32, drop_path_rate=0.0, classifier_dropout_prob=0.0,
        num_encoder_blocks=4)
    made["Wav2Vec2ForSequenceClassification"] = _of(
        "Wav2Vec2ForSequenceClassification", _sound, conv_dim=[32, 32, 32], conv_stride=[5, 4, 4],
        conv_kernel=[10, 8, 4], num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, mask_time_prob=0.0,
        apply_spec_augment=False, feat_proj_dropout=0.0, final_dropout=0.0, classifier_proj_size=32,
        num_feat_extract_layers=3)
    made["WhisperForConditionalGeneration"] = _of("WhisperForConditionalGeneration", _mel, max_source_positions=30,
                                                  max_target_positions=32, num_mel_bins=80)
    made["CLIPModel"] = _clip
    for name in ("BertModel", "MPNetModel"):
        made[f"{name} on pairs"] = _pairs(name)
    made["ModernBertModel on pairs"] = _pairs("ModernBertModel", local_attention=8, global_attn_every_n_layers=2)
    return made
