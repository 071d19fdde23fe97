"""The model of two blocks that bodies of traced tests end with."""

TWO_BLOCKS = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
def build(batch=2, length=64):
    return Model(), torch.randn(batch, length, 32)
"""
