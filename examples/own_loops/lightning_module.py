"""Lightning's Trainer on a module of its own. `dpprof watch examples/own_loops/lightning_module.py`."""

import lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(lightning.LightningModule):
    """Classifies small images."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))

    def training_step(self, batch: list[Tensor], batch_number: int) -> Tensor:
        """Return the loss of a batch."""
        images, labels = batch
        return nn.functional.cross_entropy(self.layers(images), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return Adam, as the tutorial does."""
        return torch.optim.Adam(self.parameters(), lr=1e-3)


lightning.seed_everything(0)
model = Classifier()
data = TensorDataset(torch.randn(512, 1, 28, 28), torch.randint(10, (512,)))
trainer = lightning.Trainer(
    max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False
)
trainer.fit(model, DataLoader(data, batch_size=32))
print(f"weights {sum(weight.sum().item() for weight in model.parameters()):.6f}")
