"""LoRA on a small GPT-2, with Opacus. `dpprof watch examples/own_loops/gpt2_lora_opacus.py`."""

import torch
from opacus import PrivacyEngine
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader, TensorDataset
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
config = GPT2Config()
config.update({"vocab_size": 200, "n_positions": 32, "n_embd": 64, "n_layer": 2, "n_head": 4})
model = get_peft_model(GPT2LMHeadModel(config), LoraConfig(r=8, task_type="CAUSAL_LM")).train()
optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], lr=1e-3)
data = TensorDataset(torch.randint(200, (128, 32)))
engine = PrivacyEngine()
model, optimizer, loader = engine.make_private(
    module=model,
    optimizer=optimizer,
    data_loader=DataLoader(data, batch_size=8),
    noise_multiplier=1.0,
    max_grad_norm=1.0,
)
for _ in range(3):
    for (tokens,) in loader:
        optimizer.zero_grad()
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
print(f"loss {loss.item():.6f}, epsilon {engine.get_epsilon(delta=1e-5):.6f}")
