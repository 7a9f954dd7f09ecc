#!/usr/bin/env python3
"""Which plans cuDNN would make for the convolutions of ResNet50, VGG19 and DenseNet121 on a GPU that is described to it;
none need be here. Prints, for each kind of product and type, how many of the networks' convolutions have an engine that
mantissa/device/cuda/kernels/dnn_plan.cpp would take, and the most scratch that one asks for. Exit code 1 if one has none.

Usage: bench/cudnn_engines.py [--batch 128] [--library libcudnn.so.9] [--each]"""
import argparse
import ctypes
import json
import sys

FLOAT, HALF, BFLOAT16 = 0, 2, 9
TYPES = {"fp32": FLOAT, "tf32": FLOAT, "bf16": BFLOAT16, "fp16": HALF}
DATA_TYPE, INT64, FLOAT_ATTRIBUTE, MODE, HEURISTICS, NOTE, DESCRIPTOR, CHAR = 1, 3, 4, 7, 8, 11, 15, 24
TENSOR_CORE, FORBIDDEN = 0, range(1, 9)
BEST, FALLBACK = 3, 2
# Kind of the operation, and its attributes for x, w, y, the convolution, alpha and beta.
OPERATIONS = {"forward": (10, 704, 703, 705, 702, 700, 701), "to the images": (12, 710, 709, 711, 708, 706, 707),
              "to the filter": (11, 716, 715, 717, 714, 712, 713)}
COMMON = {"maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64], "driverVer": 13000, "cudaDeviceId": 0,
          "regsPerBlock": 65536, "warpSize": 32, "maxSharedMemoryPerBlock": 49152, "reservedSharedMemoryPerBlock": 1024,
          "maxRegistersPerSM": 65536, "pciDeviceId": 0, "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024,
          "maxThreadsPerSM": 2048, "isTccDriver": 0, "supportCoopLaunch": 1}
GPUS = {"A100": {"deviceVer": 800, "multiProcessorCount": 108, "smClockRateKHz": 1410000, "memClockRateKHz": 1215000,
                 "l2CacheSize": 40 << 20, "maxSharedMemoryPerBlockOptin": 166912, "totalGlobalMem": 40 << 30},
        "H200": {"deviceVer": 900, "multiProcessorCount": 132, "smClockRateKHz": 1980000, "memClockRateKHz": 3201000,
                 "l2CacheSize": 50 << 20, "maxSharedMemoryPerBlockOptin": 232448, "totalGlobalMem": 141 << 30}}


class Refused(Exception):
    """In cuDNN's words."""


class Cudnn:
    """The calls of its graph interface that are needed here."""

    def __init__(self, library):
        self.calls = ctypes.CDLL(library)
        self.calls.cudnnGetErrorString.restype = ctypes.c_char_p

    def check(self, status):
        if status != 0:
            text = ctypes.create_string_buffer(512)
            self.calls.cudnnGetLastErrorString(text, ctypes.c_size_t(512))
            raise Refused(f"{self.calls.cudnnGetErrorString(status).decode()} {text.value.decode()}")

    def create(self, kind):
        made = ctypes.c_void_p()
        self.check(self.calls.cudnnBackendCreateDescriptor(kind, ctypes.byref(made)))
        return made

    def set(self, descriptor, attribute, kind, element, values):
        array = (element * len(values))(*values)
        self.check(self.calls.cudnnBackendSetAttribute(descriptor, attribute, kind, ctypes.c_int64(len(values)), array))

    def numbers(self, descriptor, attribute, values):
        self.set(descriptor, attribute, INT64, ctypes.c_int64, values)

    def word(self, descriptor, attribute, kind, value):
        self.set(descriptor, attribute, kind, ctypes.c_int, [value])

    def part(self, descriptor, attribute, *parts):
        self.set(descriptor, attribute, DESCRIPTOR, ctypes.c_void_p, [part.value for part in parts])

    def finalize(self, descriptor):
        self.check(self.calls.cudnnBackendFinalize(descriptor))
        return descriptor

    def get(self, descriptor, attribute, kind, array):
        count = ctypes.c_int64()
        asked = len(array) if array is not None else 0
        self.check(self.calls.cudnnBackendGetAttribute(descriptor, attribute, kind, ctypes.c_int64(asked),
                                                       ctypes.byref(count), array))
        return count.value

    def device(self, properties):
        text = json.dumps(properties).encode()
        made = self.create(38)
        self.set(made, 2702, CHAR, ctypes.c_char, [bytes([byte]) for byte in text])
        return self.finalize(made)

    def tensor(self, number, kind, nchw):
        made = self.create(17)
        self.word(made, 901, DATA_TYPE, kind)
        self.numbers(made, 902, nchw)
        self.numbers(made, 903, [nchw[1] * nchw[2] * nchw[3], 1, nchw[3] * nchw[1], nchw[1]])
        self.numbers(made, 906, [number])
        self.numbers(made, 900, [16])
        return self.finalize(made)

    def graph(self, product, kind, batch, layer):
        image, channels, filters, window, stride, padding = layer
        output = (image + 2 * padding - window) // stride + 1
        convolution = self.create(1)
        self.word(convolution, 100, DATA_TYPE, FLOAT)
        self.word(convolution, 101, MODE, 1)
        self.numbers(convolution, 106, [2])
        for attribute, number in ((102, 1), (103, stride), (104, padding), (105, padding)):
            self.numbers(convolution, attribute, [number, number])
        self.finalize(convolution)
        operation, x, w, y, own, alpha, beta = OPERATIONS[product]
        made = self.create(operation)
        self.part(made, x, self.tensor(1, kind, [batch, channels, image, image]))
        self.part(made, w, self.tensor(2, kind, [filters, channels, window, window]))
        self.part(made, y, self.tensor(3, kind, [batch, filters, output, output]))
        self.part(made, own, convolution)
        self.set(made, alpha, FLOAT_ATTRIBUTE, ctypes.c_float, [1.0])
        self.set(made, beta, FLOAT_ATTRIBUTE, ctypes.c_float, [0.0])
        self.finalize(made)
        graph = self.create(15)
        self.part(graph, 801, made)
        return self.finalize(graph)

    def configurations(self, graph, device, mode):
        heuristics = self.create(4)
        self.part(heuristics, 201, graph)
        self.word(heuristics, 200, HEURISTICS, mode)
        self.part(heuristics, 204, device)
        self.finalize(heuristics)
        count = min(self.get(heuristics, 202, DESCRIPTOR, None), 64)
        array = (ctypes.c_void_p * count)(*[self.create(3).value for _ in range(count)])
        given = self.get(heuristics, 202, DESCRIPTOR, array)
        return [ctypes.c_void_p(handle) for handle in array[:given]]

    def first_plan(self, graph, device, tensor_cores):
        """Engine and bytes of scratch of the first that may be taken, or None; and how many were looked at."""
        looked = 0
        for mode in (BEST, FALLBACK):
            for configuration in self.configurations(graph, device, mode):
                looked += 1
                engine = (ctypes.c_void_p * 1)(self.create(2).value)
                self.get(configuration, 300, DESCRIPTOR, engine)
                engine = ctypes.c_void_p(engine[0])
                notes = (ctypes.c_int * 16)()
                own = list(notes[:self.get(engine, 1303, NOTE, notes)])
                if any(note in FORBIDDEN for note in own) or (TENSOR_CORE in own and not tensor_cores):
                    continue
                plan = self.create(5)
                try:
                    self.part(plan, 401, configuration)
                    self.part(plan, 407, device)
                    self.finalize(plan)
                except Refused:
                    continue
                number, scratch = (ctypes.c_int64 * 1)(), (ctypes.c_int64 * 1)()
                self.get(engine, 1301, INT64, number)
                self.get(plan, 402, INT64, scratch)
                return (number[0], scratch[0]), looked
        return None, looked


