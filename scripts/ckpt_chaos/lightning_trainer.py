"""Trains with Lightning's Trainer, and resumes from its last checkpoint."""

import lightning.pytorch as pl
import torch
from torch.utils import data as torch_data

from scripts.ckpt_chaos import data


class Sum(pl.LightningModule):
    """Adds the numbers of each example."""

    def __init__(self) -> None:
        super().__init__()
        layers = [torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Dropout(0.1)]
        self.net = torch.nn.Sequential(*layers, torch.nn.Linear(16, 1))

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        """See `LightningModule`."""
        x, y = batch
        return torch.nn.functional.mse_loss(self.net(x), y)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """See `LightningModule`."""
        return torch.optim.Adam(self.parameters())


if __name__ == "__main__":
    pl.seed_everything(0)
    out, model = data.folder(), Sum()
    dataset = torch_data.TensorDataset(*map(torch.from_numpy, data.examples()))
    saves = pl.callbacks.ModelCheckpoint(
        dirpath=out / "checkpoints", filename="ck-{step}", save_top_k=-1, save_last=True
    )
    trainer = pl.Trainer(
        max_epochs=data.EPOCHS,
        accelerator="cpu",
        callbacks=[saves],
        logger=False,
        enable_progress_bar=False,
        default_root_dir=out,
    )
    loader = torch_data.DataLoader(dataset, data.BATCH, shuffle=True)
    trainer.fit(model, loader, ckpt_path="last")
    flat = torch.cat([value.flatten() for value in model.state_dict().values()])
    (out / "final.bin").write_bytes(flat.numpy().tobytes())
