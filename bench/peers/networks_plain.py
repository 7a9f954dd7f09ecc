"""The networks for pictures in plain PyTorch, under the names of torchvision's state dicts.

ResNet50: v1 as Keras has it (a block's first 1x1 convolution has the stride, convolutions have biases) and v1.5 as
torchvision has it (the 3x3 has the stride, no biases). VGG19 without batch norms and without dropout. DenseNet121.
ResNet20 for pictures of 32 x 32 pixels (He et al. 2016, shortcuts without weights), which no fixture has.
`width` is the number of channels of the first convolution; all others are in proportion.
"""
import collections
import math

import torch
from torch import nn
from torch.nn import functional

NAMES = ("ResNet50", "ResNet50v1.5", "VGG19", "DenseNet121")
CIFAR = ("ResNet20",)
KERAS_NORM = {"eps": 1.001e-5, "momentum": 0.01}  # Keras writes the momentum as 0.99
TORCH_NORM = {"eps": 1e-5, "momentum": 0.1}


class Bottleneck(nn.Module):
    def __init__(self, inputs, channels, stride, keras):
        super().__init__()
        first, second = (stride, 1) if keras else (1, stride)
        norm = KERAS_NORM if keras else TORCH_NORM
        convolution = lambda i, o, size, s: nn.Conv2d(i, o, size, s, size // 2, bias=keras)
        self.conv1, self.bn1 = convolution(inputs, channels, 1, first), nn.BatchNorm2d(channels, **norm)
        self.conv2, self.bn2 = convolution(channels, channels, 3, second), nn.BatchNorm2d(channels, **norm)
        self.conv3, self.bn3 = convolution(channels, 4 * channels, 1, 1), nn.BatchNorm2d(4 * channels, **norm)
        self.downsample = None
        if stride != 1 or inputs != 4 * channels:
            self.downsample = nn.Sequential(convolution(inputs, 4 * channels, 1, stride),
                                            nn.BatchNorm2d(4 * channels, **norm))

    def forward(self, x):
        y = functional.relu(self.bn1(self.conv1(x)))
        y = functional.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return functional.relu(y + (self.downsample(x) if self.downsample else x))


class ResNet(nn.Module):
    def __init__(self, keras, classes, width, blocks=(3, 4, 6, 3)):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=keras)
        self.bn1 = nn.BatchNorm2d(width, **(KERAS_NORM if keras else TORCH_NORM))
        inputs = width
        for stage, count in enumerate(blocks):
            layers = []
            for i in range(count):
                layers.append(Bottleneck(inputs, width << stage, 2 if i == 0 and stage > 0 else 1, keras))
                inputs = 4 * (width << stage)
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layers))
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x):
        x = functional.relu(self.bn1(self.conv1(x)))
        x = functional.max_pool2d(x, 3, 2, 1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


class BasicBlock(nn.Module):
    def __init__(self, inputs, channels, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, channels, 3, stride, 1, bias=False), nn.BatchNorm2d(channels)
        self.conv2, self.bn2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False), nn.BatchNorm2d(channels)
        self.stride, self.added = stride, channels - inputs

    def forward(self, x):
        y = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        if self.stride == 2:
            x = functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.added // 2, self.added - self.added // 2))
        return functional.relu(y + x)


class CifarResNet(nn.Module):
    def __init__(self, classes=10, width=16, blocks=(3, 3, 3)):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        layers, inputs = [], width
        for stage, count in enumerate(blocks):
            for i in range(count):
                layers.append(BasicBlock(inputs, width << stage, 2 if i == 0 and stage > 0 else 1))
                inputs = width << stage
        self.layers, self.fc = nn.Sequential(*layers), nn.Linear(inputs, classes)

    def forward(self, x):
        return self.fc(self.layers(functional.relu(self.bn1(self.conv1(x)))).mean((2, 3)))


