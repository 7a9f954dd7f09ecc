#!/usr/bin/python3
"""Writes tests/formats/png_pixels.txt: small PNGs of every kind, each with the pixels that Pillow gives.

    python3 bench/peers/png_pixels.py > tests/formats/png_pixels.txt        needs Pillow

A line holds a name, the file and its pixels, which are what torchvision's ImageFolder hands on:
Image.open(...).convert('RGB'). Grey of 16 bits is not among them: there Pillow makes all above 255 white.
"""
import io
import struct
import warnings
import zlib

from PIL import Image

GREY, RGB, PALETTE, GREY_ALPHA, RGBA = 0, 2, 3, 4, 6
PASSES = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def chunk(kind, data):
    return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))


def png(height, width, color, bits, lines, chunks=(), interlaced=0):
    header = struct.pack('>IIBBBBB', width, height, bits, color, 0, 0, interlaced)
    data = b''.join(b'\0' + line for line in lines)
    return (b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', header) + b''.join(chunk(*each) for each in chunks) +
            chunk(b'IDAT', zlib.compress(data)) + chunk(b'IEND', b''))


def interlaced(height, width):
    lines = [b''.join(bytes([10 * x, 20 * y, 7]) for x in range(x0, width, dx))
             for x0, y0, dx, dy in PASSES if x0 < width for y in range(y0, height, dy)]
    return png(height, width, RGB, 8, lines, interlaced=1)


def numbers(*values):
    return struct.pack(f'>{len(values)}I', *values)


gamma, linear = (b'gAMA', numbers(45455)), (b'gAMA', numbers(100000))
primaries = (b'cHRM', numbers(31270, 32900, 64000, 33000, 21000, 71000, 15000, 6000))
palette = (b'PLTE', bytes([1, 2, 3, 40, 50, 60, 250, 240, 230, 9, 8, 7]))
colors = [bytes([10, 100, 200, 0, 128, 255])]
cases = {
    'rgb': png(1, 2, RGB, 8, colors),
    'rgb_linear_gamma': png(1, 2, RGB, 8, colors, [linear]),
    'rgb_gamma_and_primaries': png(1, 2, RGB, 8, colors, [gamma, primaries]),
    'rgb_srgb': png(1, 2, RGB, 8, colors, [(b'sRGB', b'\0'), gamma]),
    'rgb_background_and_bits': png(1, 2, RGB, 8, colors, [(b'sBIT', b'\5\6\5'), (b'bKGD', b'\0\xff' * 3)]),
    'rgb_transparent_color': png(1, 2, RGB, 8, colors, [(b'tRNS', b'\0\x0a\0\x64\0\xc8')]),
    'rgb_16_bits': png(1, 2, RGB, 16, [bytes([0x12, 0xff, 0x80, 0x7f, 0xfe, 0xff, 1, 2, 3, 4, 5, 6])]),
    'rgb_16_bits_linear_gamma': png(1, 1, RGB, 16, [bytes([0x12, 0xff, 0x80, 0x7f, 0xfe, 0xff])], [linear]),
    'grey_linear_gamma': png(1, 2, GREY, 8, [bytes([77, 130])], [linear]),
    'grey_transparent_tone': png(1, 2, GREY, 8, [bytes([77, 130])], [(b'tRNS', b'\0\x4d')]),
    'grey_1_bit': png(1, 4, GREY, 1, [bytes([0b10100000])]),
    'grey_2_bits': png(1, 4, GREY, 2, [bytes([0b11100100])]),
    'grey_4_bits': png(1, 4, GREY, 4, [bytes([0x0f, 0x5a])], [linear]),
    'grey_alpha': png(1, 2, GREY_ALPHA, 8, [bytes([10, 255, 200, 0])]),
    'grey_alpha_16_bits': png(1, 2, GREY_ALPHA, 16, [bytes([10, 200, 255, 0, 200, 255, 0, 1])]),
    'rgba': png(1, 3, RGBA, 8, [bytes([10, 20, 30, 255, 10, 20, 30, 0, 90, 80, 70, 128])], [linear]),
    'rgba_16_bits': png(1, 1, RGBA, 16, [bytes([10, 255, 20, 200, 30, 3, 0, 7])]),
    'palette': png(1, 3, PALETTE, 8, [bytes([2, 0, 1])], [gamma, primaries, palette]),
    'palette_transparent': png(1, 3, PALETTE, 8, [bytes([2, 0, 1])], [palette, (b'tRNS', b'\0\x80')]),
    'palette_2_bits': png(1, 4, PALETTE, 2, [bytes([0b11100100])], [palette]),
    'palette_1_bit': png(1, 4, PALETTE, 1, [bytes([0b10100000])], [(b'PLTE', bytes([1, 2, 3, 40, 50, 60]))]),
    'interlaced': interlaced(9, 5),
}
warnings.simplefilter('ignore')
for name, file in cases.items():
    print(name, file.hex(), Image.open(io.BytesIO(file)).convert('RGB').tobytes().hex())
