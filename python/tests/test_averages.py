"""Averaged weights of PyTorch modules beside torch's and timm's. Needs torch; timm is asked where it is installed."""
import copy
import sys
import unittest

try:
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
except ImportError:
    print("skipped: no torch: pip install torch brings it")
    sys.exit(0)
try:
    import timm.utils
except ImportError:
    timm = None

import mantissa
import mantissa.torch

Y = torch.arange(8) % 3


class Averages(unittest.TestCase):
    def test_averages_are_those_of_torch_and_timm(self):
        """Weights and running statistics after each of 50 steps, fed to both; in views and in copies."""
        for views in (True, False):
            torch.manual_seed(0)
            model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))
            other = copy.deepcopy(model)
            step = mantissa.torch.trainer(model, F.cross_entropy, (torch.randn(8, 3, 6, 6), Y), views=views,
                                          optimizer=mantissa.sgd(momentum=0.9), ema_decay=0.9)
            averages = [torch.optim.swa_utils.AveragedModel(
                other, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=True)]
            feed = [lambda steps: averages[0].update_parameters(other)]
            if timm is not None:
                averages.append(timm.utils.ModelEmaV3(other, decay=0.9))
                feed.append(lambda steps: averages[1].update(other, step=steps))
            for count in range(1, 51):
                step(1 + 2 * torch.randn(8, 3, 6, 6), Y, lr=0.05)
                other.load_state_dict(step.state_dict())
                for each in feed:
                    each(count)
            x = torch.randn(8, 3, 6, 6)
            raw, trained = step.state_dict(), step.evaluate(x, Y)
            with step.averaged():
                got, loss = step.state_dict(), step.evaluate(x, Y)
                seen = {name: tensor.clone() for name, tensor in model.state_dict().items()}
                with self.assertRaisesRegex(mantissa.Error, "averages for now, which nothing may change"):
                    step(x, Y, lr=0.05)
            for each in averages:
                for name, expected in each.module.state_dict().items():
                    if expected.is_floating_point():
                        apart = (got[name] - expected).abs().max() / expected.abs().max().clamp(min=1)
                        self.assertLess(float(apart), 1e-6, name)
                        self.assertEqual(torch.equal(seen[name], got[name]), views, name)
                expected = F.cross_entropy(each.module.eval()(x), Y).item()
                self.assertAlmostEqual(loss, expected, 5)
                self.assertGreater(abs(trained - expected), 1e-3)
            self.assertTrue(all(torch.equal(raw[name], now) for name, now in step.state_dict().items()))
            step(x, Y, lr=0.05)


if __name__ == "__main__":
    unittest.main()