def resnet50():
    """Each as (rows of pixels, channels, filters, window, stride, padding)."""
    yield 224, 3, 64, 7, 2, 3
    channels, image = 64, 56
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for block in range(blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            yield image, channels, width, 1, stride, 0
            if block == 0:
                yield image, channels, 4 * width, 1, stride, 0
            image //= stride
            yield image, width, width, 3, 1, 1
            yield image, width, 4 * width, 1, 1, 0
            channels = 4 * width


def vgg19():
    channels, image = 3, 224
    for stage, convolutions in enumerate((2, 2, 4, 4, 4)):
        for _ in range(convolutions):
            yield image, channels, min(64 << stage, 512), 3, 1, 1
            channels = min(64 << stage, 512)
        image //= 2


def densenet121():
    yield 224, 3, 64, 7, 2, 3
    channels, image = 64, 56
    for stage, layers in enumerate((6, 12, 24, 16)):
        for _ in range(layers):
            yield image, channels, 128, 1, 1, 0
            yield image, 128, 32, 3, 1, 1
            channels += 32
        if stage < 3:
            yield image, channels, channels // 2, 1, 1, 0
            channels, image = channels // 2, image // 2


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=128, help="pictures of a step")
    parser.add_argument("--library", default="libcudnn.so.9", help="the library, or where it lies")
    parser.add_argument("--each", action="store_true", help="print a line for each convolution, too")
    arguments = parser.parse_args()
    try:
        cudnn = Cudnn(arguments.library)
    except OSError as error:
        sys.exit(f"--library {arguments.library} cannot be loaded: {error}")
    print(f"cuDNN {cudnn.calls.cudnnGetVersion()}, {arguments.batch} pictures")
    layers = sorted({layer for network in (resnet50, vgg19, densenet121) for layer in network()})
    missing = False
    for gpu, own in GPUS.items():
        device = cudnn.device(COMMON | own | {"deviceName": gpu})
        for policy, kind in TYPES.items():
            for product in OPERATIONS:
                found, most, looked_at_most = 0, 0, 0
                for layer in layers:
                    graph = cudnn.graph(product, kind, arguments.batch, layer)
                    plan, looked = cudnn.first_plan(graph, device, policy != "fp32")
                    looked_at_most = max(looked_at_most, looked)
                    if arguments.each:
                        print(f"  {gpu} {policy} {product} {layer}: {plan}")
                    if plan:
                        found, most = found + 1, max(most, plan[1])
                print(f"{gpu} {policy:5} {product:14} {found} of {len(layers)} have an engine, of the first "
                      f"{looked_at_most} offered at most; scratch up to {most / 2**20:,.0f} MB")
                missing |= found < len(layers)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
