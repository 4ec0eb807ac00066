"""Messages about Opacus's traps. docs/troubleshooting.md quotes them, with names in capitals."""

# Errors, by trap.
SENTENCES = {
    "ids": "{module} gets ids whose first dimension is {length}, not the batch's {batch_size}: "
    "give them the batch dimension, ids.expand(B, T).contiguous()",
    "inputs": "{module} gets an input whose first dimension is {length}, not the batch's {batch_size}: "
    "keep the samples in the first dimension of every module's input",
    "shared": "{module} gets an input of {length} rows in a batch of {samples} samples too: Opacus would "
    "take these rows for samples. Keep the samples in the first dimension of every module's input",
    "unused": "no per-sample gradient for {parameters}: their module is not called on the way to the loss; "
    "call it there, remove it, or set requires_grad=False",
    "dimensions": "{module} gets an input of neither 2 nor 3 dimensions, and Ghost Clipping takes no other "
    "in nn.Linear: flatten it to (B, T, D) before, or use another trainer",
    "norm_bias": "{module}: Opacus needs the bias of nn.LayerNorm: leave bias=False out, or use nn.RMSNorm",
    "in_place": "{module} changes a module's output in place ({place}), which Opacus's hooks do not allow: "
    "write x = x + y for x += y, relu(x) for relu_(x), and leave inplace=True out",
    "in_place_module": "{module} changes a module's output in place, which Opacus's hooks do not allow: "
    "make it with inplace=False",
    "bag": "{module}: Opacus takes nn.EmbeddingBag only with flat ids and offsets: use nn.Embedding, and sum "
    "or average over the tokens",
    "bag_on_fakes": "{module}: Opacus reads the offsets of nn.EmbeddingBag, and fake tensors have no data: "
    "measure it, or use nn.Embedding and sum or average over the tokens",
    "recurrent": "{module}: Opacus has no per-sample gradients for nn.{kind}: use opacus.layers.DP{kind}",
    "attention": "{module}: Opacus has no per-sample gradients for nn.MultiheadAttention: use "
    "opacus.layers.DPMultiheadAttention, or nn.Linear and scaled_dot_product_attention",
    "several_inputs": "{module} takes several inputs, but Opacus, which has no grad sampler for it, gives it "
    "the first alone: move its own parameters ({parameters}) into a module with one input",
    "keywords": "{module} is called with keyword arguments, which Opacus's hooks do not get: pass its input "
    "by position",
    "random": "{module} draws random numbers, as dropout does, and Opacus, which has no grad sampler for it, "
    "runs it under functorch, where that fails: move its own parameters ({parameters}) into a module without "
    "dropout, or set the probability to 0",
    "recomputed": "{module} is called again in backward, by activation checkpointing without re-entry, and "
    "Opacus takes that for another call: give torch.utils.checkpoint.checkpoint use_reentrant=True",
    "tied": "{modules} share {parameter}, which Ghost Clipping does not support: give each a parameter of "
    "its own, or use flat or fast",
    "reused": "{module} is called more than once in a forward, which Ghost Clipping does not support: give "
    "each call a module of its own, or use flat or fast",
    "batch_norm": "{module}: nn.{kind} mixes the samples of a batch, so that no sample has a gradient of its "
    "own: use nn.GroupNorm",
    "running_statistics": "{module}: Opacus does not support the running statistics of nn.{kind}: make it "
    "with track_running_stats=False",
    "complex": "{parameter} is complex, and Opacus's noise for each of its real numbers has 0.71 times the "
    "standard deviation that is asked for: make it a real parameter with a last dimension of 2, take "
    "torch.view_as_complex of it in forward, or train with bk or mixed",
    "buffers": "{module} holds trainable parameters beside buffers ({buffers}), which Opacus does not "
    "support: move one or the other into a module of its own",
    "not_contiguous": "{module} gets ids that are not contiguous, and Ghost Clipping needs contiguous ones: "
    "call .contiguous() on them, as in ids.expand(B, T).contiguous()",
}
# Warnings about a model that trains nevertheless.
WARNINGS = {
    "raw": "{module} holds parameters of its own ({parameters}) beside modules, so that Opacus runs all of "
    "it under functorch: the gradients are right, but the cost differs; move them into a module of their own",
    "functorch": "{modules}: Opacus has no grad sampler for {kind} and runs it under functorch, which makes "
    "per-sample gradients in Ghost Clipping too: use a layer that it has one for, such as nn.Linear",
    "bag_max": '{module}: Opacus takes per-sample gradients of nn.EmbeddingBag(mode="max") to be zero, so '
    "that its clipping is wrong: use nn.Embedding, and the maximum over the tokens",
    "mixing": "{module}: nn.{kind} mixes the samples of a batch, so that clipping does not bound what one "
    "sample changes: use nn.GroupNorm",
}
