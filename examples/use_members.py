"""What to do with a trained supernet or family: switch sizes, cut one out, count its cost, go back to BERT.

Runs as it stands on MiniLM of the `demo` extra.
"""

import torch
from transformers import AutoTokenizer

from hf_elastic import SubnetConfig, convert, extract, to_stock
from hf_elastic.compression.cost import count_flops, count_parameters, measure_latency
from hf_elastic.tasks.bbc_news import minilm_checkpoint


def main() -> None:
    checkpoint = minilm_checkpoint()
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    batch = tokenizer(["One model, several sizes."], return_tensors="pt")

    model = convert(checkpoint)
    model.config.subnets = {
        "wide": SubnetConfig.scaled(model.config, ffn=0.75),
        "shallow": SubnetConfig.scaled(model.config, depth=0.5, ffn=0.5),
        "narrow": SubnetConfig(layers=(0, 2, 5), num_attention_heads=(8, 6, 6), intermediate_size=512),
    }
    for name in model.config.subnets:
        parameters = count_parameters(model, name)
        latency = measure_latency(model, name)
        print(
            f"{name}: {parameters.encoder / 1e6:.1f}M parameters in the encoder, {count_flops(model, name) / 1e9:.2f} "
            f"GFLOPs and {latency.milliseconds:.0f} ms for {latency.sequence_length} tokens"
        )

    with torch.no_grad():
        by_argument = model(**batch, subnet="shallow").last_hidden_state
        with model.use_subnet("shallow"):  # for code that calls the model itself, such as a pipeline
            by_context = model(**batch).last_hidden_state
        member = extract(model, "shallow")  # a model of its own, which an Auto class loads once it is saved
        stock = to_stock(member)  # BERT's own class, for servers that know nothing else
        for name, output in (
            ("use_subnet", by_context),
            ("extract", member(**batch).last_hidden_state),
            (type(stock).__name__, stock(**batch).last_hidden_state),
        ):
            print(f"{name}: differs by at most {(output - by_argument).abs().max():.1e}")

    try:
        to_stock(extract(model, "narrow"))
    except ValueError as error:
        print(f"narrow: {error}")


if __name__ == "__main__":
    main()
