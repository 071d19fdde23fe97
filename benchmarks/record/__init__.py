"""A public record of predictions made before their results are known."""
