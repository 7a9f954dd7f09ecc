"""torchvision's families: 2 x 3 x 64 x 64 unless said, 10 classes, cross-entropy; dropout off."""
import torch
import torch.nn.functional as F


def _still(model):
    """Without dropout and stochastic depth."""
    for module in model.modules():
        if isinstance(module, torch.nn.modules.dropout._DropoutNd) or type(module).__name__ == "StochasticDepth":
            module.p = 0.0
        if isinstance(getattr(module, "dropout", None), float):
            module.dropout = 0.0
        if isinstance(getattr(module, "attention_dropout", None), float):
            module.attention_dropout = 0.0
    return model


def _classifier(name, size=64, batch=2, **options):
    def make():
        import torchvision
        model = _still(getattr(torchvision.models, name)(num_classes=10, weights=None, **options))
        return model, F.cross_entropy, (torch.randn(batch, 3, size, size), torch.arange(batch) % 10)
    return make


def _segmenter(name):
    def make():
        import torchvision
        model = getattr(torchvision.models.segmentation, name)(num_classes=5, weights=None, weights_backbone=None)
        return (_still(model), lambda out, y: F.cross_entropy(out["out"], y),
                (torch.randn(2, 3, 64, 64), torch.randint(0, 5, (2, 64, 64))))
    return make


def _video(name, frames, size):
    def make():
        import torchvision
        model = _still(getattr(torchvision.models.video, name)(num_classes=10, weights=None))
        return model, F.cross_entropy, (torch.randn(2, 3, frames, size, size), torch.tensor([1, 2]))
    return make


def _vit():
    import torchvision
    model = torchvision.models.VisionTransformer(64, 16, 2, 4, 96, 192, num_classes=10)
    return model, F.cross_entropy, (torch.randn(2, 3, 64, 64), torch.tensor([1, 2]))


def cases():
    made = {name: _classifier(name) for name in (
        "vgg11_bn", "resnet18", "resnet50", "resnext50_32x4d", "wide_resnet50_2", "densenet121", "squeezenet1_1",
        "mnasnet0_5", "mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large", "efficientnet_b0",
        "efficientnet_v2_s", "convnext_tiny", "swin_t", "swin_v2_t")}
    made["alexnet"] = _classifier("alexnet", 224)
    made["vgg19"] = _classifier("vgg19", 224, 1)
    made["googlenet"] = _classifier("googlenet", 96, aux_logits=False, init_weights=False)
    made["inception_v3"] = _classifier("inception_v3", 299, aux_logits=False, init_weights=False)
    made["vit_b_16"] = _vit
    made["maxvit_t"] = _classifier("maxvit_t", 224)
    for name in ("fcn_resnet50", "deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large"):
        made[name] = _segmenter(name)
    made["r3d_18"] = _video("r3d_18", 4, 32)
    made["s3d"] = _video("s3d", 16, 224)
    return made