class Vgg(nn.Module):
    def __init__(self, classes, width, hidden=64, convolutions=(2, 2, 4, 4, 4)):
        super().__init__()
        layers, inputs = [], 3
        for stage, count in enumerate(convolutions):
            channels = width * min(8, 1 << stage)
            for _ in range(count):
                layers += [nn.Conv2d(inputs, channels, 3, 1, 1), nn.ReLU()]
                inputs = channels
            layers.append(nn.MaxPool2d(2, 2))
        self.features = nn.Sequential(*layers)
        # The numbers of the names count dropout, too, which is 0 here.
        self.classifier = nn.Sequential(nn.Linear(49 * inputs, hidden * width), nn.ReLU(), nn.Identity(),
                                        nn.Linear(hidden * width, hidden * width), nn.ReLU(), nn.Identity(),
                                        nn.Linear(hidden * width, classes))

    def forward(self, x):
        x = functional.adaptive_avg_pool2d(self.features(x), 7)
        return self.classifier(torch.flatten(x, 1))


class DenseLayer(nn.Module):
    def __init__(self, inputs, growth):
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs, **KERAS_NORM)
        self.conv1 = nn.Conv2d(inputs, 4 * growth, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(4 * growth, **KERAS_NORM)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, x):
        y = self.conv1(functional.relu(self.norm1(x)))
        return torch.cat((x, self.conv2(functional.relu(self.norm2(y)))), 1)


class Transition(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.norm = nn.BatchNorm2d(inputs, **KERAS_NORM)
        self.conv = nn.Conv2d(inputs, inputs // 2, 1, bias=False)

    def forward(self, x):
        return functional.avg_pool2d(self.conv(functional.relu(self.norm(x))), 2, 2)


class DenseNet(nn.Module):
    def __init__(self, classes, width, blocks=(6, 12, 24, 16)):
        super().__init__()
        growth, inputs = width // 2, width
        layers = collections.OrderedDict(conv0=nn.Conv2d(3, width, 7, 2, 3, bias=False),
                                         norm0=nn.BatchNorm2d(width, **KERAS_NORM), relu0=nn.ReLU(),
                                         pool0=nn.MaxPool2d(3, 2, 1))
        for index, count in enumerate(blocks):
            layers[f"denseblock{index + 1}"] = nn.Sequential(collections.OrderedDict(
                (f"denselayer{i + 1}", DenseLayer(inputs + i * growth, growth)) for i in range(count)))
            inputs += count * growth
            if index + 1 < len(blocks):
                layers[f"transition{index + 1}"] = Transition(inputs)
                inputs //= 2
        layers["norm5"] = nn.BatchNorm2d(inputs, **KERAS_NORM)
        self.features = nn.Sequential(layers)
        self.classifier = nn.Linear(inputs, classes)

    def forward(self, x):
        return self.classifier(functional.relu(self.features(x)).mean((2, 3)))


def network(name, classes=1000, width=64, hidden=64):
    """The network of that name, its parameters not drawn in any way that matters."""
    if name in CIFAR:
        return CifarResNet()
    if name.startswith("ResNet50"):
        return ResNet(name == "ResNet50", classes, width)
    return Vgg(classes, width, hidden) if name == "VGG19" else DenseNet(classes, width)


def draw(model, seed):
    """Weights as Keras draws them (uniform, Glorot and Bengio 2010), biases 0, norms 1 and 0."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                window = math.prod(module.weight.shape[2:])
                limit = math.sqrt(6 / (window * (module.weight.shape[0] + module.weight.shape[1])))
                module.weight.uniform_(-limit, limit, generator=generator)
                if module.bias is not None:
                    module.bias.zero_()
    return model


def synthetic_batch(batch, image, classes, seed):
    """Pictures [B, 3, H, W] uniform in [0, 1) and classes, of which the last is never drawn."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(batch, image, image, 3, generator=generator).permute(0, 3, 1, 2),
            torch.randint(0, classes - 1, (batch,), generator=generator))
