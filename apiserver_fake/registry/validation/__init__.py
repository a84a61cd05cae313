"""What documents may say; the texts are upstream's."""
