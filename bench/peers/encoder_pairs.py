#!/usr/bin/env python3
"""Tunes a sentence encoder of all-MiniLM-L6-v2's sizes on pairs, by sentence-transformers and by mantissa, interleaved.

    bench/peers/encoder_pairs.py [--batch 32] [--tokens 128] [--rounds 3] [--steps 2] [--threads 2] [--small]
                               [--only WORDS]

Sides: sentence-transformers in FP32 and with autocast to BF16, mantissa in both (mantissa.torch.trainer around the very
SentenceTransformer and its MultipleNegativesRankingLoss: the other pairs of a batch are the negatives, both texts of a
pair go through one tower). Weights are random and no dropout is on, so that losses can be compared; texts have from a
quarter of --tokens to all of it, padded on the right. All sides begin with the same weights, see the same batches and
step by AdamW. In each round every side makes --steps steps; the table has the pairs of a second by the median step.

The losses of mantissa in FP32 must be sentence-transformers' within 1e-4, or the script fails. Needs
`pip install sentence-transformers` and mantissa itself.
"""
import argparse
import copy
import math
import statistics
import sys
import tempfile
import time

RATE, DECAY, NEAR, UNCOUNTED = 2e-5, 0.01, 1e-4, 1
SIZES = dict(vocab_size=30522, hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536,
             max_position_embeddings=512, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
SMALL = dict(SIZES, vocab_size=1000, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128)


def encoder(sizes):
    """A SentenceTransformer with random weights: BERT and the mean of what it makes of the tokens."""
    import transformers
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    with tempfile.TemporaryDirectory() as folder:
        transformers.BertModel(transformers.BertConfig(**sizes), add_pooling_layer=False).save_pretrained(folder)
        with open(f"{folder}/vocab.txt", "w") as file:
            file.write("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
                                 + [f"w{i}" for i in range(sizes["vocab_size"] - 5)]))
        transformers.BertTokenizer(f"{folder}/vocab.txt").save_pretrained(folder)
        body = Transformer(folder)
    return SentenceTransformer(modules=[body, Pooling(sizes["hidden_size"])], device="cpu")


def batches(count, options, sizes):
    import torch
    for _ in range(count):
        texts = []
        for _ in range(2):
            lengths = torch.randint(options.tokens // 4, options.tokens + 1, (options.batch, 1))
            lengths[0] = options.tokens
            mask = (torch.arange(options.tokens) < lengths).long()
            texts += [torch.randint(5, sizes["vocab_size"], mask.shape) * mask, mask]
        yield tuple(texts)


def peer(model, is_bf16):
    import torch
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
    loss = MultipleNegativesRankingLoss(model.train())
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY)

    def step(ids, mask, other_ids, other_mask):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=is_bf16):
            made = loss([{"input_ids": ids, "attention_mask": mask},
                         {"input_ids": other_ids, "attention_mask": other_mask}], None)
        made.backward()
        optimizer.step()
        return made.item()
    return step


def ours(model, policy, options, example):
    import mantissa
    import mantissa.torch
    import torch
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    class Pairs(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.tower = model

        def forward(self, ids, mask, other_ids, other_mask):
            return tuple(self.tower({"input_ids": i, "attention_mask": m})["sentence_embedding"]
                         for i, m in ((ids, mask), (other_ids, other_mask)))

    loss = MultipleNegativesRankingLoss(model)
    optimizer = mantissa.adamw(weight_decay=DECAY, beta2=0.999, epsilon=1e-8, decay_matrices_only=False)
    trainer = mantissa.torch.trainer(Pairs().train(), lambda made: loss.compute_loss_from_embeddings(list(made), None),
                                     example, inputs=4, policy=policy, optimizer=optimizer, threads=options.threads,
                                     check=False)
    return lambda *batch: trainer(*batch, lr=RATE).loss


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=32, help="pairs of a step")
    parser.add_argument("--tokens", type=int, default=128, help="of the longest text")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2, help="of a side in a round")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="", help="sides, by words of their names; PyTorch's BF16 is slow without a unit for it")
    parser.add_argument("--small", action="store_true", help="two layers of 64 channels, to try the script")
    options = parser.parse_args()
    import torch
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    sizes = SMALL if options.small else SIZES
    made = list(batches(options.rounds * options.steps, options, sizes))
    first = encoder(sizes)
    # The views of a trainer are its module's weights, so each side has a module of its own.
    make = {"sentence-transformers fp32": lambda model: peer(model, False),
            "sentence-transformers bf16": lambda model: peer(model, True),
            "mantissa fp32": lambda model: ours(model, "fp32", options, made[0]),
            "mantissa bf16": lambda model: ours(model, "bf16", options, made[0])}
    sides = {side: each(copy.deepcopy(first)) for side, each in make.items()
             if any(word in side for word in options.only.split(","))}
    seconds, losses = {side: [] for side in sides}, {side: [] for side in sides}
    for at in range(options.rounds):
        for side, step in sides.items():
            for batch in made[at * options.steps:(at + 1) * options.steps]:
                began = time.monotonic()
                losses[side].append(step(*batch))
                seconds[side].append(time.monotonic() - began)
    middle = {side: statistics.median(all_[UNCOUNTED:] or all_) for side, all_ in seconds.items()}
    best = min((value for side, value in middle.items() if side.startswith("sentence")), default=math.nan)
    print(f"{options.batch} pairs of up to {options.tokens} tokens, {options.threads} threads, "
          f"{len(made)} steps of each side")
    for side, value in middle.items():
        print(f"{side:28} {options.batch / value:8.1f} pairs/s  {best / value:5.2f} of the peer's best  "
              f"loss {losses[side][0]:.5f} to {losses[side][-1]:.5f}")
    if not {"sentence-transformers fp32", "mantissa fp32"} <= set(sides):
        return 0
    theirs, mine = losses["sentence-transformers fp32"], losses["mantissa fp32"]
    far = max(abs(a - b) / abs(a) for a, b in zip(theirs, mine))
    print(f"losses in FP32 are at most {far:.1e} apart")
    return 0 if far <= NEAR else 1


if __name__ == "__main__":
    sys.exit(main())
