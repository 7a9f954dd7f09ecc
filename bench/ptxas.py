#!/usr/bin/env python3
"""What NVIDIA's assembler makes of the kernels of GPT-2 124M's step: registers, shared memory, spills, occupancy.

Takes those that --device cuda makes for a step of 16 x 1,024 under each policy, but attention's, of which
build/test_device prints the same. They are planned on an emulated GPU with so little memory that the model is refused
behind it. PTX for sm_80 is assembled for sm_80, sm_90 and sm_100, and that for sm_90a for sm_90a. Fails if a kernel is
refused or spills. Kernels of equal text are one row. No GPU is needed; ptxas is (--ptxas), from the CUDA toolkit.

    bench/record.sh ptxas python3 bench/ptxas.py --program build/mantissa
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ARCHITECTURES = {"sm_80": ("sm_80", "sm_90", "sm_100"), "sm_90a": ("sm_90a",)}
# Shared memory of a multiprocessor in bytes: CUDA C++ Programming Guide, compute capabilities. All have room for 64
# warps, 32 blocks and 65,536 registers, which a warp gets by 256; of each block's shared memory 1,024 are the driver's.
SHARED = {"sm_80": 164 * 1024, "sm_90": 228 * 1024, "sm_90a": 228 * 1024, "sm_100": 228 * 1024}


def dump(program, folder, policy, architecture):
    """(name, PTX) of each kernel, in the order in which they were made."""
    command = [program, "train", "--device", "cuda", "--model", "gpt2-124m", "--batch", "16", "--sequence", "1024",
               "--policy", policy, "--steps", "1", "--quiet", "--dump", str(folder)]
    libraries = pathlib.Path(program).resolve().parent / "emulated_gpu"
    done = subprocess.run(command, env=dict(os.environ, LD_LIBRARY_PATH=str(libraries),
                                            EMULATED_GPU=f"{architecture},memory=500M"),
                          capture_output=True, text=True, check=False)
    if "GB are available" not in done.stderr:
        raise SystemExit(f"{' '.join(command)} was not refused behind its plan:\n{done.stderr}")
    made = sorted(folder.glob("*.s"), key=lambda path: int(path.stem.rsplit("_", 1)[1]))
    kernels = [(path.stem.rsplit("_", 1)[0], path.read_text()) for path in made]
    return [(name, text) for name, text in kernels if not name.startswith("attention")]


def kernel_of(text):
    """(description, threads of a block): a nest's signature, if it is one."""
    signature = next((line[3:] for line in text.split("\n") if line.startswith("// (")), "")
    return signature, int(re.search(r"\.reqntid (\d+)", text).group(1))


def assemble(ptxas, folder, text, architecture):
    """(registers, shared bytes, spilled bytes); raises CalledProcessError with what ptxas said."""
    source = folder / "kernel.ptx"
    source.write_text(text)
    done = subprocess.run([ptxas, "-v", f"-arch={architecture}", "-o", str(folder / "kernel.cubin"), str(source)],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"ptxas refuses a kernel for {architecture}:\n{done.stderr}\n{text}")
    registers = int(re.search(r"Used (\d+) registers", done.stderr).group(1))
    shared = re.search(r"(\d+) bytes smem", done.stderr)
    spills = sum(int(number) for number in re.findall(r"(\d+) bytes spill", done.stderr))
    return registers, int(shared.group(1)) if shared else 0, spills


def occupancy(registers, shared, threads, architecture):
    """Percent of a multiprocessor's 64 warps that blocks of the kernel fill."""
    warps = threads // 32
    registers_of_warp = (registers * 32 + 255) // 256 * 256
    blocks = min(32, 64 // warps, 65536 // (registers_of_warp * warps), SHARED[architecture] // (shared + 1024))
    return 100 * blocks * warps // 64


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", default="build/mantissa")
    parser.add_argument("--ptxas", default=shutil.which("ptxas") or "/usr/local/cuda/bin/ptxas")
    parser.add_argument("--policies", default="fp32,bf16,fp16")
    arguments = parser.parse_args()
    if not pathlib.Path(arguments.ptxas).exists():
        sys.exit(f"there is no {arguments.ptxas}; give --ptxas, from the CUDA toolkit")
    version = subprocess.run([arguments.ptxas, "--version"], capture_output=True, text=True, check=True).stdout
    print("ptxas:", re.search(r"release .*", version).group(0))
    kernels = {}  # (target, text without its name): (policies, first name, text)
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        for policy in arguments.policies.split(","):
            for target in ARCHITECTURES:
                for name, text in dump(arguments.program, scratch / f"{policy}-{target}", policy, target):
                    kernels.setdefault((target, text), ([], name, text))[0].append(policy)
        print(f"{'kernel':28} {'assembled for':14} {'registers':>9} {'shared':>7} {'spilled':>8} {'occupancy':>9}  policies")
        spilled = False
        for (target, _), (policies, name, text) in kernels.items():
            signature, threads = kernel_of(text)
            for architecture in ARCHITECTURES[target]:
                registers, shared, spills = assemble(arguments.ptxas, scratch, text, architecture)
                spilled = spilled or spills > 0
                print(f"{name:28} {architecture:14} {registers:9} {shared:7} {spills:8} "
                      f"{occupancy(registers, shared, threads, architecture):7} %  {'+'.join(dict.fromkeys(policies))}")
            if signature:
                print(f"    {signature}")
    if spilled:
        sys.exit("a kernel spills registers")


if __name__ == "__main__":
    main()
